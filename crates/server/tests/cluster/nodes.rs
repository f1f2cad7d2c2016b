//! The nodes of a platform: processes over one registry and one telemetry store.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use isobar_model::time::Clock;
use isobar_power::{WrongClock, settled_blocking};
use rustix::process::{Pid, Signal};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::program_support::site::ENVIRONMENT;
use super::program_support::{Serving, isobar};
use super::support::OwnDatabase;

/// Time after which a question to a database is given up, which a fault may have met.
const QUERY_PATIENCE: Duration = Duration::from_secs(2);

/// Databases of a platform, and connections that cut those of its nodes.
pub struct Databases {
    pub registry: String,
    pub telemetry: Vec<String>,
    own: Vec<OwnDatabase>,
    /// To each database server.
    servers: Vec<PgPool>,
    /// To each database of telemetry.
    stores: Vec<PgPool>,
    cuts: AtomicI64,
}

impl Databases {
    /// Makes two databases on the one server of the tests: both have telemetry, the first the registry too.
    pub async fn new() -> Self {
        let own = vec![OwnDatabase::new().await, OwnDatabase::new().await];
        let telemetry: Vec<String> = own.iter().map(|database| database.address.clone()).collect();
        let stores: Vec<PgPool> = telemetry.iter().map(|address| pool(address)).collect();
        let servers = stores[..1].to_vec();
        Self { registry: telemetry[0].clone(), telemetry, own, servers, stores, cuts: AtomicI64::new(0) }
    }

    /// Takes databases that are there, each on a server of its own.
    pub fn at(registry: String, telemetry: Vec<String>) -> Self {
        let stores: Vec<PgPool> = telemetry.iter().map(|address| pool(address)).collect();
        let mut servers = stores.clone();
        if !telemetry.contains(&registry) {
            servers.push(pool(&registry));
        }
        Self { registry, telemetry, own: Vec::new(), servers, stores, cuts: AtomicI64::new(0) }
    }

    /// Ends the connections of nodes that meet a condition, at each server that answers.
    pub async fn cut(&self, condition: &str) {
        let query = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE ";
        let query = format!("{query}application_name LIKE '{}%' AND {condition}", application(""));
        for server in &self.servers {
            self.cuts.fetch_add(number(server, &query).await.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Returns the number of connections that were cut.
    pub fn cuts(&self) -> i64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Returns the condition that names the connections of a node.
    pub fn of_node(node: usize) -> String {
        format!("application_name = '{}'", application(&node.to_string()))
    }

    /// Returns true if the registry has all work of the runs.
    pub async fn has_no_work_left(&self) -> bool {
        for store in &self.stores {
            if number(store, "SELECT count(*) FROM telemetry.outbox").await != Some(0) {
                return false;
            }
        }
        true
    }

    pub async fn remove(self) {
        for pool in self.servers.iter().chain(&self.stores) {
            pool.close().await;
        }
        for database in self.own {
            database.remove().await;
        }
    }
}

fn pool(address: &str) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect_lazy(address).expect("an address of PostgreSQL")
}

/// Asks for a number; returns none if the server does not answer.
async fn number(pool: &PgPool, query: &str) -> Option<i64> {
    let number = sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(pool);
    Clock::System.timeout(QUERY_PATIENCE, number).await.ok()?.ok()
}

/// Returns the name of a node's connections: of this run, as other tests use the same server.
fn application(node: &str) -> String {
    format!("cluster-{}-{node}", std::process::id())
}

/// Place where a node runs.
pub struct Place {
    /// Machine, if it is not this one.
    machine: Option<String>,
    listen: String,
}

impl Place {
    /// Returns a free address of this machine.
    pub fn here() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { machine: None, listen: free.to_string() }
    }

    /// Returns an address of another machine.
    pub fn on(machine: String, listen: String) -> Self {
        Self { machine: Some(machine), listen }
    }

    /// Makes a command one for this place.
    fn places(&self, command: Command) -> Command {
        let Some(machine) = &self.machine else { return command };
        let mut placed = Command::new("ip");
        placed.args(["netns", "exec", machine]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => placed.env(name, value),
                None => placed.env_remove(name),
            };
        }
        placed
    }
}

/// Process that can be killed, stopped and started again, at the same address.
pub struct Node {
    pub number: usize,
    folder: PathBuf,
    place: Place,
    registry: String,
    telemetry: String,
    clock: WrongClock,
    serving: Option<Serving>,
}

impl Node {
    /// Starts a node, whose data and log are in a folder.
    pub fn start(number: usize, folder: &Path, place: Place, databases: &Databases) -> Self {
        let named = |address: &String| {
            let sign = if address.contains('?') { '&' } else { '?' };
            format!("{address}{sign}application_name={}", application(&number.to_string()))
        };
        let telemetry: Vec<String> = databases.telemetry.iter().map(named).collect();
        let mut node = Self {
            number,
            folder: folder.join(format!("node{number}")),
            place,
            registry: named(&databases.registry),
            telemetry: telemetry.join(","),
            clock: WrongClock::new(&folder.join(format!("node{number}.clock"))).unwrap(),
            serving: None,
        };
        node.go_on();
        node
    }

    fn command(&self) -> Command {
        let mut command = isobar(&["serve", "--log", "warn", "--listen", &self.place.listen, "--data"]);
        command.arg(&self.folder).envs(ENVIRONMENT);
        command.env("ISOBAR_STORES__REGISTRY", &self.registry).env("ISOBAR_STORES__TELEMETRY", &self.telemetry);
        command.env("ISOBAR_PUBLIC_URL", "http://cluster.example");
        if self.place.machine.is_none() {
            command.env("ISOBAR_STORES__NEEDS_SYNCS", "false");
        }
        self.clock.under(&mut command);
        let mut command = self.place.places(command);
        command.stderr(File::options().create(true).append(true).open(self.log()).unwrap());
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    /// Starts its process, and waits until it is ready. On a machine whose databases a fault may have met, it is started
    /// until it is, as a service manager does.
    pub fn go_on(&mut self) {
        self.serving = Some(match &self.place.machine {
            None => Serving::of(self.command()),
            Some(_) => settled_blocking("a node that is ready", || Serving::by(&mut self.command()).ok()),
        });
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

    /// Sets its clock ahead by so many milliseconds, or behind.
    pub fn set_clock_ahead(&self, millis: i64) {
        self.clock.set_ahead(millis).unwrap();
    }

    /// Stops it in order; returns its log.
    pub fn end(mut self) -> String {
        assert_eq!(self.serving.take().expect("it runs").stop(), Some(0), "node {} stops in order", self.number);
        std::fs::read_to_string(self.log()).unwrap()
    }
}
