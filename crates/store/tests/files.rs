//! Tests stores in a process that may open no more files. The effects end when files are available again; and the
//! stores never lack any of the files reserved for them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;
#[path = "suite/registry/given.rs"]
mod nouns;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use given::{at, id};
use isobar_power::becomes_blocking;
use isobar_store::FILES_MAX;
use isobar_store::registry::Registry;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Memory, Telemetry, Upkeep as _, ValueQuery};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FOLDER: &str = "ISOBAR_TEST_FILES_FOLDER";
/// Number of unchanged looks after which the open files count as settled.
const SETTLED_LOOKS: u32 = 80;
/// Number of files that are taken at least, so that some can be released.
const TAKEN_MIN: u64 = 64;
const DEVICES: u64 = 8;
/// Size of a table, small so that a store has many.
const SMALL_TABLE_BYTES: u64 = 8 << 10;
/// Runs of each device while tables are created and removed.
const RUNS: i64 = 120;

/// Runs a test again in a process of its own: file limits apply to a whole process.
fn in_a_process(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let done = command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder.path()).output().unwrap();
    assert!(
        done.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Returns the numbers of the files that the process has open.
fn open_files() -> BTreeSet<u64> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|file| file.unwrap().file_name());
    open.map(|name| name.to_string_lossy().parse().unwrap()).collect()
}

/// Waits until the stores' background work after opening has ended: from then on they open and close nothing by
/// themselves.
fn settled() {
    let (mut before, mut unchanged) = (BTreeSet::new(), 0);
    becomes_blocking("no file is opened or closed any more", || {
        let now = open_files();
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
        unchanged == SETTLED_LOOKS
    });
}

/// Opens all files that the process may open, except this number. At least [`TAKEN_MIN`] are released when they are
/// dropped, regardless of the files that the process had open before.
fn all_files_but(left: u64) -> Vec<File> {
    settled();
    let highest = open_files().into_iter().max().unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(highest + 1 + TAKEN_MIN + left), ..limit }).unwrap();
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len().checked_sub(left as usize).unwrap());
    assert!(files.len() >= TAKEN_MIN as usize);
    files
}

fn storing(run: i64) -> impl FnMut(&dyn Memory) -> isobar_store::telemetry::Commit + Send {
    move |_: &dyn Memory| {
        let (text, event) = (format!("{{\"run\":{run},\"filling\":\"{}\"}}", "x".repeat(2_000)), id(run));
        let mut commit = given::sending(event, "out", &text, None);
        commit.values = given::storing(event, &[("log", &text)]).values;
        commit
    }
}

async fn write(store: &Embedded, device: u64, runs: std::ops::Range<i64>) {
    for run in runs {
        store.run(&given::device_with_key(device), None, at(0), &mut storing(run)).await.unwrap();
    }
}

async fn stored(store: &Embedded, device: u64) -> u64 {
    given::texts(store, &given::device_with_key(device), "log", ValueQuery::default()).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_recovers_after_files_ran_out() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return in_a_process("telemetry_recovers_after_files_ran_out");
    };
    let options = || Options { cache_bytes: 1 << 20, ..Options::default() };
    let store = Embedded::open(Path::new(&folder), options()).unwrap();
    write(&store, 1, 0..10).await;
    let taken = all_files_but(0);
    assert!(File::open("/dev/null").is_err());
    // Acknowledged writes need no new file, as long as the log need not begin another one.
    write(&store, 1, 10..60).await;
    drop(taken);
    // The retention begins another log and more edits of the manifest, which are read again.
    store.retain(at(0), Duration::ZERO, 365 * 86_400).await.unwrap();
    write(&store, 1, 60..70).await;
    assert_eq!(stored(&store, 1).await, 70);
    store.healthy().await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = Embedded::open(Path::new(&folder), options()).unwrap();
    assert_eq!(stored(&store, 1).await, 70);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_recovers_after_files_ran_out() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return in_a_process("registry_recovers_after_files_ran_out");
    };
    let file = Path::new(&folder).join("registry.db");
    let address = format!("sqlite:{}", file.display());
    let registry = Registry::open(&address).await.unwrap();
    let first = nouns::organization(&registry, None, "first").await;
    registry.healthy().await.unwrap();
    let taken = all_files_but(0);
    // An open connection continues. SQLite copies its log into its file after a hundred pages, which needs to examine
    // the file: that has to wait, and the log grows.
    let mut kept = Vec::new();
    for number in 0..400 {
        let made = nouns::new_organization(&format!("organization {number}"));
        kept.push(registry.organization_create(&nouns::may(None), made, nouns::at(0)).await.unwrap());
    }
    let log = isobar_store::registry::companions(&file).next().unwrap();
    let grown = log.metadata().unwrap().len();
    assert!(grown > 1_100 * 4_096, "{grown}");
    // A query of all devices needs a temporary file to sort them, or another connection: it may fail, without further
    // effect.
    let _ = join_all((0..8).map(|_| registry.device_numbers())).await;
    drop(taken);
    registry.healthy().await.unwrap();
    kept.push(first);
    kept.push(nouns::organization(&registry, None, "last").await);
    for organization in &kept {
        assert_eq!(nouns::refetched(&registry, organization.id).await, *organization);
    }
    assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
    registry.close().await.unwrap();
    assert!(!log.exists(), "its log went into its file");
    let registry = Registry::open(&address).await.unwrap();
    assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
    registry.close().await.unwrap();
}

