//! Tests periodic changes of devices: intervals elapse, and silent devices become missing.

use serde_json::{Value, json};

use crate::calls::stored;
use crate::support::designs::{to, to_with};
use crate::support::person::text;
use crate::support::{Device, Person, TestApp, on_both_registries};
use crate::webhook::Sender;

on_both_registries!(
    an_interval_elapses_for_every_device,
    a_changed_design_begins_and_ends_intervals,
    an_interval_runs_code,
    interval_with_failing_code_elapses_again,
    silent_device_is_missing_until_its_next_event,
    interval_does_not_end_the_missing_status,
    delivery_ends_the_missing_status,
    device_made_missing_by_its_design_regains_its_status,
);

fn ticking(minutes: u32) -> Value {
    json!({
        "reading": {"type": "deviceEvent"},
        "tick": {"type": "interval", "properties": {"minutes": minutes}, "triggers": {"elapsed": [to("ticks", "store")]}},
        "ticks": {"type": "storage"},
    })
}

/// Advances the clock by a minute, and waits until the scheduler has checked the timers: a device that was created for
/// that has its interval, so earlier timers are served by then, or never.
async fn looks(ana: &Person<'_>) {
    let witness = ana.creates_device_of(&ana.designs(ticking(1)).await, "witness").await;
    ana.app.wait_seconds(60);
    stored(ana, &witness, "ticks", 1).await;
}

// Holds: c11.interval
async fn an_interval_elapses_for_every_device(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(ticking(5)).await;
    let first = ana.creates_device_of(&project, "first").await;
    app.wait_seconds(120);
    let second = ana.creates_device_of(&project, "second").await;
    app.wait_seconds(180);
    // The clock does not move meanwhile: at 08:05 the first device's five minutes are over, the second's are not.
    let ticks = stored(&ana, &first, "ticks", 1).await;
    assert_eq!(ticks, [json!({"elapsedAt": "2027-01-15T08:05:00.000Z"})]);
    assert_eq!(stored(&ana, &second, "ticks", 0).await, [] as [Value; 0]);
    app.wait_seconds(120);
    stored(&ana, &second, "ticks", 1).await;
    // Missed intervals count as one.
    app.wait_seconds(24 * 3600);
    assert_eq!(stored(&ana, &first, "ticks", 2).await.len(), 2);
    looks(&ana).await;
    assert_eq!(stored(&ana, &first, "ticks", 2).await.len(), 2);
    // The rhythm is kept: 08:07 of the next day is past, 08:10 is next.
    app.wait_seconds(120);
    assert_eq!(stored(&ana, &first, "ticks", 3).await[0]["elapsedAt"], "2027-01-16T08:10:00.000Z");
    // An interval is no event of the device.
    assert_eq!(ana.get(&first.at("events")).await.list_of("/id"), [] as [Value; 0]);
    assert_eq!(ana.get(&first.url()).await.ok()["lastActive"], Value::Null);
}

async fn a_changed_design_begins_and_ends_intervals(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(json!({"reading": {"type": "deviceEvent"}})).await;
    let device = ana.creates_device_of(&project, "d").await;
    app.wait_seconds(3600);
    ana.redesigns(&project, ticking(5)).await.ok();
    app.wait_seconds(300);
    stored(&ana, &device, "ticks", 1).await;
    ana.redesigns(&project, ticking(30)).await.ok();
    app.wait_seconds(1_800);
    let ticks = stored(&ana, &device, "ticks", 2).await;
    assert_eq!(ticks[0]["elapsedAt"], "2027-01-15T09:35:00.000Z");
    let mut without = ticking(30);
    without.as_object_mut().unwrap().remove("tick");
    ana.redesigns(&project, without).await.ok();
    app.wait_seconds(7_200);
    looks(&ana).await;
    assert_eq!(stored(&ana, &device, "ticks", 2).await.len(), 2);
}

/// Returns a design that passes the minute of each elapsed interval to code with that body.
fn minutes_to(body: &str) -> Value {
    let code = format!("function decodeUplink(input) {{ {body} }}");
    json!({
        "tick": {"type": "interval", "properties": {"minutes": 5}, "triggers": {"elapsed": [to("minute", "evaluate")]}},
        "minute": {
            "type": "transform",
            "properties": {"expression": "{'bytes': [timestamp(payload.elapsedAt).getMinutes()]}"},
            "triggers": {"result": [to("decode", "evaluate")]},
        },
        "decode": {
            "type": "function",
            "properties": {"code": code},
            "triggers": {"result": [to("ticks", "store")], "error": [to("failures", "store")]},
        },
        "ticks": {"type": "storage"},
        "failures": {"type": "storage"},
    })
}

