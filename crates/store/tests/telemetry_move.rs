//! Tests that telemetry that is moved to PostgreSQL answers as it did in the folder, however often the move is interrupted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use given::{at, id, page};
use isobar_model::access::CanWrite;
use isobar_model::event::EventError;
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::page::TimeRange;
use isobar_model::retention::Kept;
use isobar_store::error::StoreError;
use isobar_store::telemetry::embedded::{Embedded, Options, StoppedStore};
use isobar_store::telemetry::postgres::{
    MoveError, MoveOptions, MoveTotals, PostgresOptions, PostgresTelemetry, TelemetryMove,
};
use isobar_store::telemetry::{
    Commit, FilterField, HistoryQuery, Idempotency, Locked, Telemetry, Upkeep as _, ValueQuery, ValueSort,
};
use support::{OwnDatabase, Raw};

const DAY: i64 = 86_400_000;
/// Devices of the source, by number; the last one is deleted.
const DEVICES: [u64; 7] = [3, 4, 9, 10, 500, 501, 900];
/// Values of the long series.
const LONG: i64 = 700;
/// Settings of a move in many pieces.
const SMALL_PIECES: MoveOptions = MoveOptions { piece_rows: 37, piece_bytes: 8 << 20 };

fn device(number: u64) -> CanWrite<DeviceRef> {
    given::device_with_key(number)
}

fn newest(values: u64) -> Kept {
    Kept { values: Some(values), ..Kept::default() }
}

/// Fills the history, the series and the states of devices.
async fn fill_devices(t: &dyn Telemetry) {
    let long = device(4);
    for n in 0..LONG {
        given::store(t, &long, n, "long", &format!("{{\"n\": {n}}}")).await;
    }
    for n in 0..300 {
        given::run(t, &long, given::storing(id(LONG + n), &[("short", &n.to_string()), ("short", "0.5"), ("é", "[]")]))
            .await;
    }
    assert!(t.series_retain(&long, vec![("short".into(), newest(20))], true).await.unwrap());
    given::store(t, &long, 2_000, "gone", "1").await;
    assert!(t.series_delete(&long, Some("gone")).await.unwrap());
    given::store(t, &long, 2_001, "gone", "2").await;
    // All values of a series are dropped.
    given::store(t, &device(3), 5, "log", "1").await;
    assert!(t.series_retain(&device(3), vec![("log".into(), newest(0))], true).await.unwrap());
    // A clock that went back.
    for millis in [9_000, 4_000, 4_001, 1, 9_001] {
        let sent = given::sending(id(millis), "out", &millis.to_string(), None);
        let commit = Commit { values: given::storing(id(millis), &[("log", "7")]).values, ..sent };
        given::run(t, &device(9), commit).await;
    }
    let mut faulty = given::device_event(id(40), "{\"text\": \"\\u0000 ü\"}");
    faulty.errors = vec![EventError { element: "f".to_owned(), message: "a \u{0} b \"c\"".to_owned() }];
    let states = vec![("a".into(), "one".into()), ("b".into(), vec![0_u8, 255].into())];
    given::run(t, &device(10), Commit { history: [faulty].into(), states, ..Commit::default() }).await;
    // Events that overtake each other.
    let devices = [device(3), device(10), device(500)];
    for _ in 0..3 {
        given::side_by_side(t, &devices, None, false).await;
    }
}

/// Fills queues, the outbox and idempotency keys, and deletes the last device.
async fn fill_the_rest(t: &dyn Telemetry) {
    for n in 0..90_i64 {
        let expires = (n % 3 == 0).then(|| at(DAY + n));
        given::run(t, &device(501), given::sending(id(20_000 + n), if n % 2 == 0 { "x" } else { "y" }, "1", expires))
            .await;
    }
    let some = isobar_store::telemetry::QueueQuery { element: Some("y".to_owned()), ..given::queued(5, 0) };
    assert_eq!(t.queue_take(&device(501), some).await.unwrap().len(), 5);
    for (number, key) in [(3, "one"), (3, "two"), (500, "one")] {
        let answer = id(30_000);
        let idempotency = Some(Idempotency { key: key.to_owned(), answer, expires_at: at(2 * DAY) });
        given::run(t, &device(number), Commit { idempotency, ..given::storing(answer, &[]) }).await;
    }
    let works: Vec<_> = (0..50).map(|n| format!("work {n}")).collect();
    given::run(t, &device(10), Commit { outbox: given::work(t, works), ..Commit::default() }).await;
    // A device that has nothing else.
    given::run(t, &device(700), Commit { outbox: given::work(t, ["last"]), ..Commit::default() }).await;
    let entries = t.outbox(0, 100).await.unwrap();
    t.outbox_park(entries[7].device, entries[7].number, "nobody answers").await.unwrap();
    t.outbox_done(&[(entries[3].device, entries[3].number)]).await.unwrap();
    // History before the first half of a second is past retention.
    t.retain(at(DAY), Duration::ZERO, (DAY - 500) / 1_000).await.unwrap();
    given::store(t, &device(900), 50_000, "log", "1").await;
    t.forget(&device(900)).await.unwrap();
}

