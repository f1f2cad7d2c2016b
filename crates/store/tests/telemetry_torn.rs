//! Tests the writes of a telemetry store that were not synced at a power cut: any mixture of them is left. A start
//! accepts that, and no other damage.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use given::{at, id};
use isobar_store::error::StoreError;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Memory, Telemetry, ValueQuery};

type Files = BTreeMap<String, Vec<u8>>;

/// Name of the note's file.
const NOTE: &str = "DURABLE";
/// Number of bytes of a hole.
const HOLE: usize = 40;
/// Number of bytes of a block of a log.
const BLOCK: usize = 32 << 10;

fn options() -> Options {
    Options { cache_bytes: 1 << 20, ..Options::default() }
}

async fn write(store: &Embedded, runs: std::ops::Range<i64>) {
    for run in runs {
        let (text, event) = (format!("{{\"run\":{run}}}"), id(run));
        let mut work = |_: &dyn Memory| {
            let mut commit = given::sending(event, "out", &text, None);
            commit.values = given::storing(event, &[("log", &text)]).values;
            commit
        };
        store.run(&given::device_with_key(1), None, at(0), &mut work).await.unwrap();
    }
}

fn files(folder: &Path) -> Files {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

fn named(files: &Files, is_named: impl Fn(&str) -> bool) -> &str {
    files.keys().rfind(|name| is_named(name)).unwrap()
}

/// Returns the runs that a start on these files finds, the first one first; or its error. A refused start changes
/// nothing.
async fn started(left: &Files) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in left {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let _ = Embedded::examine_folder(folder.path(), &options());
    assert!(*left == files(folder.path()), "an examination changes nothing");
    match Embedded::open(folder.path(), options()) {
        Ok(store) => {
            let all = ValueQuery { page: given::page(1, 1_000), ..ValueQuery::default() };
            let (mut found, _) = given::texts(&store, &given::device_with_key(1), "log", all).await;
            found.sort_by_key(|text| (text.len(), text.clone()));
            store.close().await.unwrap();
            drop(store);
            assert!(Embedded::examine_folder(folder.path(), &options()).unwrap().faults.is_empty());
            Ok(found)
        }
        Err(StoreError::Damaged(why)) => {
            assert!(*left == files(folder.path()), "a start that is refused changes nothing");
            Err(why)
        }
        Err(error) => panic!("{error}"),
    }
}

fn runs(runs: std::ops::Range<i64>) -> Vec<String> {
    runs.map(|run| format!("{{\"run\":{run}}}")).collect()
}

/// Returns contents of a hole: zeros, random bytes, and bytes that RocksDB's own reader of a manifest never gets past.
fn holes() -> [Vec<u8>; 3] {
    let rubbish = (0..HOLE as u8).map(|byte| byte.wrapping_mul(37).wrapping_add(11)).collect();
    let mut endless = vec![0; HOLE];
    (endless[4], endless[6]) = (9, 5);
    [vec![0; HOLE], rubbish, endless]
}

/// Returns a store's files after eight runs, after their rows were written to tables, and after eight more.
async fn moments() -> [Files; 3] {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), options()).unwrap();
    write(&store, 0..8).await;
    let first = files(folder.path());
    store.retain(at(0), Duration::ZERO, 365 * 86_400).await.unwrap();
    let second = files(folder.path());
    write(&store, 8..16).await;
    [first, second, files(folder.path())]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hole_in_the_unsynced_manifest_is_cut_off() {
    let [before, after, later] = moments().await;
    let manifest = named(&before, |name| name.starts_with("MANIFEST-"));
    let synced = before[manifest].len();
    assert!(after[manifest].len() > synced + HOLE + 20, "the tables are edits of the same manifest");
    for hole in holes() {
        let mut torn = after[manifest].clone();
        torn[synced..synced + HOLE].copy_from_slice(&hole);
        // The edit was being written: later changes had not happened.
        let mut left = before.clone();
        left.insert(manifest.to_owned(), torn);
        assert_eq!(started(&left).await, Ok(runs(0..8)), "{hole:?}");
        // The edit was synced, and so were later changes: a truncation is detected.
        for (files, note) in [(&after, &before), (&later, &before), (&later, &later)] {
            let mut left = files.clone();
            left.get_mut(manifest).unwrap()[synced..synced + HOLE].copy_from_slice(&hole);
            left.insert(NOTE.to_owned(), note[NOTE].clone());
            let written = if files == &after { 8 } else { 16 };
            match started(&left).await {
                Ok(found) => assert_eq!(found, runs(0..written), "the older log is still there"),
                Err(why) => assert!(note == &later && why.contains(manifest), "{why}"),
            }
            // Without the older log, the edit that moved its rows into tables is missing.
            left.remove(named(&before, |name| name.ends_with(".log")));
            started(&left).await.unwrap_err();
        }
        // Synced data is damaged.
        let mut left = before.clone();
        left.get_mut(manifest).unwrap()[synced - HOLE..].copy_from_slice(&hole);
        let why = started(&left).await.unwrap_err();
        assert!(why.contains(manifest), "{why}");
    }
    let mut left = before.clone();
    left.get_mut(manifest).unwrap().pop();
    assert!(started(&left).await.unwrap_err().contains(manifest), "a byte less than was synced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hole_in_the_log_is_cut_off_only_behind_the_note() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), options()).unwrap();
    write(&store, 0..8).await;
    let before = files(folder.path());
    write(&store, 8..16).await;
    let after = files(folder.path());
    let log = named(&before, |name| name.ends_with(".log"));
    let synced = before[log].len();
    assert!(after[log].len() > synced + 4 * HOLE);
    for hole in holes() {
        for (place, expected) in [(synced, true), (synced + HOLE, true), (synced - HOLE, false), (synced / 2, false)] {
            let mut left = after.clone();
            left.get_mut(log).unwrap()[place..place + HOLE].copy_from_slice(&hole);
            left.insert(NOTE.to_owned(), before[NOTE].clone());
            match started(&left).await {
                Ok(found) => assert!(expected && found == runs(0..8), "{place}: {found:?}"),
                Err(why) => assert!(!expected && why.contains(log), "{place}: {why}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_synced_by_the_manifest_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), options()).unwrap();
    write(&store, 0..4).await;
    let early = files(folder.path());
    write(&store, 4..8).await;
    // The retention begins another file of the log; the first is still needed, and recorded as complete after the next
    // sync.
    store.retain(at(0), Duration::ZERO, 365 * 86_400).await.unwrap();
    write(&store, 8..16).await;
    let mut left = files(folder.path());
    left.insert(NOTE.to_owned(), early[NOTE].clone());
    assert_eq!(started(&left).await, Ok(runs(0..16)), "an old note alone refuses nothing");
    let log = named(&early, |name| name.ends_with(".log"));
    let noted = early[log].len();
    assert!(left[log].len() > noted + 2 * HOLE);
    for hole in holes() {
        for place in [noted, noted + HOLE, left[log].len() - HOLE] {
            let mut left = left.clone();
            left.get_mut(log).unwrap()[place..place + HOLE].copy_from_slice(&hole);
            let why = started(&left).await.unwrap_err();
            assert!(why.contains(log), "{place}: {why}");
        }
    }
    left.get_mut(log).unwrap().truncate(noted);
    let why = started(&left).await.unwrap_err();
    assert!(why.contains(log), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hole_behind_rows_in_tables_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), options()).unwrap();
    let opened = files(folder.path());
    // Several blocks are written: RocksDB continues with the next one behind some holes.
    write(&store, 0..400).await;
    let mut left = files(folder.path());
    // The power cut has lost every note since the start.
    left.insert(NOTE.to_owned(), opened[NOTE].clone());
    let log = named(&left, |name| name.ends_with(".log")).to_owned();
    let blocks = left[&log].len() / BLOCK;
    assert!(blocks > 2, "{blocks}");
    for hole in holes() {
        let mut left = left.clone();
        left.get_mut(&log).unwrap()[BLOCK..BLOCK + HOLE].copy_from_slice(&hole);
        let found = started(&left).await.unwrap();
        assert!(found.len() < 400 && found == runs(0..found.len() as i64), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_end_of_the_log_is_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), options()).unwrap();
    write(&store, 0..4).await;
    let noted = files(folder.path());
    write(&store, 4..8).await;
    let mut left = files(folder.path());
    let log = named(&left, |name| name.ends_with(".log")).to_owned();
    let place = noted[&log].len();
    left.get_mut(&log).unwrap()[place..place + HOLE].fill(0);
    left.insert(NOTE.to_owned(), noted[NOTE].clone());
    let rest = left[&log][place..].to_vec();
    // A later log that no record marks as synced.
    left.insert("000999.log".to_owned(), left[&log].clone());
    let started = tempfile::tempdir().unwrap();
    for (name, bytes) in &left {
        std::fs::write(started.path().join(name), bytes).unwrap();
    }
    let kept = |dropped: &Path| files(&dropped.join("dropped"));
    for again in 0..2 {
        let store = Embedded::open(started.path(), options()).unwrap();
        let (found, _) = given::texts(&store, &given::device_with_key(1), "log", ValueQuery::default()).await;
        assert_eq!(found.len(), 4);
        store.close().await.unwrap();
        let kept = kept(started.path());
        assert_eq!(kept.keys().collect::<Vec<_>>(), [&format!("{log}-{place}"), "000999.log"], "{again}");
        assert!(kept[&format!("{log}-{place}")] == rest && kept["000999.log"] == left[&log]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_manifest_is_no_damage_to_a_reader() {
    let [mut left, ..] = moments().await;
    let manifest = named(&left, |name| name.starts_with("MANIFEST-")).to_owned();
    left.get_mut(&manifest).unwrap().extend([1, 2, 3]);
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in &left {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let looks = [
        Embedded::examine_folder(folder.path(), &options()).map(|_| ()),
        Embedded::seen(folder.path(), &options()).map(|_| ()),
    ];
    for looked in looks {
        let error = looked.unwrap_err();
        let why = error.to_string();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(why.contains("unfinished write") && why.contains("The next start of the platform"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_note_alone_does_not_prevent_the_start() {
    let [first, second, third] = moments().await;
    for (mut left, written) in [(first, 8), (second, 8), (third, 16)] {
        for torn in [vec![0; 1024], vec![0xa5; 1024], vec![]] {
            left.insert(NOTE.to_owned(), torn);
            assert_eq!(started(&left).await, Ok(runs(0..written)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_with_a_note_but_no_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), options()).unwrap();
    write(&store, 1..4).await;
    let killed = files(folder.path());
    store.close().await.unwrap();
    drop(store);
    for before in [killed, files(folder.path())] {
        let alone = before.into_iter().filter(|(name, _)| name == NOTE).collect();
        let why = started(&alone).await.unwrap_err();
        assert!(why.contains("is missing, and with it all that was written"), "{why}");
    }
}
