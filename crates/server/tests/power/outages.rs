//! A machine whose power fails: the program's folder before and after.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use isobar_power::{Chance, Layer, Outage, within_patience};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::{JoinSet, spawn_blocking};

use crate::program_support::site::ENVIRONMENT;
use crate::program_support::{Serving, isobar, serve};
use crate::work::Site;

/// Duration of a sync, about that of a machine's own disk.
const SYNC: Duration = Duration::from_millis(1);
/// Most changes of files between the last acknowledgement and the cut.
const CHANGES_MAX: u64 = 80;
/// Approximate changes of files during a start.
const START_CHANGES_MAX: u64 = 400;
/// Most changes from the request of a copy or a stop to the cut.
const SOON_MAX: u64 = 120;

/// The moment of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Under load.
    UnderLoad,
    /// During a backup, when the engine flushes its memory and begins a new log.
    InABackup,
    /// During a stop, or just after.
    InAStop,
    /// Under load, and again during the next start.
    Twice,
}

impl Moment {
    pub fn by(chance: &mut Chance, cut: u64) -> Self {
        // In a short run, each cut has a moment of its own.
        match cut {
            1 => Self::InABackup,
            3 => Self::Twice,
            5 => Self::InAStop,
            _ => [Self::UnderLoad, Self::UnderLoad, Self::InABackup, Self::InAStop, Self::Twice]
                [chance.below(5) as usize],
        }
    }

    pub fn starts_badly(self) -> bool {
        self == Self::Twice
    }
}

/// Returns true for files that do not survive a start: SQLite's shared memory, which is mapped and so not in the
/// journal, and the socket.
fn is_passing(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with("-shm") || name.ends_with(".sock")
}

pub struct Place {
    all: TempDir,
    /// Number of the current folder; each outage makes the next.
    turn: u32,
    layer: Layer,
}

