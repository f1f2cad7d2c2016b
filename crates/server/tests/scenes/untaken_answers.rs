//! Answers that clients do not read: their memory is charged to the caller, whatever they are, and others are served.

use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::socket::Socket;
use crate::support::{Device, Person, TestApp};
use crate::webhook::{Sender, messages};

/// Bytes of an event: a tenant has memory for one of these in these scenes, but not for two.
const LARGE: usize = 950_000;

async fn with_room(bytes: usize) -> TestApp {
    TestApp::with(|settings| settings.http.response_memory_bytes_max = bytes).await
}

/// Sends a request, reads the beginning of its answer, and nothing more.
async fn asks_and_takes_nothing(app: &TestApp, who: &str, path: &str) -> Socket {
    let mut socket = Socket::with_little_room(app).await;
    socket.sends(format!("GET {path} HTTP/1.1\r\nhost: isobar\r\n{who}\r\n\r\n"));
    socket.hears_until("\r\n\r\n");
    socket
}

async fn posts_large(device: &Device<'_>) -> String {
    let made = device.posts("log", json!("x".repeat(LARGE))).await.created();
    device.at(&format!("events/{}", text(&made, "id")))
}

fn of(person: &Person<'_>) -> String {
    format!("authorization: Bearer {}", person.jwt)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answer_of_any_kind_is_charged() {
    let app = with_room(3 * LARGE - 10_000).await;
    let (ana, bob) = (app.developer("ana").await, app.developer("bob").await);
    let (fridge, oven) = (ana.creates_device("fridge").await, bob.creates_device("oven").await);
    let (event, theirs) = (posts_large(&fridge).await, posts_large(&oven).await);
    fridge.queues("alarm", json!("y".repeat(LARGE))).await;
    let slow = asks_and_takes_nothing(&app, &of(&ana), &event).await;
    let peek = format!("/v2/events/cloud?peek=true&deviceId={}", fridge.id);
    for path in [&*event, &peek] {
        let refused = ana.get(path).await.is(503);
        assert!(
            refused.text.contains("have not taken yet") && refused.text.contains("nothing was done"),
            "{refused:?}"
        );
        assert_eq!(refused.header("retry-after"), "1");
    }
    // The same holds with the device's own token; and events without memory for them stay in the queue.
    for path in ["/v2/events/cloud", "/v2/events/cloud/next"] {
        let refused = fridge.get(path).await.is(503);
        assert!(refused.text.contains("have not taken yet"), "{refused:?}");
    }
    // Small answers have memory, and so do other tenants.
    fridge.posts("log", json!(1)).await.created();
    ana.get(&fridge.url()).await.ok();
    assert_eq!(bob.get(&theirs).await.ok()["payload"].as_str().unwrap().len(), LARGE);
    // The memory of an abandoned answer is released.
    drop(slow);
    while ana.get(&event).await.status == 503 {}
    let taken = fridge.get("/v2/events/cloud").await.ok();
    assert_eq!(taken[0]["payload"].as_str().unwrap().len(), LARGE);
    assert_eq!(ana.get(&peek).await.ok(), json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completed_call_without_response_memory_says_it_is_done() {
    let app = with_room(3 * LARGE - 10_000).await;
    let ana = app.developer("ana").await;
    let fridge = ana.creates_device("fridge").await;
    let event = posts_large(&fridge).await;
    let slow = asks_and_takes_nothing(&app, &of(&ana), &event).await;
    let path = format!("/v2/projects/{}/specification", ana.project().await);
    let design = json!({"name": "large", "meta": {"text": "d".repeat(LARGE)}, "planes": {"cloud": {"elements": {}}}});
    let refused = ana.put(&path, design).await.is(503);
    assert!(refused.text.contains("what was asked for is done"), "{refused:?}");
    drop(slow);
    while ana.get(&path).await.status == 503 {}
    assert_eq!(ana.get(&path).await.ok()["name"], "large");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_values_are_streamed_without_memory_of_their_size() {
    const ELEMENTS: usize = 16;
    let app = with_room(900_000).await;
    let ana = app.developer("ana").await;
    let fridge = ana.creates_device("fridge").await;
    let value = json!({"text": "x".repeat(200_000)});
    for number in 0..ELEMENTS {
        fridge.posts(&format!("store{number:02}"), value.clone()).await.created();
    }
    let is_whole = |device: &Value| {
        let last = device["lastValues"].as_array().unwrap();
        let are_all = last.iter().enumerate().all(|(number, last)| {
            last["elementName"] == format!("store{number:02}")
                && last["deviceId"] == fridge.id
                && last["values"] == value
        });
        assert!(last.len() == ELEMENTS && are_all && device["imageUrl"].is_string());
    };
    let path = format!("{}?lastValues=all", fridge.url());
    is_whole(&fridge.get(&path).await.ok());
    let listed = ana.get("/v2/devices?lastValues=all").await.ok();
    is_whole(&listed["data"][0]);
    let change = json!({"name": "\"lastValues\":[", "projectUuid": ana.project().await});
    is_whole(&ana.put(&path, change).await.ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_webhook_answer_needs_no_memory_of_its_size() {
    const ELEMENTS: usize = 60;
    let app = with_room(30 << 20).await;
    let ana = Sender::of(app.developer("ana").await).await;
    let takes = json!({"type": "deviceEvent", "properties": {"integration": "custom"}});
    let elements = (0..ELEMENTS).map(|number| (format!("in{number}"), takes.clone()));
    let project = ana.person.designs(Value::Object(elements.collect())).await;
    let parameters = [("deviceTag", "eui"), ("deviceTagValue", "a"), ("projectUuid", &*project), ("debug", "true")];
    let body = json!({"text": "x".repeat(400_000)});
    let answer = ana.delivers(&parameters, body.clone()).await.ok();
    let debug = &answer["debug"];
    assert_eq!(messages(debug), [""; 0]);
    assert!(
        debug["extractedTasks"]["requestBody"] == body && debug["extractedTasks"]["tasks"][0]["payloads"][0] == body
    );
    let events = debug["taskExecutions"]["processed"][0]["eventsProcessed"].as_array().unwrap();
    assert!(events.len() == ELEMENTS && events.iter().all(|event| event["payload"] == body));
}
