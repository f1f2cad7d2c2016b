//! Reclaims space in the background: deleted series, dropped values, forgotten devices, history past retention. Pending
//! work is stored in the database until it is done, so that a restart continues it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use isobar_model::time::Clock;
use parking_lot::{Condvar, Mutex};
use rocksdb::{ColumnFamily, CompactOptions, DB, WriteBatch};
use rustc_hash::FxHashMap;

use super::commit_queue::Shared;
use super::engine;
use super::keys::{self, Family};
use super::load::{current, each, rows};
use super::rows::{Parts, failed, read_timeline, trailing};
use super::threads::RECLAIMER;
use crate::error::{Result, StoreError};

/// Bytes of adjacent deleted series, or of timelines, from which their range is compacted at once; smaller ones wait
/// for the next ordinary compaction.
const COMPACT_BYTES_MIN: u64 = 1 << 20;
/// Number of removed events from which history is flushed to files at once, which are then compacted automatically.
const FLUSH_EVENTS_MIN: u64 = engine::REMOVALS_MIN as u64;
/// Shortest and (next constant) longest pause before reclaiming is retried.
const RECLAIM_PAUSE_MIN: Duration = Duration::from_secs(1);
const RECLAIM_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Ranges of dropped values that are removed before a flush.
const RANGES_BATCH: usize = 1_000;
/// Events of a forgotten device that are removed in one batch.
const EVENTS_BATCH: usize = 1_000;

/// Forgotten device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Forgotten {
    /// Floors of its timelines: events below are not shown.
    floors: [u64; 2],
    /// Ticket of the commit that forgets it, or `None` until that is sent. Before the commit is applied nothing may be
    /// reclaimed: the row that records the work would be written after the work was done, and stay.
    ticket: Option<u64>,
}

/// Dropped values of a series below a sequence: series, sequence, and their approximate bytes.
pub type DroppedValues = (u64, u64, u64);

#[derive(Default)]
struct PendingReclaim {
    /// Deleted series with their bytes.
    series: Vec<(u64, u64)>,
    /// Dropped values of other series.
    values: Vec<DroppedValues>,
    devices: FxHashMap<u64, Forgotten>,
    /// Ticket that must be durable before the work may begin.
    ticket: u64,
    has_new: bool,
    stopping: bool,
}

impl PendingReclaim {
    fn is_empty(&self) -> bool {
        self.series.is_empty() && self.values.is_empty() && self.devices.is_empty()
    }
}

/// Pending work of reclaiming space.
pub struct Reclaim {
    work: Mutex<PendingReclaim>,
    wake: Condvar,
}

impl Reclaim {
    /// Loads the work that an earlier process left.
    pub fn load(db: &DB) -> Result<Self> {
        let mut work = PendingReclaim::default();
        each(db, Family::Meta, b"g", b"h", |key, value| {
            let number = trailing(key)?;
            let mut parts = Parts(value);
            if key.starts_with(&keys::GARBAGE_SERIES) {
                work.series.push((number, parts.u64()?));
            } else if key.starts_with(&keys::GARBAGE_VALUES) {
                let series = Parts(key.get(2..).unwrap_or_default()).u64()?;
                work.values.push((series, number, parts.u64()?));
            } else if key.starts_with(&keys::GARBAGE_DEVICE) {
                let floors = [parts.u64()?, parts.u64()?];
                work.devices.insert(number, Forgotten { floors, ticket: Some(0) });
            }
            Ok(())
        })?;
        work.has_new = !work.is_empty();
        Ok(Self { work: Mutex::new(work), wake: Condvar::new() })
    }

    /// Returns the sequences below which a device's timelines are forgotten.
    pub fn floors(&self, device: u64) -> [u64; 2] {
        self.work.lock().devices.get(&device).map(|forgotten| forgotten.floors).unwrap_or_default()
    }

    /// Hides a device. Call it before the commit that forgets the device is sent.
    pub fn hide(&self, device: u64, floors: [u64; 2]) {
        self.work.lock().devices.insert(device, Forgotten { floors, ticket: None });
    }

    /// Records the ticket of the commit that forgets a hidden device.
    pub fn forgotten(&self, device: u64, ticket: u64) {
        if let Some(forgotten) = self.work.lock().devices.get_mut(&device) {
            forgotten.ticket = Some(ticket);
        }
    }

    /// Adds series that were deleted by the commit with this ticket.
    pub fn series(&self, series: impl Iterator<Item = (u64, u64)>, ticket: u64) {
        self.comes(ticket, |work| work.series.extend(series));
    }

