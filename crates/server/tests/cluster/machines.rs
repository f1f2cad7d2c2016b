//! Machines that `scripts/with-machines` has made: their processes, and the ways between them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use super::nodes::{Databases, Place};

/// Folder of `scripts/with-machines`, and folder of Patroni's programs.
const FOLDER: &str = "ISOBAR_TEST_MACHINES";
const PATRONI: &str = "PATRONI";
/// Pairs whose databases keep telemetry, without a sign between them. The registry is in the first pair.
const TELEMETRY: &str = "CLUSTER_TELEMETRY";
/// Machine on which this program runs, with its bridge.
const CLIENTS: &str = "clients";
const BRIDGE: &str = "isobar";
/// Hardware address that no machine has: what is sent there is lost without a word.
const NOBODY: &str = "02:00:00:00:00:ff";
/// Time that a machine has to answer.
const ASK_PATIENCE: Duration = Duration::from_secs(1);

pub const MEMBERS: u64 = 3;

/// Servers of a pair, by their names.
pub struct Pair {
    pub primary: String,
    pub standby: String,
}

pub struct Machines {
    folder: PathBuf,
    http: reqwest::Client,
    /// Ways that are cut, each from a machine to another; one that is cut twice is there twice.
    cuts: Mutex<Vec<(String, String)>>,
}

