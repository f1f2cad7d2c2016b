//! Tests the effects of designs outside: calls to other servers, and notices to users.

use isobar_power::{becomes, settled};
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::outside::Outside;
use crate::support::person::text;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    design_receives_the_answer_of_its_call,
    failed_call_is_retried,
    unsuccessful_answer_reaches_the_design,
    an_answer_is_decoded_by_code,
    call_to_a_private_address_is_refused,
    slow_host_delays_no_other_call,
    notification_of_a_design_reaches_its_users,
    code_that_loops_is_an_error_of_its_event,
);

/// Returns a design that calls `url` with every reading, and stores the answer.
pub fn caller(url: &str) -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("ask", "request")]}},
        "ask": {
            "type": "http",
            "properties": {
                "method": "POST",
                "url": url,
                "headers": {"x-device": "device.name"},
                "body": "{'temp': payload.temp}",
            },
            "triggers": {"response": [to("answers", "store")], "error": [to("failures", "store")]},
        },
        "answers": {"type": "storage"},
        "failures": {"type": "storage"},
    })
}

async fn device_of<'a>(ana: &Person<'a>, design: Value) -> Device<'a> {
    let project = ana.designs(design).await;
    ana.creates_device_of(&project, "fridge").await
}

/// Waits until a storage element has this many values, and returns their payloads, newest first.
pub async fn stored(ana: &Person<'_>, device: &Device<'_>, element: &str, count: usize) -> Vec<Value> {
    settled(&format!("{count} values in {element}"), async || {
        let values = ana.get(&device.at(&format!("data/{element}"))).await.list_of("/payload");
        (values.len() >= count).then_some(values)
    })
    .await
}

// Holds: c11.http
async fn design_receives_the_answer_of_its_call(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await.with_key().await, Outside::start().await);
    let device = device_of(&ana, caller(&outside.url("/in?a=b"))).await;
    outside.will_answer(201, r#"{"ok": 1.50}"#);
    device.posts("reading", json!({"temp": 9.1})).await.created();
    let calls = outside.called(1).await;
    assert_eq!((calls[0].method.as_str(), calls[0].target.as_str()), ("POST", "/in?a=b"));
    assert_eq!(calls[0].json(), json!({"temp": 9.1}));
    assert_eq!(
        (&calls[0].headers["x-device"], &calls[0].headers["content-type"]),
        (&"fridge".parse().unwrap(), &"application/json".parse().unwrap())
    );
    let answer = &stored(&ana, &device, "answers", 1).await[0];
    assert_eq!((&answer["status"], &answer["body"]), (&json!(201), &json!({"ok": 1.50})));
    assert_eq!(answer["headers"]["x-kind"], "test");
    // The answer is no event of the device.
    assert_eq!(ana.get(&device.at("events")).await.list_of("/elementName"), [json!("reading")]);
    outside.will_answer(200, "plain text");
    device.posts("reading", json!({"temp": 9.2})).await.created();
    assert_eq!(stored(&ana, &device, "answers", 2).await[0]["body"], "plain text");
    assert_eq!(stored(&ana, &device, "failures", 0).await, [] as [Value; 0]);
}

// Holds: c11.outside
async fn failed_call_is_retried(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await.with_key().await, Outside::start().await);
    let device = device_of(&ana, caller(&outside.url("/"))).await;
    outside.will_answer(503, "");
    outside.will_answer(429, "");
    device.posts("reading", json!({"temp": 9.1})).await.created();
    outside.called(1).await;
    for times in [2, 3] {
        // The number of calls is the same wherever the clock moves between a call and the record of its failure.
        outside.is_called_again(app, times, 10).await;
    }
    assert_eq!(stored(&ana, &device, "answers", 1).await[0]["status"], 200);
    assert_eq!(outside.count(), 3);
}

// Holds: c11.http
async fn unsuccessful_answer_reaches_the_design(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await.with_key().await, Outside::start().await);
    let device = device_of(&ana, caller(&outside.url("/"))).await;
    outside.will_answer(404, "not here");
    device.posts("reading", json!({"temp": 9.1})).await.created();
    let answer = &stored(&ana, &device, "answers", 1).await[0];
    assert_eq!((&answer["status"], &answer["body"]), (&json!(404), &json!("not here")));
    for _ in 0..6 {
        outside.will_answer(500, "");
    }
    device.posts("reading", json!({"temp": 9.1})).await.created();
    outside.is_called_again(app, 7, 600).await;
    let failure = stored(&ana, &device, "failures", 1).await;
    assert_eq!(failure, [json!({"message": "the answer was 500", "status": 500})]);
}

// Holds: c11.http
async fn an_answer_is_decoded_by_code(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await.with_key().await, Outside::start().await);
    let code = "function decodeUplink(input) { return {data: {temp: input.bytes[1]}}; }";
    let mut design = caller(&outside.url("/"));
    design["ask"]["triggers"]["response"] = json!([to("decode", "evaluate")]);
    design["decode"] = json!({
        "type": "function",
        "properties": {"code": code, "bytesRef": "$.body.frame", "bytesEncoding": "hex"},
        "triggers": {"result": [to("answers", "store")], "error": [to("failures", "store")]},
    });
    let device = device_of(&ana, design).await;
    for (frame, expected) in [("0105", vec![json!(5)]), ("0107", vec![json!(7), json!(5)])] {
        outside.will_answer(200, &json!({"frame": frame}).to_string());
        device.posts("reading", json!({"temp": 9.1})).await.created();
        let answers = stored(&ana, &device, "answers", expected.len()).await;
        assert_eq!(answers.iter().map(|answer| answer["temp"].clone()).collect::<Vec<_>>(), expected);
    }
    assert_eq!(stored(&ana, &device, "failures", 0).await, [] as [Value; 0]);
    assert_eq!(outside.count(), 2);
}

