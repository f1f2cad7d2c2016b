//! Tests the effect of a panic of one of the store's threads. Tests trigger it by [`Shared::may_panic`], which exists
//! only in this crate's own tests.

use std::sync::Arc;

use futures::future::join_all;
use isobar_power::{becomes, within_patience};

use super::threads::{RECLAIMER, SYNCER, WRITER};
use super::{Embedded, Options};
use crate::error::StoreError;
use crate::given::{self, at, id};
use crate::telemetry::{Telemetry, ValueQuery};

const AT_ONCE: u64 = 200;

/// Stores one value in each of many devices at once; returns true for each that succeeded.
async fn stores(store: &Arc<Embedded>, devices: std::ops::Range<u64>) -> Vec<bool> {
    let each = devices.map(|device| {
        let store = store.clone();
        tokio::spawn(async move {
            let (permit, mut commit) = (given::device_with_key(device), Some(given::storing(id(1), &[("log", "1")])));
            let ran = store.run(&permit, None, at(0), &mut |_| commit.take().unwrap_or_default()).await;
            assert!(matches!(ran, Ok(_) | Err(StoreError::Unavailable(_))), "{ran:?}");
            ran.is_ok()
        })
    });
    within_patience("each store ends", join_all(each)).await.into_iter().map(Result::unwrap).collect()
}

async fn fails_the_store(thread: &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(folder.path(), Options::default()).unwrap());
    assert!(stores(&store, 1..AT_ONCE).await.into_iter().all(|stored| stored));
    let failure = tokio::spawn({
        let store = store.clone();
        async move { store.failed().await }
    });
    *store.core.shared.panics.lock() = Some(thread);
    let ended = stores(&store, 1..AT_ONCE).await;
    assert!(ended.iter().any(|stored| !stored), "nobody noticed that {thread} is gone");
    let failure = within_patience("the store fails", failure).await.unwrap();
    let StoreError::Unavailable(cause) = failure else { unreachable!("{failure}") };
    assert_eq!(cause.to_string(), format!("the thread {thread} panicked"));
    assert!(store.healthy().await.is_err());
    assert!(stores(&store, 1..2).await.iter().all(|stored| !stored), "it takes nothing more");
    assert!(within_patience("the store closes", store.close()).await.is_err());
    drop(store);
    // Acknowledged values exist after a restart.
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    for (device, stored) in (1..AT_ONCE).zip(ended) {
        let count = given::texts(&store, &given::device_with_key(device), "log", ValueQuery::default()).await.1;
        assert!(count == 2 || !stored && count == 1, "{count}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_panic_fails_the_store_and_all_waiters() {
    fails_the_store(WRITER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syncer_panic_fails_the_store_and_all_waiters() {
    fails_the_store(SYNCER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reclaiming_is_retried_after_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    let device = given::device();
    given::store(&store, &device, 1, "log", "1").await;
    *store.core.shared.panics.lock() = Some(RECLAIMER);
    store.series_delete(&device, None).await.unwrap();
    becomes("the series is reclaimed", async || !store.core.reclaim.has_work()).await;
    assert_eq!(*store.core.shared.panics.lock(), None, "it panicked on the way");
    store.healthy().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_closed_has_not_failed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), Options::default()).unwrap();
    store.close().await.unwrap();
    assert!(futures::poll!(std::pin::pin!(store.failed())).is_pending());
}
