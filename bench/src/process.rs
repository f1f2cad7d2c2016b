//! Servers under measurement: started, watched, stopped, killed.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Failure;

/// The first administrator's password.
pub const ADMIN_PASSWORD: &str = "measure-twice";
/// A server that is not ready by then never will be.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running server.
pub struct Server {
    child: Child,
    /// `http://HOST:PORT` or `https://HOST:PORT`
    pub origin: String,
    /// `HOST:PORT`
    pub address: String,
    /// From its start to its line.
    pub ready_after: Duration,
    _output: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts Isobar on a folder, with rate limits that are counted but never reached, and waits for its line.
    pub async fn isobar(program: &Path, folder: &Path, threads: usize) -> Result<Self, Failure> {
        Self::isobar_with(program, folder, threads, &[]).await
    }

    /// Starts a server with settings of its own: environment variables, without what they all begin with.
    pub async fn isobar_with(
        program: &Path,
        folder: &Path,
        threads: usize,
        settings: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data"]).arg(folder);
        command.env("ISOBAR_ADMIN_PASSWORD", ADMIN_PASSWORD).env("ISOBAR_HTTP__THREADS", threads.to_string());
        for limit in ["USER", "DEVICE", "ADDRESS"] {
            command.env(format!("ISOBAR_RATE_LIMIT__{limit}"), u32::MAX.to_string());
        }
        command.envs(settings.iter().map(|(name, value)| (format!("ISOBAR_{name}"), value)));
        Self::start(command).await
    }

    /// Starts the baseline.
    pub async fn echo(threads: usize) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["echo", "--threads", &threads.to_string()]);
        Self::start(command).await
    }

    async fn start(mut command: Command) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("the server has no output")?).lines();
        let ready = async {
            while let Some(line) = output.next_line().await? {
                if let Some((_, origin)) = line.split_once(" is ready: ") {
                    return Ok(origin.trim_end_matches('/').to_owned());
                }
            }
            Err(Failure::from("the server ended before it was ready"))
        };
        let origin =
            tokio::time::timeout(READY_TIMEOUT, ready).await.map_err(|_| "the server is not ready in time")??;
        let address = origin.split_once("://").map_or(origin.as_str(), |(_, address)| address).to_owned();
        Ok(Self { child, origin, address, ready_after: begun.elapsed(), _output: output })
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.ok_or_else(|| "the server has ended".into())
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> Result<u64, Failure> {
        self.counted("VmRSS:")
    }

    /// The most resident memory since its start, or since [`Server::forget_peak`], in bytes.
    pub fn peak_memory(&self) -> Result<u64, Failure> {
        self.counted("VmHWM:")
    }

    /// From here on the most resident memory is counted anew (proc(5), clear_refs).
    pub fn forget_peak(&self) -> Result<(), Failure> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.pid()?.as_raw_nonzero()), "5")?)
    }

    fn counted(&self, name: &str) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?.as_raw_nonzero()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("the server has ended")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }

    /// Processor time that all its threads have spent so far, in user and system mode.
    pub fn processor_time(&self) -> Result<Duration, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?.as_raw_nonzero()))?;
        // proc(5): the name in brackets may hold anything; utime and stime are fields 14 and 15, the third comes behind it.
        let (_, fields) = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?;
        let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Duration::from_secs_f64(ticks.iter().sum::<u64>() as f64 / clock_ticks_per_second() as f64))
    }

    /// Ends it without a word.
    pub async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Tells it to stop, and waits until it has. How long that took.
    pub async fn stop(mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        kill_process(self.pid()?, Signal::TERM)?;
        let status = self.child.wait().await?;
        if !status.success() {
            return Err(format!("the server ended with {status}").into());
        }
        Ok(begun.elapsed())
    }
}

/// Bytes of all files beneath a folder, as the disk counts them.
pub fn size_of(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// As many connections as the system allows; children inherit it.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("bench: cannot raise the limit of open files: {error}");
    }
}
