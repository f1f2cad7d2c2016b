//! Reads and removes the queued cloud events of devices.

use std::ops::Range;

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, EventType};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId, OrganizationId};
use uuid::Uuid;

use super::cache::Held;
use super::commit_queue::Sent;
use super::keys::{self, Family};
use super::live::Live;
use super::load::{current, rows};
use super::rows::{damaged, json, read_queued, trailing};
use super::slices::{Sliced, Watch};
use super::{Cancel, Core, Embedded};
use crate::error::{Result, StoreError};
use crate::telemetry::QueueQuery;
use crate::telemetry::page_budget::{PageBudget, written_bytes};
use isobar_quota::Claim;

/// Rows, and (next constant) bytes of them, that a search reads without a slot.
const QUEUE_ROWS_AT_ONCE: usize = 256;
const QUEUE_BYTES_AT_ONCE: usize = 4 << 20;
/// Searches of one reader, while others repeatedly take the events that it has found.
const LOOKS_MAX: usize = 32;

/// Events that a reader of a queue found.
#[derive(Default)]
struct QueuePage {
    events: Vec<Event>,
    /// Sequences of the events.
    sequences: Vec<u64>,
    /// Sequences of expired events that were passed.
    expired: Vec<u64>,
}

/// Search of a queue for the events of a page, or for one event; it can be interrupted and continued.
struct Look {
    device: DeviceRef,
    wanted: Wanted,
    generation: u64,
    /// Sequences that were not read yet.
    left: Range<u64>,
    skip: u64,
    found: QueuePage,
    /// Budget of the page; `None` when it is used up: later events stay in the queue for the next reader.
    budget: Option<PageBudget>,
    /// True if found events are taken.
    takes: bool,
}

#[derive(Clone)]
enum Wanted {
    Page(QueueQuery),
    One(EventId),
}

impl Look {
    /// Creates a search that has read nothing.
    fn new(device: DeviceRef, wanted: Wanted, generation: u64, span: Range<u64>) -> Self {
        let (mut left, mut skip) = (span, 0);
        if let Wanted::Page(query) = &wanted {
            skip = query.page.offset();
            if skip == 0 {
                left.start = query.looked.until(generation).max(left.start);
            }
        }
        Self {
            device,
            wanted,
            generation,
            left,
            skip,
            found: QueuePage::default(),
            budget: Some(PageBudget::of_queue()),
            takes: true,
        }
    }

    /// Continues until all wanted events are found, or `goes_on` returns false for a row of this many bytes. Returns
    /// true if the search is over.
    fn go_on(&mut self, core: &Core, mut goes_on: impl FnMut(usize) -> Result<bool>) -> Result<bool> {
        let key = |sequence| keys::pair(self.device.key.0, sequence);
        let (from, to) = (key(self.left.start), key(self.left.end));
        let mut queued = rows(&core.db, Family::Queue, &from, &to)?;
        queued.seek_to_first();
        while !self.has_all()
            && let Some((key, value)) = current(&queued)?
        {
            let sequence = trailing(key)?;
            self.take(sequence, value)?;
            self.left.start = sequence + 1;
            if !goes_on(value.len())? {
                return Ok(false);
            }
            queued.next();
        }
        if !self.has_all()
            && let Wanted::Page(query) = &self.wanted
            && self.found.events.is_empty()
            && query.page.offset() == 0
        {
            query.looked.reach(self.generation, self.left.end);
        }
        Ok(true)
    }

    fn has_all(&self) -> bool {
        match &self.wanted {
            Wanted::Page(query) => self.budget.is_none() || self.found.events.len() >= query.page.limit as usize,
            Wanted::One(_) => !self.found.sequences.is_empty(),
        }
    }

