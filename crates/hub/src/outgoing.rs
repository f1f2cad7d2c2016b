//! Calls that designs make to servers outside. A call waits in the registry until it was made and its answer was
//! handed to the design: it happens at least once. What fails in a way that may pass is tried again; a slow host holds
//! up its own calls alone. Calls keep no order.
//!
//! An answer that the design cannot take now takes the call's place in the registry, and is handed over later: nobody
//! outside is called again because of what happens here. While the registry takes nothing, no further call is made.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceRef, EventId, OrganizationId};
use isobar_model::json::{RawJson, write_string};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::{CallAnswer, CallError, OutgoingCall, host_of};
use isobar_store::registry::{Delivery, LimitedDelivery, NewDelivery};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::{self, JoinSet};

use crate::beside::Occasion;
use crate::error::Told as _;
use crate::supervisor::{Shift, guarded, spawn_guarded_in};
use crate::{Hub, deliveries};

/// What calls are among the deliveries.
const KIND: &str = "call";
/// How often it is looked for calls that are due again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Calls under way at the same time. One tenant has at most twice as many as are left for the others then.
const CALLS_MAX: usize = 128;
const TIMES_WHAT_IS_LEFT: usize = 2;
/// Those of one tenant to one host, which stand in one lane.
const CALLS_OF_A_LANE_MAX: usize = 4;
/// Lanes that are looked at together, and those after which others have the thread.
const LANES_AT_ONCE: usize = 256;
const LANES_OF_A_LOOK: usize = 2_048;
/// The pause before the lanes behind these are looked at.
const NEXT_LOOK: Duration = Duration::from_millis(50);
/// Follows the tenant's name in that of a lane; what comes behind all lanes of a tenant has the character after it.
const LANE_SPACE: char = ' ';
const BEHIND_LANES: char = '!';
/// Calls of one device that wait; beyond, the newest are dropped, and counted in /metrics.
const WAITING_MAX: usize = 100;
/// Largest call, in bytes of its JSON.
const CALL_BYTES_MAX: usize = 512 << 10;
/// How often a failed call is tried again.
const RETRIES_MAX: u32 = 5;
/// The first pause before a call is tried again, in milliseconds; each further one is four times as long.
const RETRY_MILLIS: i64 = 1_000;
/// How often it is tried to hand an answer over that is kept: with pauses up to an hour, for about half a day.
const HAND_OVERS_MAX: u32 = 20;
/// First and longest pause of a call that is over and waits until the registry has noted it.
const NOTE_PAUSE_FIRST: Duration = Duration::from_millis(100);
const NOTE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Deliveries that an earlier version has put down which are put into lanes at a time.
const PUT_INTO_LANES_AT_ONCE: usize = 32;
const DROPPED: &str = "isobar_calls_dropped_total";
const ANSWERS: &str = "isobar_call_answers_total";

/// A call that a run asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallWork {
    pub event: EventId,
    pub element: String,
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
}

/// What waits: a call, or the answer to one.
#[derive(Serialize, Deserialize)]
struct Waiting {
    device: isobar_model::ids::DeviceId,
    key: u64,
    #[serde(flatten)]
    what: What,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Call(CallWork),
    /// The call was made; its design has still to be told.
    Answer(Answer),
}

/// What came of a call, for the design.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answer {
    element: String,
    /// Whether it is a response, or tells that there was none.
    response: bool,
    /// JSON, as text: it stays as it is.
    payload: String,
}

/// Tells the worker.
#[derive(Default)]
pub(crate) struct Outgoing {
    wake: Notify,
}

/// What is under way.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<()>,
    /// The identifier and the lane of each.
    calls: HashMap<task::Id, (String, String)>,
    ids: HashSet<String>,
    lanes: HashMap<String, usize>,
    tenants: HashMap<String, usize>,
    /// Where it is looked next.
    next_lane: String,
}

impl UnderWay {
    fn begin(&mut self, id: String, lane: String, work: impl Future<Output = ()> + Send + 'static) {
        let task = spawn_guarded_in(&mut self.tasks, "call", work).id();
        *self.tenants.entry(tenant_of(&lane).to_owned()).or_default() += 1;
        *self.lanes.entry(lane.clone()).or_default() += 1;
        self.ids.insert(id.clone());
        self.calls.insert(task, (id, lane));
    }

    fn is_full(&self) -> bool {
        self.ids.len() >= CALLS_MAX
    }

    /// Whether a tenant has as many as it may have now.
    fn is_full_of(&self, tenant: &str) -> bool {
        let own = self.tenants.get(tenant).copied().unwrap_or_default() + 1;
        CALLS_MAX.checked_sub(self.ids.len() + 1).is_none_or(|left| own > TIMES_WHAT_IS_LEFT * left)
    }

