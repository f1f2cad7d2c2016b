//! Kills of the process under load, repeatedly: acknowledged events are there afterwards, exactly once. So is the state
//! of design elements: a window counts exactly the events in history.
//!
//! `KILLS=40` makes a long run.
//!
//! (Power failures are tested elsewhere: a killed process keeps its written pages.)

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use program_support::site::{Api, Device, ENVIRONMENT, everything};
use program_support::{Serving, killed_at_start};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

const SEED: u64 = 0x15_0b_a4;
/// Kills of a normal run.
const KILLS: u64 = 4;
/// Distance between random streams, so that a longer run begins like a shorter one.
const APART: u64 = 1 << 32;
const DEVICES: usize = 20;
const POSTERS_A_DEVICE: usize = 2;
/// Most acknowledged events before a kill.
const ACKNOWLEDGED_MAX: u64 = 600;
/// Most open files of a process that is killed during its start: every start opens more.
const START_FILES_MAX: u64 = 40;
/// Most cloud events that are taken at once.
const TAKEN_AT_ONCE: usize = 5;
const POST: &str = "/v2/events/device?elementName=reading";
const BATCH: &str = "/v2/events/device/batch";
/// One post in this many is a batch, and the number of its events.
const BATCHED_OF: u64 = 5;
const BATCH_EVENTS: u64 = 4;

fn kills() -> u64 {
    std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().unwrap())
}

/// Returns a pseudo-random number by the finalizer of SplitMix64: the same on every run.
fn chance(round: u64) -> u64 {
    let mut number = SEED.wrapping_add((round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the design: every event is stored, queued, shown as a status, counted by a window, and compared with the one
/// before.
fn design() -> Value {
    let mut elements = everything();
    let links = elements["reading"]["triggers"]["eventReceived"].as_array_mut().unwrap();
    links.push(json!({"element": "tally", "ability": "push"}));
    links.push(json!({"element": "moved", "ability": "evaluate"}));
    links.push(json!({"element": "seen", "ability": "raise"}));
    let keeps = |element: &str| json!([{"element": element, "ability": "store"}]);
    let properties = json!({"size": 4096, "aggregate": "count"});
    elements["tally"] = json!({"type": "window", "properties": properties, "triggers": {"result": keeps("counts")}});
    let properties = json!({"expression": "payload.n % 3"});
    elements["moved"] = json!({"type": "changed", "properties": properties, "triggers": {"changed": keeps("moves")}});
    elements["seen"] = json!({"type": "alarm", "properties": {"title": "it talks"}});
    elements["counts"] = json!({"type": "storage"});
    elements["moves"] = json!({"type": "storage"});
    elements
}

/// The knowledge of one device's clients. Each event has a unique number.
#[derive(Default)]
struct Known {
    /// Number and id of events answered with 201.
    acknowledged: HashMap<u64, String>,
    /// Keyed events without an answer, to be repeated.
    unanswered: Vec<u64>,
    /// Cloud events that were received in full.
    taken: HashSet<u64>,
}

struct Customer {
    device: Device,
    known: Mutex<Known>,
}

struct Site {
    customers: Vec<Arc<Customer>>,
    next_number: AtomicU64,
}

/// Counts acknowledgements, and notifies after enough.
struct Fuse {
    left: AtomicU64,
    burnt: Notify,
}

impl Fuse {
    fn of(acknowledgements: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(acknowledgements), burnt: Notify::new() })
    }

    fn acknowledged(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.burnt.notify_one();
        }
    }

    /// Kills the process after enough acknowledgements, and waits for its clients.
    async fn kill(&self, serving: Serving, mut clients: JoinSet<()>) {
        self.burnt.notified().await;
        tokio::task::spawn_blocking(|| serving.kill()).await.unwrap();
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    }
}

/// Returns the idempotency key of every second event.
fn key(number: u64) -> Option<String> {
    number.is_multiple_of(2).then(|| format!("event-{number}"))
}

impl Customer {
    /// Posts an event; returns its id, or `None` if the server was gone before it answered.
    async fn post(&self, api: &Api, number: u64) -> Option<String> {
        let key = key(number);
        let mut headers = vec![("cloud", self.device.token.as_str())];
        headers.extend(key.as_deref().map(|key| ("idempotency-key", key)));
        let payload = json!({"n": number});
        let answer = api.send(Method::POST, POST, &headers, Some(&payload)).await;
        let mut known = self.known.lock().await;
        let Ok(answer) = answer else {
            known.unanswered.extend(key.map(|_| number));
            return None;
        };
        let id = answer.created();
        if let Some(before) = known.acknowledged.insert(number, id.clone()) {
            assert_eq!(before, id, "event {number} was repeated under its key");
        }
        Some(id)
    }

