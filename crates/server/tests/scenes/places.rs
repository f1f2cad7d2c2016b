//! Slots for waiting calls: when all are taken, a tenant with none gets one of the tenant with most. Tenants that
//! registered from one address count together.

use std::time::Duration;

use futures::FutureExt as _;
use isobar_model::ids::OrganizationId;
use isobar_power::{becomes, settled, within_patience};
use isobar_quota::{Claim, QueueSlot};
use reqwest::Method;
use serde_json::json;

use crate::support::app::{new_user, password_of, with_json};
use crate::support::socket::Socket;
use crate::support::stream::Stream;
use crate::support::{Device, NOBODY, Person, TestApp};

/// Long reads that may wait, of all tenants and of one.
const READS: usize = 64;
const READS_OF_ONE: usize = 24;
/// The address of harmless clients.
const ELSEWHERE: &str = "203.0.113.7";

/// Starts a server behind a proxy, with this many slots for long waits.
async fn with_places(places: usize) -> TestApp {
    TestApp::with(|settings| {
        settings.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
        // A quarter of all connections is reserved for calls that do not wait.
        settings.http.max_connections = places / 3 * 4;
    })
    .await
}

/// Registers a user from an address.
async fn from<'a>(app: &'a TestApp, name: &str, address: &str) -> Person<'a> {
    let register = with_json(app.request(Method::POST, "/v2/auth/register"), &new_user(name, "developer"));
    let user = app.send(register.header("x-forwarded-for", address)).await.created();
    Person::known(app, user, password_of(name)).await
}

/// Takes all slots of long reads until the returned value is dropped.
fn turns(app: &TestApp) -> Vec<QueueSlot> {
    let claim = Claim::go_on(NOBODY.parse::<OrganizationId>().unwrap());
    let turns = std::iter::from_fn(|| app.telemetry().scans().take(claim).now_or_never());
    turns.map(Result::unwrap).collect()
}

async fn until_there_wait(app: &TestApp, count: usize) {
    let is_so = async || app.telemetry().scans().taken_and_waiting().1 == count;
    becomes(&format!("{count} wait for a turn"), is_so).await;
}

/// Sends a read on a connection of its own, for JSON or a table.
fn asks(app: &TestApp, person: &Person<'_>, path: &str) -> Socket {
    let (path, accept) = path.strip_suffix(".csv").map_or((path, "*/*"), |path| (path, "text/csv"));
    let mut socket = Socket::to(app);
    let jwt = &person.jwt;
    socket.sends(format!(
        "GET {path} HTTP/1.1\r\nhost: isobar\r\naccept: {accept}\r\nauthorization: Bearer {jwt}\r\n\r\n"
    ));
    socket
}

