//! Lists with the largest number of items.

use serde_json::json;

use crate::support::TestApp;
use crate::support::designs::copied;

#[tokio::test]
async fn a_long_page_of_values_comes_whole() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(copied(90)).await;
    let device = ana.creates_device_of(&project, "logger").await;
    for number in 0..20 {
        device.posts("in", json!({"n": number})).await.created();
    }
    let answer = ana.get(&device.at("data/log?limit=10000&sortBy=createdAt")).await.is(200);
    // A long list is sent while it is written, without a length.
    assert_eq!(answer.header("content-length"), "");
    let numbers: Vec<_> = answer.list_of("/payload/n").iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..20).flat_map(|number| [number; 90]).collect::<Vec<_>>());
    assert_ne!(ana.get(&device.at("data/log?limit=3")).await.is(200).header("content-length"), "");
}

#[tokio::test]
async fn a_long_page_of_devices_has_their_last_values() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    for number in 0..150 {
        let device = ana.creates_device(&format!("device {number:03}")).await;
        device.posts("reading", json!({"n": number, "padding": "x".repeat(1_000)})).await.created();
    }
    let answer = ana.get("/v2/devices?limit=10000&lastValues=all").await.is(200);
    assert_eq!(answer.header("content-length"), "");
    let numbers: Vec<_> = answer.list_of("/lastValues/0/values/n").iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..150).collect::<Vec<_>>());
}
