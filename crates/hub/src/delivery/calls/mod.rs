//! Calls that designs make to servers outside. A call waits in the registry until it was made and its answer was
//! handed to the design: it happens at least once. What may succeed another time is tried again; a slow host holds
//! up its own calls alone. Calls keep no order.
//!
//! An answer that the design cannot take now takes the call's place in the registry, and is handed over later: nobody
//! outside is called again because of what happens here. While the registry takes nothing, no further call is made.

mod answer;
#[cfg(test)]
mod tests;
mod under_way;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::{OutgoingCall, host_of};
use isobar_store::registry::{Asked, Delivery as QueuedDelivery, DueDelivery, NewDelivery};
use serde::{Deserialize, Serialize};

use self::answer::{answer_of, retry_at};
use self::under_way::UnderWay;
use super::{Delivery, is_too_old};
use crate::env::Env;
use crate::error::IntoHubError as _;
use crate::outbox::work::CallWork;
use crate::supervisor::{Shift, guarded};

/// The kind of these deliveries in the registry.
const KIND: &str = "call";
/// How often the registry is asked for calls that are due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Due calls that are looked at together.
const CALLS_BATCH: usize = 128;
/// Of a full batch, the calls to one host that stay due; the others are put off for so many seconds, to let calls to other
/// hosts come up.
const DUE_OF_A_HOST: usize = 32;
const PUT_OFF_SECONDS: i64 = 2;
/// Calls of one device that wait; beyond, the newest are dropped, and counted in /metrics.
const CALLS_OF_A_DEVICE_MAX: usize = 100;
/// Largest call, in bytes of its JSON.
const CALL_BYTES_MAX: usize = 512 << 10;
/// How often it is tried to hand an answer over that is kept: with pauses up to an hour, for about half a day.
const HAND_OVERS_MAX: u32 = 20;
/// First and longest pause of a call that is over and waits until the registry has noted it.
const NOTE_PAUSE_FIRST: Duration = Duration::from_millis(100);
const NOTE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Calls of an earlier version without a host that are given theirs at a time.
const NAMED_AT_ONCE: usize = 32;
const DROPPED: &str = "isobar_calls_dropped_total";
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

/// What came of a call, for the design.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallEnded {
    pub element: String,
    /// Whether it is a response, or tells that there was none.
    pub response: bool,
    /// JSON, as text: it stays as it is.
    pub payload: String,
}

/// Runs a device's design on what came of a call. Designs run in a room above this one: the wiring hands this in.
pub(crate) type RunOnAnswer = Arc<dyn Fn(DeviceRef, CallEnded) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// The delivery that a call becomes, by its place among those of its run; none: it is too large.
pub(super) fn delivery_of(call: &CallWork, device: DeviceRef, ordinal: usize) -> Option<Asked> {
    let source = format!("{KIND}:{}:", device.id);
    let id = format!("{source}{}:{ordinal}", call.event);
    let host = host_of(&call.url).unwrap_or_default();
    let queued = QueuedCall { device: device.id, key: device.key.0, stage: CallStage::Call(call.clone()) };
    let body = serde_json::to_string(&queued).ok().filter(|body| body.len() <= CALL_BYTES_MAX)?;
    let delivery = NewDelivery { id, kind: KIND, body, host: Some(host) };
    Some(Asked { delivery, source, most: CALLS_OF_A_DEVICE_MAX })
}

/// Where a queued call goes; nowhere, if that cannot be read.
fn host_of_body(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(QueuedCall { stage: CallStage::Call(call), .. }) => host_of(&call.url).unwrap_or_default(),
        _ => String::new(),
    }
}

fn count_answers(outcome: &'static str) {
    metrics::counter!(ANSWERS, "outcome" => outcome).increment(1);
}

/// What becomes of a delivery that was tried.
enum Becomes {
    /// It is over.
    Done,
    /// It is tried again then.
    TriedAgain(Timestamp),
    /// Its call was made: this is what is left to do, and when.
    Replaced(String, Timestamp),
}

