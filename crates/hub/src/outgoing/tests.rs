//! Calls, and what holds them up.

use std::sync::atomic::Ordering;

use super::*;
use crate::stage::{Stage, counting_server, until};

fn answer(status: u16, body: &str) -> CallAnswer {
    let headers = [("a", "1"), ("b", "\"2\""), ("a", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    CallAnswer { status, headers: headers.to_vec(), body: body.to_owned().into() }
}

#[test]
fn a_response_is_told_with_its_body_as_json_or_as_text() {
    let told = |body: &str| response_of(&answer(201, body)).text().to_owned();
    let head = r#"{"status":201,"headers":{"a":"1, 3","b":"\"2\""},"body":"#;
    assert_eq!(told(r#"{"x": 1.50}"#), format!(r#"{head}{{"x": 1.50}}}}"#));
    assert_eq!(told("no \"json\""), format!(r#"{head}"no \"json\""}}"#));
    assert_eq!(told(""), format!(r#"{head}""}}"#));
    let deep = "[".repeat(64) + &"]".repeat(64);
    assert!(RawJson::check(deep.clone().into()).is_ok());
    assert_eq!(told(&deep), format!(r#"{head}"{deep}"}}"#));
}

#[test]
fn what_may_pass_is_tried_again_and_the_rest_is_told() {
    let failed = || Err(CallError::Failed("no connection".to_owned()));
    for status in [429, 500, 503] {
        assert!(ended(Ok(answer(status, "")), 0).is_none());
        let told = format!(r#"{{"message":"the answer was {status}","status":{status}}}"#);
        assert_eq!(ended(Ok(answer(status, "")), RETRIES_MAX).unwrap().1.text(), told);
    }
    for status in [200, 302, 404] {
        assert!(ended(Ok(answer(status, "")), 0).unwrap().0);
    }
    assert!(ended(failed(), RETRIES_MAX - 1).is_none());
    assert_eq!(ended(failed(), RETRIES_MAX).unwrap().1.text(), r#"{"message":"no connection"}"#);
    assert!(!ended(Err(CallError::Refused("no".to_owned())), 0).unwrap().0);
}

#[tokio::test]
async fn nobody_has_all_places_and_who_ends_gives_a_place_back() {
    let lane = |tenant: u128, host: u32| {
        lane_of(Some(OrganizationId(uuid::Uuid::from_u128(tenant))), &format!("http://host{host}/"))
    };
    let mut under_way = UnderWay::default();
    let fills = |under_way: &mut UnderWay, tenant: u128| {
        let before = under_way.ids.len();
        for number in 0.. {
            let lane = lane(tenant, number);
            if under_way.is_full_of(tenant_of(&lane)) {
                break;
            }
            under_way.begin(format!("{lane}:{number}"), lane, std::future::ready(()));
        }
        under_way.ids.len() - before
    };
    let counts: Vec<usize> = (1..6).map(|tenant| fills(&mut under_way, tenant)).collect();
    assert_eq!(counts, [85, 28, 10, 3, 1]);
    assert_eq!(under_way.of_lane(&lane(1, 7)), 1);
    for _ in 0..127 {
        under_way.end_one().await;
    }
    assert!(under_way.ids.is_empty() && under_way.lanes.is_empty() && under_way.tenants.is_empty());
    assert!(futures::poll!(std::pin::pin!(under_way.end_one())).is_pending());
}

#[tokio::test]
async fn a_host_that_never_answers_holds_up_nobody_elses_calls() {
    let (stage, (port, _)) = (Stage::set().await, counting_server().await);
    // Who connects there waits.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hostile = stage.device(&asking(silent.local_addr().unwrap().port())).await;
    let mut hostiles = vec![hostile.clone()];
    for _ in 0..5 {
        hostiles.push(stage.another(&format!(r#"{{"name":"d","projectUuid":"{}"}}"#, hostile.project)).await);
    }
    for device in &hostiles {
        for _ in 0..WAITING_MAX {
            stage.posts(device, "1").await;
        }
    }
    let good = stage.device_of_another_tenant(&asking(port)).await;
    stage.posts(&good, "1").await;
    stage.hub.employ_all();
    until("it is answered", async || stage.stored(&good, "answers").await.is_some()).await;
    stage.over().await;
}

#[test]
fn pauses_grow_and_differ() {
    let pause = |attempts, chance| retry_at(Timestamp::from_millis(0), attempts, chance).millis();
    assert_eq!((pause(0, 0), pause(0, 128), pause(1, 128), pause(4, 128)), (750, 1_000, 4_000, 256_000));
    assert!(pause(0, 255) < 1_250);
}

/// A design that calls a server with every reading, and keeps what it answers.
fn asking(port: u16) -> String {
    let to = |element: &str, ability: &str| format!(r#"[{{"element":"{element}","ability":"{ability}"}}]"#);
    format!(
        r#"{{"reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": {}}}}},
            "ask": {{"type": "http", "properties": {{"method": "GET", "url": "http://127.0.0.1:{port}/"}},
                     "triggers": {{"response": {}}}}},
            "answers": {{"type": "storage"}}}}"#,
        to("ask", "request"),
        to("answers", "store"),
    )
}

#[tokio::test]
async fn an_answer_that_finds_no_way_is_kept_and_handed_over_later() {
    let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
    let device = stage.device(&asking(port)).await;
    stage.hub.0.supervisor.faults.panic_at("call_answer", 3);
    stage.posts(&device, "1").await;
    stage.hub.employ_all();
    for left in [2, 1, 0] {
        until("it was tried", async || stage.hub.0.supervisor.faults.left_at("call_answer") == left).await;
        until("it is put off", async || stage.is_put_off(KIND).await).await;
        assert_eq!(stage.stored(&device, "answers").await, None);
        stage.clock.advance_seconds(60);
    }
    until("it is handed over", async || stage.stored(&device, "answers").await.is_some()).await;
    until("nothing waits", async || stage.waiting(KIND).await == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // What never finds its way is given up, and the server was called once for it.
    stage.hub.0.supervisor.faults.panic_at("call_answer", u32::MAX);
    stage.posts(&device, "2").await;
    until("it is given up", async || {
        stage.clock.advance_seconds(3600);
        calls.load(Ordering::SeqCst) == 2 && stage.waiting(KIND).await == 0
    })
    .await;
    stage.over().await;
}

#[tokio::test]
async fn nobody_is_called_again_because_the_registry_takes_nothing() {
    let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
    let device = stage.device(&asking(port)).await;
    stage.refuses("DELETE", "deliveries").await;
    stage.hub.employ_all();
    for made in 1..=3 {
        stage.posts(&device, "1").await;
        // Each of them is looked for anew when the next one comes.
        until("it is made", async || calls.load(Ordering::SeqCst) >= made).await;
    }
    until("it is answered", async || stage.stored(&device, "answers").await.is_some()).await;
    assert_eq!((stage.waiting(KIND).await, calls.load(Ordering::SeqCst)), (3, 3));
    stage.takes_again().await;
    until("it is noted", async || stage.waiting(KIND).await == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    stage.over().await;
}

#[tokio::test]
async fn a_call_that_an_earlier_version_has_put_down_is_made() {
    let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
    let device = stage.device(&asking(port)).await;
    let call = format!(
        r#"{{"event":"{}","element":"ask","method":"GET","url":"http://127.0.0.1:{port}/","headers":[],"body":null}}"#,
        stage.hub.new_id()
    );
    let body = format!(r#"{{"device":"{}","key":{},"call":{call}}}"#, device.id, device.key.0);
    assert_eq!(lane_of_body(&body), " 127.0.0.1");
    let old = NewDelivery { id: "call:old".to_owned(), kind: KIND, body, lane: None };
    stage.hub.0.registry.deliveries_put(&[old], stage.clock.now()).await.unwrap();
    stage.hub.employ_all();
    until("it is answered", async || stage.stored(&device, "answers").await.is_some()).await;
    until("nothing waits", async || stage.waiting(KIND).await == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    stage.over().await;
}