    /// Adds values of series that were dropped by the commit with this ticket.
    pub fn values(&self, dropped: &[DroppedValues], ticket: u64) {
        self.comes(ticket, |work| work.values.extend(dropped));
    }

    fn comes(&self, ticket: u64, add: impl FnOnce(&mut PendingReclaim)) {
        let mut work = self.work.lock();
        add(&mut work);
        work.ticket = work.ticket.max(ticket);
        work.has_new = true;
        self.wake.notify_one();
    }

    /// Returns true if any work is left.
    #[cfg(test)]
    pub fn has_work(&self) -> bool {
        !self.work.lock().is_empty()
    }

    fn stopping(&self) -> bool {
        self.work.lock().stopping
    }

    /// Works until it is stopped. Retries failures and panics after a pause, which doubles each time in a row: no
    /// promise depends on this work.
    fn again_and_again(&self, shared: &Shared, work: impl Fn() -> Result<()>) {
        let mut pause = RECLAIM_PAUSE_MIN;
        loop {
            let begun = Clock::System.instant();
            // Unfinished work is in the database and in `PendingReclaim`, and is repeated from there.
            let cause = match panic::catch_unwind(AssertUnwindSafe(&work)) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            if self.stopping() || shared.healthy().is_err() {
                return;
            }
            pause = if Clock::System.elapsed(begun) > RECLAIM_PAUSE_MAX { RECLAIM_PAUSE_MIN } else { pause };
            metrics::counter!("isobar_telemetry_reclaim_failures_total").increment(1);
            tracing::error!(cause, again_in = ?pause, "space of what was deleted could not be given back");
            let mut work = self.work.lock();
            work.has_new = true;
            let until = Clock::System.instant() + pause;
            while !work.stopping && !self.wake.wait_until(&mut work, until).timed_out() {}
            pause = (pause * 2).min(RECLAIM_PAUSE_MAX);
        }
    }
}

/// Thread that reclaims space.
pub struct ReclaimWorker {
    thread: Option<JoinHandle<()>>,
    reclaim: Arc<Reclaim>,
}

impl ReclaimWorker {
    /// Starts the thread.
    pub fn start(db: &Arc<DB>, shared: &Arc<Shared>, reclaim: &Arc<Reclaim>) -> Result<Self> {
        let (its_db, its_shared, its_work) = (db.clone(), shared.clone(), reclaim.clone());
        let run = move || its_work.again_and_again(&its_shared, || work(&its_db, &its_shared, &its_work));
        let thread =
            std::thread::Builder::new().name(RECLAIMER.to_owned()).spawn(run).map_err(StoreError::unavailable)?;
        Ok(Self { thread: Some(thread), reclaim: reclaim.clone() })
    }

    /// Stops the thread after its current step: whole files are removed at once, which bounds the compaction of a step.
    pub fn join(&mut self) {
        self.reclaim.work.lock().stopping = true;
        self.reclaim.wake.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reclaims space ended unexpectedly");
        }
    }
}

impl Drop for ReclaimWorker {
    fn drop(&mut self) {
        self.join();
    }
}

fn work(db: &DB, shared: &Shared, reclaim: &Reclaim) -> Result<()> {
    loop {
        let (mut series, values, devices, ticket) = {
            let mut work = reclaim.work.lock();
            while !work.has_new && !work.stopping {
                reclaim.wake.wait(&mut work);
            }
            if work.stopping {
                return Ok(());
            }
            work.has_new = false;
            let ready = |(_, forgotten): &(&u64, &Forgotten)| forgotten.ticket.is_some();
            let devices: Vec<_> = work.devices.iter().filter(ready).map(|(key, each)| (*key, *each)).collect();
            // Devices stay among the pending work until they are done.
            (work.series.clone(), work.values.clone(), devices, work.ticket)
        };
        #[cfg(test)]
        shared.may_panic(RECLAIMER);
        shared.wait_applied(ticket)?;
        db.flush_wal(true).map_err(failed)?;
        let count = series.len();
        if reclaim_series(db, reclaim, &mut series)? {
            // Further series were appended behind these.
            reclaim.work.lock().series.drain(..count);
        }
        if reclaim_values(db, reclaim, &values)? {
            reclaim.work.lock().values.drain(..values.len());
        }
        let mut removed = 0;
        for (device, forgotten) in devices {
            removed += reclaim_device(db, reclaim, device, forgotten)?;
        }
        if removed >= FLUSH_EVENTS_MIN {
            db.flush_cf(engine::family(db, Family::History)?).map_err(failed)?;
        }
    }
}

