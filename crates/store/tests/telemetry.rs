//! Tests that the embedded telemetry store keeps every promise of the port, and its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/mod.rs"]
mod suite;

use isobar_model::event::Event;
use isobar_model::ids::DeviceKey;
use isobar_store::error::StoreError;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{
    Commit, Followed, Idempotency, Ran, StreamPosition, TURNS_MAX, Telemetry, Upkeep as _, ValueQuery,
};
use suite::contended::Contended;
use suite::given::{self, at, id, page, queued};

fn open(folder: &tempfile::TempDir) -> Embedded {
    Embedded::open(folder.path(), Options::default()).unwrap()
}

/// Opens the store of a test, in which the states of devices may take this many bytes of memory.
fn of_a_scene(folder: &tempfile::TempDir, device_bytes: usize) -> Embedded {
    let options = Options { queue_max_events: suite::QUEUE_MAX, device_bytes, ..Options::default() };
    Embedded::open(folder.path(), options).unwrap()
}

macro_rules! in_memory {
    ($($scene:ident)*) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $scene() {
                let folder = tempfile::tempdir().unwrap();
                super::suite::$scene(&super::of_a_scene(&folder, super::Options::default().device_bytes)).await;
            })*
        }
    };
}

macro_rules! without_room_in_memory {
    ($($scene:ident)*) => {
        mod without_room_in_memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $scene() {
                let folder = tempfile::tempdir().unwrap();
                super::suite::$scene(&super::of_a_scene(&folder, 0)).await;
            })*
        }
    };
}

macro_rules! contended {
    ($($scene:ident)*) => {
        mod contended {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $scene() {
                let folder = tempfile::tempdir().unwrap();
                let store = super::of_a_scene(&folder, super::Options::default().device_bytes);
                super::suite::$scene(&super::Contended::new(std::sync::Arc::new(store), 1, 30)).await;
            })*
        }
    };
}

suite::telemetry_scenes!(contended);
suite::telemetry_scenes!(in_memory);
suite::telemetry_scenes!(without_room_in_memory);

#[tokio::test]
async fn endless_conflicts_end_after_a_bounded_number_of_turns() {
    let folder = tempfile::tempdir().unwrap();
    let (device, mut runs) = (given::device(), 0);
    let store = Contended::new(std::sync::Arc::new(open(&folder)), 1, 100);
    let mut work = |_: &dyn isobar_store::telemetry::Memory| {
        runs += 1;
        given::storing(id(1), &[("log", "1")])
    };
    let ran = store.run(&device, None, at(0), &mut work).await;
    assert!(matches!(ran, Err(StoreError::Conflict)), "{ran:?}");
    assert_eq!((runs, store.conflicts()), (TURNS_MAX, TURNS_MAX as u64));
    assert!(store.series(&device.reading()).await.unwrap().is_empty());
    store.set_share(0);
    given::store(&store, &device, 2, "log", "2").await;
    assert_eq!(given::texts(&store, &device, "log", ValueQuery::default()).await, (vec!["2".to_owned()], 1));
}

#[tokio::test]
async fn events_of_a_catching_up_stream_are_encoded_by_the_reader() {
    // The thread that asks only takes written text, however many catch up.
    fn name_of_the_thread(_: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(std::thread::current().name().unwrap_or_default().as_bytes());
        out.push(b' ');
    }
    const EVENTS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let (store, device) = (open(&folder), given::device());
    let from = store.follow().from;
    for n in 0..EVENTS {
        given::store(&store, &device, n as i64, "log", "1").await;
    }
    let followed = Followed::of([device.reading()]);
    let found = store.history_between(&followed, from, store.follow().from, EVENTS, given::claim()).await;
    let piece = store.history_next(&mut found.unwrap(), (1 << 20, name_of_the_thread), given::claim()).await.unwrap();
    let threads: Vec<_> = std::str::from_utf8(&piece.text).unwrap().split_whitespace().collect();
    assert_eq!((piece.events.len(), threads.len()), (EVENTS, EVENTS));
    assert!(threads.iter().all(|thread| thread.starts_with("isobar-scan")), "{threads:?}");
}

