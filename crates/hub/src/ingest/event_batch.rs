//! Many device events in one call: those of one device in their order, devices side by side. Each is judged, runs and is
//! committed as a single one; all that is accepted is waited for together.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use isobar_model::access::Action;
use isobar_model::check::Faults;
use isobar_model::error::{Error, Fault, RateWindow, Result};
use isobar_model::event_batch::{BatchEvent, BatchItem, calls_of, read_batch};
use isobar_model::ids::{DeviceId, EventId};
use isobar_model::json::parse;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Ingest;
use super::accepted::Accepted;
use super::event_input::{accepted_name, check_idempotency_key, element_name};
use super::incoming::Incoming;
use super::revisions::LinePlace;
use crate::error::{OrderedItems, is_ours, of_one_of_many};
use crate::identity::authentication::Principal;
use crate::support::pace::Slices;
use isobar_quota::NOBODY;
use isobar_quota::{TenantShares, limits};

/// Devices of a batch whose events run at a time.
const BATCH_DEVICES_AT_ONCE: usize = 64;
/// Events of a batch that have run and wait to be durable: of 64 batches at the same time they fill half of the store's queue.
const BATCH_UNDER_WAY_MAX: usize = 128;
/// Time for which a batch runs events on a serving thread before calls and other batches get it.
const BATCH_SLICE: Duration = Duration::from_micros(250);
/// Tries of an event that the store has no room for, after the batch's own before it are durable.
const BATCH_TRIES_MAX: usize = 8;
/// A body's bytes count so often: as it came, and as payloads.
const BATCH_BYTES_TIMES: usize = 2;

/// Makes the share of memory for batches.
pub(super) fn batch_bytes() -> Arc<TenantShares> {
    TenantShares::new(&limits::EVENT_BATCH_BYTES)
}

/// The outcome of a batch.
#[derive(Debug)]
pub struct BatchReport {
    /// The events that were accepted, by their place in the batch: all are durable.
    pub accepted: Vec<(usize, EventId)>,
    /// The other items by position in the batch, with the reason for their refusal.
    pub refused: Vec<(usize, String)>,
    /// The rate window after the batch was counted, where it counts as more than the one call that it came by.
    pub window: Option<RateWindow>,
}

/// An event that has run, at its place in the batch, and its place among those that wait to be durable.
type AcceptedItem<'b> = (usize, Accepted, SemaphorePermit<'b>);

/// The outcome of one item.
type EventResult = (usize, Result<EventId>);

/// The events of one device, in their order.
#[derive(Default)]
struct DeviceRun<'b> {
    results: Vec<EventResult>,
    under_way: VecDeque<AcceptedItem<'b>>,
    order: OrderedItems,
}

/// A batch whose events run.
struct BatchRun<'a> {
    ingest: &'a Arc<Ingest>,
    principal: &'a Principal,
    slices: Slices<'a>,
    under_way: Semaphore,
}

impl Ingest {
    /// Checks that the caller may post events at all.
    pub(crate) async fn allow_batch(&self, principal: &Principal) -> Result<()> {
        match principal {
            Principal::Device(_) => Ok(()),
            _ => self.identity.allow(principal.user()?, Action::DeviceEventCreate).await,
        }
    }

    /// Accepts a batch: all that is accepted of it is durable when this returns. The calls that it is worth beyond the one by
    /// which it came are counted before anything is done.
    pub(crate) async fn events_accept(self: &Arc<Self>, principal: &Principal, body: Bytes) -> Result<BatchReport> {
        self.allow_batch(principal).await?;
        let (tenant, length) = (principal.tenant(), body.len());
        let _share = self.batch_bytes.take(tenant.unwrap_or(NOBODY), length.saturating_mul(BATCH_BYTES_TIMES))?;
        let items = self.env.bodies().read(tenant, length, move || read_items(&body)).await??;
        let window = match calls_of(items.len()) - 1 {
            0 => None,
            more => self.identity.count_further(principal, more)?,
        };
        let (slices, under_way) = (Slices::of(&self.batch_pace, BATCH_SLICE), Semaphore::new(BATCH_UNDER_WAY_MAX));
        let mut results = BatchRun { ingest: self, principal, slices, under_way }.run(items).await;
        results.sort_unstable_by_key(|(index, _)| *index);
        report(results, window)
    }
}

