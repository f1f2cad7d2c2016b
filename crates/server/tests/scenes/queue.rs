//! The cloud-event queue: oldest first, each event once.

use isobar_power::within_patience;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::designs::{fridge, to};
use crate::support::person::text;
use crate::support::{Device, NOBODY, TestApp};

async fn payloads(device: &Device<'_>, query: &str) -> Vec<Value> {
    let events = device.get(&format!("/v2/events/cloud?{query}")).await.ok();
    events.as_array().unwrap().iter().map(|event| event["payload"].clone()).collect()
}

// Holds: state.queue.read, GET /v2/events/cloud, GET /v2/events/cloud/next, rule.events.next.empty, channel.cloud,
// status.204, c7.fifo
#[tokio::test]
async fn the_oldest_event_comes_first_and_each_one_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.takes().await.no_content();
    assert_eq!(payloads(&device, "").await, [""; 0]);
    for number in 1..=5 {
        device.queues("alarm", json!({"n": number})).await;
    }
    assert_eq!(device.takes().await.ok(), json!({"n": 1}));
    assert_eq!(payloads(&device, "limit=2").await, [json!({"n": 2}), json!({"n": 3})]);
    assert_eq!(payloads(&device, "").await, [json!({"n": 4}), json!({"n": 5})]);
    device.takes().await.no_content();
    // History keeps the events that the queue has delivered.
    assert_eq!(ana.get(&device.at("events?deviceEvents=false")).await.ok()["meta"]["totalDocs"], 5);
}

// Holds: event.id, event.type, event.deviceId, event.elementName, event.receivedAt, state.queue.peek, c7.fifo
#[tokio::test]
async fn peeked_events_remain_queued() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let id = device.queues("alarm", json!("wake up")).await;
    for _ in 0..2 {
        let events = device.get("/v2/events/cloud?peek=true").await.ok();
        let expected = json!([{
            "id": id,
            "type": "cloudEvent",
            "deviceId": device.id,
            "elementName": "alarm",
            "payload": "wake up",
            "receivedAt": "2027-01-15T08:00:00.000Z",
        }]);
        assert_eq!(events, expected);
        assert_eq!(device.get("/v2/events/cloud/next?peek=true").await.ok(), "wake up");
    }
    // HEAD returns no event, and so takes none.
    for path in ["/v2/events/cloud", "/v2/events/cloud/next"] {
        assert_eq!(app.send(device.request(Method::HEAD, path)).await.is(200).text, "");
    }
    assert_eq!(device.takes().await.ok(), "wake up");
    device.get("/v2/events/cloud/next?peek=true").await.no_content();
}

// Holds: c7.page
#[tokio::test]
async fn queue_is_read_by_element_and_page_before_taking() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for (element, payload) in [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)] {
        device.queues(element, json!(payload)).await;
    }
    assert_eq!(payloads(&device, "elementName=b&peek=true").await, [2, 4]);
    assert_eq!(device.get("/v2/events/cloud/next?elementName=b").await.ok(), 2);
    device.get("/v2/events/cloud/next?elementName=unheard").await.no_content();
    assert_eq!(payloads(&device, "elementName=a&limit=1&page=2").await, [3]);
    assert_eq!(payloads(&device, "limit=2&page=9").await, [""; 0]);
    assert_eq!(payloads(&device, "").await, [1, 4, 5]);
}

// Holds: POST /v2/events/cloud, rule.events.deviceId, c7.send
#[tokio::test]
async fn user_reads_the_queue_of_a_device() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let device = ana.creates_device("fridge").await;
    let send = format!("{}&elementName=alarm", device.queue());
    tom.post(&send, json!([1, 2])).await.created();
    assert_eq!(tom.get(&format!("{}&peek=true", device.queue())).await.ok()[0]["payload"], json!([1, 2]));
    assert_eq!(device.takes().await.ok(), json!([1, 2]));
    assert_eq!(tom.post(&device.queue(), json!(1)).await.faults(), ["query.elementName"]);
    assert_eq!(tom.post(&send, json!(null)).await.faults(), ["body"]);
    assert_eq!(tom.post("/v2/events/cloud?elementName=a", json!(1)).await.faults(), ["query.deviceId"]);
    tom.post(&format!("/v2/events/cloud?elementName=a&deviceId={NOBODY}"), json!(1)).await.not_found();
    tom.get("/v2/events/cloud/next?deviceId=nonsense").await.not_found();
    device.takes().await.no_content();
}

// Holds: DELETE /v2/events/cloud/{id}, c7.remove
#[tokio::test]
async fn peek_and_delete_deliver_at_least_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (device, other) = (ana.creates_device("fridge").await, ana.creates_device("other").await);
    let (first, second) = (device.queues("alarm", json!(1)).await, device.queues("alarm", json!(2)).await);
    let delete =
        |device: &Device<'_>, id: &str| app.send(device.request(Method::DELETE, &format!("/v2/events/cloud/{id}")));
    delete(&other, &first).await.not_found();
    delete(&device, &second).await.no_content();
    delete(&device, &second).await.not_found();
    delete(&device, NOBODY).await.not_found();
    delete(&device, "nonsense").await.not_found();
    assert_eq!(payloads(&device, "").await, [1]);
    delete(&device, &first).await.not_found();
    ana.delete(&format!("/v2/events/cloud/{first}")).await.is(400);
}

