//! Memory of the real binary by the kernel's count: small for an idle server, and for the longest lists less than twice
//! the answer, at the peak of a server started anew for each list.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::path::Path;

use program_support::site::{Api, ENVIRONMENT};
use program_support::{Serving, registry};
use reqwest::Method;
use serde_json::{Value, json};

/// Items of each list: those of the largest page.
const ITEMS: usize = 10_000;
/// Padding of an item, in characters, so that answers outweigh the memory of any request.
const PADDING: usize = 2_000;
/// Deliveries for the events, as one body is limited.
const DELIVERIES: usize = 5;
/// Items of the pages that are read before, to fill caches.
const WARMING: usize = 1_000;
/// Largest memory for an answer, as a multiple of its size.
const MOST: f64 = 1.4;
/// Largest memory of an idle server besides file pages, in bytes. The hash of the first password alone took 19 MiB;
/// each serving thread has some memory of its own.
const IDLE_MOST: u64 = 24 << 20;
const ONE_THREAD: (&str, &str) = ("ISOBAR_HTTP__THREADS", "1");

/// Starts a server and logs its administrator in.
async fn started(folder: &Path) -> (Serving, Api) {
    let serving = Serving::on(folder, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    (serving, api)
}

/// Makes devices with large metadata, and one with large events and values; returns its id.
async fn devices_and_events(api: &Api) -> String {
    let me = api.get("/v2/auth/user").await;
    let key = api
        .admin(Method::POST, &format!("/v2/users/{}/apiKeys", me["id"].as_str().unwrap()), Some(&json!({"name": "k"})))
        .await;
    let project = api.admin(Method::POST, "/v2/projects", Some(&json!({"name": "Site"}))).await;
    let common = format!("eventsRef=data&deviceTag=tag&projectUuid={}", project["id"].as_str().unwrap());
    let deliver = async |rest: &str, body: Value| {
        let path = format!("/v2/events/integrations?{common}&{rest}");
        let credential = [("api_auth_token", key["key"].as_str().unwrap())];
        let answer = api.send(Method::POST, &path, &credential, Some(&body)).await.unwrap();
        assert_eq!((answer.status, &answer.json()["errors"]), (200, &json!([])), "{}", answer.body);
    };
    let padding = "x".repeat(PADDING);
    let blocks: Vec<Value> = (0..ITEMS - 1).map(|number| json!({"id": number})).collect();
    let labels = "deviceTagValueRef=id&extraMetaMapRefs=%7B%22note%22%3A%22%24.note%22%7D";
    deliver(labels, json!({"data": blocks, "note": padding})).await;
    for turn in 0..DELIVERIES {
        let numbers = turn * ITEMS / DELIVERIES..(turn + 1) * ITEMS / DELIVERIES;
        let blocks: Vec<Value> = numbers.map(|number| json!({"n": number, "padding": padding})).collect();
        deliver("deviceTagValue=talker", json!({"data": blocks})).await;
    }
    let found = api.get("/v2/devices?searchText=talker").await;
    found["data"][0]["id"].as_str().unwrap().to_owned()
}

/// Inserts users into the registry directly, which is faster than by the API.
async fn users(folder: &Path) {
    let registry = registry(folder).await;
    let insert = "INSERT INTO users (id, organization_id, username, email, role, first_name, last_name, company, \
        job_title, preferences, search, created_at, updated_at) \
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9999) \
        SELECT printf('01890a5d-ac96-774b-bcce-%012x', n), organization_id, 'user ' || n, \
        'user' || n || '@example.com', role, first_name, last_name, \
        printf('%.*c', 2000, 'c'), job_title, preferences, '', created_at, updated_at \
        FROM numbers JOIN users ON username = 'admin'";
    sqlx::raw_sql(insert).execute(&registry).await.unwrap();
    registry.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longest_list_takes_less_memory_than_twice_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (serving, api) = started(folder.path()).await;
    let talker = devices_and_events(&api).await;
    assert_eq!(serving.stop(), Some(0));
    users(folder.path()).await;
    for list in [
        "/v2/devices?depth=all".to_owned(),
        "/v2/users?depth=all".to_owned(),
        format!("/v2/devices/{talker}/data/custom?sortBy=createdAt"),
        format!("/v2/devices/{talker}/data/custom?sortBy=payload.n"),
        format!("/v2/devices/{talker}/events?x=y"),
    ] {
        let (serving, api) = started(folder.path()).await;
        for page in 1..=ITEMS / WARMING {
            let path = format!("{list}&limit={WARMING}&page={page}");
            assert_eq!(api.send_as_admin(Method::GET, &path, None).await.unwrap().status, 200);
        }
        let before = serving.memory("VmRSS");
        // Resets the kernel's peak.
        std::fs::write(format!("/proc/{}/clear_refs", serving.id()), "5").unwrap();
        let answer = api.send_as_admin(Method::GET, &format!("{list}&limit={ITEMS}"), None).await.unwrap();
        let taken = serving.memory("VmHWM").saturating_sub(before);
        assert_eq!(answer.json()["data"].as_array().unwrap().len(), ITEMS, "{list}");
        let size = answer.body.len();
        assert!((taken as f64) < MOST * size as f64, "{list}: {taken} bytes for an answer of {size}");
        println!("{list}: {:.2} of the answer's size", taken as f64 / size as f64);
        assert_eq!(serving.stop(), Some(0));
    }
}

#[test]
fn idle_server_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &[ENVIRONMENT.as_slice(), &[ONE_THREAD]].concat());
    let taken = serving.memory("RssAnon");
    assert!(taken < IDLE_MOST, "{taken} bytes");
    println!("idle: {taken} bytes");
    assert_eq!(serving.stop(), Some(0));
}
