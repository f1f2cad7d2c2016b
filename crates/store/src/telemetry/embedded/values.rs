//! Reads pages of a series. Time is bisected and a page is a seek; filters and orders by payload read the whole range
//! ([`super::scanning`]).
//!
//! Readers of a series open it here ([`OpenSeries`]) and ask it for the range of their query
//! ([`OpenSeries::within`]): values past retention are left out there, and nowhere else.

use std::ops::Range;

use isobar_model::event::StoredValue;
use isobar_model::page::{Page, PageRequest};
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;
use rocksdb::{DB, ReadOptions};

use super::keys::{self, Family, TimeOrder};
use super::rows::{failed, json, read_value};
use super::seek::Track;
use super::{engine, load};
use crate::error::Result;
use crate::telemetry::page_budget::PageBudget;
use crate::telemetry::ready_query::{ReadyQuery, slice};

pub(super) fn track<'a>(db: &'a DB, series: u64, options: ReadOptions) -> Result<Track<'a>> {
    Ok(Track {
        rows: load::rows_with(db, Family::Values, &series.to_be_bytes(), &keys::after(series), options)?,
        key: Box::new(move |sequence| {
            let mut key = [0; 17];
            key[..16].copy_from_slice(&keys::pair(series, sequence));
            key
        }),
        key_length: 16,
        order: |value| read_value(value).map(|(_, order, _)| order),
    })
}

/// Series as it is at the moment at which it was opened.
pub struct OpenSeries<'a> {
    /// Number of the series.
    pub number: u64,
    /// Reader of its rows.
    pub track: Track<'a>,
    /// Sequence below which values are not shown, and may be removed.
    pub floor: u64,
    /// Sequence after its last value.
    pub count: u64,
}

impl<'a> OpenSeries<'a> {
    /// Opens the series of a device's element, or returns `None` if there is no such series.
    pub fn of(db: &'a DB, device: u64, element: &str, options: ReadOptions) -> Result<Option<Self>> {
        let Some(record) = load::record(db, device, element)? else { return Ok(None) };
        let mut track = track(db, record.number, options)?;
        // Read the floor after opening the rows: a floor that rises in between only hides rows that still exist.
        let floor = load::floor(db, device, element, record.number)?;
        let count = track.end()?.max(floor);
        Ok(Some(Self { number: record.number, track, floor, count }))
    }

    /// Returns the sequences in the query's range among the shown ones of a self.
    pub fn within(&mut self, query: &ReadyQuery) -> Result<Range<u64>> {
        let Range { start, end } = query.range;
        if start >= end {
            return Ok(0..0);
        }
        let (first, count) = (self.first_kept(&query.kept)?, self.count);
        let low = if start == 0 { first } else { self.track.first_at(first..count, start)? };
        Ok(low..if end == TimeOrder::MAX { count } else { self.track.first_at(low..count, end)? })
    }

    /// Returns the sequence from which on values are shown.
    pub fn first_kept(&mut self, kept: &Kept) -> Result<u64> {
        let (floor, count) = (self.floor, self.count);
        let mut first = kept.values.map_or(floor, |most| floor.max(count.saturating_sub(most)));
        for (moment, most) in &kept.of_former {
            let came = self.track.first_at(floor..count, keys::order_at(*moment))?;
            first = first.max(came.saturating_sub(*most));
        }
        match kept.not_before {
            Some(moment) => self.track.first_at(first..count, keys::order_at(moment)),
            None => Ok(first),
        }
    }
}

/// Reads a page of a series that is found without reading other values; `None` if there is no such series.
pub fn page(db: &DB, device: u64, element: &str, query: &ReadyQuery) -> Result<Option<Page<StoredValue>>> {
    let Some(mut series) = OpenSeries::of(db, device, element, ReadOptions::default())? else { return Ok(None) };
    let (within, request) = (series.within(query)?, query.request);
    let total = within.end - within.start;
    let items = window(&mut series.track, within, request, query.newest_first() == Some(true))?;
    Ok(Some(Page::new(items, total, request)))
}

/// Returns the moments of the first and the last value in a query's range, or `None` without values.
pub fn extent(db: &DB, device: u64, element: &str, query: &ReadyQuery) -> Result<Option<(Timestamp, Timestamp)>> {
    let Some(mut series) = OpenSeries::of(db, device, element, ReadOptions::default())? else { return Ok(None) };
    let within = series.within(query)?;
    if within.is_empty() {
        return Ok(None);
    }
    let (first, last) = (series.track.order_at(within.start)?, series.track.order_at(within.end - 1)?);
    Ok(first.map(keys::moment).zip(last.map(keys::moment)))
}

pub(super) fn stored(value: &[u8]) -> Result<StoredValue> {
    read_value(value).map(|(id, order, payload)| StoredValue {
        id,
        created_at: keys::moment(order),
        payload: json(payload),
    })
}

fn window(
    track: &mut Track<'_>,
    within: Range<u64>,
    request: PageRequest,
    newest_first: bool,
) -> Result<Vec<StoredValue>> {
    let slice = slice(within, request, newest_first);
    let (mut items, mut budget) = (Vec::with_capacity((slice.end - slice.start) as usize), PageBudget::default());
    if !slice.is_empty() {
        track.read(slice, |_, value| {
            budget.take(value.len())?;
            items.push(stored(value)?);
            Ok(true)
        })?;
    }
    if newest_first {
        items.reverse();
    }
    Ok(items)
}

/// Fetches the values at these sequences of a series.
pub(super) fn fetch(db: &DB, series: u64, sequences: &[u64]) -> Result<Vec<StoredValue>> {
    let values = engine::family(db, Family::Values)?;
    let (mut items, mut budget) = (Vec::with_capacity(sequences.len()), PageBudget::default());
    for sequence in sequences {
        // The value is missing if the series was deleted in the meantime.
        if let Some(value) = db.get_pinned_cf(values, keys::pair(series, *sequence)).map_err(failed)? {
            budget.take(value.len())?;
            items.push(stored(&value)?);
        }
    }
    Ok(items)
}
