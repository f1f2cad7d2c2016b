//! Acknowledged events, cloud events and settings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::program_support::site::{Api, Device};
use crate::work::{Told, expected, id};

/// Most cloud events that are taken at once.
const TAKEN_AT_ONCE: usize = 5;
const POST: &str = "/v2/events/device?elementName=reading";
const BATCH: &str = "/v2/events/device/batch";
/// One post in this many is a batch, and the number of its events.
const BATCHED_OF: u64 = 4;
const BATCH_EVENTS: u64 = 5;

/// A device that posts events, each of which is stored and queued, and takes them.
pub struct Talker {
    device: Device,
    next: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Numbers of events with their ids.
    acknowledged: HashMap<u64, String>,
    /// Cloud events that were received in full.
    taken: HashSet<u64>,
    /// Number of requests during which the server went away.
    broken_off: usize,
}

/// Returns the payload of a number: some are long, so that they span several blocks.
fn payload(number: u64) -> Value {
    let length = if number.is_multiple_of(7) { 3_000 } else { 20 };
    json!({"n": number, "text": "x".repeat(length)})
}

fn numbers(items: &[Value], kind: Option<&str>) -> Vec<u64> {
    let wanted = items.iter().filter(|item| kind.is_none_or(|kind| item["type"] == kind));
    wanted.map(|item| item["payload"]["n"].as_u64().unwrap()).collect()
}

impl Talker {
    pub fn of(device: Device) -> Self {
        Self { device, next: AtomicU64::new(0), known: Mutex::default() }
    }

    pub async fn post(&self, api: &Api) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(BATCHED_OF) {
            let first = self.next.fetch_add(BATCH_EVENTS, Ordering::Relaxed);
            return self.post_batch(api, first..first + BATCH_EVENTS).await;
        }
        let credential = [("cloud", self.device.token.as_str())];
        let answer = api.send(Method::POST, POST, &credential, Some(&payload(number))).await;
        let answer = expected(answer, &[201])?;
        self.known.lock().await.acknowledged.insert(number, answer.created());
        Some(())
    }

    async fn post_batch(&self, api: &Api, numbers: Range<u64>) -> Option<()> {
        let event = |number| json!({"elementName": "reading", "payload": payload(number)});
        let batch = Value::from_iter(numbers.clone().map(event));
        let credential = [("cloud", self.device.token.as_str())];
        let answer = expected(api.send(Method::POST, BATCH, &credential, Some(&batch)).await, &[200])?.json();
        assert_eq!(answer["errors"], json!([]));
        let ids = answer["data"].as_array().unwrap().iter().map(id);
        self.known.lock().await.acknowledged.extend(numbers.zip(ids));
        Some(())
    }

    pub async fn take(&self, api: &Api) -> Option<()> {
        let credential = [("cloud", self.device.token.as_str())];
        let path = format!("/v2/events/cloud?wait=5&limit={TAKEN_AT_ONCE}");
        let answer = api.send(Method::GET, &path, &credential, None).await;
        let mut known = self.known.lock().await;
        let Some(answer) = expected(answer, &[200]) else {
            known.broken_off += 1;
            return None;
        };
        for number in numbers(answer.json().as_array().unwrap(), None) {
            assert!(known.taken.insert(number), "cloud event {number} was given out twice");
        }
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (id, known, mut lost) = (&self.device.id, self.known.lock().await, Vec::new());
        let history = api.list(&format!("/v2/devices/{id}/events?limit=10000")).await;
        let values = api.list(&format!("/v2/devices/{id}/data/log?limit=10000")).await;
        let mut there = HashMap::new();
        for event in history.iter().filter(|event| event["type"] == "deviceEvent") {
            let number = event["payload"]["n"].as_u64().unwrap();
            if there.insert(number, event["id"].as_str().unwrap()).is_some() {
                lost.push(format!("event {number} is there twice"));
            }
            if event["payload"] != payload(number) || event.get("errors").is_some() {
                lost.push(format!("event {number} is another: {event}"));
            }
        }
        for (number, id) in &known.acknowledged {
            if there.get(number) != Some(&id.as_str()) {
                lost.push(format!("event {number} was acknowledged as {id}, and is {:?}", there.get(number)));
            }
        }
        // The event, its value and its cloud event are there together or not at all, in one order.
        let events = numbers(&history, Some("deviceEvent"));
        if numbers(&values, None) != events || numbers(&history, Some("cloudEvent")) != events {
            lost.push(format!("device {id}: history, values and cloud events are not the same"));
        }
        let waiting = api.get(&format!("/v2/events/cloud?deviceId={id}&peek=true&limit=10000")).await;
        let waiting = numbers(waiting.as_array().unwrap(), None);
        let returned: Vec<_> = waiting.iter().filter(|number| known.taken.contains(number)).collect();
        if !returned.is_empty() {
            lost.push(format!("taken, and in the queue again: {returned:?}"));
        }
        // The queue is a suffix without gaps; events neither queued nor taken were in flight.
        let newest: Vec<u64> = events.iter().take(waiting.len()).rev().copied().collect();
        let gone = events.len().saturating_sub(waiting.len() + known.taken.len());
        if waiting != newest || gone > known.broken_off * TAKEN_AT_ONCE {
            lost.push(format!("device {id}: {gone} cloud events are neither waiting nor taken: {waiting:?}"));
        }
        if let Some(newest) = events.first() {
            let shown = api.get(&format!("/v2/devices/{id}")).await;
            let last = api.get(&format!("/v2/devices/{id}/last/log")).await;
            if shown["statusInt"] != newest % 4 + 1 || last["values"]["n"] != *newest {
                lost.push(format!("device {id}: what event {newest} led to is not there"));
            }
        }
        lost
    }

    pub async fn told(&self) -> Told {
        let known = self.known.lock().await;
        let (events, taken) = (known.acknowledged.len() as u64, known.taken.len() as u64);
        Told { events, cloud_events: taken, ..Told::default() }
    }
}

