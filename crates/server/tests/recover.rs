//! Lost data is reported, and nothing starts without it unless an operator agrees; a full disk ends the process, for a
//! restart (docs/reliability.md).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use isobar_power::StoppingClock;
use program_support::site::{Api, Device, ENVIRONMENT, everything};
use program_support::{Serving, failure, house, isobar, serve, text};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

fn command(arguments: &[&str], data: &Path) -> Output {
    isobar(arguments).arg("--data").arg(data).args(["--config", "/dev/null"]).output().unwrap()
}

/// Returns the largest file of the telemetry store's log.
fn log(data: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(data.join("telemetry")).unwrap().map(|file| file.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
    logs.max_by_key(|log| log.metadata().unwrap().len()).unwrap()
}

fn telemetry(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(data.join("telemetry")).unwrap().map(|file| file.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

async fn ids(api: &Api, device: &Device) -> Vec<String> {
    let path = format!("/v2/devices/{}/events?limit=10000&cloudEvents=false", device.id);
    let mut ids: Vec<_> = api.list(&path).await.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    ids.reverse();
    ids
}

#[tokio::test]
async fn damaged_log_is_refused_until_an_operator_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    let mut told = Vec::new();
    for n in 0..40 {
        told.push(api.post(&device, "reading", &json!({"n": n})).await.created());
    }
    serving.kill();

    let log = log(data);
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&log, bytes).unwrap();
    let damaged = telemetry(data);
    for _ in 0..2 {
        let refused = failure(&command(&["serve", "--listen", "127.0.0.1:0"], data));
        assert!(refused.contains("write-ahead log is damaged") && refused.contains("isobar recover"), "{refused}");
        let found = command(&["check"], data);
        assert_eq!(found.status.code(), Some(1));
        assert!(text(&found.stdout).contains("write-ahead log is damaged"), "{found:?}");
        let asked = command(&["recover"], data);
        assert_eq!(asked.status.code(), Some(1));
        assert!(text(&asked.stdout).contains("rows that were acknowledged"), "{asked:?}");
        assert!(telemetry(data) == damaged, "nothing is changed by asking");
    }

    let done = command(&["recover", "--yes"], data);
    assert!(done.status.success(), "{done:?}");
    assert!(text(&command(&["recover"], data).stdout).contains("nothing to recover"));
    let checked = command(&["check"], data);
    assert!(text(&checked.stdout).contains("Everything is sound."), "{checked:?}");
    let aside = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<_> =
        aside.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("dropped-")).collect();
    assert_eq!(
        std::fs::read(aside[0].join(log.file_name().unwrap())).unwrap(),
        damaged[log.file_name().unwrap().to_str().unwrap()]
    );

    let serving = Serving::on(data, &ENVIRONMENT);
    let api = api.at(&serving);
    let left = ids(&api, &device).await;
    assert!(!left.is_empty() && left.len() < told.len() && told.starts_with(&left), "{left:?} of {told:?}");
    told.truncate(left.len());
    told.push(api.post(&device, "reading", &json!({"n": 100})).await.created());
    assert_eq!(ids(&api, &device).await, told);
    assert_eq!(serving.stop(), Some(0));
}

#[test]
fn other_telemetry_is_refused_until_an_operator_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let (data, other) = (folder.path().join("data"), folder.path().join("other"));
    for data in [&data, &other] {
        assert_eq!(Serving::on(data, &ENVIRONMENT).stop(), Some(0));
    }
    let (own, strange) = (data.join("telemetry"), other.join("telemetry"));
    let with_other = |arguments: &[&str]| {
        let mut command = isobar(arguments);
        command.arg("--data").arg(&data).args(["--config", "/dev/null"]);
        command.env("ISOBAR_STORES__TELEMETRY", format!("rocksdb:{}", strange.display())).output().unwrap()
    };
    let names_both = |told: &str| {
        let names = [&own, &strange].map(|path| told.contains(&path.display().to_string()));
        assert!(names == [true; 2] && told.contains("isobar recover"), "{told}");
    };
    names_both(&failure(&with_other(&["serve", "--listen", "127.0.0.1:0"])));
    let checked = with_other(&["check"]);
    assert_eq!(checked.status.code(), Some(1));
    names_both(&text(&checked.stdout));
    assert!(text(&command(&["check"], &data).stdout).contains("Everything is sound."));

    std::fs::remove_dir_all(&own).unwrap();
    let refused = failure(&command(&["serve", "--listen", "127.0.0.1:0"], &data));
    assert!(refused.contains("there is no telemetry store") && !own.exists(), "{refused}");
    let asked = command(&["recover"], &data);
    assert!(asked.status.code() == Some(1) && text(&asked.stdout).contains("not that of the registry"), "{asked:?}");
    let done = command(&["recover", "--yes"], &data);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(Serving::on(&data, &ENVIRONMENT).stop(), Some(0));
    names_both(&failure(&with_other(&["serve", "--listen", "127.0.0.1:0"])));
}

