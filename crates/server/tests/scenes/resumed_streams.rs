//! A client of an event stream that breaks off and comes back with the event that it had last, again and again: it has
//! everything that was acknowledged, each event once, whatever the moment at which it broke off.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::person::text;
use crate::support::stream::Stream;
use crate::support::{Device, TestApp};

/// Half of them run code.
const DEVICES: usize = 200;
/// What has been missed comes within this time.
const COMES_WITHIN: Duration = Duration::from_secs(30);
/// Nothing more comes when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(250);
/// They post until the client has come back so often, unless the environment's SCENES_STREAM_SECONDS says for how long.
const COMEBACKS: usize = 20;
/// How long the client stays: in a short run it breaks off more often.
const STAYS: Duration = Duration::from_millis(40);
const STAYS_IN_A_LONG_RUN: Duration = Duration::from_millis(200);

/// Code that takes now this long and now that, and sends a cloud event.
fn taking_its_time() -> Value {
    let code = "function decodeUplink(input) { for (var i = Math.random() * 20000; i > 0; i--) {} return {data: 1}; }";
    json!({
        "up": {"type": "deviceEvent", "triggers": {"eventReceived": [to("decode", "evaluate")]}},
        "decode": {"type": "function", "properties": {"code": code}, "triggers": {"result": [to("out", "send")]}},
        "out": {"type": "cloudEvent"},
    })
}

/// Who listens.
#[derive(Default)]
struct Listener {
    /// Every event that it has heard.
    heard: HashSet<String>,
    last: Option<String>,
}

impl Listener {
    /// Listens on one connection until nothing comes for so long as `stays`, or that time is over.
    async fn listens(&mut self, stream: &mut Stream, stays: Duration) {
        let listening = async {
            loop {
                let sent = stream.next().await;
                assert!(self.heard.insert(sent.id.clone()), "{} came twice", sent.id);
                self.last = Some(sent.id);
            }
        };
        let _ = tokio::time::timeout(stays, listening).await;
    }
}

/// Opens a stream of all devices with an API key.
async fn stream(app: &TestApp, key: &str, after: Option<&str>) -> Stream {
    Stream::of(app.request(Method::GET, "/v2/events/stream").header("api_auth_token", key), after).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_with_the_event_it_had_last_has_each_event_once() {
    let asked = std::env::var("SCENES_STREAM_SECONDS").ok().map(|seconds| seconds.parse().unwrap());
    let stays = if asked.is_some() { STAYS_IN_A_LONG_RUN } else { STAYS };
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
        while listener.last.is_none() {
            listener.listens(&mut first, stays).await;
        }
        drop(first);
        for comebacks in 1.. {
            let mut again = stream(&app, &key, listener.last.as_deref()).await;
            listener.listens(&mut again, stays).await;
            if asked.is_none() && comebacks == COMEBACKS {
                is_over.store(true, Ordering::Relaxed);
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    let ending = async {
        if let Some(seconds) = asked {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            is_over.store(true, Ordering::Relaxed);
        }
    };
    let (made, (), ()) = futures::join!(join_all(devices.iter().map(posting)), listening, ending);
    // All of it, both ways; what was acknowledged is a part of it.
    let mut all = HashSet::new();
    // One after the other: only so many of a tenant read at length at once.
    for device in &devices {
        let path = device.at("events?limit=10000");
        all.extend(ana.get(&path).await.list_of("/id").iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    assert!(made.iter().flatten().all(|id| all.contains(id)));
    let acknowledged: usize = made.iter().map(Vec::len).sum();
    drop((ana, devices));
    // What it has not heard by now is there for it after a restart too.
    let app = app.restart().await;
    let mut rest = stream(&app, &key, listener.last.as_deref()).await;
    let begun = Instant::now();
    loop {
        let before = listener.heard.len();
        listener.listens(&mut rest, QUIET).await;
        let is_whole = all.is_subset(&listener.heard) || begun.elapsed() > COMES_WITHIN;
        if is_whole && listener.heard.len() == before {
            break;
        }
    }
    let missed: Vec<_> = all.difference(&listener.heard).collect();
    assert!(missed.is_empty(), "{} of {} events never came: {missed:?}", missed.len(), all.len());
    assert_eq!(listener.heard.len(), all.len());
    let (events, heard) = (all.len(), listener.heard.len());
    println!("{acknowledged} device events acknowledged, {events} events in history, {heard} received, each once");
}
