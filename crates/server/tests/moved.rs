//! `isobar move`: a platform whose telemetry, or registry, or both are moved to PostgreSQL answers as before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;
#[path = "../../store/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Output;

use program_support::furnished::{answers, furnish};
use program_support::site::{Api, Device, ENVIRONMENT};
use program_support::{Serving, failure, isobar, serve, text};
use reqwest::Method;
use serde_json::json;
use support::{OwnDatabase, Raw};

fn moved(data: &Path, to: &str) -> Output {
    let from = format!("rocksdb:{}", data.join("telemetry").display());
    isobar(&["move", "--from", &from, "--to", to]).output().unwrap()
}

fn moved_registry(data: &Path, to: &str) -> Output {
    let from = format!("sqlite:{}", data.join("registry.db").display());
    isobar(&["move", "--from", &from, "--to", to]).output().unwrap()
}

/// Makes a device with an active alarm, and a label by which the webhook finds it; returns the device.
async fn alarmed(api: &Api) -> Device {
    let raise = json!({"element": "isHot", "ability": "raise", "arguments": {"key": "payload.key", "value": "1"}});
    let design = json!({
        "hot": {"type": "deviceEvent", "triggers": {"eventReceived": [raise]}},
        "isHot": {"type": "alarm", "properties": {"title": "Too hot", "severity": "critical"}},
        "lora": {"type": "deviceEvent", "properties": {"integration": "lora"},
            "triggers": {"eventReceived": [{"element": "radio", "ability": "store"}]}},
        "radio": {"type": "storage"},
    });
    let device = api.found(&design, 1).await.remove(0);
    api.post(&device, "hot", &json!({"key": "k"})).await.created();
    api.admin(Method::PATCH, &format!("/v2/devices/{}/meta", device.id), Some(&json!({"eui": "1"}))).await;
    device
}

mod on_postgres {
    use super::*;

    #[tokio::test]
    async fn moved_platform_answers_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let (data, database) = (folder.path().join("data"), OwnDatabase::new().await);
        assert!(failure(&moved(&data, &database.address)).contains("there is no telemetry store in"));
        let serving = Serving::on(&data, &ENVIRONMENT);
        let api = Api::of(&serving).await;
        let devices = furnish(&api, 3).await;
        let refused = failure(&moved(&data, &database.address));
        assert!(refused.contains("is in use by another isobar process"), "{refused}");
        assert_eq!(serving.stop(), Some(0));
        let serving = Serving::on(&data, &ENVIRONMENT);
        let before = answers(&api.at(&serving), &devices).await;
        assert_eq!(serving.stop(), Some(0));

        let refused = failure(&moved(&data, "sqlite:x"));
        assert!(refused.contains("--to must be postgres://"), "{refused}");
        let done = moved(&data, &database.address);
        assert!(done.status.success() && text(&done.stdout).contains("both sides are the same"), "{done:?}");
        assert!(text(&done.stderr).contains("compared: "), "{done:?}");
        let again = failure(&moved(&data, &database.address));
        assert!(again.contains("already has telemetry"), "{again}");

