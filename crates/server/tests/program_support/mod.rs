//! The program under test: the real binary on a folder of its own.

#![allow(dead_code, reason = "each test program uses a part of this")]

pub mod collector;
pub mod furnished;
pub mod house;
pub mod site;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use isobar_power::{becomes_blocking, settled_blocking};
use rustix::process::{Pid, Signal};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

/// Returns `isobar` in an environment without our variables.
pub fn isobar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isobar"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ISOBAR_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the error output of a failed program.
pub fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

/// Returns `isobar serve` on a folder, at a free address.
pub fn serve(folder: &Path, environment: &[(&str, &str)]) -> Command {
    let mut command = isobar(&["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data"]);
    command.arg(folder).envs(environment.iter().copied());
    command
}

/// Connects to the registry in a folder, served or not.
pub async fn registry(folder: &Path) -> SqlitePool {
    let file = folder.join("registry.db");
    let layer = sqlite_page_checksums::prepare(&file, sqlite_page_checksums::Open::ToUse).unwrap().unwrap();
    let options = SqliteConnectOptions::new().filename(&file).vfs(layer);
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}

/// Starts a server and kills it once it has that many open files, ready or not, perhaps in the middle of a recovery.
pub fn killed_at_start(folder: &Path, environment: &[(&str, &str)], files: usize) {
    let mut child = serve(folder, environment).stdout(Stdio::null()).spawn().unwrap();
    let open = format!("/proc/{}/fd", child.id());
    becomes_blocking("open files", || std::fs::read_dir(&open).map_or(0, Iterator::count) >= files);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A running server that is ready.
pub struct Serving {
    child: Child,
    output: BufReader<ChildStdout>,
    pub address: String,
    /// Output before the ready line.
    pub before: String,
}

impl Serving {
    pub fn on(folder: &Path, environment: &[(&str, &str)]) -> Self {
        Self::of(serve(folder, environment))
    }

    /// Starts a server by a command.
    pub fn of(mut command: Command) -> Self {
        Self::by(&mut command).unwrap_or_else(|(_, before)| panic!("it ended before it was ready: {before}"))
    }

    /// Starts a server by this command; fails with status and output if it ends before it is ready.
    pub fn by(command: &mut Command) -> Result<Self, (ExitStatus, String)> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut before = String::new();
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap() == 0 {
                return Err((child.wait().unwrap(), before));
            }
            match line.strip_prefix("Isobar is ready: http://") {
                Some(address) => return Ok(Self { child, output, address: address.trim().to_owned(), before }),
                None => before.push_str(&line),
            }
        }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its memory in bytes: now (`VmRSS`; `RssAnon` without file pages), or at its peak (`VmHWM`).
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends SIGTERM without waiting.
    pub fn tell_to_stop(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Sends SIGINT, as Ctrl-C does; returns the exit code.
    pub fn interrupt(self) -> Option<i32> {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.ended()
    }

    /// Waits for the end; returns the exit code.
    pub fn ended(mut self) -> Option<i32> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }

    /// Sends SIGTERM; returns the exit code.
    pub fn stop(self) -> Option<i32> {
        self.tell_to_stop();
        self.ended()
    }

    /// Sends SIGTERM and waits for the end without reading the output; returns the exit code.
    pub fn stops_meanwhile(mut self) -> Option<i32> {
        self.tell_to_stop();
        settled_blocking("the end of the program", || self.child.try_wait().unwrap()).code()
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
