//! Tests the load that the code of projects puts on the server.

use futures::future::{Either, join_all, select};
use isobar_power::becomes;
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(devices_that_wake_together_share_code_runners, huge_operation_in_code_delays_no_other_project,);

/// A design whose code answers a number.
fn answering(number: u32) -> Value {
    decoding(&format!("return {{data: {number}}};"))
}

/// A design whose code has that body.
pub fn decoding(body: &str) -> Value {
    let code = format!("function decodeUplink(input) {{ {body} }}");
    json!({
        "up": {"type": "deviceEvent", "triggers": {"eventReceived": [to("decode", "evaluate")]}},
        "decode": {"type": "function", "properties": {"code": code}, "triggers": {"result": [to("values", "store")]}},
        "values": {"type": "storage"},
    })
}

async fn devices_that_wake_together_share_code_runners(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let project = ana.designs(answering(1)).await;
    let mut devices = Vec::new();
    for number in 0..24 {
        devices.push(ana.creates_device_of(&project, &format!("device {number}")).await);
    }
    // A tenant has a quarter of the pool's threads at a time, but not always the same ones.
    let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from).max(2) as u64;
    for number in [2, 3] {
        let (before, conflicts) = (app.hub().design_counts(), app.conflicts());
        ana.redesigns(&project, answering(number)).await.ok();
        for answer in join_all(devices.iter().map(|device| device.posts("up", json!("AA==")))).await {
            answer.created();
        }
        // Every one of them goes by the newest design, also those that went by the one before.
        for device in &devices {
            let values = ana.get(&device.at("data/values?limit=1")).await.list_of("/payload");
            assert_eq!(values, [json!(number)]);
        }
        let after = app.hub().design_counts();
        let repeated = app.conflicts() - conflicts;
        assert_eq!(after.code - before.code, devices.len() as u64 + repeated);
        assert!(after.engines - before.engines <= threads, "{after:?} after {before:?}");
    }
}

async fn huge_operation_in_code_delays_no_other_project(app: &TestApp) {
    let ana = app.developer("ana").await.with_key().await;
    let bob = app.stranger("bob").await.with_key().await;
    // Each text takes the engine seconds, in which it looks at no clock.
    let huge = "var a = 1n << 700000n; for (var i = 0; i < 3; i++) { try { `${a}`; } catch (e) {} } return {data: 1};";
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let mut hostile = Vec::new();
    for number in 0..threads {
        let project = bob.designs(decoding(huge)).await;
        hostile.push(bob.creates_device_of(&project, &format!("hostile {number}")).await);
    }
    let project = ana.designs(answering(7)).await;
    let device = ana.creates_device_of(&project, "sound").await;
    let before = app.hub().design_counts();
    let theirs = join_all(hostile.iter().map(|device| device.posts("up", json!("AA=="))));
    let sound = async {
        // When all of them are under way, nobody waits for them.
        let are_under_way = async || app.hub().design_counts().long - before.long >= threads as u64;
        becomes("all of them are under way", are_under_way).await;
        device.posts("up", json!("AA==")).await.created();
        ana.get(&device.at("data/values?limit=1")).await.list_of("/payload")
    };
    let rest = match select(Box::pin(theirs), Box::pin(sound)).await {
        Either::Left(_) => panic!("others waited for the hostile projects"),
        Either::Right((values, rest)) => {
            assert_eq!(values, [json!(7)]);
            rest
        }
    };
    for answer in rest.await {
        answer.created();
    }
    for device in &hostile {
        let errors = bob.get(&device.at("events?limit=1")).await.list_of("/errors/0/message");
        // A run that is repeated after a conflict finds the code barred by the first one.
        let barred = [json!("is not run for a while: it took far more than its time before")];
        let is_barred = app.conflicts() > 0 && errors == barred;
        assert!(is_barred || errors == [json!("takes longer than 50 ms")], "{errors:?}");
    }
}
