//! Half-closed clients, and clients that are gone: the server cannot distinguish them without sending.

use futures::FutureExt as _;
use isobar_model::ids::OrganizationId;
use isobar_power::becomes;
use isobar_quota::Claim;
use serde_json::json;

use crate::support::socket::Socket;
use crate::support::{Device, NOBODY, TestApp};

/// Returns a request by the device, with or without a body.
fn asks(device: &Device<'_>, line: &str, more: &str, body: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nhost: isobar\r\ncloud: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         {more}\r\n{body}",
        device.token,
        body.len()
    )
}

// Holds: c1.halfClosed
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_gets_its_answer() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let post = "POST /v2/events/device?elementName=reading";
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(20_000));
    for round in 0..20 {
        // On the fast path of events, off it, and in several pieces.
        for (more, body) in [("", "{\"n\":1}"), ("connection: close\r\n", "{\"n\":2}"), ("", &large)] {
            let mut socket = Socket::to(&app);
            socket.sends(asks(&device, post, more, body));
            socket.ends_its_side();
            let heard = socket.hears_all();
            assert!(heard.starts_with("HTTP/1.1 201") && heard.ends_with("\"}"), "{round}: {heard}");
        }
    }
    // Pipelined requests are answered in order, and then the connection ends.
    let mut socket = Socket::to(&app);
    let get = asks(&device, &format!("GET {}", device.url()), "", "");
    socket.sends(format!("{}{get}{get}", asks(&device, post, "", "3")));
    socket.ends_its_side();
    let heard = socket.hears_all();
    assert_eq!((heard.matches("HTTP/1.1 201").count(), heard.matches("HTTP/1.1 200").count()), (1, 2), "{heard}");
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 61);
    // A truncated body makes no event.
    let mut socket = Socket::to(&app);
    let whole = asks(&device, post, "", "{\"n\":4}");
    socket.sends(&whole[..whole.len() - 2]);
    socket.ends_its_side();
    assert!(socket.hears_all().starts_with("HTTP/1.1 400"));
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 61);
}

// Holds: c1.halfClosed
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_poll_of_a_half_closed_client_takes_nothing() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for round in 0..8 {
        let is_one = round % 2 == 0;
        let path = if is_one { "/v2/events/cloud/next?wait=60" } else { "/v2/events/cloud?wait=60" };
        let waits = asks(&device, &format!("GET {path}"), "", "");
        // A half-closed client gets an empty answer at once, because it might be gone.
        let mut half = Socket::to(&app);
        half.sends(&waits);
        half.ends_its_side();
        let heard = half.hears_all();
        let empty = if is_one { heard.starts_with("HTTP/1.1 204") } else { heard.ends_with("\r\n\r\n[]") };
        assert!(empty, "{heard}");
        // A client that is gone, by an end or by a reset, takes nothing either.
        let (mut leaver, mut broken) = (Socket::to(&app), Socket::to(&app));
        leaver.sends(&waits);
        broken.sends(&waits);
        drop(leaver);
        broken.resets();
        // An event queued after the server has noticed is for the next reader. It has noticed once others were served
        // meanwhile.
        for _ in 0..20 {
            device.get(&device.url()).await.ok();
        }
        device.queues("alarm", json!(round)).await;
        assert_eq!(device.takes().await.ok(), round);
    }
    // An event that is queued already is given to a half-closed client too.
    device.queues("alarm", json!("there")).await;
    let mut half = Socket::to(&app);
    half.sends(asks(&device, "GET /v2/events/cloud/next?wait=60", "", ""));
    half.ends_its_side();
    assert!(half.hears_all().ends_with("\r\n\r\n\"there\""));
    device.takes().await.no_content();
}

/// Waits until this many queries wait for a slot of long reads.
async fn until_there_wait(app: &TestApp, count: usize) {
    let is_so = async || app.telemetry().scans().taken_and_waiting().1 == count;
    becomes(&format!("{count} wait for a turn"), is_so).await;
}

// Holds: c13.bucketsEnd
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_ends_for_a_closed_client_but_not_a_half_closed_one() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(7)).await.created();
    for path in [
        "data/reading/buckets?fields=payload",
        "data/reading?filter[payload][gte]=0",
        "data/reading?sortBy=payload",
        "data/reading/buckets?fields=payload&points=10",
    ] {
        let asks =
            format!("GET {} HTTP/1.1\r\nhost: isobar\r\nauthorization: Bearer {}\r\n\r\n", device.at(path), ana.jwt);
        let claim = Claim::go_on(NOBODY.parse::<OrganizationId>().unwrap());
        let turns: Vec<_> = std::iter::from_fn(|| app.telemetry().scans().take(claim).now_or_never()).collect();
        // A client that closes its connection, like one that is killed, leaves the queue.
        let mut leaver = Socket::to(&app);
        leaver.sends(&asks);
        until_there_wait(&app, 1).await;
        drop(leaver);
        until_there_wait(&app, 0).await;
        // A half-closed client is probed, and answered.
        let mut half = Socket::to(&app);
        half.sends(&asks);
        half.ends_its_side();
        let mut heard = half.hears_until("HTTP/1.1 102 ");
        until_there_wait(&app, 1).await;
        drop(turns);
        heard.push_str(&half.hears_all());
        assert!(heard.contains("\r\n\r\nHTTP/1.1 200 ") && heard.ends_with('}'), "{path}: {heard}");
    }
}

