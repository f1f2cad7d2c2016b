//! A newer program on data of an older one: the reported changes, and equal answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use program_support::furnished::{answers, furnish};
use program_support::site::{Api, Device, ENVIRONMENT};
use program_support::{Serving, failure, isobar, text};
use serde_json::{Value, json};

/// Folders with backups made by former versions, each with the answers of its version.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept");
/// Variable that names a folder for a backup of this version.
const WRITE_INTO: &str = "ISOBAR_TEST_KEEP_DATA";
/// Lists from which old items are removed.
const DROPPED: [&str; 2] = ["/events", "/notifications"];

fn checked(data: &Path) -> Output {
    isobar(&["upgrade-check", "--config", "/dev/null", "--data"]).arg(data).output().unwrap()
}

async fn stopped(data: &Path) {
    let serving = Serving::on(data, &ENVIRONMENT);
    furnish(&Api::of(&serving).await, 1).await;
    assert_eq!(serving.stop(), Some(0));
}

async fn sql(data: &Path, statement: &'static str) {
    let registry = program_support::registry(data).await;
    sqlx::raw_sql(statement).execute(&registry).await.unwrap();
    registry.close().await;
}

// Holds: c16.upgradeCheck
#[tokio::test]
async fn upgrade_check_reports_the_changes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert!(failure(&checked(&data)).contains("is no data folder"));
    stopped(&data).await;
    let before = std::fs::read(data.join("registry.db")).unwrap();
    let told = checked(&data);
    assert!(told.status.success() && text(&told.stdout).contains("Nothing would be changed"), "{told:?}");
    assert_eq!(std::fs::read(data.join("registry.db")).unwrap(), before);

    sql(&data, "DELETE FROM schema_version WHERE version = (SELECT max(version) FROM schema_version)").await;
    let told = checked(&data);
    let said = text(&told.stdout);
    for part in [": 1 would be taken", "cannot be undone", "make a backup first", "MB are free"] {
        assert!(told.status.success() && said.contains(part), "{part} is missing in {told:?}");
    }
    sql(&data, "INSERT INTO schema_version (version) VALUES (999)").await;
    assert!(failure(&checked(&data)).contains("the registry has version 999, and this version of Isobar reads up to"));
    std::fs::write(data.join("VERSION"), "99\n").unwrap();
    assert!(failure(&checked(&data)).contains("was written by a newer isobar (layout 99"));
}

// Holds: c16.upgradeCheck
#[tokio::test]
async fn upgrade_check_beside_a_running_platform_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &ENVIRONMENT);
    assert!(failure(&checked(folder.path())).contains("is in use by another isobar process"));
    assert_eq!(serving.stop(), Some(0));
}

/// Checks that everything answered before is answered now; more is allowed.
fn holds(path: &str, before: &Value, now: &Value) {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            for (name, value) in before {
                let at = format!("{path}: {name}");
                holds(&at, value, now.get(name).unwrap_or_else(|| panic!("{at} is gone")));
            }
        }
        (Value::Array(before), Value::Array(now)) => {
            assert_eq!(before.len(), now.len(), "{path}");
            before.iter().zip(now).for_each(|(before, now)| holds(path, before, now));
        }
        _ => assert_eq!(before, now, "{path}"),
    }
}

#[tokio::test]
async fn data_that_earlier_versions_left_is_answered_the_same() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(into) = std::env::var_os(WRITE_INTO) {
        keep(folder.path(), Path::new(&into)).await;
    }
    let kept: Vec<PathBuf> = std::fs::read_dir(KEPT).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!kept.is_empty());
    for (place, kept) in kept.iter().enumerate() {
        let (archive, data) = (folder.path().join("archive"), folder.path().join(format!("data-{place}")));
        let mut bytes = Vec::new();
        GzDecoder::new(std::fs::File::open(kept.join("backup.tar.gz")).unwrap()).read_to_end(&mut bytes).unwrap();
        std::fs::write(&archive, bytes).unwrap();
        let mut restore = isobar(&["restore", "--config", "/dev/null", "--data"]);
        let restored = restore.arg(&data).arg(&archive).output().unwrap();
        assert!(restored.status.success(), "{}: {restored:?}", kept.display());
        let serving = Serving::on(&data, &ENVIRONMENT);
        let known: Value = serde_json::from_slice(&std::fs::read(kept.join("answers.json")).unwrap()).unwrap();
        let api = Api::of(&serving).await;
        for (path, before) in known.as_object().unwrap() {
            holds(path, before, &api.get(path).await);
        }
        // It works from there.
        furnish(&api, 1).await;
        assert_eq!(serving.stop(), Some(0));
        assert!(checked(&data).status.success());
    }
}

/// Writes a small platform of this version with its answers, for the day of its release.
async fn keep(folder: &Path, into: &Path) {
    let (data, target) = (folder.join("data"), folder.join("target"));
    std::fs::create_dir(&target).unwrap();
    let serving = Serving::on(&data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let devices: Vec<Device> = furnish(&api, 3).await;
    let answers = answers(&api, &devices).await.into_iter();
    let answers = answers.filter(|(path, _)| !DROPPED.iter().any(|part| path.contains(part)));
    let answers: serde_json::Map<String, Value> = answers.collect();
    assert_eq!(serving.stop(), Some(0));
    let mut backup = isobar(&["backup", "--config", "/dev/null", "--data"]);
    let made = backup.arg(&data).env("ISOBAR_BACKUP__TARGET", &target).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let archive = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().path());
    let archive = archive.filter(|path| path.extension().is_some_and(|end| end == "tar")).last().unwrap();
    let mut packed = Vec::new();
    GzEncoder::new(std::fs::File::open(archive).unwrap(), Compression::best()).read_to_end(&mut packed).unwrap();
    std::fs::create_dir_all(into).unwrap();
    std::fs::write(into.join("backup.tar.gz"), packed).unwrap();
    std::fs::write(into.join("answers.json"), format!("{:#}\n", json!(answers))).unwrap();
}
