//! Tests the bounds on the resources that one tenant or device can use, and that a store that fails to open holds none.

use std::time::Duration;

use futures::FutureExt as _;
use isobar_model::access::{CanWrite, Lineage};
use isobar_model::ids::{DeviceRef, OrganizationId};
use uuid::Uuid;

use super::keys::Family;
use super::{Embedded, Options, engine};
use crate::error::{Result, StoreError};
use crate::given::{self, id};
use crate::telemetry::{Committed, DEVICE_LAST_BYTES_MAX, QueueQuery, SERIES_MAX, Telemetry};
use isobar_quota::{FairQueue, Limit, UNLIMITED};

/// Puts a device of the tenant with this number in memory.
async fn device_of(store: &Embedded, tenant: u128) -> CanWrite<DeviceRef> {
    let device = given::device().charged_to(&Lineage::new([], OrganizationId(Uuid::from_u128(tenant))));
    given::store(store, &device, 1, "log", "1").await;
    device
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_with_many_waiting_commits_is_refused_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    let (greedy, other) = (device_of(&store, 1).await, device_of(&store, 2).await);
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let run = |device: &CanWrite<DeviceRef>| -> Result<Committed> {
        let mut turn = store.lock_now(device)?.unwrap();
        Ok(turn.commit(given::storing(id(2), &[("log", &large)])).unwrap())
    };
    let mut committed = {
        // The lock stops the writer.
        let _writer = store.core.shared.panics.lock();
        let waiting = std::iter::from_fn(|| run(&greedy).ok()).take(256).count();
        // Some of the rows may be with the writer already.
        assert!((14..=40).contains(&waiting), "{waiting} MiB");
        assert!(matches!(run(&greedy), Err(StoreError::Busy)));
        run(&other).unwrap()
    };
    committed.durable.wait().await.unwrap();
    run(&greedy).unwrap().durable.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_series_of_a_device_and_their_last_values_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (device, large) = (given::device(), format!("\"{}\"", "x".repeat(200 << 10)));
    let names: Vec<String> = (0..SERIES_MAX + 10).map(|n| format!("log{n:05}")).collect();
    for opened in 0..2 {
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        if opened == 0 {
            for names in names.chunks(500) {
                let values: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
                given::run(&store, &device, given::storing(id(1), &values)).await;
            }
            for names in names[..120].chunks(10) {
                let values: Vec<_> = names.iter().map(|name| (name.as_str(), large.as_str())).collect();
                given::run(&store, &device, given::storing(id(2), &values)).await;
            }
        } else {
            // The first value loads the device.
            given::store(&store, &device, 3, &names[0], "2").await;
        }
        let series = store.series(&device.reading()).await.unwrap();
        assert_eq!(series.len(), SERIES_MAX);
        assert_eq!(series.iter().map(|series| series.count).sum::<u64>(), SERIES_MAX as u64 + 120 + opened);
        let held = store.hold(device.target().key, None).await.unwrap();
        let weight = held.state.as_ref().unwrap().weight();
        assert!(
            (DEVICE_LAST_BYTES_MAX - (1 << 20)..DEVICE_LAST_BYTES_MAX + (1 << 20)).contains(&weight),
            "{weight} bytes"
        );
    }
}

