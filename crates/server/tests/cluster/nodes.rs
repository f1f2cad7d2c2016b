//! The nodes of a platform: processes over one registry and one telemetry store.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal};

use super::program_support::site::ENVIRONMENT;
use super::program_support::{Serving, isobar};
use super::support::{OwnDatabase, Raw};

/// Databases of a platform, and a connection that cuts those of its nodes.
pub struct Databases {
    registry: OwnDatabase,
    telemetry: OwnDatabase,
    raw: Raw,
}

impl Databases {
    pub async fn new() -> Self {
        let (registry, telemetry) = (OwnDatabase::new().await, OwnDatabase::new().await);
        let raw = Raw::open(&telemetry.address).await;
        Self { registry, telemetry, raw }
    }

    /// Ends the connections of nodes that meet a condition; returns their number.
    pub async fn cut(&self, condition: &str) -> i64 {
        let query = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE ";
        let ours = format!("application_name LIKE '{}%' AND {condition}", application(""));
        self.raw.number(&format!("{query}{ours}")).await
    }

    /// Returns the condition that names the connections of a node.
    pub fn of_node(node: usize) -> String {
        format!("application_name = '{}'", application(&node.to_string()))
    }

    /// Returns the number of rows of work that the registry does not have yet.
    pub async fn left_work(&self) -> i64 {
        self.raw.number("SELECT count(*) FROM telemetry.outbox").await
    }

    pub async fn remove(self) {
        self.raw.close().await;
        self.registry.remove().await;
        self.telemetry.remove().await;
    }
}

/// Returns the name of a node's connections: of this run, as other tests use the same server.
fn application(node: &str) -> String {
    format!("cluster-{}-{node}", std::process::id())
}

/// Process that can be killed, stopped and started again, at the same address.
pub struct Node {
    pub number: usize,
    folder: PathBuf,
    listen: String,
    registry: String,
    telemetry: String,
    serving: Option<Serving>,
}

impl Node {
    /// Starts a node, whose data and log are in a folder.
    pub fn start(number: usize, folder: &Path, databases: &Databases) -> Self {
        let named = |address: &str| {
            let sign = if address.contains('?') { '&' } else { '?' };
            format!("{address}{sign}application_name={}", application(&number.to_string()))
        };
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut node = Self {
            number,
            folder: folder.join(format!("node{number}")),
            listen: free.to_string(),
            registry: named(&databases.registry.address),
            telemetry: named(&databases.telemetry.address),
            serving: None,
        };
        node.go_on();
        node
    }

    fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = isobar(&["serve", "--log", "warn", "--listen", &self.listen, "--data"]);
        command.arg(&self.folder).envs(ENVIRONMENT).stderr(log);
        command.env("ISOBAR_STORES__REGISTRY", &self.registry).env("ISOBAR_STORES__TELEMETRY", &self.telemetry);
        command.env("ISOBAR_STORES__NEEDS_SYNCS", "false").env("ISOBAR_PUBLIC_URL", "http://cluster.example");
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    /// Starts its process, and waits until it is ready.
    pub fn go_on(&mut self) {
        self.serving = Some(Serving::of(self.command()));
    }

    pub fn serving(&self) -> &Serving {
        self.serving.as_ref().expect("it runs")
    }

    pub fn kill(&mut self) {
        self.serving.take().expect("it runs").kill();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.serving().id().cast_signed()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Stops it in order; returns its log.
    pub fn end(mut self) -> String {
        assert_eq!(self.serving.take().expect("it runs").stop(), Some(0), "node {} stops in order", self.number);
        std::fs::read_to_string(self.log()).unwrap()
    }
}
