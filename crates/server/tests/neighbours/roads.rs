//! Small requests that cause much work.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use isobar_model::time::Clock;
use isobar_power::{becomes, within_patience};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::malice;
use crate::program_support::house::rest;
use crate::program_support::registry;
use crate::program_support::site::{Answer, Api};
use crate::street::Street;

/// Blocks and elements of a delivery: their product is two million events.
const BLOCKS: usize = 2_000;
const ELEMENTS: usize = 1_000;
/// Devices whose intervals elapse at the same moment; the most with running or waiting code per tenant; and the delay
/// until such an interval is due again, in milliseconds.
const INTERVALS: usize = 512;
const INTERVALS_AT_ONCE: i64 = 64;
const WAITS_FOR_CODE: i64 = 200_000;
/// Alarms that each event of a flood raises, events of its batches, and its devices.
const FLOOD_ALARMS: usize = 8;
const FLOOD_EVENTS: usize = 100;
const FLOOD_DEVICES: usize = 16;
/// Findings that are pending when another tenant raises its own alarm.
const FLOOD_BACKLOG: f64 = 4_000.0;
/// A day, in milliseconds.
const DAY: u64 = 86_400_000;

/// Returns the field and the message of a call that was refused for its input.
fn refused(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 400, "{}", answer.body);
    let fault = &answer.json()["errors"][0];
    (fault["field"].as_str().unwrap().to_owned(), fault["message"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multiplying_deliveries_are_refused_without_effect() {
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
        let credential = [("api_auth_token", key)];
        let call = street.hostile.send_text(Method::POST, &path, &credential, body);
        within_patience("an answer", call).await.unwrap()
    };
    let answer = delivers().await;
    let (field, message) = refused(&answer);
    assert!(field == "body" && message.contains("may make"), "{field}: {message}");
    assert_eq!(street.hostile.list("/v2/devices?depth=all").await, [] as [Value; 0]);
    street.beside(async || drop(refused(&delivers().await))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorts_by_payload_delay_only_each_other() {
    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    for round in 0..10 {
        let values = (0..20).map(|number| street.posts(&device, json!({"n": (round + number) % 7}).to_string()));
        join_all(values).await.iter().for_each(|answer| drop(answer.created()));
    }
    let sorted = async |rest: &str| {
        let path = format!("/v2/devices/{}/data/stored?sortBy=payload.n&{rest}", device.id);
        street.calls(Method::GET, &path, None).await
    };
    street
        .beside(async || {
            let sorts =
                (0..128).map(|number| sorted(if number % 2 == 0 { "limit=10000&page=100000" } else { "page=2" }));
            for answer in join_all(sorts).await {
                match answer.status {
                    200 => assert!(matches!(answer.json()["data"].as_array().unwrap().len(), 0 | 100)),
                    // More requests than may wait.
                    503 => {}
                    _ => assert_eq!(refused(&answer).0, "query.page"),
                }
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_from_long_ago_are_refused_with_the_earliest_time() {
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
    // A refusal or a stream that ends at once both state the earliest available time.
    let told = ends().await;
    assert!(told.contains("Last-Event-ID") || told.contains("the stream ends"), "{told}");
    street.beside(async || drop(join_all((0..64).map(|_| ends())).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_code_is_stopped_and_reported() {
    let street = Street::open().await;
    let devices = street.hostile.found(&malice::endless(), 4).await;
    let posts = async || {
        let posts = devices.iter().map(|device| street.posts(device, "\"AAAA\"".to_owned()));
        for answer in join_all(posts).await {
            assert!(matches!(answer.status, 201 | 503), "{} {}", answer.status, answer.body);
        }
    };
    posts().await;
    let errors = street.errors(&devices[0]).await;
    assert!(errors.iter().any(|error| error.contains("takes longer")), "{errors:?}");
    street.beside(posts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bucket_queries_delay_only_each_other() {
    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    for round in 0..10 {
        let values = (0..20).map(|number| street.posts(&device, malice::numbers(round * 20 + number)));
        join_all(values).await.iter().for_each(|answer| drop(answer.created()));
    }
    let asks = async |number: usize| {
        let path = format!("/v2/devices/{}/data/stored/buckets?{}", device.id, malice::bucket_query(number));
        street.calls(Method::GET, &path, None).await
    };
    asks(0).await;
    street
        .beside(async || {
            for answer in join_all((1..65).map(&asks)).await {
                match answer.status {
                    200 => assert_eq!(answer.json()["meta"]["values"], 200),
                    // More requests than may wait, or with more memory together than allowed.
                    503 => {}
                    _ => assert_eq!(refused(&answer).0, "query.every"),
                }
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bulks_and_filters_delay_no_other_tenant() {
    let street = Street::open().await;
    let project = street.hostile.admin(Method::POST, "/v2/projects", Some(&json!({"name": "Many"}))).await;
    let project = project["id"].as_str().unwrap();
    let makes = async |count: usize, only_checks: bool| {
        let path = if only_checks { "/v2/devices/bulk?test=true" } else { "/v2/devices/bulk" };
        street.sends(path, malice::many_devices(project, count)).await
    };
    let made = makes(1_000, false).await;
    assert_eq!((made.status, made.json()["errors"].clone()), (200, json!([])));
    let filtered = async |number: usize| {
        let answer = street.calls(Method::GET, &malice::filtered(number), None).await;
        assert!(matches!(answer.status, 200 | 503), "{} {}", answer.status, answer.body);
    };
    filtered(0).await;
    street
        .beside(async || {
            let checks = async { assert!(matches!(makes(2_000, true).await.status, 200 | 503)) };
            futures::join!(checks, join_all((1..65).map(&filtered)));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successive_batches_leave_everybody_their_turns() {
    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    let posts =
        async |events: usize| street.sends("/v2/events/device/batch", malice::batch(&[&device.id], events)).await;
    let posted = posts(100).await;
    assert_eq!((posted.status, posted.json()["data"].as_array().unwrap().len()), (200, 100));
    street
        .beside(async || {
            for answer in join_all((0..4).map(|_| posts(300))).await {
                assert!(matches!(answer.status, 200 | 503), "{} {}", answer.status, answer.body);
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_with_endless_code_delay_only_each_other() {
    let street = Street::open().await;
    let project = street.hostile.admin(Method::POST, "/v2/projects", Some(&json!({"name": "Every minute"}))).await;
    let project = project["id"].as_str().unwrap();
    let design = json!({"name": "Every minute", "planes": {"cloud": {"elements": malice::endless_every_minute()}}});
    street.hostile.admin(Method::PUT, &format!("/v2/projects/{project}/specification"), Some(&design)).await;
    let made = street.sends("/v2/devices/bulk", malice::many_devices(project, INTERVALS)).await;
    assert_eq!((made.status, made.json()["errors"].clone()), (200, json!([])));
    // An interval is at least a minute, so its due time is moved instead.
    let registry = registry(street.folder.path()).await;
    let count = async |condition: &str| {
        let text = format!("SELECT count(*) FROM device_timers WHERE {condition}");
        sqlx::query_scalar::<_, i64>(AssertSqlSafe(text)).fetch_one(&registry).await.unwrap()
    };
    let all_elapse = async || {
        sqlx::raw_sql("UPDATE device_timers SET due_at = 1").execute(&registry).await.unwrap();
        becomes("all have elapsed", async || count("due_at = 1").await == 0).await;
    };
    all_elapse().await;
    assert_eq!(count("due_at > 0").await, INTERVALS as i64, "none is lost");
    let wait = count(&format!("due_at > {}", Clock::System.now().millis() + WAITS_FOR_CODE)).await;
    assert!((1..=INTERVALS_AT_ONCE).contains(&wait), "{wait} wait for their code");
    street.beside(all_elapse).await;
    registry.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alarm_floods_delay_only_each_other() {
    let street = Street::open().await;
    let other = Api::registered(&street.serving, "bea").await;
    let raising = other.found(&malice::alarms(1), 1).await.remove(0);
    let devices = street.hostile.found(&malice::alarms(FLOOD_ALARMS), FLOOD_DEVICES).await;
    let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
    let batches = AtomicUsize::new(0);
    let floods = async || {
        let body = malice::alarm_batch(&ids, FLOOD_EVENTS, batches.fetch_add(1, Ordering::Relaxed));
        let answer = street.sends("/v2/events/device/batch", body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    let pending = async || other.metric("isobar_outbox_entries").await;
    for number in 0..3 {
        while pending().await < FLOOD_BACKLOG {
            floods().await;
        }
        let before = pending().await;
        other.post(&raising, malice::EVENT, &json!({"key": format!("own {number}")})).await.created();
        let list = format!("/v2/alarms?filter[key][eq]=own%20{number}");
        becomes("the alarm is listed", async || !other.list(&list).await.is_empty()).await;
        let after = pending().await;
        assert!(after > before / 2.0, "{after} of {before} are left of the other tenant's backlog");
    }
    street.beside(floods).await;
}