    fn take(&mut self, sequence: u64, value: &[u8]) -> Result<()> {
        let query = match &self.wanted {
            Wanted::Page(query) => query,
            Wanted::One(id) => {
                if value.starts_with(id.bytes()) {
                    self.found.sequences.push(sequence);
                }
                return Ok(());
            }
        };
        let event = read_queued(value)?;
        if event.expires <= query.now.millis() {
            self.found.expired.push(sequence);
        } else if query.element.as_ref().is_none_or(|element| element == event.element) {
            if self.skip == 0 {
                match self.budget.as_mut().map(|budget| budget.take(value.len())) {
                    Some(Ok(())) => {}
                    _ if self.takes => {
                        self.budget = None;
                        return Ok(());
                    }
                    _ => return Err(StoreError::TooMuch),
                }
                self.found.sequences.push(sequence);
                self.found.events.push(Event {
                    id: event.id,
                    received_at: event.id.minted_at(),
                    kind: EventType::CloudEvent,
                    device: self.device.id,
                    element: event.element.into(),
                    payload: json(event.payload),
                    errors: Vec::new(),
                });
            } else {
                self.skip -= 1;
            }
        }
        Ok(())
    }

    /// Drops events that others have taken since they were found. Returns false if the device was loaded again, and its
    /// sequences mean other events.
    fn keep_what_is_there(&mut self, queue: &Live) -> bool {
        let found = &mut self.found;
        let mut is_there =
            found.sequences.iter().map(|sequence| queue.contains(*sequence)).collect::<Vec<_>>().into_iter();
        // A search for one event by its id records only the sequence.
        found.events.retain(|_| is_there.next().unwrap_or_default());
        found.sequences.retain(|sequence| queue.contains(*sequence));
        found.expired.retain(|sequence| queue.contains(*sequence));
        queue.generation() == self.generation
    }
}

impl Sliced for Look {
    type Done = Self;

    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Self>> {
        let is_over = Look::go_on(self, core, |bytes| watch.goes_on(bytes))?;
        let rest = Self::new(self.device, Wanted::One(EventId(Uuid::nil())), self.generation, 0..0);
        Ok(is_over.then(|| std::mem::replace(self, rest)))
    }
}

/// Waits until the commits of the device are readable, and begins a search.
fn begin(core: &Core, held: &Held, device: DeviceRef, wanted: Wanted) -> Result<Look> {
    let state = held.state.as_ref().ok_or_else(|| damaged("a device is not loaded"))?;
    core.shared.wait_applied(state.ticket)?;
    let (from, to) = state.queue.span().unwrap_or_default();
    Ok(Look::new(device, wanted, state.queue.generation(), from..to))
}

/// Reads a few rows. Returns true if the search is over.
fn look_at_once(core: &Core, look: &mut Look, cancel: &Cancel) -> Result<bool> {
    let (mut rows_left, mut bytes_left) = (QUEUE_ROWS_AT_ONCE, QUEUE_BYTES_AT_ONCE);
    look.go_on(core, |bytes| {
        cancel.check()?;
        (rows_left, bytes_left) = (rows_left - 1, bytes_left.saturating_sub(bytes));
        Ok(rows_left > 0 && bytes_left > 0)
    })
}

/// Removes events from a device's queue, in memory and in the database.
fn remove(core: &Core, held: &mut Held, device: DeviceKey, sequences: impl Iterator<Item = u64>) -> Result<Sent> {
    let removed = core.change(held, |state, rows| {
        for sequence in sequences {
            state.queue.remove(sequence);
            rows.delete(Family::Queue, &keys::pair(device.0, sequence));
        }
    });
    removed.map(|((), sent)| sent)
}

impl Embedded {
    /// Locks the device, if its queue has events.
    async fn hold_queue(&self, device: DeviceKey, tenant: Option<OrganizationId>) -> Result<Option<Held>> {
        let held = self.hold(device, tenant).await?;
        let empty = held.state.as_ref().is_none_or(|state| state.queue.is_empty());
        Ok((!empty).then_some(held))
    }

    /// Continues a search in slices, charged to the tenant. The device is unlocked: its runs never wait for readers.
    async fn look_on(&self, look: Look, tenant: Option<OrganizationId>) -> Result<Look> {
        let claim = Claim::begin(tenant.unwrap_or(OrganizationId(Uuid::nil())));
        self.in_slices(self.scans.take(claim).await?, look).await
    }

