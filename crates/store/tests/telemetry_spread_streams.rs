//! Tests streams of events over several databases: one order for all processes, in which each event has its place.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "only what is given is used here")]
mod suite;
mod support;

mod streams {
    pub mod on_postgres {
        use std::collections::HashSet;
        use std::sync::Arc;
        use std::time::Duration;

        use isobar_model::access::CanWrite;
        use isobar_model::ids::{DeviceKey, DeviceRef, EventId};
        use isobar_power::{becomes, within_patience};
        use isobar_store::registry::Registry;
        use isobar_store::telemetry::postgres::PostgresOptions;
        use isobar_store::telemetry::spread::SpreadTelemetry;
        use isobar_store::telemetry::{Following, KnownStores, StreamMarks, StreamMessage, StreamPosition, Telemetry};

        use crate::suite::given::{self, Told, id};
        use crate::support::link::{Link, LinkState};
        use crate::support::{OwnDatabase, Raw};

        /// Databases: of the registry, and two of telemetry.
        struct Platform {
            registry: OwnDatabase,
            telemetry: [OwnDatabase; 2],
        }

        impl Platform {
            async fn new() -> Self {
                let registry = OwnDatabase::new().await;
                Self { registry, telemetry: [OwnDatabase::new().await, OwnDatabase::new().await] }
            }

            /// Opens the stores as one process of several does.
            async fn node(&self) -> (Arc<Registry>, SpreadTelemetry) {
                self.node_on(self.telemetry.each_ref().map(|database| database.address.clone())).await
            }

            /// Opens the stores with telemetry at these addresses.
            async fn node_on(&self, addresses: [String; 2]) -> (Arc<Registry>, SpreadTelemetry) {
                let registry = Arc::new(Registry::open(&self.registry.address).await.unwrap());
                let options = PostgresOptions { is_alone: false, needs_syncs: false, ..PostgresOptions::default() };
                let marks = Arc::clone(&registry) as _;
                let telemetry =
                    SpreadTelemetry::open(&addresses, options, &KnownStores::default(), marks).await.unwrap();
                (registry, telemetry)
            }

            async fn end(self, nodes: impl IntoIterator<Item = (Arc<Registry>, SpreadTelemetry)>) {
                for (registry, telemetry) in nodes {
                    telemetry.close().await.unwrap();
                    drop(telemetry);
                    registry.close().await.unwrap();
                }
                let [first, second] = self.telemetry;
                for database in [self.registry, first, second] {
                    database.remove().await;
                }
            }
        }

        /// Returns devices, half of them in each database.
        fn devices() -> [CanWrite<DeviceRef>; 4] {
            [(0, 1), (0, 2), (1, 3), (1, 4)]
                .map(|(database, dense)| given::device_with_key(DeviceKey::new(database, dense).0))
        }

        /// Posts an event; a follower gets it from memory if there is one.
        async fn post(store: &SpreadTelemetry, device: &CanWrite<DeviceRef>, millis: i64) -> EventId {
            let id = id(millis);
            let mut commit = given::storing(id, &[("log", "1")]);
            commit.streamed = store.is_followed().then(|| given::streamed(device, &commit));
            given::run(store, device, commit).await;
            id
        }

        /// A follower that reads from history what it has missed.
        struct Follower<'a> {
            store: &'a SpreadTelemetry,
            devices: &'a [CanWrite<DeviceRef>],
            after: StreamPosition,
            following: Following,
            told: Vec<Told>,
        }

        impl<'a> Follower<'a> {
            async fn begin(store: &'a SpreadTelemetry, devices: &'a [CanWrite<DeviceRef>]) -> Self {
                let following = store.follow_from(StreamPosition::first()).await.unwrap();
                Self { store, devices, after: following.from, following, told: Vec::new() }
            }

            async fn resume(store: &'a SpreadTelemetry, devices: &'a [CanWrite<DeviceRef>], id: EventId) -> Self {
                let after = store.history_position(id).await.unwrap();
                let following = store.follow_from(after).await.unwrap();
                assert!(following.from >= after);
                Self { store, devices, after, following, told: Vec::new() }
            }

            /// Follows until it has been told of this many events.
            async fn hears(mut self, count: usize) -> Vec<Told> {
                let hears = async {
                    while self.told.len() < count {
                        self.hear().await;
                    }
                };
                within_patience(&format!("{count} events"), hears).await;
                self.told
            }

