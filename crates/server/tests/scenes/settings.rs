//! Settings of a device: declared by the design, changed by users, and read by the device.

use futures::future::join_all;
use isobar_model::access;
use isobar_model::ids::DeviceId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::designs::{thermostat, to};
use crate::support::person::text;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    a_device_has_the_settings_of_its_design,
    a_device_reads_its_own_settings,
    changed_setting_has_a_history,
    a_value_keeps_its_digits,
    setting_can_be_reset_to_its_default,
    invalid_setting_value_is_refused,
    changed_setting_runs_the_design,
    a_change_is_decoded_by_code,
    design_can_change_a_setting,
    design_can_reset_a_setting,
    a_geolocation_moves_the_device,
    concurrent_changes_of_a_setting_make_one_history,
    removed_setting_is_hidden_and_keeps_its_record,
    the_settings_of_a_device_have_a_mebibyte_together,
);

async fn a_thermostat<'a>(ana: &Person<'a>) -> Device<'a> {
    ana.creates_device_of(&ana.designs(thermostat()).await, "thermostat").await
}

// Holds: setting.ids, setting.name, setting.title, setting.description, setting.inputType,
// setting.inputTypeProperties, setting.defaultValue, setting.listOrder, GET /v2/devices/{id}/settings,
// GET /v2/devices/{id}/settings/{settingName}
async fn a_device_has_the_settings_of_its_design(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    let names = ana.get(&device.at("settings")).await.names();
    assert_eq!(names, ["label", "factor", "limit", "quiet", "place", "home"]);
    let limit = ana.get(&device.at("settings/limit")).await.ok();
    let expected = json!({
        "id": limit["id"],
        "deviceId": device.id,
        "createdAt": "2027-01-15T08:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
        "changedAt": null,
        "changedToId": null,
        "changedById": null,
        "name": "limit",
        "title": {"en": "Limit", "de": "Grenze"},
        "description": null,
        "inputType": "number",
        "inputTypeProperties": {"min": -40, "max": 40},
        "value": 8,
        "defaultValue": 8,
        "listOrder": 2,
    });
    assert_eq!(limit, expected);
    // A setting that was never set has a constant identifier, which differs from that of another device.
    assert_eq!(text(&limit, "id").len(), 36);
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["id"], limit["id"]);
    let label = ana.get(&device.at("settings/label")).await.ok();
    assert_eq!(
        (&label["title"], &label["description"], &label["inputType"], &label["value"]),
        (&json!("Label"), &json!("On the door"), &json!("text"), &json!("none"))
    );
    assert_eq!((&label["inputTypeProperties"], &label["listOrder"]), (&json!(["kitchen", "cellar"]), &json!(1)));
    let quiet = ana.get(&device.at("settings/quiet")).await.ok();
    assert_eq!(
        (&quiet["description"], &quiet["inputType"], &quiet["inputTypeProperties"], &quiet["defaultValue"]),
        (&json!({"en": "At night", "de": "Nachts"}), &json!("toggle"), &json!(null), &json!(false))
    );
    let home = ana.get(&device.at("settings/home")).await.ok();
    assert_eq!((&home["inputType"], &home["defaultValue"]["longitude"]), (&json!("geolocation"), &json!(8.5)));

    let page = ana.get(&device.at("settings?sortBy=-name&limit=4&page=2")).await.ok();
    let names: Vec<_> = page["data"].as_array().unwrap().iter().map(|setting| text(setting, "name")).collect();
    assert_eq!((names, &page["meta"]["totalDocs"]), (vec!["home", "factor"], &json!(6)));
    let names = ana.get(&device.at("settings?sortBy=-listOrder,-name")).await.names();
    assert_eq!(names, ["home", "place", "quiet", "limit", "factor", "label"]);
    assert_eq!(ana.get(&device.at("settings?sortBy=value&limit=0")).await.faults(), ["query.limit", "query.sortBy"]);
    ana.get(&device.at("settings/unheard")).await.not_found();
    ana.get(&device.at("settings/told")).await.not_found();
    let without = ana.creates_device("without a design").await;
    assert_eq!(ana.get(&without.at("settings")).await.names(), [] as [&str; 0]);
}

// Holds: c3.deviceToken
async fn a_device_reads_its_own_settings(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (device, other) = (a_thermostat(&ana).await, a_thermostat(&ana).await);
    ana.put(&device.at("settings/limit"), json!(12)).await.ok();
    assert_eq!(device.get(&device.at("settings/limit")).await.ok()["value"], 12);
    assert_eq!(device.get(&device.at("settings")).await.list_of("/value")[2], 12);
    device.get(&other.at("settings/limit")).await.not_found();
    device.get(&other.at("settings")).await.not_found();
    device.get(&device.at("settings/history")).await.unauthenticated();
    let put = device.request(Method::PUT, &device.at("settings/limit"));
    app.send(crate::support::app::with_json(put, &json!(1))).await.unauthenticated();
}