// Holds: POST /v2/events/cloud, c7.send, c7.idempotency
#[tokio::test]
async fn repeated_key_has_no_second_effect() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (device, other) = (ana.creates_device("fridge").await, ana.creates_device("other").await);
    let first = device.posts_once("k1", "reading", json!(1)).await.created();
    assert_eq!(device.posts_once("k1", "reading", json!(2)).await.created(), first);
    assert_ne!(device.posts_once("k2", "reading", json!(3)).await.created(), first);
    assert_ne!(other.posts_once("k1", "reading", json!(4)).await.created(), first);
    assert_eq!(ana.get(&device.at("data/reading")).await.list_of("/payload"), [3, 1]);
    let queue = async |payload: i64| {
        let request = app.queueing(&device.id, "alarm").await.header("idempotency-key", "q1");
        app.send(with_json(request, &json!(payload))).await.created()
    };
    let queued = queue(1).await;
    assert_eq!(queue(2).await, queued);
    assert_eq!(payloads(&device, "").await, [1]);
    assert_eq!(queue(3).await, queued, "it was taken, and is not sent again");
    device.takes().await.no_content();
    // A key is the same in both directions, and for each caller in the device's name.
    let by_user = ana.request(Method::POST, &format!("{}&elementName=alarm", device.queue()));
    assert_eq!(app.send(with_json(by_user.header("idempotency-key", "k1"), &json!(4))).await.created(), first);
    device.takes().await.no_content();
    // A refused request does not use up its key.
    assert_eq!(device.posts_once("k3", "reading", json!(null)).await.faults(), ["body"]);
    device.posts_once("k3", "reading", json!(5)).await.created();
    app.wait_seconds(24 * 3600);
    assert_ne!(device.posts_once("k1", "reading", json!(6)).await.created(), first);
}

// Holds: c7.full
#[tokio::test]
async fn a_full_queue_drops_its_oldest() {
    let app = TestApp::with(|settings| settings.queue_max_events = 3).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for number in 1..=5 {
        device.queues("alarm", json!(number)).await;
    }
    assert_eq!(payloads(&device, "").await, [3, 4, 5]);
}

// Holds: c11.cloudEvent
#[tokio::test]
async fn an_event_of_a_design_expires() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("soon", "send"), to("ever", "send")]}},
            "soon": {"type": "cloudEvent", "properties": {"ttlMinutes": 5}},
            "ever": {"type": "cloudEvent"},
        }))
        .await;
    let device = ana.creates_device_of(&project, "fridge").await;
    device.posts("reading", json!(1)).await.created();
    app.wait_seconds(299);
    assert_eq!(payloads(&device, "peek=true").await.len(), 2);
    app.wait_seconds(1);
    let left = device.get("/v2/events/cloud").await.ok();
    assert_eq!((left.as_array().unwrap().len(), text(&left[0], "elementName")), (1, "ever"));
}

// Holds: c7.fifo
#[tokio::test]
async fn concurrent_readers_get_different_events() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for number in 0..40 {
        device.queues("alarm", json!(number)).await;
    }
    let readers = (0..50).map(async |number| match number % 2 {
        0 => match device.takes().await {
            answer if answer.status == 204 => Vec::new(),
            answer => vec![answer.ok()],
        },
        _ => payloads(&device, "limit=2").await,
    });
    let answers = futures::future::join_all(readers).await;
    let mut taken: Vec<i64> = answers.iter().flatten().map(|payload| payload.as_i64().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..40).collect::<Vec<_>>());
}

// Holds: c7.wait
#[tokio::test]
async fn long_poll_is_woken_by_an_event() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    for round in 0..8 {
        let waiting = async {
            let path = if round % 2 == 0 { "/v2/events/cloud/next?wait=60" } else { "/v2/events/cloud?wait=60" };
            within_patience("the end of the wait", device.get(path)).await
        };
        let calling = async {
            // A round trip lets the poll begin first; either order must work.
            device.get(&device.url()).await.ok();
            device.posts("reading", json!({"temp": 20 + round})).await.created();
        };
        let (answer, ()) = tokio::join!(waiting, calling);
        let body = answer.ok();
        let payload = if round % 2 == 0 { &body } else { &body[0]["payload"] };
        assert_eq!(payload["temp"], 20 + round);
    }
    device.takes().await.no_content();
    // An event sent through the API wakes the poll too; a peeked event remains queued.
    let waiting = device.get("/v2/events/cloud/next?wait=60&peek=true&elementName=note");
    let calling = async {
        device.queues("other", json!(1)).await;
        device.queues("note", json!(2)).await;
    };
    let (answer, ()) = tokio::join!(within_patience("the end of the wait", waiting), calling);
    assert_eq!(answer.ok(), 2);
    assert_eq!(payloads(&device, "").await, [1, 2]);
}

// Holds: c7.wait
#[tokio::test]
async fn long_poll_without_an_event_times_out() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.get("/v2/events/cloud/next?wait=1").await.no_content();
    assert_eq!(payloads(&device, "wait=0").await, [""; 0]);
    assert_eq!(device.get("/v2/events/cloud/next?wait=61").await.faults(), ["query.wait"]);
}

// Holds: c7.idempotency
#[tokio::test]
async fn concurrent_posts_with_one_key_make_one_event() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let answers = futures::future::join_all((0..20).map(|n| device.posts_once("k", "reading", json!(n)))).await;
    let ids: std::collections::HashSet<String> =
        answers.into_iter().map(|answer| answer.created().to_string()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(ana.get(&device.at("data/reading")).await.ok()["meta"]["totalDocs"], 1);
}
