//! Many device events in one call.

use futures::future::join_all;
use isobar_hub::RateLimits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::designs::{fridge, to};
use crate::support::person::text;
use crate::support::{Answer, Device, NOBODY, TestApp, on_both_registries};

on_both_registries!(
    events_of_a_device_run_in_their_order,
    each_event_of_a_batch_is_checked_separately,
    batch_of_a_device_is_for_itself_alone,
    idempotency_key_works_alike_in_a_batch_and_alone,
    concurrent_batch_and_post_with_one_key_make_one_event,
);

const BATCH: &str = "/v2/events/device/batch";

fn event(element: &str, payload: impl Into<Value>) -> Value {
    json!({"elementName": element, "payload": payload.into()})
}

fn of(device: &Device<'_>, element: &str, payload: impl Into<Value>) -> Value {
    json!({"deviceId": device.id, "elementName": element, "payload": payload.into()})
}

fn keyed(mut event: Value, key: &str) -> Value {
    event["idempotencyKey"] = json!(key);
    event
}

async fn posts_all(device: &Device<'_>, batch: &Value) -> Answer {
    device.app.send(with_json(device.request(Method::POST, BATCH), batch)).await
}

fn members(outcome: &Value, list: &str, member: &str) -> Vec<Value> {
    outcome[list].as_array().unwrap().iter().map(|item| item[member].clone()).collect()
}

// Holds: POST /v2/events/device/batch, c13.batchOrder
async fn events_of_a_device_run_in_their_order(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let (one, two) = (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "two").await);
    let batch = (0..500).map(|n| of(if n % 2 == 0 { &one } else { &two }, "reading", json!({"temp": n}))).collect();
    let outcome = ana.post(BATCH, batch).await.ok();
    assert_eq!(outcome["errors"], json!([]));
    let indices: Vec<usize> = members(&outcome, "data", "index").iter().map(|n| n.as_u64().unwrap() as usize).collect();
    assert_eq!(indices, (0..500).collect::<Vec<_>>());
    for (device, first) in [(&one, 0), (&two, 1)] {
        let stored = ana.get(&device.at("data/store?limit=1000&sortBy=createdAt")).await.list_of("/payload/temp");
        assert_eq!(stored, (first..500).step_by(2).map(Value::from).collect::<Vec<_>>());
        let history = ana.get(&device.at("events?limit=1000&cloudEvents=false")).await.list_of("/id");
        let answered = members(&outcome, "data", "id").into_iter().skip(first).step_by(2);
        assert_eq!(history, answered.rev().collect::<Vec<_>>());
    }
    assert_eq!(ana.post(BATCH, json!([])).await.ok(), json!({"data": [], "errors": []}));
}

// Holds: POST /v2/events/device/batch, c13.batchItems
async fn each_event_of_a_batch_is_checked_separately(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    let hidden = app.stranger("bob").await.creates_device("hidden").await;
    let batch = json!([
        of(&device, "reading", json!({"temp": 1})),
        event("reading", 1),
        of(&hidden, "reading", 1),
        {"deviceId": NOBODY, "elementName": "reading", "payload": 1},
        {"deviceId": "no identifier", "elementName": "reading", "payload": 1},
        of(&device, "store", 1),
        of(&device, "", 1),
        of(&device, "a\u{0}b", 1),
        {"deviceId": device.id, "payload": 1},
        {"deviceId": device.id, "elementName": "reading"},
        of(&device, "reading", Value::Null),
        keyed(of(&device, "reading", 1), ""),
        keyed(of(&device, "reading", 1), &"k".repeat(65)),
        7,
        {"deviceId": 1, "elementName": [], "payload": 1, "idempotencyKey": {}},
        of(&device, "reading", json!({"temp": 2})),
    ]);
    let outcome = ana.post(BATCH, batch).await.ok();
    assert_eq!(members(&outcome, "data", "index"), [0, 15]);
    assert_eq!(members(&outcome, "errors", "index"), (1..15).map(Value::from).collect::<Vec<_>>());
    let unknown = "deviceId: no such device";
    let no_element = "elementName: is no deviceEvent element of the project's design";
    let expected = [
        "deviceId: is required",
        unknown,
        unknown,
        unknown,
        no_element,
        &format!("elementName: must be 1 to 128 characters long; {no_element}"),
        "elementName: must not hold the character U+0000",
        "elementName: is required",
        "payload: is required",
        "payload: must not be null",
        "idempotencyKey: must be 1 to 64 characters long",
        "idempotencyKey: must be 1 to 64 characters long",
        "must be an object, not number",
        "deviceId: must be a string, not number; elementName: must be a string, not array; idempotencyKey: must be a \
         string, not object",
    ];
    assert_eq!(members(&outcome, "errors", "message"), expected);
    assert_eq!(ana.get(&device.at("data/store")).await.list_of("/payload/temp"), [2, 1]);
}

