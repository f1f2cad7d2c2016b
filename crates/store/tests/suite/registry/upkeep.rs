//! Copies of a registry, and the check of its consistency.

use std::collections::BTreeSet;

use futures::future::join_all;
use isobar_model::ids::DeviceKey;

use super::given::{self, may};
use isobar_store::registry::{Registry, companions};
use isobar_store::telemetry::NotedStore;

/// Checks that a used registry has no dangling references, right counters, and ascending numbers of devices.
pub async fn used_registry_passes_the_check(r: &Registry) {
    assert_eq!(r.device_numbers().await.unwrap().last_given, 0);
    let top = given::organization(r, None, "Top").await;
    let below = given::organization(r, Some(top.id), "Below").await;
    given::user(r, below.id, "ana").await;
    let project = given::project(r, top.id, "p").await.id;
    let first = given::device(r, top.id, project, "a").await;
    let second = given::device(r, below.id, project, "b").await;
    r.device_delete(&may(second.reference())).await.unwrap();
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
    let numbers = r.device_numbers().await.unwrap();
    assert_eq!((numbers.present, numbers.last_given), (vec![first.key], second.key.0));
}

/// Checks that a telemetry store is noted once for its number, wherever it is, until it is forgotten.
pub async fn telemetry_store_of_a_number_is_noted_once(r: &Registry) {
    let store = |number, identity: &str, place: &str| NotedStore {
        number,
        identity: identity.to_owned(),
        place: place.to_owned(),
    };
    assert!(r.known_stores().await.unwrap().noted.is_empty());
    r.telemetry_stores_note(&[store(0, "a", "here"), store(1, "b", "there")]).await.unwrap();
    r.telemetry_stores_note(&[store(0, "a", "elsewhere")]).await.unwrap();
    let refused =
        r.telemetry_stores_note(&[store(2, "d", "new"), store(1, "c", "wrong")]).await.unwrap_err().to_string();
    assert!(refused.contains("identity b (served last as there)") && refused.contains("wrong, which"), "{refused}");
    let noted = r.known_stores().await.unwrap().noted;
    assert_eq!(noted, [store(0, "a", "elsewhere"), store(1, "b", "there")]);
    r.telemetry_stores_forget().await.unwrap();
    r.telemetry_stores_note(&[store(1, "c", "right")]).await.unwrap();
    assert_eq!(r.known_stores().await.unwrap().noted, [store(1, "c", "right")]);
}

/// Checks that device numbers continue after those that telemetry knows, and never decrease, also while others are
/// assigned.
pub async fn device_numbers_continue_after_known_ones(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let project = given::project(r, top.id, "p").await.id;
    let given = async || r.device_number_given().await.unwrap().0;
    assert_eq!(given().await, 0);
    // Before there was any device.
    r.device_numbers_raise(DeviceKey(10)).await.unwrap();
    assert_eq!((given().await, given::device(r, top.id, project, "a").await.key.0), (10, 11));
    r.device_numbers_raise(DeviceKey(5)).await.unwrap();
    assert_eq!((given().await, given::device(r, top.id, project, "b").await.key.0), (11, 12));
    let within = async |after, up_to| r.has_device_within(DeviceKey(after), DeviceKey(up_to)).await.unwrap();
    assert_eq!((within(0, 10).await, within(10, 11).await, within(12, 99).await), (false, true, false));
    let making = (0..20).map(async |n| given::device(r, top.id, project, &format!("of many {n}")).await.key);
    let (made, ..) =
        tokio::join!(join_all(making), async { r.device_numbers_raise(DeviceKey(13)).await.unwrap() }, async {
            r.device_numbers_raise(DeviceKey(40)).await.unwrap()
        },);
    let numbers: BTreeSet<_> = made.iter().copied().collect();
    assert_eq!(numbers.len(), 20);
    let last = given().await;
    assert!(last >= 40 && last >= numbers.last().unwrap().0, "{last}");
    assert!(given::device(r, top.id, project, "c").await.key.0 > last);
}

/// Checks that a copy has the state of that moment, if the registry can copy itself.
pub async fn a_copy_is_a_registry(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let project = given::project(r, top.id, "p").await.id;
    let [first, last] = [given::device(r, top.id, project, "a").await, given::device(r, top.id, project, "b").await];
    r.device_delete(&may(last.reference())).await.unwrap();
    let path = std::env::temp_dir().join(format!("isobar-copy-{}-{}.db", std::process::id(), given::uuid()));
    if !r.backup(&path).await.unwrap() {
        assert!(!path.exists());
        return;
    }
    given::device(r, top.id, project, "later").await;
    let copy = Registry::open_as_it_is(&format!("sqlite:{}", path.display())).await.unwrap();
    let numbers = copy.device_numbers().await.unwrap();
    assert_eq!((numbers.present, numbers.last_given), (vec![first.key], last.key.0));
    assert_eq!(copy.check().await.unwrap(), Vec::<String>::new());
    // A number that was assigned once is not assigned by the copy either.
    let fresh = given::device(&copy, top.id, project, "fresh").await;
    assert!(fresh.key > last.key);
    assert!(r.backup(&path).await.is_err(), "a file that is there stays as it is");
    copy.close().await.unwrap();
    // The note remains when the registry is closed.
    companions(&path).for_each(|file| drop(std::fs::remove_file(file)));
    std::fs::remove_file(&path).unwrap();
    assert!(Registry::open_as_it_is(&format!("sqlite:{}", path.display())).await.is_err());
}
