//! Examines a store for an operator: reads everything once. Every block's checksum is verified, and references to other
//! rows are followed.

use isobar_model::ids::DeviceKey;
use isobar_model::time::Timestamp;
use rocksdb::{DB, ReadOptions, Snapshot};
use rustc_hash::{FxHashMap, FxHashSet};

use super::device::SeriesState;
use super::keys::{self, Family, TimeOrder};
use super::rows::{Parts, damaged, event_device, failed, read_queued, read_timeline, read_value, text, trailing};
use super::{Cancel, engine, load, numbers};
use crate::error::{Result, StoreError};
use crate::telemetry::Examined;
use crate::telemetry::examined::{FAULTS_NAMED_MAX, PARKED_NAMED_MAX};

/// Rows between two checks that the caller still waits.
const ROWS_BETWEEN_LOOKS: u64 = 65_536;
/// Bytes that are read ahead: everything is read, in order.
const READAHEAD_BYTES: usize = 4 << 20;

/// Counts of a series in its record and in its values.
struct SeriesCounts {
    device: u64,
    /// Number of values that the record covers.
    recorded: u64,
    values: u64,
}

/// State of an examination.
#[derive(Default)]
struct Examination {
    report: Examined,
    /// Order before which history is forgotten, row by row.
    cutoff: TimeOrder,
    deleted_series: FxHashSet<u64>,
    /// Floors by series: rows below are removed, one by one.
    floors: FxHashMap<u64, u64>,
    /// Causes why entries of the outbox are parked.
    parked: FxHashMap<u64, String>,
    forgotten_devices: FxHashSet<u64>,
    series: FxHashMap<u64, SeriesCounts>,
    /// Number of events by device that timelines name and history has not shown yet.
    missing: FxHashMap<u64, i64>,
    devices: FxHashSet<u64>,
}

/// Reads all families as of one moment.
pub fn everything(db: &DB, cancel: &Cancel) -> Result<Examined> {
    let moment = db.snapshot();
    let mut seen = Examination::default();
    seen.read(db, &moment, cancel, Family::Meta, Examination::meta)?;
    seen.read(db, &moment, cancel, Family::State, Examination::state)?;
    seen.read(db, &moment, cancel, Family::History, Examination::history)?;
    let mut before = None;
    seen.read(db, &moment, cancel, Family::Timeline, |seen, key, value| seen.timeline(&mut before, key, value))?;
    let mut before = None;
    seen.read(db, &moment, cancel, Family::Values, |seen, key, value| seen.value(&mut before, key, value))?;
    seen.read(db, &moment, cancel, Family::Queue, Examination::queue)?;
    seen.read(db, &moment, cancel, Family::Outbox, Examination::outbox)?;
    Ok(seen.end())
}

impl Examination {
    /// Reads every row of a family. An unreadable block ends its family, not the examination.
    fn read(
        &mut self,
        db: &DB,
        moment: &Snapshot<'_>,
        cancel: &Cancel,
        family: Family,
        mut look: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<Option<String>>,
    ) -> Result<()> {
        let mut options = ReadOptions::default();
        options.set_verify_checksums(true);
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
        let mut rows = moment.raw_iterator_cf_opt(engine::family(db, family)?, options);
        rows.seek_to_first();
        let mut read = 0_u64;
        while let Some((key, value)) = rows.item() {
            match look(self, key, value) {
                Ok(None) => {}
                Ok(Some(fault)) => self.fault(fault),
                Err(error) => self.fault(format!("{}: {error}", family.name())),
            }
            read += 1;
            if read.is_multiple_of(ROWS_BETWEEN_LOOKS) {
                cancel.check()?;
            }
            rows.next();
        }
        if let Err(error) = rows.status() {
            self.fault(format!("{}: the rest cannot be read: {}", family.name(), failed(error)));
        }
        Ok(())
    }

    fn fault(&mut self, fault: String) {
        self.report.faults_found += 1;
        if self.report.faults.len() < FAULTS_NAMED_MAX {
            self.report.faults.push(fault);
        }
    }

    fn meta(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        if key == keys::META_CUTOFF {
            self.cutoff = keys::order_at(Timestamp::from_millis(Parts(value).i64()?));
        } else if key.starts_with(&keys::GARBAGE_SERIES) {
            self.deleted_series.insert(trailing(key)?);
        } else if key.starts_with(&keys::GARBAGE_DEVICE) {
            self.forgotten_devices.insert(trailing(key)?);
        } else if key.starts_with(&keys::LOST_DEVICES) {
            self.report.lost.push(numbers::read_lost(key, value)?);
        } else if key.starts_with(&keys::PARKED) {
            self.parked.insert(trailing(key)?, text(value)?.to_owned());
        }
        Ok(None)
    }

