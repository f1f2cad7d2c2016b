//! Tests the limits of connections: their number, the speed of bodies and answers, and the shares of callers.

use std::time::Duration;

use isobar_http::HttpSettings;
use serde_json::json;

use crate::support::socket::Socket;
use crate::support::stream::Stream;
use crate::support::{Device, TestApp};

/// Patience with a slow client in these scenes, short so that tests end soon.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two checks of a condition that becomes true by itself.
const LOOK: Duration = Duration::from_millis(20);
/// Number of checks that something happens at once.
const ROUNDS: usize = 50;
/// Number of connections, in scenes that limit it.
const CONNECTIONS: usize = 12;

async fn with(change: impl FnOnce(&mut HttpSettings)) -> TestApp {
    TestApp::with(|settings| change(&mut settings.http)).await
}

/// Returns the head of a request by the device, with a body of this many bytes.
fn head(device: &Device<'_>, line: &str, length: usize) -> String {
    format!(
        "{line} HTTP/1.1\r\nhost: isobar\r\ncloud: {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        device.token
    )
}

const POST: &str = "POST /v2/events/device?elementName=reading";

// Holds: c14.connections
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longest_idle_connection_is_closed_for_a_new_one() {
    let app = with(|http| http.max_connections = CONNECTIONS).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    // Three busy connections: a long poll, a stream, an incomplete body; and one with a call now and then.
    let mut poll = Socket::to(&app);
    poll.sends(head(&device, "GET /v2/events/cloud/next?wait=60", 0));
    let mut stream = Stream::open(&ana, &format!("?deviceId={}", device.id), None).await;
    let mut body = Socket::to(&app);
    body.sends(head(&device, POST, 7));
    let mut regular = Socket::to(&app);
    let asks = |socket: &mut Socket| {
        socket.sends(format!("{}{{\"n\":1}}", head(&device, POST, 7)));
        let heard = socket.hears_one();
        assert!(heard.starts_with("HTTP/1.1 201"), "{heard}");
    };
    asks(&mut regular);
    // Silent connections come again and again, many more than there are slots.
    let mut silent = Vec::new();
    for _ in 0..4 * CONNECTIONS {
        silent.push(Socket::to(&app));
        app.wait_seconds(2);
        if silent.len() % 5 == 0 {
            asks(&mut regular);
        }
        // A new client is served at any time.
        asks(&mut Socket::to(&app));
    }
    let ended = silent.iter_mut().map(Socket::has_ended).filter(|ended| *ended).count();
    assert!(ended > 2 * CONNECTIONS, "{ended}");
    // The newest of them are still open.
    asks(silent.last_mut().unwrap());
    body.sends("{\"n\":2}");
    assert!(body.hears_one().starts_with("HTTP/1.1 201"));
    while stream.next().await.data["payload"] != json!({"n": 2}) {}
    device.queues("alarm", json!("still there")).await;
    let heard = poll.hears_one();
    assert!(heard.starts_with("HTTP/1.1 200") && heard.ends_with("\"still there\""), "{heard}");
}

