//! Calls that designs make to external servers. A call waits in the registry until it was made and the design has
//! received its answer, so it happens at least once. A call that failed for a transient reason is retried; a slow host
//! delays only its own calls. Calls keep no order.
//!
//! An answer that the design cannot take now replaces the call in the registry and is delivered later, so that a
//! failure in here repeats no call to an external server. While the registry accepts no writes, no further call is
//! made.

mod answer;
mod destinations;
#[cfg(test)]
mod tests;
mod traced;
mod under_way;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::OutgoingCall;
use isobar_store::registry::{DeliveryKind, LimitedDelivery, NewDelivery, QueuedDelivery};
use serde::{Deserialize, Serialize};

use self::answer::{answer_of, retry_at};
use self::destinations::{BEHIND_DESTINATIONS, destination_of, tenant_of};
use self::traced::TracedCall;
use self::under_way::{CALLS_OF_A_DESTINATION_MAX, UnderWay};
use super::turns::claim_end;
use super::{Delivery, is_too_old};
use crate::env::Env;
use crate::outbox::work::CallWork;
use crate::supervisor::{Shift, guarded};

/// Interval between queries for calls that are due.
const CALL_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Destinations that are examined together before the worker yields to others.
const DESTINATIONS_AT_ONCE: usize = 256;
const DESTINATIONS_OF_A_LOOK: usize = 2_048;
/// The pause before the next destinations are examined.
const NEXT_LOOK: Duration = Duration::from_millis(50);
/// Pending calls of one device. Above this the newest are dropped, and counted in /metrics.
const CALLS_OF_A_DEVICE_MAX: usize = 100;
/// Largest call, in bytes of its JSON.
const CALL_BYTES_MAX: usize = 512 << 10;
/// Tries to deliver a stored answer to its design: with pauses of up to an hour, for about half a day.
const HAND_OVERS_MAX: u32 = 20;
/// First and longest pause of a finished call that waits until the registry has recorded it.
const NOTE_PAUSE_FIRST: Duration = Duration::from_millis(100);
const NOTE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Calls of an earlier version that get their destinations at a time.
const DESTINATIONS_SET_AT_ONCE: usize = 32;
const CALLS_DROPPED: &str = "isobar_calls_dropped_total";
const ANSWERS: &str = "isobar_call_answers_total";

/// A call as it waits in the registry, or the answer to one.
#[derive(Serialize, Deserialize)]
struct QueuedCall {
    device: DeviceId,
    key: u64,
    #[serde(flatten)]
    stage: CallStage,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CallStage {
    Call(CallWork),
    /// The call was made; its design has still to be run on the answer.
    Answer(CallEnded),
}

/// The outcome of a call, for the design.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallEnded {
    /// The call, by its delivery.
    #[serde(default)]
    pub call: String,
    pub element: String,
    /// True for a response, false for a failure.
    pub response: bool,
    /// JSON as text, unchanged.
    pub payload: String,
}

/// Runs a device's design on the outcome of a call. Designs are in a module above this one, so the wiring passes this
/// function in.
pub(crate) type RunOnAnswer = Arc<dyn Fn(DeviceRef, CallEnded) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Returns the delivery of a call, named by its index among the calls of its run; `None` if the call is too large.
pub(super) fn delivery_of(
    call: &CallWork,
    device: DeviceRef,
    tenant: Option<OrganizationId>,
    ordinal: usize,
) -> Option<LimitedDelivery> {
    let source = format!("call:{}:", device.id);
    let id = format!("{source}{}:{ordinal}", call.event);
    let destination = Some(destination_of(tenant, &call.url));
    let queued = QueuedCall { device: device.id, key: device.key.0, stage: CallStage::Call(call.clone()) };
    let body = serde_json::to_string(&queued).ok().filter(|body| body.len() <= CALL_BYTES_MAX)?;
    let delivery = NewDelivery { id, kind: DeliveryKind::Call, body, destination };
    Some(LimitedDelivery { delivery, source, most: CALLS_OF_A_DEVICE_MAX })
}

/// Returns the destination of a queued call whose tenant was not recorded.
fn destination_of_body(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(QueuedCall { stage: CallStage::Call(call), .. }) => destination_of(None, &call.url),
        _ => destination_of(None, ""),
    }
}

fn count_answers(outcome: &'static str) {
    metrics::counter!(ANSWERS, "outcome" => outcome).increment(1);
}

/// The fate of a delivery after a try.
enum Becomes {
    /// The delivery is finished.
    Done,
    /// The delivery is retried at this time.
    TriedAgain(Timestamp),
    /// The call was made: the delivery gets this body, which is due at this time.
    Replaced(String, Timestamp),
}

impl Delivery {
    /// Counts calls that were dropped, and wakes the worker for those that were stored.
    pub(super) fn calls_were_put(&self, dropped: usize) {
        if dropped > 0 {
            metrics::counter!(CALLS_DROPPED).increment(dropped as u64);
            tracing::warn!(dropped, "calls of designs are dropped: too large, or too many wait");
        }
        self.calls_wake.notify_one();
    }

