//! Tests that damage to any file of a telemetry store is reported, or without effect: acknowledged data is never
//! missing or different without a report.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]
#![allow(clippy::single_range_in_vec_init, reason = "each range is a session's runs, and there may be one session")]

#[path = "suite/telemetry/given.rs"]
mod given;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use given::{at, id};
use isobar_store::error::{Result, StoreError};
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Memory, Telemetry, ValueQuery};

const DEVICES: u64 = 5;
/// Number of flipped bits in each of the folders; `ISOBAR_TEST_FLIPS` sets another number.
const FLIPS: usize = 60;

/// Pseudo-random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

fn options() -> Options {
    Options { cache_bytes: 1 << 20, ..Options::default() }
}

/// Runs all devices; each run writes to every family.
async fn write(store: &Embedded, runs: std::ops::Range<i64>) {
    for run in runs {
        for device in 1..=DEVICES {
            let (text, event) = (format!("{{\"device\":{device},\"run\":{run}}}"), id(run));
            let mut work = |_: &dyn Memory| {
                let mut commit = given::sending(event, "out", &text, None);
                commit.values = given::storing(event, &[("log", &text)]).values;
                commit.states = vec![("last".into(), Bytes::from(text.clone()))];
                commit.outbox = given::work(store, [text.clone()]);
                commit
            };
            store.run(&given::device_with_key(device), None, at(0), &mut work).await.unwrap();
        }
    }
}

/// Reads everything of all devices.
async fn read(store: &Embedded) -> Result<String> {
    let mut all = String::new();
    for device in 1..=DEVICES {
        let permit = given::device_with_key(device);
        let reading = permit.reading();
        let history = store.history(&reading, given::all_history(given::page(1, 1_000)), given::claim()).await?;
        let values = store.values(&reading, "log", ValueQuery::default(), given::claim()).await?;
        let queue = store.queue_peek(&reading, given::queued(1_000, 0)).await?;
        let (last, series) = (store.last(&reading, "log").await?, store.series(&reading).await?);
        let mut state = None;
        let mut look = |memory: &dyn Memory| {
            state = memory.state("last");
            Default::default()
        };
        store.run(&permit, None, at(0), &mut look).await?;
        writeln!(all, "{device}: {history:?} {values:?} {queue:?} {last:?} {series:?} {state:?}").unwrap();
    }
    writeln!(all, "{:?}", store.outbox(0, 10_000).await?).unwrap();
    Ok(all)
}