            async fn hear(&mut self) {
                if self.after < self.following.from {
                    let devices: Vec<_> = self.devices.iter().map(CanWrite::reading).collect();
                    let until = self.following.from;
                    self.told.extend(given::between(self.store, &devices, self.after, until, 7).await);
                    self.after = until;
                    return;
                }
                match self.following.messages.recv().await {
                    Ok(StreamMessage::Event { position, event, .. }) if position > self.after => {
                        match event.upgrade() {
                            Some(event) => {
                                self.told.push(Told::live(position, &event));
                                self.after = position;
                            }
                            None => self.following = self.store.follow(),
                        }
                    }
                    Ok(StreamMessage::Event { .. }) => {}
                    _ => self.following = self.store.follow(),
                }
            }
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn all_processes_stream_in_one_order_and_resume_anywhere() {
            const EACH: i64 = 30;
            let platform = Platform::new().await;
            let (first, second) = (platform.node().await, platform.node().await);
            let (one, other, devices) = (&first.1, &second.1, devices());
            let all = devices.len() * EACH as usize;
            let (here, there) = (Follower::begin(one, &devices).await, Follower::begin(other, &devices).await);
            let writes = devices.iter().enumerate().map(|(index, device)| async move {
                for number in 0..EACH {
                    let node = if (index as i64 + number) % 3 == 0 { other } else { one };
                    post(node, device, 1_000 + number * 10 + index as i64).await;
                }
            });
            let (here, there, _) = futures::join!(here.hears(all), there.hears(all), futures::future::join_all(writes));
            assert_eq!(here, there);
            assert_eq!(here.iter().map(|told| told.id).collect::<HashSet<_>>().len(), all);
            for device in &devices {
                let own = here.iter().filter(|told| told.device == device.target().id).map(|told| told.id);
                assert!(own.is_sorted());
            }
            for (index, told) in here.iter().enumerate().step_by(11) {
                let node = if index % 2 == 0 { one } else { other };
                assert_eq!(node.history_position(told.id).await.unwrap(), told.position);
                let rest = Follower::resume(node, &devices, told.id).await.hears(all - index - 1).await;
                assert_eq!(rest, here[index + 1..]);
            }
            // One database alone has its part of the same order.
            let own: Vec<Told> =
                here[1..].iter().filter(|told| told.device == devices[2].target().id).cloned().collect();
            let resumed = Follower::resume(other, &devices[2..3], here[0].id).await;
            assert_eq!(resumed.hears(own.len()).await, own);
            let newer = one.history_position(id(900_000)).await.unwrap();
            assert!(newer > one.follow_from(newer).await.unwrap().from);
            platform.end([first, second]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn stream_begins_with_the_next_event_after_a_pause() {
            let platform = Platform::new().await;
            let (node, devices) = (platform.node().await, devices());
            let store = &node.1;
            for round in 0..3 {
                let early = post(store, &devices[round % 4], 10 + round as i64 * 10).await;
                let follower = Follower::begin(store, &devices).await;
                let late = post(store, &devices[3 - round], 11 + round as i64 * 10).await;
                assert_eq!(given::ids(&follower.hears(1).await), [late]);
                let resumed = Follower::resume(store, &devices, early).await;
                assert_eq!(given::ids(&resumed.hears(1).await), [late]);
                // Nobody follows for a while: what is followed in the databases ends too.
                becomes("nobody follows", async || !store.is_followed()).await;
            }
            platform.end([node]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn streams_of_others_go_on_while_a_database_is_away() {
            let platform = Platform::new().await;
            let (first, second) = (platform.node().await, platform.node().await);
            let (store, devices) = (&first.1, devices());
            let raw = Raw::open(&platform.telemetry[0].address).await;
            let away = platform.telemetry[1].address.rsplit('/').next().unwrap().to_owned();
            let follower = Follower::begin(store, &devices).await;
            let early = post(store, &devices[2], 5).await;
            raw.run(&format!("ALTER DATABASE {away} ALLOW_CONNECTIONS false")).await.unwrap();
            raw.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{away}'"))
                .await
                .unwrap();
            becomes("the database is away", async || store.database_healthy(1).await.is_err()).await;
            let mut sent = vec![early];
            for number in 0..5 {
                sent.push(post(store, &devices[0], 10 + number).await);
            }
            let heard = follower.hears(sent.len()).await;
            assert_eq!(given::ids(&heard).into_iter().collect::<HashSet<_>>(), sent.iter().copied().collect());
            raw.run(&format!("ALTER DATABASE {away} ALLOW_CONNECTIONS true")).await.unwrap();
            becomes("all databases are back", async || {
                let (here, there) = futures::join!(store.database_healthy(1), second.1.database_healthy(1));
                here.is_ok() && there.is_ok()
            })
            .await;
            let resumed = Follower::resume(&second.1, &devices, heard[0].id).await;
            let late = post(store, &devices[3], 30).await;
            let rest = resumed.hears(sent.len()).await;
            assert_eq!(rest[..rest.len() - 1], heard[1..]);
            assert_eq!(rest[rest.len() - 1].id, late);
            raw.close().await;
            platform.end([first, second]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn streams_of_others_go_on_where_a_database_is_away_that_another_node_has() {
            let platform = Platform::new().await;
            let link = Link::to(&platform.telemetry[1]).await;
            let first = platform.node().await;
            let second = platform.node_on([platform.telemetry[0].address.clone(), link.address.clone()]).await;
            let (one, other, devices) = (&first.1, &second.1, devices());
            let mut here = Follower::begin(one, &devices).await;
            let there = Follower::begin(other, &devices[..2]).await;
            let begun = there.after;
            link.set(LinkState::Closed);
            becomes("the database is away", async || other.is_away(1)).await;
            let mut own = Vec::new();
            for number in 0..4 {
                // The first node marks what the second one cannot have.
                for device in [&devices[2], &devices[number % 2]] {
                    let posted = post(one, device, 10 + here.told.len() as i64).await;
                    own.extend((device.target().key.database() == 0).then_some(posted));
                    let told = here.told.len();
                    while here.told.len() == told {
                        here.hear().await;
                    }
                }
            }
            let heard = there.hears(own.len()).await;
            assert_eq!(given::ids(&heard), own);
            link.set(LinkState::Open);
            becomes("the database is back", async || !other.is_away(1)).await;
            // Who follows all devices from the same place on is told in the same order there.
            let mut resumed = Follower::begin(other, &devices).await;
            resumed.after = begun;
            post(one, &devices[3], 30).await;
            while here.told.len() < 9 {
                here.hear().await;
            }
            assert_eq!(resumed.hears(9).await, here.told);
            drop(here);
            platform.end([first, second]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn stream_resumes_after_an_event_that_was_deleted() {
            let platform = Platform::new().await;
            let (node, devices) = (platform.node().await, devices());
            let store = &node.1;
            let mut follower = Follower::begin(store, &devices).await;
            let mut sent = Vec::new();
            for number in 0..9 {
                sent.push(post(store, &devices[number as usize % 3], 10 + number).await);
                while follower.told.len() < sent.len() {
                    follower.hear().await;
                }
            }
            drop(follower);
            // The last event heard was of a device that is deleted.
            store.forget(&devices[2]).await.unwrap();
            let left: Vec<EventId> =
                sent.iter().enumerate().filter(|(number, _)| number % 3 != 2).map(|(_, id)| *id).collect();
            let resumed = Follower::resume(store, &devices, sent[5]).await.hears(2).await;
            // Nothing after it is missing, whatever comes a second time.
            assert!(given::ids(&resumed).ends_with(&left[4..]), "{resumed:?}");
            platform.end([node]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn streams_go_on_after_a_dump_of_all_databases_was_brought_back() {
            let platform = Platform::new().await;
            let (node, devices) = (platform.node().await, devices());
            let mut follower = Follower::begin(&node.1, &devices).await;
            let early = post(&node.1, &devices[3], 10).await;
            while follower.told.is_empty() {
                follower.hear().await;
            }
            drop(follower);
            node.1.close().await.unwrap();
            node.0.close().await.unwrap();
            // Marks and events are of servers that had given more transactions than these.
            let databases = platform.telemetry.iter().map(|database| (database, "telemetry.event"));
            for (database, table) in databases.chain([(&platform.registry, "stream_places")]) {
                let raw = Raw::open(&database.address).await;
                raw.run(&format!("UPDATE {table} SET xact = xact + 1000000")).await.unwrap();
                raw.close().await;
            }
            let (first, second) = (platform.node().await, platform.node().await);
            let follower = Follower::resume(&second.1, &devices, early).await;
            let late = [post(&first.1, &devices[0], 20).await, post(&first.1, &devices[2], 21).await];
            let told = given::ids(&follower.hears(2).await);
            assert!(told.len() == 2 && late.iter().all(|late| told.contains(late)), "{told:?}");
            platform.end([first, second]).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn old_marks_are_forgotten_and_the_order_stays() {
            let platform = Platform::new().await;
            let (node, devices) = (platform.node().await, devices());
            let (registry, store) = (&node.0, &node.1);
            let follower = Follower::begin(store, &devices).await;
            let mut told = follower;
            for number in 0..6 {
                post(store, &devices[number as usize % 4], 10 + number).await;
                while told.told.len() <= number as usize {
                    told.hear().await;
                }
            }
            let before = registry.mark_at(u64::MAX).await.unwrap();
            registry.marks_forget(Duration::from_secs(3_600)).await.unwrap();
            assert!(registry.marks_after(0, 10).await.unwrap().len() > 3);
            // Marks are made in different milliseconds: each follows a read and a commit.
            becomes("all marks but the newest are forgotten", async || {
                registry.marks_forget(Duration::ZERO).await.unwrap();
                registry.marks_after(0, 10).await.unwrap().len() == 1
            })
            .await;
            assert_eq!(registry.mark_at(u64::MAX).await.unwrap(), before);
            let last = told.told.last().unwrap().id;
            let resumed = Follower::resume(store, &devices, last).await;
            let late = post(store, &devices[0], 50).await;
            assert_eq!(given::ids(&resumed.hears(1).await), [late]);
            platform.end([node]).await;
        }
    }
}
