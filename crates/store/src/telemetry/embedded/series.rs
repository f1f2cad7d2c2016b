//! Removes series, values past retention, and whole devices: an answer is given when they are hidden, durably; their
//! space is reclaimed later.

use std::ops::Range;
use std::sync::Arc;

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::DeviceRef;
use isobar_model::retention::Kept;
use rocksdb::{DB, ReadOptions};

use super::device::{DeviceState, SeriesState, Timeline};
use super::keys::{self, Family};
use super::rows::Rows;
use super::values::OpenSeries;
use super::{Cancel, Core, Embedded, load};
use crate::error::Result;
use crate::telemetry::dropping::{is_worth_dropping, share_of_bytes};

/// Hides a series: removes its record, and records its number to be reclaimed.
fn bury(device: u64, series: &SeriesState, rows: &mut Rows) {
    for tag in [keys::STATE_SERIES, keys::STATE_FLOOR] {
        rows.delete(Family::State, &keys::state(device, tag, &series.element));
    }
    rows.put(Family::Meta, &keys::about(keys::GARBAGE_SERIES, series.number), &[&series.bytes.to_be_bytes()]);
}

/// Values of a series past retention: from its floor up to a new one.
struct Stretch {
    element: Arc<str>,
    series: u64,
    values: Range<u64>,
    /// Number of values from the floor on.
    of: u64,
}

impl Stretch {
    /// Finds the values of a device's series past retention, if there are any.
    fn find(db: &DB, device: u64, element: &Arc<str>, kept: &Kept) -> Result<Option<Self>> {
        let Some(mut series) = OpenSeries::of(db, device, element, ReadOptions::default())? else { return Ok(None) };
        let values = series.floor..series.first_kept(kept)?;
        let (number, of) = (series.number, series.count - series.floor);
        Ok((!values.is_empty()).then(|| Self { element: Arc::clone(element), series: number, values, of }))
    }

    fn len(&self) -> u64 {
        self.values.end - self.values.start
    }

    fn is_worth_it(&self) -> bool {
        is_worth_dropping(self.len(), self.of)
    }

    /// Returns the bytes of the values, estimated by their share of the series: they are not read one by one.
    fn bytes(&self, of_series: u64) -> u64 {
        share_of_bytes(of_series, self.len(), self.of)
    }

    /// Sets the new floor of the series. Also writes its record: the values behind the last checkpoint may be dropped
    /// too.
    fn drop_from(&self, device: u64, series: &mut SeriesState, rows: &mut Rows) -> u64 {
        let bytes = self.bytes(series.bytes);
        series.bytes -= bytes;
        series.write(device, rows);
        let (number, floor) = (self.series.to_be_bytes(), self.values.end.to_be_bytes());
        rows.put(Family::State, &keys::state(device, keys::STATE_FLOOR, &self.element), &[&number, &floor]);
        rows.put(Family::Meta, &keys::dropped(self.series, self.values.end), &[&bytes.to_be_bytes()]);
        rows.put(Family::Meta, keys::META_FORMAT, &[&keys::FORMAT.to_be_bytes()]);
        bytes
    }
}

/// Returns the parts of these stretches that are still above the floors of their series: others may have moved the
/// floors meanwhile.
fn still_there(db: &DB, device: u64, found: Vec<Stretch>) -> Result<Vec<Stretch>> {
    let mut left = Vec::with_capacity(found.len());
    for mut stretch in found {
        let floor = load::floor(db, device, &stretch.element, stretch.series)?;
        // A lower floor means that the series was deleted.
        let Some(dropped) = floor.checked_sub(stretch.values.start) else { continue };
        stretch.of = stretch.of.saturating_sub(dropped);
        stretch.values.start = floor;
        if !stretch.values.is_empty() {
            left.push(stretch);
        }
    }
    Ok(left)
}

impl Embedded {
    /// Returns the bytes of the visible values of a device.
    pub(super) async fn bytes_shown(&self, permit: &CanRead<DeviceRef>, kept: Vec<(Arc<str>, Kept)>) -> Result<u64> {
        let device = permit.target().key;
        let list = |series: &[SeriesState]| series.iter().map(SeriesState::series).collect::<Vec<_>>();
        let read = move |db: &DB| Ok((list(&load::series(db, device.0)?), 0));
        let (series, ticket) = self.peek(device, |state| (list(&state.series), state.ticket), read).await?;
        if kept.is_empty() {
            return Ok(series.iter().map(|series| series.bytes).sum());
        }
        let look = move |core: &Core, cancel: &Cancel| {
            // What is hidden is found in the rows, which may be behind the figures in memory.
            core.shared.wait_applied(ticket)?;
            let mut hidden = 0;
            for (element, kept) in &kept {
                cancel.check()?;
                let Some(series) = series.iter().find(|series| series.element == *element) else { continue };
                let stretch = Stretch::find(&core.db, device.0, element, kept)?;
                hidden += stretch.map_or(0, |stretch| stretch.bytes(series.bytes));
            }
            Ok(series.iter().map(|series| series.bytes).sum::<u64>().saturating_sub(hidden))
        };
        self.reading(look).await
    }

