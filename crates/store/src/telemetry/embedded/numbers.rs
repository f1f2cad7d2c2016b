//! Tracks the numbers by which the store addresses devices and series. The registry assigns those of devices. A
//! registry that is older than this store would assign some numbers twice, so it gets the greatest one. Devices that it
//! has lost are recorded here, because this store has their data.

use async_trait::async_trait;
use isobar_model::chance::Chance;
use isobar_model::ids::DeviceKey;
use isobar_quota::FairQueue;
use rocksdb::DB;
use uuid::Uuid;

use super::keys::{self, Family};
use super::load::{current, each, rows};
use super::rows::{Parts, damaged, event_device, failed, trailing};
use super::{Embedded, engine, examine};
use crate::error::Result;
use crate::telemetry::{Examined, LostDevices, Upkeep};

/// Offset of the tag in the key of a device's state.
const STATE_TAG_AT: usize = 8;

#[async_trait]
impl Upkeep for Embedded {
    async fn examine(&self) -> Result<Examined> {
        self.reading(|core, cancel| examine::everything(&core.db, cancel)).await
    }

    async fn greatest_device(&self) -> Result<DeviceKey> {
        self.reading(|core, _| greatest_device(&core.db).map(DeviceKey)).await
    }

    async fn devices_lost(&self) -> Result<Vec<LostDevices>> {
        self.reading(|core, _| lost(&core.db)).await
    }

    async fn note_lost_devices(&self, devices: LostDevices) -> Result<()> {
        self.reading(move |core, _| {
            let (row, last) = (keys::about(keys::LOST_DEVICES, devices.after.0), devices.up_to.0.to_be_bytes());
            core.db.put_cf(engine::family(&core.db, Family::Meta)?, row, last).map_err(failed)?;
            core.db.flush_wal(true).map_err(failed)
        })
        .await
    }

    async fn forget_lost_devices(&self, found: Vec<LostDevices>) -> Result<()> {
        self.reading(move |core, _| give_up(&core.db, &found)).await
    }

    fn scans(&self) -> &FairQueue {
        &self.scans
    }
}

/// Returns the identity of the store, if it has one.
pub fn identity(db: &DB) -> Result<Option<Uuid>> {
    let found = db.get_cf(engine::family(db, Family::Meta)?, keys::META_IDENTITY).map_err(failed)?;
    found
        .map(|bytes| Uuid::from_slice(&bytes).map_err(|_| damaged("the store's identity has another length")))
        .transpose()
}

/// Returns the identity of the store, and makes one if it has none: a new store, or one of an earlier version.
pub fn identity_or_new(db: &DB) -> Result<Uuid> {
    if let Some(identity) = identity(db)? {
        return Ok(identity);
    }
    let mut random = [0; 16];
    random.copy_from_slice(&Chance::from_system().bits_256()[..16]);
    let (identity, meta) = (uuid::Builder::from_random_bytes(random).into_uuid(), engine::family(db, Family::Meta)?);
    db.put_cf(meta, keys::META_IDENTITY, identity.as_bytes()).map_err(failed)?;
    // The registry notes it next: a part of the log that is lost must not take it along.
    db.flush_cf(meta).map_err(failed)?;
    Ok(identity)
}

/// Returns the greatest number of a device with any stored data, or 0. History is not read: each of its events is in a
/// timeline too, unless a part of the log was lost, and then the number was recorded.
pub fn greatest_device(db: &DB) -> Result<u64> {
    let mut greatest = engine::meta(db, keys::META_DEVICES)?.unwrap_or_default();
    for family in [Family::Timeline, Family::State, Family::Queue] {
        greatest = greatest.max(last_number(db, family)?);
    }
    let (from, to) = (keys::about(keys::GARBAGE_DEVICE, 0), keys::about(keys::GARBAGE_DEVICE, u64::MAX));
    each(db, Family::Meta, &from, &to, |key, _| {
        greatest = greatest.max(trailing(key)?);
        Ok(())
    })?;
    each(db, Family::Outbox, &[], &keys::AFTER_ALL, |_, entry| {
        greatest = greatest.max(Parts(entry).u64()?);
        Ok(())
    })?;
    let lost = lost(db)?.iter().map(|devices| devices.up_to.0).max();
    Ok(greatest.max(lost.unwrap_or_default()))
}

/// Returns the number with which the last row of a family begins, or 0 without rows.
fn last_number(db: &DB, family: Family) -> Result<u64> {
    let mut rows = rows(db, family, &[], &keys::AFTER_ALL)?;
    rows.seek_to_last();
    current(&rows)?.map_or(Ok(0), |(key, _)| Parts(key).u64())
}

/// Returns the devices that registries have lost.
pub fn lost(db: &DB) -> Result<Vec<LostDevices>> {
    let mut lost = Vec::new();
    let (from, to) = (keys::about(keys::LOST_DEVICES, 0), keys::about(keys::LOST_DEVICES, u64::MAX));
    each(db, Family::Meta, &from, &to, |key, value| {
        lost.push(read_lost(key, value)?);
        Ok(())
    })?;
    Ok(lost)
}

