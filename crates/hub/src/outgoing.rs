//! Calls that designs make to servers outside. A call waits in the registry until it was made and its answer was
//! handed to the design: it happens at least once. What fails in a way that may pass is tried again; a slow host holds
//! up its own calls alone. Calls keep no order.
//!
//! An answer that the design cannot take now takes the call's place in the registry, and is handed over later: nobody
//! outside is called again because of what happens here. While the registry takes nothing, no further call is made.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::json::{RawJson, write_string};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::{CallAnswer, CallError, OutgoingCall, host_of};
use isobar_store::registry::{Delivery, DueDelivery, LimitedDelivery, NewDelivery};
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
/// How often it is tried to hand an answer over that is kept: with pauses up to an hour, for about half a day.
const HAND_OVERS_MAX: u32 = 20;
/// First and longest pause of a call that is over and waits until the registry has noted it.
const NOTE_PAUSE_FIRST: Duration = Duration::from_millis(100);
const NOTE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Deliveries that an earlier version has put down whose hosts are noted at a time.
const NAMED_AT_ONCE: usize = 32;
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

    /// How many more may be made to a host.
    fn free_of(&self, host: &str) -> usize {
        CALLS_TO_A_HOST_MAX.saturating_sub(self.hosts.get(host).copied().unwrap_or_default())
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
    pub(crate) fn asked(&self, device: DeviceRef, ordinal: usize) -> Option<LimitedDelivery> {
        let source = format!("{KIND}:{}:", device.id);
        let id = format!("{source}{}:{ordinal}", self.event);
        let host = host_of(&self.url).unwrap_or_default();
        let waiting = Waiting { device: device.id, key: device.key.0, what: What::Call(self.clone()) };
        let body = serde_json::to_string(&waiting).ok().filter(|body| body.len() <= CALL_BYTES_MAX)?;
        Some(LimitedDelivery {
            delivery: NewDelivery { id, kind: KIND, body, host: Some(host) },
            source,
            most: WAITING_MAX,
        })
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
        let mut all_named = false;
        loop {
            self.reaches("calls");
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
                () = self.0.outgoing.wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Notes the hosts of calls that an earlier version has put down. True: all have theirs.
    async fn name_hosts(&self) -> Result<bool> {
        loop {
            let nameless = self.0.registry.deliveries_without_host(KIND, NAMED_AT_ONCE).await.told()?;
            if nameless.is_empty() {
                return Ok(true);
            }
            let hosts: Vec<_> = nameless.into_iter().map(|it| (it.id, host_of_body(&it.body))).collect();
            self.0.registry.deliveries_host_set(&hosts).await.told()?;
        }
    }

    /// Begins what is due, as far as its hosts allow; only what begins is read. True: there is more to look at.
    async fn begin_calls(&self, under_way: &mut UnderWay) -> Result<bool> {
        let (registry, now) = (&self.0.registry, self.0.clock.now());
        let due = registry.deliveries_waiting(KIND, now, BATCH).await.told()?;
        let is_full = due.len() == BATCH;
        let (mut begins, mut postponed) = (Vec::new(), Vec::new());
        let mut free: HashMap<&str, usize> = HashMap::new();
        let mut kept: HashMap<&str, usize> = HashMap::new();
        for DueDelivery { id, host } in &due {
            if under_way.ids.contains(id) {
                continue;
            }
            let host = host.as_deref().unwrap_or_default();
            let free = free.entry(host).or_insert_with(|| under_way.free_of(host));
            if *free > 0 && under_way.ids.len() + begins.len() < CALLS_MAX {
                *free -= 1;
                begins.push(id.clone());
                continue;
            }
            let kept = kept.entry(host).or_default();
            *kept += 1;
            if is_full && *kept > KEPT_OF_A_HOST {
                postponed.push(id.clone());
            }
        }
        if !begins.is_empty() {
            for delivery in registry.deliveries_fetch(&begins).await.told()? {
                let host = due.iter().find(|it| it.id == delivery.id).and_then(|it| it.host.clone());
                self.begin_call(under_way, delivery, host.unwrap_or_default()).await?;
            }
        }
        registry.deliveries_postpone(&postponed, now.plus_seconds(PASS_SECONDS)).await.told()?;
        Ok(!postponed.is_empty() && under_way.ids.len() < CALLS_MAX)
    }

    async fn begin_call(&self, under_way: &mut UnderWay, delivery: Delivery, host: String) -> Result<()> {
        let Ok(waiting) = serde_json::from_str::<Waiting>(&delivery.body) else {
            tracing::error!(id = delivery.id, "an outgoing call cannot be read and is dropped");
            return self.0.registry.delivery_done(&delivery.id).await.told();
        };
        let (hub, id) = (self.clone(), delivery.id.clone());
        under_way.begin(id, host, async move {
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

/// Where a call goes that waits; nowhere, if that cannot be read.
fn host_of_body(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Waiting { what: What::Call(call), .. }) => host_of(&call.url).unwrap_or_default(),
        _ => String::new(),
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
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::stage::{Stage, counting_server, until};

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

    /// A design that calls a server with every reading, and keeps what it answers.
    fn asking(port: u16) -> String {
        let to = |element: &str, ability: &str| format!(r#"[{{"element":"{element}","ability":"{ability}"}}]"#);
        format!(
            r#"{{"reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": {}}}}},
                "ask": {{"type": "http", "properties": {{"method": "GET", "url": "http://127.0.0.1:{port}/"}},
                         "triggers": {{"response": {}}}}},
                "answers": {{"type": "storage"}}}}"#,
            to("ask", "request"),
            to("answers", "store"),
        )
    }

    #[tokio::test]
    async fn an_answer_that_finds_no_way_is_kept_and_handed_over_later() {
        let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
        let device = stage.device(&asking(port)).await;
        stage.hub.0.supervisor.faults.panic_at("call_answer", 3);
        stage.posts(&device, "1").await;
        stage.hub.employ_all();
        for left in [2, 1, 0] {
            until("it was tried", async || stage.hub.0.supervisor.faults.left_at("call_answer") == left).await;
            until("it is put off", async || stage.is_put_off(KIND).await).await;
            assert_eq!(stage.stored(&device, "answers").await, None);
            stage.clock.advance_seconds(60);
        }
        until("it is handed over", async || stage.stored(&device, "answers").await.is_some()).await;
        until("nothing waits", async || stage.waiting(KIND).await == 0).await;
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        // What never finds its way is given up, and the server was called once for it.
        stage.hub.0.supervisor.faults.panic_at("call_answer", u32::MAX);
        stage.posts(&device, "2").await;
        until("it is given up", async || {
            stage.clock.advance_seconds(3600);
            calls.load(Ordering::SeqCst) == 2 && stage.waiting(KIND).await == 0
        })
        .await;
        stage.over().await;
    }

    #[tokio::test]
    async fn nobody_is_called_again_because_the_registry_takes_nothing() {
        let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
        let device = stage.device(&asking(port)).await;
        stage.refuses("DELETE", "deliveries").await;
        stage.hub.employ_all();
        for made in 1..=3 {
            stage.posts(&device, "1").await;
            // Each of them is looked for anew when the next one comes.
            until("it is made", async || calls.load(Ordering::SeqCst) >= made).await;
        }
        until("it is answered", async || stage.stored(&device, "answers").await.is_some()).await;
        assert_eq!((stage.waiting(KIND).await, calls.load(Ordering::SeqCst)), (3, 3));
        stage.takes_again().await;
        until("it is noted", async || stage.waiting(KIND).await == 0).await;
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        stage.over().await;
    }

    #[tokio::test]
    async fn a_call_that_an_earlier_version_has_put_down_is_made() {
        let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
        let device = stage.device(&asking(port)).await;
        let call = format!(
            r#"{{"event":"{}","element":"ask","method":"GET","url":"http://127.0.0.1:{port}/","headers":[],"body":null}}"#,
            stage.hub.new_id()
        );
        let body = format!(r#"{{"device":"{}","key":{},"call":{call}}}"#, device.id, device.key.0);
        assert_eq!(host_of_body(&body), "127.0.0.1");
        let old = NewDelivery { id: "call:old".to_owned(), kind: KIND, body, host: None };
        stage.hub.0.registry.deliveries_put(&[old], stage.clock.now()).await.unwrap();
        stage.hub.employ_all();
        until("it is answered", async || stage.stored(&device, "answers").await.is_some()).await;
        until("nothing waits", async || stage.waiting(KIND).await == 0).await;
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        stage.over().await;
    }
}