    /// Drops values of a device's series past retention. Returns true if there were any worth dropping.
    pub(super) async fn drop_not_kept(
        &self,
        permit: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool> {
        let device = permit.target().key;
        let find = move |core: &Core, cancel: &Cancel| {
            let mut found = Vec::new();
            for (element, kept) in &kept {
                cancel.check()?;
                let stretch = Stretch::find(&core.db, device.0, element, kept)?;
                found.extend(stretch.filter(|stretch| exactly || stretch.is_worth_it()));
            }
            Ok(found)
        };
        let found = self.reading(find).await?;
        if found.is_empty() {
            return Ok(false);
        }
        // Work under the device's lock: another task that drops may have raised the floor, which must never fall.
        let held = self.hold(device, permit.tenant()).await?;
        let (mut held, found) =
            self.reading(move |core, _| Ok((held, still_there(&core.db, device.0, found)?))).await?;
        let (dropped, mut sent) = self.core.change(&mut held, |state, rows| {
            let mut dropped = Vec::new();
            for stretch in &found {
                // A series that was deleted in between, and perhaps created again, loses nothing.
                let series = state.series_at(&stretch.element).ok().and_then(|at| state.series.get_mut(at));
                let Some(series) = series.filter(|series| series.number == stretch.series) else { continue };
                dropped.push((stretch.series, stretch.values.end, stretch.drop_from(device.0, series, rows)));
            }
            dropped
        })?;
        self.core.reclaim.values(&dropped, sent.ticket);
        // The device stays locked until the commit is durable: the next task that drops finds this floor.
        sent.durable.wait().await?;
        drop(held);
        Ok(!dropped.is_empty())
    }

    /// Removes a series, or all of them.
    pub(super) async fn delete_series(&self, permit: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool> {
        let device = permit.target().key;
        let mut held = self.hold(device, permit.tenant()).await?;
        let is_chosen = |series: &SeriesState| element.is_none_or(|element| *series.element == *element);
        if !held.state.as_ref().is_some_and(|state| state.series.iter().any(is_chosen)) {
            return Ok(false);
        }
        let (gone, mut sent) = self.core.change(&mut held, |state, rows| {
            let gone: Vec<_> = state.series.extract_if(.., |series| is_chosen(series)).collect();
            state.count_texts();
            gone.iter().for_each(|series| bury(device.0, series, rows));
            gone
        })?;
        self.core.reclaim.series(gone.iter().map(|series| (series.number, series.bytes)), sent.ticket);
        drop(held);
        sent.durable.wait().await?;
        Ok(true)
    }

    /// Forgets a device. Its timelines continue at their sequences, so that rows to be reclaimed cannot be confused
    /// with new ones.
    pub(super) async fn forget_device(&self, permit: &CanWrite<DeviceRef>) -> Result<()> {
        let device = permit.target().key;
        let mut held = self.hold(device, permit.tenant()).await?;
        let (gone, mut sent) = self.core.change(&mut held, |state, rows| {
            let floors = state.timelines.map(|timeline| timeline.next);
            for family in [Family::State, Family::Queue] {
                rows.delete_range(family, &device.0.to_be_bytes(), &keys::after(device.0));
            }
            let late = |kind: u8| keys::timeline(device.0, kind, 0);
            rows.delete_range(Family::Timeline, &late(keys::KIND_LATE), &late(keys::KIND_LATE + 1));
            state.series.iter().for_each(|series| bury(device.0, series, rows));
            rows.put(
                Family::Meta,
                &keys::about(keys::GARBAGE_DEVICE, device.0),
                &[&floors[0].to_be_bytes(), &floors[1].to_be_bytes()],
            );
            self.core.reclaim.hide(device.0, floors);
            let timelines = floors.map(|next| Timeline { next, order: 0 });
            std::mem::replace(state, DeviceState { timelines, ..DeviceState::default() })
        })?;
        self.core.reclaim.forgotten(device.0, sent.ticket);
        self.core.reclaim.series(gone.series.iter().map(|series| (series.number, series.bytes)), sent.ticket);
        drop(held);
        sent.durable.wait().await
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use isobar_power::becomes;

    use super::super::{Options, engine};
    use super::*;
    use crate::given::{self, at, id};
    use crate::telemetry::{Commit, NewValue, Telemetry, ValueQuery};

    const DAY: i64 = 86_400_000;
    /// Values of a day, and of a commit.
    const A_DAY: i64 = 96;

    /// Returns the bytes of all tables in a folder.
    fn tables(folder: &Path) -> u64 {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        let tables = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "sst"));
        tables.map(|file| file.metadata().map_or(0, |file| file.len())).sum()
    }

    /// Returns a value whose text compresses badly.
    fn value(number: i64) -> NewValue {
        let spread = |n: i64| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d);
        let text: String = (0..16).map(|part| format!("{:016x}", spread(number * 16 + part))).collect();
        let event = id(number * DAY / A_DAY);
        NewValue { event, element: "log".into(), payload: given::json(&format!("\"{text}\"")) }
    }

