//! Tests that the telemetry store over several databases of PostgreSQL keeps every promise of the port, and that one of them
//! that is away hurts no others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "telemetry_spread/away.rs"]
mod away;
#[path = "suite/telemetry/mod.rs"]
mod suite;
mod support;

use std::sync::Arc;
use std::time::Duration;

use isobar_model::ids::DeviceKey;
use isobar_power::{becomes, settled, within_patience};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;
use isobar_store::telemetry::postgres::{PostgresOptions, PostgresTelemetry};
use isobar_store::telemetry::spread::SpreadTelemetry;
use isobar_store::telemetry::{Commit, KnownStores, OutboxChange, Telemetry, Upkeep as _, ValueQuery};
use suite::given::{self, at};
use support::{OwnDatabase, Raw};

fn options() -> PostgresOptions {
    PostgresOptions {
        queue_max_events: suite::QUEUE_MAX,
        is_alone: false,
        needs_syncs: false,
        ..PostgresOptions::default()
    }
}

fn addresses(databases: &[&OwnDatabase]) -> Vec<String> {
    databases.iter().map(|database| database.address.clone()).collect()
}

async fn open(databases: &[&OwnDatabase], used: &[u16]) -> Result<SpreadTelemetry, StoreError> {
    open_list(&addresses(databases), used).await
}

/// Opens the store, with marks in a registry beside the first database.
async fn open_list(addresses: &[String], used: &[u16]) -> Result<SpreadTelemetry, StoreError> {
    open_known(addresses, &KnownStores::with_devices_in(used)).await
}

async fn open_known(addresses: &[String], known: &KnownStores) -> Result<SpreadTelemetry, StoreError> {
    let registry = Registry::open(&addresses[0]).await?;
    SpreadTelemetry::open(addresses, options(), known, Arc::new(registry)).await
}

async fn open_alone(database: &OwnDatabase, used: &[u16]) -> Result<PostgresTelemetry, StoreError> {
    PostgresTelemetry::open_for(&database.address, options(), &KnownStores::with_devices_in(used)).await
}

/// Returns the whole text of the error with which a store is refused.
fn text_of(refused: Result<SpreadTelemetry, StoreError>) -> String {
    let Err(error) = refused else { panic!("these databases are served together") };
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn two() -> (OwnDatabase, OwnDatabase) {
    (OwnDatabase::new().await, OwnDatabase::new().await)
}

/// Returns the whole text of the error with which these databases are refused.
async fn refusal(databases: &[&OwnDatabase], used: &[u16]) -> String {
    text_of(open(databases, used).await)
}

macro_rules! spread_scene {
    ($scene:ident) => { spread_scene!($scene in 2); };
    ($scene:ident in $databases:literal) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $scene() {
            given::DATABASES.set($databases);
            let (first, second) = two().await;
            let store = open(&[&first, &second], &[]).await.unwrap();
            suite::$scene(&store).await;
            store.close().await.unwrap();
            first.remove().await;
            second.remove().await;
        }
    };
}

macro_rules! on_spread {
    ($($scene:ident)*) => {
        pub mod on_postgres {
            use super::super::*;

            $(spread_scene!($scene);)*
        }
    };
}

mod scenes {
    use super::suite;

    suite::telemetry_scenes!(on_spread);
}