/// Reads a row about devices that the registry has lost.
pub fn read_lost(key: &[u8], value: &[u8]) -> Result<LostDevices> {
    Ok(LostDevices { after: DeviceKey(trailing(key)?), up_to: DeviceKey(Parts(value).u64()?) })
}

/// Removes records of devices that the registry has lost, durably.
pub fn give_up(db: &DB, lost: &[LostDevices]) -> Result<()> {
    let meta = engine::family(db, Family::Meta)?;
    for devices in lost {
        db.delete_cf(meta, keys::about(keys::LOST_DEVICES, devices.after.0)).map_err(failed)?;
    }
    db.flush_wal(true).map_err(failed)
}

/// Keeps numbers from being reused after a part of the log was lost: the tables of one family may be newer than those
/// of another, so history may have an event whose device appears nowhere else, and values may belong to no series.
pub fn keep_after_loss(db: &DB) -> Result<()> {
    let mut device = greatest_device(db)?;
    each(db, Family::History, &[], &keys::AFTER_ALL, |_, event| {
        device = device.max(event_device(event)?);
        Ok(())
    })?;
    let mut series =
        engine::meta(db, keys::META_SERIES)?.unwrap_or(1).max(last_number(db, Family::Values)?.saturating_add(1));
    each(db, Family::State, &[], &keys::AFTER_ALL, |key, record| {
        if key.get(STATE_TAG_AT) == Some(&keys::STATE_SERIES) {
            series = series.max(Parts(record).u64()?.saturating_add(1));
        }
        Ok(())
    })?;
    let meta = engine::family(db, Family::Meta)?;
    db.put_cf(meta, keys::META_DEVICES, device.to_be_bytes()).map_err(failed)?;
    db.put_cf(meta, keys::META_SERIES, series.to_be_bytes()).map_err(failed)?;
    db.flush_wal(true).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use crate::given::{self, id};
    use crate::telemetry::{Commit, Telemetry};

    #[tokio::test]
    async fn greatest_number_is_found_in_any_family() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let greatest = async || store.greatest_device().await.unwrap().0;
        assert_eq!(greatest().await, 0);
        let device = |number| given::device_with_key(number);
        let history = Commit { history: [given::device_event(id(0), "1")].into(), ..Commit::default() };
        given::run(&store, &device(70_000), history).await;
        assert_eq!(greatest().await, 70_000);
        given::run(&store, &device(70_001), Commit { states: vec![("s".into(), "1".into())], ..Commit::default() })
            .await;
        assert_eq!(greatest().await, 70_001);
        let queued = given::sending(id(1), "in", "1", None).queue;
        given::run(&store, &device(70_002), Commit { queue: queued, ..Commit::default() }).await;
        assert_eq!(greatest().await, 70_002);
        let outbox = given::work(&store, ["later"]);
        given::run(&store, &device(70_003), Commit { outbox, ..Commit::default() }).await;
        assert_eq!(greatest().await, 70_003);
        // Remains of a deleted device may not be reclaimed yet.
        store
            .core
            .db
            .put_cf(
                engine::family(&store.core.db, Family::Meta).unwrap(),
                keys::about(keys::GARBAGE_DEVICE, 70_004),
                [0; 16],
            )
            .unwrap();
        assert_eq!(greatest().await, 70_004);
        let lost = LostDevices { after: DeviceKey(5), up_to: DeviceKey(70_005) };
        store.note_lost_devices(lost).await.unwrap();
        assert_eq!((greatest().await, store.devices_lost().await.unwrap()), (70_005, vec![lost]));
        assert_eq!(store.examine().await.unwrap().lost, [lost]);
        store.close().await.unwrap();
        drop(store);
        assert_eq!(Embedded::lost_devices(folder.path(), &Options::default()).unwrap(), [lost]);
        Embedded::give_up_lost_devices(folder.path(), &Options::default()).unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        assert_eq!(store.devices_lost().await.unwrap(), []);
        store.close().await.unwrap();
    }

    /// Checks that numbers that only history and values contain are not reused after a part of the log was lost.
    #[tokio::test]
    async fn numbers_in_history_and_values_are_not_reused_after_a_loss() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let stranger = given::device_with_key(80_000);
        given::store(&store, &stranger, 0, "log", "\"secret\"").await;
        let meta = engine::family(&store.core.db, Family::Meta).unwrap();
        for family in [Family::Timeline, Family::State, Family::Queue] {
            let rows = engine::family(&store.core.db, family).unwrap();
            store.core.db.delete_range_cf(rows, [0].as_slice(), keys::AFTER_ALL.as_slice()).unwrap();
        }
        store.core.db.delete_cf(meta, keys::META_SERIES).unwrap();
        keep_after_loss(&store.core.db).unwrap();
        assert_eq!(store.greatest_device().await.unwrap(), DeviceKey(80_000));
        store.close().await.unwrap();
        drop(store);
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let fresh = given::device_with_key(80_001);
        given::store(&store, &fresh, 1, "log", "1").await;
        let (values, total) = given::texts(&store, &fresh, "log", crate::telemetry::ValueQuery::default()).await;
        assert_eq!((values, total), (vec!["1".to_owned()], 1));
        store.close().await.unwrap();
    }
}