#[tokio::test]
async fn alarm_outlives_telemetry_that_an_operator_gave_up() {
    let to = |element: &str, ability: &str| json!([{"element": element, "ability": ability}]);
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": to("isWarm", "evaluate")}},
        "isWarm": {
            "type": "condition",
            "properties": {"expression": "payload > 8"},
            "triggers": {"true": to("warm", "raise"), "false": to("warm", "clear")},
        },
        "warm": {"type": "alarm", "properties": {"title": "it is warm", "severity": "critical"}},
    });
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let device = api.found(&design, 1).await.remove(0);
    let alarm = async |api: &Api| {
        let listed = api.list("/v2/alarms").await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        (listed[0]["id"].clone(), listed[0]["state"].clone(), listed[0]["count"].clone())
    };
    api.post(&device, "reading", &json!(9)).await.created();
    let (id, state, count) = alarm(&api).await;
    assert_eq!((&state, &count), (&json!("active"), &json!(1)));
    assert_eq!(serving.stop(), Some(0));

    std::fs::remove_dir_all(data.join("telemetry")).unwrap();
    let done = command(&["recover", "--yes"], data);
    assert!(done.status.success(), "{done:?}");
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = api.at(&serving);
    assert_eq!(alarm(&api).await, (id.clone(), state, count));
    for (payload, state, count) in [(4, "cleared", 1), (9, "active", 2)] {
        api.post(&device, "reading", &json!(payload)).await.created();
        assert_eq!(alarm(&api).await, (id.clone(), json!(state), json!(count)));
    }
    assert_eq!(serving.stop(), Some(0));
}

/// Returns `isobar serve` with files limited to `blocks` of 512 bytes.
fn bounded(data: &Path, blocks: u32) -> Command {
    let serve = isobar(&[]);
    let mut command = Command::new("sh");
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(serve.get_program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data"]).arg(data);
    command.envs(ENVIRONMENT);
    command
}

/// Posts until the disk is full; returns the acknowledged ids after the process has ended.
async fn until_full(data: &Path) -> (Api, Device, Vec<String>) {
    let mut command = bounded(data, 8_192);
    let said = data.join("../said");
    command.stderr(std::fs::File::create(&said).unwrap());
    let serving = Serving::of(command);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    let (mut told, filling) = (Vec::new(), "x".repeat(60_000));
    let credential = [("cloud", device.token.as_str())];
    let path = "/v2/events/device?elementName=reading";
    loop {
        let body = json!({"n": told.len(), "filling": filling});
        match api.send(Method::POST, path, &credential, Some(&body)).await {
            Ok(answer) if answer.status == 201 => told.push(answer.created()),
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{}", answer.body);
                break;
            }
            // It has ended already.
            Err(_) => break,
        }
        assert!(told.len() < 1_000, "it never became full");
    }
    assert_eq!(serving.ended(), Some(1));
    let said = std::fs::read_to_string(said).unwrap();
    assert!(said.contains("isobar: the telemetry store failed"), "{said}");
    (api, device, told)
}