    /// Posts a batch; returns false if the server was gone before it answered.
    async fn post_batch(&self, api: &Api, batch: Range<u64>) -> bool {
        let event = |number| match key(number) {
            Some(key) => json!({"elementName": "reading", "payload": {"n": number}, "idempotencyKey": key}),
            None => json!({"elementName": "reading", "payload": {"n": number}}),
        };
        let (events, credential) =
            (Value::from_iter(batch.clone().map(event)), [("cloud", self.device.token.as_str())]);
        let answer = api.send(Method::POST, BATCH, &credential, Some(&events)).await;
        let mut known = self.known.lock().await;
        let Ok(answer) = answer else {
            known.unanswered.extend(batch.filter(|number| key(*number).is_some()));
            return false;
        };
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        assert_eq!(answer["errors"], json!([]));
        let ids = answer["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned());
        known.acknowledged.extend(batch.zip(ids));
        true
    }

    /// Takes cloud events until the server is gone, singly and several at once.
    async fn take(&self, api: &Api) {
        let credential = [("cloud", self.device.token.as_str())];
        let several = format!("/v2/events/cloud?wait=5&limit={TAKEN_AT_ONCE}");
        loop {
            for path in [several.as_str(), "/v2/events/cloud/next?wait=5"] {
                let Ok(answer) = api.send(Method::GET, path, &credential, None).await else { return };
                let payloads = match answer.status {
                    200 if answer.body.starts_with('[') => numbers(answer.json().as_array().unwrap(), None),
                    200 => vec![answer.json()["n"].as_u64().unwrap()],
                    204 => Vec::new(),
                    status => panic!("{path}: {status} {}", answer.body),
                };
                let mut known = self.known.lock().await;
                for number in payloads {
                    assert!(known.taken.insert(number), "cloud event {number} was given out twice");
                }
            }
        }
    }

    /// Compares the clients' knowledge with the server's after `kills`.
    async fn check(&self, api: &Api, kills: usize) {
        let (id, known) = (&self.device.id, self.known.lock().await);
        let history = api.list(&format!("/v2/devices/{id}/events?limit=10000")).await;
        let values = api.list(&format!("/v2/devices/{id}/data/log?limit=10000")).await;
        let events = numbers(&history, Some("deviceEvent"));
        let ids: HashMap<u64, &str> = history
            .iter()
            .filter(|event| event["type"] == "deviceEvent")
            .map(|event| (event["payload"]["n"].as_u64().unwrap(), event["id"].as_str().unwrap()))
            .collect();
        assert_eq!(ids.len(), events.len(), "an event is in history twice: {events:?}");
        for (number, id) in &known.acknowledged {
            assert_eq!(ids.get(number), Some(&id.as_str()), "event {number} was acknowledged");
        }
        assert!(history.iter().all(|event| event.get("errors").is_none()));

        // The event, its value and its cloud event are there together or not at all, in one order.
        assert_eq!(numbers(&values, None), events, "values and history");
        assert!(values.iter().zip(&events).all(|(value, number)| value["id"] == ids[number]));
        assert_eq!(numbers(&history, Some("cloudEvent")), events, "cloud events and device events");

        // States of elements agree with history: each event was counted once, and compared with the one before.
        let counts = api.list(&format!("/v2/devices/{id}/data/counts?limit=10000")).await;
        let counts: Vec<u64> = counts.iter().map(|value| value["payload"].as_u64().unwrap()).collect();
        assert_eq!(counts, (1..=events.len() as u64).rev().collect::<Vec<_>>(), "the window's counts");
        // There is one alarm, raised once per event, however often the registry was updated.
        let alarms = api.list(&format!("/v2/alarms?filter[deviceId][eq]={id}")).await;
        let raised: Vec<_> = alarms.iter().map(|alarm| alarm["count"].as_u64().unwrap()).collect();
        assert_eq!(raised, if events.is_empty() { vec![] } else { vec![events.len() as u64] }, "the alarm's count");
        let moves = numbers(&api.list(&format!("/v2/devices/{id}/data/moves?limit=10000")).await, None);
        let before = events.iter().skip(1).map(Some).chain([None]);
        let changes = events.iter().zip(before).filter(|(n, before)| before.is_none_or(|before| before % 3 != *n % 3));
        assert_eq!(moves, changes.map(|(n, _)| *n).collect::<Vec<_>>(), "what has changed");

        // Taken cloud events stay taken; the rest is in order, except those in flight during a kill.
        let path = format!("/v2/events/cloud?deviceId={id}&peek=true&limit=10000");
        let waiting = numbers(api.get(&path).await.as_array().unwrap(), None);
        let returned: Vec<_> = waiting.iter().filter(|number| known.taken.contains(number)).collect();
        assert!(returned.is_empty(), "taken and in the queue again: {returned:?}");
        // The queue is a suffix without gaps: nothing is lost from the middle.
        assert!(waiting.len() <= events.len(), "more waits than came: {waiting:?}");
        let newest: Vec<u64> = events[..waiting.len()].iter().rev().copied().collect();
        assert_eq!(waiting, newest, "the queue has gaps or is out of order");
        assert!(known.taken.iter().all(|number| ids.contains_key(number)), "taken, but not in history");
        let lost = events.len() - waiting.len() - known.taken.len();
        assert!(lost <= kills * TAKEN_AT_ONCE, "{lost} cloud events were taken by nobody");

        // The status is that of the newest event.
        if let Some(newest) = events.first() {
            assert_eq!(api.get(&format!("/v2/devices/{id}/last/log")).await["values"]["n"], *newest);
            assert_eq!(api.get(&format!("/v2/devices/{id}")).await["statusInt"], newest % 4 + 1, "event {newest}");
        }
    }

    /// Repeats unanswered posts, and an answered one, which has no effect.
    async fn repeat(&self, api: &Api) {
        let (unanswered, answered) = {
            let mut known = self.known.lock().await;
            let newest = known.acknowledged.keys().copied().filter(|number| key(*number).is_some()).max();
            (std::mem::take(&mut known.unanswered), newest)
        };
        for number in unanswered.into_iter().chain(answered) {
            assert!(self.post(api, number).await.is_some());
        }
    }
}

/// Returns the numbers of events of one type (all for `None`) or of values, in order.
fn numbers(items: &[Value], kind: Option<&str>) -> Vec<u64> {
    let wanted = items.iter().filter(|item| kind.is_none_or(|kind| item["type"] == kind));
    wanted.map(|item| item["payload"]["n"].as_u64().unwrap()).collect()
}

impl Site {
    /// Posts one event or a batch; returns false if the server was gone before it answered.
    async fn posts(&self, customer: &Customer, api: &Api) -> bool {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(BATCHED_OF) {
            let first = self.next_number.fetch_add(BATCH_EVENTS, Ordering::Relaxed);
            customer.post_batch(api, first..first + BATCH_EVENTS).await
        } else {
            customer.post(api, number).await.is_some()
        }
    }

