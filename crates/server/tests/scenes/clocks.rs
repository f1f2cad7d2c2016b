//! Clocks that are wrong leave nothing behind.

use serde_json::json;

use crate::support::TestApp;
use crate::support::designs::to;

const DAY: i64 = 86_400;

#[tokio::test]
async fn node_with_a_wrong_clock_refuses_and_harms_nobody() {
    let (first, second) = TestApp::two_nodes().await;
    let node = first.another_node_with_a_clock().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device("d").await;
    let there = device.through(&node);
    let path = device.at("data/reading?limit=1");
    let time = async || ana.get(&path).await.list_of("/createdAt").remove(0);
    let now = json!(first.clock.now());
    there.posts("reading", json!(1)).await.created();
    for seconds in [1, 3_600, -3_600] {
        node.clock.jump_seconds(seconds);
        there.posts("reading", json!(2)).await.is(503);
        there.takes().await.is(503);
        ana.through(&node).get(&path).await.is(503);
        node.get("/v2/about").await.is(503);
        let unready = node.get("/health/ready").await.is(503).json().to_string();
        assert!(unready.contains(&format!("the clock differs by {} ms", seconds * 1_000)), "{unready}");
        node.clock.jump_seconds(-seconds);
        for device in [&device, &there] {
            device.posts("reading", json!(3)).await.created();
            assert_eq!(time().await, now);
        }
    }
    first.end().await;
    second.end().await;
    node.end().await;
}

#[tokio::test]
async fn clock_that_jumps_ahead_for_a_while_spoils_nothing() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("log", "store"), to("command", "send")]}},
            "log": {"type": "storage"},
            "command": {"type": "cloudEvent", "properties": {"ttlMinutes": 60}},
        }))
        .await;
    let device = ana.creates_device_of(&project, "d").await;
    let time = async || ana.get(&device.at("data/log?limit=1")).await.list_of("/createdAt").remove(0);
    let now = json!(app.clock.now());
    app.clock.jump_seconds(30 * DAY);
    device.posts("reading", json!(1)).await.created();
    assert_eq!(time().await, now);
    // Nothing has expired: neither the session nor the command.
    ana.get("/v2/auth/user").await.ok();
    let warned = app.get("/health/ready").await.ok();
    assert_eq!(warned["warnings"][0]["name"], "clock");
    app.clock.jump_seconds(-30 * DAY);
    device.posts("reading", json!(2)).await.created();
    assert_eq!(time().await, now);
    assert!(app.get("/health/ready").await.ok().get("warnings").is_none());
    for payload in [1, 2] {
        assert_eq!(device.takes().await.ok(), payload);
    }
    app.end().await;
}
