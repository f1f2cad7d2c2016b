//! Runs of devices at two nodes over one registry and one telemetry store: each sees all that was done before it, and what
//! is to be done once is done once.

use std::time::Duration;

use futures::future::join_all;
use isobar_model::access;
use isobar_model::time::{Clock, Timestamp};
use isobar_power::{becomes, within_patience};
use isobar_store::telemetry::{Commit, Idempotency, OutboxChange};
use reqwest::Method;
use serde_json::{Value, json};

use crate::alarms::{raises, raising};
use crate::calls::{caller, stored};
use crate::support::designs::{to, to_with};
use crate::support::outside::Outside;
use crate::support::person::text;
use crate::support::stream::Stream;
use crate::support::{Device, Person, TestApp};

/// Time after the end of all scenes.
const LATE: Timestamp = Timestamp::from_millis(4_000_000_000_000);

/// Returns a design that counts events in a label, and stores each count.
pub fn counting() -> Value {
    let counts = "has(device.meta.n) ? device.meta.n + 1 : 1";
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("count", "evaluate")]}},
        "count": {
            "type": "transform",
            "properties": {"expression": counts},
            "triggers": {"result": [to_with("labels", "setValue", json!({"tag": "'n'", "value": "payload"})), to("counts", "store")]},
        },
        "labels": {"type": "deviceMeta"},
        "counts": {"type": "storage"},
    })
}

pub async fn label(ana: &Person<'_>, device: &Device<'_>, name: &str) -> Value {
    ana.get(&device.url()).await.ok()["meta"][name].clone()
}

pub async fn patches(ana: &Person<'_>, device: &Device<'_>, body: &Value) {
    let request = ana.request(Method::PATCH, &device.at("meta")).header("content-type", "application/merge-patch+json");
    ana.app.send(request.body(body.to_string())).await.ok();
}

async fn end(nodes: (TestApp, TestApp)) {
    nodes.0.end().await;
    nodes.1.end().await;
}

// Holds: c17.seen
#[tokio::test]
async fn run_sees_the_setting_that_another_node_has_put() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let limited = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("seen", "evaluate")]}},
        "seen": {"type": "transform", "properties": {"expression": "settings.limit"}, "triggers": {"result": [to("limits", "store")]}},
        "limits": {"type": "storage"},
        "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 0}},
    });
    let device = ana.creates_device_of(&ana.designs(limited).await, "d").await;
    for value in 1..=12 {
        let (here, there) = if value % 2 == 0 { (&first, &second) } else { (&second, &first) };
        // Records of two nodes are in order as far as their clocks tell times apart.
        first.wait_seconds(1);
        ana.through(here).put(&device.at("settings/limit"), json!(value)).await.ok();
        device.through(there).posts("reading", json!(0)).await.created();
        let shown = ana.through(there).get(&device.at("settings/limit")).await.ok();
        assert_eq!(shown["value"], value);
    }
    let replaced = ana.through(&second).get(&device.at("settings/history?limit=100")).await.list_of("/value");
    assert_eq!(replaced, (1..12).rev().map(Value::from).collect::<Vec<_>>());
    let seen = ana.get(&device.at("data/limits?limit=100")).await.list_of("/payload");
    assert_eq!(seen, (1..=12).rev().map(Value::from).collect::<Vec<_>>());
    drop(ana);
    end((first, second)).await;
}

// Holds: c17.seen
#[tokio::test]
async fn runs_at_two_nodes_see_each_others_labels() {
    const EVENTS: usize = 24;
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(counting()).await, "d").await;
    let node = |number: usize| if number.is_multiple_of(2) { &first } else { &second };
    for number in 0..EVENTS {
        device.through(node(number)).posts("reading", json!(number)).await.created();
        // The other node shows what this one has answered.
        assert_eq!(label(&ana.through(node(number + 1)), &device, "n").await, number + 1);
    }
    let posts =
        (0..EVENTS).map(async |number| device.through(node(number)).posts("reading", json!(number)).await.created());
    join_all(posts).await;
    let all: Vec<Value> = (1..=2 * EVENTS).rev().map(Value::from).collect();
    for node in [&first, &second] {
        assert_eq!(ana.through(node).get(&device.at("data/counts?limit=100")).await.list_of("/payload"), all);
        assert_eq!(label(&ana.through(node), &device, "n").await, 2 * EVENTS);
    }
    drop(ana);
    end((first, second)).await;
}