async fn opened(folder: &Path) -> Result<String> {
    let path = folder.to_owned();
    let store = tokio::task::spawn_blocking(move || Embedded::open(&path, options())).await.unwrap()?;
    let found = read(&store).await;
    // Close the store, so that the next one finds it free. Closing a damaged one may fail.
    let _ = store.close().await;
    found
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for (name, bytes) in files(from) {
        std::fs::write(to.join(name), bytes).unwrap();
    }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

struct Folders {
    _all: tempfile::TempDir,
    /// Files that a killed process has left.
    killed: PathBuf,
    /// Copy of them that is damaged.
    damaged: PathBuf,
}

/// Returns the files of a process that is killed after `sessions`: all but the last ended in order.
async fn killed(sessions: &[std::ops::Range<i64>], is_closed: bool) -> (Folders, String) {
    // A folder is copied for every flip: in memory if possible.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let all = tempfile::tempdir_in(place).unwrap();
    let folders = Folders { killed: all.path().join("killed"), damaged: all.path().join("damaged"), _all: all };
    let live = folders._all.path().join("live");
    let mut truth = String::new();
    for (number, runs) in sessions.iter().enumerate() {
        let store = Embedded::open(&live, options()).unwrap();
        let middle = (runs.start + runs.end) / 2;
        write(&store, runs.start..middle).await;
        if number > 0 {
            // The retention writes history to a table, and begins another file of the log; the first is still needed.
            store.retain(at(0), Duration::ZERO, 365 * 86_400).await.unwrap();
        }
        write(&store, middle..runs.end).await;
        truth = read(&store).await.unwrap();
        if is_closed || number + 1 < sessions.len() {
            store.close().await.unwrap();
        }
        if number + 1 == sessions.len() {
            copy(&live, &folders.killed);
        }
    }
    (folders, truth)
}

/// Opens and examines a damaged folder: everything is unchanged, or the damage is reported. Returns true if it is.
async fn holds(folders: &Folders, truth: &str, what: &str) -> bool {
    let before = files(&folders.damaged);
    let examined = Embedded::examine_folder(&folders.damaged, &options());
    assert_eq!(before, files(&folders.damaged), "{what}: an examination changes nothing");
    let is_named = !matches!(&examined, Ok(examined) if examined.faults.is_empty());
    match opened(&folders.damaged).await {
        Ok(found) => assert!(found == truth, "{what}: something else is read\n{found}\nand not\n{truth}"),
        Err(error @ (StoreError::Damaged(_) | StoreError::Unavailable(_))) => {
            assert!(is_named, "{what}: reading fails and an examination finds nothing: {error:?}");
            return true;
        }
        Err(error) => panic!("{what}: {error}"),
    }
    false
}

fn flips() -> usize {
    std::env::var("ISOBAR_TEST_FLIPS").map_or(FLIPS, |flips| flips.parse().unwrap())
}

async fn flipped_bit_is_reported_or_harmless(sessions: &[std::ops::Range<i64>], is_closed: bool, seed: u64) {
    let (folders, truth) = killed(sessions, is_closed).await;
    copy(&folders.killed, &folders.damaged);
    assert!(!holds(&folders, &truth, "nothing is damaged").await);
    let (whole, mut dice, mut named) = (files(&folders.killed), Dice(seed), BTreeMap::<&str, [u32; 2]>::new());
    let names: Vec<_> = whole.iter().filter(|(_, bytes)| !bytes.is_empty()).map(|(name, _)| name).collect();
    for _ in 0..flips() {
        let name = names[dice.below(names.len() as u64) as usize];
        let mut bytes = whole[name].clone();
        let (byte, bit) = (dice.below(bytes.len() as u64) as usize, dice.below(8));
        bytes[byte] ^= 1 << bit;
        copy(&folders.killed, &folders.damaged);
        std::fs::write(folders.damaged.join(name), bytes).unwrap();
        let is_named = holds(&folders, &truth, &format!("bit {bit} of byte {byte} of {name}")).await;
        named.entry(name).or_default()[usize::from(is_named)] += 1;
    }
    println!("by file, flips without effect and flips that were named: {named:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_after_a_kill_is_reported_or_harmless() {
    flipped_bit_is_reported_or_harmless(&[0..8, 8..16], false, 0x1234_5678_9abc_def1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_before_the_first_table_is_reported_or_harmless() {
    flipped_bit_is_reported_or_harmless(&[0..8], false, 0x0f1e_2d3c_4b5a_6978).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_in_a_closed_store_is_reported_or_harmless() {
    flipped_bit_is_reported_or_harmless(&[0..8, 8..16], true, 0x5a5a_0101_c3c3_0007).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_or_empty_file_is_reported_or_harmless() {
    for (sessions, is_closed, logs) in
        [(vec![0..8, 8..16], false, 2), (vec![0..8], false, 1), (vec![0..8, 8..16], true, 0)]
    {
        let (folders, truth) = killed(&sessions, is_closed).await;
        let mut named = Vec::new();
        for name in files(&folders.killed).keys() {
            for is_removed in [true, false] {
                copy(&folders.killed, &folders.damaged);
                let file = folders.damaged.join(name);
                if is_removed {
                    std::fs::remove_file(file).unwrap()
                } else {
                    std::fs::write(file, b"").unwrap()
                }
                if holds(&folders, &truth, &format!("{name} is removed ({is_removed}) or empty")).await {
                    named.push((name.clone(), is_removed));
                }
            }
        }
        let is_log = |(name, _): &&(String, bool)| name.ends_with(".log");
        assert_eq!(named.iter().filter(is_log).count(), 2 * logs, "{named:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_keeps_all_data_before_the_damage() {
    let (folders, _) = killed(&[0..8, 8..16], false).await;
    let (whole, mut dice, mut least) = (files(&folders.killed), Dice(0x7777_1234_0000_9999), usize::MAX);
    let logs: Vec<_> = whole.keys().filter(|name| name.ends_with(".log")).collect();
    for round in 0..24 {
        copy(&folders.killed, &folders.damaged);
        let name = logs[round % logs.len()];
        let file = folders.damaged.join(name);
        let mut bytes = whole[name].clone();
        match round / 2 {
            0 => std::fs::remove_file(file).unwrap(),
            1 => std::fs::write(file, b"").unwrap(),
            _ => {
                let byte = dice.below(bytes.len() as u64) as usize;
                bytes[byte] ^= 0x08;
                std::fs::write(file, bytes).unwrap();
            }
        }
        let damaged = files(&folders.damaged);
        // A few bytes at the end of a block belong to no record.
        let Some(loss) = Embedded::loss(&folders.damaged).unwrap() else { continue };
        let aside = folders._all.path().join(format!("aside-{round}"));
        Embedded::recover(&folders.damaged, &options(), &loss, &aside).unwrap();
        assert!(
            files(&aside).iter().all(|(name, bytes)| damaged[name] == *bytes),
            "the damage is kept to be looked at"
        );
        assert!(Embedded::loss(&folders.damaged).unwrap().is_none());
        let store = Embedded::open(&folders.damaged, options()).unwrap();
        for device in 1..=DEVICES {
            let permit = given::device_with_key(device);
            let (left, total) = given::texts(&store, &permit, "log", ValueQuery::default()).await;
            let written: Vec<_> = (0..16).map(|run| format!("{{\"device\":{device},\"run\":{run}}}")).collect();
            assert!(left.len() as u64 == total && left.len() >= 8, "{left:?}");
            assert!(written.starts_with(&left) || written[..left.len()].iter().rev().eq(&left), "{left:?}");
            least = least.min(left.len());
        }
        write(&store, 16..18).await;
        read(&store).await.unwrap();
    }
    assert!(least < 16, "nothing was ever lost");
}
