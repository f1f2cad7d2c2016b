//! The device limit of an organization and the deliveries that create devices; and deliveries whose clients disconnect.

use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::socket::Socket;
use crate::support::{Answer, TestApp, on_both_registries};
use crate::webhook::{Sender, messages, path};

on_both_registries!(
    a_delivery_makes_the_devices_that_the_limit_allows,
    a_device_that_comes_twice_is_refused_twice_or_taken_twice,
    a_limit_above_holds_for_deliveries_beneath_it,
    concurrent_deliveries_share_the_free_device_limit,
);

/// A user who delivers into an organization with a device limit.
struct Limited<'a> {
    ana: Sender<'a>,
    organization: String,
    project: String,
}

impl<'a> Limited<'a> {
    async fn to(app: &'a TestApp, devices: usize) -> Self {
        let ana = Sender::of(app.developer("ana").await).await;
        let organization = ana.person.founds("Low", &ana.person.organization).await;
        let project = ana.person.creates_project("p").await;
        let limited = Self { ana, organization, project };
        limited.may_have(devices).await;
        limited
    }

    async fn may_have(&self, devices: usize) {
        self.ana.person.changes(&self.organization, json!({"deviceCountLimit": devices})).await.ok();
    }

    /// Delivers an event for each of these devices into an organization.
    async fn delivers_into(&self, organization: &str, names: &[&str]) -> Answer {
        let parameters = [
            ("deviceTag", "eui"),
            ("deviceTagValueRef", "id"),
            ("eventsRef", "$"),
            ("projectUuid", &*self.project),
            ("organizationId", organization),
        ];
        let blocks: Vec<Value> = names.iter().map(|name| json!({"id": name})).collect();
        self.ana.delivers(&parameters, json!(blocks)).await
    }

    async fn delivers(&self, names: &[&str]) -> Value {
        self.delivers_into(&self.organization, names).await.ok()
    }

    async fn names(&self) -> Vec<String> {
        self.ana.devices().await.iter().map(|device| text(device, "name").to_owned()).collect()
    }

    /// Returns the number of devices that the organization shows.
    async fn counted(&self) -> Value {
        let usage = self.ana.person.get(&format!("/v2/organizations/{}/usage", self.organization)).await.ok();
        usage["deviceCount"].clone()
    }
}

/// Returns the errors of the blocks whose devices exceed the limit.
fn no_room(blocks: impl IntoIterator<Item = usize>) -> Vec<String> {
    let why = "the device limit of the organization is reached: no device was provisioned";
    blocks.into_iter().map(|block| format!("event block {block}: {why}")).collect()
}

async fn a_delivery_makes_the_devices_that_the_limit_allows(app: &TestApp) {
    let limited = Limited::to(app, 3).await;
    let names = ["a", "b", "c", "d", "e"];
    let first = limited.delivers(&names).await;
    let message = "5 event block(s) taken: 3 event(s) processed, 3 device(s) provisioned";
    assert_eq!((text(&first, "message"), messages(&first)), (message, no_room([3, 4])));
    assert_eq!((limited.names().await, limited.counted().await), (vec!["a".into(), "b".into(), "c".into()], json!(3)));
    // Known devices are processed whatever the limit.
    let again = limited.delivers(&names).await;
    let message = "5 event block(s) taken: 3 event(s) processed, 0 device(s) provisioned";
    assert_eq!((text(&again, "message"), messages(&again)), (message, no_room([3, 4])));
    limited.may_have(1).await;
    assert_eq!(messages(&limited.delivers(&["d", "a"]).await), no_room([0]));
    // The limit allows one more, and then all.
    limited.may_have(4).await;
    assert_eq!(messages(&limited.delivers(&["e", "d"]).await), no_room([1]));
    limited.may_have(0).await;
    assert_eq!(messages(&limited.delivers(&names).await), no_room([]));
    assert_eq!(limited.counted().await, 5);
}