async fn device_with_a_value<'a>(person: &'a Person<'a>) -> Device<'a> {
    let device = person.creates_device("fridge").await;
    device.posts("reading", json!(7)).await.created();
    device
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_tenants_with_all_slots_leave_others_their_reads() {
    let app = with_places(20_000).await;
    let turns = turns(&app);
    let (mut crowd, mut all) = (Vec::new(), 0);
    for number in 0..3 {
        let mallory = from(&app, &format!("mallory{number}"), &format!("198.51.100.{number}")).await;
        let device = device_with_a_value(&mallory).await;
        for _ in 0..READS_OF_ONE.min(READS - all) {
            crowd.push(asks(&app, &mallory, &device.at("data/reading?filter[payload][gte]=0")));
            all += 1;
        }
        until_there_wait(&app, all).await;
    }
    let ana = from(&app, "ana", ELSEWHERE).await;
    let device = device_with_a_value(&ana).await;
    let mut reads = Vec::new();
    for path in [
        "data/reading?filter[payload][gte]=0",
        "data/reading/buckets?fields=payload",
        "data/reading?sortBy=payload",
        "data/reading.csv",
        "events?limit=5000",
    ] {
        reads.push((path, asks(&app, &ana, &device.at(path))));
        // One client of the crowd is refused, and no other.
        let heard = heard(&mut crowd).await;
        assert!(heard.starts_with("HTTP/1.1 503") && heard.contains("retry-after"), "{path}: {heard}");
        until_there_wait(&app, READS).await;
    }
    drop(turns);
    for (path, mut read) in reads {
        let heard = read.hears_one();
        assert!(heard.starts_with("HTTP/1.1 200"), "{path}: {heard}");
    }
    for mut read in crowd {
        assert!(read.hears_one().starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_with_most_long_waits_yields_to_one_with_none() {
    // The four tenants have 16, 5, 1 and 1.
    let app = with_places(24).await;
    let mallory = from(&app, "mallory", "198.51.100.1").await;
    let fridge = mallory.creates_device("fridge").await;
    let next = |wait: u32| format!("/v2/events/cloud/next?deviceId={}&wait={wait}", fridge.id);
    let mut polls: Vec<Socket> = (0..17).map(|_| asks(&app, &mallory, &next(60))).collect();
    let refused = heard(&mut polls).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    drop(polls.pop());
    let finds_a_place = async || {
        let stream = mallory.request(Method::GET, "/v2/events/stream").send().await.unwrap();
        (stream.status() == 200).then_some(stream)
    };
    let mut youngest = settled("a place for a stream", finds_a_place).await;
    let mut others = Vec::new();
    for (number, count) in [5, 1, 1].into_iter().enumerate() {
        let other = from(&app, &format!("other{number}"), &format!("198.51.100.{}", 2 + number)).await;
        for _ in 0..count {
            others.push(Stream::open(&other, "", None).await);
        }
    }
    let ana = from(&app, "ana", ELSEWHERE).await;
    let oven = ana.creates_device("oven").await;
    let mut stream = Stream::open(&ana, "", None).await;
    let rest = async { while youngest.chunk().await.unwrap().is_some() {} };
    within_patience("the end of the youngest stream", rest).await;
    // A long poll that loses its slot ends without an event.
    let mut own = asks(&app, &ana, &format!("/v2/events/cloud/next?deviceId={}&wait=60", oven.id));
    let over = heard(&mut polls).await;
    assert!(over.starts_with("HTTP/1.1 204"), "{over}");
    oven.posts("reading", json!(1)).await.created();
    assert_eq!(stream.next().await.data["payload"], json!(1));
    oven.queues("alarm", json!("hot")).await;
    assert!(own.hears_one().ends_with("\"hot\""));
    mallory.get("/v2/events/stream").await.is(503);
}

/// Returns the first answer on one of the sockets, and removes that socket.
async fn heard(sockets: &mut Vec<Socket>) -> String {
    let mut looks = || (0..sockets.len()).find(|at| sockets[*at].hears_within(Duration::from_millis(1)).is_some());
    let at = settled("an answer on one of the sockets", async || looks()).await;
    sockets.swap_remove(at).hears_one()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_of_one_address_leave_slots_to_other_addresses() {
    let app = with_places(12).await;
    let (mut crowd, mut refused) = (Vec::new(), 0);
    for number in 0..12 {
        let mallory = from(&app, &format!("mallory{number}"), "2001:db8:1::1").await;
        let stream = mallory.request(Method::GET, "/v2/events/stream").send().await.unwrap();
        match stream.status().as_u16() {
            200 => crowd.push(stream),
            status => refused += usize::from(status == 503),
        }
    }
    assert_eq!((crowd.len(), refused), (9, 3));
    let ana = from(&app, "ana", ELSEWHERE).await;
    let _stream = Stream::open(&ana, "", None).await;
    // Another address of the same network counts as the same site.
    let mallory = from(&app, "mallory", "2001:db8:1:ffff::1").await;
    mallory.get("/v2/events/stream").await.is(503);
}
