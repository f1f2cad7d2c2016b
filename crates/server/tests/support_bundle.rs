//! The archive for somebody who helps an operator (contract: The program): what is in it, and what never is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use isobar_power::becomes;
use program_support::house::House;
use program_support::site::ENVIRONMENT;
use program_support::{Serving, failure, isobar, text};
use serde_json::json;

/// A secret for each setting that has one, and for what people and devices send.
const SECRETS: [&str; 9] = [
    "registry-secret",
    "telemetry-secret",
    "smtp-secret",
    "otlp-secret",
    "access-secret",
    "bucket-secret",
    "acme-secret",
    "payload-secret",
    "person-secret",
];

/// Settings with secrets that a server on its own folder takes.
const WITH_SECRETS: [(&str, &str); 5] = [
    ("ISOBAR_MAIL__SMTP_URL", "smtp://person-secret:smtp-secret@127.0.0.1:1"),
    ("ISOBAR_OBSERVABILITY__OTLP_ENDPOINT", "http://127.0.0.1:1"),
    ("ISOBAR_OBSERVABILITY__OTLP_HEADERS", "authorization=Bearer otlp-secret"),
    ("ISOBAR_BACKUP__S3_ACCESS_KEY_ID", "access-secret"),
    ("ISOBAR_BACKUP__S3_SECRET_ACCESS_KEY", "bucket-secret"),
];

fn bundle(data: &Path, to: &Path) -> Command {
    let mut command = isobar(&["support-bundle"]);
    // No journal but the one that a test names.
    command.arg(to).arg("--data").arg(data).env("PATH", data).envs(WITH_SECRETS).env("ISOBAR_LISTEN", "127.0.0.1:1");
    command
}

/// Returns the files of a bundle by their names, after a look for secrets.
fn unpacked(file: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(file).unwrap()));
    let mut parts = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        assert!(path.parent().unwrap().to_str().unwrap().starts_with("isobar-support-20"), "{path:?}");
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        for secret in SECRETS.into_iter().chain([ENVIRONMENT[0].1]) {
            assert!(!text.contains(secret), "{secret} in {path:?}: {text}");
        }
        parts.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), text);
    }
    parts
}

fn has(parts: &BTreeMap<String, String>, name: &str, words: &[&str]) {
    let part = parts.get(name).unwrap_or_else(|| panic!("{name} is missing: {}", parts["README.txt"]));
    words.iter().for_each(|word| assert!(part.contains(word), "{word} is missing in {name}: {part}"));
}

fn succeeds(command: &mut Command) -> Output {
    let made = command.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    made
}

