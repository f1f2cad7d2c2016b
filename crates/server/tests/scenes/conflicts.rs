//! Commits that conflict with others: their effects are stored once, based on the state that the previous one left.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{Conflicts, with_json};
use crate::support::designs::to;
use crate::support::{Device, Person, TestApp};

/// Starts a server on which this many of a hundred commits conflict.
async fn contended(share: u64) -> TestApp {
    TestApp::with(|settings| settings.conflicts = Some(Conflicts { seed: 7, share })).await
}

/// Returns a device that stores its events and their number.
async fn counting<'a>(ana: &Person<'a>) -> Device<'a> {
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("was", "store"), to("tally", "push")]}},
            "was": {"type": "storage"},
            "tally": {"type": "window", "properties": {"size": 4096, "aggregate": "count"}, "triggers": {"result": [to("counts", "store")]}},
            "counts": {"type": "storage"},
            "limit": {"type": "deviceSetting", "properties": {"inputType": "number"}, "triggers": {"changed": [to("tally", "push")]}},
            "alarm": {"type": "cloudEvent"},
        }))
        .await;
    ana.creates_device_of(&project, "d").await
}

async fn stored(ana: &Person<'_>, device: &Device<'_>, element: &str, pointer: &str) -> Vec<Value> {
    ana.get(&device.at(&format!("data/{element}?limit=1000&sortBy=createdAt"))).await.list_of(pointer)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_stored_once_each_in_one_order() {
    const EVENTS: i64 = 60;
    let app = contended(40).await;
    let ana = app.developer("ana").await;
    let device = counting(&ana).await;
    let batch: Value =
        (EVENTS..2 * EVENTS).map(|number| json!({"elementName": "reading", "payload": number})).collect();
    let batch = app.send(with_json(device.request(Method::POST, "/v2/events/device/batch"), &batch));
    let single = join_all((0..EVENTS).map(async |number| match number % 2 {
        0 => device.posts("reading", json!(number)).await.created(),
        _ => device.posts_once(&format!("key {number}"), "reading", json!(number)).await.created(),
    }));
    let (_, batch) = futures::join!(single, batch);
    assert_eq!(batch.ok()["errors"], json!([]));
    for number in [1, 3] {
        device.posts_once(&format!("key {number}"), "reading", json!(number)).await.created();
    }
    let mut numbers: Vec<i64> =
        stored(&ana, &device, "was", "/payload").await.iter().map(|payload| payload.as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2 * EVENTS).collect::<Vec<_>>());
    let counts = stored(&ana, &device, "counts", "/payload").await;
    assert_eq!(counts, (1..=2 * EVENTS).map(Value::from).collect::<Vec<_>>());
    assert_eq!(ana.get(&device.at("events?limit=1000")).await.ok()["meta"]["totalDocs"], 2 * EVENTS);
    assert!(app.contended().conflicts() > 20);
}

#[tokio::test]
async fn settings_change_once_and_set_the_design_off_once() {
    const CHANGES: u64 = 20;
    let app = contended(60).await;
    let ana = app.developer("ana").await;
    let device = counting(&ana).await;
    for limit in 1..=CHANGES {
        ana.put(&device.at("settings/limit"), json!(limit)).await.ok();
    }
    let history = ana.get(&device.at("settings/history?limit=100")).await.list_of("/value");
    assert_eq!(history, (1..CHANGES).rev().map(Value::from).collect::<Vec<_>>());
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["value"], CHANGES);
    let counts = stored(&ana, &device, "counts", "/payload").await;
    assert_eq!(counts, (1..=CHANGES).map(Value::from).collect::<Vec<_>>());
    assert!(app.contended().conflicts() > 10);
}

#[tokio::test]
async fn cloud_events_are_queued_once() {
    let app = contended(60).await;
    let ana = app.developer("ana").await;
    let device = counting(&ana).await;
    for number in 0..20 {
        device.queues("alarm", json!(number)).await;
    }
    for number in 0..20 {
        assert_eq!(device.takes().await.ok(), number);
    }
    device.takes().await.no_content();
    assert!(app.contended().conflicts() > 10);
}

#[tokio::test]
async fn endless_conflicts_are_answered_503() {
    let app = contended(0).await;
    let ana = app.developer("ana").await;
    let device = counting(&ana).await;
    device.posts("reading", json!(1)).await.created();
    app.contended().set_share(100);
    device.posts("reading", json!(2)).await.is(503);
    device.posts_once("key", "reading", json!(2)).await.is(503);
    let before = app.contended().conflicts();
    device.posts("reading", json!(2)).await.is(503);
    assert_eq!(app.contended().conflicts() - before, 32);
    app.contended().set_share(0);
    device.posts_once("key", "reading", json!(3)).await.created();
    assert_eq!(stored(&ana, &device, "was", "/payload").await, [1, 3]);
    assert_eq!(stored(&ana, &device, "counts", "/payload").await, [1, 2]);
}
