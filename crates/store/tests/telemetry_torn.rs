//! What a power cut leaves of a telemetry store's writes that were not synced: any mixture of them. A start forgives it, and
//! nothing else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use isobar_store::error::StoreError;
use isobar_store::suite::telemetry::given::{self, at, id};
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Memory, Telemetry, ValueQuery};

type Files = BTreeMap<String, Vec<u8>>;

/// The note's file.
const NOTE: &str = "DURABLE";
/// Bytes of a hole.
const HOLE: usize = 40;

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
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

fn named(files: &Files, is_named: impl Fn(&str) -> bool) -> &str {
    files.keys().rfind(|name| is_named(name)).unwrap()
}

/// The runs that a start on these files finds, the first one first; or what it says. A refused start changes nothing.
async fn started(left: &Files) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in left {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let _ = Embedded::examine_folder(folder.path(), &options());
    assert!(*left == files(folder.path()), "an examination changes nothing");
    match Embedded::open(folder.path(), options()) {
        Ok(store) => {
            let (mut found, _) = given::texts(&store, &given::device_with_key(1), "log", ValueQuery::default()).await;
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

/// What stands in a hole: nothing, rubbish, and what RocksDB's own reading of a manifest never gets past.
fn holes() -> [Vec<u8>; 3] {
    let rubbish = (0..HOLE as u8).map(|byte| byte.wrapping_mul(37).wrapping_add(11)).collect();
    let mut endless = vec![0; HOLE];
    (endless[4], endless[6]) = (9, 5);
    [vec![0; HOLE], rubbish, endless]
}

/// A store's files after eight runs, after tables were made of them, and after eight more.
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
async fn a_hole_in_what_the_manifest_had_not_synced_is_cut_off() {
    let [before, after, later] = moments().await;
    let manifest = named(&before, |name| name.starts_with("MANIFEST-"));
    let synced = before[manifest].len();
    assert!(after[manifest].len() > synced + HOLE + 20, "the tables are edits of the same manifest");
    for hole in holes() {
        let mut torn = after[manifest].clone();
        torn[synced..synced + HOLE].copy_from_slice(&hole);
        // The edit was being written: what came after it had not happened.
        let mut left = before.clone();
        left.insert(manifest.to_owned(), torn);
        assert_eq!(started(&left).await, Ok(runs(0..8)), "{hole:?}");
        // The edit was synced, and so was what came after it: what is cut off is missed.
        for (files, note) in [(&after, &before), (&later, &before), (&later, &later)] {
            let mut left = files.clone();
            left.get_mut(manifest).unwrap()[synced..synced + HOLE].copy_from_slice(&hole);
            left.insert(NOTE.to_owned(), note[NOTE].clone());
            let written = if files == &after { 8 } else { 16 };
            match started(&left).await {
                Ok(found) => assert_eq!(found, runs(0..written), "the older log is still there"),
                Err(why) => assert!(note == &later && why.contains(manifest), "{why}"),
            }
            // Without the older log, what moved its rows into tables is missed.
            left.remove(named(&before, |name| name.ends_with(".log")));
            started(&left).await.unwrap_err();
        }
        // What had been synced is damaged.
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
async fn a_hole_in_the_log_is_cut_off_behind_what_is_noted_and_refused_before() {
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
async fn a_torn_note_alone_refuses_nothing() {
    let [first, second, third] = moments().await;
    for (mut left, written) in [(first, 8), (second, 8), (third, 16)] {
        for torn in [vec![0; 1024], vec![0xa5; 1024], vec![]] {
            left.insert(NOTE.to_owned(), torn);
            assert_eq!(started(&left).await, Ok(runs(0..written)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_begun_anew_where_a_note_says_that_there_was_something() {
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
