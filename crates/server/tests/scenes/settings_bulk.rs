//! Settings of many devices at once.

use serde_json::{Value, json};

use crate::support::designs::thermostat;
use crate::support::person::text;
use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(
    each_setting_of_a_bulk_is_changed_separately,
    a_malformed_list_changes_nothing,
    a_role_too_low_changes_nothing,
    items_of_one_device_are_changed_in_their_order,
    many_devices_are_changed_at_once,
    code_runs_on_every_setting_change,
    many_values_are_checked_against_a_large_definition,
    long_setting_definition_is_streamed,
    settings_bulk_lists_defaults_once_a_project,
);

const BULK: &str = "/v2/devices/settings";
const DEFAULTS: &str = "/v2/devices/settings/defaults";

fn item(device: &str, name: &str, value: impl Into<Value>) -> Value {
    json!({"deviceId": device, "name": name, "value": value.into()})
}

fn messages(outcome: &Value) -> Vec<&str> {
    outcome["errors"].as_array().unwrap().iter().map(|error| text(error, "message")).collect()
}

// Holds: POST /v2/devices/settings, rule.settings.bulk, status.items, c8.types
async fn each_setting_of_a_bulk_is_changed_separately(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let project = ana.designs(thermostat()).await;
    let (one, two) = (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "two").await);
    let hidden = app.stranger("bob").await.creates_device("hidden").await;
    let body = json!([
        item(&two.id, "limit", 12),
        item("no identifier", "limit", 12),
        item(NOBODY, "limit", 12),
        item(&hidden.id, "limit", 12),
        item(&one.id, "unheard", 12),
        item(&one.id, "limit", 41),
        item(&one.id, "limit", Value::Null),
        item(&one.id, "label", "kitchen"),
        item(&one.id, "limit", 5),
    ]);
    let outcome = tom.post(BULK, body).await.ok();
    let expected = [
        "[1].deviceId: no such device",
        "[2].deviceId: no such device",
        "[3].deviceId: no such device",
        "[4].name: no such setting",
        "[5].value: must be at most 40",
        "[6].value: must be a number",
    ];
    assert_eq!(messages(&outcome), expected);
    let [first, second, third] = &outcome["data"].as_array().unwrap()[..] else { panic!("{outcome}") };
    assert_eq!(first, &ana.get(&two.at("settings/limit")).await.ok());
    assert_eq!(second, &ana.get(&one.at("settings/label")).await.ok());
    assert_eq!((&third["value"], &third["deviceId"]), (&json!(5), &json!(one.id)));
    // Each change runs the elements that are linked to it.
    assert_eq!(two.takes().await.ok(), json!({"limit": 12, "now": 12}));
    assert_eq!(one.takes().await.ok(), json!({"limit": 5, "now": 5}));
    one.takes().await.no_content();
    ana.put(&one.at("settings/label"), json!("cellar")).await.ok();
    assert_eq!(ana.get(&one.at("settings/history")).await.list_of("/changedById"), [json!(ana.id)]);
    assert_eq!(tom.post(BULK, json!([])).await.ok(), json!({"data": [], "errors": []}));
}

// Holds: setting.name
async fn a_malformed_list_changes_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(thermostat()).await, "thermostat").await;
    let body = json!([
        item(&device.id, "limit", 12),
        {"deviceId": device.id, "name": "limit"},
        {"deviceId": 7, "name": "", "value": 1},
        "limit",
        item(&device.id, &"n".repeat(129), 1),
    ]);
    let faults = ana.post(BULK, body).await.faults();
    assert_eq!(faults, ["[1].value", "[2].deviceId", "[2].name", "[3]", "[4].name"]);
    assert_eq!(ana.post(BULK, json!({"items": []})).await.faults(), ["body"]);
    assert_eq!(ana.post(BULK, json!(vec![0; 10_001])).await.faults(), ["body"]);
    assert_eq!(ana.post_text(BULK, "[").await.faults(), ["body"]);
    assert_eq!(ana.post(DEFAULTS, json!([device.id, 7, null])).await.faults(), ["[1]", "[2]"]);
    assert_eq!(ana.post(DEFAULTS, json!("all")).await.faults(), ["body"]);
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["value"], 8);
}

