//! A registry that is older than telemetry, by a copy, a dump or a recovery: data of devices that it does not know is
//! shown to nobody (docs/operations.md, Backup).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;
#[path = "../../store/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use program_support::site::{Api, Device, ENVIRONMENT, everything};
use program_support::{Serving, isobar, text};
use reqwest::Method;
use serde_json::{Value, json};
use support::{OwnDatabase, Raw};

const REGISTRY: &str = "ISOBAR_STORES__REGISTRY";

/// A platform with the registry at this address.
struct Platform {
    data: PathBuf,
    registry: String,
}

impl Platform {
    fn serve(&self) -> Serving {
        Serving::on(&self.data, &[ENVIRONMENT.as_slice(), &[(REGISTRY, self.registry.as_str())]].concat())
    }

    fn command(&self, words: &[&str]) -> Output {
        let mut command = isobar(words);
        command.args(["--config", "/dev/null", "--data"]).arg(&self.data).env(REGISTRY, &self.registry);
        command.output().unwrap()
    }

    /// Runs `isobar check`; returns its output, and true if everything is sound.
    fn checked(&self) -> (String, bool) {
        let output = self.command(&["check"]);
        (text(&output.stdout), output.status.success())
    }

    /// Returns the number of the newest device.
    async fn newest(&self) -> i64 {
        let layer = self.registry.strip_prefix("sqlite:").map_or_else(String::new, |file| {
            let layer =
                sqlite_page_checksums::prepare(Path::new(file), sqlite_page_checksums::Open::ToUse).unwrap().unwrap();
            format!("?vfs={layer}")
        });
        let database = Raw::open(&format!("{}{layer}", self.registry)).await;
        let newest = database.number("SELECT max(key) FROM devices").await;
        database.close().await;
        newest
    }
}

/// Returns the design of [`everything`] with a setting.
fn design() -> Value {
    let mut design = everything();
    design["limit"] = json!({"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 1}});
    design
}

/// Counts a device's events, values and queued events, and returns its setting.
async fn shown(api: &Api, device: &Device) -> (usize, usize, usize, Value) {
    let Device { id, .. } = device;
    let events = api.list(&format!("/v2/devices/{id}/events")).await.len();
    let values = api.send_as_admin(Method::GET, &format!("/v2/devices/{id}/data/log"), None).await.unwrap();
    let values = if values.status == 404 { 0 } else { values.json()["data"].as_array().unwrap().len() };
    let queued = api.get(&format!("/v2/events/cloud?deviceId={id}&peek=true")).await.as_array().unwrap().len();
    (events, values, queued, api.get(&format!("/v2/devices/{id}/settings/limit")).await["value"].clone())
}

/// Copies a registry, adds a tenant, replaces the registry by the copy, and adds another tenant.
async fn older_registry_shows_nobody_the_data_of_others(newer: Platform, copy: impl AsyncFnOnce() -> String) {
    let serving = newer.serve();
    Api::of(&serving).await.found(&design(), 1).await;
    assert_eq!(serving.stop(), Some(0));
    let older = Platform { data: newer.data.clone(), registry: copy().await };

    let serving = newer.serve();
    let mara = Api::registered(&serving, "mara").await;
    let lost = mara.found(&design(), 1).await.remove(0);
    for n in 0..3 {
        mara.post(&lost, "reading", &json!({"n": n})).await.created();
    }
    let limit = format!("/v2/devices/{}/settings/limit", lost.id);
    mara.admin(Method::PUT, &limit, Some(&json!(7))).await;
    let of_mara = shown(&mara, &lost).await;
    assert_eq!(of_mara, (6, 3, 3, json!(7)));
    // Pending changes of the device may be in telemetry.
    serving.kill();
    assert_eq!(newer.newest().await, 2);
    assert!(newer.checked().1);

    let (told, is_sound) = older.checked();
    assert!(told.contains("the registry is older than telemetry") && !is_sound, "{told}");
    let serving = older.serve();
    let nils = Api::registered(&serving, "nils").await;
    let fresh = nils.found(&design(), 1).await.remove(0);
    assert_eq!(shown(&nils, &fresh).await, (0, 0, 0, json!(1)));
    nils.post(&fresh, "reading", &json!({"n": 9})).await.created();
    assert_eq!(shown(&nils, &fresh).await, (2, 1, 1, json!(1)));
    // It is reported by a running platform, and by a stopped one.
    let named = "1 devices that the registry does not (the first is number 2, the last 2)";
    assert!(older.checked().0.contains(named), "{}", older.checked().0);
    assert_eq!(serving.stop(), Some(0));
    assert_eq!(older.newest().await, 3);
    let (told, is_sound) = older.checked();
    assert!(told.contains(named) && !is_sound, "{told}");

    // With the newer registry back, the other device is lost, until an operator accepts that.
    let serving = newer.serve();
    assert_eq!(shown(&mara.at(&serving), &lost).await, of_mara);
    assert_eq!(serving.stop(), Some(0));
    let (told, is_sound) = newer.checked();
    assert!(told.contains("the first is number 3, the last 3") && !is_sound, "{told}");
    assert!(text(&newer.command(&["recover"]).stdout).contains("has lost the devices with the numbers 3 to 3"));
    assert!(newer.command(&["recover", "--yes"]).status.success());
    let (told, is_sound) = newer.checked();
    assert!(told.contains("1 devices with data were deleted") && is_sound, "{told}");
}

#[tokio::test]
async fn older_file_shows_nobody_the_data_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy.db"));
    let file = data.join("registry.db");
    let newer = Platform { data, registry: format!("sqlite:{}", file.display()) };
    let copied = async || {
        std::fs::copy(&file, &copy).unwrap();
        format!("sqlite:{}", copy.display())
    };
    older_registry_shows_nobody_the_data_of_others(newer, copied).await;
}

#[tokio::test]
async fn older_database_shows_nobody_the_data_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let database = OwnDatabase::new().await;
    let mut copy = None;
    let newer = Platform { data: folder.path().join("data"), registry: database.address.clone() };
    let copied = async || copy.insert(database.copy().await).address.clone();
    older_registry_shows_nobody_the_data_of_others(newer, copied).await;
    copy.unwrap().remove().await;
    database.remove().await;
}
