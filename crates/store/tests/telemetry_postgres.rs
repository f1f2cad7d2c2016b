//! Tests that the telemetry store on PostgreSQL keeps every promise of the port.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/mod.rs"]
mod suite;
mod support;

use isobar_model::access::CanWrite;
use isobar_model::ids::{DeviceRef, EventId};
use isobar_store::error::StoreError;
use isobar_store::telemetry::postgres::{PostgresOptions, PostgresTelemetry};
use isobar_store::telemetry::{Commit, Memory, StreamMessage, Telemetry, ValueQuery};
use suite::contended::Contended;
use suite::given::{self, at, id};
use support::{OwnDatabase, Raw};

/// Opens the store of a scene, in which the states of devices may take this many bytes of memory.
async fn of_a_scene(database: &OwnDatabase, device_bytes: usize) -> PostgresTelemetry {
    let options =
        PostgresOptions { queue_max_events: suite::QUEUE_MAX, device_bytes, is_alone: false, needs_syncs: false };
    PostgresTelemetry::open(&database.address, options).await.unwrap()
}

macro_rules! on_postgres {
    ($($scene:ident)*) => {
        mod on_postgres {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $scene() {
                let database = OwnDatabase::new().await;
                let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
                suite::$scene(&store).await;
                store.close().await.unwrap();
                database.remove().await;
            })*
        }
    };
}

macro_rules! without_room_in_memory {
    ($($scene:ident)*) => {
        mod without_room_in_memory {
            pub mod on_postgres {
                use super::super::*;

                $(#[tokio::test(flavor = "multi_thread")]
                async fn $scene() {
                    let database = OwnDatabase::new().await;
                    let store = of_a_scene(&database, 0).await;
                    suite::$scene(&store).await;
                    store.close().await.unwrap();
                    database.remove().await;
                })*
            }
        }
    };
}

macro_rules! contended {
    ($($scene:ident)*) => {
        mod contended {
            pub mod on_postgres {
                use super::super::*;

                $(#[tokio::test(flavor = "multi_thread")]
                async fn $scene() {
                    let database = OwnDatabase::new().await;
                    let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
                    let store = std::sync::Arc::new(store);
                    suite::$scene(&Contended::new(store.clone(), 1, 30)).await;
                    store.close().await.unwrap();
                    database.remove().await;
                })*
            }
        }
    };
}

suite::telemetry_scenes!(contended);
suite::telemetry_scenes!(on_postgres);
suite::telemetry_scenes!(without_room_in_memory);

mod conflicts {
    pub mod on_postgres {
        use super::super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn endless_conflicts_end_after_a_bounded_number_of_turns() {
            let database = OwnDatabase::new().await;
            let inner = std::sync::Arc::new(of_a_scene(&database, PostgresOptions::default().device_bytes).await);
            let (device, store) = (given::device(), Contended::new(inner.clone(), 1, 100));
            let ran = store.run(&device, None, at(0), &mut |_| given::storing(id(1), &[("log", "1")])).await;
            assert!(matches!(ran, Err(StoreError::Conflict)) && store.conflicts() > 1, "{ran:?}");
            store.set_share(0);
            given::store(&store, &device, 2, "log", "2").await;
            assert_eq!(store.series(&device.reading()).await.unwrap()[0].count, 1);
            inner.close().await.unwrap();
            database.remove().await;
        }
    }
}

/// Runs a count to this number on a device, in as many runs at once, each on the next of these stores.
async fn count_to(
    stores: &[&dyn Telemetry],
    device: &isobar_model::access::CanWrite<isobar_model::ids::DeviceRef>,
    runs: u64,
) {
    let runs = (0..runs).map(async |number: u64| {
        let store = stores[number as usize % stores.len()];
        let mut work = |memory: &dyn Memory| {
            let before = memory.state("n").map_or(0, |state| u64::from_be_bytes(state[..].try_into().unwrap()));
            let states = vec![("n".into(), (before + 1).to_be_bytes().to_vec().into())];
            let event = given::sending(id(before as i64), "out", &before.to_string(), None);
            Commit { states, queue: event.queue, ..given::storing(id(before as i64), &[("log", &before.to_string())]) }
        };
        while let Err(error) = store.run(device, None, at(0), &mut work).await {
            assert!(matches!(error, StoreError::Conflict), "{error:?}");
        }
    });
    futures::future::join_all(runs).await;
}

/// Checks that a device counted to this number: each run is there once, and saw what the one before it left.
async fn has_counted_to(
    store: &dyn Telemetry,
    device: &isobar_model::access::CanWrite<isobar_model::ids::DeviceRef>,
    count: u64,
) {
    let query = ValueQuery { page: given::page(1, 1_000), ..ValueQuery::default() };
    let counted = (0..count).rev().map(|number| number.to_string()).collect();
    assert_eq!(given::texts(store, device, "log", query).await, (counted, count));
    assert_eq!(given::history(store, &device.reading()).await.total, count);
}

