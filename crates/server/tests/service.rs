//! The program as a service: reports to its service manager, health checks, manual pages and completions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use program_support::{Serving, failure, isobar, text};

/// Longest wait for a report, on a busy machine.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of a report.
const REPORT_BYTES_MAX: usize = 4096;

/// A service manager that receives reports.
struct Manager(UnixDatagram);

impl Manager {
    fn hears(&self) -> String {
        let mut report = [0; REPORT_BYTES_MAX];
        let length = self.0.recv(&mut report).unwrap();
        text(&report[..length])
    }

    fn hears_until(&self, state: &str) -> String {
        loop {
            let report = self.hears();
            if report.lines().any(|line| line == state) {
                return report;
            }
        }
    }
}

#[test]
fn service_manager_is_notified_of_ready_alive_and_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&socket).unwrap());
    manager.0.set_read_timeout(Some(REPORT_TIMEOUT)).unwrap();
    let environment = [("NOTIFY_SOCKET", socket.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let serving = Serving::on(&folder.path().join("data"), &environment);
    let ready = manager.hears_until("READY=1");
    assert!(ready.contains(&format!("STATUS=Serves http://{}", serving.address)), "{ready}");
    for _ in 0..3 {
        manager.hears_until("WATCHDOG=1");
    }
    serving.tell_to_stop();
    manager.hears_until("STOPPING=1");
    assert_eq!(serving.ended(), Some(0));
}

#[test]
fn absent_service_manager_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let environment = [("NOTIFY_SOCKET", gone.to_str().unwrap()), ("WATCHDOG_USEC", "0")];
    let serving = Serving::on(&folder.path().join("data"), &environment);
    assert!(serving.get("/health/ready").starts_with("HTTP/1.1 200"));
    assert_eq!(serving.stop(), Some(0));
}

#[test]
fn health_reports_the_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &[]);
    let address = serving.address.clone();
    let health = || isobar(&["health", "--listen", &address]).output().unwrap();
    assert!(health().status.success(), "{:?}", health());
    assert_eq!(serving.stop(), Some(0));
    assert!(failure(&health()).contains(&format!("no answer from {address}")));
}

#[test]
fn health_behind_https_names_the_setting_it_needs() {
    let environment = [("ISOBAR_HTTP__TLS_CERTIFICATE", "/cert.pem"), ("ISOBAR_HTTP__TLS_KEY", "/key.pem")];
    let told = failure(&isobar(&["health"]).envs(environment).output().unwrap());
    assert!(told.contains("http.operations_listen"), "{told}");
}

/// Returns the commands in `isobar --help`.
fn commands() -> Vec<String> {
    let help = text(&isobar(&["--help"]).output().unwrap().stdout);
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    names.map(|line| line.split(' ').next().unwrap().to_owned()).filter(|name| name != "help").collect()
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&isobar(&["completions", shell]).output().unwrap().stdout);
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
}

#[test]
fn manual_has_a_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let made = isobar(&["man"]).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("isobar.1").contains("isobar\\-serve(1)"), "{}", page("isobar.1"));
    for command in commands() {
        assert!(page(&format!("isobar-{command}.1")).contains(".SH SYNOPSIS"), "{command}");
    }
    let inaccessible = isobar(&["man", "/dev/null/pages"]).output().unwrap();
    assert!(failure(&inaccessible).contains("/dev/null/pages"));
}
