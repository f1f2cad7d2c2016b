//! Tests in which telemetry database a registry places new devices.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends")]

#[path = "suite/registry/given.rs"]
mod given;
mod support;

mod places {
    pub mod on_postgres {
        use std::collections::BTreeMap;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};

        use isobar_model::device::Device;
        use isobar_model::ids::{DeviceKey, OrganizationId, ProjectId};
        use isobar_store::registry::{NewDevices, Registry};

        use crate::given::{self, at, fetched, may};
        use crate::support::OwnDatabase;

        async fn registry() -> (OwnDatabase, Registry, OrganizationId, ProjectId) {
            let database = OwnDatabase::with_schema(async |address| {
                Registry::open(address).await.unwrap().close().await.unwrap();
            })
            .await;
            let registry = Registry::open(&database.address).await.unwrap();
            let home = given::organization(&registry, None, "Home").await.id;
            let project = given::project(&registry, home, "p").await.id;
            (database, registry, home, project)
        }

        async fn over(database: OwnDatabase, registry: Registry) {
            assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
            registry.close().await.unwrap();
            database.remove().await;
        }

        /// Counts devices by the databases in their numbers; no two have the same dense number.
        fn counted(devices: &[Device]) -> BTreeMap<u16, usize> {
            let mut dense: Vec<u64> = devices.iter().map(|device| device.key.dense()).collect();
            dense.sort_unstable();
            dense.dedup();
            assert_eq!(dense.len(), devices.len());
            let mut counts = BTreeMap::new();
            devices.iter().for_each(|device| *counts.entry(device.key.database()).or_default() += 1);
            counts
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn added_database_gets_new_devices_until_all_are_even() {
            let (database, registry, home, project) = registry().await;
            let make = async |count: usize| {
                let mut made = Vec::new();
                for number in 0..count {
                    made.push(given::device(&registry, home, project, &number.to_string()).await);
                }
                made
            };
            assert!(registry.device_databases().await.unwrap().is_empty());
            let mut all = make(4).await;
            assert_eq!(counted(&all), BTreeMap::from([(0, 4)]));
            registry.place_devices_in(&[0, 1, 63], None);
            all.extend(make(8).await);
            assert_eq!(counted(&all), BTreeMap::from([(0, 4), (1, 4), (63, 4)]));
            all.extend(make(3).await);
            assert_eq!(counted(&all), BTreeMap::from([(0, 5), (1, 5), (63, 5)]));
            assert_eq!(registry.devices_by_database().await.unwrap(), [(0, 5), (1, 5), (63, 5)]);
            assert_eq!(registry.device_databases().await.unwrap(), [0, 1, 63]);
            for device in &all {
                assert_eq!(fetched(&registry, device.reference()).await, *device);
            }
            over(database, registry).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn devices_made_at_once_are_spread() {
            let (database, registry, home, project) = registry().await;
            registry.place_devices_in(&[0, 1], None);
            // More than one statement inserts.
            let devices = (0..1_500).map(|number| given::new_device(project, &number.to_string())).collect();
            let group = NewDevices { permit: may(home), devices };
            registry.devices_create(&[group], at(1)).await.unwrap();
            assert_eq!(registry.devices_by_database().await.unwrap(), [(0, 750), (1, 750)]);
            over(database, registry).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn database_that_is_away_gets_devices_only_if_all_are() {
            let (database, registry, home, project) = registry().await;
            let (first, second) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
            let away = [Arc::clone(&first), Arc::clone(&second)];
            let is_away = move |number: u16| away[usize::from(number)].load(Ordering::Relaxed);
            registry.place_devices_in(&[0, 1], Some(Arc::new(is_away)));
            let make = async || given::device(&registry, home, project, "d").await.key.database();
            assert_eq!((make().await, make().await), (0, 0));
            first.store(true, Ordering::Relaxed);
            assert_eq!((make().await, make().await), (1, 1));
            over(database, registry).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn numbers_are_compared_without_their_database() {
            let (database, registry, home, project) = registry().await;
            registry.place_devices_in(&[5], None);
            let device = given::device(&registry, home, project, "d").await;
            assert_eq!((device.key.database(), device.key.dense()), (5, 1));
            assert_eq!(registry.device_number_given().await.unwrap(), DeviceKey(1));
            registry.device_numbers_raise(DeviceKey::new(63, 40)).await.unwrap();
            assert_eq!(given::device(&registry, home, project, "d").await.key, DeviceKey::new(5, 41));
            let within =
                async |after, up_to| registry.has_device_within(DeviceKey(after), DeviceKey(up_to)).await.unwrap();
            assert_eq!((within(0, 1).await, within(1, 40).await, within(40, 41).await), (true, false, true));
            assert_eq!(registry.device_numbers().await.unwrap().last_given, 41);
            // A registry that goes back to an earlier state while it is in use.
            let raw = crate::support::Raw::open(&database.address).await;
            raw.run("SELECT setval(pg_get_serial_sequence('devices', 'key'), 1)").await.unwrap();
            raw.close().await;
            let again = registry.device_create(&may(home), given::new_device(project, "d"), at(1)).await;
            assert!(again.is_err_and(|error| error.to_string().contains("a second time")));
            over(database, registry).await;
        }
    }
}