/// Creates a store whose rows are in more tables than it keeps open, like a large one after years.
async fn of_many_tables(folder: &Path, options: Options) {
    let store = Embedded::open(folder, options).unwrap();
    for device in 1..=DEVICES {
        write(&store, device, 0..RUNS).await;
    }
    store.close().await.unwrap();
    drop(store);
    let mut small = rocksdb::Options::default();
    small.set_target_file_size_base(SMALL_TABLE_BYTES);
    small.set_compression_type(rocksdb::DBCompressionType::None);
    let families = rocksdb::DB::list_cf(&small, folder).unwrap();
    let all = families.iter().map(|family| (family, small.clone()));
    let db = rocksdb::DB::open_cf_with_opts(&small, folder, all).unwrap();
    let mut anew = rocksdb::CompactOptions::default();
    anew.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
    for family in &families {
        db.compact_range_cf_opt(db.cf_handle(family).unwrap(), None::<&[u8]>, None::<&[u8]>, &anew);
    }
    let tables = db.live_files().unwrap().len();
    assert!(tables > FILES_MAX as usize, "{tables} tables");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_reserved_for_the_stores_suffice() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return in_a_process("files_reserved_for_the_stores_suffice");
    };
    let folder = Path::new(&folder);
    // Small limits make tables and logs come and go all the time.
    let options = Options { cache_bytes: 1 << 20, memtable_bytes: 1 << 20, wal_bytes: 256 << 10, ..Options::default() };
    of_many_tables(&folder.join("telemetry"), options.clone()).await;
    let _taken = all_files_but(FILES_MAX);
    let others = open_files().len();
    let store = Arc::new(Embedded::open(&folder.join("telemetry"), options).unwrap());
    let registry = Registry::open(&format!("sqlite:{}", folder.join("registry.db").display())).await.unwrap();
    let writers = (1..=DEVICES).map(|device| {
        let store = store.clone();
        tokio::spawn(async move { write(&store, device, RUNS..2 * RUNS).await })
    });
    let readers = (1..=DEVICES).map(|device| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..6 {
                stored(&store, device).await;
                given::history(&*store, &given::device_with_key(device).reading()).await;
            }
        })
    });
    let nouns = tokio::spawn({
        let registry = registry.clone();
        async move {
            for number in 0..60 {
                nouns::organization(&registry, None, &format!("organization {number}")).await;
            }
        }
    });
    let looks = tokio::spawn({
        let (store, copy) = (store.clone(), folder.join("copy"));
        async move {
            store.retain(at(0), Duration::ZERO, 365 * 86_400).await.unwrap();
            store.backup(&copy).await.unwrap();
            // An examination reads files that are open already, up to the number that stays open.
            assert_eq!(store.examine().await.unwrap().faults, Vec::<String>::new());
        }
    });
    let over = Arc::new(AtomicBool::new(false));
    let counting = std::thread::spawn({
        let over = over.clone();
        move || {
            let mut most = 0;
            becomes_blocking("all are done", || {
                most = most.max(open_files().len() - others);
                over.load(Ordering::Relaxed)
            });
            most
        }
    });
    for task in writers.chain(readers).chain([nouns, looks]) {
        task.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let most = counting.join().unwrap();
    assert!(most * 3 > FILES_MAX as usize * 2, "it came to {most} files only");
    for device in 1..=DEVICES {
        assert_eq!(stored(&store, device).await, 2 * RUNS as u64);
    }
    store.healthy().await.unwrap();
    store.close().await.unwrap();
    assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
    registry.close().await.unwrap();
}
