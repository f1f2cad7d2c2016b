//! Dry runs of designs.

use isobar_power::settled;
use serde_json::{Value, json};

use crate::support::designs::{fridge, to, to_with};
use crate::support::outside::Outside;
use crate::support::{NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    a_dry_run_tells_each_step_and_changes_nothing,
    dry_run_on_a_device_changes_no_element_state,
    a_dry_run_on_a_device_calls_nobody_and_sets_nothing,
    a_design_is_tried_before_it_is_installed,
);

fn steps(found: &Value) -> Vec<&str> {
    found["trace"].as_array().unwrap().iter().map(|step| step["element"].as_str().unwrap()).collect()
}

// Holds: POST /v2/projects/{id}/specification/test, c11.dryRun
async fn a_dry_run_tells_each_step_and_changes_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let path = format!("/v2/projects/{project}/specification/test");
    let device = ana.creates_device_of(&project, "fridge").await;
    device.posts("newLimit", json!(30)).await.created();
    let events = ana.get(&device.at("events")).await.ok();

    let asked = json!({"elementName": "reading", "payload": {"temp": 9.1}});
    let found = ana.post(&path, asked.clone()).await.ok();
    // A device that does not exist has the default limit, and is too warm.
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

    // Nothing was stored.
    assert_eq!(ana.get(&device.at("events")).await.ok(), events);
    assert_eq!(ana.get(&device.at("data/store")).await.list_of("/id"), [] as [Value; 0]);
    assert_eq!(ana.get(&device.url()).await.ok()["statusText"], "none");
    device.takes().await.no_content();
    // A run can begin at a setting too.
    let changed = ana.post(&path, json!({"elementName": "limit", "payload": 3})).await.ok();
    assert_eq!(steps(&changed)[0], "limit");
}

// Holds: c11.dryRun
async fn dry_run_on_a_device_changes_no_element_state(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let path = format!("/v2/projects/{project}/specification/test");
    let device = ana.creates_device_of(&project, "fridge").await;
    let asked = json!({"elementName": "reading", "payload": {"temp": 9.1}, "device": device.id});
    let change = json!({"type": "store", "element": "moves", "value": {"temp": 9.1}});
    let is_change = async || {
        let found = ana.post(&path, asked.clone()).await.ok();
        found["effects"].as_array().unwrap().contains(&change)
    };
    // In every dry run the first temperature is a change.
    assert!(is_change().await);
    assert!(is_change().await);
    assert_eq!(ana.get(&device.at("data/moves")).await.list_of("/id"), [] as [Value; 0]);
    device.posts("reading", json!({"temp": 9.1})).await.created();
    assert_eq!(ana.get(&device.at("data/moves")).await.list_of("/payload"), [json!({"temp": 9.1})]);
    // From here on it is not a change.
    assert!(!is_change().await);
    device.posts("reading", json!({"temp": 9.1})).await.created();
    assert_eq!(ana.get(&device.at("data/moves")).await.list_of("/payload"), [json!({"temp": 9.1})]);
}

/// Returns a design that calls `url`, notifies users and sets its setting with every reading.
fn reaching_out(url: &str) -> Value {
    json!({
        "hello": {"type": "deviceEvent"},
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to("ask", "request"), to("tell", "notify"), to_with("limit", "set", json!({"value": "payload.temp"})),
        ]}},
        "ask": {"type": "http", "properties": {"method": "POST", "url": url, "body": "payload"}},
        "tell": {"type": "notification", "properties": {"message": "at {{ payload.temp }}"}},
        "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
    })
}

/// Waits until a user has notifications, and returns them.
async fn told(person: &Person<'_>) -> Vec<Value> {
    settled("a notification", async || {
        let found = person.get("/v2/notifications").await.list_of("/translations/en/message");
        (!found.is_empty()).then_some(found)
    })
    .await
}

// Holds: c11.dryRun
async fn a_dry_run_on_a_device_calls_nobody_and_sets_nothing(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await, Outside::start().await);
    let project = ana.designs(reaching_out(&outside.url("/"))).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    device.posts("hello", json!({})).await.created();
    app.wait_seconds(60);
    let asked = json!({"elementName": "reading", "payload": {"temp": 9.1}, "device": device.id});
    let found = ana.post(&format!("/v2/projects/{project}/specification/test"), asked).await.ok();
    let kinds: Vec<_> = found["effects"].as_array().unwrap().iter().map(|effect| effect["type"].clone()).collect();
    assert_eq!(kinds, ["call", "notify", "setSetting"]);

    assert_eq!(outside.count(), 0);
    assert_eq!(ana.get("/v2/notifications").await.ok()["data"], json!([]));
    assert_eq!(ana.get(&device.at("settings/history")).await.names(), [] as [&str; 0]);
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["value"], 8);
    assert_eq!(ana.get(&device.url()).await.ok()["lastActive"], "2027-01-15T08:00:00.000Z");
    // Calls are made after the run: the first that arrives belongs to an event, and none came before it.
    device.posts("reading", json!({"temp": 4})).await.created();
    let calls = outside.called(1).await;
    assert_eq!((calls.len(), calls[0].json()), (1, json!({"temp": 4})));
    assert_eq!(told(&ana).await, ["at 4"]);
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
    // The installed design is unchanged: it is empty, and stores everything.
    let found = ana.post(&path, json!({"elementName": "any", "payload": 7})).await.ok();
    assert_eq!(found["effects"], json!([{"type": "store", "element": "any", "value": 7}]));
    let quiet = ana.post(&path, json!({"specification": null, "elementName": "any", "payload": 7})).await.ok();
    assert_eq!(quiet, found);
}
