//! Tests that values past the retention of a series stay dropped, and nothing else is: at any moment of a kill.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use given::{id, page};
use isobar_model::retention::Kept;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Telemetry, Upkeep as _, ValueQuery};

const FOLDER: &str = "ISOBAR_TEST_DROPPED_FOLDER";
const ROUNDS: usize = 5;
/// Drops that are reported before the process is killed.
const HEARD: usize = 8;
/// Number of values that are kept, and (next constant) of values stored between two drops.
const KEPT: u64 = 50;
const STORED: u64 = 400;

/// Returns the values that are shown, oldest first: each is its own number.
async fn shown(store: &Embedded) -> Vec<u64> {
    let query = ValueQuery { page: page(1, 10_000), ..ValueQuery::default() };
    let reading = given::device_with_key(1).reading();
    let Some(found) = store.values(&reading, "log", query, given::claim()).await.unwrap() else { return Vec::new() };
    assert_eq!(found.total, found.items.len() as u64);
    found.items.iter().rev().map(|value| value.payload.text().parse().unwrap()).collect()
}

/// Runs in the process that will be killed: stores values, drops old ones, and reports the drops.
async fn write(folder: &Path) {
    let store = Embedded::open(folder, Options { memtable_bytes: 2 << 20, ..Options::default() }).unwrap();
    let device = given::device_with_key(1);
    let mut next = shown(&store).await.last().map_or(0, |last| last + 1);
    loop {
        for _ in 0..STORED / 20 {
            let values: Vec<String> = (next..next + 20).map(|number| number.to_string()).collect();
            let values: Vec<_> = values.iter().map(|text| ("log", text.as_str())).collect();
            given::run(&store, &device, given::storing(id(next as i64), &values)).await;
            next += 20;
        }
        let kept = Kept { values: Some(KEPT), ..Kept::default() };
        store.series_retain(&device, vec![("log".into(), kept)], true).await.unwrap();
        println!("dropped {}", next - KEPT);
    }
}

/// Runs this test again in a process of its own and kills it; returns the value below which it reported all as dropped.
fn killed(folder: &Path) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dropped_values_stay_dropped_after_a_kill", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let heard = lines.filter_map(|line| line.split_once("dropped ")?.1.trim().parse().ok());
    let dropped = heard.take(HEARD).last().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    dropped
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_values_stay_dropped_after_a_kill() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..ROUNDS {
        let dropped = killed(folder.path());
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let numbers = shown(&store).await;
        let (first, last) = (*numbers.first().unwrap(), *numbers.last().unwrap());
        assert!(first >= dropped, "{first} is shown, and below {dropped} all is dropped");
        assert!(last + 1 - first >= KEPT && numbers.is_sorted_by(|one, next| one + 1 == *next), "{first} to {last}");
        let examined = store.examine().await.unwrap();
        assert_eq!(examined.faults, Vec::<String>::new());
        let reading = given::device_with_key(1).reading();
        assert_eq!(store.last(&reading, "log").await.unwrap().unwrap().values.text(), last.to_string());
        store.close().await.unwrap();
    }
}
