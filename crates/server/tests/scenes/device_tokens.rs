//! Tests the rights of a device token: its own channel, its own data, nothing else.

use isobar_http::{RouteAccess, table};
use reqwest::Method;
use serde_json::json;

use crate::support::app::with_json;
use crate::support::person::text;
use crate::support::{Device, NOBODY, TestApp};

// Holds: c3.deviceToken
#[tokio::test]
async fn device_reads_its_own_resources() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!({"temp": 4})).await.created();
    assert_eq!(device.get(&device.url()).await.ok()["name"], "fridge");
    assert_eq!(device.get(&device.at("last/reading")).await.ok()["values"], json!({"temp": 4}));
    device.takes().await.no_content();
    let id = device.queues("alarm", json!(1)).await;
    let delete = device.request(Method::DELETE, &format!("/v2/events/cloud/{id}"));
    app.send(delete).await.no_content();
}

// Holds: rule.events.token, c3.deviceToken
#[tokio::test]
async fn device_token_overrides_a_named_device() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (one, other) = (ana.creates_device("one").await, ana.creates_device("other").await);
    for named in [&*other.id, NOBODY, "nonsense", ""] {
        let at = |path: &str| format!("/v2/events/{path}?elementName=e&deviceId={named}");
        app.send(with_json(one.request(Method::POST, &at("device")), &json!(named))).await.created();
        // Devices receive cloud events, but cannot send any.
        app.send(with_json(one.request(Method::POST, &at("cloud")), &json!(named))).await.unauthenticated();
        one.queues("e", json!(named)).await;
        assert_eq!(one.get(&at("cloud/next")).await.ok(), named);
        let id = one.queues("e", json!(named)).await;
        assert_eq!(one.get(&format!("{}&peek=true", at("cloud"))).await.ok()[0]["deviceId"], one.id.as_str());
        app.send(one.request(Method::DELETE, &at(&format!("cloud/{id}")))).await.no_content();
    }
    assert_eq!(ana.get(&one.at("data/e")).await.ok()["meta"]["totalDocs"], 4);
    assert_eq!(ana.get(&other.at("events")).await.ok()["meta"]["totalDocs"], 0);
}

// Holds: auth.events
#[tokio::test]
async fn event_channel_accepts_four_kinds_of_credentials() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let key = ana.makes_api_key("key").await;
    let bearer = format!("Bearer {}", ana.jwt);
    for (header, value) in
        [("cloud", &device.token), ("authorization", &bearer), ("api_auth_token", &key), ("authorization", &key)]
    {
        let ask = |method: Method, path: &str| app.request(method, path).header(header, value);
        app.send(with_json(ask(Method::POST, &device.door("reading")), &json!(1))).await.created();
        for _ in 0..2 {
            device.queues("alarm", json!(2)).await;
        }
        let next = format!("/v2/events/cloud/next?deviceId={}", device.id);
        assert_eq!(app.send(ask(Method::GET, &next)).await.ok(), 2);
        assert_eq!(app.send(ask(Method::GET, &device.queue())).await.ok()[0]["payload"], 2);
    }
    assert_eq!(ana.get(&device.at("data/reading")).await.ok()["meta"]["totalDocs"], 4);
}

// Holds: c3.deviceToken
#[tokio::test]
async fn device_token_cannot_see_another_device() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (one, other) = (ana.creates_device("one").await, ana.creates_device("other").await);
    other.posts("reading", json!(1)).await.created();
    one.get(&other.url()).await.not_found();
    one.get(&other.at("last/reading")).await.not_found();
    // In the event channel the token identifies the device, whatever is named.
    let request = one.request(Method::POST, &other.door("reading")).header("content-type", "application/json");
    app.send(request.body("2")).await.created();
    assert_eq!(ana.get(&one.at("data/reading")).await.list_of("/payload"), [2]);
    assert_eq!(ana.get(&other.at("data/reading")).await.list_of("/payload"), [1]);
    other.queues("alarm", json!("for other")).await;
    one.get(&format!("/v2/events/cloud/next?deviceId={}", other.id)).await.no_content();
    other.takes().await.ok();
}

// Holds: auth.deviceToken, c3.deviceToken
#[tokio::test]
async fn device_token_is_refused_by_operations_of_users() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(1)).await.created();
    for row in table().into_iter().filter(|row| row.access == RouteAccess::User) {
        let path =
            row.path.replace("{id}", &device.id).replace("{deviceId}", &device.id).replace("{elementName}", "reading");
        let method: Method = row.method.name().parse().unwrap();
        app.send(device.request(method, &path)).await.unauthenticated();
    }
    // A device token is accepted in its own header only.
    let jwt = app.request(Method::GET, &device.url()).bearer_auth(&device.token);
    app.send(jwt).await.unauthenticated();
    let key = app.request(Method::GET, &device.url()).header("api_auth_token", &device.token);
    app.send(key).await.unauthenticated();
}

// Holds: device.token, POST /v2/devices/{id}/token, c7.token
#[tokio::test]
async fn new_device_token_revokes_the_old_one_at_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let old = ana.creates_device("fridge").await;
    old.posts("reading", json!(1)).await.created();
    let rotated = ana.post(&old.at("token"), json!({})).await.created();
    let new = Device { app: &app, id: old.id.clone(), token: text(&rotated, "token").to_owned() };
    assert_eq!(rotated.as_object().unwrap().len(), 1);
    old.posts("reading", json!(2)).await.unauthenticated();
    old.get(&old.url()).await.unauthenticated();
    new.posts("reading", json!(3)).await.created();
    assert_eq!(ana.get(&new.at("data/reading")).await.list_of("/payload"), [3, 1]);
    let (id, old, new) = (new.id, old.token, new.token);
    let app = app.restart().await;
    let device = |token: &str| Device { app: &app, id: id.clone(), token: token.to_owned() };
    device(&old).posts("reading", json!(4)).await.unauthenticated();
    device(&new).posts("reading", json!(5)).await.created();
}