#[tokio::test]
async fn refused_open_unlocks_the_folder() {
    let (folder, options) = (tempfile::tempdir().unwrap(), Options::default());
    Embedded::open(folder.path(), options.clone()).unwrap().close().await.unwrap();
    let change = |change: &dyn Fn(&rocksdb::DB, &rocksdb::ColumnFamily)| {
        let db = engine::open(folder.path(), &options, &std::sync::Arc::default()).unwrap();
        change(&db, engine::family(&db, Family::Outbox).unwrap());
        db.flush_wal(true).unwrap();
    };
    change(&|db, outbox| db.put_cf(outbox, b"short", b"").unwrap());
    let refused = Embedded::open(folder.path(), options.clone());
    assert!(matches!(refused, Err(StoreError::Damaged(_))));
    change(&|db, outbox| db.delete_cf(outbox, b"short").unwrap());
    Embedded::open(folder.path(), options.clone()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn long_queue_scan_waits_for_a_slot_and_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Embedded::open(folder.path(), Options::default()).unwrap();
    store.scans = FairQueue::new(&Limit { at_once: 1, of_all: 4, of_one: 4, slice: Duration::ZERO, ..UNLIMITED });
    let (device, claim) = (device_of(&store, 1).await, given::claim());
    let mut ids = Vec::new();
    for n in 0..400 {
        ids.push(id(n));
        given::run(&store, &device, given::sending(ids[n as usize], "out", &n.to_string(), None)).await;
    }
    let rare = QueueQuery { element: Some("rare".to_owned()), ..given::queued(10, 0) };
    let slot = store.scans.take(claim).await.unwrap();
    let reading = device.reading();
    let mut peek = store.queue_peek(&reading, rare.clone());
    let mut take = store.queue_take(&device, rare.clone());
    let mut delete = store.queue_delete(&device, ids[399]);
    while store.scans.taken_and_waiting() != (1, 3) {
        assert!((&mut peek).now_or_never().is_none());
        assert!((&mut take).now_or_never().is_none() && (&mut delete).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    // Meanwhile the device runs, and events within a short look are read and taken; new events are not part of the
    // running look.
    given::run(&store, &device, given::sending(id(400), "rare", "400", None)).await;
    assert_eq!(given::payloads(&store.queue_take(&device, given::queued(2, 0)).await.unwrap()), ["0", "1"]);
    drop(slot);
    let (peeked, taken, deleted) = futures::join!(peek, take, delete);
    assert!(peeked.unwrap().is_empty() && taken.unwrap().is_empty() && deleted.unwrap());
    // A reader that has looked before continues from there: that is no long look.
    let _turn = store.scans.take(claim).await.unwrap();
    assert_eq!(given::payloads(&store.queue_take(&device, rare.clone()).await.unwrap()), ["400"]);
    assert!(store.queue_take(&device, rare).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_found_by_a_long_queue_scan_are_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    let device = device_of(&store, 1).await;
    for n in 0..600 {
        let element = if n % 100 == 99 { "rare" } else { "out" };
        given::run(&store, &device, given::sending(id(n), element, &n.to_string(), None)).await;
    }
    let rare = || QueueQuery { element: Some("rare".to_owned()), ..given::queued(3, 0) };
    let taken = futures::future::join_all((0..8).map(|_| store.queue_take(&device, rare()))).await;
    let mut taken: Vec<String> =
        taken.into_iter().flat_map(Result::unwrap).map(|event| event.payload.text().to_owned()).collect();
    taken.sort_unstable();
    assert_eq!(taken, ["199", "299", "399", "499", "599", "99"]);
    assert_eq!(store.queue_peek(&device.reading(), given::queued(1_000, 0)).await.unwrap().len(), 594);
}

#[tokio::test(flavor = "multi_thread")]
async fn active_heavy_devices_evict_no_other_tenants() {
    const HEAVY: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options { device_bytes: 4 << 20, ..Options::default() }).unwrap();
    let (mut small, mut heavy) = (Vec::new(), Vec::new());
    for number in 0..60 {
        small.push(device_of(&store, 10 + number % 20).await);
    }
    for _ in 0..HEAVY {
        heavy.push(device_of(&store, 1).await);
    }
    let large = format!("\"{}\"", "x".repeat(200 << 10));
    let values = ["a", "b", "c", "d"].map(|name| (name, large.as_str()));
    // Use more devices than fit, again and again, while the others are idle.
    for round in 0..40 {
        given::run(&store, &heavy[round % HEAVY], given::storing(id(2), &values)).await;
    }
    for device in small {
        assert!(store.core.devices.lock_if_present(device.target().key.0).await.is_some());
    }
    let mut there = 0;
    for device in heavy {
        there += usize::from(store.core.devices.lock_if_present(device.target().key.0).await.is_some());
    }
    // Each device takes more than 800 KiB.
    assert!((3..=5).contains(&there), "the heavy one has what is left: {there} devices");
}
