//! Connections of a hostile client.

use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use isobar_model::time::Clock;
use reqwest::Method;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::malice;
use crate::program_support::Serving;
use crate::program_support::house::{STEP_EVERY, until};
use crate::program_support::serve;
use crate::program_support::site::{ENVIRONMENT, PASSWORD};
use crate::street::{EVENTS, ONE_THREAD, Street};

const LOGIN: &str = "/v2/auth/login";
/// Largest body of operations without credentials, in bytes.
const OPEN_BYTES_MAX: usize = 16 << 10;
/// Limit of open files, and a larger number of silent connections.
const FILES: usize = 2_048;
const SILENT: usize = 2_200;
/// Connections that are opened concurrently.
const AT_ONCE: usize = 64;
/// Slow bodies without credentials, and of a device.
const DRIPS: usize = 200;
const DRIPS_OF_A_DEVICE: usize = 32;
/// Longest wait for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Opens a request whose body lacks its end.
async fn drips(street: &Street, path: &str, credential: &str, bytes: usize) -> TcpStream {
    let address = &street.serving.address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{credential}content-type: application/json\r\n\
         content-length: {bytes}\r\n\r\n"
    );
    // A refused body may not be read to its end.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(" ".repeat(bytes - 100).as_bytes()).await;
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_without_credentials_are_refused_at_once() {
    let street = Street::open().await;
    let body = malice::colliding(240_000);
    let logs_in = async || {
        let answer = street.hostile.send_text(Method::POST, LOGIN, &[], Some(body.clone())).await.unwrap();
        assert_eq!(answer.status, 413, "{}", answer.body);
        assert!(answer.body.contains(&format!("at most {OPEN_BYTES_MAX} bytes")), "{}", answer.body);
    };
    logs_in().await;
    // A body without its length is refused early too.
    let mut dripping = drips(&street, LOGIN, "", 1 << 20).await;
    assert!(until(&mut dripping, "]}").await.starts_with("HTTP/1.1 413"));
    street.beside(async || drop(join_all((0..4).map(|_| logs_in())).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_take_little_memory_and_delay_nobody() {
    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    let token = format!("cloud: {}\r\n", device.token);
    let opened = (0..DRIPS).map(|_| drips(&street, LOGIN, "", OPEN_BYTES_MAX));
    let mut open = join_all(opened).await;
    open.extend(join_all((0..DRIPS_OF_A_DEVICE).map(|_| drips(&street, EVENTS, &token, 1 << 20))).await);
    let open = Mutex::new(open);
    let drip = async || {
        for stream in open.lock().await.iter_mut() {
            // Bodies end with their connections.
            let _ = stream.try_write(b" ");
        }
        Clock::System.sleep(STEP_EVERY).await;
    };
    street.beside(drip).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_closed_for_active_ones() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let environment = [ENVIRONMENT.as_slice(), &[ONE_THREAD]].concat();
    let serving = Serving::of(with_files(&serve(folder.path(), &environment)));
    let street = Street::on(serving, folder).await;
    let held = Mutex::new(Vec::new());
    let fill = async || {
        let mut held = held.lock().await;
        held.retain(|stream: &TcpStream| {
            matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
        for _ in 0..SILENT.saturating_sub(held.len()).div_ceil(AT_ONCE) {
            let opening = join_all((0..AT_ONCE).map(|_| TcpStream::connect(&street.serving.address)));
            held.extend(Clock::System.timeout(CONNECT_TIME, opening).await.unwrap_or_default().into_iter().flatten());
        }
        Clock::System.sleep(STEP_EVERY).await;
    };
    fill().await;
    street.beside(fill).await;
    assert!(street.serving.get("/health/ready").starts_with("HTTP/1.1 200"));
}

/// Returns the same command with a limit of open files.
fn with_files(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {FILES} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_behind_a_proxy_lock_out_the_guesser_alone() {
    let street = Street::with(&[("ISOBAR_HTTP__TRUSTED_PROXIES", "127.0.0.1")]).await;
    let logs_in = async |from: &str, password: &str| {
        let login = json!({"usernameOrEmail": "ana", "password": password});
        let headers = [("x-forwarded-for", from)];
        street.hostile.send(Method::POST, LOGIN, &headers, Some(&login)).await.unwrap().status
    };
    for _ in 0..10 {
        assert_eq!(logs_in("203.0.113.7", "guessed").await, 401);
    }
    street
        .beside(async || {
            // Another proxy named in front does not hide the client, nor does a successful login elsewhere.
            assert_eq!(logs_in("192.0.2.1, 203.0.113.7", "guessed").await, 429);
            assert_eq!(logs_in("203.0.113.7", PASSWORD).await, 429);
            assert_eq!(logs_in("198.51.100.20", PASSWORD).await, 201);
        })
        .await;
}