    fn state(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        let mut parts = Parts(key);
        let (device, tag) = (parts.u64()?, parts.take(1)?[0]);
        let name = text(parts.0)?;
        self.devices.insert(device);
        if tag == keys::STATE_FLOOR {
            let (series, floor) = load::read_floor(value)?;
            self.floors.insert(series, floor);
        }
        if tag != keys::STATE_SERIES {
            return Ok(None);
        }
        let series = SeriesState::read(name.into(), value)?;
        let found = SeriesCounts { device, recorded: series.count, values: 0 };
        let taken = self.series.insert(series.number, found);
        Ok(taken.map(|other| format!("devices {} and {device} share the series {}", other.device, series.number)))
    }

    fn history(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        let order = TimeOrder::from_be_bytes(key.try_into().map_err(|_| short())?);
        let device = event_device(value)?;
        self.report.events += 1;
        if order >= self.cutoff {
            *self.missing.entry(device).or_default() -= 1;
        }
        Ok(None)
    }

    fn timeline(&mut self, before: &mut Option<(u64, u8, u64)>, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        let mut parts = Parts(key);
        let (device, kind, sequence) = (parts.u64()?, parts.take(1)?[0], parts.u64()?);
        if self.forgotten_devices.contains(&device) {
            return Ok(None);
        }
        self.devices.insert(device);
        let (id, order) = read_timeline(value)?;
        if kind == keys::KIND_LATE {
            return Ok(None);
        }
        if keys::order_of(id) >= self.cutoff {
            *self.missing.entry(device).or_default() += 1;
        }
        // Rows below the cutoff are removed one by one, in any order.
        if order < self.cutoff {
            return Ok(None);
        }
        let last = before.replace((device, kind, sequence));
        let gap = last.is_some_and(|last| (last.0, last.1) == (device, kind) && last.2 + 1 != sequence);
        Ok(gap.then(|| format!("device {device}: its timeline has a gap before event {sequence}")))
    }

    fn value(&mut self, before: &mut Option<(u64, u64)>, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        let mut parts = Parts(key);
        let (number, sequence) = (parts.u64()?, parts.u64()?);
        let floor = self.floors.get(&number).copied().unwrap_or_default();
        if self.deleted_series.contains(&number) || sequence < floor {
            return Ok(None);
        }
        read_value(value)?;
        self.report.values += 1;
        let last = before.replace((number, sequence));
        let expected = last.filter(|last| last.0 == number).map_or(floor, |last| last.1 + 1);
        let Some(series) = self.series.get_mut(&number) else {
            let first = expected == floor;
            return Ok(first.then(|| format!("series {number} has values, but no device has the series")));
        };
        series.values = sequence + 1;
        let gap = sequence != expected;
        Ok(gap.then(|| format!("device {}: series {number} lacks values before {sequence}", series.device)))
    }

    fn queue(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        self.devices.insert(Parts(key).u64()?);
        read_queued(value).map(|_| None)
    }

    fn outbox(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        let device = Parts(value).u64()?;
        self.devices.insert(device);
        self.report.outbox += 1;
        if let Some(why) = self.parked.remove(&trailing(key)?) {
            self.report.parked_found += 1;
            if self.report.parked.len() < PARKED_NAMED_MAX {
                self.report.parked.push((DeviceKey(device), why));
            }
        }
        Ok(None)
    }

    fn end(mut self) -> Examined {
        let lacking: Vec<_> = self.missing.iter().filter(|(_, missing)| **missing > 0).map(|(k, v)| (*k, *v)).collect();
        for (device, missing) in lacking {
            self.fault(format!("device {device}: {missing} events of its timeline are not in history"));
        }
        let short: Vec<_> = self
            .series
            .iter()
            .filter(|(number, series)| {
                let floor = self.floors.get(number).copied().unwrap_or_default();
                series.values.max(floor) < series.recorded
            })
            .map(|(number, series)| {
                format!("device {}: series {number} has {} of {} values", series.device, series.values, series.recorded)
            })
            .collect();
        short.into_iter().for_each(|fault| self.fault(fault));
        let mut devices: Vec<_> = self.devices.into_iter().map(DeviceKey).collect();
        devices.sort_unstable();
        self.report.devices = devices;
        self.report
    }
}

fn short() -> StoreError {
    damaged("a key is too short")
}
