//! Two nodes over one registry and one telemetry store: each sees what the other has changed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::designs::to;
use crate::support::stream::Stream;

#[tokio::test]
async fn events_at_two_nodes_are_one_history() {
    const EVENTS: u64 = 10;
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tally", "push")]}},
            "tally": {"type": "window", "properties": {"size": 4096, "aggregate": "count"}, "triggers": {"result": [to("counts", "store")]}},
            "counts": {"type": "storage"},
        }))
        .await;
    let device = ana.creates_device_of(&project, "d").await;
    for number in 0..EVENTS {
        let node = if number % 2 == 0 { &first } else { &second };
        device.through(node).posts("reading", json!(number)).await.created();
    }
    let counts: Vec<Value> = (1..=EVENTS).rev().map(Value::from).collect();
    for node in [&first, &second] {
        let ana = ana.through(node);
        assert_eq!(ana.get(&device.at("data/counts?limit=100")).await.list_of("/payload"), counts);
    }
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn stream_resumes_at_another_node_at_once() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device("d").await;
    let mut stream = Stream::open(&ana, "", None).await;
    for number in 0..5 {
        device.posts("reading", json!(number)).await.created();
        let last = stream.next().await.id;
        let mut resumed = Stream::open(&ana.through(&second), "", Some(&last)).await;
        device.posts("reading", json!("later")).await.created();
        assert_eq!(resumed.next().await.data["payload"], "later");
        assert_eq!(stream.next().await.data["payload"], "later");
    }
    // An event that no node has is refused all the same.
    let future = "ffffffff-ffff-7fff-bfff-ffffffffffff";
    let request = ana.through(&second).request(Method::GET, "/v2/events/stream").header("last-event-id", future);
    second.send(request).await.is(400);
    drop(stream);
    first.end().await;
    second.end().await;
}