// Holds: c13.batchItems
async fn batch_of_a_device_is_for_itself_alone(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (one, other) = (ana.creates_device("one").await, ana.creates_device("other").await);
    let batch = json!([event("log", 1), of(&other, "log", 2), of(&one, "log", 3)]);
    let outcome = posts_all(&one, &batch).await.ok();
    assert_eq!(members(&outcome, "data", "index"), [0, 2]);
    assert_eq!(outcome["errors"], json!([{"index": 1, "message": "deviceId: is not the device that calls"}]));
    assert_eq!(ana.get(&one.at("data/log")).await.list_of("/payload"), [3, 1]);
    ana.get(&other.at("data/log")).await.not_found();
}

// Holds: c13.batchKeys
async fn idempotency_key_works_alike_in_a_batch_and_alone(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (one, other) = (ana.creates_device("one").await, ana.creates_device("other").await);
    let single = text(&one.posts_once("k1", "log", json!(0)).await.created(), "id").to_owned();
    let batch = json!([
        keyed(of(&one, "log", 1), "k1"),
        keyed(of(&one, "log", 2), "k2"),
        keyed(of(&one, "log", 3), "k2"),
        keyed(of(&other, "log", 4), "k2"),
    ]);
    let first = ana.post(BATCH, batch.clone()).await.ok();
    let ids = members(&first, "data", "id");
    assert_eq!((&ids[0], &ids[1]), (&json!(single), &ids[2]));
    assert!(ids[3] != ids[1]);
    // A repeated batch has no effect, and gets the same answer.
    assert_eq!(ana.post(BATCH, batch).await.ok(), first);
    assert_eq!(ana.get(&one.at("data/log")).await.list_of("/payload"), [2, 0]);
    assert_eq!(ana.get(&other.at("data/log")).await.list_of("/payload"), [4]);
    let again = text(&one.posts_once("k2", "log", json!(5)).await.created(), "id").to_owned();
    assert_eq!(json!(again), ids[1]);
}

// Holds: c13.batchKeys
async fn concurrent_batch_and_post_with_one_key_make_one_event(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("raced").await;
    for round in 0..16 {
        let key = format!("k{round}");
        let batch = json!([event("other", 1), keyed(event("log", "batch"), &key), keyed(event("log", "again"), &key)]);
        let batched = async || {
            let ids = members(&posts_all(&device, &batch).await.ok(), "data", "id");
            vec![ids[1].clone(), ids[2].clone()]
        };
        let alone = async || vec![device.posts_once(&key, "log", json!("alone")).await.created()["id"].clone()];
        let (batches, singles) = futures::join!(join_all((0..3).map(|_| batched())), join_all((0..3).map(|_| alone())));
        let ids: Vec<Value> = batches.into_iter().chain(singles).flatten().collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let stored = ana.get(&device.at("data/log")).await.ok();
        assert_eq!(stored["meta"]["totalDocs"], round + 1);
    }
}

