//! Events in the order of their commits: Server-Sent Events.

use std::time::Duration;

use isobar_power::{becomes, within_patience};
use serde_json::json;

use crate::support::designs::{fridge, to};
use crate::support::person::text;
use crate::support::stream::Stream;
use crate::support::{NOBODY, TestApp};

// Holds: GET /v2/events/stream, c7.stream
#[tokio::test]
async fn stream_carries_events_in_both_directions() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let (device, other) =
        (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "other").await);
    device.posts("reading", json!({"temp": 1})).await.created();
    let mut stream = Stream::open(&ana, &format!("?deviceId={}", device.id), None).await;
    other.posts("reading", json!({"temp": 2})).await.created();
    let made = device.posts_text("reading", "{\"temp\":\r\n9}").await.created();
    let sent = stream.next().await;
    assert_eq!((sent.event.as_str(), sent.id.as_str()), ("deviceEvent", text(&made, "id")));
    assert_eq!(sent.data, ana.get(&device.at(&format!("events/{}", sent.id))).await.ok());
    let sent = stream.next().await;
    assert_eq!((sent.event.as_str(), &sent.data["payload"]["temp"]), ("cloudEvent", &json!(9)));
    let queued = device.queues("note", json!("by hand")).await;
    assert_eq!(stream.next().await.id, queued);
}

// Holds: GET /v2/events/stream
#[tokio::test]
async fn stream_events_match_the_document() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let fails = json!({
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [to("bad", "evaluate")]}},
        "bad": {"type": "transform", "properties": {"expression": "payload.missing + 1"}},
    });
    let device = ana.creates_device_of(&ana.designs(fails).await, "failing").await;
    let mut stream = Stream::open(&ana, "", None).await;
    // Each is checked against the document as it is read: any JSON, with and without errors.
    for payload in [json!({"a": [1, {"b": null}]}), json!("text"), json!(-1.5), json!(true), json!([])] {
        device.posts("in", payload.clone()).await.created();
        let sent = stream.next().await;
        assert_eq!((sent.event.as_str(), &sent.data["payload"]), ("deviceEvent", &payload));
        assert_eq!(sent.data["errors"][0]["element"], "bad");
    }
    device.queues("in", json!({"from": "the cloud"})).await;
    let sent = stream.next().await;
    assert_eq!((sent.event.as_str(), sent.data.get("errors")), ("cloudEvent", None));
}

// Holds: c7.stream
#[tokio::test]
async fn a_stream_resumes_after_the_event_it_had_last() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(text(&device.posts("reading", json!(number)).await.created(), "id").to_owned());
    }
    let mut stream = Stream::open(&ana, &format!("?deviceId={}", device.id), Some(&ids[1])).await;
    assert_eq!(stream.next().await.data["payload"], 2);
    assert_eq!(stream.next().await.data["payload"], 3);
    device.posts("reading", json!(4)).await.created();
    assert_eq!(stream.next().await.data["payload"], 4);
    let empty = ana.request(reqwest::Method::GET, "/v2/events/stream").header("last-event-id", "");
    let begun = empty.send().await.unwrap();
    assert_eq!((begun.status().as_u16(), &begun.headers()["x-accel-buffering"]), (200, &"no".parse().unwrap()));
    let bad = ana.request(reqwest::Method::GET, "/v2/events/stream").header("last-event-id", "nonsense");
    assert_eq!(app.send(bad).await.faults(), ["header.Last-Event-ID"]);
}

// Holds: c21.streams
#[tokio::test]
async fn stream_broken_before_its_first_event_misses_nothing() {
    let app = TestApp::start().await;
    let (ana, bob) = (app.developer("ana").await, app.developer("bob").await);
    let (device, foreign) = (ana.creates_device("fridge").await, bob.creates_device("foreign").await);
    foreign.posts("reading", json!(0)).await.created();
    for number in 0..3 {
        device.posts("reading", json!("before")).await.created();
        let query = if number == 0 { String::new() } else { format!("?deviceId={}", device.id) };
        let mut broken = Stream::open(&ana, &query, None).await;
        let place = broken.place().await;
        drop(broken);
        foreign.posts("reading", json!("foreign")).await.created();
        device.posts("reading", json!(number)).await.created();
        // The stream can break again before the event comes.
        let again = Stream::open(&ana, &query, Some(&place)).await.place().await;
        for place in [place, again] {
            let mut resumed = Stream::open(&ana, &query, Some(&place)).await;
            assert_eq!(resumed.next().await.data["payload"], number);
            device.posts("reading", json!("after")).await.created();
            assert_eq!(resumed.next().await.data["payload"], "after");
            device.posts("reading", json!("before")).await.created();
            assert_eq!(resumed.next().await.data["payload"], "before");
        }
    }
}