impl Delivery {
    /// Calls were put into the registry, but for those that were dropped.
    pub(super) fn calls_were_put(&self, dropped: usize) {
        if dropped > 0 {
            metrics::counter!(DROPPED).increment(dropped as u64);
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
        let mut under_way = UnderWay::default();
        let mut all_named = false;
        loop {
            self.env.reaches("calls");
            let begun = async {
                all_named = all_named || self.name_hosts().await?;
                self.begin_calls(&mut under_way).await
            };
            match begun.await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "outgoing calls wait for the registry"),
            }
            shift.well();
            tokio::select! {
                // What is under way is made again after the next start.
                () = shift.end() => return,
                () = under_way.end_one() => {}
                () = self.delivery.calls_wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Gives calls of an earlier version their hosts. True: all have theirs.
    async fn name_hosts(&self) -> Result<bool> {
        loop {
            let nameless = self.env.registry.deliveries_without_host(KIND, NAMED_AT_ONCE).await.into_hub_error()?;
            if nameless.is_empty() {
                return Ok(true);
            }
            let hosts: Vec<_> = nameless.into_iter().map(|it| (it.id, host_of_body(&it.body))).collect();
            self.env.registry.deliveries_host_set(&hosts).await.into_hub_error()?;
        }
    }

    /// Begins what is due, as far as its hosts allow; only what begins is read. True: there is more to look at.
    async fn begin_calls(&self, under_way: &mut UnderWay) -> Result<bool> {
        let (registry, now) = (&self.env.registry, self.env.clock.now());
        let due = registry.deliveries_waiting(KIND, now, CALLS_BATCH).await.into_hub_error()?;
        let is_full = due.len() == CALLS_BATCH;
        let (mut begins, mut postponed) = (Vec::new(), Vec::new());
        let mut free: HashMap<&str, usize> = HashMap::new();
        let mut stay_due: HashMap<&str, usize> = HashMap::new();
        for DueDelivery { id, host } in &due {
            if under_way.contains(id) {
                continue;
            }
            let host = host.as_deref().unwrap_or_default();
            let free = free.entry(host).or_insert_with(|| under_way.free_of(host));
            if *free > 0 && under_way.has_room_beside(begins.len()) {
                *free -= 1;
                begins.push(id.clone());
                continue;
            }
            let stay_due = stay_due.entry(host).or_default();
            *stay_due += 1;
            if is_full && *stay_due > DUE_OF_A_HOST {
                postponed.push(id.clone());
            }
        }
        if !begins.is_empty() {
            for delivery in registry.deliveries_fetch(&begins).await.into_hub_error()? {
                let host = due.iter().find(|it| it.id == delivery.id).and_then(|it| it.host.clone());
                self.begin_call(under_way, delivery, host.unwrap_or_default()).await?;
            }
        }
        registry.deliveries_postpone(&postponed, now.plus_seconds(PUT_OFF_SECONDS)).await.into_hub_error()?;
        Ok(!postponed.is_empty() && under_way.has_room_beside(0))
    }

    async fn begin_call(&self, under_way: &mut UnderWay, delivery: QueuedDelivery, host: String) -> Result<()> {
        let Ok(queued) = serde_json::from_str::<QueuedCall>(&delivery.body) else {
            tracing::error!(id = delivery.id, "an outgoing call cannot be read and is dropped");
            return self.env.registry.delivery_done(&delivery.id).await.into_hub_error();
        };
        let (worker, id) = (self.clone(), delivery.id.clone());
        under_way.begin(id, host, async move {
            let ended = guarded("call", worker.serve_call(&delivery, queued)).await;
            let becomes = ended.unwrap_or_else(|| worker.panicked(&delivery));
            worker.note_call(&delivery, becomes).await;
        });
        Ok(())
    }

    /// Makes a call, and hands what came of it to the design; or hands over an answer that is kept.
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
                if tries >= HAND_OVERS_MAX || is_too_old(delivery, self.env.clock.now()) {
                    count_answers("given_up");
                    tracing::error!(%error, device = %device.id, tries, "handing the answer of a call to its design failed too often, and is given up");
                    return Becomes::Done;
                }
                count_answers("later");
                return Becomes::TriedAgain(self.env.due_again(tries, self.env.clock.now()));
            }
        };
        let CallWork { element, method, url, headers, body, .. } = call;
        let made = self.delivery.calls.make(&OutgoingCall { method, url, headers, body }).await;
        let Some((response, payload)) = answer_of(made, delivery.attempts) else {
            let chance = self.env.chance.bits_256()[0];
            return Becomes::TriedAgain(retry_at(self.env.clock.now(), delivery.attempts, chance));
        };
        let answer = CallEnded { element, response, payload: payload.text().to_owned() };
        match self.hand_over_answer(device, &answer).await {
            Ok(()) => Becomes::Done,
            Err(error) => {
                count_answers("later");
                tracing::warn!(%error, device = %device.id, "handing the answer of a call to its design failed, and is tried again");
                let queued = QueuedCall { device: device.id, key, stage: CallStage::Answer(answer) };
                // Texts and identifiers always serialise.
                let body = serde_json::to_string(&queued).unwrap_or_default();
                Becomes::Replaced(body, self.env.due_again(1, self.env.clock.now()))
            }
        }
    }

    /// Hands an answer to the design that has asked. A run that panics on it may do better another time.
    async fn hand_over_answer(&self, device: DeviceRef, answer: &CallEnded) -> Result<()> {
        let run = async {
            self.env.reaches("call_answer");
            (self.run_on_answer)(device, answer.clone()).await
        };
        guarded("call", run).await.unwrap_or_else(|| Err(Error::internal("the run on an answer panicked")))
    }

    /// A call that panicked is made again, later each time, and given up when it has become too old.
    fn panicked(&self, delivery: &QueuedDelivery) -> Becomes {
        let now = self.env.clock.now();
        if is_too_old(delivery, now) {
            tracing::error!(id = delivery.id, "an outgoing call is given up");
            return Becomes::Done;
        }
        Becomes::TriedAgain(self.env.due_again(delivery.attempts.saturating_add(1), now))
    }

    /// Notes what becomes of a call, however long the registry takes: until then it is under way, and not made again.
    async fn note_call(&self, delivery: &QueuedDelivery, becomes: Becomes) {
        let mut pause = NOTE_PAUSE_FIRST;
        loop {
            let registry = &self.env.registry;
            let noted = match &becomes {
                Becomes::Done => registry.delivery_done(&delivery.id).await,
                Becomes::TriedAgain(due_at) => {
                    registry.delivery_failed(&delivery.id, delivery.attempts.saturating_add(1), *due_at).await
                }
                Becomes::Replaced(body, due_at) => registry.delivery_replace(&delivery.id, body, *due_at).await,
            };
            let Err(error) = noted else { return };
            tracing::warn!(%error, id = delivery.id, ?pause, "noting what became of a call failed, and is tried again");
            tokio::time::sleep(pause).await;
            pause = NOTE_PAUSE_MAX.min(pause * 2);
        }
    }
}
