//! History: every event of a device, in both directions.

use serde_json::json;

use crate::support::app::with_json;
use crate::support::designs::{fridge, to};
use crate::support::person::text;
use crate::support::{NOBODY, TestApp};

// Holds: event.type, event.receivedAt, query.from, query.to, GET /v2/devices/{deviceId}/events, rule.history.kinds,
// channel.device, c5.types, c6.order
#[tokio::test]
async fn history_holds_both_kinds_newest_first() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for number in 0..3 {
        device.posts("reading", json!(number)).await.created();
        app.wait_seconds(60);
        device.queues("alarm", json!(number)).await;
        app.wait_seconds(60);
    }
    let history = async |query: &str| {
        let body = ana.get(&device.at(&format!("events?{query}"))).await.ok();
        let one = |event: &serde_json::Value| format!("{}{}", &text(event, "type")[..1], event["payload"]);
        body["data"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(history("").await, ["c2", "d2", "c1", "d1", "c0", "d0"]);
    assert_eq!(history("cloudEvents=false").await, ["d2", "d1", "d0"]);
    assert_eq!(history("deviceEvents=false").await, ["c2", "c1", "c0"]);
    assert_eq!(history("deviceEvents=false&cloudEvents=false").await, [""; 0]);
    assert_eq!(history("limit=2&page=2").await, ["c1", "d1"]);
    assert_eq!(history("from=2027-01-15T08:02:00Z&to=2027-01-15T08:04:00Z").await, ["c1", "d1"]);
    assert_eq!(history("from=2027-01-15T08:02:00Z&to=2027-01-15T08:02:00Z").await, [""; 0]);
    assert_eq!(history("cloudEvents=false&to=2027-01-15T08:02:00Z").await, ["d0"]);
    let page = ana.get(&device.at("events?limit=4&page=2")).await.ok();
    let meta = json!({
        "totalDocs": 6, "page": 2, "limit": 4, "hasPrevPage": true, "hasNextPage": false, "totalPages": 2,
    });
    assert_eq!(page["meta"], meta);
}

// Holds: GET /v2/devices/{deviceId}/events/{id}
#[tokio::test]
async fn one_event_is_found_on_its_own_device_alone() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (device, other) = (ana.creates_device("one").await, ana.creates_device("other").await);
    let made = device.posts("reading", json!({"temp": 1})).await.created();
    let id = text(&made, "id");
    assert_eq!(ana.get(&device.at(&format!("events/{id}"))).await.ok()["payload"], json!({"temp": 1}));
    ana.get(&other.at(&format!("events/{id}"))).await.not_found();
    ana.get(&device.at(&format!("events/{NOBODY}"))).await.not_found();
    ana.get(&device.at("events/nonsense")).await.not_found();
    let queued = device.queues("alarm", json!(2)).await;
    assert_eq!(ana.get(&device.at(&format!("events/{queued}"))).await.ok()["type"], "cloudEvent");
}

// Holds: c11.bounds
#[tokio::test]
async fn failing_element_does_not_lose_the_event() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("ratio", "evaluate"), to("raw", "store")]}},
            "ratio": {"type": "transform", "properties": {"expression": "payload.a / payload.b"},
                "triggers": {"result": [to("ratios", "store")]}},
            "ratios": {"type": "storage"},
            "raw": {"type": "storage"},
        }))
        .await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for (payload, fails) in [(json!({"a": 1, "b": 2}), false), (json!({"a": 1}), true), (json!({"a": 1, "b": 0}), true)]
    {
        let made = device.posts("reading", payload.clone()).await.created();
        let event = ana.get(&device.at(&format!("events/{}", text(&made, "id")))).await.ok();
        assert_eq!(event["payload"], payload);
        assert_eq!(event["errors"].is_array(), fails, "{event}");
        if fails {
            assert_eq!(event["errors"][0]["element"], "ratio");
            assert!(event["errors"][0]["message"].is_string());
        }
    }
    assert_eq!(ana.get(&device.at("data/raw")).await.ok()["meta"]["totalDocs"], 3);
    assert_eq!(ana.get(&device.at("data/ratios")).await.ok()["meta"]["totalDocs"], 1);
    let listed = ana.get(&device.at("events?limit=1")).await.ok();
    assert_eq!(listed["data"][0]["errors"][0]["element"], "ratio");
}

// Holds: rule.history.retention, channel.history, limit.history, c7.history
#[tokio::test]
async fn history_older_than_six_months_is_gone_but_values_stay() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let made = device.posts("reading", json!(1)).await.created();
    let queued = device.queues("alarm", json!("c1")).await;
    // The protocol does not matter.
    let project = ana.project().await;
    let body = json!({"name": "lora", "projectUuid": project, "protocol": "lora", "meta": {"eui": "1"}});
    let far = ana.creates_device_as(body).await;
    let key = ana.makes_api_key("outlives the jwt").await;
    let get = async |path: &str| app.send(app.request(reqwest::Method::GET, path).header("api_auth_token", &key)).await;
    let hook = "/v2/events/integrations?integration=lora&deviceTag=eui&deviceTagValue=1";
    let hook = app.request(reqwest::Method::POST, hook).header("api_auth_token", &key);
    app.send(with_json(hook, &json!({"far": 1}))).await.ok();
    app.wait_seconds(181 * 24 * 3600);
    device.posts("reading", json!(2)).await.created();
    assert_eq!(get(&device.at("events")).await.list_of("/payload"), [json!(2), json!("c1"), json!(1)]);
    assert_eq!(get(&far.at("events")).await.list_of("/payload"), [json!({"far": 1})]);
    app.wait_seconds(3 * 24 * 3600);
    assert_eq!(get(&device.at("events")).await.list_of("/payload"), [2]);
    for gone in [text(&made, "id"), &queued] {
        get(&device.at(&format!("events/{gone}"))).await.not_found();
    }
    assert_eq!(get(&far.at("events")).await.ok()["meta"]["totalDocs"], 0);
    assert_eq!(get(&device.at("data/reading")).await.list_of("/payload"), [2, 1]);
    assert_eq!(get(&far.at("data/lora")).await.list_of("/payload"), [json!({"far": 1})]);
}

#[tokio::test]
async fn concurrent_devices_each_keep_their_order() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let mut devices = Vec::new();
    for number in 0..5 {
        devices.push(ana.creates_device_of(&project, &format!("fridge {number}")).await);
    }
    let drives = devices.iter().map(|device| async {
        for temp in 0..20 {
            device.posts("reading", json!({"temp": temp})).await.created();
        }
    });
    futures::future::join_all(drives).await;
    for device in &devices {
        let temps = ana.get(&device.at("data/store?sortBy=id")).await.list_of("/payload/temp");
        assert_eq!(temps, (0..20).collect::<Vec<_>>());
        let alarms = device.get("/v2/events/cloud").await.ok();
        let temps: Vec<_> =
            alarms.as_array().unwrap().iter().map(|event| event["payload"]["temp"].as_i64().unwrap()).collect();
        assert_eq!(temps, (9..20).collect::<Vec<_>>());
        assert_eq!(ana.get(&device.url()).await.ok()["meta"]["lastAlarm"], 19);
    }
}