#[tokio::test]
async fn labels_of_people_are_kept_beside_runs_at_another_node() {
    const CHANGES: usize = 12;
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(counting()).await, "d").await;
    let people = async {
        for number in 0..CHANGES {
            let ana = ana.through(if number % 3 == 0 { &first } else { &second });
            patches(&ana, &device, &json!({"by": number})).await;
            assert_eq!(label(&ana.through(&first), &device, "by").await, number);
        }
    };
    let events = async {
        for number in 0..2 * CHANGES {
            device.through(&first).posts("reading", json!(number)).await.created();
        }
    };
    futures::join!(people, events);
    for node in [&first, &second] {
        let ana = ana.through(node);
        assert_eq!(
            (label(&ana, &device, "n").await, label(&ana, &device, "by").await),
            (json!(2 * CHANGES), json!(CHANGES - 1))
        );
    }
    // A count that a person sets is the one from which the other node's next run goes on.
    patches(&ana.through(&second), &device, &json!({"n": 1_000})).await;
    device.posts("reading", json!(0)).await.created();
    assert_eq!(label(&ana.through(&second), &device, "n").await, 1_001);
    drop(ana);
    end((first, second)).await;
}

#[tokio::test]
async fn person_who_leaves_amid_a_change_keeps_no_run_waiting() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(counting()).await, "d").await;
    for number in 0..24 {
        let leaves = Duration::from_millis(number);
        // Dropped, the call closes its connection, wherever the change is by then.
        let _ = Clock::System.timeout(leaves, patches(&ana, &device, &json!({"by": number}))).await;
        device.through(&second).posts("reading", json!(number)).await.created();
    }
    drop(ana);
    end((first, second)).await;
}

#[tokio::test]
async fn alarm_acknowledged_at_two_nodes_runs_its_design_once() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    for key in ["a", "b", "c"] {
        // The newest one is listed first.
        first.wait_seconds(1);
        let alarm = raises(&ana, &device, "warm", key).await;
        let url = format!("/v2/alarms/{}", text(&alarm, "id"));
        let acknowledges = (0..6).map(async |number| {
            let ana = ana.through(if number % 2 == 0 { &first } else { &second });
            assert_eq!(ana.put(&url, json!({"acknowledged": true})).await.ok()["acknowledged"], true);
        });
        join_all(acknowledges).await;
    }
    assert_eq!(ana.get(&device.at("data/acknowledged")).await.ok()["meta"]["totalDocs"], 3);
    drop(ana);
    end((first, second)).await;
}

#[tokio::test]
async fn device_deleted_at_one_node_takes_no_event_at_another() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    for number in 0..4 {
        let device = ana.creates_device_of(&ana.designs(counting()).await, "d").await;
        for _ in 0..number {
            device.through(&second).posts("reading", json!(1)).await.created();
        }
        // The other node knows the device.
        device.through(&second).get(&device.url()).await.ok();
        ana.delete(&device.url()).await.no_content();
        let late = device.through(&second).posts("reading", json!(2)).await;
        assert!([400, 401, 404].contains(&late.status.as_u16()), "{late:?}");
    }
    drop(ana);
    end((first, second)).await;
}

