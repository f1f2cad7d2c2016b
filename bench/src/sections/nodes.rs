//! Several processes over one or two databases of PostgreSQL, beside one with the embedded store: events a second, and the
//! processor time of an event in all processes and in PostgreSQL.

use std::fmt::Write as _;
use std::time::Duration;

use futures::future::try_join_all;
use rustix::param::clock_ticks_per_second;
use tempfile::TempDir;

use super::{House, LOAD_CONNECTIONS, grouped, median, millis, shot, turns};
use crate::api::Api;
use crate::page::Page;
use crate::process::Server;
use crate::setup::{Device, EVENTS, make_devices, make_project, payload};
use crate::wrk::{Ammunition, Round};
use crate::{Failure, Options};

/// Processes that serve one platform together.
const NODES_TOGETHER: usize = 3;

/// Processes that serve one platform, each with a share of the devices.
struct Nodes {
    servers: Vec<Server>,
    _folders: Vec<TempDir>,
}

/// A round of all processes together.
#[derive(Clone, Copy)]
struct Shared {
    rate: f64,
    p99: Duration,
    /// Processor time of an event in microseconds: in Isobar, and in PostgreSQL.
    isobar: f64,
    postgres: f64,
}

impl Nodes {
    /// Starts processes over these databases, of which the first has the registry too.
    async fn start(options: &Options, count: usize, databases: &[String]) -> Result<Self, Failure> {
        let (mut servers, mut folders) = (Vec::new(), Vec::new());
        let telemetry = databases.join(",");
        for _ in 0..count {
            let folder = TempDir::with_prefix_in("isobar-bench-", &options.folder)?;
            let settings = [("STORES__REGISTRY", databases[0].as_str()), ("STORES__TELEMETRY", telemetry.as_str())];
            servers.push(Server::isobar_with(&options.isobar, folder.path(), options.threads(), &settings).await?);
            folders.push(folder);
        }
        Ok(Self { servers, _folders: folders })
    }

    /// Fires at all of them for so long, each at its own devices.
    async fn fire(&self, options: &Options, posts: &[Ammunition], seconds: u64) -> Result<Shared, Failure> {
        let connections = LOAD_CONNECTIONS / self.servers.len();
        let spent = || self.servers.iter().map(Server::processor_time).sum::<Result<Duration, Failure>>();
        let before = (spent()?, postgres_time());
        let shots = self.servers.iter().zip(posts).map(|(server, posts)| async move {
            posts.fire(&shot(options, server, EVENTS, connections, seconds)).await
        });
        let rounds: Vec<Round> = try_join_all(shots).await?;
        let answers = rounds.iter().map(|round| round.answers).sum::<u64>() as f64;
        let an_event = |spent: Duration| spent.as_secs_f64() * 1e6 / answers.max(1.0);
        Ok(Shared {
            rate: rounds.iter().map(|round| round.rate).sum(),
            p99: rounds.iter().map(|round| round.p99).max().unwrap_or_default(),
            isobar: an_event(spent()?.saturating_sub(before.0)),
            postgres: an_event(postgres_time().saturating_sub(before.1)),
        })
    }

    /// Measures the rounds, and stops the processes.
    async fn measure(
        self,
        options: &Options,
        name: &str,
        devices: &[Device],
        table: &mut String,
    ) -> Result<(), Failure> {
        let shares = self.servers.iter().enumerate().map(|(index, _)| {
            let own = devices.iter().skip(index).step_by(self.servers.len()).cloned().collect::<Vec<_>>();
            Ammunition::posts(&own, payload)
        });
        let posts = shares.collect::<Result<Vec<_>, Failure>>()?;
        let mut rounds = Vec::new();
        for (seconds, counts) in turns(options) {
            let round = self.fire(options, &posts, seconds).await?;
            if counts {
                eprintln!("bench: {name}: {:.0} events/s", round.rate);
                rounds.push(round);
            }
        }
        for server in self.servers {
            server.stop().await?;
        }
        let Shared { rate, p99, isobar, postgres } = median(rounds, |round| round.rate).ok_or("no rounds")?;
        let (rate, p99) = (grouped(rate), millis(p99));
        Ok(writeln!(table, "| {name} | {rate} | {p99} | {isobar:.1} µs | {postgres:.1} µs |")?)
    }
}

/// Measures an embedded store, and processes over the databases of `--postgres`.
pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let databases = &options.postgres;
    let Some(first) = databases.get(..1) else {
        eprintln!("bench: nodes: --postgres names no database");
        return Ok(());
    };
    let mut table = String::from(
        "| what | events/s | p99 | Isobar's processor time an event | PostgreSQL's |\n|---|---:|---:|---:|---:|\n",
    );
    let House { server, folder, api, project } = House::build(options).await?;
    let devices = make_devices(&api, &project, options.devices).await?;
    let embedded = Nodes { servers: vec![server], _folders: vec![folder] };
    embedded.measure(options, "one process, embedded", &devices, &mut table).await?;

    let one = Nodes::start(options, 1, first).await?;
    let mut api = Api::log_in(&one.servers[0].address).await?;
    let project = make_project(&mut api).await?;
    let mut devices = make_devices(&api, &project, options.devices).await?;
    one.measure(options, "one node, one database", &devices, &mut table).await?;
    let name = format!("{NODES_TOGETHER} nodes, one database");
    Nodes::start(options, NODES_TOGETHER, first).await?.measure(options, &name, &devices, &mut table).await?;
    if databases.len() > 1 {
        let one = Nodes::start(options, 1, databases).await?;
        // New devices come into the other databases, until all have as many.
        let api = Api::log_in(&one.servers[0].address).await?;
        let others = make_devices(&api, &project, options.devices * (databases.len() - 1)).await?;
        devices = devices.into_iter().zip(others).flat_map(|(old, new)| [old, new]).collect();
        devices.truncate(options.devices);
        let several = format!("{} databases", databases.len());
        one.measure(options, &format!("one node, {several}"), &devices, &mut table).await?;
        let name = format!("{NODES_TOGETHER} nodes, {several}");
        Nodes::start(options, NODES_TOGETHER, databases).await?.measure(options, &name, &devices, &mut table).await?;
    }
    writeln!(
        table,
        "\nMedians of {} rounds of {} s; {} devices, each at one node; {LOAD_CONNECTIONS} connections, shared by the nodes. \
         All nodes, PostgreSQL and the load share this machine.",
        options.rounds,
        options.seconds,
        grouped(options.devices as f64)
    )?;
    page.put("nodes", &table)
}

/// Processor time that all processes of PostgreSQL on this machine have spent so far.
fn postgres_time() -> Duration {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Duration::ZERO };
    let stats = processes.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let ticks = stats.filter_map(|stat| {
        // proc(5): the name in brackets; utime and stime are fields 14 and 15, the third comes behind it.
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        (name == "postgres").then(|| fields.by_ref().sum::<u64>())
    });
    Duration::from_secs_f64(ticks.sum::<u64>() as f64 / clock_ticks_per_second() as f64)
}