#[tokio::test]
async fn full_disk_ends_the_process_without_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (api, device, told) = until_full(data_made(&data)).await;
    assert!(told.len() > 5, "{}", told.len());
    // Without space, a start fails with a message.
    let full = bounded(&data, 16).output().unwrap();
    assert!(failure(&full).contains("isobar: "), "{full:?}");
    // With space, it continues.
    let serving = Serving::on(&data, &ENVIRONMENT);
    let api = api.at(&serving);
    let mut stored = ids(&api, &device).await;
    // The last one may be stored without an acknowledgement.
    stored.truncate(told.len());
    assert_eq!(stored, told);
    api.post(&device, "reading", &json!({"n": 0})).await.created();
    let ready: Value =
        serde_json::from_str(serving.get("/health/ready").split("\r\n\r\n").nth(1).unwrap()).unwrap_or_default();
    assert!(ready["errors"].is_null(), "{ready}");
    assert_eq!(serving.stop(), Some(0));
}

/// Checks a panic in a thread of the telemetry store: requests in progress are answered, readiness names the cause, and
/// the process ends, for a restart by its supervisor.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn writer_panic_ends_the_process_without_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (data, said) = (folder.path().join("data"), folder.path().join("said"));
    let clock = StoppingClock::of_thread("telemetry-write", folder.path());
    let mut command = serve(&data, &ENVIRONMENT);
    clock.under(&mut command);
    command.stderr(std::fs::File::create(&said).unwrap());
    let serving = Serving::of(command);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    // A request in progress when the store fails.
    let mut asks = TcpStream::connect(&serving.address).await.unwrap();
    let head = format!("GET /health/ready HTTP/1.1\r\nhost: {}\r\n", serving.address);
    asks.write_all(head.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    for n in 0..10 {
        told.push(api.post(&device, "reading", &json!({"n": n})).await.created());
    }
    clock.stop().unwrap();
    let refused = api.post(&device, "reading", &json!({"n": 10})).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    asks.write_all(b"\r\n").await.unwrap();
    let ready = house::rest(&mut asks).await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("\"telemetry\""), "{ready}");
    assert_eq!(serving.ended(), Some(1));
    let said = std::fs::read_to_string(said).unwrap();
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("isobar: the telemetry store failed: ") && last.contains("telemetry-write panicked"),
        "{said}"
    );

    let serving = Serving::on(&data, &ENVIRONMENT);
    let api = api.at(&serving);
    assert_eq!(ids(&api, &device).await, told);
    told.push(api.post(&device, "reading", &json!({"n": 11})).await.created());
    assert_eq!(ids(&api, &device).await, told);
    assert_eq!(serving.stop(), Some(0));
}

fn data_made(data: &Path) -> &Path {
    std::fs::create_dir_all(data).unwrap();
    data
}

#[tokio::test]
async fn operator_confirms_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    assert!(failure(&command(&["recover", "--clock"], data)).contains("no data folder"));
    let serving = Serving::on(data, &ENVIRONMENT);
    assert!(failure(&command(&["recover", "--clock"], data)).contains("in use"));
    assert_eq!(serving.stop(), Some(0));
    let asked = command(&["recover", "--clock"], data);
    assert_eq!(asked.status.code(), Some(1));
    assert!(text(&asked.stdout).contains("believes it up to 2"), "{asked:?}");
    let done = command(&["recover", "--clock", "--yes"], data);
    assert!(text(&done.stdout).contains("The clock is believed."), "{done:?}");
    let serving = Serving::on(data, &ENVIRONMENT);
    assert_eq!(serving.stop(), Some(0));
}

#[tokio::test]
async fn truncated_manifest_is_described_in_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    Serving::on(data, &ENVIRONMENT).kill();
    let manifest = telemetry(data).into_keys().find(|name| name.starts_with("MANIFEST-")).unwrap();
    let path = data.join("telemetry").join(&manifest);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend([1, 2, 3]);
    std::fs::write(&path, bytes).unwrap();
    let checked = command(&["check"], data);
    assert_eq!(checked.status.code(), Some(1));
    let asked = command(&["recover", "--clock"], data);
    for told in [text(&checked.stdout), text(&asked.stdout)] {
        assert!(told.contains("unfinished write") && told.contains("The next start of the platform"), "{told}");
    }
    assert_eq!(Serving::on(data, &ENVIRONMENT).stop(), Some(0));
    assert!(text(&command(&["check"], data).stdout).contains("Everything is sound."));
}