impl Machines {
    /// Returns the machines, if this program runs among some.
    pub fn found() -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os(FOLDER)?);
        let http = reqwest::Client::builder().timeout(ASK_PATIENCE).pool_max_idle_per_host(0).build().unwrap();
        Some(Self { folder, http, cuts: Mutex::default() })
    }

    /// Returns the addresses of the databases, as each node and this program reach them.
    pub fn databases() -> Databases {
        let of =
            |pair: char| format!("postgres://isobar:test@127.0.0.1:{}/isobar", if pair == 'A' { 5000 } else { 5001 });
        let telemetry = std::env::var(TELEMETRY).unwrap_or_else(|_| "AB".to_owned());
        Databases::at(of('A'), telemetry.chars().map(of).collect())
    }

    /// Returns the place of a node.
    pub fn place(node: usize) -> Place {
        let name = Self::node(node);
        let listen = format!("{}:8080", address(&name));
        Place::on(name, listen)
    }

    /// Returns the name of a node's machine.
    pub fn node(node: usize) -> String {
        format!("node-{node}")
    }

    /// Returns the names of all machines.
    fn names(&self) -> Vec<String> {
        let listed = output(Command::new("ip").args(["netns", "list"]));
        let names = listed.lines().filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).chain([CLIENTS.to_owned()]).collect()
    }

    /// Loses all that is sent from a machine to another, and from that one back if `both`.
    pub fn cut(&self, from: &str, to: &str, both: bool) {
        lose(from, to);
        self.cuts.lock().push((from.to_owned(), to.to_owned()));
        if both {
            self.cut(to, from, false);
        }
    }

    /// Undoes a [`Self::cut`].
    pub fn mend(&self, from: &str, to: &str, both: bool) {
        let mut cuts = self.cuts.lock();
        let is_it = |cut: &(String, String)| cut.0 == from && cut.1 == to;
        let index = cuts.iter().position(is_it).expect("it is cut");
        cuts.swap_remove(index);
        if !cuts.iter().any(is_it) {
            find(from, to);
        }
        drop(cuts);
        if both {
            self.mend(to, from, false);
        }
    }

    /// Cuts a machine from all others.
    pub fn isolate(&self, name: &str) {
        self.names().iter().filter(|other| *other != name).for_each(|other| self.cut(name, other, true));
    }

    /// Undoes an [`Self::isolate`].
    pub fn join(&self, name: &str) {
        self.names().iter().filter(|other| *other != name).for_each(|other| self.mend(name, other, true));
    }

    /// Sends a signal to a program by the name of its pid file; returns true if it ran.
    pub fn signal(&self, program: &str, signal: Signal) -> bool {
        let Ok(text) = std::fs::read_to_string(self.folder.join(format!("{program}.pid"))) else { return false };
        let id = text.lines().next().and_then(|line| Pid::from_raw(line.trim().parse().ok()?));
        id.is_some_and(|id| rustix::process::kill_process(id, signal).is_ok())
    }

    /// Sends a signal to all processes of a machine.
    pub fn signal_all(machine: &str, signal: Signal) {
        for line in output(Command::new("ip").args(["netns", "pids", machine])).lines() {
            let id = line.trim().parse().ok().and_then(Pid::from_raw).unwrap();
            // It may have ended meanwhile.
            rustix::process::kill_process(id, signal).ok();
        }
    }

    /// Keeps a program from being started anew, until [`Self::lets_start`].
    pub fn keeps_down(&self, program: &str) {
        std::fs::write(self.down(program), "").unwrap();
    }

    pub fn lets_start(&self, program: &str) {
        std::fs::remove_file(self.down(program)).unwrap();
    }

    fn down(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.down"))
    }

    /// Returns the servers of a pair, if it has a primary and a standby that has all that is acknowledged.
    pub async fn pair(&self, pair: char) -> Option<Pair> {
        let names = [format!("{pair}-1"), format!("{pair}-2")];
        for (primary, standby) in [(0, 1), (1, 0)] {
            if self.is(&names[primary], "primary").await && self.is(&names[standby], "synchronous").await {
                return Some(Pair { primary: names[primary].clone(), standby: names[standby].clone() });
            }
        }
        None
    }

    async fn is(&self, server: &str, role: &str) -> bool {
        let answer = self.http.get(format!("http://{}:8008/{role}", address(server))).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Makes the standby the primary; returns what was said.
    pub fn switch(&self, pair: &Pair) -> String {
        let member = |name: &str| format!("isobar-{}", name.to_lowercase());
        let (primary, standby) = (member(&pair.primary), member(&pair.standby));
        let settings = self.folder.join(&pair.standby).join("patroni.yml");
        let program =
            Path::new(&std::env::var_os(PATRONI).expect("set by scripts/with-machines")).join("bin/patronictl");
        let mut command = Command::new(program);
        command.arg("-c").arg(settings).args(["switchover", "--leader", &primary, "--candidate", &standby, "--force"]);
        let said = output(command.arg(&primary[..primary.len() - 2]));
        said.lines().find(|line| line.contains("uccessful") || line.contains("rror")).unwrap_or(&said).to_owned()
    }

    /// Cuts all connections of a node to the databases at its balancer, whatever they do.
    pub fn cut_at_balancer(&self, node: usize) {
        let path = self.folder.join(format!("haproxy-{}.sock", Self::node(node)));
        for server in ["a/isobar-a-1", "a/isobar-a-2", "b/isobar-b-1", "b/isobar-b-2"] {
            // It may be killed just now.
            let Ok(mut socket) = UnixStream::connect(&path) else { return };
            if writeln!(socket, "shutdown sessions server isobar-{server}").is_ok() {
                drop(socket.read(&mut [0; 64]));
            }
        }
    }
}

fn address(machine: &str) -> String {
    let (kind, number) = machine.rsplit_once('-').unwrap_or((machine, "0"));
    let number: u8 = number.parse().unwrap();
    let last = match kind {
        "A" => number,
        "B" => 2 + number,
        "etcd" => 10 + number,
        "node" => 20 + number,
        _ => 254,
    };
    format!("10.0.0.{last}")
}

/// Returns `ip` for the neighbours of a machine, and its device.
fn ip(machine: &str) -> (Command, &'static str) {
    let mut command = Command::new("ip");
    if machine == CLIENTS {
        return (command, BRIDGE);
    }
    command.args(["-n", machine]);
    (command, "eth0")
}

fn lose(from: &str, to: &str) {
    let (mut command, device) = ip(from);
    output(command.args(["neighbour", "replace", &address(to), "lladdr", NOBODY, "nud", "permanent", "dev", device]));
}

fn find(from: &str, to: &str) {
    let (mut command, device) = ip(from);
    output(command.args(["neighbour", "del", &address(to), "dev", device]));
}

/// Returns what a command says, which should not fail.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    if !output.status.success() {
        println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}