// Holds: c16.supportBundle
#[tokio::test]
async fn bundle_of_a_running_platform_has_no_secrets_and_payloads() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let house = House::with(|folder| {
        let mut command = isobar(&["serve", "--listen", "127.0.0.1:0", "--log", "debug,json", "--data"]);
        command.arg(folder).envs(ENVIRONMENT).envs(WITH_SECRETS).env("ISOBAR_HTTP__OPERATIONS_LISTEN", &free);
        command
    })
    .await;
    house.api.post(&house.device, "reading", &json!({"n": 1, "text": "payload-secret"})).await.created();
    let account = json!({"username": "person-secret", "email": "person-secret@example.com", "password": "chosen-by-me",
        "passwordConfirmation": "chosen-by-me", "firstName": "a", "lastName": "b", "company": "c", "role": "developer"});
    house.api.admin(reqwest::Method::POST, "/v2/auth/register", Some(&account)).await;
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bundle.tar.gz");
    // The server cannot send the e-mail to the new account, and logs that.
    becomes("the log is in the bundle", async || {
        let _ = std::fs::remove_file(&file);
        succeeds(&mut bundle(house.folder.path(), &file));
        unpacked(&file).get("log.txt").is_some_and(|log| log.contains("a delivery failed"))
    })
    .await;
    let parts = unpacked(&file);
    has(&parts, "README.txt", &["Support bundle of isobar"]);
    has(&parts, "settings.txt", &["mail.smtp_url = \"smtp://***@127.0.0.1:1\" (ISOBAR_MAIL__SMTP_URL)", "listen = "]);
    has(&parts, "settings-of-the-process.txt", &["rate_limit.user = \"0\" (ISOBAR_RATE_LIMIT__USER)", &free]);
    has(&parts, "versions.txt", &["isobar: ", "commit: ", "kernel: Linux", "steps of the registry: ", "SQLite 3."]);
    has(&parts, "versions.txt", &["format of telemetry: ", "layout of the data folder: 2"]);
    has(&parts, "ready.txt", &["\"status\":\"up\""]);
    has(&parts, "metrics.txt", &["isobar_ready{part=\"registry\"} 1", "process_resident_memory_bytes"]);
    has(&parts, "disks.txt", &["bytes free of"]);
    has(&parts, "files.txt", &["registry.db", "telemetry/CURRENT"]);
    has(&parts, "backups.txt", &["No backup was recorded."]);
    assert!(!parts["log.txt"].contains("\"DEBUG\""), "{}", parts["log.txt"]);

    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&file).unwrap();
    let refused = failure(&bundle(house.folder.path(), &file).output().unwrap());
    assert!(refused.contains("is there already"), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

// Holds: c16.supportBundle
#[test]
fn bundle_of_a_stopped_platform_notes_what_is_missing() {
    let (data, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_eq!(Serving::on(data.path(), &ENVIRONMENT).stop(), Some(0));
    let file = place.path().join("stopped.tar.gz");
    let made = succeeds(&mut bundle(data.path(), &file));
    let parts = unpacked(&file);
    has(&parts, "versions.txt", &["steps of the registry: ", "format of telemetry: ", "layout of the data folder: 2"]);
    for part in ["ready.txt", "metrics.txt", "log.txt"] {
        has(&parts, "README.txt", &[&format!("Could not be had: {part}: ")]);
        assert!(text(&made.stdout).contains(&format!("Could not be had: {part}: ")), "{made:?}");
    }
    // The service's journal has lines of the program, and what it has printed once.
    let journal = data.path().join("journalctl");
    let lines = r#"{"level":"ERROR","message":"cannot start for smtp-secret","to":"person-secret@example.com"}"#;
    let script = format!("#!/bin/sh\necho 'the password is registry-secret'\necho '{lines}'\n");
    std::fs::write(&journal, script).unwrap();
    std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o700)).unwrap();
    let file = place.path().join("journal.tar.gz");
    succeeds(&mut bundle(data.path(), &file));
    has(&unpacked(&file), "log.txt", &["the journal of isobar.service; 1 are left out", "cannot start for ***"]);
    // The databases are not there, nor is the folder.
    let file = place.path().join("away.tar.gz");
    let registry = "postgres://isobar:registry-secret@127.0.0.1:1/isobar?sslmode=disable";
    let telemetry = "postgres://isobar:telemetry-secret@127.0.0.1:1/isobar";
    let away = place.path().join("nothing");
    let mut command = bundle(&away, &file);
    command.env("ISOBAR_STORES__REGISTRY", registry).env("ISOBAR_STORES__TELEMETRY", telemetry);
    command
        .env("ISOBAR_HTTP__ACME_EMAIL", "acme-secret@example.com")
        .env("ISOBAR_HTTP__ACME_DOMAINS", "iot.example.com");
    succeeds(&mut command);
    let parts = unpacked(&file);
    has(&parts, "settings.txt", &["stores.registry = \"postgres://***@127.0.0.1:1/isobar?***\""]);
    has(&parts, "versions.txt", &["127.0.0.1:1/isobar: PostgreSQL "]);
    assert!(!away.exists(), "nothing was made on the way");
}

// Holds: c16.supportBundle
#[test]
fn bundle_that_cannot_be_written_leaves_nothing() {
    let (data, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [link, folder, new] = ["link", "folder", "new"].map(|name| place.path().join(name));
    symlink(place.path().join("elsewhere"), &link).unwrap();
    std::fs::create_dir(&folder).unwrap();
    for there in [&link, &folder] {
        let refused = failure(&bundle(data.path(), there).output().unwrap());
        assert!(refused.contains("is there already"), "{refused}");
    }
    assert!(!place.path().join("elsewhere").exists());
    failure(&bundle(data.path(), &folder.join("missing/new")).output().unwrap());
    // No file may have a single byte, as on a full disk.
    let inner = bundle(data.path(), &new);
    let full = Command::new("/bin/sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .output()
        .unwrap();
    let refused = failure(&full);
    assert!(refused.contains("cannot write") && !new.exists(), "{refused}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
}