/// Makes a folder with every sort of state, and returns what the port answers.
async fn source() -> (tempfile::TempDir, Answers) {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    fill_devices(&store).await;
    fill_the_rest(&store).await;
    store.close().await.unwrap();
    drop(store);
    // As after a start, which reads everything from the disk.
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    let answers = answers(&store).await;
    store.close().await.unwrap();
    drop(store);
    (folder, answers)
}

/// Answers of a store, by question.
type Answers = BTreeMap<String, String>;

/// Asks a store everything.
async fn answers(t: &dyn Telemetry) -> Answers {
    let mut answers = Answers::new();
    for number in DEVICES {
        let of_device = [history(t, number).await, series(t, number).await, queue(t, number).await];
        for (question, answer) in of_device.into_iter().flatten() {
            answers.insert(format!("device {number}: {question}"), answer);
        }
    }
    answers.insert("outbox".to_owned(), format!("{:?}", t.outbox(0, 1_000).await.unwrap()));
    let after = t.outbox(0, 20).await.unwrap()[19].number;
    answers.insert("rest of the outbox".to_owned(), format!("{:?}", t.outbox(after, 1_000).await.unwrap()));
    answers.extend(streams(t).await);
    answers
}

async fn history(t: &dyn Telemetry, number: u64) -> Vec<(String, String)> {
    let (reading, mut answers) = (device(number).reading(), Vec::new());
    let all = given::all_history(page(1, 10_000));
    let sorts = [
        ("all", all),
        ("device events", HistoryQuery { cloud_events: false, ..all }),
        ("cloud events", HistoryQuery { device_events: false, ..all }),
        ("a range", HistoryQuery { range: TimeRange { from: Some(at(300)), to: Some(at(4_002)) }, ..all }),
        ("not before", HistoryQuery { not_before: at(9_000), ..all }),
    ];
    for (sort, query) in sorts {
        for page in [page(1, 10_000), page(1, 7), page(3, 7), page(11, 10)] {
            let found = t.history(&reading, HistoryQuery { page, ..query }, given::claim()).await.unwrap();
            answers.push((format!("history, {sort}, {page:?}"), format!("{found:?}")));
        }
    }
    for event in t.history(&reading, all, given::claim()).await.unwrap().items {
        let found = t.history_event(&reading, event.id).await.unwrap().unwrap();
        // The two adapters show another time for one event where the clock went back.
        let found = isobar_model::event::Event { received_at: event.received_at, ..found };
        answers.push((format!("event {}", event.id), format!("{found:?}")));
    }
    answers
        .push(("no event".to_owned(), format!("{:?}", t.history_event(&reading, EventId::from_bytes([7; 16])).await)));
    answers
}