/// Removes the values of deleted series. Returns false if it was stopped before the end.
fn reclaim_series(db: &DB, reclaim: &Reclaim, series: &mut [(u64, u64)]) -> Result<bool> {
    if series.is_empty() {
        return Ok(true);
    }
    let values = engine::family(db, Family::Values)?;
    series.sort_unstable();
    for neighbours in series.chunk_by(|left, right| left.0 + 1 == right.0) {
        let (Some((first, _)), Some((last, _))) = (neighbours.first(), neighbours.last()) else { continue };
        let (from, to) = (first.to_be_bytes().to_vec(), keys::after(*last));
        engine::delete_range(db, values, &from, &to)?;
        if neighbours.iter().map(|(_, bytes)| bytes).sum::<u64>() >= COMPACT_BYTES_MIN {
            compact(db, values, &from, &to);
        }
        if reclaim.stopping() {
            return Ok(false);
        }
    }
    // Many removed ranges in a memtable slow every read; in a file they are cheap.
    db.flush_cf(values).map_err(failed)?;
    let mut done = WriteBatch::default();
    let meta = engine::family(db, Family::Meta)?;
    for (number, _) in series.iter() {
        done.delete_cf(meta, keys::about(keys::GARBAGE_SERIES, *number));
    }
    db.write(done).map_err(failed).map(|()| true)
}

/// Removes dropped values. Returns false if it was stopped before the end.
fn reclaim_values(db: &DB, reclaim: &Reclaim, dropped: &[DroppedValues]) -> Result<bool> {
    let (values, meta) = (engine::family(db, Family::Values)?, engine::family(db, Family::Meta)?);
    for part in dropped.chunks(RANGES_BATCH) {
        for (series, below, bytes) in part {
            let (from, to) = (keys::pair(*series, 0), keys::pair(*series, *below));
            engine::delete_range(db, values, &from, &to)?;
            if *bytes >= COMPACT_BYTES_MIN {
                compact(db, values, &from, &to);
            }
            if reclaim.stopping() {
                return Ok(false);
            }
        }
        // Many removed ranges in a memtable slow every read; in a file they are cheap.
        db.flush_cf(values).map_err(failed)?;
        let mut done = WriteBatch::default();
        part.iter().for_each(|(series, below, _)| done.delete_cf(meta, keys::dropped(*series, *below)));
        db.write(done).map_err(failed)?;
    }
    Ok(true)
}

/// Rewrites the files of a range without its removed rows, concurrently with ordinary compactions.
fn compact(db: &DB, family: &ColumnFamily, from: &[u8], to: &[u8]) {
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    db.compact_range_cf_opt(family, Some(from), Some(to), &options);
}

/// Removes the remaining rows of a device, and returns how many events were removed. They are scattered in history
/// among those of all others.
fn reclaim_device(db: &DB, reclaim: &Reclaim, device: u64, forgotten: Forgotten) -> Result<u64> {
    let history = engine::family(db, Family::History)?;
    let timelines = engine::family(db, Family::Timeline)?;
    let mut removed = 0;
    for (kind, floor) in (0..).zip(forgotten.floors) {
        let (from, to) = (keys::timeline(device, kind, 0), keys::timeline(device, kind, floor));
        let mut bytes = 0;
        let mut events = rows(db, Family::Timeline, &from, &to)?;
        events.seek_to_first();
        let mut batch = WriteBatch::default();
        while let Some((key, value)) = current(&events)? {
            batch.delete_cf(history, read_timeline(value)?.0.bytes());
            bytes += (key.len() + value.len()) as u64;
            removed += 1;
            events.next();
            if batch.len() >= EVENTS_BATCH {
                db.write(std::mem::take(&mut batch)).map_err(failed)?;
                if reclaim.stopping() {
                    return Ok(removed);
                }
            }
        }
        drop(events);
        batch.delete_range_cf(timelines, from.as_slice(), to.as_slice());
        db.write(batch).map_err(failed)?;
        if bytes >= COMPACT_BYTES_MIN {
            compact(db, timelines, &from, &to);
        }
    }
    db.flush_cfs_opt(
        &[timelines, engine::family(db, Family::State)?, engine::family(db, Family::Queue)?],
        &rocksdb::FlushOptions::default(),
    )
    .map_err(failed)?;
    let mut work = reclaim.work.lock();
    if work.devices.get(&device) != Some(&forgotten) {
        // The device was forgotten once more in the meantime, and is queued again.
        return Ok(removed);
    }
    // Delete under the lock: a task that forgets the device again writes its row after this removal.
    db.delete_cf(engine::family(db, Family::Meta)?, keys::about(keys::GARBAGE_DEVICE, device)).map_err(failed)?;
    work.devices.remove(&device);
    Ok(removed)
}
