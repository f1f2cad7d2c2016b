//! Nodes over one registry and one telemetry store that are killed, stopped and cut from their databases under load: a
//! checker decides by the history of all calls that each promise was kept.
//!
//! `CLUSTER_SECONDS=600` makes a long run, `CLUSTER_NODES` says how many nodes there are, and `CLUSTER_SEED` repeats the
//! choices of a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod checker;
#[cfg(test)]
mod checker_tests;
mod faults;
mod history;
mod load;
mod nodes;
#[path = "../program_support/mod.rs"]
mod program_support;
mod register;
mod report;
#[path = "../../../store/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use history::{History, Shown};
use isobar_power::{Chance, becomes, within_patience};
use load::Platform;
use nodes::{Databases, Node};
use program_support::site::Api;
use serde_json::Value;

const NODES: u64 = 2;
const SECONDS: u64 = 60;
const SEED: u64 = 0x15_0b_a4;
const DEVICES: usize = 8;

/// Returns a number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_of_nodes_under_faults_breaks_no_promise() {
    let (nodes, seconds, seed) =
        (number("CLUSTER_NODES", NODES), number("CLUSTER_SECONDS", SECONDS), number("CLUSTER_SEED", SEED));
    let command = format!(
        "CLUSTER_SEED={seed} CLUSTER_NODES={nodes} CLUSTER_SECONDS={seconds} scripts/with-postgres cargo test -p isobar --test cluster"
    );
    println!("seed {seed}; repeat with: {command}");
    // It stays where the run fails.
    let folder = tempfile::tempdir().unwrap().keep();
    println!("logs of the nodes: {}", folder.display());
    let databases = Databases::new().await;
    let mut chance = Chance::new(seed);

    let running = (0..usize::try_from(nodes).unwrap()).map(|number| Node::start(number, &folder, &databases));
    let running: Vec<Node> = running.collect();
    let api = Api::of(running[0].serving()).await;
    let devices = api.found(&load::design(), DEVICES).await;
    let apis = running.iter().map(|node| api.at(node.serving())).collect();
    let platform = Arc::new(Platform::new(apis, devices));

    let mut clients = platform.works(&mut chance);
    let lasts = Duration::from_secs(seconds);
    let (running, faults) = faults::happen(&platform, running, &databases, chance, lasts).await;
    platform.ends();
    let ending = async {
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    };
    within_patience("the answer to the last call of each client", ending).await;
    let begun = platform.now();
    becomes("the registry has all work of the runs", async || databases.left_work().await == 0).await;
    println!("drained after {:.2} s", (platform.now() - begun) as f64 / 1e6);

    let mut history = History { calls: platform.calls(), faults, shown: Vec::new() };
    for (node, api) in platform.apis.iter().enumerate() {
        let shown = (0..DEVICES).map(|device| shown(api, node, device, &platform.devices[device].id));
        history.shown.extend(join_all(shown).await);
    }
    let ends = running.into_iter().map(|node| tokio::task::spawn_blocking(move || node.end()));
    let logs: Vec<String> = join_all(ends).await.into_iter().map(Result::unwrap).collect();
    let mut violations = checker::violations(&history);
    violations.extend(report::panics(&logs));
    report::print(&history, &logs, &violations);
    assert!(
        violations.is_empty(),
        "{} violations; logs in {}; repeat with: {command}",
        violations.len(),
        folder.display()
    );
    databases.remove().await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// Reads a device at a node.
async fn shown(api: &Api, node: usize, device: usize, id: &str) -> Shown {
    let at = format!("/v2/devices/{id}");
    let history = whole(api, &format!("{at}/events?")).await;
    let of_type = |kind: &str| {
        let is_so =
            |event: &&Value| event["type"] == kind && (kind == "cloudEvent" || event["elementName"] == load::READING);
        let events = history.iter().filter(is_so);
        events
            .map(|event| (event["id"].as_str().unwrap().to_owned(), event["payload"]["n"].as_u64().unwrap()))
            .collect()
    };
    let counts = async |element: &str| {
        let values = whole(api, &format!("{at}/data/{element}?")).await;
        values.iter().map(|value| value["payload"].as_u64().unwrap()).collect()
    };
    let waiting = api.get(&format!("/v2/events/cloud?deviceId={id}&peek=true&limit=10000")).await;
    Shown {
        device,
        node,
        events: of_type("deviceEvent"),
        queued: of_type("cloudEvent"),
        counts: counts("counts").await,
        label_counts: counts("labelCounts").await,
        label: api.get(&at).await["meta"]["n"].as_u64().unwrap_or(0),
        waiting: waiting.as_array().unwrap().iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect(),
        setting: api.get(&format!("{at}/settings/limit")).await["value"].as_u64().unwrap(),
    }
}

/// Reads all pages of a list, and returns it oldest first.
async fn whole(api: &Api, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    for page in 1.. {
        let answer = api.get(&format!("{path}limit=10000&page={page}")).await;
        let more = answer["data"].as_array().unwrap();
        items.extend(more.iter().cloned());
        if more.is_empty() || answer["meta"]["totalDocs"] == items.len() {
            break;
        }
    }
    items.reverse();
    items
}