impl Place {
    pub fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let layer = layer(all.path(), 0);
        Self { all, turn: 0, layer }
    }

    fn of(&self, name: &str) -> PathBuf {
        folder(self.all.path(), self.turn).join(name)
    }

    /// Returns the data folder, one level below the watched one, so that its own name is tested too.
    pub fn data(&self) -> PathBuf {
        self.of("disk").join("data")
    }

    /// Keeps all files for an investigation.
    pub fn keep(&mut self) -> String {
        self.all.disable_cleanup(true);
        self.of("").display().to_string()
    }

    /// Starts the program; with `cut_after` the power fails after that many changes.
    pub fn start(&self, cut_after: Option<u64>) -> Result<Serving, (ExitStatus, String)> {
        let mut command = serve(&self.data(), &ENVIRONMENT);
        self.layer.under(&mut command);
        if let Some(changes) = cut_after {
            self.layer.cut_after(changes).unwrap();
        }
        let log = fs::File::create(self.of("stderr")).unwrap();
        Serving::by(command.stderr(log))
    }

    /// Starts the program; if `badly`, cuts the power during the start several times first.
    pub async fn started(&mut self, chance: &mut Chance, badly: bool) -> Serving {
        if badly {
            for _ in 0..=chance.below(3) {
                let changes = 1 + chance.below(START_CHANGES_MAX);
                match self.start(Some(changes)) {
                    // It was ready before: the power fails when it is idle, or during the stop.
                    Ok(serving) => drop(spawn_blocking(|| serving.stop()).await.unwrap()),
                    Err((status, _)) => assert_eq!(status.code(), None, "it refused: {}", self.said()),
                }
                self.fail(&Outage::by(chance), chance);
            }
        }
        match self.start(None) {
            Ok(serving) => serving,
            Err((status, _)) => panic!("{status}: {}; {}", self.said(), self.keep()),
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.of("stderr")).unwrap()
    }

    /// Runs all workers until enough is acknowledged, and cuts the power at this moment.
    pub async fn work_until_cut(
        &mut self,
        site: &Site,
        serving: Serving,
        moment: Moment,
        heard: u64,
        chance: &mut Chance,
    ) {
        let mut clients = JoinSet::new();
        let heard = site.work(&mut clients, heard);
        within_patience("somebody is heard", heard).await;
        let (at, soon) = (1 + chance.below(CHANGES_MAX), 1 + chance.below(SOON_MAX));
        match moment {
            Moment::UnderLoad | Moment::Twice => self.layer.cut_after(at).unwrap(),
            Moment::InABackup => {
                self.layer.cut_after(soon).unwrap();
                self.ask_for_a_backup();
            }
            Moment::InAStop => {
                serving.tell_to_stop();
                self.layer.cut_after(soon).unwrap();
            }
        }
        let ended = spawn_blocking(|| serving.ended());
        let code = within_patience("the end of the program", ended).await.unwrap();
        assert!(code.is_none() || (moment == Moment::InAStop && code == Some(0)), "{code:?}: {}", self.said());
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    }

    /// Requests a backup like `isobar backup`, which would make the copy itself if the program were gone.
    fn ask_for_a_backup(&self) {
        let Ok(mut socket) = UnixStream::connect(self.data().join("isobar.sock")) else { return };
        let asked = writeln!(socket, "{}", json!({"backup": self.of("copy")}));
        let mut answer = String::new();
        // It may be gone before it has answered, or read.
        let _ = asked.and_then(|()| socket.read_to_string(&mut answer));
    }

    /// Replaces the folder by the disk after the cut.
    pub fn fail(&mut self, outage: &Outage, chance: &mut Chance) {
        let disk = self.layer.disk(&self.of("before")).unwrap();
        let missed = disk.differs_from(&self.of("disk"), is_passing).unwrap();
        assert!(missed.is_empty(), "the layer has not seen all that was written: {missed:?}, {}", self.keep());
        let next = folder(self.all.path(), self.turn + 1);
        let mut again = chance.clone();
        disk.after(outage, chance, &next.join("before"), is_passing).unwrap();
        disk.after(outage, &mut again, &next.join("disk"), is_passing).unwrap();
        let old = folder(self.all.path(), self.turn.saturating_sub(1));
        if self.turn > 0 && old.exists() {
            fs::remove_dir_all(old).unwrap();
        }
        self.turn += 1;
        self.layer = layer(self.all.path(), self.turn);
    }

    /// Returns the data folder after an outage, as a separate copy.
    pub fn left_by(&self, outage: &Outage, chance: &mut Chance) -> PathBuf {
        let disk = self.layer.disk(&self.of("before")).unwrap();
        let place = tempfile::tempdir_in(self.all.path()).unwrap().keep();
        disk.after(outage, chance, &place, is_passing).unwrap();
        place.join("data")
    }

    /// Treats everything in the folder as durable.
    pub fn is_as_it_is(&self) {
        copy(&self.of("disk"), &self.of("before"));
    }

    /// Runs a command with the data folder on the layer.
    pub fn about(&self, words: &[&str]) -> Output {
        let mut command = isobar(words);
        self.layer.under(&mut command);
        command.args(["--config", "/dev/null", "--data"]).arg(self.data()).output().unwrap()
    }

    /// Starts a server after an outage that ignored syncs; `None` if it refuses to start.
    pub fn after_a_lie(&self, outage: &Outage, chance: &mut Chance) -> Option<Serving> {
        let data = self.left_by(outage, chance);
        Serving::by(serve(&data, &ENVIRONMENT).stderr(Stdio::null())).ok()
    }

    /// Runs `isobar check` on the running program's folder.
    pub fn is_sound(&self) {
        let output = isobar(&["check", "--data"]).arg(self.data()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

fn folder(all: &Path, turn: u32) -> PathBuf {
    all.join(turn.to_string())
}

fn layer(all: &Path, turn: u32) -> Layer {
    let folder = folder(all, turn);
    for name in ["before", "disk"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    Layer::new(&folder.canonicalize().unwrap().join("disk"), &folder, SYNC).unwrap()
}