// Holds: c11.missing
async fn call_to_a_private_address_is_refused(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await.with_key().await, Outside::start().await);
    let device = device_of(&ana, caller(&format!("http://127.0.0.2:{}/", outside.port))).await;
    device.posts("reading", json!({"temp": 9.1})).await.created();
    let failures = stored(&ana, &device, "failures", 1).await;
    let message = "127.0.0.2 is not a public address, and outgoing.allow does not list it";
    assert_eq!(failures, [json!({"message": message})]);
    assert_eq!(outside.count(), 0);
}

async fn slow_host_delays_no_other_call(app: &TestApp) {
    let (ana, outside) = (app.developer("ana").await.with_key().await, Outside::start().await);
    let slow = device_of(&ana, caller(&format!("http://localhost:{}/slow", outside.port))).await;
    let quick = device_of(&ana, caller(&outside.url("/"))).await;
    for temp in 0..10 {
        slow.posts("reading", json!({"temp": temp})).await.created();
    }
    quick.posts("reading", json!({"temp": 9.1})).await.created();
    assert_eq!(stored(&ana, &quick, "answers", 1).await[0]["status"], 200);
    assert_eq!(stored(&ana, &slow, "answers", 0).await, [] as [Value; 0]);
}

// Holds: notification.type, c11.notification
async fn notification_of_a_design_reaches_its_users(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let (tess, max) = (ana.invites("tess", "technician").await, ana.invites("max", "manager").await);
    let message = "{{ device.name }} is at {{ payload.temp }} °C";
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tell", "notify")]}},
        "tell": {"type": "notification", "properties": {"message": message, "minimumRole": "manager"}},
    });
    let device = device_of(&ana, design).await;
    device.posts("reading", json!({"temp": 9.1})).await.created();
    let heard = async |person: &Person<'_>| {
        let found = person.get("/v2/notifications").await.ok()["data"].clone();
        (found != json!([])).then_some(found)
    };
    for person in [&ana, &max] {
        let heard = settled("a notification", async || heard(person).await).await;
        assert_eq!(heard.as_array().unwrap().len(), 1);
        assert_eq!(heard[0]["type"], "deviceNotification");
        assert_eq!(heard[0]["translations"]["en"]["message"], "fridge is at 9.1 °C");
    }
    assert_eq!(tess.get("/v2/notifications").await.ok()["data"], json!([]));
    assert_eq!(app.stranger("bob").await.get("/v2/notifications").await.ok()["data"], json!([]));
}

async fn code_that_loops_is_an_error_of_its_event(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let code = "function decodeUplink(input) { while (input.fPort === 1) {} return {data: {port: input.fPort}}; }";
    let design = json!({
        "up": {"type": "deviceEvent", "triggers": {"eventReceived": [to("decode", "evaluate")]}},
        "decode": {"type": "function", "properties": {"code": code}, "triggers": {"result": [to("values", "store")]}},
        "values": {"type": "storage"},
    });
    let project = ana.designs(design).await;
    let (loops, works) = (ana.creates_device_of(&project, "a").await, ana.creates_device_of(&project, "b").await);
    let plain = ana.creates_device("c").await;
    let up = |port: u8| json!({"fPort": port, "bytes": [1, 2]});
    let (first, second, decoded, read) = tokio::join!(
        loops.posts("up", up(1)),
        loops.posts("up", up(1)),
        works.posts("up", up(2)),
        plain.posts("reading", json!({"temp": 4})),
    );
    assert_eq!(stored(&ana, &works, "values", 1).await, [json!({"port": 2})]);
    for answer in [second, decoded, read] {
        answer.created();
    }
    let id = text(&first.created(), "id").to_owned();
    let event = ana.get(&loops.at(&format!("events/{id}"))).await.ok();
    assert_eq!(event["errors"][0]["element"], "decode");
    assert_eq!(ana.get(&loops.at("events")).await.list_of("/errors/0/element"), ["decode", "decode"]);
    assert_eq!(ana.get(&works.at("events")).await.list_of("/errors"), [Value::Null]);
}

// Holds: c11.outside
#[tokio::test]
async fn pending_call_survives_a_restart() {
    let (app, outside) = (TestApp::start().await, Outside::start().await);
    outside.will_answer(500, "");
    let (path, key) = {
        let ana = app.developer("ana").await.with_key().await;
        let device = device_of(&ana, caller(&outside.url("/"))).await;
        device.posts("reading", json!({"temp": 9.1})).await.created();
        outside.called(1).await;
        // The wait may be long, so the reader needs a key without an expiry.
        (device.at("data/answers"), ana.makes_api_key("reads").await)
    };
    let app = app.restart().await;
    outside.is_called_again(&app, 2, 10).await;
    let read = || app.send(app.request(reqwest::Method::GET, &path).header("api_auth_token", &key));
    becomes("the answer is stored", async || read().await.list_of("/payload/status") == [json!(200)]).await;
    app.end().await;
}
