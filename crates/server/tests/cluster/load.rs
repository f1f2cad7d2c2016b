//! Clients of devices, who call any node and write down what they did and were told.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use isobar_power::Chance;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::history::{Call, Did, Micros};
use super::program_support::site::{Answer, Api, Device};

/// Time after which a client gives a call up: shorter than some stops of a node.
const CALL_PATIENCE: Duration = Duration::from_secs(4);
/// Longest pause between two calls of a client, in milliseconds, and the pause after a call that failed.
const PAUSE_MAX: u64 = 60;
const PAUSE_OF_FAILURE: Duration = Duration::from_millis(50);
/// Events among which the newest of the posted ones is looked for.
const READ_AT_ONCE: usize = 50;
/// Element whose events are counted.
pub const READING: &str = "reading";
/// Clients that put and get the setting of one device.
const SETTERS: u64 = 2;
/// Distance between the values that two clients put.
const VALUES_APART: u64 = 1_000_000;
/// Percentage of posts that are a batch, and the fewest and most events of one.
const BATCHES: u64 = 20;
const BATCH_MIN: u64 = 2;
const BATCH_MAX: u64 = 6;
/// Number of events in a row of which the first few raise the alarm and the others clear it.
const ALARM_ROUND: u64 = 5;
const ALARM_RAISES: u64 = 3;

/// Nodes as their clients know them.
pub struct Platform {
    pub apis: Vec<Api>,
    pub devices: Vec<Device>,
    begun: Instant,
    /// Time of day at the beginning, in milliseconds since 1970.
    pub begun_at: u64,
    is_over: AtomicBool,
    calls: Mutex<Vec<Call>>,
}

/// Returns true if the design raises the alarm by an event of this number, and false if it clears it.
pub const fn raises(n: u64) -> bool {
    n % ALARM_ROUND < ALARM_RAISES
}

/// Returns a design that counts in the state of an element and in a label, and raises an alarm now and then.
pub fn design() -> Value {
    let to = |element: &str, ability: &str| json!({"element": element, "ability": ability});
    let mut label = to("labels", "setValue");
    label["arguments"] = json!({"tag": "'n'", "value": "payload"});
    let mut raise = to("warm", "raise");
    raise["arguments"] = json!({"value": "payload.n"});
    let received = [to("tally", "push"), to("count", "evaluate"), to("isWarm", "evaluate")];
    let is_warm = format!("payload.n % {ALARM_ROUND} < {ALARM_RAISES}");
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": received}},
        "isWarm": {
            "type": "condition",
            "properties": {"expression": is_warm},
            "triggers": {"true": [raise], "false": [to("warm", "clear")]},
        },
        "warm": {
            "type": "alarm",
            "properties": {"title": "Warm", "severity": "warning"},
            "triggers": {"acknowledged": [to("acknowledgements", "store")]},
        },
        "acknowledgements": {"type": "storage"},
        "tally": {
            "type": "window",
            "properties": {"size": super::checker::WINDOW, "aggregate": "count"},
            "triggers": {"result": [to("counts", "store")]},
        },
        "count": {
            "type": "transform",
            "properties": {"expression": "has(device.meta.n) ? device.meta.n + 1 : 1"},
            "triggers": {"result": [label, to("labelCounts", "store")]},
        },
        "counts": {"type": "storage"},
        "labelCounts": {"type": "storage"},
        "labels": {"type": "deviceMeta"},
        "wish": {"type": "deviceEvent", "triggers": {"eventReceived": [to("order", "send")]}},
        "order": {"type": "cloudEvent"},
        "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": super::register::UNSET}},
    })
}

impl Platform {
    pub fn new(apis: Vec<Api>, devices: Vec<Device>) -> Self {
        let (begun, begun_at) = (Clock::System.instant(), Clock::System.now().millis().unsigned_abs());
        Self { apis, devices, begun, begun_at, is_over: AtomicBool::new(false), calls: Mutex::new(Vec::new()) }
    }

    /// Returns the time since the beginning.
    pub fn now(&self) -> Micros {
        u64::try_from(Clock::System.elapsed(self.begun).as_micros()).unwrap_or(Micros::MAX)
    }

    /// Tells the clients to end what they are doing.
    pub fn ends(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns what was called so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// Starts all clients.
    pub fn works(self: &Arc<Self>, chance: &mut Chance) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for device in 0..self.devices.len() {
            let mut client = || Client { platform: self.clone(), device, chance: Chance::new(chance.number()) };
            clients.spawn(client().posts());
            clients.spawn(client().queues());
            clients.spawn(client().takes());
            // Alarms of the other devices live on and count all that raised them.
            if device % 2 == 0 {
                clients.spawn(client().acknowledges());
            }
            (0..SETTERS).for_each(|number| drop(clients.spawn(client().sets(number))));
        }
        clients
    }
}

struct Client {
    platform: Arc<Platform>,
    device: usize,
    chance: Chance,
}