// Holds: c11.interval
async fn an_interval_runs_code(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(minutes_to("return {data: {minute: input.bytes[0]}};")).await;
    let device = ana.creates_device_of(&project, "d").await;
    let (one, both) = (vec![json!({"minute": 5})], vec![json!({"minute": 10}), json!({"minute": 5})]);
    // A check takes a minute of the five.
    for (seconds, expected) in [(300, one), (240, both)] {
        app.wait_seconds(seconds);
        stored(&ana, &device, "ticks", expected.len()).await;
        // Its run is not awaited, and yet it elapses once.
        looks(&ana).await;
        assert_eq!(stored(&ana, &device, "ticks", expected.len()).await, expected);
    }
    assert_eq!(stored(&ana, &device, "failures", 0).await, [] as [Value; 0]);
    assert_eq!(ana.get(&device.url()).await.ok()["lastActive"], Value::Null);
}

// Holds: c11.interval
async fn interval_with_failing_code_elapses_again(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let body = "if (input.bytes[0] === 5) { throw 'too early'; } return {data: {minute: input.bytes[0]}};";
    let device = ana.creates_device_of(&ana.designs(minutes_to(body)).await, "d").await;
    app.wait_seconds(300);
    stored(&ana, &device, "failures", 1).await;
    looks(&ana).await;
    assert_eq!(stored(&ana, &device, "failures", 1).await, ["too early"]);
    assert_eq!(stored(&ana, &device, "ticks", 0).await, [] as [Value; 0]);
    app.wait_seconds(240);
    assert_eq!(stored(&ana, &device, "ticks", 1).await, [json!({"minute": 10})]);
    assert_eq!(stored(&ana, &device, "failures", 1).await.len(), 1);
}

fn watched() -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("was", "store")]}},
        "was": {"type": "storage"},
        "raise": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to_with("status", "setStatus", json!({"status": "warning"})),
        ]}},
        "status": {"type": "deviceMeta", "properties": {"missingAfterMinutes": 10}},
    })
}

async fn becomes(ana: &Person<'_>, device: &Device<'_>, status: &str) {
    isobar_power::becomes(status, async || ana.get(&device.url()).await.ok()["statusText"] == status).await;
}

// Holds: c11.missing
async fn silent_device_is_missing_until_its_next_event(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(watched()).await;
    let (talks, never) = (ana.creates_device_of(&project, "a").await, ana.creates_device_of(&project, "b").await);
    talks.posts("raise", json!({})).await.created();
    app.wait_seconds(400);
    talks.posts("reading", json!({})).await.created();
    // A device that never sent anything is silent since its creation.
    app.wait_seconds(200);
    becomes(&ana, &never, "missing").await;
    looks(&ana).await;
    assert_eq!(ana.get(&talks.url()).await.ok()["statusText"], "warning");
    app.wait_seconds(340);
    becomes(&ana, &talks, "missing").await;
    let home = ana.get(&format!("/v2/organizations/{}", ana.organization)).await.ok();
    assert_eq!(text(&home, "statusText"), "missing");

    talks.posts("reading", json!({})).await.created();
    assert_eq!(ana.get(&talks.url()).await.ok()["statusText"], "warning");
    never.posts("reading", json!({})).await.created();
    assert_eq!(ana.get(&never.url()).await.ok()["statusText"], "none");
    let home = ana.get(&format!("/v2/organizations/{}", ana.organization)).await.ok();
    assert_eq!(text(&home, "statusText"), "warning");
    app.wait_seconds(539);
    looks(&ana).await;
    assert_eq!(ana.get(&talks.url()).await.ok()["statusText"], "warning");
    app.wait_seconds(1);
    becomes(&ana, &talks, "missing").await;
    // An event may set a status of its own.
    talks.posts("raise", json!({})).await.created();
    assert_eq!(ana.get(&talks.url()).await.ok()["statusText"], "warning");
}