// Holds: c14.connections
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connection_waits_while_all_are_busy() {
    let app = with(|http| http.max_connections = 4).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    // No connection is idle right after a call, and the clock does not move.
    let mut busy: Vec<Socket> = (0..8).map(|_| Socket::to(&app)).collect();
    for socket in &mut busy {
        socket.sends(head(&device, POST, 7));
    }
    // One of the waiting connections has sent its whole request.
    let mut last = busy.pop().unwrap();
    last.sends("{\"n\":1}");
    assert!(last.hears_within(10 * LOOK).is_none(), "there is no slot for it");
    // All of them are served, one after the other.
    for mut socket in busy {
        socket.sends("{\"n\":1}");
        let heard = socket.hears_one();
        assert!(heard.starts_with("HTTP/1.1 201"), "{heard}");
    }
    let heard = last.hears_one();
    assert!(heard.starts_with("HTTP/1.1 201"), "{heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_waits_of_one_tenant_leave_slots_to_others() {
    // Two thirds of 24 slots, for any kind of wait: 16 long polls and streams.
    let app = with(|http| http.max_connections = 32).await;
    let (ana, bob) = (app.developer("ana").await, app.developer("bob").await);
    let (fridge, oven) = (ana.creates_device("fridge").await, bob.creates_device("oven").await);
    let stream = Stream::open(&ana, "", None).await;
    let waits = |device| head(device, "GET /v2/events/cloud/next?wait=60", 0);
    let mut waiting: Vec<Socket> = (0..18).map(|_| Socket::to(&app)).collect();
    waiting.iter_mut().for_each(|socket| socket.sends(waits(&fridge)));
    let mut rounds = 0..ROUNDS;
    while waiting.len() > 15 {
        assert!(rounds.next().is_some(), "{} of them wait", waiting.len());
        waiting.retain_mut(|socket| {
            let is_refused = socket.hears_within(LOOK).is_some();
            assert!(!is_refused || socket.hears_one().starts_with("HTTP/1.1 503"));
            !is_refused
        });
    }
    // A call that does not wait is served, and so is another tenant that does.
    fridge.takes().await.no_content();
    fridge.posts("reading", json!(1)).await.created();
    ana.get("/v2/events/stream").await.is(503);
    let mut others = Socket::to(&app);
    others.sends(waits(&oven));
    oven.queues("alarm", json!("hot")).await;
    assert!(others.hears_one().ends_with("\"hot\""));
    // A released slot is free as soon as the server has noticed.
    drop((stream, waiting));
    while fridge.get("/v2/events/cloud/next?wait=1").await.status == 503 {}
}

// Holds: c1.408, c14.bodies
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_body_is_refused_without_effect() {
    let app = with(|http| http.transfer_time = PATIENCE).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let login = "POST /v2/auth/login HTTP/1.1\r\nhost: isobar\r\ncontent-type: application/json\r\n";
    let of_length = |head: &str| format!("{head}content-length: 1000\r\n\r\n");
    let in_chunks = |head: &str| format!("{head}transfer-encoding: chunked\r\n\r\n");
    let event = head(&device, POST, 1000);
    let event = event.split("content-length").next().unwrap();
    for asks in [of_length(login), in_chunks(login), of_length(event), in_chunks(event)] {
        let is_chunked = asks.contains("chunked");
        let mut socket = Socket::to(&app);
        socket.sends(&asks);
        // The connection sends a little more until it gets an answer.
        while socket.hears_within(LOOK).is_none() {
            socket.sends_if_heard(if is_chunked { "1\r\n1\r\n" } else { "1" });
        }
        let heard = socket.hears_one();
        assert!(heard.starts_with("HTTP/1.1 408") && heard.contains("connection: close"), "{asks}: {heard}");
        assert!(heard.contains(r#""errors":[{"field":"body","message":"must come within 1 seconds, or at 16 KiB"#));
    }
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 0);
    device.posts("reading", json!(1)).await.created();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_bodies_share_the_body_memory() {
    let app = with(|http| http.body_memory_bytes_max = 90_000).await;
    let (ana, bob) = (app.developer("ana").await, app.developer("bob").await);
    let (fridge, oven) = (ana.creates_device("fridge").await, bob.creates_device("oven").await);
    let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    // All bytes but the last, once without credentials and once with.
    let mut stranger = Socket::to(&app);
    let login = format!("{{\"usernameOrEmail\": \"ana\", \"password\": \"{}\"}}", "x".repeat(900));
    let head_of_login = "POST /v2/auth/login HTTP/1.1\r\nhost: isobar\r\ncontent-type: application/json\r\n";
    stranger.sends(format!("{head_of_login}content-length: {}\r\n\r\n{}", login.len(), &login[..400]));
    let mut first = Socket::to(&app);
    first.sends(format!("{}{}", head(&fridge, POST, 50_000), &text(50_000)[..49_000]));
    // The server has read them once others were served meanwhile.
    for _ in 0..20 {
        fridge.get(&fridge.url()).await.ok();
    }
    // There is no memory for another one of the same tenant.
    let large = text(40_000);
    let mut next = Socket::to(&app);
    next.sends(format!("{}{large}", head(&fridge, POST, large.len())));
    let refused = next.hears_one();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 1"), "{refused}");
    // Small bodies are complete at once, and another tenant has memory.
    fridge.posts("reading", json!(1)).await.created();
    let mut others = Socket::to(&app);
    others.sends(format!("{}{}", head(&oven, POST, 12_000), &text(12_000)[..11_000]));
    others.sends(&text(12_000)[11_000..]);
    assert!(others.hears_one().starts_with("HTTP/1.1 201"));
    // The incomplete bodies can be completed.
    first.sends(&text(50_000)[49_000..]);
    assert!(first.hears_one().starts_with("HTTP/1.1 201"));
    stranger.sends(&login[400..]);
    assert!(stranger.hears_one().starts_with("HTTP/1.1 401"));
    fridge.posts_text("reading", text(40_000)).await.created();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answers_share_the_response_memory() {
    let app = with(|http| http.response_memory_bytes_max = 900_000).await;
    let (ana, bob) = (app.developer("ana").await, app.developer("bob").await);
    let (fridge, oven) = (ana.creates_device("fridge").await, bob.creates_device("oven").await);
    for device in [&fridge, &oven] {
        for _ in 0..8 {
            device.posts("log", json!("x".repeat(100_000))).await.created();
        }
    }
    for _ in 0..20 {
        // No answer may use all of it.
        let path = fridge.at("data/log?limit=8");
        ana.get(&path).await.is(503);
        ana.get(&fridge.at("events?limit=8")).await.is(503);
        // The memory of a written answer is released.
        for (who, device) in [(&ana, &fridge), (&bob, &oven)] {
            assert_eq!(who.get(&device.at("data/log?limit=4")).await.ok()["data"].as_array().unwrap().len(), 4);
            assert_eq!(who.get(&device.at("events?limit=4")).await.ok()["data"].as_array().unwrap().len(), 4);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_barely_reads_is_closed() {
    const TAKEN_AT_ONCE: usize = 64 << 10;
    const TAKEN_EVERY: Duration = Duration::from_secs(8);
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for number in 0..24 {
        device.posts("reading", json!({"n": number, "text": "x".repeat(900_000)})).await.created();
    }
    let asks = format!(
        "GET {} HTTP/1.1\r\nhost: isobar\r\nconnection: close\r\naccept: application/x-ndjson\r\nauthorization: Bearer {}\r\n\r\n",
        device.at("data/reading"),
        ana.jwt
    );
    let mut slow = Socket::with_little_room(&app).await;
    slow.sends(&asks);
    // It reads less than 16 KiB a second, so it does not get the end.
    let mut heard = 0;
    while let count @ 1.. = slow.takes(TAKEN_AT_ONCE) {
        heard += count;
        app.clock.pass(TAKEN_EVERY);
        app.get("/health/live").await;
    }
    assert!(heard < 10 * 900_000, "{heard}");
    // A client that reads at once gets everything.
    let mut quick = Socket::to(&app);
    quick.sends(&asks);
    let heard = quick.hears_all();
    assert!(heard.len() > 24 * 900_000 && heard.ends_with("0\r\n\r\n"));
}