// Holds: c13.batchItems
#[tokio::test]
async fn invalid_batch_is_refused_as_a_whole() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let many = vec![of(&device, "log", 1); 1_001];
    for bad in [json!({}), json!("x"), json!(many), json!(null)] {
        assert_eq!(ana.post(BATCH, bad).await.faults(), ["body"]);
    }
    for bad in ["[", "[{\"a\":1,\"a\":2}]", ""] {
        assert_eq!(ana.post_text(BATCH, bad).await.faults(), ["body"]);
    }
    let long = format!("[{}\"x\"]", "0,".repeat(40_000));
    assert_eq!(ana.post_text(BATCH, long).await.faults(), ["body"]);
    ana.post_text(BATCH, format!("[\"{}\"]", "x".repeat(2 << 20))).await.is(413);
    assert_eq!(ana.post_plain(BATCH, "[]").await.faults(), ["body"]);
    // A user without the right to post events is refused before the body is read.
    let ben = ana.invites("ben", "basicUser").await;
    ben.post(BATCH, json!({})).await.forbidden();
    app.send(app.request(Method::POST, BATCH)).await.unauthenticated();
    ana.get(&device.at("data/log")).await.not_found();
}

// Holds: c13.batchCalls
#[tokio::test]
async fn a_batch_counts_as_a_call_for_every_started_hundred() {
    let app = TestApp::with(|settings| settings.hub.rate_limit = RateLimits { user: 0, device: 6, address: 0 }).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let batch = |events| Value::from(vec![event("log", 1); events]);
    let remaining = |answer: &Answer| answer.header("x-ratelimit-remaining").to_owned();
    assert_eq!(remaining(&posts_all(&device, &batch(100)).await.is(200)), "5");
    assert_eq!(remaining(&posts_all(&device, &batch(201)).await.is(200)), "2");
    // The window has no room for all of it: it is refused as a whole.
    let refused = posts_all(&device, &batch(201)).await.is(429);
    assert_eq!((remaining(&refused), refused.header("retry-after")), ("1".to_owned(), "61"));
    assert_eq!(remaining(&posts_all(&device, &batch(1)).await.is(200)), "0");
    posts_all(&device, &batch(1)).await.is(429);
    assert_eq!(ana.get(&device.at("data/log")).await.ok()["meta"]["totalDocs"], 302);
}

// Holds: c13.batchOrder
#[tokio::test]
async fn code_and_large_payloads_run_in_their_order_too() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let code = "function decodeUplink(input) { return {data: input.bytes[0]}; }";
    let project = ana
        .designs(json!({
            "in": {"type": "deviceEvent", "triggers": {"eventReceived": [to("decode", "evaluate")]}},
            "large": {"type": "deviceEvent", "triggers": {"eventReceived": [to("texts", "store")]}},
            "decode": {"type": "function", "properties": {"code": code, "bytesRef": "data", "bytesEncoding": "hex"},
                "triggers": {"result": [to("log", "store")]}},
            "log": {"type": "storage"},
            "texts": {"type": "storage"},
        }))
        .await;
    let device = ana.creates_device_of(&project, "coded").await;
    let coded = (0..100).map(|n| event("in", json!({"data": format!("{n:02x}")})));
    let large = (0..10).map(|n| event("large", format!("{n}{}", "x".repeat(40_000))));
    let outcome = posts_all(&device, &Value::from_iter(coded.chain(large))).await.ok();
    assert_eq!(outcome["errors"], json!([]));
    let decoded = ana.get(&device.at("data/log?limit=1000&sortBy=createdAt")).await.list_of("/payload");
    assert_eq!(decoded, (0..100).map(Value::from).collect::<Vec<_>>());
    let texts = ana.get(&device.at("data/texts?sortBy=createdAt")).await.list_of("/payload");
    let firsts: Vec<_> = texts.iter().map(|text| text.as_str().unwrap().chars().next().unwrap()).collect();
    assert_eq!(firsts, ('0'..='9').collect::<Vec<_>>());
}
