//! Tests the retention of stored values by a design's bounds.

use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    values_beyond_the_retained_age_are_hidden,
    values_beyond_the_retained_number_are_hidden,
    longer_retention_restores_no_values,
    retention_of_a_storage_is_checked,
);

const DAY: i64 = 86_400;

fn keeping(properties: Value) -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("log", "store")]}},
        "log": {"type": "storage", "properties": properties},
    })
}

/// Checks that every way to read the values of `log` shows these, newest first.
async fn shows(ana: &Person<'_>, device: &Device<'_>, values: &[i64]) {
    let list = ana.get(&device.at("data/log")).await.ok();
    assert_eq!(list["meta"]["totalDocs"], values.len());
    let payloads = |list: &Value| -> Vec<Value> {
        list["data"].as_array().unwrap().iter().map(|value| value["payload"].clone()).collect()
    };
    let expected: Vec<Value> = values.iter().map(|value| json!(value)).collect();
    assert_eq!(payloads(&list), expected);
    let filtered = ana.get(&device.at("data/log?filter[payload][gte]=0&sortBy=payload")).await.ok();
    assert_eq!(filtered["meta"]["totalDocs"], values.len());
    assert_eq!(payloads(&filtered), expected.iter().rev().cloned().collect::<Vec<_>>());
    let ranged = ana.get(&device.at("data/log?from=2000-01-01T00:00:00Z&limit=1")).await.ok();
    assert_eq!(ranged["meta"]["totalDocs"], values.len());
    let buckets = ana.get(&device.at("data/log/buckets?fields=payload&functions=first,last")).await.ok();
    let told: Vec<Value> =
        buckets["data"].as_array().unwrap().iter().map(|it| it["fields"]["payload"].clone()).collect();
    let ends = values.first().zip(values.last()).map(|(newest, oldest)| json!({"first": oldest, "last": newest}));
    assert_eq!((&buckets["meta"]["values"], told), (&json!(values.len()), Vec::from_iter(ends)));
    let csv = ana.get_as("text/csv", &device.at("data/log?columns=payload")).await.is(200).text;
    let lines: Vec<String> = values.iter().map(i64::to_string).collect();
    assert_eq!(csv.lines().skip(1).collect::<Vec<_>>(), lines);
    let ndjson = ana.get_as("application/x-ndjson", &device.at("data/log")).await.is(200).text;
    assert_eq!(ndjson.lines().count(), values.len());
}

// Holds: c13.retention
async fn values_beyond_the_retained_age_are_hidden(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(keeping(json!({"retentionDays": 3}))).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for day in 0..6 {
        device.posts("reading", json!(day)).await.created();
        app.wait_seconds(DAY);
    }
    // The oldest of these was stored three days ago, to the millisecond.
    shows(&ana, &device, &[5, 4, 3]).await;
    app.wait_seconds(1);
    shows(&ana, &device, &[5, 4]).await;
    // A shorter retention takes effect at once.
    ana.redesigns(&project, keeping(json!({"retentionDays": 2}))).await.ok();
    shows(&ana, &device, &[5]).await;
    app.wait_seconds(10 * DAY);
    shows(&ana, &device, &[]).await;
    // Last values stay, and so does the history of events.
    assert_eq!(ana.get(&device.at("last/log")).await.ok()["values"], 5);
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 6);
    device.posts("reading", json!(6)).await.created();
    shows(&ana, &device, &[6]).await;
}

// Holds: c13.retention
async fn values_beyond_the_retained_number_are_hidden(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(keeping(json!({"valuesMax": 3}))).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for n in 0..5 {
        device.posts("reading", json!(n)).await.created();
        shows(&ana, &device, &(n.max(2) - 2..=n).rev().collect::<Vec<_>>()).await;
    }
    ana.redesigns(&project, keeping(json!({"valuesMax": 1}))).await.ok();
    shows(&ana, &device, &[4]).await;
    ana.get(&device.at("data/log?page=2&limit=1")).await.ok();
    assert_eq!(ana.get(&device.at("last/log")).await.ok()["values"], 4);
}

// Holds: c13.retentionStays
async fn longer_retention_restores_no_values(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(keeping(json!({"retentionDays": 2}))).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for day in 0..4 {
        app.wait_seconds(DAY);
        device.posts("reading", json!(day)).await.created();
    }
    shows(&ana, &device, &[3, 2, 1]).await;
    ana.redesigns(&project, keeping(json!({"retentionDays": 365, "valuesMax": 2}))).await.ok();
    shows(&ana, &device, &[3, 2]).await;
    ana.redesigns(&project, keeping(json!({}))).await.ok();
    shows(&ana, &device, &[3, 2]).await;
    app.wait_seconds(30 * DAY);
    device.posts("reading", json!(4)).await.created();
    shows(&ana, &device, &[4, 3, 2]).await;
    // An element that the design no longer has keeps its values.
    ana.redesigns(&project, json!({"reading": {"type": "deviceEvent"}})).await.ok();
    shows(&ana, &device, &[4, 3, 2]).await;
}

// Holds: c13.retention
async fn retention_of_a_storage_is_checked(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(keeping(json!({"retentionDays": 3_650, "valuesMax": 1_000_000_000}))).await;
    let at = |property: &str| format!("planes.cloud.elements.log.properties.{property}");
    for bad in [json!(0), json!(1.5), json!("7"), json!(10_000_000_000_u64)] {
        let refused = ana.redesigns(&project, keeping(json!({"retentionDays": bad, "valuesMax": bad}))).await;
        assert_eq!(refused.faults(), [at("retentionDays"), at("valuesMax")]);
    }
    let refused = ana.redesigns(&project, keeping(json!({"retentionDays": 3_651}))).await;
    assert_eq!(refused.faults(), [at("retentionDays")]);
}