    /// How many of a lane are.
    fn of_lane(&self, lane: &str) -> usize {
        self.lanes.get(lane).copied().unwrap_or_default()
    }

    /// Waits until one has ended, for ever if there is none.
    async fn end_one(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let task = ended.map_or_else(|failed| failed.id(), |(id, ())| id);
        let Some((id, lane)) = self.calls.remove(&task) else { return };
        self.ids.remove(&id);
        one_less(&mut self.tenants, tenant_of(&lane));
        one_less(&mut self.lanes, &lane);
    }
}

fn one_less(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

/// The lane in which a call of a tenant stands.
fn lane_of(tenant: Option<OrganizationId>, url: &str) -> String {
    let (tenant, host) = (tenant.map(|id| id.to_string()).unwrap_or_default(), host_of(url).unwrap_or_default());
    format!("{tenant}{LANE_SPACE}{host}")
}

/// Whose a lane is.
fn tenant_of(lane: &str) -> &str {
    lane.split_once(LANE_SPACE).map_or(lane, |(tenant, _)| tenant)
}

impl CallWork {
    /// The delivery that it becomes, by its place among those of its run; none: it is too large.
    pub(crate) fn asked(
        &self,
        device: DeviceRef,
        tenant: Option<OrganizationId>,
        ordinal: usize,
    ) -> Option<LimitedDelivery> {
        let source = format!("{KIND}:{}:", device.id);
        let id = format!("{source}{}:{ordinal}", self.event);
        let lane = Some(lane_of(tenant, &self.url));
        let waiting = Waiting { device: device.id, key: device.key.0, what: What::Call(self.clone()) };
        let body = serde_json::to_string(&waiting).ok().filter(|body| body.len() <= CALL_BYTES_MAX)?;
        Some(LimitedDelivery { delivery: NewDelivery { id, kind: KIND, body, lane }, source, most: WAITING_MAX })
    }
}

impl Hub {
    /// Calls wait in the registry, but for those that were dropped.
    pub(crate) fn calls_were_put(&self, dropped: usize) {
        if dropped > 0 {
            metrics::counter!(DROPPED).increment(dropped as u64);
            tracing::warn!(dropped, "calls of designs are dropped: too large, or too many wait");
        }
        self.0.outgoing.wake.notify_one();
    }

    /// Makes calls as they come due.
    pub(crate) async fn run_calls(self, mut shift: Shift) {
        let mut under_way = UnderWay::default();
        let mut all_in_lanes = false;
        loop {
            self.reaches("calls");
            let begun = async {
                all_in_lanes = all_in_lanes || self.put_into_lanes().await?;
                self.begin_calls(&mut under_way).await
            };
            let pause = begun.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "outgoing calls wait for the registry");
                LOOK_EVERY
            });
            shift.well();
            tokio::select! {
                // What is under way is made again after the next start.
                () = shift.end() => return,
                () = under_way.end_one() => {}
                () = self.0.outgoing.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Puts calls into lanes that an earlier version has put down. True: all stand in one.
    async fn put_into_lanes(&self) -> Result<bool> {
        loop {
            let without = self.0.registry.deliveries_without_lane(KIND, PUT_INTO_LANES_AT_ONCE).await.told()?;
            if without.is_empty() {
                return Ok(true);
            }
            let lanes: Vec<_> = without.into_iter().map(|it| (it.id, lane_of_body(&it.body))).collect();
            self.0.registry.deliveries_lane_set(&lanes).await.told()?;
        }
    }

    /// Begins what is due, going round the lanes; when to look again.
    async fn begin_calls(&self, under_way: &mut UnderWay) -> Result<Duration> {
        let (registry, now) = (&self.0.registry, self.0.clock.now());
        let (begins_at, mut is_second_round) = (std::mem::take(&mut under_way.next_lane), false);
        let (mut from, mut looked_at) = (begins_at.clone(), 0);
        while looked_at < LANES_OF_A_LOOK && !under_way.is_full() {
            let lanes = registry.deliveries_lanes(KIND, &from, LANES_AT_ONCE).await.told()?;
            looked_at += lanes.len().max(1);
            let is_last = lanes.len() < LANES_AT_ONCE;
            let mut next = None;
            for lane in lanes {
                if is_second_round && lane.name >= begins_at {
                    return Ok(LOOK_EVERY);
                }
                let tenant = tenant_of(&lane.name);
                if under_way.is_full_of(tenant) {
                    next = Some(format!("{tenant}{BEHIND_LANES}"));
                    break;
                }
                if lane.due_at <= now {
                    self.begin_calls_of(&lane.name, now, under_way).await?;
                }
                // Behind this one, and before any other.
                next = Some(lane.name + "\u{1}");
            }
            match next {
                Some(behind) if !is_last || behind.ends_with(BEHIND_LANES) => from = behind,
                _ if is_second_round || begins_at.is_empty() => return Ok(LOOK_EVERY),
                _ => (from, is_second_round) = (String::new(), true),
            }
        }
        under_way.next_lane = from;
        Ok(if under_way.is_full() { LOOK_EVERY } else { NEXT_LOOK })
    }

    /// Begins what is due of a lane, as far as it may.
    async fn begin_calls_of(&self, lane: &str, now: Timestamp, under_way: &mut UnderWay) -> Result<()> {
        let waiting = under_way.of_lane(lane);
        if waiting >= CALLS_OF_A_LANE_MAX {
            return Ok(());
        }
        let due = self.0.registry.deliveries_of_lane(KIND, lane, now, CALLS_OF_A_LANE_MAX + waiting).await.told()?;
        for delivery in due {
            if under_way.ids.contains(&delivery.id) {
                continue;
            }
            if under_way.of_lane(lane) >= CALLS_OF_A_LANE_MAX || under_way.is_full_of(tenant_of(lane)) {
                break;
            }
            self.begin_call(under_way, delivery, lane.to_owned()).await?;
        }
        Ok(())
    }

    async fn begin_call(&self, under_way: &mut UnderWay, delivery: Delivery, lane: String) -> Result<()> {
        let Ok(waiting) = serde_json::from_str::<Waiting>(&delivery.body) else {
            tracing::error!(id = delivery.id, "an outgoing call cannot be read and is dropped");
            return self.0.registry.delivery_done(&delivery.id).await.told();
        };
        let (hub, id) = (self.clone(), delivery.id.clone());
        under_way.begin(id, lane, async move {
            let ended = guarded("call", hub.serve_call(&delivery, waiting)).await;
            let becomes = ended.unwrap_or_else(|| hub.panicked(&delivery));
            hub.note_call(&delivery, becomes).await;
        });
        Ok(())
    }

    /// Makes a call, and hands what came of it to the design; or hands over an answer that is kept.
    async fn serve_call(&self, delivery: &Delivery, waiting: Waiting) -> Becomes {
        self.reaches("call");
        let Waiting { device, key, what } = waiting;
        let device = DeviceRef { id: device, key: isobar_model::ids::DeviceKey(key) };
        if let Ok(None) = self.device_entry(device.id).await {
            // Nobody is left who asked.
            return Becomes::Done;
        }
        let call = match what {
            What::Call(call) => call,
            What::Answer(answer) => {
                let Err(error) = self.hand_over_answer(device, &answer).await else { return Becomes::Done };
                let tries = delivery.attempts.saturating_add(1);
                if tries >= HAND_OVERS_MAX || deliveries::is_too_old(delivery, self.0.clock.now()) {
                    count_answers("given_up");
                    tracing::error!(%error, device = %device.id, tries, "an answer never found its way to its design");
                    return Becomes::Done;
                }
                count_answers("later");
                return Becomes::TriedAgain(self.due_again(tries, self.0.clock.now()));
            }
        };
        let CallWork { element, method, url, headers, body, .. } = call;
        let made = self.0.calls.make(&OutgoingCall { method, url, headers, body }).await;
        let Some((response, payload)) = ended(made, delivery.attempts) else {
            let chance = self.0.chance.bits_256()[0];
            return Becomes::TriedAgain(retry_at(self.0.clock.now(), delivery.attempts, chance));
        };
        let answer = Answer { element, response, payload: payload.text().to_owned() };
        match self.hand_over_answer(device, &answer).await {
            Ok(()) => Becomes::Done,
            Err(error) => {
                count_answers("later");
                tracing::warn!(%error, device = %device.id, "an answer is handed to its design later");
                let waiting = Waiting { device: device.id, key, what: What::Answer(answer) };
                // Texts and identifiers always serialise.
                let body = serde_json::to_string(&waiting).unwrap_or_default();
                Becomes::Kept(body, self.due_again(1, self.0.clock.now()))
            }
        }
    }

    /// Hands an answer to the design that has asked. A run that panics on it may do better another time.
    async fn hand_over_answer(&self, device: DeviceRef, answer: &Answer) -> Result<()> {
        let occasion = Occasion::Answered { element: answer.element.clone(), response: answer.response };
        let payload = RawJson::trusted(answer.payload.clone().into());
        let run = async {
            self.reaches("call_answer");
            self.beside(device, occasion, payload).await
        };
        guarded("call", run).await.unwrap_or_else(|| Err(Error::internal("the run on an answer panicked")))
    }

    /// A call that panicked is made again, later each time, and given up when it has become too old.
    fn panicked(&self, delivery: &Delivery) -> Becomes {
        let now = self.0.clock.now();
        if deliveries::is_too_old(delivery, now) {
            tracing::error!(id = delivery.id, "an outgoing call is given up");
            return Becomes::Done;
        }
        Becomes::TriedAgain(self.due_again(delivery.attempts.saturating_add(1), now))
    }

    /// Notes what becomes of a call, however long the registry takes: until then it is under way, and not made again.
    async fn note_call(&self, delivery: &Delivery, becomes: Becomes) {
        let mut pause = NOTE_PAUSE_FIRST;
        loop {
            let registry = &self.0.registry;
            let noted = match &becomes {
                Becomes::Done => registry.delivery_done(&delivery.id).await,
                Becomes::TriedAgain(due_at) => {
                    registry.delivery_failed(&delivery.id, delivery.attempts.saturating_add(1), *due_at).await
                }
                Becomes::Kept(body, due_at) => registry.delivery_replace(&delivery.id, body, *due_at).await,
            };
            let Err(error) = noted else { return };
            tracing::warn!(%error, id = delivery.id, ?pause, "what became of a call waits to be noted");
            tokio::time::sleep(pause).await;
            pause = NOTE_PAUSE_MAX.min(pause * 2);
        }
    }
}

/// What becomes of a delivery that was tried.
enum Becomes {
    /// It is over.
    Done,
    /// It is tried again then.
    TriedAgain(Timestamp),
    /// Its call was made: this is what is left to do.
    Kept(String, Timestamp),
}

fn count_answers(outcome: &'static str) {
    metrics::counter!(ANSWERS, "outcome" => outcome).increment(1);
}

/// The lane of a call that waits, whose tenant nobody has noted.
fn lane_of_body(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Waiting { what: What::Call(call), .. }) => lane_of(None, &call.url),
        _ => lane_of(None, ""),
    }
}