async fn a_device_that_comes_twice_is_refused_twice_or_taken_twice(app: &TestApp) {
    let limited = Limited::to(app, 2).await;
    for provisioned in [2, 0] {
        let answer = limited.delivers(&["a", "b", "c", "a", "c"]).await;
        let message = format!("5 event block(s) taken: 3 event(s) processed, {provisioned} device(s) provisioned");
        assert_eq!((text(&answer, "message"), messages(&answer)), (&*message, no_room([2, 4])));
    }
    let devices = limited.ana.devices().await;
    assert_eq!(devices.iter().map(|device| text(device, "name")).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(limited.ana.history(text(&devices[0], "id")).await.len(), 4);
}

// Holds: c5.limits
async fn a_limit_above_holds_for_deliveries_beneath_it(app: &TestApp) {
    let limited = Limited::to(app, 2).await;
    let below = limited.ana.person.founds("Below", &limited.organization).await;
    assert_eq!(messages(&limited.delivers(&["a"]).await), no_room([]));
    let answer = limited.delivers_into(&below, &["b", "c"]).await.ok();
    assert_eq!(messages(&answer), no_room([1]));
    assert_eq!((limited.names().await, limited.counted().await), (vec!["a".into(), "b".into()], json!(2)));
    // Other organizations are not limited.
    let own = limited.delivers_into(&limited.ana.person.organization, &["d", "e"]).await.ok();
    assert_eq!(messages(&own), no_room([]));
}

async fn concurrent_deliveries_share_the_free_device_limit(app: &TestApp) {
    let limited = Limited::to(app, 5).await;
    let (left, right) =
        tokio::join!(limited.delivers(&["l0", "l1", "l2", "l3"]), limited.delivers(&["r0", "r1", "r2", "r3"]));
    // One of them came first, and created all its devices.
    let mut failed = [messages(&left), messages(&right)];
    failed.sort();
    assert_eq!(failed, [no_room([]), no_room([1, 2, 3])]);
    assert_eq!((limited.names().await.len(), limited.counted().await), (5, json!(5)));
    // Deliveries of the same devices get the same answer.
    limited.may_have(7).await;
    let same = ["s0", "s1", "s2"];
    let (left, right) = tokio::join!(limited.delivers(&same), limited.delivers(&same));
    for answer in [left, right] {
        assert_eq!(messages(&answer), no_room([2]));
        assert!(text(&answer, "message").contains("2 event(s) processed"), "{answer}");
    }
    assert_eq!((limited.names().await.len(), limited.counted().await), (7, json!(7)));
}

/// Deliveries whose clients disconnect, and bytes of each. If their memory were never released, a tenant would have
/// none left long before the last of them.
const HANGING_UP: usize = 45;
const BODY_BYTES: usize = 5_000_000;
/// Attempts until a condition must have become true.
const TRIES: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_delivery_is_completed_and_frees_its_memory() {
    let app = TestApp::start().await;
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValue", "a"),
        ("projectUuid", &*project),
        ("eventPayloadMapRefs", r#"{"n":"n"}"#),
    ];
    ana.delivers(&parameters, json!({"n": "first"})).await.ok();
    let device = text(&ana.devices().await[0], "id").to_owned();
    for n in 0..HANGING_UP {
        let begin = format!(r#"{{"n":{n}"#);
        let body = format!("{begin}{}}}", " ".repeat(BODY_BYTES - begin.len() - 1));
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: isobar\r\napi_auth_token: {}\r\ncontent-type: application/json\r\n\
             content-length: {BODY_BYTES}\r\n\r\n",
            path(&parameters),
            ana.key
        );
        tokio::task::block_in_place(|| Socket::to(&app).sends(head + &body));
        let mut tries = 0;
        while !ana.history(&device).await.contains(&json!({"n": n})) {
            tries += 1;
            assert!(tries < TRIES, "delivery {n} does not come");
        }
    }
    ana.delivers(&parameters, json!({"n": "last", "filling": "x".repeat(BODY_BYTES / 2)})).await.ok();
    app.end().await;
}