// Holds: setting.times, setting.changed, setting.history, GET /v2/devices/{id}/settings/history,
// PUT /v2/devices/{id}/settings/{settingName}, rule.settings.history, c6.order, c8.records
async fn changed_setting_has_a_history(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let device = a_thermostat(&ana).await;
    app.wait_seconds(60);
    let first = ana.put(&device.at("settings/limit"), json!(12)).await.ok();
    assert_eq!((&first["value"], &first["createdAt"]), (&json!(12), &json!("2027-01-15T08:01:00.000Z")));
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok(), first);
    assert_eq!(ana.get(&device.at("settings/history")).await.names(), [] as [&str; 0]);
    app.wait_seconds(60);
    let second = tom.put(&device.at("settings/limit"), json!(5)).await.ok();
    app.wait_seconds(60);
    let label = ana.put(&device.at("settings/label"), json!("kitchen")).await.ok();
    // The same value again is a change like any other.
    let third = ana.put(&device.at("settings/limit"), json!(5)).await.ok();

    let history = ana.get(&device.at("settings/history")).await.ok();
    let [newest, oldest] = &history["data"].as_array().unwrap()[..] else { panic!("{history}") };
    let mut expected = first.clone();
    expected["updatedAt"] = json!("2027-01-15T08:02:00.000Z");
    expected["changedAt"] = json!("2027-01-15T08:02:00.000Z");
    expected["changedToId"] = second["id"].clone();
    expected["changedById"] = json!(tom.id);
    assert_eq!(oldest, &expected);
    assert_eq!((&newest["id"], &newest["changedToId"]), (&second["id"], &third["id"]));
    assert_eq!((&newest["changedById"], &newest["changedAt"]), (&json!(ana.id), &json!("2027-01-15T08:03:00.000Z")));
    let oldest_first = ana.get(&device.at("settings/history?sortBy=createdAt&limit=1")).await.ok();
    assert_eq!((&oldest_first["data"][0]["id"], &oldest_first["meta"]["totalDocs"]), (&first["id"], &json!(2)));
    assert_eq!(ana.get(&device.at("settings/history?sortBy=value")).await.faults(), ["query.sortBy"]);
    assert_eq!(ana.get(&device.at("settings/label")).await.ok(), label);
    app.stranger("bob").await.get(&device.at("settings/history")).await.not_found();
}

// Holds: setting.value
async fn a_value_keeps_its_digits(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    for digits in ["9007199254740993", "0.100000000000000000000000000001", "-1.50"] {
        let answer = ana.put_text(&device.at("settings/factor"), digits).await.is(200);
        assert!(answer.text.contains(&format!("\"value\":{digits}")), "{answer:?}");
        let answer = ana.get(&device.at("settings/factor")).await.is(200);
        assert!(answer.text.contains(&format!("\"value\":{digits}")), "{answer:?}");
    }
    let history = ana.get(&device.at("settings/history")).await.is(200);
    assert!(history.text.contains("9007199254740993"), "{history:?}");
}

// Holds: setting.value, DELETE /v2/devices/{id}/settings, DELETE /v2/devices/{id}/settings/{settingName}, c8.value
async fn setting_can_be_reset_to_its_default(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    ana.delete(&device.at("settings/limit")).await.no_content();
    ana.delete(&device.at("settings")).await.no_content();
    device.takes().await.no_content();
    for (name, value) in [("limit", json!(12)), ("label", json!("kitchen")), ("quiet", json!(true))] {
        ana.put(&device.at(&format!("settings/{name}")), value).await.ok();
    }
    ana.delete(&device.at("settings/limit")).await.no_content();
    ana.delete(&device.at("settings/limit")).await.no_content();
    assert_eq!(
        ana.get(&device.at("settings")).await.list_of("/value")[..4],
        [json!("kitchen"), json!(null), json!(8), json!(true)]
    );
    assert_eq!(ana.get(&device.at("settings/history")).await.names(), ["limit"]);
    ana.delete(&device.at("settings")).await.no_content();
    assert_eq!(
        ana.get(&device.at("settings")).await.list_of("/value")[..4],
        [json!("none"), json!(null), json!(8), json!(false)]
    );
    assert_eq!(ana.get(&device.at("settings/history?sortBy=name")).await.names(), ["label", "limit", "quiet"]);
    ana.delete(&device.at("settings/unheard")).await.not_found();
}