async fn series(t: &dyn Telemetry, number: u64) -> Vec<(String, String)> {
    let (permit, mut answers) = (device(number), Vec::new());
    let (reading, all) = (permit.reading(), t.series(&permit.reading()).await.unwrap());
    answers.push(("series".to_owned(), format!("{all:?}")));
    for series in &all {
        let element = &*series.element;
        let last = t.last(&reading, element).await.unwrap();
        let extent = t.extent(&reading, element, &Kept::default(), TimeRange::default(), given::claim()).await.unwrap();
        answers.push((format!("last and extent of {element}"), format!("{last:?} {extent:?}")));
        for descending in [false, true] {
            let sort = vec![ValueSort { field: FilterField::CreatedAt, descending }];
            let query = ValueQuery { sort, ..ValueQuery::default() };
            let whole = given::whole(t, &reading, element, &query).await;
            answers.push((format!("whole {element}, {descending}"), format!("{whole:?}")));
            let range = TimeRange { from: Some(at(100)), to: Some(at(600)) };
            for (kept, page) in
                [(newest(50), page(1, 13)), (Kept::default(), page(4, 10)), (newest(1_000), page(1, 1_000))]
            {
                let query = ValueQuery { kept: kept.clone(), page, range, ..query.clone() };
                let found = t.values(&reading, element, query, given::claim()).await.unwrap();
                answers.push((format!("values of {element}, {descending}, {kept:?}, {page:?}"), format!("{found:?}")));
            }
        }
    }
    let turn = t.lock(&permit).await.unwrap();
    let memory = turn.memory();
    let states: Vec<_> = memory.states().into_iter().map(|(name, bytes)| (memory.state(&name), name, bytes)).collect();
    answers.push(("memory".to_owned(), format!("{states:?} {:?} {:?}", memory.newest(), memory.all_last_bytes())));
    answers
}

async fn queue(t: &dyn Telemetry, number: u64) -> Vec<(String, String)> {
    let (permit, mut answers) = (device(number), Vec::new());
    for now in [0, DAY + 30, 2 * DAY] {
        for (page, element) in [(page(1, 100), None), (page(2, 9), None), (page(1, 9), Some("y".to_owned()))] {
            let query = isobar_store::telemetry::QueueQuery { page, element: element.clone(), ..given::queued(1, now) };
            let found = t.queue_peek(&permit.reading(), query).await.unwrap();
            answers.push((format!("queue, {now}, {page:?}, {element:?}"), format!("{found:?}")));
        }
    }
    for (key, now) in [("one", 0), ("two", 0), ("one", 2 * DAY), ("three", 0)] {
        let known = match t.lock_unless_repeated(&permit, key, at(now)).await.unwrap() {
            Locked::Repeated(answer) => Some(answer),
            Locked::Turn(_) => None,
        };
        answers.push((format!("key {key}, {now}"), format!("{known:?}")));
    }
    answers
}

/// Resumes streams behind every event.
async fn streams(t: &dyn Telemetry) -> Answers {
    let devices: Vec<_> = DEVICES.iter().map(|number| device(*number).reading()).collect();
    let (until, mut answers) = (t.follow().from, Answers::new());
    let mut events = Vec::new();
    for device in &devices {
        events.extend(given::history(t, device).await.items.into_iter().map(|event| event.id));
    }
    events.sort_unstable();
    // Those of the clock that went back are not what this is about.
    for event in events.iter().step_by(5) {
        let position = t.history_position(*event).await.unwrap();
        let rest = given::between(t, &devices, position, until, 400).await;
        let rest: Vec<_> = rest.into_iter().filter(|told| !told.text.contains("\"out\"")).collect();
        answers.insert(format!("stream behind {event}"), format!("{:?}", given::ids(&rest)));
    }
    answers
}

async fn begin(
    folder: &Path,
    database: &OwnDatabase,
    options: MoveOptions,
) -> Result<(TelemetryMove, bool), MoveError> {
    TelemetryMove::begin(StoppedStore::open(folder)?, &database.address, options).await
}

async fn open(database: &OwnDatabase) -> Result<PostgresTelemetry, StoreError> {
    let options = PostgresOptions { needs_syncs: false, ..PostgresOptions::default() };
    PostgresTelemetry::open(&database.address, options).await
}