// Holds: c1.halfClosed
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_end_behind_unread_bytes_ends_its_long_poll() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let waits = asks(&device, "GET /v2/events/cloud/next?wait=60", "", "");
    let next = asks(&device, &format!("GET {}", device.url()), "", "");
    for behind in ["\r\n", "x", &next, &"x".repeat(100_000)] {
        // A half-closed client gets an empty answer at once.
        let mut half = Socket::to(&app);
        half.sends(format!("{waits}{behind}"));
        half.ends_its_side();
        let heard = half.hears_one();
        assert!(heard.starts_with("HTTP/1.1 204"), "{heard}");
        // A client that is gone takes nothing, whenever it sent more bytes.
        let (mut leaver, mut late) = (Socket::to(&app), Socket::to(&app));
        leaver.sends(format!("{waits}{behind}"));
        late.sends(&waits);
        device.get(&device.url()).await.ok();
        late.sends(behind);
        drop((leaver, late));
        for _ in 0..20 {
            device.get(&device.url()).await.ok();
        }
        device.queues("alarm", json!(behind.len())).await;
        assert_eq!(device.takes().await.ok(), behind.len(), "{behind:.20}");
    }
    // A pipelined request is answered in its turn, after the one before it.
    let mut socket = Socket::to(&app);
    socket.sends(format!("{waits}{next}"));
    device.queues("alarm", json!("there")).await;
    let heard = socket.hears_until("updatedAt");
    assert!(heard.contains("\"there\"") && heard.matches("HTTP/1.1 200").count() == 2, "{heard}");
}

// Holds: c1.halfClosed
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_continues_for_a_half_closed_client() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let asks = format!(
        "GET /v2/events/stream?deviceId={} HTTP/1.1\r\nhost: isobar\r\nauthorization: Bearer {}\r\n\r\n",
        device.id, ana.jwt
    );
    let mut half = Socket::to(&app);
    half.sends(&asks);
    half.hears_until("\r\n\r\n");
    half.ends_its_side();
    for number in 0..3 {
        device.posts("reading", json!({"number": number})).await.created();
        half.hears_until(&format!("{{\"number\":{number}}}"));
    }
    // Comments between events detect if the client is still there.
    half.hears_until(":");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_behind_a_long_answer_leaves_it_whole() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for number in 0..10 {
        device.posts("reading", json!({"n": number, "text": "x".repeat(60_000)})).await.created();
    }
    let list = asks(&device, &format!("GET {}", device.at("data/reading")), "", "");
    let list = list.replace("cloud: ", "api_auth_token: ").replace(&device.token, &ana.makes_api_key("reads").await);
    for (rest, status) in [(" HTTP/1.1\r\nhost: isobar\r\n\r\n", "200"), ("\r\n\r\n", "400")] {
        let mut socket = Socket::with_little_room(&app).await;
        socket.sends(&list);
        socket.is_answered();
        socket.sends("GET /health/live");
        let heard = socket.hears_until("\r\n0\r\n\r\n");
        assert_eq!(heard.matches("xxxxxxxxxx\"}").count(), 10, "{heard:.500}");
        socket.sends(rest);
        let heard = socket.hears_one();
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")) && heard.ends_with('}'), "{heard}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_gets_a_long_answer() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let posts = (0..60).map(|n| device.posts("reading", json!({"n": n, "text": "x".repeat(20_000)})));
    futures::future::join_all(posts).await;
    for (path, accept) in [("data/reading?limit=60", "*/*"), ("data/reading", "application/x-ndjson")] {
        let mut socket = Socket::to(&app);
        socket.sends(format!(
            "GET {} HTTP/1.1\r\nhost: isobar\r\naccept: {accept}\r\nauthorization: Bearer {}\r\n\r\n",
            device.at(path),
            ana.jwt
        ));
        socket.ends_its_side();
        socket.is_answered();
        let heard = socket.hears_all();
        assert_eq!(heard.matches("xxxxxxxxxx\"}").count(), 60, "{path}");
        assert!(heard.ends_with("0\r\n\r\n"), "{path}");
    }
}