    /// Runs all clients until the process is killed.
    async fn work_until_killed(self: &Arc<Self>, api: &Api, serving: Serving, acknowledgements: u64) {
        let fuse = Fuse::of(acknowledgements);
        let mut clients = JoinSet::new();
        for customer in &self.customers {
            for _ in 0..POSTERS_A_DEVICE {
                let (site, customer, api, fuse) = (self.clone(), customer.clone(), api.clone(), fuse.clone());
                clients.spawn(async move {
                    while site.posts(&customer, &api).await {
                        fuse.acknowledged();
                    }
                });
            }
            let (customer, api) = (customer.clone(), api.clone());
            clients.spawn(async move { customer.take(&api).await });
        }
        fuse.kill(serving, clients).await;
    }

    async fn check(&self, api: &Api, kills: usize) {
        join_all(self.customers.iter().map(|customer| customer.check(api, kills))).await;
    }
}

// Holds: c7.durable, c11.window, c13.batchDurable
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_events_survive_kills_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::on(folder.path(), &ENVIRONMENT);
    let mut api = Api::of(&serving).await;
    let devices = api.found(&design(), DEVICES).await;
    let customers = devices.into_iter().map(|device| Customer { device, known: Mutex::default() });
    let site = Arc::new(Site { customers: customers.map(Arc::new).collect(), next_number: AtomicU64::new(0) });
    let kills = kills();
    for round in 0..kills {
        site.work_until_killed(&api, serving, 1 + chance(round) % ACKNOWLEDGED_MAX).await;
        if round % 3 == 0 {
            // The next process is killed during its start.
            let soon = (chance(APART + round) % START_FILES_MAX) as usize;
            killed_at_start(folder.path(), &ENVIRONMENT, soon);
        }
        serving = Serving::on(folder.path(), &ENVIRONMENT);
        api = api.at(&serving);
        site.check(&api, round as usize + 1).await;
        join_all(site.customers.iter().map(|customer| customer.repeat(&api))).await;
    }
    site.check(&api, kills as usize).await;
    assert_eq!(serving.stop(), Some(0));
}

/// Most acknowledged changes of settings before a kill.
const CHANGES_MAX: u64 = 90;

