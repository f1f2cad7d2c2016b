//! Tests what processes know of each other that share the telemetry store on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "only what is given is used here")]
mod suite;
mod support;

mod nodes {
    pub mod on_postgres {
        use bytes::Bytes;
        use isobar_power::{becomes, within_patience};
        use isobar_store::error::StoreError;
        use isobar_store::telemetry::postgres::{PostgresOptions, PostgresTelemetry};
        use isobar_store::telemetry::{Commit, OutboxChange, SharedTelemetry, Standing, Telemetry};

        use crate::suite::given::{self, at, id};
        use crate::support::link::{Link, LinkState};
        use crate::support::{OwnDatabase, Pair, Raw};

        /// Opens the store as one process of several does.
        async fn node(database: &OwnDatabase) -> PostgresTelemetry {
            node_at(&database.address).await
        }

        async fn node_at(address: &str) -> PostgresTelemetry {
            let options = PostgresOptions { is_alone: false, needs_syncs: false, ..PostgresOptions::default() };
            PostgresTelemetry::open(address, options).await.unwrap()
        }

        fn shared(store: &PostgresTelemetry) -> &dyn SharedTelemetry {
            store.shared().unwrap()
        }

        fn put(number: u64, work: &'static str) -> Commit {
            let outbox = vec![OutboxChange::Put { number, work: Bytes::from_static(work.as_bytes()) }];
            Commit { outbox, ..Commit::default() }
        }

        /// Commits the run of a turn that began earlier.
        async fn commit(mut turn: isobar_store::telemetry::Turn, commit: Commit) -> Result<(), StoreError> {
            turn.commit(commit)?.durable.wait().await
        }

        /// Reads at the same time: as many as there are connections that read.
        const READS: usize = 8;

