//! HTTPS without a proxy in front, and the listener for operations.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use http_body_util::BodyExt as _;
use isobar_power::{becomes, within_patience};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::TestApp;
use crate::support::https::{SecureDoor, asks, heard, reads};

const POST: &str = "/v2/events/device?elementName=reading";
/// Number of events in a batch, enough for it to take a while.
const EVENTS: usize = 500;
/// Interval of the checks for new files, and a little more.
const A_LOOK: Duration = Duration::from_secs(11);

// Holds: c14.tls
#[tokio::test]
async fn events_come_under_tls_by_both_versions_of_http() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let door = SecureDoor::beside(&app);
    let (mut old, mut new) = (door.http1().await, door.http2().await);
    let large = json!({"text": "x".repeat(200_000)}).to_string();
    for body in ["{\"n\":1}", &large] {
        let posted = heard(old.send_request(asks("POST", POST, &device.token, body.to_owned())).await.unwrap()).await;
        assert_eq!(posted.0, 201, "{posted:?}");
        old.ready().await.unwrap();
        let posted = heard(new.send_request(asks("POST", POST, &device.token, body.to_owned())).await.unwrap()).await;
        assert_eq!(posted.0, 201, "{posted:?}");
    }
    // Both versions read the same, of any size.
    let path = device.at("events?limit=10");
    let by_old = heard(old.send_request(reads(&path, &ana.jwt)).await.unwrap()).await;
    let by_new = heard(new.send_request(reads(&path, &ana.jwt)).await.unwrap()).await;
    assert_eq!(by_old.0, 200, "{by_old:?}");
    assert_eq!(by_old, by_new);
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 4);
}

#[tokio::test]
async fn answer_under_tls_makes_browsers_use_https_alone() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let door = SecureDoor::beside(&app);
    let (mut old, mut new) = (door.http1().await, door.http2().await);
    let name = "strict-transport-security";
    let by_old = old.send_request(reads("/v2/auth/user", &ana.jwt)).await.unwrap();
    let by_new = new.send_request(reads("/v2/auth/user", &ana.jwt)).await.unwrap();
    for headers in [by_old.headers(), by_new.headers()] {
        assert_eq!(headers[name], "max-age=31536000");
    }
    // Whoever ends TLS elsewhere decides it there.
    assert!(!ana.get("/v2/auth/user").await.headers.contains_key(name));
}

#[tokio::test]
async fn many_requests_share_a_connection_of_http_2() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let door = SecureDoor::beside(&app);
    let client = door.http2().await;
    let posts = (0..100).map(|number| {
        let mut client = client.clone();
        let request = asks("POST", POST, &device.token, format!("{{\"n\":{number}}}"));
        async move { heard(client.send_request(request).await.unwrap()).await.0 }
    });
    assert_eq!(join_all(posts).await, [201; 100]);
    // A stream stays open next to them, and carries the events.
    let mut client = client;
    let mut stream = client.send_request(reads("/v2/events/stream", &ana.jwt)).await.unwrap().into_body();
    let posted = heard(client.send_request(asks("POST", POST, &device.token, "{\"n\":\"live\"}")).await.unwrap()).await;
    assert_eq!(posted.0, 201);
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains("\"live\"") {
        let frame = within_patience("the stream tells of it", stream.frame()).await.unwrap().unwrap();
        told.extend_from_slice(frame.data_ref().unwrap());
    }
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 101);
    // The stream ends with the server, and the server does not wait for it.
    within_patience("the door closes", door.closes()).await;
}

#[tokio::test]
async fn request_cancelled_by_its_client_is_completed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let door = SecureDoor::beside(&app);
    let mut client = door.http2().await;
    let events: Vec<Value> = (0..EVENTS).map(|n| json!({"elementName": "log", "payload": n})).collect();
    let batch = asks("POST", "/v2/events/device/batch", &device.token, json!(events).to_string());
    let post = tokio::spawn(async move { client.send_request(batch).await });
    let stored = async || ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"].clone();
    becomes("a first event is there", async || stored().await != 0).await;
    post.abort();
    becomes("all events are there", async || stored().await == EVENTS).await;
    within_patience("the door closes", door.closes()).await;
}

#[tokio::test]
async fn repeatedly_cancelled_requests_do_no_harm() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let [given_up, other] = ["fridge", "oven"].map(|name| ana.creates_device(name));
    let (given_up, other) = (given_up.await, other.await);
    let door = SecureDoor::beside(&app);
    let hostile = door.http2().await;
    for number in 0..EVENTS {
        let mut client = hostile.clone();
        let post = asks("POST", POST, &given_up.token, json!(number).to_string());
        let mut post = Box::pin(client.send_request(post));
        // The request is sent unless the server has closed the connection by now, and its answer is ignored.
        let _ = futures::poll!(&mut post);
        tokio::task::yield_now().await;
    }
    let mut client = door.http2().await;
    let posted = heard(client.send_request(asks("POST", POST, &other.token, "2")).await.unwrap()).await;
    assert_eq!(posted.0, 201, "{posted:?}");
    within_patience("the door closes", door.closes()).await;
    let listed = ana.get(&given_up.at(&format!("events?limit={EVENTS}"))).await.list_of("/payload");
    let numbers: HashSet<u64> = listed.iter().map(|number| number.as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), listed.len(), "each is there once at most: {listed:?}");
}