/// Request, and who makes it.
struct Request {
    method: Method,
    path: String,
    is_of_device: bool,
    key: Option<String>,
    body: Option<Value>,
}

impl Request {
    fn of_user(method: Method, path: String) -> Self {
        Self { method, path, is_of_device: false, key: None, body: None }
    }
}

/// Call that was made, with its answer if one came.
struct Asked {
    node: usize,
    begin: Micros,
    end: Micros,
    is_refused: bool,
    answer: Option<Answer>,
}

impl Asked {
    fn status(&self) -> Option<u16> {
        self.answer.as_ref().map(|answer| answer.status)
    }

    /// Returns the answer if the call succeeded.
    fn success(&self) -> Option<&Answer> {
        self.answer.as_ref().filter(|answer| (200..300).contains(&answer.status))
    }
}

/// Returns the idempotency key of an event.
fn key(n: u64) -> String {
    format!("event-{n}")
}

impl Client {
    fn goes_on(&self) -> bool {
        !self.platform.is_over.load(Ordering::Relaxed)
    }

    fn device(&self) -> &Device {
        &self.platform.devices[self.device]
    }

    async fn pauses(&mut self) {
        Clock::System.sleep(Duration::from_millis(self.chance.below(PAUSE_MAX))).await;
    }

    /// Makes a call at any node, and writes it down; returns true if it succeeded.
    async fn calls(&mut self, request: Request, did: impl FnOnce(Option<&Answer>) -> Did) -> bool {
        let asked = self.asks(request).await;
        let did = did(asked.success());
        self.writes_down(&asked, asked.status(), did);
        self.rests_after(asked.success().is_some()).await
    }

    /// Makes a call at any node.
    async fn asks(&mut self, request: Request) -> Asked {
        let node = usize::try_from(self.chance.below(self.platform.apis.len() as u64)).unwrap();
        let api = &self.platform.apis[node];
        let (name, user) = api.credentials();
        let credential =
            if request.is_of_device { ("cloud", self.device().token.as_str()) } else { (name, user.as_str()) };
        let mut headers = vec![credential];
        headers.extend(request.key.as_deref().map(|key| ("idempotency-key", key)));
        let begin = self.platform.now();
        let answer = api.send(request.method, &request.path, &headers, request.body.as_ref());
        let answer = Clock::System.timeout(CALL_PATIENCE, answer).await;
        let is_refused = matches!(&answer, Ok(Err(error)) if error.is_connect());
        let answer = answer.ok().and_then(Result::ok);
        Asked { node, begin, end: self.platform.now(), is_refused, answer }
    }

    /// Adds a call to the history; items of a batch have statuses of their own.
    fn writes_down(&self, asked: &Asked, status: Option<u16>, did: Did) {
        let Asked { node, begin, end, is_refused, answer } = asked;
        let call =
            Call { device: self.device, node: *node, begin: *begin, end: *end, status, is_refused: *is_refused, did };
        if !call.is_done() && status.is_some_and(|status| status != 503) {
            println!("{call:?}: {}", answer.as_ref().map(|answer| answer.body.as_str()).unwrap_or_default());
        }
        self.platform.calls.lock().push(call);
    }

    /// Pauses after a call that failed; returns true for one that did not.
    async fn rests_after(&self, is_done: bool) -> bool {
        if !is_done {
            Clock::System.sleep(PAUSE_OF_FAILURE).await;
        }
        is_done
    }

    /// Posts events, one after the other.
    async fn posts(mut self) {
        let at = format!("/v2/devices/{}", self.device().id);
        let mut n = 0;
        while self.goes_on() {
            if self.chance.percent(BATCHES) {
                let mut left = n + 1..n + 1 + BATCH_MIN + self.chance.below(BATCH_MAX + 1 - BATCH_MIN);
                n = left.end - 1;
                while !left.is_empty() {
                    left.start += self.posts_batch(left.clone()).await;
                }
            } else {
                n += 1;
                while !self.posts_one(n).await {}
            }
            if self.chance.percent(10) {
                self.posts_one(n).await;
            }
            if self.chance.percent(20) {
                let request =
                    Request::of_user(Method::GET, format!("{at}/events?limit={READ_AT_ONCE}&cloudEvents=false"));
                let newest = |answer: &Answer| {
                    let events = answer.json();
                    let mut events = events["data"].as_array().unwrap().iter();
                    let newest = events.find(|event| event["elementName"] == READING);
                    newest.map_or(0, |event| event["payload"]["n"].as_u64().unwrap())
                };
                self.calls(request, |answer| Did::Newest { n: answer.map(newest) }).await;
            }
            if self.chance.percent(20) {
                let label = |answer: &Answer| answer.json()["meta"]["n"].as_u64().unwrap_or(0);
                let request = Request::of_user(Method::GET, at.clone());
                self.calls(request, |answer| Did::Label { n: answer.map(label) }).await;
            }
            self.pauses().await;
        }
    }