// Holds: c2.bulk
async fn a_role_too_low_changes_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let reader = ana.invites("reader", "basicUser").await;
    let device = ana.creates_device_of(&ana.designs(thermostat()).await, "thermostat").await;
    reader.post(BULK, json!([item(&device.id, "limit", 12)])).await.forbidden();
    reader.post(BULK, json!("no list")).await.forbidden();
    assert_eq!(reader.get(&device.at("settings/limit")).await.ok()["value"], 8);
    reader.post(DEFAULTS, json!([device.id])).await.ok();
}

async fn items_of_one_device_are_changed_in_their_order(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(thermostat()).await, "thermostat").await;
    let values: Vec<i64> = (0..150).map(|number| number % 40).collect();
    let body: Vec<Value> = values.iter().map(|value| item(&device.id, "limit", *value)).collect();
    let outcome = ana.post(BULK, json!(body)).await.ok();
    let ids: Vec<&str> = outcome["data"].as_array().unwrap().iter().map(|setting| text(setting, "id")).collect();
    assert_eq!((ids.len(), messages(&outcome).len()), (150, 0));
    let stored = ana.get(&device.at("data/limits?limit=1000&sortBy=createdAt")).await.list_of("/payload");
    assert_eq!(stored, values);
    // Each run saw the state of the previous one, also within one commit: all limits differ.
    assert_eq!(ana.get(&device.at("data/moves?limit=1000")).await.list_of("/payload").len(), 150);
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["id"], ids[149]);
    let history = ana.get(&device.at("settings/history?limit=1000")).await.list_of("/changedToId");
    assert_eq!(history.iter().rev().collect::<Vec<_>>(), ids[1..].iter().collect::<Vec<_>>());
}

async fn many_devices_are_changed_at_once(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(thermostat()).await;
    let mut devices = Vec::new();
    for number in 0..40 {
        devices.push(ana.creates_device_of(&project, &format!("device {number}")).await);
    }
    let items: Vec<Value> = (0..2_000)
        .map(|number| item(&devices[number % 40].id, if number % 80 < 40 { "limit" } else { "factor" }, number % 37))
        .collect();
    let (outcome, wishes) = tokio::join!(
        ana.post(BULK, json!(items)),
        futures::future::join_all(devices.iter().map(|device| device.posts("wish", json!(40)))),
    );
    wishes.into_iter().for_each(|wish| drop(wish.created()));
    let outcome = outcome.ok();
    let changed = outcome["data"].as_array().unwrap();
    assert_eq!((changed.len(), messages(&outcome).len()), (2_000, 0));
    assert!(changed.iter().zip(&items).all(|(done, asked)| {
        (&done["deviceId"], &done["name"], &done["value"]) == (&asked["deviceId"], &asked["name"], &asked["value"])
    }));
    let device = &devices[17];
    assert_eq!(ana.get(&device.at("settings/factor")).await.ok()["value"], 1_977 % 37);
    // 25 of each name, and one set by the design, except the current ones.
    assert_eq!(ana.get(&device.at("settings/history")).await.names().len(), 49);
}

async fn code_runs_on_every_setting_change(app: &TestApp) {
    let ana = app.developer("ana").await;
    let code = "function decodeUplink(input) { return {data: {temp: input.bytes[1]}}; }";
    let design = json!({
        "frame": {"type": "deviceSetting", "triggers": {"changed": [{"element": "decode", "ability": "evaluate"}]}},
        "decode": {"type": "function", "properties": {"code": code},
            "triggers": {"result": [{"element": "values", "ability": "store"}]}},
        "values": {"type": "storage"},
    });
    let project = ana.designs(design).await;
    // More devices than threads for their code, so that some wait for one.
    let mut devices = Vec::new();
    for number in 0..100 {
        devices.push(ana.creates_device_of(&project, &format!("d{number}")).await);
    }
    let items: Vec<Value> = devices.iter().map(|device| item(&device.id, "frame", "AQc=")).collect();
    let outcome = ana.post(BULK, json!(items)).await.ok();
    assert_eq!((messages(&outcome).len(), outcome["data"].as_array().unwrap().len()), (0, 100));
    for device in &devices {
        let values = ana.get(&device.at("data/values")).await.list_of("/payload");
        assert_eq!(values, [json!({"temp": 7})]);
    }
}