mod databases {
    pub mod on_postgres {
        use super::super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn order_of_the_list_does_not_matter() {
            let (first, second) = two().await;
            let (one, other) = (given::device_in(0), given::device_in(1));
            let store = open(&[&first, &second], &[]).await.unwrap();
            assert_eq!(store.numbers(), [0, 1]);
            given::store(&store, &one, 1, "log", "1").await;
            given::store(&store, &other, 1, "log", "2").await;
            store.close().await.unwrap();
            let store = open(&[&second, &first], &[0, 1]).await.unwrap();
            for (device, value) in [(&one, "1"), (&other, "2")] {
                let texts = given::texts(&store, device, "log", ValueQuery::default()).await;
                assert_eq!(texts, (vec![value.to_owned()], 1));
            }
            store.close().await.unwrap();
            // Each has one of the two.
            for database in [&first, &second] {
                let raw = Raw::open(&database.address).await;
                assert_eq!(raw.number("SELECT count(*) FROM telemetry.head").await, 1);
                raw.close().await;
            }
            first.remove().await;
            second.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn database_with_data_is_the_first_one() {
            let (empty, used) = two().await;
            let device = given::device_in(0);
            let alone = PostgresTelemetry::open(&used.address, options()).await.unwrap();
            given::store(&alone, &device, 1, "log", "1").await;
            alone.close().await.unwrap();
            // As an earlier version has left it.
            let raw = Raw::open(&used.address).await;
            raw.run("UPDATE telemetry.membership SET number = NULL, platform = NULL").await.unwrap();
            raw.close().await;
            let store = open(&[&empty, &used], &[0]).await.unwrap();
            let texts = given::texts(&store, &device, "log", ValueQuery::default()).await;
            assert_eq!(texts, (vec!["1".to_owned()], 1));
            // Numbers go on above those of both.
            assert!(store.outbox_number() > alone.outbox_number());
            store.close().await.unwrap();
            empty.remove().await;
            used.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn wrong_databases_are_refused() {
            let (first, second) = two().await;
            let (third, copy) = (OwnDatabase::new().await, OwnDatabase::new().await);
            let store = open(&[&first, &second], &[]).await.unwrap();
            given::store(&store, &given::device_in(1), 1, "log", "1").await;
            store.close().await.unwrap();
            let told = refusal(&[&first, &third], &[0, 1]).await;
            assert!(told.contains("the numbers 1") && told.contains("names 0"), "{told}");
            // The refused one has got no number.
            let told = refusal(&[&first, &first], &[]).await;
            assert!(told.contains("are the same database"), "{told}");
            let stranger = PostgresTelemetry::open(&copy.address, options()).await.unwrap();
            stranger.close().await.unwrap();
            let told = refusal(&[&first, &second, &copy], &[]).await;
            assert!(told.contains("different platforms"), "{told}");
            let raw = Raw::open(&copy.address).await;
            raw.run("UPDATE telemetry.membership SET number = NULL, platform = NULL").await.unwrap();
            raw.run(
                "INSERT INTO telemetry.head (device, seq, last_commit, device_events, cloud_events, device_order, cloud_order, \
                 queued) VALUES (7, 0, 0, 0, 0, '\\x00', '\\x00', 0)",
            )
            .await
            .unwrap();
            raw.close().await;
            let told = refusal(&[&first, &second, &copy], &[]).await;
            assert!(told.contains("must be empty"), "{told}");
            let store = open(&[&third, &first, &second], &[0, 1]).await.unwrap();
            assert_eq!(store.numbers(), [0, 1, 2]);
            store.close().await.unwrap();
            for database in [first, second, third, copy] {
                database.remove().await;
            }
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn databases_that_are_all_new_are_refused_where_there_are_devices() {
            let (first, second) = two().await;
            let alone = open_alone(&first, &[0]).await;
            assert!(alone.is_err_and(|error| format!("{error:?}").contains("AllNew")));
            let told = refusal(&[&first, &second], &[0]).await;
            assert!(told.contains("the registry has devices"), "{told}");
            // The refused ones have got no numbers, and nothing that makes the next start take them for others.
            let told = refusal(&[&second], &[0]).await;
            assert!(told.contains("the registry has devices"), "{told}");
            // Its devices have never sent anything, and an earlier version has noted no number.
            PostgresTelemetry::open(&second.address, options()).await.unwrap().close().await.unwrap();
            let raw = Raw::open(&second.address).await;
            raw.run("UPDATE telemetry.membership SET number = NULL, platform = NULL").await.unwrap();
            raw.close().await;
            let store = open(&[&first, &second], &[0]).await.unwrap();
            store.close().await.unwrap();
            let alone = open_alone(&second, &[0]).await.unwrap();
            assert_eq!(alone.database(), 0);
            alone.close().await.unwrap();
            let wrong = open_alone(&second, &[0, 1]).await;
            assert!(wrong.is_err_and(|error| format!("{error:?}").contains("Missing")));
            first.remove().await;
            second.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn database_that_is_not_noted_is_refused_unchanged() {
            let ((first, second), (third, other)) = (two().await, two().await);
            let served = async |databases: &[&OwnDatabase], known: &KnownStores| {
                let store = open_known(&addresses(databases), known).await.unwrap();
                store.close().await.unwrap();
                (store.numbers(), store.noted())
            };
            let (_, noted) = served(&[&first], &KnownStores::default()).await;
            let known = KnownStores { used: Vec::new(), noted: noted.clone() };
            let told = text_of(open_known(&addresses(&[&other]), &known).await);
            assert!(told.contains(&noted[0].identity) && told.contains(&noted[0].place), "{told}");
            assert!(told.contains("there is no telemetry store"), "{told}");
            let raw = Raw::open(&other.address).await;
            assert_eq!(raw.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'telemetry'").await, 0);
            raw.close().await;
            served(&[&other], &KnownStores::default()).await;
            let told = text_of(open_known(&addresses(&[&other, &second]), &known).await);
            assert!(told.contains("which has the identity"), "{told}");
            // One is added, and left out again: its number is not given to another.
            let (numbers, noted) = served(&[&first, &second], &known).await;
            assert_eq!(numbers, [0, 1]);
            let known = KnownStores { used: Vec::new(), noted };
            assert_eq!(served(&[&third, &first], &known).await.0, [0, 2]);
            for database in [first, second, third, other] {
                database.remove().await;
            }
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn processes_that_start_at_once_agree() {
            let (first, second) = two().await;
            let (forwards, backwards) = ([&first, &second], [&second, &first]);
            let opened = futures::future::try_join_all((0..6).map(|index| {
                let list = if index % 2 == 0 { forwards } else { backwards };
                async move { open(&list, &[]).await }
            }));
            let stores = opened.await.unwrap();
            let (one, other) = (given::device_in(0), given::device_in(1));
            for (step, store) in stores.iter().enumerate() {
                given::store(store, &one, step as i64, "log", "1").await;
                given::store(store, &other, step as i64, "log", "1").await;
            }
            for store in &stores {
                for device in [&one, &other] {
                    assert_eq!(given::texts(store, device, "log", ValueQuery::default()).await.1, 6);
                }
            }
            let mut numbers: Vec<u64> = stores.iter().map(|store| store.outbox_number() >> 40).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 6, "each process has numbers of its own");
            for store in stores {
                store.close().await.unwrap();
            }
            first.remove().await;
            second.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn device_of_another_database_is_refused_by_a_single_one() {
            let database = OwnDatabase::new().await;
            let store = PostgresTelemetry::open(&database.address, options()).await.unwrap();
            let device = given::device_in(1);
            assert!(store.lock_now(&device).is_err() && store.lock(&device).await.is_err());
            assert!(
                store.series(&device.reading()).await.is_err() && store.last(&device.reading(), "log").await.is_err()
            );
            store.close().await.unwrap();
            database.remove().await;
        }
    }
}