/// A worker that sends cloud events to a device that takes none, and deletes every third.
pub struct Sender {
    device: Device,
    next: AtomicU64,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    acknowledged: BTreeMap<u64, String>,
    deleted: HashSet<u64>,
    /// Deletions without an answer.
    perhaps: HashSet<u64>,
}

impl Sender {
    pub fn of(device: Device) -> Self {
        Self { device, next: AtomicU64::new(0), sent: Mutex::default() }
    }

    pub async fn step(&self, api: &Api) -> Option<()> {
        let (number, device) = (self.next.fetch_add(1, Ordering::Relaxed), &self.device.id);
        let path = format!("/v2/events/cloud?deviceId={device}&elementName=order");
        let answer = api.send_as_admin(Method::POST, &path, Some(&payload(number))).await;
        let event = expected(answer, &[201])?.created();
        self.sent.lock().await.acknowledged.insert(number, event.clone());
        if number.is_multiple_of(3) {
            self.sent.lock().await.perhaps.insert(number);
            let path = format!("/v2/events/cloud/{event}?deviceId={device}");
            expected(api.send_as_admin(Method::DELETE, &path, None).await, &[200, 204])?;
            let mut sent = self.sent.lock().await;
            sent.perhaps.remove(&number);
            sent.deleted.insert(number);
        }
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (sent, device, mut lost) = (self.sent.lock().await, &self.device.id, Vec::new());
        let waiting = api.get(&format!("/v2/events/cloud?deviceId={device}&peek=true&limit=10000")).await;
        let waiting = waiting.as_array().unwrap();
        let found: HashMap<u64, &str> = waiting
            .iter()
            .map(|event| (event["payload"]["n"].as_u64().unwrap(), event["id"].as_str().unwrap()))
            .collect();
        let order = numbers(waiting, None);
        if !order.is_sorted_by(|earlier, later| earlier < later) {
            lost.push(format!("cloud events twice, or out of order: {order:?}"));
        }
        for (number, id) in &sent.acknowledged {
            let is_there = found.get(number) == Some(&id.as_str());
            if is_there == sent.deleted.contains(number) && !sent.perhaps.contains(number) {
                lost.push(format!("cloud event {number}: there is {is_there}, and was acknowledged otherwise"));
            }
        }
        lost
    }

    pub async fn told(&self) -> Told {
        let sent = self.sent.lock().await;
        Told { cloud_events: (sent.acknowledged.len() + sent.deleted.len()) as u64, ..Told::default() }
    }
}

/// A worker that sets a setting to increasing numbers.
pub struct Setter {
    device: Device,
    next: AtomicU64,
    /// Numbers with the ids of their records.
    acknowledged: Mutex<BTreeMap<u64, String>>,
}

impl Setter {
    pub fn of(device: Device) -> Self {
        Self { device, next: AtomicU64::new(1), acknowledged: Mutex::default() }
    }

    pub async fn step(&self, api: &Api) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = format!("/v2/devices/{}/settings/limit", self.device.id);
        let answer = expected(api.send_as_admin(Method::PUT, &path, Some(&json!(number))).await, &[200])?;
        self.acknowledged.lock().await.insert(number, id(&answer.json()));
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (acknowledged, mut lost) = (self.acknowledged.lock().await, Vec::new());
        let settings = format!("/v2/devices/{}/settings", self.device.id);
        let mut records = vec![api.get(&format!("{settings}/limit")).await];
        records.extend(api.list(&format!("{settings}/history?limit=10000")).await);
        records.reverse();
        records.retain(|record| record["value"] != 0);
        let order: Vec<u64> = records.iter().map(|record| record["value"].as_u64().unwrap()).collect();
        if !order.is_sorted_by(|earlier, later| earlier < later) {
            lost.push(format!("changes of a setting twice, or out of order: {order:?}"));
        }
        for (number, id) in acknowledged.iter() {
            if !records.iter().any(|record| record["value"] == *number && record["id"] == *id) {
                lost.push(format!("a setting was changed to {number}, and that is gone"));
            }
        }
        lost
    }

    pub async fn told(&self) -> u64 {
        self.acknowledged.lock().await.len() as u64
    }
}