/// What a design hears of a call: whether it got a response, and the payload. None: it is tried again.
fn ended(made: std::result::Result<CallAnswer, CallError>, attempts: u32) -> Option<(bool, RawJson)> {
    let is_last = attempts >= RETRIES_MAX;
    match made {
        Ok(answer) if answer.status < 500 && answer.status != 429 => Some((true, response_of(&answer))),
        Ok(answer) => {
            is_last.then(|| (false, failure_of(&format!("the answer was {}", answer.status), Some(answer.status))))
        }
        Err(CallError::Failed(why)) => is_last.then(|| (false, failure_of(&why, None))),
        Err(CallError::Refused(why)) => Some((false, failure_of(&why, None))),
    }
}

/// When a call that failed is tried again: later each time, and not all at once.
fn retry_at(now: Timestamp, attempts: u32, chance: u8) -> Timestamp {
    let pause = RETRY_MILLIS << (2 * attempts.min(RETRIES_MAX));
    Timestamp::from_millis(now.millis() + pause * (192 + i64::from(chance) / 2) / 256)
}

/// The payload of a response: its body as JSON if it is JSON, else as text.
fn response_of(answer: &CallAnswer) -> RawJson {
    let mut headers: Vec<(&str, String)> = Vec::new();
    for (name, value) in &answer.headers {
        match headers.iter_mut().find(|(present, _)| present == name) {
            Some((_, values)) => values.extend([", ", value.as_str()]),
            None => headers.push((name, value.clone())),
        }
    }
    let body = RawJson::check(answer.body.clone()).ok();
    let as_json = body.and_then(|body| written(answer.status, &headers, body.bytes()));
    as_json.unwrap_or_else(|| {
        let mut text = Vec::new();
        write_string(&String::from_utf8_lossy(&answer.body), &mut text);
        written(answer.status, &headers, &text).unwrap_or_else(|| failure_of("the answer cannot be told", None))
    })
}

fn written(status: u16, headers: &[(&str, String)], body: &[u8]) -> Option<RawJson> {
    let mut out = format!(r#"{{"status":{status},"headers":{{"#).into_bytes();
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(name, &mut out);
        out.push(b':');
        write_string(value, &mut out);
    }
    out.extend_from_slice(b"},\"body\":");
    out.extend_from_slice(body);
    out.push(b'}');
    // A body of many levels may be one too deep by now.
    RawJson::check(out.into()).ok()
}

fn failure_of(message: &str, status: Option<u16>) -> RawJson {
    let mut out = br#"{"message":"#.to_vec();
    write_string(message, &mut out);
    if let Some(status) = status {
        out.extend_from_slice(format!(r#","status":{status}"#).as_bytes());
    }
    out.push(b'}');
    RawJson::trusted(out.into())
}

#[cfg(test)]
mod tests;