async fn is_moved(database: &OwnDatabase, expected: &Answers) {
    let store = open(database).await.unwrap();
    let found = answers(&store).await;
    for (question, answer) in expected {
        assert_eq!(found.get(question), Some(answer), "{question}");
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(store.greatest_device().await.unwrap().0, 700);
    // Identifiers, sequences and numbers go on.
    let newest = store.newest_event();
    assert!(newest > id(50_000), "{newest:?}");
    assert!(store.outbox_number() > store.outbox(0, 1_000).await.unwrap().last().unwrap().number);
    let before = given::history(&store, &device(4).reading()).await.total;
    given::store(&store, &device(4), 60_000, "long", "1").await;
    let after = given::history(&store, &device(4).reading()).await;
    assert_eq!(
        (after.total, store.series(&device(4).reading()).await.unwrap()[1].count),
        (before + 1, LONG as u64 + 1)
    );
    given::run(&store, &device(501), given::sending(id(60_001), "x", "2", None)).await;
    let queued = store.queue_peek(&device(501).reading(), given::queued(1_000, 0)).await.unwrap();
    assert_eq!((queued.len(), queued[85].payload.text()), (86, "2"));
    store.close().await.unwrap();
}

/// Returns the names and contents of all files of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let files = files.filter(|file| file.file_type().unwrap().is_file());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

mod on_postgres {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn moved_store_answers_as_before() {
        let (folder, expected) = source().await;
        let (before, database) = (files(folder.path()), OwnDatabase::new().await);
        let (moving, is_anew) = begin(folder.path(), &database, MoveOptions::default()).await.unwrap();
        let totals = moving.finish().await.unwrap();
        // The clock of one event went back to a moment before the cutoff: its timeline has it, history does not.
        assert!(!is_anew && totals.lacking == 1, "{totals:?}");
        assert_eq!((totals.queued, totals.keys, totals.outbox, totals.states), (90, 3, 50, 2), "{totals:?}");
        assert_eq!(totals.progress.devices, totals.progress.of_devices);
        assert!(files(folder.path()) == before, "the folder is not changed");
        is_moved(&database, &expected).await;
        let (moved, identity) =
            (open(&database).await.unwrap(), Embedded::identity_of(folder.path(), &Options::default()));
        assert_eq!(Some(moved.noted().identity), identity.unwrap());
        moved.close().await.unwrap();
        let again = begin(folder.path(), &database, MoveOptions::default()).await.err().unwrap();
        assert!(matches!(again, MoveError::ForeignRows(_)), "{again}");
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn interrupted_move_goes_on_where_it_was() {
        let (folder, expected) = source().await;
        let database = OwnDatabase::new().await;
        let mut pieces = 0;
        loop {
            let (mut moving, is_anew) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
            assert!(!is_anew);
            // One piece each time, and sometimes none.
            if !moving.copy().await.unwrap() {
                break;
            }
            pieces += 1;
            drop(moving);
            let refused = open(&database).await.err().unwrap();
            let StoreError::Unavailable(why) = refused else { panic!("{refused:?}") };
            assert!(why.to_string().contains("isobar move"), "{why}");
        }
        assert!(pieces > 30, "{pieces}");
        let (moving, _) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
        moving.finish().await.unwrap();
        is_moved(&database, &expected).await;
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn move_goes_on_after_its_connection_ended() {
        let (folder, expected) = source().await;
        let (database, ends) = (
            OwnDatabase::new().await,
            "SELECT pg_terminate_backend(pid) FROM pg_locks \
            WHERE locktype = 'advisory' AND pid <> pg_backend_pid() AND database = \
            (SELECT oid FROM pg_database WHERE datname = current_database())",
        );
        let raw = Raw::open(&database.address).await;
        for pieces in [1, 4, 9] {
            let (mut moving, _) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
            for _ in 0..pieces {
                assert!(moving.copy().await.unwrap());
            }
            raw.run(ends).await.unwrap();
            while moving.copy().await.is_ok() {}
        }
        let (moving, _) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
        moving.finish().await.unwrap();
        is_moved(&database, &expected).await;
        raw.close().await;
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn difference_is_found_and_not_served() {
        let (folder, _) = source().await;
        let database = OwnDatabase::new().await;
        let raw = Raw::open(&database.address).await;
        let (mut moving, _) = begin(folder.path(), &database, MoveOptions::default()).await.unwrap();
        while moving.copy().await.unwrap() {}
        drop(moving);
        let of = "(SELECT series FROM telemetry.last WHERE device = 4 AND element = 'long')";
        for (change, undo, expected) in [
            (
                format!("UPDATE telemetry.value SET payload = '1' WHERE n = 5 AND series = {of}"),
                format!("UPDATE telemetry.value SET payload = '{{\"n\": 5}}' WHERE n = 5 AND series = {of}"),
                "device 4: values: as many",
            ),
            (
                "INSERT INTO telemetry.state VALUES (7, 'x', 'y')".to_owned(),
                "DELETE FROM telemetry.state WHERE device = 7".to_owned(),
                "device 7: states: 0 in the source, 1 in the database",
            ),
            (
                "INSERT INTO telemetry.value SELECT 77, n, ord, id, payload FROM telemetry.value LIMIT 1".to_owned(),
                "DELETE FROM telemetry.value WHERE series = 77".to_owned(),
                "1 values in the database are of no series",
            ),
            (
                "UPDATE telemetry.outbox SET parked = 'x' WHERE parked IS NOT NULL".to_owned(),
                "UPDATE telemetry.outbox SET parked = 'nobody answers' WHERE parked IS NOT NULL".to_owned(),
                "device 10: entries of the outbox: as many",
            ),
            (
                "CREATE TABLE kept AS SELECT * FROM telemetry.event WHERE device = 500 LIMIT 1; \
                 DELETE FROM telemetry.event e USING kept k WHERE e.device = k.device AND e.ord = k.ord AND e.kind = k.kind"
                    .to_owned(),
                "INSERT INTO telemetry.event SELECT * FROM kept".to_owned(),
                "device 500: events:",
            ),
        ] {
            raw.run(&change).await.unwrap();
            let (moving, _) = begin(folder.path(), &database, MoveOptions::default()).await.unwrap();
            let refused = moving.finish().await.unwrap_err();
            let MoveError::Different(differences) = &refused else { panic!("{refused}") };
            assert!(differences.len() == 1 && differences[0].starts_with(expected), "{differences:?}");
            assert!(open(&database).await.is_err());
            raw.run(&undo).await.unwrap();
        }
        let (moving, _) = begin(folder.path(), &database, MoveOptions::default()).await.unwrap();
        moving.finish().await.unwrap();
        raw.close().await;
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn database_in_use_and_other_sources_are_refused() {
        let (folder, _) = source().await;
        let database = OwnDatabase::new().await;
        let store = open(&database).await.unwrap();
        let refused = begin(folder.path(), &database, MoveOptions::default()).await.err().unwrap();
        assert!(matches!(refused, MoveError::Served), "{refused}");
        given::store(&store, &device(4), 0, "log", "1").await;
        store.close().await.unwrap();
        drop(store);
        let refused = begin(folder.path(), &database, MoveOptions::default()).await.err().unwrap();
        assert!(matches!(refused, MoveError::ForeignRows("head")), "{refused}");
        open(&database).await.unwrap().close().await.unwrap();
        database.remove().await;

        let (other, database) = (tempfile::tempdir().unwrap(), OwnDatabase::new().await);
        let store = Embedded::open(other.path(), Options::default()).unwrap();
        store.close().await.unwrap();
        drop(store);
        let (mut moving, _) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
        assert!(moving.copy().await.unwrap());
        drop(moving);
        let refused = begin(other.path(), &database, SMALL_PIECES).await.err().unwrap();
        assert!(matches!(refused, MoveError::OtherSource), "{refused}");
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn changed_source_is_moved_anew() {
        let (folder, _) = source().await;
        let database = OwnDatabase::new().await;
        let (mut moving, _) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
        for _ in 0..30 {
            assert!(moving.copy().await.unwrap());
        }
        drop(moving);
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        given::store(&store, &device(3), 55_000, "log", "1").await;
        assert!(store.series_delete(&device(4), None).await.unwrap());
        let expected = answers(&store).await;
        store.close().await.unwrap();
        drop(store);
        let (moving, is_anew) = begin(folder.path(), &database, SMALL_PIECES).await.unwrap();
        assert!(is_anew);
        moving.finish().await.unwrap();
        let store = open(&database).await.unwrap();
        assert_eq!(answers(&store).await, expected);
        store.close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn empty_store_is_moved() {
        let (folder, database) = (tempfile::tempdir().unwrap(), OwnDatabase::new().await);
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        store.close().await.unwrap();
        drop(store);
        let (moving, _) = begin(folder.path(), &database, MoveOptions::default()).await.unwrap();
        assert_eq!(moving.finish().await.unwrap(), MoveTotals::default());
        open(&database).await.unwrap().close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lost_devices_are_not_left_behind_silently() {
        use isobar_store::telemetry::LostDevices;
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let lost = LostDevices { after: device(3).target().key, up_to: device(5).target().key };
        store.note_lost_devices(lost).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let StoreError::Unavailable(why) = StoppedStore::open(folder.path()).err().unwrap() else { panic!("refused") };
        assert!(why.to_string().contains("isobar recover"), "{why}");
    }
}