mod two_nodes {
    pub mod on_postgres {
        use super::super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn runs_on_both_nodes_see_each_other() {
            const RUNS: u64 = 60;
            let database = OwnDatabase::new().await;
            let first = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let second = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let devices: Vec<_> = (0..3).map(|_| given::device()).collect();
            let stores: [&dyn Telemetry; 2] = [&first, &second];
            let counts = devices.iter().map(|device| count_to(&stores, device, RUNS));
            futures::future::join_all(counts).await;
            for device in &devices {
                for store in [&first, &second] {
                    has_counted_to(store, device, RUNS).await;
                }
                // Each queued event is taken once.
                let takes = (0..RUNS).map(async |number| {
                    let store = if number % 2 == 0 { &first } else { &second };
                    store.queue_take(device, given::queued(1, 0)).await
                });
                let taken = futures::future::join_all(takes).await;
                let mut taken: Vec<_> = taken.into_iter().flat_map(Result::unwrap).map(|event| event.id).collect();
                let all = taken.len();
                taken.sort_unstable();
                taken.dedup();
                assert_eq!((taken.len(), all), (RUNS as usize, RUNS as usize));
            }
            for store in [first, second] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn stream_refers_to_history_for_events_of_the_other_node() {
            let database = OwnDatabase::new().await;
            let first = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let second = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let device = given::device();
            let mut following = second.follow();
            given::store(&first, &device, 1, "log", "1").await;
            assert!(matches!(following.messages.recv().await, Ok(StreamMessage::Gap)));
            let until = second.follow().from;
            let found = given::between(&second, &[device.reading()], following.from, until, 10).await;
            assert_eq!(found.len(), 1);
            let position = second.history_position(found[0].id).await.unwrap();
            assert_eq!((position, first.history_position(found[0].id).await.unwrap()), (found[0].position, position));
            for store in [first, second] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn stream_that_begins_lacks_no_event_that_is_under_way() {
            let database = OwnDatabase::new().await;
            let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let (device, other) = (given::device(), given::device());
            given::store(&store, &other, 1, "log", "1").await;
            let other_process = Raw::open(&database.address).await;
            let copy = format!(
                "INSERT INTO telemetry.event (device, kind, n, ord, id, element, payload, item) \
                 SELECT device, kind, n + 1, set_byte(ord, 15, get_byte(ord, 15) # 1), NULL, element, payload, 0 FROM telemetry.event WHERE device = {}",
                other.target().key.0
            );
            other_process.run(&format!("BEGIN; {copy}")).await.unwrap();
            // A later transaction of this process ends before.
            post(&store, &device, 2).await;
            let mut following = given::follow(&store).await;
            other_process.run("COMMIT").await.unwrap();
            assert!(matches!(following.messages.recv().await, Ok(StreamMessage::Gap)));
            let until = given::follow(&store).await.from;
            let devices = [device.reading(), other.reading()];
            let found = given::between(&store, &devices, following.from, until, 10).await;
            assert_eq!(found.iter().filter(|event| event.device == other.target().id).count(), 1);
            // One that was acknowledged before is not sent.
            post(&store, &device, 3).await;
            let begun = given::follow(&store).await.from;
            assert!(given::between(&store, &devices, begun, begun, 10).await.is_empty());
            let newest = given::history(&store, &device.reading()).await.items.iter().map(|event| event.id).max();
            assert!(store.history_position(newest.unwrap()).await.unwrap() <= begun);
            other_process.close().await;
            store.close().await.unwrap();
            database.remove().await;
        }

        /// Posts an event, prepared for followers.
        async fn post(store: &PostgresTelemetry, device: &CanWrite<DeviceRef>, millis: i64) -> EventId {
            let event = given::id(millis);
            let mut commit = given::storing(event, &[("log", "1")]);
            commit.streamed = Some(given::streamed(device, &commit));
            given::run(store, device, commit).await;
            event
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn streams_go_on_after_a_dump_was_brought_back() {
            let database = OwnDatabase::new().await;
            let device = given::device();
            let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let before =
                [post(&store, &device, 1).await, post(&store, &device, 2).await, post(&store, &device, 3).await];
            store.close().await.unwrap();
            // The server that the dump is of had given more transactions than this one.
            let raw = Raw::open(&database.address).await;
            raw.run("UPDATE telemetry.event SET xact = xact + 1000000").await.unwrap();
            for round in 0..2 {
                let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
                let mut following = given::follow(&store).await;
                let event = post(&store, &device, 10 + round).await;
                let Ok(StreamMessage::Event { position, event: told, .. }) = following.messages.recv().await else {
                    panic!("it is not sent from memory")
                };
                assert_eq!(told.upgrade().map(|told| told.id), Some(event));
                assert_eq!(store.history_position(event).await.unwrap(), position);
                let after = store.history_position(before[1]).await.unwrap();
                let until = given::follow(&store).await.from;
                let found = given::ids(&given::between(&store, &[device.reading()], after, until, 10).await);
                assert_eq!((found[0], *found.last().unwrap(), found.len()), (before[2], event, 2 + round as usize));
                store.close().await.unwrap();
            }
            raw.close().await;
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn runs_are_stored_once_while_connections_end() {
            const RUNS: u64 = 100;
            let database = OwnDatabase::new().await;
            let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let (raw, device) = (Raw::open(&database.address).await, given::device());
            let ends = async {
                for ended in 1..=5 {
                    // Each time after some runs more, and while others are written.
                    while raw.number("SELECT count(*) FROM telemetry.value").await < ended * 10 {
                        tokio::task::yield_now().await;
                    }
                    // The connection of groups holds a lock for its process.
                    let end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = \
                               (SELECT oid FROM pg_database WHERE datname = current_database())";
                    raw.run(end).await.unwrap();
                }
            };
            let stores: [&dyn Telemetry; 1] = [&store];
            futures::join!(ends, count_to(&stores, &device, RUNS));
            has_counted_to(&store, &device, RUNS).await;
            raw.close().await;
            store.close().await.unwrap();
            database.remove().await;
        }
    }
}

mod upkeep {
    pub mod on_postgres {
        use isobar_store::telemetry::Upkeep as _;
        use isobar_store::telemetry::postgres::examine_database;

        use super::super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn server_that_may_lose_writes_is_refused() {
            let database = OwnDatabase::new().await;
            let raw = Raw::open(&database.address).await;
            let unsafe_settings =
                "SELECT count(*) FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'";
            let is_unsafe = raw.number(unsafe_settings).await > 0;
            let options = PostgresOptions { is_alone: false, ..PostgresOptions::default() };
            match PostgresTelemetry::open(&database.address, options).await {
                Ok(store) => {
                    assert!(!is_unsafe);
                    store.close().await.unwrap();
                }
                Err(error) => {
                    let why = error.to_string();
                    assert!(is_unsafe && why.contains("= off"), "{why}");
                }
            }
            raw.close().await;
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn database_is_served_by_one_process_that_is_alone() {
            let database = OwnDatabase::new().await;
            let options = PostgresOptions { needs_syncs: false, ..PostgresOptions::default() };
            let first = PostgresTelemetry::open(&database.address, options.clone()).await.unwrap();
            let Err(error) = PostgresTelemetry::open(&database.address, options.clone()).await else {
                panic!("a second process serves it");
            };
            let why = error.to_string();
            assert!(why.contains("another process"), "{why}");
            // The first has not noticed anything.
            let device = given::device();
            given::store(&first, &device, 1, "log", "1").await;
            first.close().await.unwrap();
            let next = PostgresTelemetry::open(&database.address, options).await.unwrap();
            assert_eq!(given::history(&next, &device.reading()).await.total, 1);
            next.close().await.unwrap();
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn examination_counts_rows_and_finds_those_that_are_missing() {
            let database = OwnDatabase::new().await;
            let store = of_a_scene(&database, PostgresOptions::default().device_bytes).await;
            let (device, other) = (given::device_with_key(7), given::device_with_key(9));
            for millis in 1..=5 {
                given::store(&store, &device, millis, "log", "1").await;
                given::store(&store, &other, millis, "log", "2").await;
            }
            given::run(&store, &other, given::sending(id(6), "out", "6", None)).await;
            let sound = store.examine().await.unwrap();
            assert_eq!((sound.events, sound.values, sound.devices.len()), (11, 10, 2));
            assert_eq!(sound.faults, [""; 0]);
            store.close().await.unwrap();

            let raw = Raw::open(&database.address).await;
            for damage in [
                "DELETE FROM telemetry.event WHERE device = 7 AND n = 2",
                "DELETE FROM telemetry.event WHERE device = 9 AND kind = 0 AND n = 4",
                "DELETE FROM telemetry.value WHERE n = 3 AND series = (SELECT series FROM telemetry.last WHERE device = 7)",
                "UPDATE telemetry.head SET queued = 0 WHERE device = 9",
                "INSERT INTO telemetry.value SELECT 1, n, ord, id, payload FROM telemetry.value LIMIT 1",
                "INSERT INTO telemetry.state VALUES (11, 'a', 'b')",
            ] {
                raw.run(damage).await.unwrap();
            }
            raw.close().await;
            let found = examine_database(&database.address).await.unwrap();
            let faults = found.faults.join("\n");
            for fault in [
                "device 7: its history has 4 of 5 events",
                "device 9: its history ends before event 4, and should before event 5",
                "has 4 of 5 values",
                "series 1 has values, but no device has the series",
                "device 9: its queue has event 0, and the next one would be 0",
                "device 11: it has values or states, but no head",
            ] {
                assert!(faults.contains(fault), "{fault}: {faults}");
            }
            assert_eq!(found.faults_found, 6, "{faults}");
            database.remove().await;
        }
    }
}
