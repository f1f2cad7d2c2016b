//! Hostile and broken clients, and bad networks: they are refused, and other clients are served.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::time::Duration;

use isobar_model::time::Clock;
use isobar_power::{becomes, within_patience};
use program_support::Serving;
use program_support::house::{House, STEP_EVERY, reset, rest, told, until};
use program_support::site::{ENVIRONMENT, everything};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Scheduler turns before each client hangs up, times its number.
const TURNS_OF_OTHERS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_hangs_up_midway_leaves_nothing() {
    let house = House::open().await;
    let whole = house.post(r#"{"n":999999,"text":"never heard in full"}"#);
    let body_at = whole.find("\r\n\r\n").unwrap() + 4;
    for round in 0..400 {
        let part = if round % 2 == 0 { 1 + round * 7 % body_at } else { body_at + round % (whole.len() - body_at) };
        let mut stream = house.connect().await;
        stream.write_all(&whole.as_bytes()[..part]).await.unwrap();
        if round % 3 == 0 {
            reset(&stream);
        }
        drop(stream);
        if round % 20 == 0 {
            house.serves(round as u64).await;
        }
    }
    house.is_left_alone().await;
    assert_eq!(house.history().await, (0..20).rev().map(|turn| turn * 20).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_request_is_done_whole_or_not_at_all() {
    let house = House::open().await;
    let devices = house.api.found(&everything(), 60).await;
    for (number, device) in devices.iter().enumerate() {
        let post = house.post(r#"{"n":2}"#).replace(&house.device.token, &device.token);
        house.api.post(device, "reading", &json!({"n": 1})).await.created();
        let mut stream = house.connect().await;
        stream.write_all(post.as_bytes()).await.unwrap();
        // After a short, varying time.
        for _ in 0..number * TURNS_OF_OTHERS {
            tokio::task::yield_now().await;
        }
        reset(&stream);
        drop(stream);
        house.is_left_alone().await;
        // No other event follows: this one must be complete by itself.
        let id = &device.id;
        let is_whole = async || {
            let history = house.api.list(&format!("/v2/devices/{id}/events?cloudEvents=false")).await;
            let values = house.api.list(&format!("/v2/devices/{id}/data/log")).await;
            let queue = house.api.get(&format!("/v2/events/cloud?deviceId={id}&peek=true")).await;
            let status = house.api.get(&format!("/v2/devices/{id}")).await["statusInt"].as_u64().unwrap();
            let counts = [history.len(), values.len(), queue.as_array().unwrap().len()];
            (counts == [1; 3] && status == 2) || (counts == [2; 3] && status == 3)
        };
        becomes("an event that is whole or not there", is_whole).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poll_of_a_client_that_hung_up_takes_nothing() {
    let house = House::open().await;
    let (token, address) = (&house.device.token, &house.serving.address);
    let path = "/v2/events/cloud?wait=60";
    let waits = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\ncloud: {token}\r\n\r\n");
    for _ in 0..50 {
        house.connect().await.write_all(waits.as_bytes()).await.unwrap();
    }
    house.is_left_alone().await;
    house.serves(7).await;
    let taken = house.api.send(Method::GET, path, &[("cloud", token)], None).await.unwrap();
    assert_eq!(taken.json()[0]["payload"]["n"], 7);
}

// Holds: c1.halfClosed
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_without_a_reader_ends() {
    let house = House::open().await;
    let (address, (name, value)) = (&house.serving.address, house.api.credentials());
    let asks = format!("GET /v2/events/stream HTTP/1.1\r\nhost: {address}\r\n{name}: {value}\r\n\r\n");
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = house.connect().await;
        stream.write_all(asks.as_bytes()).await.unwrap();
        assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        streams.push(stream);
    }
    // With or without a close notification: no event follows that would show it.
    streams.iter().step_by(2).for_each(reset);
    drop(streams);
    house.is_left_alone().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_head_is_cut_while_others_are_served() {
    let house = House::open().await;
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (mut stream, head) = (house.connect().await, format!("{}{}", house.head(""), "x".repeat(5_000)));
        slow.spawn(async move {
            let (mut reader, mut writer) = stream.split();
            let trickle = async {
                for byte in head.trim_end().bytes() {
                    // One more header line and no empty one: the head never ends.
                    let sent = if byte == b'\n' { b"\nx" } else { std::slice::from_ref(&byte) as &[u8] };
                    if writer.write_all(sent).await.is_err() {
                        break;
                    }
                    Clock::System.sleep(Duration::from_millis(50)).await;
                }
            };
            let mut heard = Vec::new();
            tokio::select! {
                () = trickle => {}
                _ = reader.read_to_end(&mut heard) => {}
            }
            assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
        });
    }
    let mut served = 0;
    while !slow.is_empty() {
        house.serves(served).await;
        served += 1;
        if let Ok(cut) = Clock::System.timeout(STEP_EVERY, slow.join_next()).await {
            cut.unwrap().unwrap();
        }
    }
    house.is_left_alone().await;
    assert_eq!(house.history().await.len() as u64, served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_client_is_served() {
    let house = House::open().await;
    let mut stream = house.connect().await;
    for byte in house.post(r#"{"n":3}"#).bytes() {
        stream.write_all(&[byte]).await.unwrap();
        Clock::System.sleep(Duration::from_millis(1)).await;
    }
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));
    assert_eq!(house.history().await, [3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_stay_while_others_are_served() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    const WANTED: u64 = 10_000;
    /// Other open files of this process and connections of the server.
    const OTHERS: u64 = 100;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();

    let house = House::open().await;
    // An eighth of the connections is kept free.
    let most = house.api.metric("isobar_http_connections_max").await as u64;
    let own = limit.current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let count = (most - most / 8 - OTHERS).min(own).min(WANTED);
    assert!(count >= 1_000, "the limit of open files is too low for this test: {limit:?}");
    let mut idle = Vec::new();
    for number in 0..count {
        idle.push(house.connect().await);
        if number % 500 == 0 {
            house.serves(number).await;
        }
    }
    becomes("all are held", async || house.connections().await > count as f64).await;
    for number in 0..200 {
        house.serves(count + number).await;
    }
    // They are alive after the wait.
    for stream in idle.iter_mut().step_by(500) {
        stream.write_all(house.post(r#"{"n":1}"#).as_bytes()).await.unwrap();
        assert!(until(stream, "}").await.starts_with("HTTP/1.1 201"));
    }
    drop(idle);
    house.is_left_alone().await;
}

// Holds: c12.ready
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_finishes_requests_in_progress() {
    let house = House::open().await;
    let (body, idle) = (r#"{"n":5}"#, house.connect().await);
    let whole = house.post(body);
    let (first, last) = whole.split_at(whole.len() - 3);
    let mut under_way = house.connect().await;
    under_way.write_all(first.as_bytes()).await.unwrap();
    let mut waiting = house.connect().await;
    let (token, address) = (&house.device.token, &house.serving.address);
    let waits = format!("GET /v2/events/cloud?wait=60 HTTP/1.1\r\nhost: {address}\r\ncloud: {token}\r\n\r\n");
    waiting.write_all(waits.as_bytes()).await.unwrap();
    let mut kept = house.connect().await;
    kept.write_all(house.post("no json").as_bytes()).await.unwrap();
    assert!(until(&mut kept, "]}").await.starts_with("HTTP/1.1 400"));
    becomes("the connections", async || house.connections().await >= 5.0).await;

    house.serving.tell_to_stop();
    becomes("the end of accepting", async || TcpStream::connect(address).await.is_err()).await;
    let answer = rest(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("[]"), "{answer}");
    assert_eq!(rest(&mut kept).await, "");
    under_way.write_all(last.as_bytes()).await.unwrap();
    let answer = rest(&mut under_way).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let House { folder, serving, api, device } = house;
    assert_eq!(serving.ended(), Some(0));
    drop(idle);

    let serving = Serving::on(folder.path(), &ENVIRONMENT);
    let house = House { folder, api: api.at(&serving), serving, device };
    assert_eq!(house.history().await, [5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_http_is_refused_and_the_connection_ends() {
    let house = House::open().await;
    let huge = "x".repeat(200_000);
    let pipelined = format!("{}rubbish\r\n\r\n", house.post("no json"));
    let mut stream = house.connect().await;
    stream.write_all(pipelined.as_bytes()).await.unwrap();
    let heard = rest(&mut stream).await;
    assert_eq!(heard.matches("HTTP/1.1 400").count(), 2, "{heard}");
    assert_eq!(heard.matches(r#""errors":["#).count(), 2, "{heard}");
    let head = house.head("");
    let head = head.trim_end();
    let many: String = (0..500).map(|number| format!("x-{number}: 1\r\n")).collect();
    for (sent, answer) in [
        ("rubbish\r\n\r\n".to_owned(), "HTTP/1.1 400"),
        ("\x16\x03\x01\x02\0\x01\0\x01\u{7f}\x03\x03\r\n\r\n".to_owned(), "HTTP/1.1 400"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), "HTTP/1.1 400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), ""),
        (format!("{head}\r\nx-huge: {huge}\r\n\r\n"), "HTTP/1.1 431"),
        (format!("{head}\r\n{many}\r\n"), "HTTP/1.1 431"),
        (format!("GET /{huge} HTTP/1.1\r\n\r\n"), "HTTP/1.1 431"),
        (format!("{head}\r\ncontent-length: 7\r\ncontent-length: 8\r\n\r\n{{\"n\":1}}"), "HTTP/1.1 400"),
        (format!("{head}\r\ncontent-length: -7\r\n\r\n{{\"n\":1}}"), "HTTP/1.1 400"),
        (format!("{head}\r\ntransfer-encoding: magic\r\n\r\n{{\"n\":1}}"), "HTTP/1.1 400"),
        (format!("{head}\r\ntransfer-encoding: chunked\r\n\r\nseven\r\n{{\"n\":1}}\r\n0\r\n\r\n"), "HTTP/1.1 400"),
        (format!("{head}\r\nx\0y: 1\r\n\r\n"), "HTTP/1.1 400"),
        (house.post(r#"{"n":1}"#).replacen("\r\n", "\n", 1), "HTTP/1.1 400"),
        (house.post(r#"{"n":1}"#).replacen("\r\n\r\n", "\r\nx: 1\ny: 2\r\n\r\n", 1), "HTTP/1.1 400"),
        (house.post(r#"{"n":1}"#).replacen("\r\n\r\n", "\r\n\n", 1), "HTTP/1.1 400"),
    ] {
        let mut stream = house.connect().await;
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(sent.as_bytes()).await;
        let heard = rest(&mut stream).await;
        let told = &sent[..sent.len().min(300)];
        // A refusal may be lost if it is sent before everything was read.
        let is_lost = heard.is_empty() && sent.len() > huge.len();
        assert!(heard.starts_with(answer) || is_lost, "{told}: {heard}");
        assert!(!heard.contains("HTTP/1.1 20"), "{told}: {heard}");
        if let Some((_, body)) = heard.split_once("\r\n\r\n") {
            let body: serde_json::Value = serde_json::from_str(body).expect(told);
            assert!(body["message"].is_string() && body["errors"].is_array(), "{told}: {heard}");
        }
        house.serves(1).await;
    }
    house.is_left_alone().await;
    assert!(house.history().await.len() == 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_their_order() {
    let house = House::open().await;
    let mut stream = house.connect().await;
    let mut all: String = (0..50).map(|number| house.post(&format!(r#"{{"n":{number}}}"#))).collect();
    all += &house.post("no json");
    all += &house.post(r#"{"n":50}"#).replace("\r\ncloud", "\r\nconnection: close\r\ncloud");
    stream.write_all(all.as_bytes()).await.unwrap();
    let heard = rest(&mut stream).await;
    let statuses: Vec<&str> = heard.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, [vec!["201"; 50], vec!["400", "201"]].concat());
    assert_eq!(house.history().await, (0..=50).rev().collect::<Vec<_>>());

    // Half a request behind a whole one blocks nothing.
    let (mut stream, next) = (house.connect().await, house.post(r#"{"n":52}"#));
    let (first, last) = next.split_at(40);
    stream.write_all(format!("{}{first}", house.post(r#"{"n":51}"#)).as_bytes()).await.unwrap();
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));
    stream.write_all(last.as_bytes()).await.unwrap();
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_is_answered_alike_on_every_path() {
    let house = House::open().await;
    let good = house.post(r#"{"n":1}"#);
    let stranger = good.replace(&house.device.token, "nobody's");
    for (post, status, events) in [(good, "201", 1), (house.post("no json"), "400", 0), (stranger, "401", 0)] {
        let before = house.history().await.len();
        let mut whole = house.connect().await;
        whole.write_all(post.as_bytes()).await.unwrap();
        let wanted = told(&until(&mut whole, "}").await);
        assert!(wanted.0.contains(status), "{wanted:?}");
        let cuts: Vec<usize> = (1..post.len()).step_by(23).chain([post.len() - 1]).collect();
        for cut in &cuts {
            // The connection stays usable after each.
            let mut pieces = house.connect().await;
            for _ in 0..2 {
                pieces.write_all(&post.as_bytes()[..*cut]).await.unwrap();
                Clock::System.sleep(Duration::from_millis(2)).await;
                pieces.write_all(&post.as_bytes()[*cut..]).await.unwrap();
                assert_eq!(told(&until(&mut pieces, "}").await), wanted, "cut at {cut}");
            }
            pieces.write_all(post.as_bytes()).await.unwrap();
            assert_eq!(told(&until(&mut pieces, "}").await), wanted, "after one cut at {cut}");
        }
        assert_eq!(house.history().await.len() - before, events * (1 + 3 * cuts.len()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_carries_events_and_other_calls_in_turns() {
    let house = House::open().await;
    let (token, address) = (&house.device.token, &house.serving.address);
    let read = format!("GET /v2/events/cloud?peek=true HTTP/1.1\r\nhost: {address}\r\ncloud: {token}\r\n\r\n");
    let mut stream = house.connect().await;
    for number in 0..4 {
        for _ in 0..3 {
            stream.write_all(house.post(&format!(r#"{{"n":{number}}}"#)).as_bytes()).await.unwrap();
            assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));
        }
        stream.write_all(read.as_bytes()).await.unwrap();
        assert!(until(&mut stream, "]").await.starts_with("HTTP/1.1 200"));
    }
    for ends in [("\r\ncloud", "\r\nconnection: close\r\ncloud"), ("HTTP/1.1", "HTTP/1.0")] {
        let mut stream = house.connect().await;
        stream.write_all(house.post(r#"{"n":8}"#).as_bytes()).await.unwrap();
        assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));
        stream.write_all(house.post(r#"{"n":9}"#).replacen(ends.0, ends.1, 1).as_bytes()).await.unwrap();
        assert!(rest(&mut stream).await.contains(" 201 Created"));
    }
    // A client that announces its end at once is answered all the same.
    let mut stream = house.connect().await;
    stream.write_all(house.post(r#"{"n":10}"#).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 201"));
    assert_eq!(house.history().await.len(), 4 * 3 + 2 * 2 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_over_the_limit_is_refused_in_any_encoding() {
    let house = House::open().await;
    let chunk = format!("10000\r\n{}\r\n", "1".repeat(0x1_0000));
    let ended = format!("{}{}0\r\n\r\n", house.head("transfer-encoding: chunked\r\n"), chunk.repeat(17));
    let mut stream = house.connect().await;
    stream.write_all(ended.as_bytes()).await.unwrap();
    assert!(until(&mut stream, "]}").await.starts_with("HTTP/1.1 413"));
    // The connection is still usable.
    stream.write_all(house.post(r#"{"n":1}"#).as_bytes()).await.unwrap();
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));

    drop(stream);

    // An endless body of a client that never stops reading.
    let mut stream = house.connect().await;
    stream.write_all(house.head("transfer-encoding: chunked\r\n").as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let mut heard = Vec::new();
    let sending = async { while writer.write_all(chunk.as_bytes()).await.is_ok() {} };
    let both = async { tokio::join!(sending, reader.read_to_end(&mut heard)) };
    within_patience("the end of the body", both).await.1.ok();
    drop(stream);
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 413"), "{heard}");
    house.is_left_alone().await;
    assert_eq!(house.history().await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_expects_continue_is_answered() {
    let house = House::open().await;
    let asking = house.head("expect: 100-continue\r\ncontent-length: 7\r\n");
    let mut stream = house.connect().await;
    stream.write_all(asking.as_bytes()).await.unwrap();
    assert_eq!(until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(br#"{"n":4}"#).await.unwrap();
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 201"));

    let stranger = asking.replace(&house.device.token, "nobody's");
    let too_large = asking.replace("content-length: 7", "content-length: 7000000");
    for (refused, status) in [(stranger, "HTTP/1.1 401"), (too_large, "HTTP/1.1 413")] {
        let mut stream = house.connect().await;
        stream.write_all(refused.as_bytes()).await.unwrap();
        assert!(until(&mut stream, "]}").await.starts_with(status));
    }
    assert_eq!(house.history().await, [4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_body_makes_no_event() {
    let house = House::open().await;
    for _ in 0..20 {
        let mut stream = house.connect().await;
        // The received part would be a valid event.
        let short = format!("{}{}", house.head("content-length: 20\r\n"), r#"{"n":6}"#);
        stream.write_all(short.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let heard = rest(&mut stream).await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 400"), "{heard}");
    }
    house.is_left_alone().await;
    assert_eq!(house.history().await, [0; 0]);
}
