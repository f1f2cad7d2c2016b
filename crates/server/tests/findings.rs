//! Changes by designs that the registry refuses: counted and reported, without blocking a stop, and written when the
//! registry accepts them again (docs/operations.md). And a registry that accepts nothing (docs/reliability.md).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use isobar_power::becomes;
use program_support::site::{Api, Device, ENVIRONMENT, everything};
use program_support::{Serving, isobar, registry, serve, text};
use reqwest::Method;
use serde_json::json;
use sqlx::AssertSqlSafe;
use std::path::Path;

async fn in_registry(data: &Path, statement: &str) {
    let registry = registry(data).await;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&registry).await.unwrap();
    registry.close().await;
}

async fn until(api: &Api, metric: &str, value: f64) {
    becomes(&format!("{metric} {value}"), async || api.metric(metric).await == value).await;
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
async fn refused_change_is_counted_and_named_until_accepted() {
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
async fn locked_registry_blocks_no_stop() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let devices = api.found(&everything(), 20).await;
    let other = registry(data).await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&other).await.unwrap();
    for device in &devices {
        api.post(device, "reading", &json!({"n": 2})).await.created();
    }
    // The lock is held until the process has ended.
    assert_eq!(serving.stops_meanwhile(), Some(0));
    sqlx::raw_sql("ROLLBACK").execute(&other).await.unwrap();
    other.close().await;
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = api.at(&serving);
    for device in &devices {
        assert_eq!(status(&api, device).await, 3);
    }
    until(&api, "isobar_outbox_entries", 0.0).await;
    assert_eq!(serving.stop(), Some(0));
}

/// Makes the registry refuse every change, as a full disk does: SQLite ends the whole transaction by itself.
const FULL: &str = "CREATE TRIGGER full_projects BEFORE INSERT ON projects BEGIN SELECT RAISE(ROLLBACK, 'full'); END; \
     CREATE TRIGGER full_devices BEFORE UPDATE ON devices BEGIN SELECT RAISE(ROLLBACK, 'full'); END; \
     CREATE TRIGGER full_pulse BEFORE UPDATE ON pulse BEGIN SELECT RAISE(ROLLBACK, 'full'); END";
const ROOM: &str = "DROP TRIGGER full_projects; DROP TRIGGER full_devices; DROP TRIGGER full_pulse";

#[tokio::test]
async fn full_registry_is_reported_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let (data, said) = (folder.path().join("data"), folder.path().join("said"));
    let mut command = serve(&data, &ENVIRONMENT);
    command.stderr(std::fs::File::create(&said).unwrap());
    let serving = Serving::of(command);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    let url = format!("/v2/devices/{}", device.id);
    let project = api.get(&url).await["projectUuid"].clone();
    let named = |name: &str| json!({"name": name, "projectUuid": project});
    let lines = |of: &str| std::fs::read_to_string(&said).unwrap().lines().filter(|line| line.contains(of)).count();

    in_registry(&data, FULL).await;
    for round in 0..5 {
        let made = api.send_as_admin(Method::POST, "/v2/projects", Some(&json!({"name": "lost"}))).await.unwrap();
        let renamed = api.send_as_admin(Method::PUT, &url, Some(&named("lost"))).await.unwrap();
        assert_eq!((made.status, renamed.status), (503, 503), "round {round}: {} {}", made.body, renamed.body);
        let ready = serving.get("/health/ready");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("\"registry\""), "{ready}");
        assert!(!ready.contains("\"telemetry\""), "{ready}");
        // Reads still work.
        assert_eq!(api.get(&url).await["name"], "Device 0");
    }
    // Logged once, however often it fails.
    assert_eq!(lines("the registry could not commit a change"), 1);
    assert_eq!(lines("the registry commits changes again"), 0);

    in_registry(&data, ROOM).await;
    let kept = api.admin(Method::PUT, &url, Some(&named("kept"))).await;
    assert_eq!(kept["name"], "kept");
    let made = api.admin(Method::POST, "/v2/projects", Some(&json!({"name": "kept too"}))).await;
    assert!(serving.get("/health/ready").starts_with("HTTP/1.1 200"));
    assert_eq!((lines("the registry could not commit a change"), lines("the registry commits changes again")), (1, 1));
    serving.kill();
    let serving = Serving::on(&data, &ENVIRONMENT);
    let api = api.at(&serving);
    assert_eq!(api.get(&url).await["name"], "kept");
    let projects = api.list("/v2/projects").await;
    let mut names: Vec<_> = projects.iter().map(|project| project["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Site", "kept too"]);
    assert_eq!(api.get(&format!("/v2/projects/{}", made["id"].as_str().unwrap())).await["name"], "kept too");
    assert_eq!(serving.stop(), Some(0));
    checked(&data);
}