#[tokio::test]
async fn acknowledged_commits_survive_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let (device, event) = (given::device(), id(3));
    for round in 0..3_u64 {
        let store = open(&folder);
        let mut work = |_: &dyn isobar_store::telemetry::Memory| {
            let mut commit = given::sending(id(4), "out", "1", None);
            commit.outbox = given::work(&store, ["mail"]);
            let key = Idempotency { key: "k".into(), answer: event, expires_at: at(100) };
            Commit { idempotency: Some(key), ..commit }
        };
        let ran = store.run(&device, Some("k"), at(0), &mut work).await.unwrap();
        assert_eq!(ran, if round == 0 { Ran::Committed { dropped: 0 } } else { Ran::Repeated(event) });
        for n in 0..50 {
            // Some values are no objects: the checkpoint at the 32nd also stores values behind it.
            let payload = if n % 10 == 1 { "true".to_owned() } else { format!("{{\"k{round}\":{n}}}") };
            given::store(&store, &device, 5 + n, "log", &payload).await;
        }
        let reading = device.reading();
        assert_eq!(given::texts(&store, &device, "log", ValueQuery::default()).await.1, 50 * (round + 1));
        assert_eq!(store.queue_peek(&reading, queued(10, 0)).await.unwrap().len(), 1);
        assert_eq!(store.outbox(0, 10).await.unwrap().len(), 1);
        let series = &store.series(&reading).await.unwrap()[0];
        assert_eq!(series.count, 50 * (round + 1));
        let last = store.last(&reading, "log").await.unwrap().unwrap();
        assert!(last.values.text().starts_with("{\"k0\":49"));
        if round == 1 {
            store.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_positions_survive_restarts_and_a_clock_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let devices: Vec<_> = (0..4).map(|_| given::device()).collect();
    let reading: Vec<_> = devices.iter().map(|device| device.reading()).collect();
    let mut known = Vec::new();
    for round in 1..=3 {
        let store = open(&folder);
        assert_eq!(given::between(&store, &reading, StreamPosition::first(), store.follow().from, 50).await, known);
        // The clock steps back from one start to the next; and runs overtake each other.
        given::side_by_side(&store, &devices, Some(1_000 - 100 * round), false).await;
        let until = store.follow().from;
        let found = given::between(&store, &reading, StreamPosition::first(), until, 50).await;
        assert_eq!((&found[..known.len()], found.len()), (&known[..], 60 * round as usize));
        let middle = store.history_position(found[found.len() / 2].id).await.unwrap();
        assert_eq!(given::between(&store, &reading, middle, until, 7).await, found[found.len() / 2 + 1..]);
        known = found;
    }
    // A forgotten device leaves no data.
    let store = open(&folder);
    assert_eq!(store.examine().await.unwrap().faults, [""; 0]);
    for device in &devices {
        store.forget(device).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let families = rocksdb::DB::list_cf(&rocksdb::Options::default(), folder.path()).unwrap();
    let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), folder.path(), families).unwrap();
    let timelines = db.iterator_cf(db.cf_handle("timeline").unwrap(), rocksdb::IteratorMode::Start);
    assert_eq!(timelines.filter(|row| row.as_ref().unwrap().0[8] == 2).count(), 0);
}

#[tokio::test]
async fn closed_store_refuses_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (store, device) = (open(&folder), given::device());
    given::store(&store, &device, 1, "log", "1").await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    let ran = store.run(&device, None, at(0), &mut |_| unreachable!("it is closed")).await;
    assert!(matches!(ran, Err(StoreError::Unavailable(_))));
    assert!(store.healthy().await.is_err());
    assert!(store.values(&device.reading(), "log", ValueQuery::default(), given::claim()).await.is_err());
    assert!(store.outbox_done(&[(DeviceKey(1), 1)]).await.is_err());
}

#[tokio::test]
async fn newer_format_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder));
    let families = rocksdb::DB::list_cf(&rocksdb::Options::default(), folder.path()).unwrap();
    let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), folder.path(), families).unwrap();
    db.put(b"format", 3_u32.to_be_bytes()).unwrap();
    drop(db);
    let error = Embedded::open(folder.path(), Options::default()).err().unwrap();
    assert!(error.to_string().contains("format 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_data_is_reclaimed_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let (device, other) = (given::device(), given::device());
    let store = open(&folder);
    for n in 0..100 {
        given::store(&store, &device, n, "log", "1").await;
        given::store(&store, &other, n, "log", "1").await;
    }
    store.series_delete(&device, None).await.unwrap();
    store.forget(&other).await.unwrap();
    drop(store);
    let store = open(&folder);
    assert!(store.series(&device.reading()).await.unwrap().is_empty());
    assert_eq!(given::history(&store, &other.reading()).await.total, 0);
    given::store(&store, &other, 200, "log", "2").await;
    assert_eq!(given::history(&store, &other.reading()).await.total, 1);
    assert_eq!(given::texts(&store, &other, "log", ValueQuery::default()).await.1, 1);
}

/// Returns a text that compresses badly, different for each seed.
fn noise(seed: u64) -> String {
    let numbers = (0..512).scan(seed | 1, |state: &mut u64, _| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(format!("{state:016x}"))
    });
    format!("\"{}\"", numbers.collect::<String>())
}

