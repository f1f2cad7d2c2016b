//! The program for an operator: commands, messages and exit codes (contract: The program).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use isobar_power::becomes_blocking;
use program_support::house::House;
use program_support::{Serving, failure, isobar, text};
use rustix::process::{Pid, Signal, kill_process};

// Holds: c12.commands
#[test]
fn printed_settings_file_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isobar.toml");
    let printed = isobar(&["config"]).output().unwrap();
    std::fs::write(&file, &printed.stdout).unwrap();
    let checked = isobar(&["check-config", "--config"]).arg(&file).output().unwrap();
    assert!(printed.status.success() && checked.status.success(), "{checked:?}");
    assert!(text(&checked.stdout).starts_with("The settings are sound."));
}

// Holds: c12.settings
#[test]
fn invalid_setting_is_named_at_start_with_its_source() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["serve", "check-config"] {
        let refused = isobar(&[command, "--log", "loud", "--data"])
            .arg(folder.path())
            .envs([("ISOBAR_HTTP__TREADS", "2"), ("ISOBAR_QUEUE__MAX_EVENTS", "0")])
            .output()
            .unwrap();
        let told = failure(&refused);
        for part in ["3 settings", "--log", "ISOBAR_HTTP__TREADS", "http.threads?", "ISOBAR_QUEUE__MAX_EVENTS"] {
            assert!(told.contains(part), "{command}: {part} is missing in: {told}");
        }
    }
}

// Holds: c12.settings
#[test]
fn unknown_variable_does_not_stop_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let checked = isobar(&["check-config"]).env("ISOBAR_BIN", "/opt/isobar").output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert!(text(&checked.stdout).contains("ISOBAR_BIN: is no setting and is ignored"), "{checked:?}");
    let log = folder.path().join("log");
    let mut serving = isobar(&["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("data"))
        .env("ISOBAR_BIN", "/opt/isobar")
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let is_ready = lines.map_while(Result::ok).any(|line| line.starts_with("Isobar is ready"));
    serving.kill().unwrap();
    serving.wait().unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(is_ready && log.contains("ISOBAR_BIN: is no setting and is ignored"), "{log}");
}

// Holds: c12.commands
#[test]
fn openapi_document_is_json() {
    let printed = isobar(&["openapi"]).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
}

// Holds: c12.commands
#[test]
fn version_is_printed() {
    let printed = isobar(&["--version"]).output().unwrap();
    assert_eq!(text(&printed.stdout), format!("isobar {}\n", env!("CARGO_PKG_VERSION")));
}

// Holds: c3.firstStart, c12.ready
#[test]
fn server_reports_ready_and_stops_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let first = Serving::on(folder.path(), &[]);
    assert!(first.before.contains("admin"), "the first password is shown: {:?}", first.before);
    assert!(first.get("/health/ready").starts_with("HTTP/1.1 200"));
    assert_eq!(first.stop(), Some(0));
    let second = Serving::on(folder.path(), &[]);
    assert_eq!(second.before, "", "the first password is shown once");
    assert_eq!(second.interrupt(), Some(0));
}

#[test]
fn sighup_rereads_levels_and_certificate_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let certify = || {
        let made = rcgen::generate_simple_self_signed(["isobar.test".to_owned()]).unwrap();
        std::fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(at("certificate.pem"), made.cert.pem()).unwrap();
    };
    let set_level = |level: &str| {
        let files = format!("tls_certificate = {:?}\ntls_key = {:?}\n", at("certificate.pem"), at("key.pem"));
        std::fs::write(at("isobar.toml"), format!("log = {level:?}\n[http]\n{files}")).unwrap();
    };
    certify();
    set_level("warn");
    let mut serving = isobar(&["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(at("isobar.toml"))
        .arg("--data")
        .arg(at("data"))
        .stdout(Stdio::piped())
        .stderr(File::create(at("log")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("Isobar is ready")));
    let send = |signal| kill_process(Pid::from_child(&serving), signal).unwrap();
    let log = || std::fs::read_to_string(at("log")).unwrap();
    send(Signal::USR1);
    send(Signal::USR2);
    set_level("loud");
    send(Signal::HUP);
    becomes_blocking("a refused level", || log().contains("cannot reread the settings"));
    assert!(log().contains("loud") && !log().contains("INFO"), "{}", log());
    set_level("info");
    certify();
    send(Signal::HUP);
    becomes_blocking("a new certificate", || log().contains("SIGHUP: new certificate in use"));
    assert!(log().contains("SIGHUP: levels of the log reread"), "{}", log());
    std::fs::write(at("key.pem"), "rubbish").unwrap();
    send(Signal::HUP);
    becomes_blocking("a refused certificate", || log().contains("SIGHUP: cannot use the new certificate"));
    send(Signal::TERM);
    assert_eq!(serving.wait().unwrap().code(), Some(0));
}

#[test]
fn files_of_the_server_are_for_its_own_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("new");
    let serving = Serving::on(&folder, &[]);
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).chain([folder.clone()]) {
            // Files of the stores come and go.
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
            if metadata.is_dir() && path != folder {
                folders.push(path);
            }
        }
    }
    assert_eq!(serving.stop(), Some(0));
}