/// Checks a mebibyte of definition with as many items as one call may have: reading the definition for each item took
/// minutes.
async fn many_values_are_checked_against_a_large_definition(app: &TestApp) {
    let ana = app.developer("ana").await;
    let properties = json!({"min": 3, "hints": vec![7; 400_000]});
    let properties = json!({"inputType": "number", "inputTypeProperties": properties, "defaultValue": 5});
    let project = ana.designs(json!({"limit": {"type": "deviceSetting", "properties": properties}})).await;
    let device = ana.creates_device_of(&project, "one").await;
    let items: Vec<Value> = (0..10_000).map(|_| item(&device.id, "limit", 2)).collect();
    let outcome = ana.post(BULK, json!(items)).await.ok();
    assert_eq!((messages(&outcome).len(), outcome["data"].as_array().unwrap().len()), (10_000, 0));
    assert_eq!(messages(&outcome)[9_999], "[9999].value: must be at least 3");
    assert_eq!(ana.put(&device.at("settings/limit"), json!(3)).await.ok()["value"], 3);
}

async fn long_setting_definition_is_streamed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let title = "x".repeat(300_000);
    let project = ana
        .designs(json!({"label": {"type": "deviceSetting", "properties": {"title": title, "defaultValue": ""}}}))
        .await;
    let mut devices = Vec::new();
    for number in 0..5 {
        let body = json!({"name": "d", "projectUuid": project, "versionUuid": format!("v{number}")});
        devices.push(ana.creates_device_as(body).await.id);
    }
    // A whole answer would have a length, and repeats the title for each item.
    let items: Vec<Value> = devices.iter().map(|device| item(device, "label", "new")).collect();
    let answer = ana.post(BULK, json!(items)).await;
    assert_eq!(answer.header("transfer-encoding"), "chunked");
    let outcome = answer.ok();
    assert!(outcome["data"].as_array().unwrap().iter().all(|setting| setting["title"] == json!(title)));
    assert_eq!((outcome["data"].as_array().unwrap().len(), messages(&outcome).len()), (5, 0));
    let answer = ana.post(DEFAULTS, json!(devices)).await;
    assert_eq!(answer.header("transfer-encoding"), "chunked");
    let outcome = answer.ok();
    let told: Vec<&Value> = outcome["data"].as_array().unwrap().iter().map(|of| &of["defaultSettings"][0]).collect();
    assert!(told.len() == 5 && told.iter().all(|setting| setting["title"] == json!(title)));
}

// Holds: setting.title, POST /v2/devices/settings/defaults, rule.settings.defaults
async fn settings_bulk_lists_defaults_once_a_project(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(thermostat()).await;
    let one = ana.creates_device_of(&project, "one").await;
    let two = ana.creates_device_of(&project, "two").await;
    let body = json!({"name": "other version", "projectUuid": project, "versionUuid": "v2"});
    let three = ana.creates_device_as(body).await;
    let plain = ana.creates_device("without settings").await;
    let hidden = app.stranger("bob").await.creates_device("hidden").await;
    ana.put(&one.at("settings/limit"), json!(12)).await.ok();

    let list = json!([one.id, hidden.id, two.id, plain.id, three.id, one.id, "no identifier"]);
    let outcome = ana.post(DEFAULTS, list).await.ok();
    let of_project = &outcome["data"];
    assert_eq!(of_project.as_array().unwrap().len(), 2);
    assert_eq!((&of_project[0]["projectUuid"], &of_project[0]["versionUuid"]), (&json!(project), &json!(null)));
    assert_eq!(of_project[0]["deviceIdList"], json!([one.id, two.id]));
    assert_eq!((&of_project[1]["versionUuid"], &of_project[1]["deviceIdList"]), (&json!("v2"), &json!([three.id])));
    assert_eq!(of_project[0]["defaultSettings"], of_project[1]["defaultSettings"]);
    let limit = json!({
        "_id": "limit",
        "title": {"en": "Limit", "de": "Grenze"},
        "description": null,
        "inputType": "number",
        "inputTypeProperties": {"min": -40, "max": 40},
        "defaultValue": 8,
        "listOrder": 2,
    });
    assert_eq!(of_project[0]["defaultSettings"][2], limit);
    let without = format!("the project {} has no settings and so no defaults", ana.project().await);
    let expected = json!([
        {"message": "[1]: no such device", "projectUuid": null, "versionUuid": null},
        {"message": "[6]: no such device", "projectUuid": null, "versionUuid": null},
        {"message": without, "projectUuid": ana.project().await, "versionUuid": null},
    ]);
    assert_eq!(outcome["errors"], expected);
    assert_eq!(ana.post(DEFAULTS, json!([])).await.ok(), json!({"data": [], "errors": []}));
}