        #[tokio::test(flavor = "multi_thread")]
        async fn connection_made_to_a_standby_is_never_read() {
            let pair = tokio::task::spawn_blocking(Pair::start).await.unwrap();
            let link = Link::to_address(&pair.primary).await;
            let (own, other) = (node_at(&link.address).await, node_at(&pair.primary).await);
            let device = given::device();
            let sends = |millis| given::sending(id(millis), "command", "1", None);
            given::run(&other, &device, sends(1)).await;
            let keys = [device.target().key];
            let ends = || futures::future::join_all((0..READS).map(|_| shared(&own).queue_ends(&keys)));
            let before = ends().await;
            assert!(before.iter().all(Result::is_ok), "{before:?}");
            pair.freeze_standby().await;
            link.lead_all_to(&pair.standby);
            let changes_places = async {
                becomes("connections are made to the standby", async || link.carried() >= READS).await;
                given::run(&other, &device, sends(2)).await;
                // Connections that were made meanwhile stay where they are.
                link.lead_to(&pair.primary);
            };
            within_patience("the reads", async { futures::join!(ends(), changes_places) }).await;
            let newest = shared(&other).queue_ends(&keys).await.unwrap();
            assert_ne!(*before[0].as_ref().unwrap(), newest);
            becomes("it is read again", async || shared(&own).queue_ends(&keys).await.is_ok()).await;
            for read in ends().await {
                assert_eq!(read.unwrap(), newest);
            }
            own.close().await.unwrap();
            other.close().await.unwrap();
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn database_without_room_is_unhealthy_until_it_has_some() {
            let database = OwnDatabase::new().await;
            let (store, raw) = (node(&database).await, Raw::open(&database.address).await);
            let device = given::device();
            given::store(&store, &device, 1, "log", "1").await;
            store.healthy().await.unwrap();
            // What PostgreSQL answers when a file cannot grow. Rows that are changed where they stand are changed all the same.
            raw.run(
                "CREATE FUNCTION no_room() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file'; END $$; \
                 CREATE FUNCTION no_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file'; END $$; \
                 CREATE TRIGGER no_row BEFORE INSERT ON telemetry.event FOR EACH ROW EXECUTE FUNCTION no_row(); \
                 CREATE EVENT TRIGGER no_room ON ddl_command_start EXECUTE FUNCTION no_room()",
            )
            .await
            .unwrap();
            let late = commit(store.lock(&device).await.unwrap(), given::storing(id(2), &[("log", "2")])).await;
            assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
            for _ in 0..2 {
                assert!(store.healthy().await.unwrap_err().to_string().contains("could not extend file"));
                // What needs no room proves nothing.
                commit(store.lock(&device).await.unwrap(), put(store.outbox_number(), "work")).await.unwrap();
            }
            raw.run("DROP EVENT TRIGGER no_room; DROP TRIGGER no_row ON telemetry.event").await.unwrap();
            store.healthy().await.unwrap();
            given::store(&store, &device, 3, "log", "3").await;
            raw.close().await;
            store.close().await.unwrap();
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn forgotten_prepared_transactions_stop_no_stream() {
            let (database, other) = (OwnDatabase::new().await, OwnDatabase::new().await);
            let (own, raw) = (node(&database).await, Raw::open(&database.address).await);
            let (writer, elsewhere) = (node(&database).await, Raw::open(&other.address).await);
            let prefix = std::process::id();
            let device = given::device();
            for (connection, name) in [(&elsewhere, "elsewhere"), (&raw, "here")] {
                let prepare = format!("BEGIN; CREATE TABLE forgotten (); PREPARE TRANSACTION '{name}-{prefix}'");
                connection.run(&prepare).await.unwrap();
            }
            let mut follows = given::follow(&own).await;
            given::store(&writer, &device, 1, "log", "1").await;
            within_patience("the event", follows.messages.recv()).await.unwrap();
            // One that may have written events has its place before later ones.
            let prepare = format!(
                "BEGIN; DELETE FROM telemetry.event WHERE false; CREATE TABLE writes (); PREPARE TRANSACTION 'writes-{prefix}'"
            );
            raw.run(&prepare).await.unwrap();
            given::store(&writer, &device, 2, "log", "2").await;
            becomes("it is told that streams stand", async || !own.stalled_streams().is_empty()).await;
            assert!(follows.messages.is_empty());
            raw.run(&format!("ROLLBACK PREPARED 'writes-{prefix}'")).await.unwrap();
            within_patience("the event", follows.messages.recv()).await.unwrap();
            becomes("no stream stands", async || own.stalled_streams().is_empty()).await;
            raw.run(&format!("ROLLBACK PREPARED 'here-{prefix}'")).await.unwrap();
            elsewhere.run(&format!("ROLLBACK PREPARED 'elsewhere-{prefix}'")).await.unwrap();
            for store in [own, writer] {
                store.close().await.unwrap();
            }
            raw.close().await;
            elsewhere.close().await;
            database.remove().await;
            other.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn device_deleted_at_one_node_is_not_written_by_another() {
            let database = OwnDatabase::new().await;
            let (first, second) = (node(&database).await, node(&database).await);
            for is_known in [true, false] {
                let device = given::device();
                if is_known {
                    given::store(&first, &device, 1, "log", "1").await;
                }
                let turn = first.lock(&device).await.unwrap();
                let before = turn.memory().revision();
                second.forget(&device).await.unwrap();
                let late = commit(turn, given::storing(id(2), &[("log", "2")])).await;
                assert!(matches!(late, Err(StoreError::Conflict)), "{late:?}");
                // A run by what was read of the device before is not made.
                assert!(first.lock(&device).await.unwrap().memory().revision() > before);
                assert_eq!(given::history(&first, &device.reading()).await.total, 0);
                assert!(first.series(&device.reading()).await.unwrap().is_empty());
            }
            for store in [first, second] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        // One thread: both commits are in the line before it is looked at, and make one group.
        #[tokio::test]
        async fn commits_of_unknown_outcome_are_called_so() {
            let database = OwnDatabase::new().await;
            let link = Link::to(&database).await;
            let (first, second) = (node_at(&link.address).await, node(&database).await);
            let (devices, raw) = ([given::device(), given::device()], Raw::open(&database.address).await);
            for device in &devices {
                given::store(&first, device, 1, "log", "1").await;
            }
            let mut turns = [first.lock(&devices[0]).await.unwrap(), first.lock(&devices[1]).await.unwrap()];
            // The group is written while nobody hears of it, and then others commit to its devices.
            raw.run("BEGIN; LOCK TABLE telemetry.head").await.unwrap();
            let commits =
                turns.each_mut().map(|turn| turn.commit(given::storing(id(2), &[("log", "2")])).unwrap().durable);
            let waits =
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
            becomes("the group is under way", async || raw.number(waits).await == 1).await;
            link.set(LinkState::Silent);
            raw.run("COMMIT").await.unwrap();
            for device in &devices {
                becomes("the group is written", async || given::history(&second, &device.reading()).await.total == 2)
                    .await;
                given::store(&second, device, 3, "log", "3").await;
            }
            let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()";
            let before = raw.number(open).await;
            link.set(LinkState::Closed);
            becomes("connections have ended", async || raw.number(open).await < before).await;
            link.set(LinkState::Open);
            for mut commit in commits {
                let outcome = commit.wait().await;
                assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
            }
            drop(turns);
            raw.close().await;
            for store in [first, second] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn standing_tells_revision_and_oldest_pending_work() {
            let database = OwnDatabase::new().await;
            let (first, second) = (node(&database).await, node(&database).await);
            let (device, quiet) = (given::device(), given::device());
            let keys = [quiet.target().key, device.target().key];
            let standing = async || {
                let [quiet, standing] = shared(&second).standings(&keys).await.unwrap().try_into().unwrap();
                assert_eq!(quiet, Some(Standing::default()));
                standing.unwrap()
            };
            assert_eq!(standing().await, Standing::default());
            given::store(&first, &device, 1, "log", "1").await;
            assert_eq!(standing().await, Standing { revision: 0, pending: None });
            given::run(&first, &device, Commit { touches: true, ..Commit::default() }).await;
            let (number, other) = (first.outbox_number(), first.outbox_number());
            given::run(&first, &device, put(number, "a")).await;
            assert_eq!(standing().await, Standing { revision: 2, pending: Some(2) });
            // A later part of an entry leaves it as old as it is.
            given::run(&first, &device, put(number, "a and b")).await;
            given::run(&first, &device, put(other, "c")).await;
            assert_eq!(standing().await, Standing { revision: 4, pending: Some(2) });
            first.outbox_park(keys[1], number, "refused").await.unwrap();
            assert_eq!(standing().await, Standing { revision: 4, pending: Some(4) });
            first.outbox_done(&[(keys[1], other)]).await.unwrap();
            assert_eq!(standing().await, Standing { revision: 4, pending: None });
            for store in [first, second] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn turn_that_was_forgotten_reads_the_revision_anew() {
            let database = OwnDatabase::new().await;
            let (first, second) = (node(&database).await, node(&database).await);
            let device = given::device();
            given::store(&first, &device, 1, "log", "1").await;
            given::run(&second, &device, Commit { touches: true, ..Commit::default() }).await;
            let mut stale = first.lock(&device).await.unwrap();
            assert_eq!(stale.memory().revision(), 0);
            stale.forget();
            drop(stale);
            let fresh = first.lock(&device).await.unwrap();
            assert_eq!((fresh.memory().revision(), fresh.memory().heard()), (1, Some(id(1).minted_at())));
            drop(fresh);
            for store in [first, second] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn work_of_a_process_that_is_gone_is_taken_by_one_other() {
            let database = OwnDatabase::new().await;
            let (first, second) = (node(&database).await, node(&database).await);
            let (left, own) = (given::device(), given::device());
            let number = first.outbox_number();
            given::run(&first, &left, put(number, "left")).await;
            let own_number = second.outbox_number();
            given::run(&second, &own, put(own_number, "own")).await;
            assert_eq!(shared(&second).left_work(9).await.unwrap(), []);
            let raw = Raw::open(&database.address).await;
            // Killed: it does not renew its row any more.
            first.close().await.unwrap();
            assert_eq!(shared(&second).left_work(9).await.unwrap(), [left.target().key]);
            let third = node(&database).await;
            assert_eq!(shared(&third).left_work(9).await.unwrap(), [left.target().key]);
            let taken = shared(&third).outbox_take(left.target().key, 1).await.unwrap();
            assert_eq!(
                taken.iter().map(|entry| (entry.number, &*entry.work)).collect::<Vec<_>>(),
                [(number, &b"left"[..])]
            );
            for store in [&second, &third] {
                assert_eq!(shared(store).left_work(9).await.unwrap(), []);
                assert_eq!(shared(store).outbox_of(left.target().key).await.unwrap().len(), 1);
            }
            // Work that waits for long may have been lost from memory: its own process looks.
            raw.run("UPDATE telemetry.outbox SET came = came - interval '1 minute'").await.unwrap();
            assert_eq!(shared(&second).left_work(9).await.unwrap(), [own.target().key]);
            assert_eq!(shared(&third).left_work(9).await.unwrap(), [left.target().key]);
            // It knows of what it has parked itself, and work of others comes first.
            let more = given::device();
            given::run(&second, &more, put(second.outbox_number(), "more")).await;
            second.outbox_park(own.target().key, own_number, "refused").await.unwrap();
            raw.run("UPDATE telemetry.outbox SET came = came - interval '1 minute'").await.unwrap();
            assert_eq!(shared(&second).left_work(9).await.unwrap(), [more.target().key]);
            third.close().await.unwrap();
            for (limit, found) in [(1, vec![left.target().key]), (9, vec![left.target().key, more.target().key])] {
                assert_eq!(shared(&second).left_work(limit).await.unwrap(), found);
            }
            raw.close().await;
            second.close().await.unwrap();
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn work_that_two_take_over_is_done_by_the_last() {
            let database = OwnDatabase::new().await;
            let (first, second, third) = (node(&database).await, node(&database).await, node(&database).await);
            let (device, number) = (given::device(), first.outbox_number());
            let key = device.target().key;
            given::run(&first, &device, put(number, "left")).await;
            let revises = async |node| given::run(node, &device, Commit { touches: true, ..Commit::default() }).await;
            let taken = async |node, revision| shared(node).outbox_take(key, revision).await.unwrap().len();
            let pending = async || shared(&second).standing(key).await.unwrap().pending;
            revises(&second).await;
            revises(&third).await;
            assert_eq!((taken(&second, 2).await, taken(&third, 3).await), (0, 1));
            // Who took it earlier removes nothing: runs wait until the last has done it.
            revises(&second).await;
            assert_eq!(taken(&second, 4).await, 1);
            third.outbox_done(&[(key, number)]).await.unwrap();
            assert_eq!(pending().await, Some(1));
            second.outbox_done(&[(key, number)]).await.unwrap();
            assert_eq!(pending().await, None);
            for store in [first, second, third] {
                store.close().await.unwrap();
            }
            database.remove().await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn deleted_devices_leave_nothing_after_a_day() {
            let database = OwnDatabase::new().await;
            let store = node(&database).await;
            let (old, newer) = (given::device(), given::device());
            for device in [&old, &newer] {
                given::store(&store, device, 1, "log", "1").await;
                store.forget(device).await.unwrap();
            }
            let raw = Raw::open(&database.address).await;
            let age = format!(
                "UPDATE telemetry.head SET forgotten_at = forgotten_at - interval '25 hours' WHERE device = {}",
                old.target().key.0
            );
            raw.run(&age).await.unwrap();
            store.retain(at(2), std::time::Duration::ZERO, 1).await.unwrap();
            assert_eq!(raw.number("SELECT count(*) FROM telemetry.head").await, 1);
            raw.close().await;
            store.close().await.unwrap();
            database.remove().await;
        }
    }
}