// Holds: setting.value, rule.settings.body, rule.settings.history, c8.types
async fn invalid_setting_value_is_refused(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    for (name, value) in [
        ("limit", json!(null)),
        ("limit", json!("12")),
        ("limit", json!(41)),
        ("limit", json!(-40.000001)),
        ("limit", json!([1])),
        ("label", json!(1)),
        ("quiet", json!("true")),
        ("place", json!({"latitude": 91, "longitude": 0})),
        ("place", json!({"latitude": 1})),
    ] {
        let refused = ana.put(&device.at(&format!("settings/{name}")), value.clone()).await;
        assert_eq!(refused.faults(), ["body"], "{name} {value}");
    }
    let plain = ana.request(Method::PUT, &device.at("settings/limit")).header("content-type", "text/plain").body("1");
    assert_eq!(app.send(plain).await.faults(), ["body"]);
    assert_eq!(ana.put_text(&device.at("settings/limit"), "").await.faults(), ["body"]);
    assert_eq!(ana.put_text(&device.at("settings/limit"), "{\"a\":1,\"a\":2}").await.faults(), ["body"]);
    // The resource is checked before the role, and both before the body.
    let reader = ana.invites("reader", "basicUser").await;
    reader.put(&device.at("settings/unheard"), json!(null)).await.not_found();
    reader.put(&device.at("settings/limit"), json!(null)).await.forbidden();
    app.stranger("bob").await.put(&device.at("settings/limit"), json!(null)).await.not_found();
    ana.put(&device.at("settings/history"), json!(1)).await.is(405);
    assert_eq!(ana.get(&device.at("settings/history")).await.names(), [] as [&str; 0]);
    device.takes().await.no_content();
}

// Holds: c11.deviceSetting
async fn changed_setting_runs_the_design(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    let taken = || async { device.takes().await.ok() };
    ana.put(&device.at("settings/limit"), json!(12)).await.ok();
    assert_eq!(taken().await, json!({"limit": 12, "now": 12}));
    ana.put(&device.at("settings/limit"), json!(12)).await.ok();
    assert_eq!(taken().await, json!({"limit": 12, "now": 12}));
    ana.delete(&device.at("settings/limit")).await.no_content();
    assert_eq!(taken().await, json!({"limit": 8, "now": 8}));
    device.takes().await.no_content();
    assert_eq!(ana.get(&device.at("data/limits")).await.list_of("/payload"), [8, 12, 12]);
    assert_eq!(ana.get(&device.at("data/moves")).await.list_of("/payload"), [8, 12]);
    // The next event uses it. History has the sent event, and no event for the change itself.
    device.posts("reading", json!(1)).await.created();
    assert_eq!(taken().await, 8);
    ana.put(&device.at("settings/limit"), json!(3)).await.ok();
    taken().await;
    device.posts("reading", json!(1)).await.created();
    assert_eq!(taken().await, 3);
    let of_kind = |kind: &str| device.at(&format!("events?{kind}"));
    assert_eq!(ana.get(&of_kind("deviceEvents=false")).await.list_of("/elementName").len(), 6);
    assert_eq!(ana.get(&of_kind("cloudEvents=false")).await.list_of("/elementName"), ["reading", "reading"]);
}

// Holds: c11.deviceSetting
async fn a_change_is_decoded_by_code(app: &TestApp) {
    let ana = app.developer("ana").await;
    let code = "function decodeUplink(input) { return {data: {temp: input.bytes[1]}}; }";
    let design = json!({
        "frame": {"type": "deviceSetting", "triggers": {"changed": [to("decode", "evaluate")]}},
        "decode": {"type": "function", "properties": {"code": code, "bytesEncoding": "hex"}, "triggers": {"result": [to("values", "store")]}},
        "values": {"type": "storage"},
    });
    let device = ana.creates_device_of(&ana.designs(design).await, "d").await;
    for frame in ["0105", "0107"] {
        ana.put(&device.at("settings/frame"), json!(frame)).await.ok();
    }
    let values = ana.get(&device.at("data/values")).await.list_of("/payload");
    assert_eq!(values, [json!({"temp": 7}), json!({"temp": 5})]);
}

