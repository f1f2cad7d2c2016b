//! Reads a device's state from the database: on its first run since the start, or since it was evicted from the cache.

use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions};

use super::device::{DeviceState, SeriesState, Timeline};
use super::engine;
use super::keys::{self, Family};
use super::live::Live;
use super::rows::{Parts, failed, json, read_timeline, read_value, text, trailing};
use crate::error::Result;

/// An iterator over rows.
pub type RowIterator<'a> = DBRawIteratorWithThreadMode<'a, DB>;

/// Returns the rows of a family from a key up to another (exclusive).
pub fn rows<'a>(db: &'a DB, family: Family, from: &[u8], to: &[u8]) -> Result<RowIterator<'a>> {
    rows_with(db, family, from, to, ReadOptions::default())
}

/// Returns an iterator over the rows of a family between two keys, with options of the caller.
pub fn rows_with<'a>(
    db: &'a DB,
    family: Family,
    from: &[u8],
    to: &[u8],
    mut options: ReadOptions,
) -> Result<RowIterator<'a>> {
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    Ok(db.raw_iterator_cf_opt(engine::family(db, family)?, options))
}

/// Returns the current row of an iterator, or `None` at its end; fails if the iterator broke off.
pub fn current<'a>(rows: &'a RowIterator<'_>) -> Result<Option<(&'a [u8], &'a [u8])>> {
    match rows.item() {
        Some(item) => Ok(Some(item)),
        None => rows.status().map(|()| None).map_err(failed),
    }
}

/// Calls a function with each row of a family from a key up to another (exclusive).
pub fn each(
    db: &DB,
    family: Family,
    from: &[u8],
    to: &[u8],
    mut look: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut rows = rows(db, family, from, to)?;
    rows.seek_to_first();
    while let Some((key, value)) = current(&rows)? {
        look(key, value)?;
        rows.next();
    }
    Ok(())
}

/// Loads the whole state of a device. `floors` are the lowest sequences with which its timelines continue.
pub fn device(db: &DB, device: u64, floors: [u64; 2]) -> Result<DeviceState> {
    let mut state = DeviceState { series: series(db, device)?, ..DeviceState::default() };
    let tag = |tag: u8| keys::state(device, tag, "");
    each(db, Family::State, &tag(keys::STATE_ELEMENT), &tag(keys::STATE_ELEMENT + 1), |key, value| {
        state.states.push((text(&key[9..])?.into(), Bytes::copy_from_slice(value)));
        Ok(())
    })?;
    for (kind, timeline) in (0..).zip(&mut state.timelines) {
        let floor = floors[usize::from(kind)];
        // Rows below the floor are deleted, and with them their position in time.
        *timeline = Some(self::timeline(db, device, kind)?)
            .filter(|found| found.next > floor)
            .unwrap_or(Timeline { next: floor, order: 0 });
    }
    let mut sequences = Vec::new();
    each(db, Family::Queue, &device.to_be_bytes(), &keys::after(device), |key, _| {
        sequences.push(trailing(key)?);
        Ok(())
    })?;
    state.queue = Live::of(sequences);
    state.count_texts();
    state.find_newest();
    Ok(state)
}

/// Loads the end of a timeline.
pub fn timeline(db: &DB, device: u64, kind: u8) -> Result<Timeline> {
    let (from, to) = (keys::timeline(device, kind, 0), keys::timeline(device, kind + 1, 0));
    let mut rows = rows(db, Family::Timeline, &from, &to)?;
    rows.seek_to_last();
    let Some((key, value)) = current(&rows)? else { return Ok(Timeline::default()) };
    Ok(Timeline { next: trailing(key)? + 1, order: read_timeline(value)?.1 })
}