    /// Reads events and leaves them in the queue.
    pub(super) async fn peek_queue(&self, permit: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>> {
        let device = *permit.target();
        let Some(held) = self.hold_queue(device.key, permit.tenant()).await? else { return Ok(Vec::new()) };
        let peek = move |core: &Core, cancel: &Cancel| {
            let mut look = begin(core, &held, device, Wanted::Page(query))?;
            look.takes = false;
            drop(held);
            let is_over = look_at_once(core, &mut look, cancel)?;
            Ok((look, is_over))
        };
        let (mut look, is_over) = self.reading(peek).await?;
        if !is_over {
            look = self.look_on(look, permit.tenant()).await?;
        }
        Ok(look.found.events)
    }

    /// Reads and removes events; expired events that are passed are removed too.
    pub(super) async fn take_from_queue(
        &self,
        permit: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        let Some((look, sent)) = self.take(permit, &Wanted::Page(query), may).await? else { return Ok(None) };
        if let Some(mut sent) = sent
            && !look.events.is_empty()
        {
            sent.durable.wait().await?;
        }
        Ok(Some(look.events))
    }

    /// Removes one event.
    pub(super) async fn delete_from_queue(&self, permit: &CanWrite<DeviceRef>, id: EventId) -> Result<bool> {
        match self.take(permit, &Wanted::One(id), Box::new(|_| true)).await? {
            Some((_, Some(mut sent))) => sent.durable.wait().await.map(|()| true),
            _ => Ok(false),
        }
    }

    /// Takes the wanted events. A long search runs without the device's lock, and its events are then taken if they
    /// still exist.
    async fn take(
        &self,
        permit: &CanWrite<DeviceRef>,
        wanted: &Wanted,
        mut may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<(QueuePage, Option<Sent>)>> {
        let device = *permit.target();
        let mut found = None;
        for _ in 0..LOOKS_MAX {
            let Some(mut held) = self.hold_queue(device.key, permit.tenant()).await? else {
                return Ok(may(0).then(|| (QueuePage::default(), None)));
            };
            let (wanted, before) = (wanted.clone(), found.take());
            let take = move |core: &Core, cancel: &Cancel| {
                // Events queued after the permit has ended arrive after this device is unlocked.
                if !may(0) {
                    return Ok((may, Taken::Refused));
                }
                let taken = take_now(core, &mut held, device, (wanted, before), &may, cancel)?;
                Ok((may, taken))
            };
            let (asked, taken) = self.reading(take).await?;
            may = asked;
            match taken {
                Taken::Refused => return Ok(None),
                Taken::All(found, sent) => return Ok(Some((found, sent))),
                Taken::Long(look) => found = Some(self.look_on(look, permit.tenant()).await?),
                Taken::Overtaken => {}
            }
        }
        Err(StoreError::Busy)
    }
}

/// Outcome of an attempt to take events.
enum Taken {
    Refused,
    All(QueuePage, Option<Sent>),
    /// The search needs more than a few rows.
    Long(Look),
    /// Other readers have taken all events that were found.
    Overtaken,
}

/// Takes the events of an earlier search, or searches.
fn take_now(
    core: &Core,
    held: &mut Held,
    device: DeviceRef,
    (wanted, before): (Wanted, Option<Look>),
    may: &dyn Fn(usize) -> bool,
    cancel: &Cancel,
) -> Result<Taken> {
    let found = match before {
        Some(mut look) => {
            let state = held.state.as_ref().ok_or_else(|| damaged("a device is not loaded"))?;
            let had = !look.found.sequences.is_empty();
            if !look.keep_what_is_there(&state.queue) || had && look.found.sequences.is_empty() {
                return Ok(Taken::Overtaken);
            }
            look.found
        }
        None => {
            let mut look = begin(core, held, device, wanted)?;
            if !look_at_once(core, &mut look, cancel)? {
                return Ok(Taken::Long(look));
            }
            look.found
        }
    };
    let gone = found.sequences.iter().chain(&found.expired).copied();
    if gone.clone().next().is_none() {
        return Ok(Taken::All(found, None));
    }
    if !may(found.events.iter().map(written_bytes).sum()) {
        return Ok(Taken::Refused);
    }
    // No event is taken for a reader that is gone.
    cancel.check()?;
    let sent = remove(core, held, device.key, gone)?;
    Ok(Taken::All(found, Some(sent)))
}
