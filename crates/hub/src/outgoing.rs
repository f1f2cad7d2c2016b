//! Calls that designs make to servers outside. A call waits in the registry until it was made and its answer was
//! handed to the design: it happens at least once. What fails in a way that may pass is tried again; a slow host holds
//! up its own calls alone. Calls keep no order.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use isobar_model::error::Result;
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::json::{RawJson, write_string};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::{CallAnswer, CallError, OutgoingCall, host_of};
use isobar_store::registry::{Asked, Delivery, NewDelivery};
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
/// Calls under way at the same time, and those to one host.
const CALLS_MAX: usize = 64;
const CALLS_TO_A_HOST_MAX: usize = 4;
/// Due calls that are looked at together.
const BATCH: usize = 128;
/// Of a full batch, the calls to one host that keep their place; the rest lets others pass for so many seconds.
const KEPT_OF_A_HOST: usize = 32;
const PASS_SECONDS: i64 = 2;
/// Calls of one device that wait; beyond, the newest are dropped, and counted in /metrics.
const WAITING_MAX: usize = 100;
/// Largest call, in bytes of its JSON.
const CALL_BYTES_MAX: usize = 512 << 10;
/// How often a failed call is tried again.
const RETRIES_MAX: u32 = 5;
/// The first pause before a call is tried again, in milliseconds; each further one is four times as long.
const RETRY_MILLIS: i64 = 1_000;
/// When the store cannot take the answer, the call is made again after so many seconds.
const STORE_SECONDS: i64 = 5;
const DROPPED: &str = "isobar_calls_dropped_total";

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

/// A call that waits.
#[derive(Serialize, Deserialize)]
struct Waiting {
    device: isobar_model::ids::DeviceId,
    key: u64,
    call: CallWork,
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
    calls: HashMap<task::Id, (String, String)>,
    ids: HashSet<String>,
    hosts: HashMap<String, usize>,
}

impl UnderWay {
    fn begin(&mut self, id: String, host: String, work: impl Future<Output = ()> + Send + 'static) {
        let task = spawn_guarded_in(&mut self.tasks, "call", work).id();
        *self.hosts.entry(host.clone()).or_default() += 1;
        self.ids.insert(id.clone());
        self.calls.insert(task, (id, host));
    }