// Holds: c14.tls
#[tokio::test]
async fn new_certificate_is_loaded_and_a_bad_one_is_ignored() {
    let app = TestApp::start().await;
    let mut door = SecureDoor::beside(&app);
    let address = door.address;
    // An existing connection stays open.
    let mut open = door.http1().await;
    let mut is_served = async || {
        open.ready().await.unwrap();
        heard(open.send_request(asks("GET", "/v2/spec", "", "")).await.unwrap()).await.0 == 200
    };
    assert!(is_served().await);
    door.certificates.spoil_key();
    // The files were checked three times, and the old certificate is still used.
    for _ in 0..3 {
        app.clock.pass(A_LOOK);
        door.certificates.shake_hands(address, &[]).await.unwrap();
        assert!(is_served().await);
    }
    door.certificates.renew();
    becomes("the new certificate is shown", async || {
        app.clock.pass(A_LOOK);
        is_served().await && door.certificates.shake_hands(address, &[]).await.is_ok()
    })
    .await;
    assert!(is_served().await);
}

#[tokio::test]
async fn connection_without_tls_is_closed_and_others_are_served() {
    let app = TestApp::start().await;
    let door = SecureDoor::beside(&app);
    let silent = TcpStream::connect(door.address).await.unwrap();
    for said in ["GET /v2/spec HTTP/1.1\r\nhost: isobar\r\n\r\n", "\u{16}\u{3}\u{1}\u{ff}\u{ff}rubbish"] {
        let mut socket = TcpStream::connect(door.address).await.unwrap();
        socket.write_all(said.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // The connection ends, regularly or by a reset.
        let _ = within_patience("it ends", socket.read_to_end(&mut answer)).await;
        assert!(!answer.starts_with(b"HTTP/"));
    }
    // There is no common protocol.
    assert!(door.certificates.shake_hands(door.address, &["spdy/3"]).await.is_err());
    let mut client = door.http2().await;
    assert_eq!(heard(client.send_request(asks("GET", "/v2/spec", "", "")).await.unwrap()).await.0, 200);
    let mut silent = silent;
    becomes("who says nothing is let go", async || {
        app.clock.pass(A_LOOK);
        matches!(silent.try_read(&mut [0]), Ok(0))
    })
    .await;
    let _ = silent.shutdown().await;
}

#[tokio::test]
async fn http_2_client_that_reads_nothing_is_closed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let made = device.posts("log", json!("x".repeat(900_000))).await.created();
    let path = device.at(&format!("events/{}", made["id"].as_str().unwrap()));
    let door = SecureDoor::beside(&app);
    let mut client = door
        .certificates
        .http2_with(door.address, |builder| {
            builder.initial_stream_window_size(1_000);
        })
        .await;
    let response = client.send_request(reads(&path, &ana.jwt)).await.unwrap();
    assert_eq!(response.status(), 200);
    becomes("the connection is ended", async || {
        app.clock.pass(Duration::from_secs(6));
        client.is_closed()
    })
    .await;
}

// Holds: c14.operations
#[tokio::test]
async fn untaken_answers_of_http_2_fill_a_share_of_their_tenant() {
    const ANSWER: usize = 40_000;
    let app = TestApp::start().await;
    let (ana, bob) = (app.developer("ana").await, app.stranger("bob").await);
    let device = ana.creates_device("fridge").await;
    let made = device.posts("log", json!("x".repeat(ANSWER))).await.created();
    let path = device.at(&format!("events/{}", made["id"].as_str().unwrap()));
    let door = SecureDoor::with(&app, |http| http.http2_answer_bytes_max = 10 * ANSWER);
    let mut held = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..2 {
        // A window of one byte: the server has handed out the answers, and nobody takes them.
        let slow = door.certificates.http2_with(door.address, |builder| {
            builder.initial_stream_window_size(1);
        });
        let mut slow = slow.await;
        for _ in 0..10 {
            let answer = slow.send_request(reads(&path, &ana.jwt)).await.unwrap();
            statuses.push(answer.status().as_u16());
            held.push((answer, slow.clone()));
        }
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 9, "{statuses:?}");
    assert!(statuses[9..].iter().all(|status| *status == 503));
    // Others, and other doors, are as before.
    let mut other = door.http2().await;
    assert_eq!(heard(other.send_request(reads("/v2/auth/user", &bob.jwt)).await.unwrap()).await.0, 200);
    ana.get(&path).await.ok();
    drop(held);
    becomes("room again", async || heard(other.send_request(reads(&path, &ana.jwt)).await.unwrap()).await.0 == 200)
        .await;
}

#[tokio::test]
async fn health_and_metrics_have_their_own_port_alone() {
    let app = TestApp::start().await;
    let door = SecureDoor::beside(&app);
    let mut client = door.http2().await;
    for path in ["/health/live", "/health/ready", "/metrics"] {
        let refused = heard(client.send_request(asks("GET", path, "", "")).await.unwrap()).await;
        assert_eq!(refused.0, 404, "{refused:?}");
        assert_eq!(plain(door.operations, path).await, "200");
    }
    for path in ["/v2/spec", "/", "/v2/auth/user"] {
        assert_eq!(plain(door.operations, path).await, "404", "{path}");
    }
    // A server with one port serves everything there.
    app.get("/health/live").await.ok();
}

/// Returns the status of a GET without TLS.
async fn plain(address: std::net::SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: isobar\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}