// Holds: c8.records, c11.deviceSetting
async fn design_can_change_a_setting(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    ana.put(&device.at("settings/limit"), json!(12)).await.ok();
    device.posts("wish", json!(20)).await.created();
    ana.put(&device.at("settings/limit"), json!(13)).await.ok();
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["value"], 13);
    let history = ana.get(&device.at("settings/history")).await;
    let by: Vec<Value> = history.list_of("/changedById");
    assert_eq!(by, [json!(ana.id), json!(device.id)]);
    let values = ana.get(&device.at("settings/history")).await.list_of("/value");
    assert_eq!(values, [20, 12]);
}

// Holds: c11.deviceSetting
async fn design_can_reset_a_setting(app: &TestApp) {
    let ana = app.developer("ana").await;
    let mut design = thermostat();
    design["forget"] = json!({"type": "deviceEvent", "triggers": {"eventReceived": [to("limit", "reset")]}});
    let project = ana.designs(design).await;
    let device = ana.creates_device_of(&project, "thermostat").await;
    let stored = async || ana.get(&device.at("data/limits")).await.list_of("/payload");
    let history = async || ana.get(&device.at("settings/history")).await.ok()["data"].clone();
    ana.put(&device.at("settings/limit"), json!(12)).await.ok();
    assert_eq!(stored().await, [12]);

    device.posts("forget", json!({})).await.created();
    let limit = ana.get(&device.at("settings/limit")).await.ok();
    assert_eq!(limit["value"], 8);
    let past = history().await;
    assert_eq!(past.as_array().unwrap().len(), 1, "{past}");
    assert_eq!(
        (&past[0]["name"], &past[0]["value"], &past[0]["changedById"], &past[0]["changedToId"]),
        (&json!("limit"), &json!(12), &json!(device.id), &limit["id"])
    );
    assert_eq!(stored().await, [8, 12]);
    // A setting without a value has nothing to reset: that is no change.
    device.posts("forget", json!({})).await.created();
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok(), limit);
    assert_eq!(history().await, past);
    assert_eq!(stored().await, [8, 12]);
    // The same holds for a setting that was never set.
    let other = ana.creates_device_of(&project, "other").await;
    other.posts("forget", json!({})).await.created();
    assert_eq!(ana.get(&other.at("data/limits")).await.list_of("/payload"), [] as [Value; 0]);
}

// Holds: setting.value, c5.locations
async fn a_geolocation_moves_the_device(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    let id: DeviceId = device.id.parse().unwrap();
    let place = || async {
        // A read of history waits until the registry has all changes.
        ana.get(&device.at("settings/history")).await.ok();
        let (reference, _) = app.registry().device_placement(id).await.unwrap().unwrap();
        let pass = access::system(reference, "a scene looks where the device is").reading();
        let found = app.registry().device_fetch(&pass).await.unwrap().unwrap();
        found.location.map(|place| (place.latitude, place.longitude))
    };
    assert_eq!(place().await, None);
    ana.put(&device.at("settings/place"), json!({"latitude": 1.5, "longitude": 2.5})).await.ok();
    assert_eq!(place().await, Some((1.5, 2.5)));
    device.posts("arrival", json!({"latitude": 3.5, "longitude": 4.5})).await.created();
    assert_eq!(place().await, Some((3.5, 4.5)));
    // A default that is a location moves the device too; another one leaves it in place.
    ana.put(&device.at("settings/home"), json!({"latitude": 5.5, "longitude": 6.5})).await.ok();
    ana.delete(&device.at("settings/place")).await.no_content();
    assert_eq!(place().await, Some((5.5, 6.5)));
    ana.delete(&device.at("settings/home")).await.no_content();
    assert_eq!(place().await, Some((47.5, 8.5)));
}

// Holds: c8.records
async fn concurrent_changes_of_a_setting_make_one_history(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = a_thermostat(&ana).await;
    let (url, url_of_wish) = (device.at("settings/limit"), json!(-1));
    let puts = join_all((0..20).map(|value| ana.put(&url, json!(value))));
    let (answers, wish, _) = tokio::join!(puts, device.posts("wish", url_of_wish), ana.delete(&url));
    wish.created();
    let mut ids: Vec<String> = answers.into_iter().map(|answer| text(&answer.ok(), "id").to_owned()).collect();
    let now = ana.get(&url).await.ok();
    let history = ana.get(&device.at("settings/history")).await.ok();
    let records = history["data"].as_array().unwrap();
    // Newest first: each was replaced by the one before it in the list, the first by the one in force.
    let mut next = &now["id"];
    for record in records {
        assert_eq!(&record["changedToId"], next);
        next = &record["id"];
    }
    let chained = |id: &String| now["id"] == **id || records.iter().any(|record| record["id"] == **id);
    ids.retain(|id| !chained(id));
    assert_eq!(ids, [] as [&str; 0]);
    // Every change ran the design once, in the order of the history.
    let told = ana.get(&device.at("data/limits")).await.list_of("/payload");
    let newest_first: Vec<Value> = std::iter::once(&now).chain(records).map(|record| record["value"].clone()).collect();
    assert_eq!(told, newest_first);
}