/// Loads all series of a device, by name.
pub fn series(db: &DB, device: u64) -> Result<Vec<SeriesState>> {
    let tag = |tag: u8| keys::state(device, tag, "");
    let (mut found, mut last_bytes) = (Vec::<SeriesState>::new(), 0);
    each(db, Family::State, &tag(keys::STATE_SERIES), &tag(keys::STATE_SERIES + 1), |key, record| {
        let series = SeriesState::read(text(&key[9..])?.into(), record)?;
        last_bytes += series.last.len();
        found.push(series);
        Ok(())
    })?;
    for series in &mut found {
        let others = last_bytes - series.last.len();
        replay(db, series, others)?;
        last_bytes = others + series.last.len();
    }
    Ok(found)
}

/// Loads one series of a device.
pub fn one_series(db: &DB, device: u64, element: &str) -> Result<Option<SeriesState>> {
    let mut series = record(db, device, element)?;
    if let Some(series) = &mut series {
        replay(db, series, 0)?;
    }
    Ok(series)
}

/// Loads the record of a series, which has its state at the last checkpoint.
pub fn record(db: &DB, device: u64, element: &str) -> Result<Option<SeriesState>> {
    let key = keys::state(device, keys::STATE_SERIES, element);
    let record = db.get_pinned_cf(engine::family(db, Family::State)?, key).map_err(failed)?;
    record.map(|record| SeriesState::read(Arc::from(element), &record)).transpose()
}

/// Loads the floor of a device's series: values below it are hidden, and may be deleted.
pub fn floor(db: &DB, device: u64, element: &str, series: u64) -> Result<u64> {
    let key = keys::state(device, keys::STATE_FLOOR, element);
    let Some(row) = db.get_pinned_cf(engine::family(db, Family::State)?, key).map_err(failed)? else { return Ok(0) };
    let (of, floor) = read_floor(&row)?;
    Ok(if of == series { floor } else { 0 })
}

/// Reads the series and the floor from a row.
pub fn read_floor(row: &[u8]) -> Result<(u64, u64)> {
    let mut parts = Parts(row);
    Ok((parts.u64()?, parts.u64()?))
}

/// Adds the values after the checkpoint to a series. `others` are the bytes of the last values of the device's other
/// series.
fn replay(db: &DB, series: &mut SeriesState, others: usize) -> Result<()> {
    let from = keys::pair(series.number, series.count);
    each(db, Family::Values, &from, &keys::after(series.number), |_, value| {
        let (_, order, payload) = read_value(value)?;
        series.take(order, &json(payload), others);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};

    use super::super::device::CHECKPOINT_EVERY;
    use super::super::{Embedded, Options};
    use crate::given;

    #[tokio::test]
    async fn evicted_device_is_loaded_with_a_few_rows() {
        const SERIES: [&str; 3] = ["temp", "door", "battery"];
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options { device_bytes: 256 << 10, ..Options::default() }).unwrap();
        let (device, core) = (given::device(), &store.core);
        for moment in 0..200 {
            for element in SERIES {
                given::store(&store, &device, moment, element, "7").await;
            }
        }
        let key = device.target().key.0;
        assert!(core.devices.lock_if_present(key).await.is_some());
        // The other devices are large, and each of them sends an event.
        let large = format!("\"{}\"", "x".repeat(16 << 10));
        for _ in 0..100 {
            given::store(&store, &given::device(), 0, "log", &large).await;
        }
        assert!(core.devices.lock_if_present(key).await.is_none());
        set_perf_stats(PerfStatsLevel::EnableCount);
        let mut counted = PerfContext::default();
        counted.reset();
        let state = super::device(&core.db, key, core.reclaim.floors(key)).unwrap();
        let (seeks, rows) =
            (counted.metric(PerfMetric::SeekOnMemtableCount), counted.metric(PerfMetric::NextOnMemtableCount));
        set_perf_stats(PerfStatsLevel::Disable);
        assert!(state.series.iter().all(|series| series.count == 200) && state.series.len() == SERIES.len());
        // Records, states, the ends of two timelines and the queue; and the values of each series since its record.
        assert!((5..=5 + SERIES.len() as u64).contains(&seeks), "{seeks} places");
        assert!(rows <= (SERIES.len() as u64) * (CHECKPOINT_EVERY + 1) + 5, "{rows} rows");
    }
}
