//! The queues of cloud events.

use std::ops::Range;

use isobar_model::event::{Event, EventType};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId};

use super::cache::Held;
use super::commit_queue::Sent;
use super::device::DeviceState;
use super::keys::{self, Family};
use super::load::{current, rows};
use super::rows::{Rows, damaged, json, read_queued};
use super::{Cancel, Core, Embedded};
use crate::error::Result;
use crate::telemetry::QueueQuery;

/// What a reader of a queue found.
#[derive(Default)]
struct QueuePage {
    events: Vec<Event>,
    /// Their sequences.
    sequences: Vec<u64>,
    /// Sequences of expired events on the way.
    expired: Vec<u64>,
}

fn find(core: &Core, device: DeviceRef, span: Range<u64>, query: &QueueQuery, cancel: &Cancel) -> Result<QueuePage> {
    let (from, to) = (keys::pair(device.key.0, span.start), keys::pair(device.key.0, span.end));
    let mut queued = rows(&core.db, Family::Queue, &from, &to)?;
    queued.seek_to_first();
    let mut found = QueuePage::default();
    let mut skip = query.page.offset();
    while found.events.len() < query.page.limit as usize {
        cancel.check()?;
        let Some((key, value)) = current(&queued)? else { break };
        let sequence = keys::trailing(key).ok_or_else(|| damaged("a key is too short"))?;
        let event = read_queued(value)?;
        if event.expires <= query.now.millis() {
            found.expired.push(sequence);
        } else if query.element.as_ref().is_none_or(|element| element == event.element) {
            if skip == 0 {
                found.sequences.push(sequence);
                found.events.push(Event {
                    id: event.id,
                    kind: EventType::CloudEvent,
                    device: device.id,
                    element: event.element.into(),
                    payload: json(event.payload),
                    errors: Vec::new(),
                });
            } else {
                skip -= 1;
            }
        }
        queued.next();
    }
    Ok(found)
}

/// Waits until what the device sent can be read; answers where its queue begins and ends.
fn settled(core: &Core, held: &Held) -> Result<Range<u64>> {
    let state = held.state.as_ref().ok_or_else(|| damaged("a device is not loaded"))?;
    core.shared.wait_applied(state.ticket)?;
    let (from, to) = state.queue.span().unwrap_or_default();
    Ok(from..to)
}

/// Removes events from a device's queue, in memory and in the database.
fn remove(core: &Core, held: &mut Held, device: DeviceKey, sequences: impl Iterator<Item = u64>) -> Result<Sent> {
    let reservation = core.shared.reserve()?;
    let state: &mut DeviceState = held.state.as_mut().ok_or_else(|| damaged("a device is not loaded"))?;
    let mut rows = Rows::default();
    for sequence in sequences {
        state.queue.remove(sequence);
        rows.delete(Family::Queue, &keys::pair(device.0, sequence));
    }
    let sent = reservation.send(&rows);
    state.ticket = sent.ticket;
    core.devices.weigh(held);
    Ok(sent)
}

impl Embedded {
    /// The device if its queue holds anything.
    async fn hold_queue(&self, device: DeviceKey) -> Result<Option<Held>> {
        let held = self.hold(device).await?;
        let empty = held.state.as_ref().is_none_or(|state| state.queue.is_empty());
        Ok((!empty).then_some(held))
    }

    /// Reads and leaves.
    pub(super) async fn peek_queue(&self, device: DeviceRef, query: QueueQuery) -> Result<Vec<Event>> {
        let Some(held) = self.hold_queue(device.key).await? else { return Ok(Vec::new()) };
        let peek = move |core: &Core, cancel: &Cancel| {
            let span = settled(core, &held)?;
            drop(held);
            Ok(find(core, device, span, &query, cancel)?.events)
        };
        self.reading(peek).await
    }

    /// Reads and removes; expired events on the way are removed too.
    pub(super) async fn take_from_queue(
        &self,
        device: DeviceRef,
        query: QueueQuery,
        may: Box<dyn Fn() -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        let Some(mut held) = self.hold_queue(device.key).await? else { return Ok(may().then(Vec::new)) };
        let take = move |core: &Core, cancel: &Cancel| {
            // What is queued once the right has ended comes after this device is let go.
            if !may() {
                return Ok((None, None));
            }
            let span = settled(core, &held)?;
            let found = find(core, device, span, &query, cancel)?;
            let gone = found.sequences.iter().chain(&found.expired).copied();
            if gone.clone().next().is_none() {
                return Ok((Some(found.events), None));
            }
            // Nothing is taken for a reader who has gone.
            cancel.check()?;
            let sent = remove(core, &mut held, device.key, gone)?;
            Ok((Some(found.events), Some(sent)))
        };
        let (events, sent) = self.reading(take).await?;
        if let Some(sent) = sent
            && events.as_ref().is_some_and(|events| !events.is_empty())
        {
            sent.durable.await?;
        }
        Ok(events)
    }

    /// Removes one event.
    pub(super) async fn delete_from_queue(&self, device: DeviceRef, id: EventId) -> Result<bool> {
        let Some(mut held) = self.hold_queue(device.key).await? else { return Ok(false) };
        let delete = move |core: &Core, cancel: &Cancel| {
            let span = settled(core, &held)?;
            let Some(sequence) = sequence_of(core, device.key, span, id, cancel)? else { return Ok(None) };
            remove(core, &mut held, device.key, std::iter::once(sequence)).map(Some)
        };
        match self.reading(delete).await? {
            Some(sent) => sent.durable.await.map(|()| true),
            None => Ok(false),
        }
    }
}

fn sequence_of(core: &Core, device: DeviceKey, span: Range<u64>, id: EventId, cancel: &Cancel) -> Result<Option<u64>> {
    let (from, to) = (keys::pair(device.0, span.start), keys::pair(device.0, span.end));
    let mut queued = rows(&core.db, Family::Queue, &from, &to)?;
    queued.seek_to_first();
    while let Some((key, value)) = current(&queued)? {
        if value.starts_with(id.bytes()) {
            return Ok(keys::trailing(key));
        }
        cancel.check()?;
        queued.next();
    }
    Ok(None)
}