async fn removed_setting_is_hidden_and_keeps_its_record(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(thermostat()).await;
    let device = ana.creates_device_of(&project, "thermostat").await;
    for value in [1, 2] {
        ana.put(&device.at("settings/limit"), json!(value)).await.ok();
    }
    let mut design = thermostat();
    design.as_object_mut().unwrap().retain(|name, _| name == "label");
    ana.redesigns(&project, design).await.ok();
    ana.get(&device.at("settings/limit")).await.not_found();
    ana.put(&device.at("settings/limit"), json!(3)).await.not_found();
    assert_eq!(ana.get(&device.at("settings")).await.names(), ["label"]);
    let past = ana.get(&device.at("settings/history")).await.ok();
    assert_eq!((&past["data"][0]["value"], &past["data"][0]["inputType"]), (&json!(1), &json!(null)));
    ana.redesigns(&project, thermostat()).await.ok();
    assert_eq!(ana.get(&device.at("settings/limit")).await.ok()["value"], 2);
}

async fn the_settings_of_a_device_have_a_mebibyte_together(app: &TestApp) {
    const NO_ROOM: &str = "has no room: the settings of a device take at most 1 MiB together";
    let ana = app.developer("ana").await;
    let design = json!({
        "a": {"type": "deviceSetting"}, "b": {"type": "deviceSetting"}, "c": {"type": "deviceSetting"},
        "wish": {"type": "deviceEvent", "triggers": {"eventReceived": [to("c", "set")]}},
    });
    let project = ana.designs(design.clone()).await;
    let device = ana.creates_device_of(&project, "d").await;
    let (most, half) = (json!("x".repeat(700_000)), json!("y".repeat(400_000)));
    ana.put(&device.at("settings/a"), most.clone()).await.ok();
    let refused = ana.put(&device.at("settings/b"), half.clone()).await.is(400).json();
    assert_eq!(refused["errors"], json!([{"field": "body", "message": NO_ROOM}]));
    let items = json!([
        {"deviceId": device.id, "name": "b", "value": half},
        {"deviceId": device.id, "name": "a", "value": half},
        {"deviceId": device.id, "name": "b", "value": "small"},
    ]);
    // Each item uses the result of the earlier ones.
    let outcome = ana.post("/v2/devices/settings", items).await.ok();
    assert_eq!(outcome["errors"], json!([{"message": format!("[0].value: {NO_ROOM}")}]));
    assert_eq!(outcome["data"].as_array().unwrap().len(), 2);
    device.posts("wish", most.clone()).await.created();
    let event = ana.get(&device.at("events?limit=1")).await.ok()["data"][0].clone();
    assert_eq!(event["errors"], json!([{"element": "c", "message": format!("the value {NO_ROOM}")}]));
    device.posts("wish", half.clone()).await.created();
    let values = async || ana.get(&device.at("settings?sortBy=name")).await.list_of("/value");
    assert_eq!(values().await, [half.clone(), json!("small"), half.clone()]);
    // Values of settings that the design no longer declares take room until all are reset.
    ana.redesigns(&project, json!({"b": {"type": "deviceSetting"}})).await.ok();
    assert_eq!(ana.put(&device.at("settings/b"), most.clone()).await.faults(), ["body"]);
    ana.delete(&device.at("settings")).await.no_content();
    ana.put(&device.at("settings/b"), most.clone()).await.ok();
    ana.redesigns(&project, design).await.ok();
    assert_eq!(values().await, [Value::Null, most, Value::Null]);
}

#[tokio::test]
async fn acknowledged_settings_survive_a_restart() {
    let app = TestApp::start().await;
    let (id, token) = {
        let ana = app.developer("ana").await;
        let device = a_thermostat(&ana).await;
        ana.put(&device.at("settings/limit"), json!(12)).await.ok();
        (device.id, device.token)
    };
    let app = app.restart().await;
    let device = Device { app: &app, id, token };
    assert_eq!(device.get(&device.at("settings/limit")).await.ok()["value"], 12);
    device.posts("reading", json!(1)).await.created();
    assert_eq!(device.takes().await.ok(), json!({"limit": 12, "now": 12}));
    assert_eq!(device.takes().await.ok(), 12);
    app.end().await;
}