    /// Waits until one has ended, for ever if there is none.
    async fn end_one(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let task = ended.map_or_else(|failed| failed.id(), |(id, ())| id);
        let Some((id, host)) = self.calls.remove(&task) else { return };
        self.ids.remove(&id);
        if let Some(count) = self.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

impl CallWork {
    /// The delivery that it becomes, by its place among those of its run; none: it is too large.
    pub(crate) fn asked(&self, device: DeviceRef, ordinal: usize) -> Option<Asked> {
        let source = format!("{KIND}:{}:", device.id);
        let id = format!("{source}{}:{ordinal}", self.event);
        let waiting = Waiting { device: device.id, key: device.key.0, call: self.clone() };
        let body = serde_json::to_string(&waiting).ok().filter(|body| body.len() <= CALL_BYTES_MAX)?;
        Some(Asked { delivery: NewDelivery { id, kind: KIND, body }, source, most: WAITING_MAX })
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
        loop {
            self.reaches("calls");
            match self.begin_calls(&mut under_way).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "outgoing calls wait for the registry"),
            }
            shift.well();
            tokio::select! {
                // What is under way is made again after the next start.
                () = shift.end() => return,
                () = under_way.end_one() => {}
                () = self.0.outgoing.wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Begins what is due, as far as its hosts allow. True: there is more to look at.
    async fn begin_calls(&self, under_way: &mut UnderWay) -> Result<bool> {
        let (registry, now) = (&self.0.registry, self.0.clock.now());
        let due = registry.deliveries_due(KIND, now, BATCH).await.told()?;
        let is_full = due.len() == BATCH;
        let mut postponed = Vec::new();
        let mut kept: HashMap<String, usize> = HashMap::new();
        for delivery in due {
            if under_way.ids.contains(&delivery.id) {
                continue;
            }
            let Ok(waiting) = serde_json::from_str::<Waiting>(&delivery.body) else {
                tracing::error!(id = delivery.id, "an outgoing call cannot be read and is dropped");
                registry.delivery_done(&delivery.id).await.told()?;
                continue;
            };
            let host = host_of(&waiting.call.url).unwrap_or_default();
            let is_free = under_way.hosts.get(&host).is_none_or(|count| *count < CALLS_TO_A_HOST_MAX);
            if is_free && under_way.ids.len() < CALLS_MAX {
                let (hub, id) = (self.clone(), delivery.id.clone());
                under_way.begin(id, host, async move {
                    if guarded("call", hub.make_call(&delivery, waiting)).await.is_none() {
                        let _ = guarded("call", hub.call_panicked(&delivery)).await;
                    }
                });
                continue;
            }
            let kept = kept.entry(host).or_default();
            *kept += 1;
            if is_full && *kept > KEPT_OF_A_HOST {
                postponed.push(delivery.id);
            }
        }
        registry.deliveries_postpone(&postponed, now.plus_seconds(PASS_SECONDS)).await.told()?;
        Ok(!postponed.is_empty() && under_way.ids.len() < CALLS_MAX)
    }

    /// Makes a call, and hands what came of it to the design; or puts it off.
    async fn make_call(&self, delivery: &Delivery, waiting: Waiting) {
        self.reaches("call");
        let Waiting { device, key, call } = waiting;
        let device = DeviceRef { id: device, key: isobar_model::ids::DeviceKey(key) };
        let CallWork { element, method, url, headers, body, .. } = call;
        if let Ok(None) = self.device_entry(device.id).await {
            // Nobody is left who asked.
            if let Err(error) = self.0.registry.delivery_done(&delivery.id).await {
                tracing::warn!(%error, device = %device.id, "the call of a device that is gone stays for now");
            }
            return;
        }
        let made = self.0.calls.make(&OutgoingCall { method, url, headers, body }).await;
        let registry = &self.0.registry;
        let noted = match ended(made, delivery.attempts) {
            Some((response, payload)) => {
                match self.beside(device, Occasion::Answered { element, response }, payload).await {
                    Ok(()) => registry.delivery_done(&delivery.id).await,
                    Err(error) => {
                        tracing::warn!(%error, device = %device.id, "an answer finds no way to its design");
                        let again = self.0.clock.now().plus_seconds(STORE_SECONDS);
                        registry.delivery_failed(&delivery.id, delivery.attempts, again).await
                    }
                }
            }
            None => {
                let chance = self.0.chance.bits_256()[0];
                let due_at = retry_at(self.0.clock.now(), delivery.attempts, chance);
                registry.delivery_failed(&delivery.id, delivery.attempts.saturating_add(1), due_at).await
            }
        };
        if let Err(error) = noted {
            tracing::warn!(%error, device = %device.id, "an outgoing call is made once more");
        }
    }
}

impl Hub {
    /// A call that panicked, or its answer's run, is made again, later each time, and given up when it has become too old.
    async fn call_panicked(&self, delivery: &Delivery) {
        let (registry, now) = (&self.0.registry, self.0.clock.now());
        let noted = if deliveries::is_too_old(delivery, now) {
            tracing::error!(id = delivery.id, "an outgoing call is given up");
            registry.delivery_done(&delivery.id).await
        } else {
            let attempts = delivery.attempts.saturating_add(1);
            registry.delivery_failed(&delivery.id, attempts, self.due_again(attempts, now)).await
        };
        if let Err(error) = noted {
            tracing::warn!(%error, id = delivery.id, "an outgoing call that panicked is made once more");
        }
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
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> CallAnswer {
        let headers = [("a", "1"), ("b", "\"2\""), ("a", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        CallAnswer { status, headers: headers.to_vec(), body: body.to_owned().into() }
    }

    #[test]
    fn a_response_is_told_with_its_body_as_json_or_as_text() {
        let told = |body: &str| response_of(&answer(201, body)).text().to_owned();
        let head = r#"{"status":201,"headers":{"a":"1, 3","b":"\"2\""},"body":"#;
        assert_eq!(told(r#"{"x": 1.50}"#), format!(r#"{head}{{"x": 1.50}}}}"#));
        assert_eq!(told("no \"json\""), format!(r#"{head}"no \"json\""}}"#));
        assert_eq!(told(""), format!(r#"{head}""}}"#));
        let deep = "[".repeat(64) + &"]".repeat(64);
        assert!(RawJson::check(deep.clone().into()).is_ok());
        assert_eq!(told(&deep), format!(r#"{head}"{deep}"}}"#));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_the_rest_is_told() {
        let failed = || Err(CallError::Failed("no connection".to_owned()));
        for status in [429, 500, 503] {
            assert!(ended(Ok(answer(status, "")), 0).is_none());
            let told = format!(r#"{{"message":"the answer was {status}","status":{status}}}"#);
            assert_eq!(ended(Ok(answer(status, "")), RETRIES_MAX).unwrap().1.text(), told);
        }
        for status in [200, 302, 404] {
            assert!(ended(Ok(answer(status, "")), 0).unwrap().0);
        }
        assert!(ended(failed(), RETRIES_MAX - 1).is_none());
        assert_eq!(ended(failed(), RETRIES_MAX).unwrap().1.text(), r#"{"message":"no connection"}"#);
        assert!(!ended(Err(CallError::Refused("no".to_owned())), 0).unwrap().0);
    }

    #[test]
    fn pauses_grow_and_differ() {
        let pause = |attempts, chance| retry_at(Timestamp::from_millis(0), attempts, chance).millis();
        assert_eq!((pause(0, 0), pause(0, 128), pause(1, 128), pause(4, 128)), (750, 1_000, 4_000, 256_000));
        assert!(pause(0, 255) < 1_250);
    }
}
