//! Calls with many items, one of which fails because the stores do not take it: later items of the same device do not run, so
//! that all land in their order when the failed ones are sent again.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{Conflicts, with_json};
use crate::support::designs::{copied, thermostat, to};
use crate::support::{Person, TestApp};
use crate::webhook::{Sender, messages};

/// Text in the payload or value that the store refuses.
const MARK: &str = "no room";
/// Message of an item that may be sent again.
const BUSY: &str = "the service is busy, try again";

/// Starts a server whose telemetry refuses what the scene asks it to.
async fn refusing() -> TestApp {
    TestApp::with(|settings| settings.conflicts = Some(Conflicts { seed: 1, share: 0 })).await
}

fn indices(outcome: &Value, list: &str) -> Vec<u64> {
    outcome[list].as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect()
}

async fn stored(ana: &Person<'_>, device: &str) -> Vec<Value> {
    ana.get(&format!("/v2/devices/{device}/data/log?limit=1000&sortBy=createdAt")).await.list_of("/payload")
}

// Holds: c13.batchOrder
#[tokio::test]
async fn batch_runs_no_event_behind_one_that_failed() {
    let app = refusing().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(copied(1)).await;
    let (one, two) = (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "two").await);
    let of = |device: &str, payload: Value| json!({"deviceId": device, "elementName": "in", "payload": payload});
    let unknown = json!({"deviceId": one.id, "elementName": "log", "payload": 1});
    let batch = [
        of(&one.id, json!(1)),
        unknown,
        of(&one.id, json!(2)),
        of(&one.id, json!(MARK)),
        of(&two.id, json!(1)),
        of(&one.id, json!(4)),
        of(&two.id, json!(2)),
        of(&one.id, json!(5)),
    ];
    app.contended().refuse(MARK);
    let outcome = ana.post("/v2/events/device/batch", json!(batch)).await.ok();
    assert_eq!(indices(&outcome, "data"), [0, 2, 4, 6], "a fault of the client stops nothing");
    assert_eq!(indices(&outcome, "errors"), [1, 3, 5, 7]);
    assert_eq!(&messages(&outcome)[1..], [BUSY; 3]);
    app.contended().refuse("");
    let failed: Vec<Value> = [3, 5, 7].map(|index| batch[index].clone()).to_vec();
    ana.post("/v2/events/device/batch", json!(failed)).await.ok();
    assert_eq!(stored(&ana, &one.id).await, [json!(1), json!(2), json!(MARK), json!(4), json!(5)]);
    assert_eq!(stored(&ana, &two.id).await, [1, 2]);
    // The same for a device that sends for itself.
    app.contended().refuse(MARK);
    let batch: Vec<Value> =
        batch.iter().map(|event| json!({"elementName": "in", "payload": event["payload"]})).collect();
    let outcome = app.send(with_json(two.request(Method::POST, "/v2/events/device/batch"), &json!(batch))).await.ok();
    assert_eq!((indices(&outcome, "data"), indices(&outcome, "errors")), (vec![0, 1, 2], vec![3, 4, 5, 6, 7]));
}

#[tokio::test]
async fn webhook_runs_no_block_behind_one_that_failed() {
    let app = refusing().await;
    let ana = Sender::of(app.developer("ana").await).await;
    let receives = json!({"type": "deviceEvent", "properties": {"integration": "lora"}, "triggers": {"eventReceived": [to("log", "store")]}});
    let project = ana.person.designs(json!({"up": receives, "log": {"type": "storage"}})).await;
    let parameters = [
        ("deviceTag", "devEui"),
        ("deviceTagValueRef", "$.id"),
        ("eventsRef", "$"),
        ("projectUuid", &*project),
        ("integration", "lora"),
    ];
    let block = |device: &str, n: Value| json!({"id": device, "n": n});
    let blocks = [
        block("one", json!(1)),
        block("one", json!(MARK)),
        block("two", json!(1)),
        block("one", json!(3)),
        block("one", json!(4)),
        block("two", json!(2)),
    ];
    app.contended().refuse(MARK);
    let answer = ana.delivers(&parameters, json!(blocks)).await.ok();
    assert_eq!(messages(&answer), [1, 3, 4].map(|block| format!("event block {block}: {BUSY}")));
    app.contended().refuse("");
    let failed = [1, 3, 4].map(|index: usize| blocks[index].clone());
    assert_eq!(messages(&ana.delivers(&parameters, json!(failed)).await.ok()), [""; 0]);
    let devices = ana.devices().await;
    let numbers = async |place: usize| {
        let device = devices[place]["id"].as_str().unwrap().to_owned();
        stored(&ana.person, &device).await.iter().map(|payload| payload["n"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(0).await, [json!(1), json!(MARK), json!(3), json!(4)]);
    assert_eq!(numbers(1).await, [1, 2]);
}

#[tokio::test]
async fn bulk_changes_no_setting_behind_one_that_failed() {
    const ITEMS: usize = 200;
    let app = refusing().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(thermostat()).await;
    let (one, two) = (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "two").await);
    let of = |device: &str, value: Value| json!({"deviceId": device, "name": "label", "value": value});
    // 64 changes of a device are one commit: the second one is refused.
    let mut items: Vec<Value> = (0..ITEMS).map(|n| of(&one.id, json!(format!("{n}")))).collect();
    items[100]["value"] = json!(MARK);
    items.push(of(&two.id, json!("kitchen")));
    app.contended().refuse(MARK);
    let outcome = ana.post("/v2/devices/settings", json!(items)).await.ok();
    let changed: Vec<Value> = outcome["data"].as_array().unwrap().iter().map(|item| item["value"].clone()).collect();
    let expected: Vec<Value> = (0..64).map(|n| json!(format!("{n}"))).chain([json!("kitchen")]).collect();
    assert_eq!(changed, expected);
    assert_eq!(messages(&outcome), (64..ITEMS).map(|item| format!("[{item}]: {BUSY}")).collect::<Vec<_>>());
    assert_eq!(ana.get(&one.at("settings/label")).await.ok()["value"], "63");
    app.contended().refuse("");
    assert_eq!(messages(&ana.post("/v2/devices/settings", json!(items[64..])).await.ok()), [""; 0]);
    assert_eq!(ana.get(&one.at("settings/label")).await.ok()["value"], format!("{}", ITEMS - 1));
}

#[tokio::test]
async fn bulk_changes_no_labels_behind_those_that_failed() {
    let app = refusing().await;
    if app.shares_telemetry() {
        // No sync is asked for there.
        return;
    }
    let ana = app.developer("ana").await;
    let (one, two) = (ana.creates_device("one").await, ana.creates_device("two").await);
    let of = |device: &str, n: usize| json!({"deviceId": device, "meta": {"n": n}});
    // 50 items are one transaction: the second one fails, in which only one of the devices is.
    let mut items: Vec<Value> = (0..150).map(|n| of(&one.id, n)).collect();
    items.push(of(&two.id, 150));
    app.contended().fail_sync_after(1);
    let outcome = ana.post("/v2/devices/meta", json!(items)).await.ok();
    assert_eq!(messages(&outcome), (50..150).map(|item| format!("[{item}]: {BUSY}")).collect::<Vec<_>>());
    let label = async |path: String| ana.get(&path).await.ok()["meta"]["n"].clone();
    assert_eq!((label(one.url()).await, label(two.url()).await), (json!(49), json!(150)));
    assert_eq!(messages(&ana.post("/v2/devices/meta", json!(items[50..150])).await.ok()), [""; 0]);
    assert_eq!(label(one.url()).await, 149);
}