fn read_items(body: &Bytes) -> Result<Vec<BatchItem>> {
    let text = std::str::from_utf8(body)
        .map_err(|error| Error::invalid("body", format!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
    read_batch(&parse(text).map_err(|fault| Error::invalid("body", fault.to_string()))?)
}

/// Makes the report of a batch. If the stores accepted nothing at all, the whole batch is refused, so that it is retried.
fn report(mut results: Vec<EventResult>, window: Option<RateWindow>) -> Result<BatchReport> {
    let fails = |(_, result): &EventResult| result.as_ref().is_err_and(is_ours);
    if let Some(first) = results.iter().position(fails)
        && results.iter().all(|(_, result)| result.is_err())
    {
        return Err(results.swap_remove(first).1.err().unwrap_or(Error::Busy));
    }
    let mut report = BatchReport { accepted: Vec::with_capacity(results.len()), refused: Vec::new(), window };
    for (index, result) in results {
        match result {
            Ok(id) => report.accepted.push((index, id)),
            Err(error) => report.refused.push((index, of_one_of_many(&error, "an event of a batch", told))),
        }
    }
    Ok(report)
}

impl BatchRun<'_> {
    /// Runs all events: what came of each, in no order.
    async fn run(&self, items: Vec<BatchItem>) -> Vec<EventResult> {
        let mut results = Vec::with_capacity(items.len());
        let mut of_devices: HashMap<Option<DeviceId>, Vec<(usize, BatchEvent)>> = HashMap::new();
        for (index, item) in items.into_iter().enumerate() {
            match item {
                // Those that name no device fail one by one, or are of the device that calls.
                Ok(event) => {
                    let device = event.device.as_deref().and_then(|text| text.parse().ok());
                    of_devices.entry(device.or(self.own())).or_default().push((index, event));
                }
                Err(faults) => results.push((index, Err(Error::Invalid(faults)))),
            }
        }
        let (mut waiting, mut running) = (of_devices.into_values(), FuturesUnordered::new());
        loop {
            while running.len() < BATCH_DEVICES_AT_ONCE
                && let Some(events) = waiting.next()
            {
                running.push(self.run_in_order(events));
            }
            match running.next().await {
                Some(of_device) => results.extend(of_device),
                None => return results,
            }
        }
    }

    /// The device that calls, if it is one.
    fn own(&self) -> Option<DeviceId> {
        match self.principal {
            Principal::Device(session) => Some(session.device().id),
            _ => None,
        }
    }

    /// Runs the events of one device, one after the other, and waits until all are durable. After one that the stores did not
    /// take, no other runs.
    async fn run_in_order(&self, events: Vec<(usize, BatchEvent)>) -> Vec<EventResult> {
        let mut run = DeviceRun { results: Vec::with_capacity(events.len()), ..DeviceRun::default() };
        for (index, event) in events {
            self.slices.next().await;
            match self.begin(&event, &mut run).await {
                Ok((accepted, place)) => run.under_way.push_back((index, accepted, place)),
                Err(error) => run.fail(index, error).await,
            }
        }
        run.settle(0).await;
        run.results
    }

    /// Runs one event. Where there is no room for it, those of its device that are under way become durable first.
    async fn begin<'b>(
        &'b self,
        event: &BatchEvent,
        run: &mut DeviceRun<'b>,
    ) -> Result<(Accepted, SemaphorePermit<'b>)> {
        let mut tries = 0;
        loop {
            if let Some(failure) = run.order.failure() {
                return Err(failure);
            }
            let place = match self.under_way.try_acquire() {
                Ok(place) => place,
                Err(_) if !run.under_way.is_empty() => {
                    run.settle(run.under_way.len() / 2).await;
                    continue;
                }
                Err(_) => self.under_way.acquire().await.map_err(Error::internal)?,
            };
            tries += 1;
            match self.ingest.event_of_batch(self.principal, event).await {
                Err(Error::Busy) if !run.under_way.is_empty() && tries < BATCH_TRIES_MAX => {
                    drop(place);
                    run.settle(0).await;
                }
                accepted => return accepted.map(|accepted| (accepted, place)),
            }
        }
    }
}

