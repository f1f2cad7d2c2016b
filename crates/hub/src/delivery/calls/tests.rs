//! Calls of a hub on real stores.

use std::sync::atomic::Ordering;

use super::*;
use crate::stage::{Stage, counting_server, until};

/// Returns a design that calls a server with every reading, and stores the answer.
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
async fn unresponsive_host_delays_no_other_calls() {
    let (stage, (port, _)) = (Stage::set().await, counting_server().await);
    // Connections to this server get no answer.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hostile = stage.device(&asking(silent.local_addr().unwrap().port())).await;
    let mut hostiles = vec![hostile.clone()];
    for _ in 0..5 {
        hostiles.push(stage.another(&format!(r#"{{"name":"d","projectUuid":"{}"}}"#, hostile.project)).await);
    }
    for device in &hostiles {
        for _ in 0..CALLS_OF_A_DEVICE_MAX {
            stage.posts(device, "1").await;
        }
    }
    let good = stage.device_of_another_tenant(&asking(port)).await;
    stage.posts(&good, "1").await;
    stage.hub.employ_all();
    until("it is answered", async || stage.stored(&good, "answers").await.is_some()).await;
    stage.over().await;
}

#[tokio::test]
async fn an_answer_that_finds_no_way_is_kept_and_handed_over_later() {
    let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
    let device = stage.device(&asking(port)).await;
    stage.hub.0.env.faults.panic_at("call_answer", 3);
    stage.posts(&device, "1").await;
    stage.hub.employ_all();
    for left in [2, 1, 0] {
        until("it was tried", async || stage.hub.0.env.faults.left_at("call_answer") == left).await;
        until("it is put off", async || stage.is_put_off(DeliveryKind::Call).await).await;
        assert_eq!(stage.stored(&device, "answers").await, None);
        stage.clock.advance_seconds(60);
    }
    until("it is handed over", async || stage.stored(&device, "answers").await.is_some()).await;
    until("nothing waits", async || stage.waiting(DeliveryKind::Call).await == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // An answer that can never be delivered is dropped, and the server was called only once for it.
    stage.hub.0.env.faults.panic_at("call_answer", u32::MAX);
    stage.posts(&device, "2").await;
    until("it is given up", async || {
        stage.clock.advance_seconds(3600);
        calls.load(Ordering::SeqCst) == 2 && stage.waiting(DeliveryKind::Call).await == 0
    })
    .await;
    stage.over().await;
}

#[tokio::test]
async fn failing_registry_repeats_no_call() {
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
    assert_eq!((stage.waiting(DeliveryKind::Call).await, calls.load(Ordering::SeqCst)), (3, 3));
    stage.takes_again().await;
    until("it is noted", async || stage.waiting(DeliveryKind::Call).await == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    stage.over().await;
}

#[tokio::test]
async fn a_call_that_an_earlier_version_has_put_down_is_made() {
    let (stage, (port, calls)) = (Stage::set().await, counting_server().await);
    let device = stage.device(&asking(port)).await;
    let call = format!(
        r#"{{"event":"{}","element":"ask","method":"GET","url":"http://127.0.0.1:{port}/","headers":[],"body":null}}"#,
        stage.hub.0.env.new_id()
    );
    let body = format!(r#"{{"device":"{}","key":{},"call":{call}}}"#, device.id, device.key.0);
    assert_eq!(destination_of_body(&body), " 127.0.0.1");
    let old = NewDelivery { id: "call:old".to_owned(), kind: DeliveryKind::Call, body, destination: None };
    stage.hub.0.env.registry().deliveries_put(&[old], stage.clock.now()).await.unwrap();
    stage.hub.employ_all();
    until("it is answered", async || stage.stored(&device, "answers").await.is_some()).await;
    until("nothing waits", async || stage.waiting(DeliveryKind::Call).await == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    stage.over().await;
}