    /// Makes calls as they come due, until the hub stops.
    pub(crate) async fn run_calls(self: Arc<Self>, run_on_answer: RunOnAnswer, shift: Shift) {
        CallWorker { env: Arc::clone(&self.env), delivery: self, run_on_answer }.run(shift).await;
    }
}

/// Makes the calls.
#[derive(Clone)]
struct CallWorker {
    env: Arc<Env>,
    delivery: Arc<Delivery>,
    run_on_answer: RunOnAnswer,
}

impl CallWorker {
    async fn run(&self, mut shift: Shift) {
        let mut under_way = UnderWay::new();
        let mut all_have_destinations = false;
        loop {
            self.env.reaches("calls");
            let begun = async {
                all_have_destinations = all_have_destinations || self.set_destinations().await?;
                self.begin_calls(&mut under_way).await
            };
            let pause = begun.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "outgoing calls wait for the registry");
                CALL_LOOK_EVERY
            });
            shift.well();
            tokio::select! {
                // Calls that are under way are made again after the next start.
                () = shift.end() => return,
                () = under_way.end_one() => {}
                () = self.delivery.calls_wake.notified() => {}
                () = self.env.clock().sleep(pause) => {}
            }
        }
    }

    /// Gives calls of an earlier version their destinations. Returns true when all calls have one.
    async fn set_destinations(&self) -> Result<bool> {
        let registry = self.env.registry();
        loop {
            let without = registry.deliveries_without_destination(DeliveryKind::Call, DESTINATIONS_SET_AT_ONCE).await?;
            if without.is_empty() {
                return Ok(true);
            }
            let destinations: Vec<_> = without.into_iter().map(|it| (it.id, destination_of_body(&it.body))).collect();
            registry.delivery_destinations_set(&destinations).await?;
        }
    }

    /// Begins calls that are due, in rotation over their destinations. Returns the pause until the next search.
    async fn begin_calls(&self, under_way: &mut UnderWay) -> Result<Duration> {
        let (registry, now) = (self.env.registry(), self.env.now());
        self.delivery.keep_claims(under_way.ids()).await?;
        let (begins_at, mut is_second_round) = (std::mem::take(&mut under_way.next_destination), false);
        let (mut from, mut looked_at) = (begins_at.clone(), 0);
        while looked_at < DESTINATIONS_OF_A_LOOK && !under_way.is_full() {
            let destinations = registry.delivery_destinations(DeliveryKind::Call, &from, DESTINATIONS_AT_ONCE).await?;
            looked_at += destinations.len().max(1);
            let is_last = destinations.len() < DESTINATIONS_AT_ONCE;
            let mut next = None;
            for destination in destinations {
                if is_second_round && destination.name >= begins_at {
                    return Ok(CALL_LOOK_EVERY);
                }
                if under_way.is_full_of(&destination.name) {
                    next = Some(format!("{}{BEHIND_DESTINATIONS}", tenant_of(&destination.name)));
                    break;
                }
                if destination.due_at <= now {
                    self.begin_calls_of(&destination.name, now, under_way).await?;
                }
                // The next search begins behind this destination and before any other.
                next = Some(destination.name + "\u{1}");
            }
            match next {
                Some(behind) if !is_last || behind.ends_with(BEHIND_DESTINATIONS) => from = behind,
                _ if is_second_round || begins_at.is_empty() => return Ok(CALL_LOOK_EVERY),
                _ => (from, is_second_round) = (String::new(), true),
            }
        }
        under_way.next_destination = from;
        Ok(if under_way.is_full() { CALL_LOOK_EVERY } else { NEXT_LOOK })
    }

    /// Begins the calls of a destination that are due, as far as its limits allow.
    async fn begin_calls_of(&self, destination: &str, now: Timestamp, under_way: &mut UnderWay) -> Result<()> {
        let waiting = under_way.of_destination(destination);
        if waiting >= CALLS_OF_A_DESTINATION_MAX {
            return Ok(());
        }
        let most = CALLS_OF_A_DESTINATION_MAX + waiting;
        let registry = self.env.registry();
        let mut due = registry.deliveries_to(DeliveryKind::Call, destination, now, most).await?;
        due.retain(|delivery| !under_way.contains(&delivery.id));
        if self.env.config().has_other_nodes && !due.is_empty() {
            self.env.must_have_clock()?;
            due.truncate(CALLS_OF_A_DESTINATION_MAX - waiting);
            let claimed = registry.deliveries_claim(due.iter().map(|it| &*it.id), now, claim_end(now)).await?;
            due.retain(|delivery| claimed.contains(&delivery.id));
        }
        for delivery in due {
            if under_way.of_destination(destination) >= CALLS_OF_A_DESTINATION_MAX || under_way.is_full_of(destination)
            {
                break;
            }
            self.begin_call(under_way, delivery, destination.to_owned()).await?;
        }
        Ok(())
    }

    async fn begin_call(&self, under_way: &mut UnderWay, delivery: QueuedDelivery, destination: String) -> Result<()> {
        let Ok(queued) = serde_json::from_str::<QueuedCall>(&delivery.body) else {
            tracing::error!(id = delivery.id, "an outgoing call cannot be read and is dropped");
            return Ok(self.env.registry().delivery_done(&delivery.id).await?);
        };
        let (worker, id) = (self.clone(), delivery.id.clone());
        under_way.begin(id, destination, async move {
            let ended = guarded("call", worker.serve_call(&delivery, queued)).await;
            let becomes = ended.unwrap_or_else(|| worker.panicked(&delivery));
            worker.note_call(&delivery, becomes).await;
        });
        Ok(())
    }

    /// Makes a call and delivers its outcome to the design, or delivers a stored answer.
    async fn serve_call(&self, delivery: &QueuedDelivery, queued: QueuedCall) -> Becomes {
        self.env.reaches("call");
        let QueuedCall { device, key, stage } = queued;
        let device = DeviceRef { id: device, key: DeviceKey(key) };
        if let Ok(None) = self.delivery.caches.device_entry(device.id).await {
            // The device was deleted.
            return Becomes::Done;
        }
        let call = match stage {
            CallStage::Call(call) => call,
            CallStage::Answer(answer) => {
                let Err(error) = self.hand_over_answer(device, &answer).await else { return Becomes::Done };
                let tries = delivery.attempts.saturating_add(1);
                if tries >= HAND_OVERS_MAX || is_too_old(delivery, self.env.now()) {
                    count_answers("given_up");
                    tracing::error!(%error, device = %device.id, tries, "handing the answer of a call to its design failed too often, and is given up");
                    return Becomes::Done;
                }
                count_answers("later");
                return Becomes::TriedAgain(self.env.due_again(tries, self.env.now()));
            }
        };
        let CallWork { element, method, url, headers, body, traceparent, .. } = call;
        let traced = TracedCall::begin(&method, &url, traceparent);
        let (headers, body) = (traced.headers(headers), body.map(Bytes::from));
        let call = OutgoingCall { method, url, headers, body };
        let made = traced.work(self.delivery.calls.make(&call)).await;
        traced.end(&made);
        let Some((response, payload)) = answer_of(made, delivery.attempts) else {
            let chance = self.env.chance().bits_256()[0];
            return Becomes::TriedAgain(retry_at(self.env.now(), delivery.attempts, chance));
        };
        let answer = CallEnded { call: delivery.id.clone(), element, response, payload: payload.text().to_owned() };
        match traced.work(self.hand_over_answer(device, &answer)).await {
            Ok(()) => Becomes::Done,
            Err(error) => {
                count_answers("later");
                tracing::warn!(%error, device = %device.id, "handing the answer of a call to its design failed, and is tried again");
                let queued = QueuedCall { device: device.id, key, stage: CallStage::Answer(answer) };
                // Texts and identifiers always serialise.
                let body = serde_json::to_string(&queued).unwrap_or_default();
                Becomes::Replaced(body, self.env.due_again(1, self.env.now()))
            }
        }
    }

    /// Delivers an answer to the design that made the call. A run that panics on it is retried.
    async fn hand_over_answer(&self, device: DeviceRef, answer: &CallEnded) -> Result<()> {
        let run = async {
            self.env.reaches("call_answer");
            (self.run_on_answer)(device, answer.clone()).await
        };
        guarded("call", run).await.unwrap_or_else(|| Err(Error::internal("the run on an answer panicked")))
    }

    /// Reschedules a call that panicked, later each time, and drops it when it has become too old.
    fn panicked(&self, delivery: &QueuedDelivery) -> Becomes {
        let now = self.env.now();
        if is_too_old(delivery, now) {
            tracing::error!(id = delivery.id, "an outgoing call is given up");
            return Becomes::Done;
        }
        Becomes::TriedAgain(self.env.due_again(delivery.attempts.saturating_add(1), now))
    }

    /// Records the outcome of a call, and waits as long as the registry needs: until then the call is under way and is
    /// not made again.
    async fn note_call(&self, delivery: &QueuedDelivery, becomes: Becomes) {
        let mut pause = NOTE_PAUSE_FIRST;
        loop {
            let registry = self.env.registry();
            let noted = match &becomes {
                Becomes::Done => registry.delivery_done(&delivery.id).await,
                Becomes::TriedAgain(due_at) => {
                    registry.delivery_failed(&delivery.id, delivery.attempts.saturating_add(1), *due_at).await
                }
                Becomes::Replaced(body, due_at) => registry.delivery_replace(&delivery.id, body, *due_at).await,
            };
            let Err(error) = noted else { return };
            tracing::warn!(%error, id = delivery.id, ?pause, "noting what became of a call failed, and is tried again");
            self.env.clock().sleep(pause).await;
            pause = NOTE_PAUSE_MAX.min(pause * 2);
        }
    }
}
