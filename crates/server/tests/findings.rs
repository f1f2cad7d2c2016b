//! What designs found out and the registry does not take: it is counted and named, it holds up no stop, and it is there when
//! the registry takes it again (docs/operations.md).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::path::Path;
use std::time::Duration;

use program_support::site::{Api, Device, ENVIRONMENT, everything};
use program_support::{Serving, isobar, text};
use sea_orm::{ConnectOptions, ConnectionTrait as _, Database, DatabaseConnection};
use serde_json::json;

/// Another connection to the registry's file.
async fn registry(data: &Path) -> DatabaseConnection {
    let file = data.join("registry.db");
    let layer = isobar_pages::prepare(&file, isobar_pages::Open::ToUse).unwrap().unwrap();
    let address = format!("sqlite:{}?vfs={layer}", file.display());
    Database::connect(ConnectOptions::new(address).max_connections(1).to_owned()).await.unwrap()
}

async fn in_registry(data: &Path, statement: &str) {
    let registry = registry(data).await;
    registry.execute_unprepared(statement).await.unwrap();
    registry.close().await.unwrap();
}

async fn until(api: &Api, metric: &str, value: f64) {
    while api.metric(metric).await != value {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn status(api: &Api, device: &Device) -> u64 {
    api.get(&format!("/v2/devices/{}", device.id)).await["statusInt"].as_u64().unwrap()
}

fn checked(data: &Path) -> String {
    let check = isobar(&["check", "--config", "/dev/null", "--data"]).arg(data).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    text(&check.stdout)
}

#[tokio::test]
async fn what_the_registry_refuses_is_counted_and_named_until_it_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    let trigger =
        "CREATE TRIGGER refuses BEFORE UPDATE OF status ON devices BEGIN SELECT RAISE(ABORT, 'not today'); END";
    assert_eq!(serving.stop(), Some(0));
    in_registry(data, trigger).await;
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = api.at(&serving);
    api.post(&device, "reading", &json!({"n": 2})).await.created();
    until(&api, "isobar_outbox_parked", 1.0).await;
    assert_eq!(api.metric("isobar_outbox_parked_total").await, 1.0);
    assert_eq!(api.metric("isobar_outbox_entries").await, 1.0);
    assert!(api.metric("isobar_outbox_bytes").await > 0.0 && api.metric("isobar_outbox_oldest_seconds").await > 0.0);
    assert_eq!(status(&api, &device).await, 3);
    assert_eq!(serving.stop(), Some(0));
    let told = checked(data);
    assert!(told.contains("1 of these entries are parked") && told.contains("not today"), "{told}");

    in_registry(data, "DROP TRIGGER refuses").await;
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = api.at(&serving);
    until(&api, "isobar_outbox_entries", 0.0).await;
    assert_eq!((api.metric("isobar_outbox_parked").await, status(&api, &device).await), (0.0, 3));
    assert_eq!(serving.stop(), Some(0));
    assert!(checked(data).contains("0 entries wait for the registry"));
}

#[tokio::test]
async fn a_registry_that_keeps_everybody_waiting_holds_up_no_stop() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let devices = api.found(&everything(), 20).await;
    let other = registry(data).await;
    other.execute_unprepared("BEGIN IMMEDIATE").await.unwrap();
    for device in &devices {
        api.post(device, "reading", &json!({"n": 2})).await.created();
    }
    // The lock is held until it has ended.
    assert_eq!(serving.stop(), Some(0));
    other.execute_unprepared("ROLLBACK").await.unwrap();
    other.close().await.unwrap();
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = api.at(&serving);
    for device in &devices {
        assert_eq!(status(&api, device).await, 3);
    }
    until(&api, "isobar_outbox_entries", 0.0).await;
    assert_eq!(serving.stop(), Some(0));
}