#[tokio::test]
async fn intervals_elapse_once_at_two_nodes() {
    const DEVICES: usize = 6;
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await.with_key().await;
    let ticking = json!({
        "tick": {"type": "interval", "properties": {"minutes": 1}, "triggers": {"elapsed": [to("ticks", "store")]}},
        "ticks": {"type": "storage"},
    });
    let project = ana.designs(ticking).await;
    let mut devices = Vec::new();
    for number in 0..DEVICES {
        devices.push(ana.creates_device_of(&project, &format!("d{number}")).await);
    }
    for round in 1..=4 {
        first.wait_seconds(60);
        for device in &devices {
            assert_eq!(stored(&ana, device, "ticks", round).await.len(), round);
        }
    }
    drop((devices, ana));
    end((first, second)).await;
}

#[tokio::test]
async fn call_and_its_answer_are_made_once_at_two_nodes() {
    const CALLS: usize = 12;
    let (first, second) = TestApp::two_nodes().await;
    let (ana, outside) = (first.developer("ana").await, Outside::start().await);
    let device = ana.creates_device_of(&ana.designs(caller(&outside.url("/in"))).await, "d").await;
    for number in 0..CALLS {
        outside.will_answer(200, "{}");
        let node = if number % 2 == 0 { &first } else { &second };
        device.through(node).posts("reading", json!({"temp": number})).await.created();
    }
    assert_eq!(stored(&ana, &device, "answers", CALLS).await.len(), CALLS);
    let mut calls: Vec<u64> =
        outside.called(CALLS).await.iter().map(|call| call.json()["temp"].as_u64().unwrap()).collect();
    calls.sort_unstable();
    assert_eq!(calls, (0..CALLS as u64).collect::<Vec<_>>());
    drop(ana);
    end((first, second)).await;
}

// Holds: c17.any
#[tokio::test]
async fn work_that_a_node_leaves_is_done_by_another() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(counting()).await, "d").await;
    device.posts("reading", json!(0)).await.created();
    device.through(&second).posts("reading", json!(1)).await.created();
    // A third node commits a run, and is gone before the registry has its label.
    let third = first.opens_telemetry_elsewhere().await;
    let (known, _) = first.registry().device_placement(device.id.parse().unwrap()).await.unwrap().unwrap();
    let work = json!({"device": device.id, "meta": [["n", "7"]]}).to_string();
    let outbox = vec![OutboxChange::Put { number: third.outbox_number(), work: work.into() }];
    let commit = || Commit { outbox: outbox.clone(), ..Commit::default() };
    let pass = access::system(known, "a scene leaves work");
    third.run(&pass, None, Timestamp::default(), &mut |_| commit()).await.unwrap();
    third.close().await.unwrap();
    // The next run at any node sees it.
    device.through(&second).posts("reading", json!(2)).await.created();
    assert_eq!(label(&ana, &device, "n").await, 8);
    device.posts("reading", json!(3)).await.created();
    assert_eq!(label(&ana.through(&second), &device, "n").await, 9);
    drop(ana);
    end((first, second)).await;
}

#[tokio::test]
async fn work_that_was_taken_over_is_not_seen_by_later_runs() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let project = ana.designs(counting()).await;
    let (other, device) = (ana.creates_device_of(&project, "o").await, ana.creates_device_of(&project, "d").await);
    // The first node's writer waits for the registry with work of another device, and knows nothing of what follows.
    let [held, registry] = first.holds_device(&other.id).await;
    let telemetry = first.telemetry_of(&device.id).await;
    // The meter of events may wait for the same row, and is not meant.
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
         AND query LIKE 'SELECT id, key FROM devices %'";
    let later = async {
        becomes("the writer waits", async || registry.number(waits).await == 1).await;
        device.posts("reading", json!(0)).await.created();
    };
    let (there, user) = (device.through(&second), ana.through(&second));
    let counts = async || user.get(&device.at("data/counts?limit=100")).await.list_of("/payload");
    let counted = async |most: u64| {
        becomes("all runs have stored a count", async || counts().await.len() as u64 == most).await;
        assert_eq!(counts().await, (1..=most).rev().map(Value::from).collect::<Vec<_>>());
    };
    let meanwhile = async {
        counted(1).await;
        // It looks as if the first node were gone: the second takes the work over, and the registry has it.
        let leave = "UPDATE telemetry.outbox SET owner = 0 WHERE device = (SELECT max(device) FROM telemetry.outbox)";
        telemetry.run(leave).await.unwrap();
        there.posts("reading", json!(1)).await.created();
        there.posts("reading", json!(2)).await.created();
        counted(3).await;
    };
    let last = async {
        meanwhile.await;
        tokio::join!(device.posts("reading", json!(3)), async {
            counted(4).await;
            drop(held);
        })
    };
    let (_, (), (fourth, ())) = tokio::join!(other.posts("reading", json!(0)), later, last);
    fourth.created();
    for node in [&first, &second] {
        assert_eq!(label(&ana.through(node), &device, "n").await, 4);
    }
    drop((device, other, there, user, ana));
    end((first, second)).await;
}