// Holds: c3.firstStart, c12.adminPassword
#[test]
fn given_password_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", "chosen-by-me")]);
    assert_eq!(serving.before, "");
    assert_eq!(serving.stop(), Some(0));
}

// Holds: c12.second
#[test]
fn second_process_on_a_folder_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let first = Serving::on(folder.path(), &[]);
    let second = isobar(&["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path()).output().unwrap();
    let told = failure(&second);
    assert!(told.contains("in use") && told.contains(&format!("pid {}", first.id())), "{told}");
    assert!(first.get("/health/ready").starts_with("HTTP/1.1 200"), "the first one goes on");
    assert_eq!(first.stop(), Some(0));
}

// Holds: c12.second
#[test]
fn newer_folder_and_taken_port_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("VERSION"), "99\n").unwrap();
    let newer = isobar(&["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path()).output().unwrap();
    assert!(failure(&newer).contains("newer isobar"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let other = tempfile::tempdir().unwrap();
    let refused = isobar(&["serve", "--listen", &address, "--data"]).arg(other.path()).output().unwrap();
    assert!(failure(&refused).contains(&format!("cannot listen on {address}")));
}

// Holds: c14.tls
#[test]
fn unusable_certificate_stops_the_start_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let made = rcgen::generate_simple_self_signed(["isobar.test".to_owned()]).unwrap();
    let starts = |certificate_says: &str, key_says: &str| {
        std::fs::write(&certificate, certificate_says).unwrap();
        std::fs::write(&key, key_says).unwrap();
        let mut command = isobar(&["serve", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(folder.path().join("data"));
        command.env("ISOBAR_HTTP__TLS_CERTIFICATE", &certificate).env("ISOBAR_HTTP__TLS_KEY", &key);
        failure(&command.output().unwrap())
    };
    let (right, other) = (made.signing_key.serialize_pem(), rcgen::KeyPair::generate().unwrap().serialize_pem());
    assert!(starts("", &right).contains("cert.pem holds no certificate in PEM form"));
    assert!(starts(&made.cert.pem(), &made.cert.pem()).contains("key.pem holds no private key in PEM form"));
    let told = starts(&made.cert.pem(), &other);
    assert!(told.contains("cannot use the certificate") && told.contains("key.pem"), "{told}");
    std::fs::remove_file(&key).unwrap();
    let mut command = isobar(&["serve", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(folder.path().join("data"));
    command.env("ISOBAR_HTTP__TLS_CERTIFICATE", &certificate).env("ISOBAR_HTTP__TLS_KEY", &key);
    let told = failure(&command.output().unwrap());
    assert!(told.contains("cannot read") && told.contains("key.pem"), "{told}");
}

#[test]
fn simulation_without_a_server_fails_with_a_reason() {
    let output = isobar(&["simulate", "--url", "http://127.0.0.1:1", "--password", "x"]).output().unwrap();
    assert!(failure(&output).contains("cannot connect"));
}

// Holds: c12.commands
#[test]
fn simulation_of_every_profile_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", "chosen-by-me")]);
    let url = format!("http://{}", serving.address);
    for profile in ["smart-meter", "smart-tracker", "industrial-plc"] {
        let run =
            ["simulate", "--url", &url, "--devices", "5", "--rate", "100", "--duration", "1s", "--json", "--cleanup"];
        let output = isobar(&run).args(["--profile", profile]).env("ISOBAR_PASSWORD", "chosen-by-me").output().unwrap();
        let told = text(&output.stderr);
        assert!(output.status.success(), "{profile}: {told}");
        assert!(told.contains("deleted 5 devices"), "{profile}: {told}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(summary["events"].as_u64().unwrap() > 0, "{profile}: {summary}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{profile}");
    }
    assert_eq!(serving.stop(), Some(0));
}

#[test]
fn simulation_reports_exhausted_rate_limits() {
    let folder = tempfile::tempdir().unwrap();
    let environment = [("ISOBAR_ADMIN_PASSWORD", "chosen-by-me"), ("ISOBAR_RATE_LIMIT__DEVICE", "5")];
    let serving = Serving::on(folder.path(), &environment);
    let url = format!("http://{}", serving.address);
    let run = ["simulate", "--url", &url, "--devices", "2", "--rate", "100", "--for", "3s", "--json"];
    let output = isobar(&run).env("ISOBAR_PASSWORD", "chosen-by-me").output().unwrap();
    assert!(output.status.success(), "whoever waits for its limit makes no error: {}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // If a minute ends meanwhile, each device has a second window.
    assert!((2..=4).contains(&summary["rateLimitSpent"].as_u64().unwrap()), "{summary}");
    assert!((10..=20).contains(&summary["events"].as_u64().unwrap()), "{summary}");
    assert!(text(&output.stderr).contains("rate limits spent"));
    assert_eq!(serving.stop(), Some(0));
}

#[test]
fn unreachable_database_is_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    // No server listens there.
    let address = "127.0.0.1:1";
    let refused = isobar(&["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .env("ISOBAR_STORES__REGISTRY", format!("postgres://isobar:hidden-word@{address}/isobar"))
        .output()
        .unwrap();
    let told = failure(&refused);
    assert!(told.contains("the registry cannot be opened") && told.contains("refused"), "{told}");
    assert!(!told.contains("hidden-word"), "{told}");
}

/// Checks a page by the rules of `promtool check metrics` on names; returns the faults.
fn lint(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut helped, mut kinds) = (BTreeSet::new(), BTreeMap::new());
    for line in page.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(_)) => {
                helped.insert(name);
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                kinds.insert(name, kind);
            }
            _ => {}
        }
    }
    for line in page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let sample = line.split(['{', ' ']).next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| sample.strip_suffix(part));
        let name = parts.filter(|name| kinds.contains_key(name)).unwrap_or(sample);
        let mut wrong = |what: &str| found.push(format!("{name}: {what}"));
        let Some(kind) = kinds.get(name) else {
            wrong("no type");
            continue;
        };
        if !helped.contains(name) {
            wrong("no help text");
        }
        if (*kind == "counter") != name.ends_with("_total") {
            wrong("counters, and only they, end in _total");
        }
        if name
            .split('_')
            .any(|word| ["milliseconds", "ms", "minutes", "kilobytes", "kb", "mb", "percent"].contains(&word))
        {
            wrong("not in base units");
        }
        if name.split('_').any(|word| [*kind, "counter", "gauge", "histogram", "summary"].contains(&word)) {
            wrong("the type stands in the name");
        }
        if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            wrong("not in snake_case");
        }
    }
    found.sort();
    found.dedup();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_a_help_and_a_valid_name() {
    let house = House::open().await;
    for number in 0..10 {
        house.serves(number).await;
    }
    house.api.send_as_admin(reqwest::Method::GET, "/v2/nothing", None).await.unwrap();
    let page = house.api.send(reqwest::Method::GET, "/metrics", &[], None).await.unwrap().body;
    for expected in [
        "isobar_http_requests_total{",
        "isobar_telemetry_batch_commits",
        "isobar_telemetry_sync_seconds",
        // A counter exists before its first count.
        "isobar_telemetry_refused_total 0",
        "isobar_ready{part=\"registry\"} 1",
        "isobar_ready{part=\"telemetry\"} 1",
        "isobar_ready{part=\"workers\"} 1",
        "isobar_disk_free_bytes",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert_eq!(lint(&page), [""; 0], "{page}");
    // The rules find known faults.
    let bad = "# TYPE a_ms gauge\na_ms 1\n# HELP b x\n# TYPE b counter\nb{c=\"d\"} 1\nc 2\n";
    assert_eq!(lint(bad).len(), 4, "{:?}", lint(bad));
}
