//! Clients of devices, who call any node and write down what they did and were told.

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

/// Nodes as their clients know them.
pub struct Platform {
    pub apis: Vec<Api>,
    pub devices: Vec<Device>,
    begun: Instant,
    is_over: AtomicBool,
    calls: Mutex<Vec<Call>>,
}

/// Returns a design that counts in the state of an element and in a label.
pub fn design() -> Value {
    let to = |element: &str, ability: &str| json!({"element": element, "ability": ability});
    let mut label = to("labels", "setValue");
    label["arguments"] = json!({"tag": "'n'", "value": "payload"});
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tally", "push"), to("count", "evaluate")]}},
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
        let begun = Clock::System.instant();
        Self { apis, devices, begun, is_over: AtomicBool::new(false), calls: Mutex::new(Vec::new()) }
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
        let end = self.platform.now();
        let status = answer.as_ref().map(|answer| answer.status);
        let success = answer.as_ref().filter(|answer| (200..300).contains(&answer.status));
        let is_done = success.is_some();
        let call = Call { device: self.device, node, begin, end, status, is_refused, did: did(success) };
        if answer.as_ref().is_some_and(|answer| !is_done && answer.status != 503) {
            println!("{call:?}: {}", answer.map(|answer| answer.body).unwrap_or_default());
        }
        self.platform.calls.lock().push(call);
        if !is_done {
            Clock::System.sleep(PAUSE_OF_FAILURE).await;
        }
        is_done
    }

    /// Posts events, one after the other.
    async fn posts(mut self) {
        let at = format!("/v2/devices/{}", self.device().id);
        for n in 1.. {
            if !self.goes_on() {
                return;
            }
            while !self.posts_one(n).await {}
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
        let (key, body) = (Some(format!("event-{n}")), Some(json!({"n": n})));
        let request = Request { method: Method::POST, path, is_of_device: true, key, body };
        self.calls(request, |answer| Did::Post { n, id: answer.map(Answer::created) }).await
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
