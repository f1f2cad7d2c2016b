//! Repeated deliveries, as networks send them after a late answer.

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::designs::to;
use crate::support::person::text;
use crate::webhook::{Sender, messages};

// Holds: webhook.idempotencyKeyRef, c9.key
#[tokio::test]
async fn repeated_delivery_makes_no_event() {
    let app = TestApp::start().await;
    let ana = Sender::of(app.developer("ana").await).await;
    let receives = |element: &str| json!({"type": "deviceEvent", "properties": {"integration": "lora"}, "triggers": {"eventReceived": [to(element, "store")]}});
    let design =
        json!({"up": receives("raw"), "also": receives("all"), "raw": {"type": "storage"}, "all": {"type": "storage"}});
    let project = ana.person.designs(design).await;
    let parameters = [
        ("deviceTag", "devEui"),
        ("deviceTagValueRef", "$.id"),
        ("eventsRef", "$"),
        ("projectUuid", &*project),
        ("integration", "lora"),
        ("idempotencyKeyRef", "$.meta.unique"),
        ("debug", "true"),
    ];
    let block = |device: &str, unique: Value, n: u64| json!({"id": device, "meta": {"unique": unique}, "n": n});
    let delivers = async |blocks: &[Value]| {
        let debug = ana.delivers(&parameters, json!(blocks)).await.ok()["debug"].take();
        assert_eq!(messages(&debug), [""; 0]);
        let processed = debug["taskExecutions"]["processed"].as_array().unwrap().clone();
        let ids = processed.iter().flat_map(|task| task["eventsProcessed"].as_array().unwrap().clone());
        ids.map(|event| text(&event, "_id").to_owned()).collect::<Vec<_>>()
    };
    let first = delivers(&[block("a", json!("k1"), 1)]).await;
    assert_eq!(first.len(), 2, "each element makes its event");
    assert_eq!(delivers(&[block("a", json!("k1"), 1)]).await, first, "the first ids are answered again");
    // A key is the same twice in one delivery; another device's is separate, and a number equals its text.
    delivers(&[block("a", json!(7), 2), block("a", json!("7"), 3), block("b", json!(7), 4)]).await;
    // An empty value is no key.
    for nothing in [json!(null), json!(""), json!(null)] {
        delivers(&[block("a", nothing, 5)]).await;
    }
    let devices = ana.devices().await;
    let stored = async |place: usize, element: &str| {
        let path = format!("/v2/devices/{}/data/{element}?sortBy=id", text(&devices[place], "id"));
        ana.person.get(&path).await.list_of("/payload/n")
    };
    for element in ["raw", "all"] {
        assert_eq!(stored(0, element).await, [1, 2, 5, 5, 5], "{element}");
        assert_eq!(stored(1, element).await, [4], "{element}");
    }
    // A day later it is another event.
    app.wait_seconds(24 * 3_600 + 1);
    assert_ne!(delivers(&[block("a", json!("k1"), 6)]).await, first);
}

// Holds: c9.key
#[tokio::test]
async fn concurrent_repeated_deliveries_make_one_event() {
    let app = TestApp::start().await;
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValue", "1"),
        ("projectUuid", &*project),
        ("idempotencyKeyRef", "deduplicationId"),
    ];
    let deliveries = (0..12).map(|_| ana.delivers(&parameters, json!({"deduplicationId": "3ac7e3c4-4401-4b8d"})));
    for answer in futures::future::join_all(deliveries).await {
        assert_eq!(messages(&answer.ok()), [""; 0]);
    }
    assert_eq!(ana.history(text(&ana.devices().await[0], "id")).await.len(), 1);
}
