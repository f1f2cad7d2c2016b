//! Dry runs of designs.

use serde_json::{Value, json};

use crate::support::designs::{fridge, to};
use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(a_dry_run_tells_each_step_and_changes_nothing, a_design_is_tried_before_it_is_installed);

fn steps(found: &Value) -> Vec<&str> {
    found["trace"].as_array().unwrap().iter().map(|step| step["element"].as_str().unwrap()).collect()
}

async fn a_dry_run_tells_each_step_and_changes_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let path = format!("/v2/projects/{project}/specification/test");
    let device = ana.creates_device_of(&project, "fridge").await;
    device.posts("newLimit", json!(30)).await.created();
    let events = ana.get(&device.at("events")).await.ok();

    let asked = json!({"elementName": "reading", "payload": {"temp": 9.1}});
    let found = ana.post(&path, asked.clone()).await.ok();
    // A device that is made up has the default limit, and is too warm.
    let expected = json!({"element": "reading", "received": {"temp": 9.1}, "notes": [],
        "produced": {"trigger": "eventReceived", "value": {"temp": 9.1}}});
    assert_eq!(found["trace"][0], expected);
    assert!(steps(&found).contains(&"alarm"), "{found}");
    let kinds: Vec<_> = found["effects"].as_array().unwrap().iter().map(|effect| effect["type"].clone()).collect();
    assert!(kinds.contains(&json!("setStatus")) && kinds.contains(&json!("send")), "{found}");
    assert_eq!(found["effects"][0], json!({"type": "store", "element": "store", "value": {"temp": 9.1}}));
    assert_eq!(found["errors"], json!([]));

    let mut with_device = asked.clone();
    with_device["device"] = json!(device.id);
    let found = ana.post(&path, with_device).await.ok();
    assert!(!steps(&found).contains(&"alarm"), "{found}");
    let failed = ana.post(&path, json!({"elementName": "reading", "payload": {}})).await.ok();
    assert_eq!(failed["errors"][0]["element"], "warm");

    // Nothing came of it.
    assert_eq!(ana.get(&device.at("events")).await.ok(), events);
    assert_eq!(ana.get(&device.at("data/store")).await.list_of("/id"), [] as [Value; 0]);
    assert_eq!(ana.get(&device.url()).await.ok()["statusText"], "none");
    device.takes().await.no_content();
    // A setting begins a run too.
    let changed = ana.post(&path, json!({"elementName": "limit", "payload": 3})).await.ok();
    assert_eq!(steps(&changed)[0], "limit");
}

async fn a_design_is_tried_before_it_is_installed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    let path = format!("/v2/projects/{project}/specification/test");
    let elements = json!({
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [to("ask", "request"), to("tell", "notify")]}},
        "ask": {"type": "http", "properties": {"url": "http://127.0.0.1:9/"}},
        "tell": {"type": "notification", "properties": {"message": "{{ payload }}"}},
    });
    let specification = json!({"name": "any", "planes": {"cloud": {"elements": elements}}});
    let asked = |element: &str| json!({"specification": specification, "elementName": element, "payload": 7});
    let found = ana.post(&path, asked("in")).await.ok();
    let (call, notice) = (&found["effects"][0], &found["effects"][1]);
    assert_eq!(
        (&call["type"], &call["url"], &call["method"]),
        (&json!("call"), &json!("http://127.0.0.1:9/"), &json!("GET"))
    );
    let expected = json!({"type": "notify", "element": "tell", "message": "7", "minimumRole": "basicUser"});
    assert_eq!(notice, &expected);
    assert_eq!(ana.post(&path, asked("ask")).await.faults(), ["elementName"]);

    let bad = json!({"elements": {"in": {"type": "deviceEvent"}, "odd": {"type": "nonsense"}}});
    let body =
        json!({"specification": {"planes": {"cloud": bad}}, "elementName": "in", "payload": 1, "device": NOBODY});
    assert_eq!(ana.post(&path, body).await.faults(), ["device", "specification.planes.cloud.elements.odd.type"]);
    assert_eq!(
        ana.post(&path, json!({"payload": null, "specification": 1})).await.faults(),
        ["elementName", "payload", "specification"]
    );
    let bob = app.stranger("bob").await;
    let hidden = bob.creates_device("hidden").await;
    let body = json!({"elementName": "x", "payload": 1, "device": hidden.id});
    assert_eq!(ana.post(&path, body).await.faults(), ["device"]);
    bob.post(&path, asked("in")).await.not_found();
    // What is installed is as it was: an empty design, which stores everything.
    let found = ana.post(&path, json!({"elementName": "any", "payload": 7})).await.ok();
    assert_eq!(found["effects"], json!([{"type": "store", "element": "any", "value": 7}]));
    let quiet = ana.post(&path, json!({"specification": null, "elementName": "any", "payload": 7})).await.ok();
    assert_eq!(quiet, found);
}