    // Holds: c13.retentionSpace
    #[tokio::test]
    async fn shortened_series_frees_its_space() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let (device, neighbour) = (given::device(), given::device());
        given::store(&store, &neighbour, 0, "log", "1").await;
        for day in 0..365 {
            let values = (day * A_DAY..(day + 1) * A_DAY).map(value).collect();
            given::run(&store, &device, Commit { values, ..Commit::default() }).await;
        }
        let values = engine::family(&store.core.db, Family::Values).unwrap();
        store.core.db.flush_cf(values).unwrap();
        let (before, bytes) = (tables(folder.path()), store.series(&device.reading()).await.unwrap()[0].bytes);
        let kept = Kept { not_before: Some(at(335 * DAY)), ..Kept::default() };
        assert!(store.series_retain(&device, vec![("log".into(), kept)], false).await.unwrap());
        let is_back = async || !store.core.reclaim.has_work() && tables(folder.path()) <= before / 6;
        becomes("the space of eleven months is given back", is_back).await;
        println!("a year takes {before} bytes of tables, a month of it {}", tables(folder.path()));
        let total = given::texts(&store, &device, "log", ValueQuery::default()).await.1;
        assert_eq!(total, 30 * A_DAY as u64);
        assert_eq!(store.series(&device.reading()).await.unwrap()[0].bytes, bytes / 365 * 30 + bytes % 365 * 30 / 365);
        assert_eq!(given::texts(&store, &neighbour, "log", ValueQuery::default()).await.1, 1);
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn first_retained_value_survives_dropped_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let device = given::device();
        let values = engine::family(&store.core.db, Family::Values).unwrap();
        for round in 1..=3 {
            given::store(&store, &device, 2 * round, "log", "1").await;
            given::store(&store, &device, 2 * round + 1, "log", "2").await;
            // The only file of the series ends with values to be kept.
            store.core.db.flush_cf(values).unwrap();
            store.core.db.compact_range_cf::<&[u8], &[u8]>(values, None, None);
            let kept = Kept { values: Some(1), ..Kept::default() };
            assert!(store.series_retain(&device, vec![("log".into(), kept)], true).await.unwrap());
            becomes("what was dropped is reclaimed", async || !store.core.reclaim.has_work()).await;
            assert_eq!(given::texts(&store, &device, "log", ValueQuery::default()).await, (vec!["2".to_owned()], 1));
        }
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn concurrent_drops_apply_the_shortest_retention() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let device = given::device();
        let keeps = async |values| {
            let kept = Kept { values: Some(values), ..Kept::default() };
            store.series_retain(&device, vec![("log".into(), kept)], true).await.unwrap()
        };
        for round in 0..200 {
            for number in 0..4 {
                given::store(&store, &device, 4 * round + number, "log", "1").await;
            }
            tokio::join!(keeps(3), keeps(1), keeps(2), keeps(3));
            let total = given::texts(&store, &device, "log", ValueQuery::default()).await.1;
            assert_eq!(total, 1, "round {round}");
        }
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn store_with_floors_is_refused_by_older_versions() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let read = |store: &Embedded| {
            let meta = engine::family(&store.core.db, Family::Meta).unwrap();
            store.core.db.get_cf(meta, keys::META_FORMAT).unwrap().unwrap()
        };
        assert_eq!(read(&store), keys::FORMAT_WITHOUT_FLOORS.to_be_bytes());
        let device = given::device();
        for n in 0..3 {
            given::store(&store, &device, n, "log", "1").await;
        }
        let kept = Kept { values: Some(1), ..Kept::default() };
        assert!(store.series_retain(&device, vec![("log".into(), kept)], true).await.unwrap());
        assert_eq!(read(&store), keys::FORMAT.to_be_bytes());
        store.close().await.unwrap();
        drop(store);
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        assert_eq!(given::texts(&store, &device, "log", ValueQuery::default()).await.1, 1);
        store.close().await.unwrap();
    }
}
