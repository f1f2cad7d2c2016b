//! Applies retention, and limits the trust in the clock that decides it. A clock that was set to next year by mistake
//! must not end a history of six months: removed data does not come back when the clock is right again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use rocksdb::{DB, WriteBatch};

use super::Core;
use super::engine;
use super::keys::{self, Family};
use super::load::{current, rows};
use super::rows::{damaged, failed};
use crate::error::Result;
use crate::telemetry::clock_trust::believed;

/// Returns the moment up to which the clock is trusted; if none is recorded, that of the newest event. Returns `None`
/// for an empty store.
pub fn seen(db: &DB) -> Result<Option<Timestamp>> {
    if let Some(seen) = engine::moment(db, keys::META_SEEN)? {
        return Ok(Some(seen));
    }
    let mut events = rows(db, Family::History, &[], &keys::AFTER_ALL)?;
    events.seek_to_last();
    let newest = current(&events)?.map(|(key, _)| <[u8; 16]>::try_from(key).map(EventId::from_bytes));
    let newest = newest.transpose().map_err(|_| damaged("an event's key is too short"))?;
    Ok(newest.map(|id| keys::moment(keys::order_of(id))))
}

/// Makes the store trust the clock, whatever it has seen.
pub fn believe(db: &DB, now: Timestamp) -> Result<()> {
    db.put_cf(engine::family(db, Family::Meta)?, keys::META_SEEN, now.millis().to_be_bytes()).map_err(failed)?;
    db.flush_wal(true).map_err(failed)
}

/// Removes history past retention: whole files at once, the rest with the next compactions.
pub fn retain(core: &Core, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp> {
    let seen = seen(&core.db)?.unwrap_or(now);
    let believed = believed(seen, running, now);
    core.cutoffs.keys.fetch_max(believed.millis(), Ordering::Relaxed);
    let not_before = believed.plus_seconds(-history_seconds);
    let before = core.cutoffs.history.fetch_max(not_before.millis(), Ordering::AcqRel);
    let meta = engine::family(&core.db, Family::Meta)?;
    let mut batch = WriteBatch::default();
    batch.put_cf(meta, keys::META_SEEN, seen.max(believed).millis().to_be_bytes());
    if before >= not_before.millis() {
        return core.db.write(batch).map_err(failed).map(|()| believed);
    }
    let history = engine::family(&core.db, Family::History)?;
    let (from, to) = ([0; 16], keys::order_at(not_before).to_be_bytes());
    batch.put_cf(meta, keys::META_CUTOFF, not_before.millis().to_be_bytes());
    batch.delete_range_cf(history, from, to);
    batch.delete_range_cf(meta, keys::late(&from), keys::late(&to));
    core.db.write(batch).map_err(failed)?;
    engine::delete_files(&core.db, history, &from, &to)?;
    core.db.flush_cf(history).map_err(failed)?;
    Ok(believed)
}

#[cfg(test)]
mod tests {
    use super::super::{Embedded, Options};
    use super::*;
    use crate::given::{self, START, at, id};
    use crate::telemetry::{Commit, Idempotency, Ran, Telemetry};

    const DAY: i64 = 86_400_000;

    #[tokio::test]
    async fn only_a_trusted_clock_expires_history_and_keys() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let (device, answer) = (given::device(), id(5));
        let mut commit = Some(Commit {
            idempotency: Some(Idempotency { key: "k".into(), answer, expires_at: at(DAY) }),
            ..given::storing(answer, &[("log", "1")])
        });
        store.run(&device, Some("k"), at(0), &mut |_| commit.take().unwrap()).await.unwrap();
        let (year, half) = (at(365 * DAY), 180 * 86_400);
        let compact = || {
            for family in [Family::History, Family::Timeline, Family::State] {
                let family = engine::family(&store.core.db, family).unwrap();
                store.core.db.flush_cf(family).unwrap();
                store.core.db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
            }
        };
        for running in [0, 3_600, 3_600] {
            let believed = store.retain(year, Duration::from_secs(running), half).await.unwrap();
            assert!(believed < at(DAY), "{believed}");
            compact();
        }
        assert_eq!(given::history(&store, &device.reading()).await.total, 1);
        let ran = store.run(&device, Some("k"), at(10), &mut |_| unreachable!("it is known")).await.unwrap();
        assert_eq!(ran, Ran::Repeated(answer));
        // The next start behaves the same, until an operator confirms that the clock is right.
        drop(store);
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        assert!(store.retain(year, Duration::ZERO, half).await.unwrap() < at(DAY));
        assert_eq!(given::history(&store, &device.reading()).await.total, 1);
        store.close().await.unwrap();
        drop(store);
        Embedded::believe(folder.path(), &Options::default(), year).unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        assert_eq!(store.retain(year, Duration::ZERO, half).await.unwrap(), year);
        assert_eq!(given::history(&store, &device.reading()).await.total, 0);
        assert_eq!(seen(&store.core.db).unwrap().map(Timestamp::millis), Some(START + 365 * DAY));
    }
}