impl DeviceRun<'_> {
    /// Waits for the oldest of the events that are under way until no more than `left` are left.
    async fn settle(&mut self, left: usize) {
        while self.under_way.len() > left
            && let Some((index, accepted, _place)) = self.under_way.pop_front()
        {
            let result = accepted.durable().await;
            self.results.push((index, self.order.next(result)));
        }
    }

    /// Adds the failure of an event that is not under way. One of ours comes after the results of earlier events.
    async fn fail(&mut self, index: usize, error: Error) {
        if is_ours(&error) {
            self.settle(0).await;
        }
        self.results.push((index, self.order.next(Err(error))));
    }
}

impl Ingest {
    /// Accepts one event of a batch, as a single one is accepted.
    async fn event_of_batch(self: &Arc<Self>, principal: &Principal, event: &BatchEvent) -> Result<Accepted> {
        let (mut faults, key) = (Faults::new(), event.idempotency_key.as_deref());
        if let (Principal::Device(session), Some(named)) = (principal, event.device.as_deref())
            && named.parse() != Ok(session.device().id)
        {
            faults.add("query.deviceId", "is not the device that calls");
        }
        let target = self.event_device(principal, event.device.as_deref(), &mut faults).await?;
        let element = element_name(event.element.as_deref(), &mut faults);
        check_idempotency_key(key, &mut faults);
        let (Some((permit, entry)), Some(element)) = (target, element) else { return Err(faults.into_error()) };
        let plan = self.caches.plan_of_device(&entry).await?;
        let (now, name) = (self.env.now(), accepted_name(&plan, element, &mut faults));
        drop(plan);
        faults.end()?;
        let element = name.unwrap_or_else(|| Arc::from(element));
        let (payload, idempotency_key) = (event.payload.clone(), key.map(Cow::Borrowed));
        let event = Incoming { element, payload, idempotency_key, now, refused: None, ran: None };
        // Nobody waits here until it is durable: the next one runs meanwhile.
        let mut place = LinePlace::default();
        match self.run_event(&permit, &entry, &event, None, &mut place).await? {
            Some(accepted) => Ok(accepted),
            None => self.run_event_by_newer(&permit, entry.device.id, &event, place).await,
        }
    }
}

/// A fault of an item with the member that it is of. Checks that are those of a single event's parameters name where that
/// has them.
fn told(fault: &Fault) -> String {
    let member = match fault.field.as_str() {
        "body" => return fault.message.clone(),
        "query.deviceId" => "deviceId",
        "query.elementName" => "elementName",
        "header.Idempotency-Key" => "idempotencyKey",
        member => member,
    };
    format!("{member}: {}", fault.message)
}

#[cfg(test)]
mod tests {
    use isobar_model::ids::OrganizationId;

    use isobar_quota::Full;

    use super::*;
    use crate::stage::Stage;

    /// Bytes of a batch that is as long as a body may be, as they count.
    const LARGE_BYTES: usize = BATCH_BYTES_TIMES << 20;

    #[tokio::test]
    async fn four_tenants_that_take_what_they_can_leave_a_fifth_its_batches() {
        let stage = Stage::set().await;
        let device = stage.device(r#"{"reading":{"type":"deviceEvent"}}"#).await;
        let ingest = &stage.hub.0.ingest;
        let take = |tenant: u128| ingest.batch_bytes.take(OrganizationId(uuid::Uuid::from_u128(tenant)), LARGE_BYTES);
        let mut held = Vec::new();
        for tenant in 1..=4 {
            held.extend(std::iter::from_fn(|| take(tenant).ok()));
            assert!(matches!(take(tenant), Err(Full { .. })));
        }
        let batch = format!(r#"[{{"deviceId":"{}","elementName":"reading","payload":1}}]"#, device.id);
        let caller = Principal::User(Arc::clone(&stage.admin));
        let report = ingest.events_accept(&caller, batch.into()).await.unwrap();
        assert_eq!((report.accepted.len(), report.refused.len()), (1, 0));
        drop(held);
        stage.over().await;
    }
}