/// Returns the bytes of all tables in a store's folder.
fn table_bytes(folder: &tempfile::TempDir) -> u64 {
    bytes_of(folder, "sst")
}

/// Returns the bytes of the write-ahead log, including recycled files.
fn log_bytes(folder: &tempfile::TempDir) -> u64 {
    bytes_of(folder, "log")
}

fn bytes_of(folder: &tempfile::TempDir, kind: &str) -> u64 {
    let files = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let files = files.filter(|file| file.path().extension().is_some_and(|extension| extension == kind));
    // A file may be removed between reading its name and its size.
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn space_of_deleted_series_and_devices_is_reclaimed() {
    /// Number of events of each device that is removed; the device that stays has a third of them.
    const EVENTS: i64 = 1_500;
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: 12 << 20, wal_bytes: 16 << 20, ..Options::default() };
    let store = Embedded::open(folder.path(), options).unwrap();
    let (emptied, forgotten, kept) = (given::device(), given::device(), given::device());
    for n in 0..EVENTS {
        let stays = (n % 3 == 0).then_some(&kept);
        for device in [&emptied, &forgotten].into_iter().chain(stays) {
            let (payload, event) = (noise(n as u64 * 3 + device.target().key.0), id(n));
            let mut commit = given::storing(event, &[("log", &payload)]);
            if device.target() == forgotten.target() {
                commit.history = [given::device_event(event, &payload)].into();
            }
            given::run(&store, device, commit).await;
        }
    }
    // The tables have nearly everything: two devices with 1,500 values, one of them with its events, and the device
    // that stays.
    let all = table_bytes(&folder);
    assert!(all > 30 << 20, "{all}");
    store.series_delete(&emptied, None).await.unwrap();
    store.forget(&forgotten).await.unwrap();
    let is_little = async || table_bytes(&folder) <= all / 4;
    isobar_power::becomes(&format!("a quarter of {all} bytes at most"), is_little).await;
    assert_eq!(given::texts(&store, &kept, "log", ValueQuery::default()).await.1, EVENTS as u64 / 3);
    assert_eq!(given::history(&store, &emptied.reading()).await.total, EVENTS as u64);
    assert_eq!(given::history(&store, &kept.reading()).await.total, EVENTS as u64 / 3);
    assert_eq!(store.examine().await.unwrap().faults, Vec::<String>::new());
}

#[tokio::test]
async fn a_backup_is_a_store() {
    let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, device) = (open(&folder), given::device());
    given::store(&store, &device, 1, "log", "1").await;
    let copy = copies.path().join("copy");
    store.backup(&copy).await.unwrap();
    given::store(&store, &device, 2, "log", "2").await;
    let copy = Embedded::open(&copy, Options::default()).unwrap();
    assert_eq!(given::texts(&copy, &device, "log", ValueQuery::default()).await.1, 1);
    assert_eq!(given::texts(&store, &device, "log", ValueQuery::default()).await.1, 2);
}