#[tokio::test]
async fn repeated_event_is_answered_when_all_nodes_show_what_it_did() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(counting()).await, "d").await;
    let (known, _) = first.registry().device_placement(device.id.parse().unwrap()).await.unwrap().unwrap();
    for number in 1..=4 {
        let answer = text(&device.posts("reading", json!(0)).await.created(), "id").to_owned();
        // Another node commits a run of an event, and is gone before the registry has its label.
        let third = first.opens_telemetry_elsewhere().await;
        let work = json!({"device": device.id, "meta": [["n", format!("{}", 100 * number)]]}).to_string();
        let outbox = vec![OutboxChange::Put { number: third.outbox_number(), work: work.into() }];
        let key = format!("event-{number}");
        let idempotency = Idempotency { key: key.clone(), answer: answer.parse().unwrap(), expires_at: LATE };
        let commit = || Commit { outbox: outbox.clone(), idempotency: Some(idempotency.clone()), ..Commit::default() };
        let pass = access::system(known, "a scene leaves work");
        third.run(&pass, None, Timestamp::default(), &mut |_| commit()).await.unwrap();
        third.close().await.unwrap();
        // The device sends it again.
        let repeated = device.through(&second).posts_once(&key, "reading", json!(0)).await.created();
        assert_eq!(text(&repeated, "id"), answer);
        for node in [&first, &second] {
            assert_eq!(label(&ana.through(node), &device, "n").await, 100 * number);
        }
    }
    drop((device, ana));
    end((first, second)).await;
}

// Holds: c17.seen
#[tokio::test]
async fn waiting_device_gets_what_another_node_queues_for_it() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device("d").await;
    for number in 0..3 {
        let there = device.through(&second);
        let waits = there.get("/v2/events/cloud/next?wait=60");
        let queued = device.queues("out", json!(number));
        let (got, _) = within_patience("the event", async { futures::join!(waits, queued) }).await;
        assert_eq!(got.ok(), json!(number));
    }
    drop((device, ana));
    end((first, second)).await;
}

#[tokio::test]
async fn stream_carries_alarms_that_another_node_raises() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    let mut streams = [Stream::open(&ana, "", None).await, Stream::open(&ana.through(&second), "", None).await];
    device.posts("warm", json!({"key": "a", "value": 9.5})).await.created();
    for stream in &mut streams {
        assert_eq!(alarm_in_state(stream, "active").await["key"], "a");
    }
    device.through(&second).posts("warmEnds", json!({"key": "a"})).await.created();
    for stream in &mut streams {
        assert_eq!(alarm_in_state(stream, "cleared").await["key"], "a");
    }
    drop((streams, device, ana));
    end((first, second)).await;
}

/// Returns the next alarm of a stream in this state, whatever comes before it.
async fn alarm_in_state(stream: &mut Stream, state: &str) -> Value {
    loop {
        let sent = stream.next().await;
        if sent.event == "alarm" && sent.data["state"] == state {
            return sent.data;
        }
    }
}
