//! Tests the variables that expressions of a design can use.

use serde_json::json;

use crate::support::designs::to;
use crate::support::person::text;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(expression_sees_event_device_settings_and_last_values);

// Holds: c11.sees
async fn expression_sees_event_device_settings_and_last_values(app: &TestApp) {
    let ana = app.developer("ana").await;
    let all = "{
        'payload': payload,
        'event': [event.id, event.elementName, event.receivedAt, event.payload],
        'device': [device.id, device.name, device.organizationId, device.meta, device.statusInt],
        'settings': settings.limit,
        'last': has(last.readings) ? last.readings : 'nothing yet',
        'statuses': [none, good, info, warning, critical, missing],
    }";
    let transform = |expression: &str, next: &str, ability: &str| json!({"type": "transform", "properties": {"expression": expression}, "triggers": {"result": [to(next, ability)]}});
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("half", "evaluate"), to("readings", "store")]}},
            "half": transform("payload.temp / 2.0 + 1", "all", "evaluate"),
            "all": transform(all, "seen", "store"),
            "seen": {"type": "storage"},
            "readings": {"type": "storage"},
            "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
        }))
        .await;
    let device = ana.creates_device_as(json!({"name": "fridge", "projectUuid": project, "meta": {"floor": 3}})).await;
    let mut last = json!("nothing yet");
    for (temp, half) in [(9, 5.5), (5, 3.5)] {
        app.wait_seconds(60);
        let made = device.posts("reading", json!({"temp": temp})).await.created();
        let seen = ana.get(&device.at("data/seen?limit=1")).await.ok()["data"][0].clone();
        let expected = json!({
            "payload": half,
            "event": [text(&made, "id"), "reading", seen["createdAt"], {"temp": temp}],
            "device": [device.id, "fridge", ana.organization, {"floor": 3}, 0],
            "settings": 8,
            "last": last,
            "statuses": [0, 1, 2, 3, 4, 5],
        });
        assert_eq!(seen["payload"], expected);
        last = json!({"temp": temp});
    }
}
