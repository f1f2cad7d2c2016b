//! Telemetry over two databases: one that is away hurts the devices of the other in nothing.

use isobar_power::{becomes, settled};
use serde_json::{Value, json};

use crate::support::TestApp;

/// Returns the columns of `/v2/devices` for the last values.
const WITH_LAST: &str = "/v2/devices?lastValues=reading";

// Holds: c17.databases
#[tokio::test]
async fn database_that_is_away_hurts_no_device_of_another() {
    let (app, roads) = TestApp::on_two_far_databases().await;
    let ana = app.developer("ana").await;
    // New devices are placed in turn.
    let (here, away) = (ana.creates_device("here").await, ana.creates_device("away").await);
    for device in [&here, &away] {
        device.posts("reading", json!(1)).await.created();
    }
    let listed = ana.get(WITH_LAST).await.ok();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    let [_, road] = roads;
    road.closes();
    // Before it is known to be away: its device must not be deleted in the registry alone.
    assert_eq!(ana.delete(&away.url()).await.status, 503);
    becomes("calls of its devices are refused", async || away.posts("reading", json!(2)).await.status == 503).await;
    // While calls of the one hang or are refused, those of the other go on.
    let attack = futures::future::join_all((0..256).map(|number| away.posts("reading", json!(number))));
    let neighbour = async {
        for number in 2..12 {
            here.posts("reading", json!(number)).await.created();
        }
        ana.get(&here.at("data/reading")).await.ok();
    };
    let (refused, ()) = tokio::join!(attack, neighbour);
    assert!(refused.iter().all(|answer| answer.status == 503));
    becomes("lists say that values are missing", async || ana.get(WITH_LAST).await.status == 503).await;
    let answer = ana.get(&away.at("data/reading")).await;
    assert_eq!(answer.status, 503);
    app.get("/health/ready").await.ok();
    ana.get("/v2/devices").await.ok();
    // Each item of a bulk change by itself.
    let settings = json!([
        {"deviceId": here.id, "meta": {"a": "1"}},
        {"deviceId": away.id, "meta": {"a": "1"}},
    ]);
    becomes("each item is by itself as soon as the database is known to be away", async || {
        let done = ana.post("/v2/devices/meta", settings.clone()).await.json();
        done["errors"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    // New devices are placed where they can be used.
    for name in ["b", "c", "d"] {
        ana.creates_device(name).await.posts("reading", json!(1)).await.created();
    }
    road.opens();
    settled("the database is back", async || (away.posts("reading", json!("back")).await.status == 201).then_some(()))
        .await;
    let values = ana.get(&away.at("data/reading")).await.list_of("/payload");
    assert_eq!((values.first(), values.last()), (Some(&Value::from("back")), Some(&Value::from(1))));
    ana.get(WITH_LAST).await.ok();
    app.end().await;
}