    async fn posts_one(&mut self, n: u64) -> bool {
        let path = "/v2/events/device?elementName=reading".to_owned();
        let (key, body) = (Some(key(n)), Some(json!({"n": n})));
        let request = Request { method: Method::POST, path, is_of_device: true, key, body };
        self.calls(request, |answer| Did::Post { n, id: answer.map(Answer::created) }).await
    }

    /// Posts events in one call; returns the number of those that were acknowledged before the first that was not. What
    /// follows that one must not have been accepted, or it would stand before it when both are sent again.
    async fn posts_batch(&mut self, numbers: Range<u64>) -> u64 {
        let item = |n: u64| json!({"elementName": READING, "payload": {"n": n}, "idempotencyKey": key(n)});
        let body = Some(numbers.clone().map(item).collect());
        let path = "/v2/events/device/batch".to_owned();
        let asked = self.asks(Request { method: Method::POST, path, is_of_device: true, key: None, body }).await;
        let answer = asked.success().map(Answer::json);
        let accepted = answer.as_ref().and_then(|answer| answer["data"].as_array()).cloned().unwrap_or_default();
        let id_of = |index: u64| {
            let item = accepted.iter().find(|item| item["index"].as_u64() == Some(index))?;
            item["id"].as_str().map(str::to_owned)
        };
        let mut acknowledged = None;
        for (index, n) in (0..).zip(numbers.clone()) {
            let id = id_of(index);
            let status = if id.is_some() || asked.success().is_none() { asked.status() } else { Some(503) };
            if id.is_none() {
                acknowledged.get_or_insert(index);
            }
            self.writes_down(&asked, status, Did::Post { n, id });
        }
        let acknowledged = acknowledged.unwrap_or(numbers.end - numbers.start);
        self.rests_after(asked.success().is_some()).await;
        acknowledged
    }

    /// Acknowledges the alarm whenever it is not.
    async fn acknowledges(mut self) {
        let query = format!("filter[deviceId][eq]={}&filter[acknowledged][eq]=false&limit=1", self.device().id);
        let path = format!("/v2/alarms?depth=all&{query}");
        while self.goes_on() {
            let asked = self.asks(Request::of_user(Method::GET, path.clone())).await;
            let id = asked.success().and_then(|answer| answer.json()["data"][0]["id"].as_str().map(str::to_owned));
            self.writes_down(&asked, asked.status(), Did::LookForAlarm);
            if let Some(id) = id {
                let body = Some(json!({"acknowledged": true}));
                let request = Request { body, ..Request::of_user(Method::PUT, format!("/v2/alarms/{id}")) };
                self.calls(request, |_| Did::Acknowledge).await;
            }
            self.rests_after(asked.success().is_some()).await;
            self.pauses().await;
        }
    }

    /// Queues cloud events, one after the other: as a user, or by an event for which the design sends one.
    async fn queues(mut self) {
        for n in 1.. {
            if !self.goes_on() {
                return;
            }
            let is_wish = self.chance.percent(50);
            let path = match is_wish {
                true => "/v2/events/device?elementName=wish".to_owned(),
                false => format!("/v2/events/cloud?deviceId={}&elementName=order", self.device().id),
            };
            loop {
                let (path, key, body) = (path.clone(), Some(format!("order-{n}")), Some(json!({"n": n})));
                let request = Request { method: Method::POST, path, is_of_device: is_wish, key, body };
                let id = |answer: &Answer| if is_wish { String::new() } else { answer.created() };
                let is_done = self.calls(request, |answer| Did::Queue { n, id: answer.map(id) }).await;
                if is_done && !self.chance.percent(5) {
                    break;
                }
            }
            self.pauses().await;
        }
    }

    /// Takes cloud events, one after the other.
    async fn takes(mut self) {
        while self.goes_on() {
            let path = "/v2/events/cloud?limit=1".to_owned();
            let request = Request { method: Method::GET, path, is_of_device: true, key: None, body: None };
            let number = |answer: &Answer| answer.json()[0]["payload"]["n"].as_u64();
            self.calls(request, |answer| Did::Take { got: answer.map(number) }).await;
            self.pauses().await;
        }
    }

    /// Puts values of the setting that nobody else puts, and gets it.
    async fn sets(mut self, number: u64) {
        let path = format!("/v2/devices/{}/settings/limit", self.device().id);
        for value in number * VALUES_APART + 1.. {
            if !self.goes_on() {
                return;
            }
            if self.chance.percent(40) {
                let body = Some(json!(value));
                let request = Request { body, ..Request::of_user(Method::PUT, path.clone()) };
                self.calls(request, |_| Did::Put { value }).await;
            } else {
                let shown = |answer: &Answer| answer.json()["value"].as_u64().expect("a number");
                let request = Request::of_user(Method::GET, path.clone());
                self.calls(request, |answer| Did::Get { value: answer.map(shown) }).await;
            }
            self.pauses().await;
        }
    }
}
