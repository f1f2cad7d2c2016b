//! Nodes over a registry and telemetry in two databases that are killed, stopped and cut from their databases under load: a
//! checker decides by the history of all calls that each promise was kept.
//!
//! The short form is processes over one PostgreSQL. Under `scripts/with-machines` each node, each server of two pairs that
//! Patroni manages, and each member of etcd is on a machine of its own, and machines are lost and cut from each other.
//!
//! `CLUSTER_SECONDS` says how long a run lasts, `CLUSTER_NODES` how many nodes there are, and `CLUSTER_SEED` repeats the
//! choices of a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod checker;
#[cfg(test)]
mod checker_tests;
mod disasters;
mod faults;
mod history;
mod load;
mod machines;
mod nodes;
#[path = "../program_support/mod.rs"]
mod program_support;
mod register;
mod report;
mod shown;
#[path = "../../../store/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disasters::Damage;
use futures::future::join_all;
use history::History;
use isobar_power::{Chance, becomes, within_patience};
use load::Platform;
use machines::Machines;
use nodes::{Databases, Node, Place};
use program_support::site::Api;

const NODES: u64 = 2;
const SECONDS: u64 = 60;
/// Nodes and seconds among machines.
const MACHINES: u64 = 3;
const LONG_SECONDS: u64 = 600;
const SEED: u64 = 0x15_0b_a4;
const DEVICES: usize = 8;

/// Returns a number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// World in which a run happens: nodes beside each other over one PostgreSQL, or each on a machine of its own, over pairs.
struct World {
    machines: Option<Machines>,
    databases: Databases,
    nodes: usize,
    seed: u64,
    lasts: Duration,
    /// Command that repeats the run.
    command: String,
}

impl World {
    async fn of_environment() -> Self {
        let machines = Machines::found();
        let (nodes, seconds) = if machines.is_some() { (MACHINES, LONG_SECONDS) } else { (NODES, SECONDS) };
        let (nodes, seconds) = (number("CLUSTER_NODES", nodes), number("CLUSTER_SECONDS", seconds));
        let seed = number("CLUSTER_SEED", SEED);
        let program = match machines {
            Some(_) => "make torture-cluster",
            None => "scripts/with-postgres cargo test -p isobar --test cluster",
        };
        let command = format!("CLUSTER_SEED={seed} CLUSTER_NODES={nodes} CLUSTER_SECONDS={seconds} {program}");
        let databases = if machines.is_some() { Machines::databases() } else { Databases::new().await };
        let (nodes, lasts) = (usize::try_from(nodes).unwrap(), Duration::from_secs(seconds));
        Self { machines, databases, nodes, seed, lasts, command }
    }

    fn start(&self, node: usize, folder: &Path) -> Node {
        let place = if self.machines.is_some() { Machines::place(node) } else { Place::here() };
        Node::start(node, folder, place, &self.databases)
    }

    /// Lets faults happen until the time is over; returns the nodes, which run.
    async fn harm(&self, platform: &Platform, nodes: Vec<Node>, chance: Chance) -> (Vec<Node>, Damage) {
        if let Some(machines) = &self.machines {
            return disasters::happen(platform, nodes, &self.databases, machines, chance, self.lasts).await;
        }
        let (nodes, faults) = faults::happen(platform, nodes, &self.databases, chance, self.lasts).await;
        (nodes, Damage { faults, stuck: Vec::new() })
    }
}

// Holds: c17.any, c17.ends
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_of_nodes_under_faults_breaks_no_promise() {
    let world = World::of_environment().await;
    println!("seed {}; repeat with: {}", world.seed, world.command);
    // It stays where the run fails.
    let folder = tempfile::tempdir().unwrap().keep();
    println!("logs of the nodes: {}", folder.display());
    let mut chance = Chance::new(world.seed);

    let running: Vec<Node> = (0..world.nodes).map(|number| world.start(number, &folder)).collect();
    let api = Api::of(running[0].serving()).await;
    let devices = api.found(&load::design(), DEVICES).await;
    let apis = running.iter().map(|node| api.at(node.serving())).collect();
    let platform = Arc::new(Platform::new(apis, devices));

    let mut clients = platform.works(&mut chance);
    let (running, damage) = world.harm(&platform, running, chance).await;
    platform.ends();
    let ending = async {
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    };
    within_patience("the answer to the last call of each client", ending).await;
    let begun = platform.now();
    becomes("the registry has all work of the runs", async || world.databases.has_no_work_left().await).await;
    println!("drained after {:.2} s", (platform.now() - begun) as f64 / 1e6);

    let gap_max = world.machines.is_some().then_some(disasters::GAP_MAX);
    let Damage { faults, stuck } = damage;
    let (begun_at, calls) = (platform.begun_at, platform.calls());
    let mut history = History { begun_at, calls, faults, stuck, gap_max, shown: Vec::new() };
    for (node, api) in platform.apis.iter().enumerate() {
        shown::ready(api).await;
        let shown = (0..DEVICES).map(|device| shown::shown(api, node, device, &platform.devices[device].id));
        history.shown.extend(join_all(shown).await);
    }
    let ends = running.into_iter().map(|node| tokio::task::spawn_blocking(move || node.end()));
    let logs: Vec<String> = join_all(ends).await.into_iter().map(Result::unwrap).collect();
    report::write(&history, &folder.join("history"));
    let mut violations = checker::violations(&history);
    violations.extend(report::panics(&logs));
    report::print(&history, &logs);
    println!("{} connections were cut by the databases", world.databases.cuts());
    let (count, told, command) = (violations.len(), report::told(&violations), &world.command);
    assert!(count == 0, "{count} violations; logs and history in {}; repeat with: {command}\n{told}", folder.display());
    world.databases.remove().await;
    std::fs::remove_dir_all(folder).unwrap();
}
