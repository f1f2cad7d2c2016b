//! Reads the history of devices: a page merges two timelines, which are bisected; each event is fetched by its id.

use std::ops::Range;

use isobar_model::event::Event;
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::page::{Page, PageRequest, TimeRange};
use isobar_model::time::Timestamp;

use super::keys::{self, Family, TimeOrder};
use super::load;
use super::rows::{event_device, failed, read_event, read_timeline};
use super::seek::Track;
use super::{Core, engine};
use crate::error::Result;
use crate::telemetry::HistoryQuery;
use crate::telemetry::page_budget::PageBudget;
use crate::telemetry::ready_query::{orders, slice};

/// Part of a timeline.
pub(super) struct Part<'a> {
    kind: u8,
    pub track: Track<'a>,
    pub within: Range<u64>,
}

impl<'a> Part<'a> {
    /// Finds the part of a device's timeline within a range of time.
    pub fn of(core: &'a Core, device: u64, kind: u8, range: Range<TimeOrder>) -> Result<Self> {
        let (from, to) = (keys::timeline(device, kind, 0), keys::timeline(device, kind + 1, 0));
        let mut track = Track {
            rows: load::rows(&core.db, Family::Timeline, &from, &to)?,
            key: Box::new(move |sequence| keys::timeline(device, kind, sequence)),
            key_length: 17,
            order: |value| read_timeline(value).map(|(_, order)| order),
        };
        let floor = core.reclaim.floors(device)[usize::from(kind)];
        let next = load::timeline(&core.db, device, kind)?.next.max(floor);
        // The first rows are missing for a device that was forgotten earlier, or with history past retention.
        let all = track.first_from(floor)?.unwrap_or(next)..next;
        let within = if range.start >= range.end {
            next..next
        } else {
            let low = track.first_at(all.clone(), range.start)?;
            low..if range.end == TimeOrder::MAX { all.end } else { track.first_at(low..all.end, range.end)? }
        };
        Ok(Self { kind, track, within })
    }

    fn len(&self) -> u64 {
        self.within.end - self.within.start
    }

    /// Returns the time order of the n-th event from the newest.
    fn newest(&mut self, nth: u64) -> Result<(TimeOrder, u8)> {
        let order = self.track.order_at(self.within.end - 1 - nth)?;
        Ok((order.unwrap_or(TimeOrder::MAX), self.kind))
    }

    /// Reads the events of a page, newest first.
    fn page(&mut self, request: PageRequest) -> Result<Vec<(TimeOrder, u8, EventId)>> {
        let kind = self.kind;
        let mut found = Vec::new();
        let slice = slice(self.within.clone(), request, true);
        if !slice.is_empty() {
            self.track.read(slice, |_, value| {
                let (id, order) = read_timeline(value)?;
                found.push((order, kind, id));
                Ok(true)
            })?;
        }
        found.reverse();
        Ok(found)
    }

    /// Reads the events of a page after this many skipped ones.
    fn after(&mut self, skipped: u64, limit: u32) -> Result<Vec<(TimeOrder, u8, EventId)>> {
        let within = self.within.clone();
        self.within.end -= skipped;
        let found = self.page(PageRequest::new(1, limit));
        self.within = within;
        found
    }
}

/// Returns how many of the newest `skipped` events of two timelines belong to the first.
fn split(left: &mut Part<'_>, right: &mut Part<'_>, skipped: u64) -> Result<u64> {
    let (mut low, mut high) = (skipped.saturating_sub(right.len()), skipped.min(left.len()));
    while low < high {
        let middle = low + (high - low) / 2;
        // The next event of the left is newer than the last one taken of the right: more of the left are included.
        if left.newest(middle)? > right.newest(skipped - middle - 1)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Returns the range of time that readers may see.
pub(super) fn visible(core: &Core, range: TimeRange, not_before: Timestamp) -> Range<TimeOrder> {
    let cutoff = Timestamp::from_millis(core.cutoffs.history.load(std::sync::atomic::Ordering::Acquire));
    let range = orders(range);
    range.start.max(keys::order_at(not_before)).max(keys::order_at(cutoff))..range.end
}

/// Reads a page of a device's history, newest first.
pub fn page(core: &Core, device: DeviceRef, query: &HistoryQuery) -> Result<Page<Event>> {
    let range = visible(core, query.range, query.not_before);
    let kinds = [(0, query.device_events), (1, query.cloud_events)].into_iter().filter(|(_, wanted)| *wanted);
    let mut parts = Vec::new();
    for (kind, _) in kinds {
        parts.push(Part::of(core, device.key.0, kind, range.clone())?);
    }
    let total: u64 = parts.iter().map(Part::len).sum();
    let found = match parts.as_mut_slice() {
        [only] => only.page(query.page)?,
        [left, right] if query.page.offset() < total => {
            let skipped = query.page.offset();
            let of_left = split(left, right, skipped)?;
            let mut found = left.after(of_left, query.page.limit)?;
            found.extend(right.after(skipped - of_left, query.page.limit)?);
            found.sort_unstable_by_key(|event| std::cmp::Reverse((event.0, event.1)));
            found.truncate(query.page.limit as usize);
            found
        }
        _ => Vec::new(),
    };
    Ok(Page::new(fetch(core, device, &found)?, total, query.page))
}

/// Fetches the events of a page, each with the time order by which it was found.
fn fetch(core: &Core, device: DeviceRef, found: &[(TimeOrder, u8, EventId)]) -> Result<Vec<Event>> {
    let history = engine::family(&core.db, Family::History)?;
    let (mut events, mut budget) = (Vec::new(), PageBudget::default());
    for (order, _, id) in found.iter().copied() {
        // The event is missing if retention or a deletion was faster.
        if let Some(value) = core.db.get_pinned_cf(history, id.bytes()).map_err(failed)? {
            budget.take(value.len())?;
            events.push(Event { received_at: keys::moment(order), ..read_event(device.id, id, &value)? });
        }
    }
    Ok(events)
}

/// Fetches one event of a device.
pub fn event(core: &Core, device: DeviceRef, id: EventId) -> Result<Option<Event>> {
    let history = engine::family(&core.db, Family::History)?;
    let Some(value) = core.db.get_pinned_cf(history, id.bytes()).map_err(failed)? else { return Ok(None) };
    let shown_from = visible(core, TimeRange::default(), Timestamp::default()).start;
    if event_device(&value)? != device.key.0 || keys::order_of(id) < shown_from {
        return Ok(None);
    }
    if core.reclaim.floors(device.key.0) != [0, 0] && !stands(core, device.key.0, &value, id)? {
        return Ok(None);
    }
    read_event(device.id, id, &value).map(Some)
}

/// Returns true if an event is still in its timeline.
pub(super) fn stands(core: &Core, device: u64, value: &[u8], id: EventId) -> Result<bool> {
    let kind = value.first().copied().unwrap_or_default();
    let mut part = Part::of(core, device, kind, keys::order_of(id)..TimeOrder::MAX)?;
    let mut found = false;
    part.track.read(part.within.clone(), |_, value| {
        found = read_timeline(value)?.0 == id;
        Ok(false)
    })?;
    Ok(found)
}