/// Returns a design with a setting that can be changed by users and by events, and whose values are stored.
fn with_a_limit() -> Value {
    json!({
        "wish": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "limit", "ability": "set"}]}},
        "limit": {
            "type": "deviceSetting",
            "properties": {"inputType": "number", "defaultValue": 0},
            "triggers": {"changed": [{"element": "limits", "ability": "store"}]},
        },
        "limits": {"type": "storage"},
    })
}

/// A way to change settings.
#[derive(Clone, Copy)]
enum Way {
    /// One by one, by a user.
    Put,
    /// The device's design.
    Design,
    /// Several devices at once.
    Bulk,
}

/// A client that sets the settings of its own devices to increasing numbers.
struct Changer {
    way: Way,
    devices: Vec<Device>,
    /// The newest attempted number, and the acknowledged ones.
    tried: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
}

impl Changer {
    fn new(way: Way, devices: Vec<Device>) -> Arc<Self> {
        Arc::new(Self { way, devices, tried: AtomicU64::new(0), acknowledged: Mutex::default() })
    }

    /// Changes the settings; returns false if the server was gone before it answered.
    async fn change(&self, api: &Api) -> bool {
        let number = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
        let (value, first) = (json!(number), &self.devices[0]);
        let answer = match self.way {
            Way::Put => {
                let path = format!("/v2/devices/{}/settings/limit", first.id);
                api.send_as_admin(Method::PUT, &path, Some(&value)).await
            }
            Way::Design => {
                let headers = [("cloud", first.token.as_str())];
                api.send(Method::POST, "/v2/events/device?elementName=wish", &headers, Some(&value)).await
            }
            Way::Bulk => {
                let change = |device: &Device| json!({"deviceId": device.id, "name": "limit", "value": value});
                let changes: Value = self.devices.iter().map(change).collect();
                api.send_as_admin(Method::POST, "/v2/devices/settings", Some(&changes)).await
            }
        };
        let Ok(answer) = answer else { return false };
        assert!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.body);
        if matches!(self.way, Way::Bulk) {
            assert_eq!(answer.json()["errors"], json!([]));
        }
        self.acknowledged.lock().await.push(number);
        true
    }

    /// Checks that every acknowledged change has its record, once and in order, and its effect.
    async fn check(&self, api: &Api) {
        let acknowledged = self.acknowledged.lock().await;
        for device in &self.devices {
            let settings = format!("/v2/devices/{}/settings", device.id);
            let mut records = vec![api.get(&format!("{settings}/limit")).await];
            records.extend(api.list(&format!("{settings}/history?limit=10000")).await);
            records.reverse();
            // Before the first change the default applies, which has no record.
            records.retain(|record| record["value"] != 0);
            let values: Vec<u64> = records.iter().map(|record| record["value"].as_u64().unwrap()).collect();
            assert!(values.is_sorted_by(|earlier, later| earlier < later), "twice, or out of order: {values:?}");
            let lost: Vec<_> = acknowledged.iter().filter(|number| values.binary_search(number).is_err()).collect();
            assert!(lost.is_empty(), "acknowledged and lost: {lost:?} of {values:?}");
            for pair in records.windows(2) {
                assert_eq!(pair[0]["changedToId"], pair[1]["id"], "{values:?}");
            }
            let mut stored: Vec<u64> = api
                .list(&format!("/v2/devices/{}/data/limits?limit=10000", device.id))
                .await
                .iter()
                .map(|value| value["payload"].as_u64().unwrap())
                .collect();
            stored.reverse();
            assert_eq!(stored, values, "what the changes have set off");
        }
    }
}

// Holds: c8.records
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_settings_survive_kills_with_their_history() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::on(folder.path(), &ENVIRONMENT);
    let mut api = Api::of(&serving).await;
    let mut devices = api.found(&with_a_limit(), 8).await;
    let mut several = |count: usize| devices.split_off(devices.len() - count);
    let changers = [
        Changer::new(Way::Bulk, several(4)),
        Changer::new(Way::Put, several(1)),
        Changer::new(Way::Put, several(1)),
        Changer::new(Way::Design, several(1)),
        Changer::new(Way::Design, several(1)),
    ];
    for round in 0..kills() {
        let fuse = Fuse::of(1 + chance(2 * APART + round) % CHANGES_MAX);
        let mut clients = JoinSet::new();
        for changer in &changers {
            let (changer, api, fuse) = (changer.clone(), api.clone(), fuse.clone());
            clients.spawn(async move {
                while changer.change(&api).await {
                    fuse.acknowledged();
                }
            });
        }
        fuse.kill(serving, clients).await;
        serving = Serving::on(folder.path(), &ENVIRONMENT);
        api = api.at(&serving);
        join_all(changers.iter().map(|changer| changer.check(&api))).await;
    }
    assert_eq!(serving.stop(), Some(0));
}
