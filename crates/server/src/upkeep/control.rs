//! Commands to the process that serves: a socket in the data folder, for the folder's owner only. Only one process at a
//! time may open the stores, so it must copy them itself.
//!
//! A request is a line of JSON, and so is the answer: `{"backup": "/a/folder"}`, `{"send": true}`, `{"check": true}` or
//! `{"describe": true}`; `{"text": …, "sound": …}` or `{"failed": …}`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isobar_hub::{Shift, guarded};
use isobar_model::time::Clock;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::{Platform, Task, UpkeepReport};
use crate::Failure;

const SOCKET: &str = "isobar.sock";
/// Timeout for reading a request, and for writing its answer.
const ASK_TIME: Duration = Duration::from_secs(2);
/// Most concurrent peers. Further ones wait.
const PEERS_MAX: usize = 64;
/// Pause after a failed accept, for want of file descriptors perhaps.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Longest request or answer, in bytes: a path, or a list of faults.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest path that fits into the address of a socket, in bytes.
const ADDRESS_BYTES_MAX: usize = 100;

/// A short enough path of a data folder's socket. The folder must stay open while it is used.
struct SocketName {
    path: PathBuf,
    _folder: Option<File>,
}

impl SocketName {
    fn of(data: &Path) -> io::Result<Self> {
        let path = data.join(SOCKET);
        if path.as_os_str().len() <= ADDRESS_BYTES_MAX {
            return Ok(Self { path, _folder: None });
        }
        let folder = File::open(data)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// The control socket of the process that uses the data folder. Removed when dropped.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Opens the socket. If the file system has no sockets, logs it and returns `None`.
    pub fn open(data: &Path) -> Option<Self> {
        let opened = || -> io::Result<Self> {
            let (place, path) = (SocketName::of(data)?, data.join(SOCKET));
            // A leftover of a killed process: the folder is ours now.
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&place.path)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            Ok(Self { listener, path })
        };
        opened().map_err(|error| tracing::warn!(%error, "cannot make {SOCKET}: no commands while this runs")).ok()
    }

    /// Serves peers concurrently, and runs their tasks on these stores one at a time. A task is abandoned when the
    /// server stops. The socket is removed with the last reference to this.
    pub async fn serve(self: Arc<Self>, platform: Platform, clock: Clock, mut shift: Shift) {
        let served = Arc::new(Served { platform, clock, turn: Mutex::default() });
        let mut peers = JoinSet::new();
        loop {
            tokio::select! {
                stream = self.accept(&served.clock), if peers.len() < PEERS_MAX => {
                    let served = Arc::clone(&served);
                    peers.spawn(async move {
                        if let Some(Err(error)) = guarded("command", answer(stream, &served)).await {
                            tracing::warn!(%error, "{SOCKET}: a command was not answered");
                        }
                    });
                    shift.well();
                }
                Some(_) = peers.join_next() => {}
                () = shift.end() => return,
            }
        }
    }

    async fn accept(&self, clock: &Clock) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    #[cfg(test)]
                    crate::faults::reached("control");
                    return stream;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a command on {SOCKET}");
                    clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A file that stays is removed by the next process.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The platform that commands act on.
struct Served {
    platform: Platform,
    clock: Clock,
    /// Held by the running command.
    turn: Mutex<()>,
}

async fn answer(mut stream: UnixStream, served: &Served) -> Result<(), Failure> {
    // Others could have connected before the mode of the socket was changed.
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != rustix::process::geteuid().as_raw() {
        return Err(format!("user {peer} is not who runs this").into());
    }
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read.take(LINE_BYTES_MAX));
    let mut line = String::new();
    let asked = served.clock.timeout(ASK_TIME, lines.read_line(&mut line)).await;
    asked.map_err(|_| "nothing was asked")??;
    let task = read_task(&line).ok_or("what was asked cannot be read")?;
    tracing::info!(?task, "command received");
    let mut more = [0];
    let done = async {
        // A description changes nothing, and is wanted above all while something else takes long.
        let _turn = if task == Task::Describe { None } else { Some(served.turn.lock().await) };
        task.run(&served.platform).await
    };
    let done = tokio::select! {
        done = done => done,
        _ = lines.read(&mut more) => return Err("the client has closed the control socket".into()),
    };
    let told = match done {
        Ok(UpkeepReport { text, sound }) => json!({"text": text, "sound": sound}),
        Err(failure) => json!({"failed": failure.to_string()}),
    };
    let told = format!("{told}\n");
    let taken = served.clock.timeout(ASK_TIME, write.write_all(told.as_bytes())).await;
    Ok(taken.map_err(|_| "the answer was not taken")??)
}

fn read_task(line: &str) -> Option<Task> {
    let asked: Value = serde_json::from_str(line).ok()?;
    if let Some(folder) = asked["backup"].as_str() {
        return Some(Task::Backup(PathBuf::from(folder)));
    }
    [("send", Task::Send), ("check", Task::Check), ("describe", Task::Describe)]
        .into_iter()
        .find_map(|(name, task)| (asked[name] == true).then_some(task))
}

/// Sends a task to the process that serves. Returns `None` if there is none.
pub async fn ask(data: &Path, task: &Task) -> Result<Option<UpkeepReport>, Failure> {
    let place = SocketName::of(data)?;
    let mut stream = match UnixStream::connect(&place.path).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        stream => stream.map_err(|error| format!("{}: {error}", data.join(SOCKET).display()))?,
    };
    let asked = match task {
        Task::Backup(folder) => json!({"backup": folder.to_str().ok_or("the folder's name is not UTF-8")?}),
        Task::Send => json!({"send": true}),
        Task::Check => json!({"check": true}),
        Task::Describe => json!({"describe": true}),
    };
    stream.write_all(format!("{asked}\n").as_bytes()).await?;
    let mut line = String::new();
    match BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).await {
        // The process ended before it had read the request.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        heard => drop(heard?),
    }
    if line.len() as u64 == LINE_BYTES_MAX {
        return Err("the running isobar answers more than a command reads; its log says more".into());
    }
    let told: Value =
        serde_json::from_str(&line).map_err(|_| "the running isobar ended before it was done; its log says more")?;
    match (told["failed"].as_str(), told["text"].as_str(), told["sound"].as_bool()) {
        (Some(failed), _, _) => Err(failed.into()),
        (None, Some(text), Some(sound)) => Ok(Some(UpkeepReport { text: text.to_owned(), sound })),
        _ => Err("the running isobar gave an answer that cannot be read: it is of another version".into()),
    }
}