#[tokio::test]
async fn store_after_deletions_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let (kept, emptied, forgotten) = (given::device(), given::device(), given::device());
    for n in 0..100 {
        for device in [&kept, &emptied, &forgotten] {
            given::store(&store, device, n, "log", "1").await;
        }
    }
    store.series_delete(&emptied, None).await.unwrap();
    store.forget(&forgotten).await.unwrap();
    let seen = store.examine().await.unwrap();
    assert_eq!((seen.faults, seen.faults_found, seen.values), (Vec::<String>::new(), 0, 100));
    assert!(seen.devices.contains(&kept.target().key) && !seen.devices.contains(&forgotten.target().key));
    // After half a year, history is removed while timelines still name it.
    let half_a_year = std::time::Duration::from_secs(183 * 86_400);
    store.retain(at(183 * 86_400_000), half_a_year, 86_400).await.unwrap();
    let seen = store.examine().await.unwrap();
    assert_eq!((seen.faults, seen.events, seen.values), (Vec::<String>::new(), 0, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_needs_several_rounds_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    let (store, device) = (open(&folder), given::device());
    // Long texts fill a round before its values do: two rounds and a half.
    let long = "x".repeat(400_000);
    for n in 0..100 {
        given::store(&store, &device, n, "log", &format!("{{\"t\":\"{long}{:03}\"}}", (n * 7) % 100)).await;
    }
    let sort = vec![isobar_store::telemetry::ValueSort {
        field: isobar_store::telemetry::FilterField::Payload(vec!["t".into()]),
        descending: false,
    }];
    for number in [1, 5, 10] {
        let query = ValueQuery { sort: sort.clone(), page: page(number, 10), ..ValueQuery::default() };
        let (found, total) = given::texts(&store, &device, "log", query).await;
        let ends: Vec<_> = found.iter().map(|text| text[text.len() - 5..text.len() - 2].to_owned()).collect();
        let first = (number - 1) * 10;
        assert_eq!((ends, total), ((first..first + 10).map(|n| format!("{n:03}")).collect(), 100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sort_by_payload_reaches_a_bounded_number_of_values() {
    use isobar_store::telemetry::{Filter, FilterField, Operand, Operator, SORTED_MAX, ValueSort};
    let folder = tempfile::tempdir().unwrap();
    let (store, device) = (open(&folder), given::device());
    let count = SORTED_MAX + 10;
    for start in (0..count).step_by(1_000) {
        let payloads: Vec<String> = (start..count.min(start + 1_000)).map(|n| n.to_string()).collect();
        let values: Vec<_> = payloads.iter().map(|text| ("log", text.as_str())).collect();
        given::run(&store, &device, given::storing(id(start as i64), &values)).await;
    }
    let sort = vec![ValueSort { field: FilterField::Payload(Vec::new()), descending: true }];
    let asked = |number, limit| ValueQuery { sort: sort.clone(), page: page(number, limit), ..ValueQuery::default() };
    let (last, total) = given::texts(&store, &device, "log", asked(SORTED_MAX / 10, 10)).await;
    assert_eq!((last[9].as_str(), total), ("10", count));
    let beyond = store.values(&device.reading(), "log", asked(SORTED_MAX / 10 + 1, 10), given::claim()).await;
    assert!(matches!(beyond, Err(StoreError::TooFar)), "{beyond:?}");
    // The same query must fail if only reading tells the number of values.
    let not_negative = Filter {
        field: FilterField::Payload(Vec::new()),
        operator: Operator::Gte,
        operands: vec![Operand::Number("0".to_owned())],
    };
    let filtered = ValueQuery { filters: vec![not_negative], ..asked(SORTED_MAX / 10 + 1, 10) };
    let beyond = store.values(&device.reading(), "log", filtered, given::claim()).await;
    assert!(matches!(beyond, Err(StoreError::TooFar)), "{beyond:?}");
    // A page past the end is empty, at any distance.
    assert_eq!(given::texts(&store, &device, "log", asked(1_000_000, 100)).await, (Vec::new(), count));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_values_is_bounded_in_bytes() {
    use isobar_store::telemetry::{FilterField, PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX, ValueSort};
    const PAYLOAD: usize = 1_000_000;
    const TOO_MANY: u64 = (PAGE_BYTES_MAX / PAYLOAD) as u64 + 1;
    let folder = tempfile::tempdir().unwrap();
    let (store, device) = (open(&folder), given::device());
    let large = format!("{{\"n\":1,\"text\":\"{}\"}}", "x".repeat(PAYLOAD));
    for n in 0..TOO_MANY as i64 {
        let event = id(n);
        let mut commit = given::storing(event, &[("log", &large)]);
        commit.history = [given::device_event(event, &large)].into();
        given::run(&store, &device, commit).await;
    }
    let reading = device.reading();
    let by_payload = vec![ValueSort { field: FilterField::Payload(vec!["n".into()]), descending: false }];
    for sort in [Vec::new(), by_payload] {
        let asked = |limit| ValueQuery { sort: sort.clone(), page: page(1, limit), ..ValueQuery::default() };
        let refused = store.values(&reading, "log", asked(TOO_MANY as u32), given::claim()).await;
        assert!(matches!(refused, Err(StoreError::TooMuch)));
        let found = store.values(&reading, "log", asked(TOO_MANY as u32 - 1), given::claim()).await.unwrap().unwrap();
        assert_eq!((found.items.len() as u64, found.total), (TOO_MANY - 1, TOO_MANY));
    }
    let asked = |limit| given::all_history(page(1, limit));
    let refused = store.history(&reading, asked(TOO_MANY as u32), given::claim()).await;
    assert!(matches!(refused, Err(StoreError::TooMuch)));
    let found = store.history(&reading, asked(TOO_MANY as u32 - 1), given::claim()).await.unwrap();
    assert_eq!((found.items.len() as u64, found.total), (TOO_MANY - 1, TOO_MANY));
    // Events that do not fit stay in the queue for the next reader.
    let fits = QUEUE_PAGE_BYTES_MAX / PAYLOAD;
    for n in 0..fits as i64 + 1 {
        given::run(&store, &device, given::sending(id(n), "out", &large, None)).await;
    }
    assert!(matches!(store.queue_peek(&reading, queued(100, 0)).await, Err(StoreError::TooMuch)));
    assert_eq!(store.queue_peek(&reading, queued(fits as u32, 0)).await.unwrap().len(), fits);
    assert_eq!(store.queue_take(&device, queued(100, 0)).await.unwrap().len(), fits);
    assert_eq!(store.queue_take(&device, queued(100, 0)).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_stream_messages_are_bounded_in_bytes() {
    use isobar_store::telemetry::StreamMessage;
    let folder = tempfile::tempdir().unwrap();
    let (store, device) = (open(&folder), given::device());
    let mut following = store.follow();
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    for n in 0..50 {
        let event = id(n);
        let mut commit = Commit { history: [given::device_event(event, &large)].into(), ..Commit::default() };
        commit.streamed = Some(given::streamed(&device, &commit));
        given::run(&store, &device, commit).await;
    }
    let (mut kept, mut gone) = (0, 0);
    while let Ok(StreamMessage::Event { event, .. }) = following.messages.try_recv() {
        if event.upgrade().is_some() { kept += 1 } else { gone += 1 }
    }
    assert_eq!((kept, gone), (31, 19));
}

/// Builds a run that stores this many values that compress badly.
fn storing_noise(event: i64, values: u64) -> Commit {
    let payloads: Vec<_> = (0..values).map(|n| noise(event as u64 * values + n)).collect();
    let values: Vec<_> = payloads.iter().map(|payload| ("log", payload.as_str())).collect();
    given::storing(id(event), &values)
}

#[tokio::test(flavor = "multi_thread")]
async fn log_to_replay_is_bounded() {
    const LOG_BYTES: u64 = 1 << 20;
    /// Bounds the log files that may exist at once: one being written, one whose rows become tables, four recycled; and
    /// as many again, because writing continues while tables are made.
    const LOG_FILES_MAX: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options { wal_bytes: LOG_BYTES, ..Options::default() }).unwrap();
    let (device, quiet) = (given::device(), given::device());
    // A family that rarely gets a row must not keep the log of all others.
    given::run(&store, &quiet, given::sending(id(0), "out", "1", None)).await;
    let mut most = 0;
    for n in 0..400 {
        given::run(&store, &device, storing_noise(n, 10)).await;
        most = most.max(log_bytes(&folder));
    }
    let written = table_bytes(&folder);
    assert!(written > 2 * LOG_FILES_MAX * LOG_BYTES, "{written}");
    assert!(most < LOG_FILES_MAX * LOG_BYTES, "{most} of {written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_a_long_log_survive_a_crash() {
    const EVENTS: u64 = 60;
    let folder = tempfile::tempdir().unwrap();
    let (device, emptied, forgotten) = (given::device(), given::device(), given::device());
    for round in 1..=2 {
        let store = open(&folder);
        for n in 0..EVENTS {
            for each in [&device, &emptied, &forgotten] {
                let mut commit = storing_noise(n as i64, 10);
                commit.queue = given::sending(id(n as i64), "out", "1", None).queue;
                commit.states = vec![("count".into(), bytes::Bytes::copy_from_slice(&n.to_be_bytes()))];
                commit.outbox = given::work(&store, ["mail"]);
                given::run(&store, each, commit).await;
            }
        }
        store.series_delete(&emptied, None).await.unwrap();
        store.forget(&forgotten).await.unwrap();
        assert!(log_bytes(&folder) > 8 << 20, "{}", log_bytes(&folder));
        drop(store);
        let store = open(&folder);
        assert_eq!(given::texts(&store, &device, "log", ValueQuery::default()).await.1, 10 * EVENTS * round);
        let waiting = store.queue_peek(&device.reading(), queued(10_000, 0)).await.unwrap();
        assert_eq!(waiting.len() as u64, EVENTS * round);
        assert_eq!(store.outbox(0, 10_000).await.unwrap().len() as u64, 3 * EVENTS * round);
        assert!(store.series(&emptied.reading()).await.unwrap().is_empty());
        assert_eq!(given::history(&store, &emptied.reading()).await.total, EVENTS * round);
        assert_eq!(given::history(&store, &forgotten.reading()).await.total, 0);
        assert_eq!(store.examine().await.unwrap().faults, Vec::<String>::new());
        store.close().await.unwrap();
    }
}