// Holds: c21.streams
#[tokio::test]
async fn place_of_a_quiet_stream_is_renewed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await.with_key().await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!("before")).await.created();
    let mut stream = Stream::open(&ana, "", None).await;
    let old = stream.place().await;
    app.wait_seconds(7 * 24 * 3600);
    let new = stream.place().await;
    app.wait_seconds(3600);
    device.posts("reading", json!(1)).await.created();
    assert_eq!(Stream::open(&ana, "", Some(&new)).await.next().await.data["payload"], 1);
    let mut forged = new.clone();
    forged.replace_range(20..21, if &new[20..21] == "A" { "B" } else { "A" });
    for (id, why) in
        [(old.as_str(), "too old"), (&forged, "no identifier of this server"), (&"A".repeat(4_000), "no identifier")]
    {
        let resumed = ana.request(reqwest::Method::GET, "/v2/events/stream").header("last-event-id", id);
        let answer = app.send(resumed).await;
        assert!(answer.text.contains(why), "{answer:?}");
        assert_eq!(answer.faults(), ["header.Last-Event-ID"]);
    }
}

#[tokio::test]
async fn stream_that_cannot_resume_is_refused_with_a_reason() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await.with_key().await;
    let device = ana.creates_device("fridge").await;
    let old = text(&device.posts("reading", json!(1)).await.created(), "id").to_owned();
    let resumes = async |id: &str| {
        let asked = app.send(ana.request(reqwest::Method::GET, "/v2/events/stream").header("last-event-id", id));
        // An answer that is not a refusal would not end.
        within_patience(&format!("the refusal of {id}"), asked).await
    };
    let recent = text(&device.posts("reading", json!(1)).await.created(), "id").to_owned();
    app.wait_seconds(7 * 24 * 3600);
    Stream::open(&ana, "", Some(&recent)).await;
    app.wait_seconds(1);
    let answer = resumes(&recent).await;
    assert!(answer.text.contains("a stream goes back to 2027-01-"), "{answer:?}");
    assert_eq!(answer.faults(), ["header.Last-Event-ID"]);
    app.wait_seconds(15_778_476);
    let new = text(&device.posts("reading", json!(2)).await.created(), "id").to_owned();
    // Later events are missing from history, or the identifier is unknown to this server or to its restored state.
    for (id, why) in [(old.as_str(), "older"), ("7fffffff-ffff-7fff-bfff-ffffffffffff", "newer")] {
        let answer = resumes(id).await;
        assert!(answer.text.contains(why), "{answer:?}");
        assert_eq!(answer.faults(), ["header.Last-Event-ID"]);
    }
    let mut stream = Stream::open(&ana, "", Some(&new)).await;
    device.posts("reading", json!(3)).await.created();
    assert_eq!(stream.next().await.data["payload"], 3);
}

// Holds: c7.stream
#[tokio::test]
async fn stream_of_an_organization_covers_its_subtree_alone() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.project().await.to_owned();
    let top = ana.creates_device("top").await;
    let below = ana.creates_device_as(json!({"name": "b", "projectUuid": project, "organizationId": north})).await;
    let foreign = bob.creates_device("foreign").await;
    let mut all = Stream::open(&ana, "", None).await;
    let mut northern = Stream::open(&ana, &format!("?organizationId={north}"), None).await;
    foreign.posts("reading", json!(0)).await.created();
    top.posts("reading", json!(1)).await.created();
    below.posts("reading", json!(2)).await.created();
    assert_eq!(all.next().await.data["payload"], 1);
    assert_eq!(all.next().await.data["payload"], 2);
    assert_eq!(northern.next().await.data["payload"], 2);
    for hidden in [format!("?deviceId={}", top.id), format!("?organizationId={north}"), format!("?deviceId={NOBODY}")] {
        bob.get(&format!("/v2/events/stream{hidden}")).await.not_found();
    }
    assert_eq!(
        bob.get("/v2/events/stream?deviceId=x&organizationId=y").await.faults(),
        ["query.deviceId", "query.organizationId"]
    );
}

#[tokio::test]
async fn stream_drops_a_device_that_moves_out_of_sight() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (north, south) = (ana.founds("North", &ana.organization).await, ana.founds("South", &ana.organization).await);
    let nora = ana.invites_into(&north, "nora", "manager").await;
    let project = ana.project().await.to_owned();
    let (stays, moves) = (nora.creates_device_of(&project, "s").await, nora.creates_device_of(&project, "m").await);
    let mut stream = Stream::open(&nora, "", None).await;
    moves.posts("reading", json!(1)).await.created();
    assert_eq!(stream.next().await.data["payload"], 1);
    let body = json!({"name": "m", "projectUuid": project, "organizationId": south});
    ana.put(&moves.url(), body).await.ok();
    moves.posts("reading", json!(2)).await.created();
    stays.posts("reading", json!(3)).await.created();
    assert_eq!(stream.next().await.data["payload"], 3);
}

/// Interval of comments on an idle stream.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

// Holds: c7.stream
#[tokio::test]
async fn a_quiet_stream_is_kept_open_by_comments() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let mut response = ana.request(reqwest::Method::GET, "/v2/events/stream").send().await.unwrap();
    assert!(response.chunk().await.unwrap().unwrap().starts_with(b"id: "));
    let time_goes_by = becomes("a comment", async || {
        app.clock.pass(COMMENT_EVERY);
        false
    });
    let comment = tokio::select! {
        comment = response.chunk() => comment.unwrap().unwrap(),
        () = time_goes_by => unreachable!(),
    };
    assert!(comment.starts_with(b":") && comment.ends_with(b"\n\n"), "{comment:?}");
}
