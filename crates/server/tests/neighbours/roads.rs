//! Those who ask for much with little.

use futures::future::join_all;
use reqwest::Method;
use sea_orm::{ConnectionTrait as _, Database};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::malice;
use crate::program_support::house::{BOUND, LOOK_EVERY, rest};
use crate::program_support::site::Answer;
use crate::street::Street;

/// Blocks and elements of a delivery: their product is two million events.
const BLOCKS: usize = 2_000;
const ELEMENTS: usize = 1_000;
/// Devices whose interval has elapsed.
const INTERVALS: usize = 32;
/// A day, in milliseconds.
const DAY: u64 = 86_400_000;

/// The field and what is wrong with it, of a call that was refused for its input.
fn refused(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 400, "{}", answer.body);
    let fault = &answer.json()["errors"][0];
    (fault["field"].as_str().unwrap().to_owned(), fault["message"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_that_multiply_are_refused_before_anything_is_done() {
    let street = Street::open().await;
    let me = street.hostile.get("/v2/auth/user").await;
    let keys = format!("/v2/users/{}/apiKeys", me["id"].as_str().unwrap());
    let key = street.hostile.admin(Method::POST, &keys, Some(&json!({"name": "k"}))).await;
    let key = key["key"].as_str().unwrap();
    let project = street.hostile.admin(Method::POST, "/v2/projects", Some(&json!({"name": "Many"}))).await;
    let project = project["id"].as_str().unwrap();
    let design = json!({"name": "Many", "planes": {"cloud": {"elements": malice::receivers(ELEMENTS)}}});
    street.hostile.admin(Method::PUT, &format!("/v2/projects/{project}/specification"), Some(&design)).await;
    let delivers = async || {
        let body = Some(malice::delivery(BLOCKS));
        let path = malice::delivery_path(project);
        let headers = [("api_auth_token", key)];
        let call = street.hostile.send_text(Method::POST, &path, &headers, body);
        timeout(BOUND, call).await.expect("no answer").unwrap()
    };
    let answer = street.holds_nobody_up("a delivery", delivers()).await;
    let (field, message) = refused(&answer);
    assert!(field == "body" && message.contains("at most"), "{field}: {message}");
    assert_eq!(street.hostile.list("/v2/devices?depth=all").await, [] as [Value; 0]);
    street.beside(async || drop(refused(&delivers().await))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_pages_of_sorts_by_payload_are_refused() {
    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    let values = (0..200).map(|number| street.posts(&device, json!({"n": number % 7}).to_string()));
    join_all(values).await.iter().for_each(|answer| drop(answer.created()));
    let sorted = async |rest: &str| {
        let path = format!("/v2/devices/{}/data/stored?sortBy=payload.n&{rest}", device.id);
        street.calls(Method::GET, &path, None).await
    };
    assert_eq!(sorted("limit=100&page=2").await.json()["data"].as_array().unwrap().len(), 100);
    let deep = "limit=10000&page=100000";
    let (field, message) = refused(&sorted(deep).await);
    assert!(field == "query.page" && message.contains("at most"), "{field}: {message}");
    street
        .beside(async || {
            let sorts = (0..32).map(|number| sorted(if number % 2 == 0 { deep } else { "limit=100&page=2" }));
            for answer in join_all(sorts).await {
                assert!(matches!(answer.status, 200 | 400 | 503), "{} {}", answer.status, answer.body);
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_from_long_ago_are_told_how_far_back_they_may_ask() {
    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    let id = street.posts(&device, "1".to_owned()).await.created();
    // A time-ordered identifier begins with its milliseconds.
    let minted = u64::from_str_radix(&id.replace('-', "")[..12], 16).unwrap();
    let text = format!("{:012x}", minted - 100 * DAY);
    let ancient = format!("{}-{}{}", &text[..8], &text[8..], &id[13..]);
    let address = &street.serving.address;
    let (name, value) = street.hostile.credentials();
    let begin = async |last: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET /v2/events/stream HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{name}: {value}\r\n\
             last-event-id: {last}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let ends = async || rest(&mut begin(&ancient).await).await;
    // Whether as a refusal or as a stream that ends at once: it says from when on there is something to be told.
    let told = ends().await;
    assert!(told.contains("Last-Event-ID") || told.contains("the stream ends"), "{told}");
    street.beside(async || drop(join_all((0..64).map(|_| ends())).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_code_is_ended_and_told() {
    let street = Street::open().await;
    let devices = street.hostile.found(&malice::endless(), 8).await;
    let posts = async || {
        let posts = devices.iter().map(|device| street.posts(device, "\"AAAA\"".to_owned()));
        for answer in join_all(posts).await {
            assert!(matches!(answer.status, 201 | 503), "{} {}", answer.status, answer.body);
        }
    };
    street.holds_nobody_up("endless code", posts()).await;
    let errors = street.errors(&devices[0]).await;
    assert!(errors.iter().any(|error| error.contains("too long")), "{errors:?}");
    street.beside(posts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_with_endless_code_go_round_without_haste() {
    let street = Street::open().await;
    street.hostile.found(&malice::endless_every_minute(), INTERVALS).await;
    let (folder, good) = street.stopped();
    // All of them are due at the next start, and have been for an hour.
    let file = folder.path().join("registry.db");
    let layer = isobar_pages::prepare(&file, isobar_pages::Open::ToUse).unwrap().unwrap();
    let registry = Database::connect(format!("sqlite:{}?vfs={layer}", file.display())).await.unwrap();
    registry.execute_unprepared("UPDATE device_alarms SET due_at = due_at - 3600000").await.unwrap();
    registry.close().await.unwrap();
    let street = Street::again(folder, good).await;
    street.beside(async || sleep(LOOK_EVERY).await).await;
    let runs = async || street.hostile.metric("isobar_code_runs_total").await;
    let reached = async {
        while runs().await < INTERVALS as f64 {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(BOUND, reached).await.expect("they do not come round");
    // Moments that were missed are one.
    street.beside(async || sleep(LOOK_EVERY).await).await;
    assert_eq!(runs().await, INTERVALS as f64);
}
