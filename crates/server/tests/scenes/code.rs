//! What the code of projects costs the server.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(devices_that_wake_together_share_what_runs_their_code);

/// A design whose code answers a number.
fn answering(number: u32) -> Value {
    let code = format!("function decodeUplink(input) {{ return {{data: {number}}}; }}");
    json!({
        "up": {"type": "deviceEvent", "triggers": {"eventReceived": [to("decode", "evaluate")]}},
        "decode": {"type": "function", "properties": {"code": code}, "triggers": {"result": [to("values", "store")]}},
        "values": {"type": "storage"},
    })
}

async fn devices_that_wake_together_share_what_runs_their_code(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(answering(1)).await;
    let mut devices = Vec::new();
    for number in 0..24 {
        devices.push(ana.creates_device_of(&project, &format!("device {number}")).await);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2) as u64;
    for number in [2, 3] {
        let before = app.hub().code_runs();
        ana.redesigns(&project, answering(number)).await.ok();
        for answer in join_all(devices.iter().map(|device| device.posts("up", json!("00")))).await {
            answer.created();
        }
        // Every one of them goes by the newest design, also those that went by the one before.
        for device in &devices {
            let values = ana.get(&device.at("data/values?limit=1")).await.list_of("/payload");
            assert_eq!(values, [json!(number)]);
        }
        let after = app.hub().code_runs();
        assert_eq!(after.runs - before.runs, devices.len() as u64);
        assert!(after.engines - before.engines <= threads, "{after:?} after {before:?}");
    }
}
