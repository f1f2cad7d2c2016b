//! Two nodes over one registry and one telemetry store: each sees what the other has changed.

use std::time::Duration;

use isobar_model::time::Clock;
use isobar_power::{becomes, settled};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::person::text;
use crate::support::postgres::Raw;
use crate::support::stream::Stream;
use crate::support::{Device, Person, TestApp};

// Holds: c17.seen
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

// Holds: c17.ends
#[tokio::test]
async fn stream_resumes_at_another_node_at_once() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device("d").await;
    let mut stream = Stream::open(&ana, "", None).await;
    let place = stream.place().await;
    for number in 0..5 {
        device.posts("reading", json!(number)).await.created();
        let last = stream.next().await.id;
        let mut from_begin = Stream::open(&ana.through(&second), "", Some(&place)).await;
        assert_eq!(from_begin.next().await.data["payload"], 0);
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

// Holds: c3.logout, c17.cached
#[tokio::test]
async fn rights_that_end_at_one_node_end_at_the_other() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.founder("ana", "administrator").await;
    let elsewhere = async |person: &Person<'_>, path: &str| person.through(&second).get(path).await.status;
    let me = "/v2/auth/user";

    let max = ana.invites("max", "manager").await;
    let users = format!("/v2/users/{}", max.id);
    let creates = async || max.through(&second).post("/v2/devices", json!({})).await.status;
    assert_eq!(creates().await, 400);
    ana.put(&users, json!({"role": "basicUser", "company": "Acme"})).await.ok();
    becomes("a lower role", async || creates().await == 403).await;
    ana.put(&users, json!({"role": "manager", "company": "Acme", "disabled": true})).await.ok();
    becomes("a disabled user", async || elsewhere(&max, me).await == 401).await;

    let other = ana.logged_in_again().await;
    assert_eq!(elsewhere(&other, me).await, 200);
    first.send(other.request(Method::POST, "/v2/auth/logout")).await.no_content();
    becomes("a revoked token", async || elsewhere(&other, me).await == 401).await;

    let other = ana.logged_in_again().await;
    assert_eq!(elsewhere(&other, me).await, 200);
    let mut password = json!({"role": "administrator", "company": "Acme", "currentPassword": ana.password});
    (password["password"], password["passwordConfirmation"]) = (json!("another one"), json!("another one"));
    ana.put(&format!("/v2/users/{}", ana.id), password).await.ok();
    becomes("an ended session", async || elsewhere(&other, me).await == 401).await;
    assert_eq!(elsewhere(&ana, me).await, 200);

    let keys = format!("/v2/users/{}/apiKeys", ana.id);
    let made = ana.post(&keys, json!({"name": "script"})).await.created();
    let by_key = async || {
        let request = second.request(Method::GET, me).header("api_auth_token", text(&made, "key"));
        second.send(request).await.status
    };
    assert_eq!(by_key().await, 200);
    ana.delete(&format!("{keys}/{}", text(&made, "id"))).await.no_content();
    becomes("a deleted key", async || by_key().await == 401).await;
    first.end().await;
    second.end().await;
}

// Holds: c17.seen
#[tokio::test]
async fn devices_that_change_at_one_node_change_at_the_other() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let project = ana.designs(json!({})).await;
    let device = ana.creates_device_of(&project, "d").await;
    let near = device.through(&second);
    near.posts("reading", json!(1)).await.created();

    ana.redesigns(&project, json!({"other": {"type": "deviceEvent"}})).await.ok();
    becomes("a new design", async || near.posts("reading", json!(2)).await.status == 400).await;
    ana.redesigns(&project, json!({})).await.ok();
    becomes("another one", async || near.posts("reading", json!(2)).await.status == 201).await;

    // A call that waits at one node for an event ends when the token does at the other.
    let waiting = Clock::System.timeout(Duration::from_secs(30), near.get("/v2/events/cloud/next?wait=60"));
    let rotated = async {
        second.get("/health/live").await;
        text(&ana.post(&device.at("token"), json!(null)).await.created(), "token").to_owned()
    };
    let (waited, token) = tokio::join!(waiting, rotated);
    waited.unwrap().unauthenticated();
    near.posts("reading", json!(3)).await.unauthenticated();
    let device = Device { token, ..device };
    let near = device.through(&second);
    near.posts("reading", json!(4)).await.created();

    let left = ana.founds("left", &ana.organization).await;
    let right = ana.founds("right", &ana.organization).await;
    let lena = ana.invites_into(&left, "lena", "manager").await;
    let path = device.url();
    let seen = async || lena.through(&second).get(&path).await.status;
    assert_eq!(seen().await, 404);
    let branch = ana.founds("branch", &left).await;
    let body = json!({"name": "d", "projectUuid": project, "organizationId": branch});
    ana.put(&path, body).await.ok();
    becomes("a device that moved", async || seen().await == 200).await;
    ana.changes(&branch, json!({"name": "branch", "parentId": right})).await.ok();
    becomes("an organization that moved", async || seen().await == 404).await;

    ana.delete(&path).await.no_content();
    becomes("a deleted device", async || near.posts("reading", json!(5)).await.status == 401).await;
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn limit_that_is_raised_at_one_node_is_raised_at_the_other() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let low = ana.founds("low", &ana.organization).await;
    let body = json!({"name": "d", "projectUuid": ana.project().await, "organizationId": low});
    let device = ana.creates_device_as(body).await;
    let near = device.through(&second);
    let stored = async || ana.get(&device.at("data/reading?limit=1000")).await.list_of("/id").len();
    near.posts("reading", json!("something to store")).await.created();
    let stores = async || {
        let before = stored().await;
        near.posts("reading", json!("something to store")).await.created();
        stored().await > before
    };
    ana.changes(&low, json!({"dataUsageMbLimit": 0.000_01})).await.ok();
    becomes("a limit", async || !stores().await).await;
    ana.changes(&low, json!({"dataUsageMbLimit": 0})).await.ok();
    becomes("no limit", stores).await;
    first.end().await;
    second.end().await;
}

// Holds: c17.away
#[tokio::test]
async fn node_that_cannot_read_changes_refuses_calls() {
    let (app, road) = TestApp::on_far_postgres(|settings| settings.hub.has_other_nodes = true).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("d").await;
    device.posts("reading", json!(1)).await.created();
    app.get("/health/ready").await.ok();
    road.closes();
    becomes("the caches are too old", async || device.posts("reading", json!(2)).await.status == 503).await;
    assert_eq!(ana.get("/v2/auth/user").await.status, 503);
    let unready = app.get("/health/ready").await.is(503).json();
    let fault = json!({"field": "changes", "message": "has not read for 2 s what other nodes have changed"});
    assert!(unready["errors"].as_array().unwrap().contains(&fault), "{unready}");
    // Another node disables the user; this one must not let her in again when it is back.
    let elsewhere = Raw::open(&road.address).await;
    elsewhere.run("UPDATE users SET disabled = 1 WHERE username = 'ana'").await.unwrap();
    road.opens();
    let answer = settled("an answer", async || {
        let status = ana.get("/v2/auth/user").await.status;
        (status != 503).then_some(status)
    });
    assert_eq!(answer.await, 401);
    elsewhere.close().await;
    becomes("changes are read again", async || device.posts("reading", json!(3)).await.status == 201).await;
    becomes("the node is ready", async || app.get("/health/ready").await.status == 200).await;
    app.end().await;
}