        let mut command = serve(&data, &ENVIRONMENT);
        command.env("ISOBAR_STORES__TELEMETRY", &database.address).env("ISOBAR_STORES__NEEDS_SYNCS", "false");
        let serving = Serving::of(command);
        let after = answers(&api.at(&serving), &devices).await;
        assert_eq!(after, before);
        assert_eq!(serving.stop(), Some(0));
        database.remove().await;
    }

    #[tokio::test]
    async fn folder_of_a_running_platform_is_refused_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, database) = (folder.path().join("elsewhere"), OwnDatabase::new().await);
        std::fs::create_dir(&elsewhere).unwrap();
        let mut command = serve(&folder.path().join("data"), &ENVIRONMENT);
        command.env("ISOBAR_STORES__TELEMETRY", format!("rocksdb:{}", elsewhere.join("telemetry").display()));
        let serving = Serving::of(command);
        furnish(&Api::of(&serving).await, 2).await;
        let refused = failure(&moved(&elsewhere, &database.address));
        assert!(refused.contains("the telemetry store is in use by another isobar process"), "{refused}");
        // Events that are in the log alone are moved too.
        serving.kill();
        let done = moved(&elsewhere, &database.address);
        assert!(done.status.success() && text(&done.stdout).contains("2 devices, "), "{done:?}");
        database.remove().await;
    }

    #[tokio::test]
    async fn platform_that_is_moved_whole_answers_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let (data, database) = (folder.path().join("data"), OwnDatabase::new().await);
        let serving = Serving::on(&data, &ENVIRONMENT);
        let api = Api::of(&serving).await;
        let devices = furnish(&api, 3).await;
        let alarmed = alarmed(&api).await;
        let user = api.get("/v2/auth/user").await["id"].as_str().unwrap().to_owned();
        let key = json!({"name": "before"});
        let key = api.admin(Method::POST, &format!("/v2/users/{user}/apiKeys"), Some(&key)).await;
        let key = key["key"].as_str().unwrap().to_owned();
        api.admin(Method::PUT, &format!("/v2/devices/{}/settings/limit", devices[0].id), Some(&json!(7))).await;
        let refused = failure(&moved_registry(&data, &database.address));
        assert!(refused.contains("is in use by another isobar process"), "{refused}");
        assert_eq!(serving.stop(), Some(0));
        let serving = Serving::on(&data, &ENVIRONMENT);
        let before = answers(&api.at(&serving), &devices).await;
        let replaced = format!("/v2/devices/{}/settings/history", devices[0].id);
        let replaced_before = api.at(&serving).get(&replaced).await;
        assert_eq!(replaced_before["data"].as_array().map(Vec::len), Some(1), "{replaced_before}");
        assert_eq!(serving.stop(), Some(0));

        let done = moved_registry(&data, &database.address);
        assert!(done.status.success() && text(&done.stdout).contains("both sides are the same"), "{done:?}");
        assert!(text(&done.stdout).contains(" 4 devices, ") && text(&done.stderr).contains("compared: "), "{done:?}");
        let again = failure(&moved_registry(&data, &database.address));
        assert!(again.contains("the database is not empty: its schema public has "), "{again}");
        let done = moved(&data, &database.address);
        assert!(done.status.success(), "{done:?}");

        // A process without the old folder.
        let mut command = serve(&folder.path().join("new"), &ENVIRONMENT);
        for store in ["REGISTRY", "TELEMETRY"] {
            command.env(format!("ISOBAR_STORES__{store}"), &database.address);
        }
        command.env("ISOBAR_STORES__NEEDS_SYNCS", "false");
        let serving = Serving::of(command);
        // The token of before, the old password, an API key.
        let after = answers(&api.at(&serving), &devices).await;
        assert_eq!(after, before);
        let api = Api::of(&serving).await;
        assert_eq!(answers(&api, &devices).await, before);
        let keyed = api.send(Method::GET, "/v2/auth/user", &[("api_auth_token", &key)], None).await.unwrap();
        assert_eq!(keyed.status, 200, "{}", keyed.body);
        let hook = "/v2/events/integrations?integration=lora&deviceTag=eui&deviceTagValue=1";
        let hooked = api.send(Method::POST, hook, &[("api_auth_token", &key)], Some(&json!({"far": 1}))).await.unwrap();
        assert_eq!(hooked.status, 200, "{}", hooked.body);
        let stored = api.list(&format!("/v2/devices/{}/data/radio", alarmed.id)).await;
        assert_eq!(stored.len(), 1, "{stored:?}");
        api.post(&devices[0], "reading", &json!({"n": 99, "text": ""})).await.created();
        assert_eq!(api.get(&replaced).await, replaced_before);
        // The alarm goes on: raised again, it is the same one.
        api.post(&alarmed, "hot", &json!({"key": "k"})).await.created();
        let alarms = api.list("/v2/alarms").await;
        assert_eq!((alarms.len(), &alarms[0]["count"], &alarms[0]["state"]), (1, &json!(2), &json!("active")));
        assert_eq!(serving.stop(), Some(0));
        database.remove().await;
    }

    #[tokio::test]
    async fn registry_outside_of_its_data_folder_is_refused_while_served() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, database) = (folder.path().join("elsewhere"), OwnDatabase::new().await);
        std::fs::create_dir(&elsewhere).unwrap();
        let mut command = serve(&folder.path().join("data"), &ENVIRONMENT);
        command.env("ISOBAR_STORES__REGISTRY", format!("sqlite:{}", elsewhere.join("registry.db").display()));
        let serving = Serving::of(command);
        let refused = failure(&moved_registry(&elsewhere, &database.address));
        assert!(refused.contains("registry.db is in use by another process: stop it first"), "{refused}");
        // Changes that are in the log alone are moved too.
        serving.kill();
        let done = moved_registry(&elsewhere, &database.address);
        assert!(done.status.success() && text(&done.stdout).contains("1 users, "), "{done:?}");
        database.remove().await;
    }

    #[tokio::test]
    async fn killed_move_of_a_registry_is_not_served_and_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let (data, database) = (folder.path().join("data"), OwnDatabase::new().await);
        assert_eq!(Serving::on(&data, &ENVIRONMENT).stop(), Some(0));
        // The mark of a former move, held by the test: the last step of the move waits for it.
        let raw = Raw::open(&database.address).await;
        raw.run("CREATE TABLE registry_move (begun TIMESTAMPTZ)").await.unwrap();
        raw.run("BEGIN; LOCK TABLE registry_move IN ACCESS SHARE MODE").await.unwrap();
        let from = format!("sqlite:{}", data.join("registry.db").display());
        let mut moving = isobar(&["move", "--from", &from, "--to", &database.address]).spawn().unwrap();
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'registry_move'::regclass";
        isobar_power::becomes("the end of a move", async || raw.number(waits).await == 1).await;
        moving.kill().unwrap();
        moving.wait().unwrap();
        raw.run("ROLLBACK").await.unwrap();
        raw.close().await;

        let mut command = serve(&folder.path().join("new"), &ENVIRONMENT);
        command.env("ISOBAR_STORES__REGISTRY", &database.address);
        let refused = failure(&command.output().unwrap());
        assert!(refused.contains("has not finished: run isobar move again"), "{refused}");
        let done = moved_registry(&data, &database.address);
        assert!(done.status.success(), "{done:?}");
        database.remove().await;
    }
}
