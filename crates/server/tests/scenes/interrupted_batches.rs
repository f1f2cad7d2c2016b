//! Batches whose clients disconnect: while they send the body, or before they read the answer.

use std::collections::HashSet;
use std::fmt::Write as _;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::socket::Socket;
use crate::support::{Answer, Device, Person, TestApp};

const BATCH: &str = "/v2/events/device/batch";
/// Each client has a device of its own, and disconnects in every round.
const CLIENTS: usize = 8;
const ROUNDS: usize = 16;
const EVENTS: usize = 20;
/// Bytes of a body, nearly all that are allowed. If the memory of abandoned batches were never released, a tenant would
/// have none left long before the last round.
const BODY_BYTES: usize = 1_040_000;
/// Attempts until a condition must have become true.
const TRIES: usize = 10_000;

/// The moment at which a client disconnects.
#[derive(Clone, Copy, PartialEq)]
enum HangsUp {
    InTheMiddleOfTheBody,
    AtOnceWithAReset,
    AtOnce,
    WhenTheFirstEventIsThere,
}

impl HangsUp {
    /// Returns the moment of a client in a round: in each round all occur, and each client has all in turn.
    fn of(round: usize, client: usize) -> Self {
        let ways = [Self::InTheMiddleOfTheBody, Self::AtOnceWithAReset, Self::AtOnce, Self::WhenTheFirstEventIsThere];
        ways[(round + client) % ways.len()]
    }
}

/// Returns the events of a round, each with a number of its own, with the longest allowed body.
fn body_of(round: usize) -> String {
    let event = |n: usize| json!({"elementName": "log", "payload": {"n": n}, "idempotencyKey": format!("key {n}")});
    let events: Vec<Value> = numbers_of(round).map(event).collect();
    let mut body = Value::from(events).to_string();
    // White space before the end, so that a truncated body has every event but is not a batch.
    body.insert_str(body.len() - 1, &" ".repeat(BODY_BYTES - body.len()));
    body
}

fn numbers_of(round: usize) -> std::ops::Range<usize> {
    round * EVENTS..(round + 1) * EVENTS
}

/// Sends the batch of a round and disconnects; returns the socket of a client that disconnects later.
fn sends(app: &TestApp, token: &str, round: usize, way: HangsUp) -> Option<Socket> {
    let body = body_of(round);
    let mut request = String::new();
    write!(
        request,
        "POST {BATCH} HTTP/1.1\r\nhost: isobar\r\ncloud: {token}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut socket = Socket::to(app);
    match way {
        HangsUp::InTheMiddleOfTheBody => socket.sends(&request[..request.len() - 1 - (round + 1) * 40_000]),
        _ => socket.sends(&request),
    }
    match way {
        HangsUp::AtOnceWithAReset => socket.resets(),
        HangsUp::WhenTheFirstEventIsThere => return Some(socket),
        HangsUp::InTheMiddleOfTheBody | HangsUp::AtOnce => {}
    }
    None
}

/// Returns the numbers in a list of a device, each of which must be there once; none if there is no such list yet.
async fn numbers(ana: &Person<'_>, device: &Device<'_>, list: &str) -> HashSet<usize> {
    let answer = ana.get(&device.at(&format!("{list}?limit=10000"))).await;
    if answer.status == 404 {
        return HashSet::new();
    }
    let listed: Vec<usize> = answer.list_of("/payload/n").iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let numbers: HashSet<usize> = listed.iter().copied().collect();
    assert_eq!(numbers.len(), listed.len(), "{list}: {listed:?}");
    numbers
}

/// Lets all clients send the batches of a round and disconnect.
async fn hang_up(app: &TestApp, ana: &Person<'_>, devices: &[Device<'_>], round: usize) {
    let waiting: Vec<Option<Socket>> = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let runtime = tokio::runtime::Handle::current();
            let clients: Vec<_> = (0..devices.len())
                .map(|client| {
                    let (token, way, runtime) = (&devices[client].token, HangsUp::of(round, client), runtime.clone());
                    scope.spawn(move || {
                        let _inside = runtime.enter();
                        sends(app, token, round, way)
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        })
    });
    for (device, socket) in devices.iter().zip(waiting) {
        let Some(socket) = socket else { continue };
        let mut tries = 0;
        while !numbers(ana, device, "data/log").await.contains(&numbers_of(round).start) {
            tries += 1;
            assert!(tries < TRIES, "the first event of round {round} does not come");
        }
        socket.resets();
    }
}

/// Sends a batch again, until there is memory for it.
async fn sends_again(device: &Device<'_>, round: usize) -> Answer {
    for _ in 0..TRIES {
        let request = device.request(reqwest::Method::POST, BATCH).header("content-type", "application/json");
        let answer = device.app.send(request.body(body_of(round))).await;
        if answer.status != 503 {
            return answer;
        }
    }
    panic!("there is no room for a batch");
}

// Holds: c13.batchDurable
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn interrupted_batch_leaves_each_event_at_most_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let mut devices = Vec::new();
    for client in 0..CLIENTS {
        devices.push(ana.creates_device(&format!("client {client}")).await);
    }
    for round in 0..ROUNDS {
        hang_up(&app, &ana, &devices, round).await;
    }
    for (client, device) in devices.iter().enumerate() {
        // Some are still under way. An event and its values are stored together, and neither is removed.
        let stored = numbers(&ana, device, "data/log").await;
        let history = numbers(&ana, device, "events").await;
        let stored_later = numbers(&ana, device, "data/log").await;
        assert!(stored.is_subset(&history) && history.is_subset(&stored_later), "{stored:?} {history:?}");
        for round in (0..ROUNDS).filter(|round| HangsUp::of(*round, client) == HangsUp::InTheMiddleOfTheBody) {
            assert!(numbers_of(round).all(|n| !stored_later.contains(&n)), "{round}: {stored_later:?}");
        }
    }
    join_all(devices.iter().map(|device| sent_again_it_is_whole(&ana, device))).await;
}

/// Sends every batch of a device again and reads the answers: existing events stay as they are, and missing ones are
/// added.
async fn sent_again_it_is_whole(ana: &Person<'_>, device: &Device<'_>) {
    let mut answered = HashSet::new();
    for round in 0..ROUNDS {
        let outcome = sends_again(device, round).await.ok();
        assert_eq!(outcome["errors"], json!([]));
        answered.extend(outcome["data"].as_array().unwrap().iter().map(|event| event["id"].to_string()));
    }
    let all: HashSet<usize> = (0..ROUNDS * EVENTS).collect();
    assert_eq!(numbers(ana, device, "data/log").await, all);
    assert_eq!(numbers(ana, device, "events").await, all);
    let history = ana.get(&device.at("events?limit=10000")).await.list_of("/id");
    assert_eq!(history.iter().map(Value::to_string).collect::<HashSet<_>>(), answered);
}
