//! Tests alarms of a design: raised again, cleared by a user, with ever new keys; and their trace in a dry run.

use serde_json::{Value, json};

use crate::support::designs::{to, to_with};
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    warm_fridge_raises_one_alarm_and_clears_it,
    alarm_cleared_by_hand_is_raised_again,
    alarm_of_a_removed_element_can_end,
    alarm_keys_of_a_device_are_bounded,
);

/// Returns the design of a fridge that is too warm.
fn fridge() -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("isWarm", "evaluate")]}},
        "isWarm": {"type": "condition", "properties": {"expression": "payload.temp > 8"}, "triggers": {
            "true": [to_with("warm", "raise", json!({"value": "payload.temp"}))],
            "false": [to("warm", "clear")],
        }},
        "warm": {
            "type": "alarm",
            "properties": {"title": "{{ device.name }} is too warm", "severity": "critical"},
            "triggers": {"raised": [to("raised", "store")], "cleared": [to("cleared", "store")],
                "acknowledged": [to("acknowledged", "store")]},
        },
        "raised": {"type": "storage"},
        "cleared": {"type": "storage"},
        "acknowledged": {"type": "storage"},
    })
}

async fn measures(device: &Device<'_>, temp: f64) {
    device.posts("reading", json!({"temp": temp})).await.created();
}

async fn alarms(person: &Person<'_>) -> Vec<Value> {
    person.get("/v2/alarms?limit=10000").await.list_of("")
}

/// Returns how often a trigger fired.
async fn stored(person: &Person<'_>, device: &Device<'_>, element: &str) -> Value {
    person.get(&device.at(&format!("data/{element}"))).await.ok()["meta"]["totalDocs"].clone()
}

fn url(alarm: &Value) -> String {
    format!("/v2/alarms/{}", alarm["id"].as_str().unwrap())
}

// Holds: c11.alarm
async fn warm_fridge_raises_one_alarm_and_clears_it(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    for temp in [9.0, 9.5, 10.0] {
        measures(&device, temp).await;
    }
    let [alarm] = &alarms(&ana).await[..] else { panic!("there is one") };
    let told = [&alarm["title"], &alarm["severity"], &alarm["count"], &alarm["value"], &alarm["state"]];
    assert_eq!(told, [&json!("fridge is too warm"), &json!("critical"), &json!(3), &json!(10.0), &json!("active")]);
    measures(&device, 4.0).await;
    measures(&device, 4.0).await;
    let over = ana.put(&url(alarm), json!({"acknowledged": true, "comment": "shut"})).await.ok();
    assert_eq!((&over["state"], &over["acknowledged"]), (&json!("cleared"), &json!(true)));
    for element in ["raised", "cleared", "acknowledged"] {
        assert_eq!(stored(&ana, &device, element).await, 1, "{element}");
    }
    let said = ana.get(&device.at("data/acknowledged")).await.list_of("/payload").remove(0);
    assert_eq!(said, json!({"key": "", "comment": "shut", "by": ana.id}));
}

async fn alarm_cleared_by_hand_is_raised_again(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    measures(&device, 9.0).await;
    let alarm = alarms(&ana).await.remove(0);
    for _ in 0..2 {
        let cleared = ana.put(&url(&alarm), json!({"state": "cleared"})).await.ok();
        assert_eq!(cleared["state"], "cleared");
        assert_eq!(cleared["history"][1]["by"], json!(ana.id));
    }
    assert_eq!(stored(&ana, &device, "cleared").await, 1);
    measures(&device, 9.0).await;
    let again = alarms(&ana).await.remove(0);
    assert_eq!((&again["id"], &again["state"], &again["count"]), (&alarm["id"], &json!("active"), &json!(2)));
    assert_eq!(stored(&ana, &device, "raised").await, 2);
}

async fn alarm_of_a_removed_element_can_end(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    measures(&device, 9.0).await;
    let path = format!("/v2/projects/{project}/specification");
    let planes = json!({"cloud": {"elements": {"reading": {"type": "deviceEvent"}}}});
    ana.put(&path, json!({"name": "other", "planes": planes})).await.ok();
    let alarm = alarms(&ana).await.remove(0);
    let over = ana.put(&url(&alarm), json!({"state": "cleared", "acknowledged": true})).await.ok();
    assert_eq!((&over["state"], &over["acknowledged"]), (&json!("cleared"), &json!(true)));
    assert_eq!(ana.get("/v2/alarms/summary").await.ok()["unacknowledged"], 0);
}

async fn alarm_keys_of_a_device_are_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    // One event raises ten thousand keys, one after the other.
    let keys = (0..9_990).map(|n| to_with("many", "raise", json!({"key": format!("'{n}'")})));
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": keys.collect::<Vec<_>>()}},
        "many": {"type": "alarm", "properties": {"title": "many"}},
    });
    let device = ana.creates_device_of(&ana.designs(design).await, "fridge").await;
    for _ in 0..3 {
        measures(&device, 9.0).await;
    }
    let raised = alarms(&ana).await;
    assert_eq!(raised.len(), 64);
    assert!(raised.iter().all(|alarm| alarm["count"] == 3));
    let events = ana.get(&device.at("events?limit=1")).await.list_of("/errors").remove(0);
    assert_eq!(events[0]["message"], "at most 64 alarms of an element are active");
    // Another device is not affected.
    let other = ana.creates_device_of(&ana.designs(fridge()).await, "other").await;
    measures(&other, 9.0).await;
    assert_eq!(alarms(&ana).await.len(), 65);
}

#[tokio::test]
async fn dry_run_shows_what_would_be_raised_and_raises_nothing() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let path = format!("/v2/projects/{project}/specification/test");
    let found = ana.post(&path, json!({"elementName": "reading", "payload": {"temp": 9.5}})).await.ok();
    let raise = &found["effects"][0];
    assert_eq!((&raise["type"], &raise["key"], &raise["value"]), (&json!("raise"), &json!(""), &json!(9.5)));
    assert_eq!((&raise["element"], &raise["severity"]), (&json!("warm"), &json!("critical")));
    assert_eq!(found["effects"][1]["type"], "notify");
    assert_eq!(alarms(&ana).await.len(), 0);
    app.end().await;
}
