//! Tests that acknowledged commits survive a kill of the process at any moment, whole and once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use given::{at, id};
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Memory, Telemetry, ValueQuery};

const FOLDER: &str = "ISOBAR_TEST_CRASH_FOLDER";
const DEVICES: u64 = 20;
const ROUNDS: u32 = 4;
/// Acknowledgements that are read before the process is killed.
const HEARD: usize = 2_000;

/// Runs in the process that will be killed: writes for all devices at once and reports acknowledged commits.
async fn write(folder: &Path) {
    // The log fills many files, which are recycled again and again.
    let options = Options { wal_bytes: 512 << 10, memtable_bytes: 2 << 20, ..Options::default() };
    let store = Arc::new(Embedded::open(folder, options).unwrap());
    join_all((1..=DEVICES).map(|device| {
        let store = store.clone();
        tokio::spawn(async move {
            let permit = given::device_with_key(device);
            loop {
                let mut count = 0;
                let mut work = |memory: &dyn Memory| {
                    count = number(memory.state("count")) + 1;
                    let mut commit = given::sending(id(count as i64), "out", &count.to_string(), None);
                    commit.values = given::storing(id(count as i64), &[("log", &count.to_string())]).values;
                    commit.states = vec![("count".into(), Bytes::copy_from_slice(&count.to_be_bytes()))];
                    commit.outbox = given::work(&*store, [Bytes::copy_from_slice(&count.to_be_bytes())]);
                    commit
                };
                store.run(&permit, None, at(0), &mut work).await.unwrap();
                println!("acknowledged {device} {count}");
            }
        })
    }))
    .await;
}

fn number(state: Option<Bytes>) -> u64 {
    state.map_or(0, |bytes| u64::from_be_bytes(bytes.as_ref().try_into().unwrap()))
}

/// Runs this test again in a process of its own, kills it, and returns how many commits of each device were
/// acknowledged.
fn killed(folder: &Path) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "acknowledged_commits_survive_a_kill", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged = vec![0; DEVICES as usize + 1];
    let mut hear = |line: String| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "acknowledged").skip(1);
        if let (Some(device), Some(count)) = (words.next(), words.next()) {
            acknowledged[device.parse::<usize>().unwrap()] = count.parse().unwrap();
        }
    };
    lines.by_ref().take(HEARD).for_each(&mut hear);
    child.kill().unwrap();
    child.wait().unwrap();
    // Acknowledgements printed before it died count too; the last line may be torn.
    let rest: Vec<String> = lines.collect();
    rest.iter().take(rest.len().saturating_sub(1)).cloned().for_each(hear);
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_commits_survive_a_kill() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..ROUNDS {
        let acknowledged = killed(folder.path());
        assert!(acknowledged.iter().any(|count| *count > 0));
        let store =
            Embedded::open(folder.path(), Options { queue_max_events: u64::MAX, ..Options::default() }).unwrap();
        let outbox = store.outbox(0, usize::MAX).await.unwrap();
        for device in 1..=DEVICES {
            let permit = given::device_with_key(device);
            let mut count = 0;
            let mut look = |memory: &dyn Memory| {
                count = number(memory.state("count"));
                Default::default()
            };
            store.run(&permit, None, at(0), &mut look).await.unwrap();
            assert!(
                count >= acknowledged[device as usize],
                "of device {device} {} commits were acknowledged, and it has {count}",
                acknowledged[device as usize]
            );
            // A commit is stored completely or not at all.
            let reading = permit.reading();
            let values = given::texts(&store, &permit, "log", ValueQuery::default()).await;
            assert_eq!((values.1, &values.0[0]), (count, &count.to_string()));
            assert_eq!(given::history(&store, &reading).await.total, count);
            assert_eq!(
                store.queue_peek(&reading, given::queued(100_000, 0)).await.unwrap().len() as u64,
                count.min(10_000)
            );
            assert_eq!(outbox.iter().filter(|entry| entry.device == permit.target().key).count() as u64, count);
        }
    }
}