async fn interval_does_not_end_the_missing_status(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let mut design = watched();
    design["tick"] = json!({"type": "interval", "properties": {"minutes": 15}, "triggers": {"elapsed": [
        to_with("status", "setStatus", json!({"status": "info"})), to("was", "store"),
    ]}});
    let project = ana.designs(design).await;
    let device = ana.creates_device_of(&project, "d").await;
    app.wait_seconds(600);
    becomes(&ana, &device, "missing").await;
    app.wait_seconds(300);
    stored(&ana, &device, "was", 1).await;
    assert_eq!(ana.get(&device.url()).await.ok()["statusText"], "missing");
    device.posts("reading", json!({})).await.created();
    assert_eq!(ana.get(&device.url()).await.ok()["statusText"], "info");
}

// Holds: c11.missing
async fn delivery_ends_the_missing_status(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await.with_key().await).await;
    let mut design = watched();
    design["uplink"] = json!({
        "type": "deviceEvent",
        "properties": {"integration": "custom"},
        "triggers": {"eventReceived": [to("was", "store")]},
    });
    let project = ana.person.designs(design).await;
    let body = json!({"name": "d", "projectUuid": project, "meta": {"eui": "17"}});
    let device = ana.person.creates_device_as(body).await;
    device.posts("raise", json!({})).await.created();
    app.wait_seconds(600);
    becomes(&ana.person, &device, "missing").await;
    let parameters = [("deviceTag", "eui"), ("deviceTagValue", "17"), ("projectUuid", &*project)];
    let answer = ana.delivers(&parameters, json!({"temp": 4})).await.ok();
    assert!(text(&answer, "message").ends_with("1 event(s) processed, 0 device(s) provisioned"), "{answer}");
    assert_eq!(ana.person.get(&device.url()).await.ok()["statusText"], "warning");
}

// Holds: c11.missing
async fn device_made_missing_by_its_design_regains_its_status(app: &TestApp) {
    let ana = app.developer("ana").await;
    let sets = |status: &str| to_with("status", "setStatus", json!({"status": status}));
    let mut design = watched();
    design["calm"] = json!({"type": "deviceEvent", "triggers": {"eventReceived": [sets("good")]}});
    design["vanish"] =
        json!({"type": "deviceEvent", "triggers": {"eventReceived": [sets("critical"), sets("missing")]}});
    let project = ana.designs(design.clone()).await;
    let device = ana.creates_device_of(&project, "d").await;
    let status = async || ana.get(&device.url()).await.ok()["statusText"].clone();
    for is_loaded_anew in [false, true] {
        device.posts("calm", json!({})).await.created();
        assert_eq!(status().await, "good");
        device.posts("vanish", json!({})).await.created();
        assert_eq!(status().await, "missing");
        if is_loaded_anew {
            // With another design, the state of the device comes from the registry.
            design["later"] = json!({"type": "storage"});
            ana.redesigns(&project, design.clone()).await.ok();
        }
        device.posts("reading", json!({})).await.created();
        assert_eq!(status().await, "critical", "{is_loaded_anew}");
    }
}

#[tokio::test]
async fn missing_status_and_intervals_survive_a_restart() {
    let app = TestApp::start().await;
    let (id, token, jwt) = {
        let ana = app.developer("ana").await.with_key().await;
        let mut design = watched();
        design["tick"] = ticking(60)["tick"].clone();
        design["ticks"] = json!({"type": "storage"});
        let project = ana.designs(design).await;
        let device = ana.creates_device_of(&project, "d").await;
        device.posts("raise", json!({})).await.created();
        app.wait_seconds(600);
        becomes(&ana, &device, "missing").await;
        (device.id, device.token, ana.jwt.clone())
    };
    app.wait_seconds(86_400);
    let app = app.restart().await;
    // The JWT has expired after a day: the device reads for itself.
    assert!(!jwt.is_empty());
    let device = Device { app: &app, id, token };
    let ticks = async || device.get(&device.at("last/ticks")).await.ok()["values"].clone();
    isobar_power::becomes("the interval elapses", async || ticks().await != json!({})).await;
    assert_eq!(ticks().await["elapsedAt"], "2027-01-16T08:10:00.000Z");
    assert_eq!(device.get(&device.url()).await.ok()["statusText"], "missing");
    device.posts("reading", json!({})).await.created();
    assert_eq!(device.get(&device.url()).await.ok()["statusText"], "warning");
    app.end().await;
}
