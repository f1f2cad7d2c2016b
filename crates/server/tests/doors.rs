//! More connections than the limit: connected clients and new ones are served, and the stores keep the file descriptors
//! that they need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::path::Path;
use std::process::Command;

use program_support::house::{House, until};
use program_support::site::ENVIRONMENT;
use program_support::{isobar, serve};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Returns a server command with a limit of open files.
fn with_files(folder: &Path, files: u32) -> Command {
    let serve = serve(folder, &ENVIRONMENT);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(serve.get_program());
    command.args(serve.get_args()).stdin(std::process::Stdio::null());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Opens idle connections.
async fn silent(house: &House, count: usize) -> Vec<TcpStream> {
    let mut silent = Vec::with_capacity(count);
    for _ in 0..count {
        silent.push(house.connect().await);
    }
    silent
}

// Holds: c14.connections
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_take_no_file_of_the_stores() {
    const FILES: u32 = 500;
    let house = House::with(|folder| with_files(folder, FILES)).await;
    let most = house.api.metric("isobar_http_connections_max").await;
    assert_eq!(most, f64::from(FILES) - isobar_store::FILES_MAX as f64);
    let held = silent(&house, 2 * FILES as usize).await;
    for number in 0..30 {
        house.serves(number).await;
        assert!(house.connections().await <= most + 1.0);
    }
    // A backup by the server opens files of both stores.
    let copy = tempfile::tempdir().unwrap();
    let mut backup = isobar(&["backup"]);
    backup.arg(copy.path()).arg("--data").arg(house.folder.path()).args(["--config", "/dev/null"]);
    let made = backup.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert!(house.serving.get("/health/ready").starts_with("HTTP/1.1 200"));
    assert!(house.api.metric("isobar_http_connections_ended_total").await > 0.0);
    assert_eq!(house.api.metric("isobar_http_accept_failures_total").await, 0.0);
    drop(held);
    house.is_left_alone().await;
    assert_eq!(house.history().await.len(), 30);
}

// Holds: c14.connections
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_connection_survives_a_flood_of_silent_ones() {
    let house = House::with(|folder| {
        let mut command = serve(folder, &ENVIRONMENT);
        command.env("ISOBAR_HTTP__MAX_CONNECTIONS", "32");
        command
    })
    .await;
    let (token, address) = (&house.device.token, &house.serving.address);
    let (name, value) = house.api.credentials();
    let path = format!("/v2/events/stream?deviceId={}", house.device.id);
    let mut stream = house.connect().await;
    let asks = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{name}: {value}\r\n\r\n");
    stream.write_all(asks.as_bytes()).await.unwrap();
    until(&mut stream, "\r\n\r\n").await;
    let mut poll = house.connect().await;
    let asks = format!("GET /v2/events/cloud?wait=60 HTTP/1.1\r\nhost: {address}\r\ncloud: {token}\r\n\r\n");
    poll.write_all(asks.as_bytes()).await.unwrap();
    let mut regular = house.connect().await;
    let mut posts = async |number: u32| {
        regular.write_all(house.post(&format!(r#"{{"n":{number}}}"#)).as_bytes()).await.unwrap();
        assert!(until(&mut regular, "}").await.starts_with("HTTP/1.1 201"));
    };
    posts(0).await;
    let held = silent(&house, 150).await;
    for number in 1..20 {
        posts(number).await;
    }
    house.serves(20).await;
    until(&mut stream, r#"{"n":20}"#).await;
    // The first event has ended the wait.
    assert!(until(&mut poll, "]").await.starts_with("HTTP/1.1 200"));
    drop(held);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accept_waits_for_free_files() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let house = House::open().await;
    // An existing connection with a request always pending, so that it stays.
    let mut there = house.connect().await;
    let asks = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", house.serving.address);
    there.write_all(asks.as_bytes()).await.unwrap();
    assert_eq!(failures(&mut there).await, 0);
    there.write_all(asks.as_bytes()).await.unwrap();
    let server = Pid::from_raw(i32::try_from(house.serving.id()).unwrap());
    let limit = |files| {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        prlimit(server, Resource::Nofile, Rlimit { current: files, maximum }).unwrap()
    };
    let before = limit(Some(3));
    let mut comes = house.connect().await;
    comes.write_all(house.post(r#"{"n":1}"#).as_bytes()).await.unwrap();
    isobar_power::becomes("two failures to accept", async || {
        let has_failed = failures(&mut there).await >= 2;
        if !has_failed {
            there.write_all(asks.as_bytes()).await.unwrap();
        }
        has_failed
    })
    .await;
    limit(before.current);
    assert!(until(&mut comes, "}").await.starts_with("HTTP/1.1 201"));
    house.serves(2).await;
    assert_eq!(house.history().await, [2, 1]);
}

/// Reads the number of failed accepts from the next answer on a connection that asks for /metrics.
#[cfg(target_os = "linux")]
async fn failures(there: &mut TcpStream) -> u64 {
    const FAILURES: &str = "\nisobar_http_accept_failures_total ";
    let mut said = until(there, FAILURES).await;
    loop {
        if let Some((number, _)) = said.rsplit_once(FAILURES).and_then(|(_, rest)| rest.split_once('\n')) {
            return number.parse().unwrap();
        }
        said.push_str(&until(there, "").await);
    }
}
