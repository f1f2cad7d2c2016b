//! A client of an event stream that reconnects again and again with the last event that it received: it gets everything
//! that was acknowledged, each event once, whenever it disconnected.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::person::text;
use crate::support::stream::Stream;
use crate::support::{Device, TestApp};

/// Half of them run code.
const DEVICES: usize = 200;
/// Number of times that the client reconnects, unless SCENES_STREAM_COMEBACKS sets another.
const COMEBACKS: usize = 20;
/// Most events that the client receives before it disconnects, each time a different number.
const STAYS_MAX: usize = 101;

/// Returns code that takes a varying time, and sends a cloud event.
fn taking_its_time() -> Value {
    let code = "function decodeUplink(input) { for (var i = Math.random() * 20000; i > 0; i--) {} return {data: 1}; }";
    json!({
        "up": {"type": "deviceEvent", "triggers": {"eventReceived": [to("decode", "evaluate")]}},
        "decode": {"type": "function", "properties": {"code": code}, "triggers": {"result": [to("out", "send")]}},
        "out": {"type": "cloudEvent"},
    })
}

/// The client of a stream.
#[derive(Default)]
struct Listener {
    /// Every event that it has received.
    heard: HashSet<String>,
    last: Option<String>,
}

impl Listener {
    /// Receives this many events on one connection.
    async fn listens(&mut self, stream: &mut Stream, events: usize) {
        for _ in 0..events {
            let sent = stream.next().await;
            assert!(self.heard.insert(sent.id.clone()), "{} came twice", sent.id);
            self.last = Some(sent.id);
        }
    }
}

/// Opens a stream of all devices with an API key.
async fn stream(app: &TestApp, key: &str, after: Option<&str>) -> Stream {
    Stream::of(app.request(Method::GET, "/v2/events/stream").header("api_auth_token", key), after).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_stream_has_each_event_once() {
    let comebacks = std::env::var("SCENES_STREAM_COMEBACKS").map_or(COMEBACKS, |count| count.parse().unwrap());
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let key = ana.makes_api_key("listens").await;
    let (plain, coded) = (ana.project().await.to_owned(), ana.designs(taking_its_time()).await);
    let projects = [&plain, &coded];
    let devices = join_all((0..DEVICES).map(|number| ana.creates_device_of(projects[number % 2], "one"))).await;
    let (is_over, mut listener) = (AtomicBool::new(false), Listener::default());
    let posting = async |device: &Device<'_>| {
        let mut made = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            made.push(text(&device.posts("up", json!("00")).await.created(), "id").to_owned());
        }
        made
    };
    let mut first = stream(&app, &key, None).await;
    let listening = async {
        listener.listens(&mut first, 1).await;
        drop(first);
        for number in 1..=comebacks {
            let mut again = stream(&app, &key, listener.last.as_deref()).await;
            listener.listens(&mut again, 1 + number * 37 % STAYS_MAX).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (made, ()) = futures::join!(join_all(devices.iter().map(posting)), listening);
    // All events in both directions, which include all acknowledged ones.
    let mut all = HashSet::new();
    // The exports are sequential: a tenant has few slots for long reads.
    for device in &devices {
        let path = device.at("events?limit=10000");
        all.extend(ana.get(&path).await.list_of("/id").iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    assert!(made.iter().flatten().all(|id| all.contains(id)));
    let acknowledged: usize = made.iter().map(Vec::len).sum();
    let (id, token) = devices.first().map(|device| (device.id.clone(), device.token.clone())).unwrap();
    drop((ana, devices));
    // The remaining events can be read after a restart too.
    let app = app.restart().await;
    let mut rest = stream(&app, &key, listener.last.as_deref()).await;
    // No event comes after the newest one.
    let newest = Device { app: &app, id, token }.posts("up", json!("00")).await.created();
    let newest = text(&newest, "id");
    while listener.last.as_deref() != Some(newest) {
        listener.listens(&mut rest, 1).await;
    }
    all.insert(newest.to_owned());
    let missed: Vec<_> = all.difference(&listener.heard).collect();
    assert!(missed.is_empty(), "{} of {} events never came: {missed:?}", missed.len(), all.len());
    assert_eq!(listener.heard.len(), all.len());
    let (events, heard) = (all.len(), listener.heard.len());
    println!("{acknowledged} device events acknowledged, {events} events in history, {heard} received, each once");
}
