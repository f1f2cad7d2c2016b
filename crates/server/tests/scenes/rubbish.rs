//! Tests that no input makes the server fail.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use reqwest::Method;
use serde_json::json;

use crate::support::app::new_user;
use crate::support::designs::fridge;
use crate::support::{Device, Person, TestApp};

/// Makes bodies: bytes, texts that look like JSON, and objects with members that the API knows.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?[0-9]{1,25}(\\.[0-9]{1,25})?([eE]-?[0-9]{1,4})?",
        "\"[ -!#-\\[\\]-~é]{0,100}\"",
    ];
    let value = leaf.prop_recursive(4, 24, 6, |inner| {
        let key = prop::sample::select(vec![
            "name",
            "projectUuid",
            "organizationId",
            "meta",
            "planes",
            "cloud",
            "elements",
            "type",
            "properties",
            "triggers",
            "eventReceived",
            "temp",
            "username",
            "email",
            "role",
            "password",
            "streetAddress",
            "parentId",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    prop_oneof![
        3 => value.prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..200),
        1 => "[\\[\\]{}\",:0-9a-z ]{0,100}".prop_map(String::into_bytes),
    ]
}

async fn is_no_failure(app: &TestApp, request: reqwest::RequestBuilder) {
    let answer = app.send(request).await;
    assert!(answer.status.as_u16() < 500, "{answer:?}");
}

async fn hears(ana: &Person<'_>, device: &Device<'_>, bodies: Vec<Vec<u8>>) {
    let app = ana.app;
    let project = ana.project().await;
    for body in bodies {
        for (method, path) in [
            (Method::POST, "/v2/auth/register".to_owned()),
            (Method::POST, "/v2/devices".to_owned()),
            (Method::PUT, device.url()),
            (Method::POST, "/v2/organizations".to_owned()),
            (Method::POST, "/v2/projects".to_owned()),
            (Method::PUT, format!("/v2/projects/{project}/specification")),
            (Method::POST, format!("/v2/users/{}/apiKeys", ana.id)),
            (Method::POST, device.door("reading")),
            (Method::POST, device.door("newLimit")),
            (Method::POST, format!("{}&elementName=alarm", device.queue())),
        ] {
            let request = ana.request(method, &path).header("content-type", "application/json");
            is_no_failure(app, request.body(body.clone())).await;
        }
    }
}

/// Draws `count` values of a strategy.
fn some<T: Strategy>(count: usize, strategy: T) -> Vec<T::Value> {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[tokio::test]
async fn random_body_never_fails_the_server() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    hears(&ana, &device, some(150, body())).await;
    // It still works.
    device.posts("reading", json!({"temp": 9})).await.created();
}

#[tokio::test]
async fn random_path_never_fails_the_server() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!({"temp": 9})).await.created();
    let parameter = prop::sample::select(vec![
        "page",
        "limit",
        "from",
        "to",
        "sortBy",
        "depth",
        "searchText",
        "entityList",
        "lastValues",
        "filter[payload.temp][gt]",
        "filter[payload][in]",
        "filter[id][lt]",
        "filter[createdAt][nin]",
        "organizationId",
        "parentId",
        "peek",
        "elementName",
        "deviceEvents",
        "filter[type]",
    ]);
    let value = prop_oneof![
        "[0-9]{1,20}",
        "[+-]?(name|createdAt|payload|payload\\.[a-z.]{0,9}|id)(,-name)?",
        "%[0-9a-f]{2}",
        "[ -~]{0,30}",
        Just("%00".to_owned()),
        Just("%25_%5C".to_owned()),
        Just("all".to_owned()),
        Just("0001-01-01".to_owned()),
        Just("9999-12-31T23:59:59Z".to_owned()),
        Just("18446744073709551615".to_owned()),
    ];
    let query = prop::collection::vec((parameter, value), 1..5);
    for pairs in some(150, query) {
        let mut raw = String::new();
        for (name, value) in pairs {
            let value: String = value.chars().map(|c| if "#&\\^`{|}\"<> ".contains(c) { '+' } else { c }).collect();
            raw.push_str(&format!("{name}={value}&"));
        }
        for path in [
            "/v2/devices".to_owned(),
            "/v2/users".to_owned(),
            "/v2/projects".to_owned(),
            "/v2/organizations".to_owned(),
            device.at("data/reading"),
            device.at("events"),
            device.at("storage"),
            device.url(),
        ] {
            is_no_failure(&app, ana.request(Method::GET, &format!("{path}?{raw}"))).await;
        }
        is_no_failure(&app, device.request(Method::GET, &format!("/v2/events/cloud?{raw}"))).await;
    }
}

#[tokio::test]
async fn a_zero_character_in_a_text_is_refused_on_either_registry() {
    for app in [TestApp::start().await, TestApp::on_postgres().await] {
        let ana = app.developer("ana").await;
        let project = ana.project().await.to_owned();
        let device = json!({
            "name": "a\u{0}b",
            "projectUuid": project,
            "description": "\u{0}",
            "protocols": ["http", "\u{0}"],
            "streetAddress": {"city": "\u{0}"},
        });
        let faults = ["description", "name", "protocols[1]", "streetAddress.city"];
        assert_eq!(ana.post("/v2/devices", device).await.faults(), faults);
        assert_eq!(ana.post("/v2/organizations", json!({"name": "\u{0}"})).await.faults(), ["name"]);
        let mut nobody = new_user("nobody", "basicUser");
        nobody["username"] = json!("\u{0}");
        assert_eq!(ana.post("/v2/users", nobody).await.faults(), ["username"]);
        // Stored JSON may contain it.
        let free = json!({"name": "c", "projectUuid": project, "meta": {"\u{0}": "\u{0}"}});
        let made = ana.post("/v2/devices", free).await.created();
        assert_eq!(made["meta"], json!({"\u{0}": "\u{0}"}));
        is_no_failure(&app, ana.request(Method::GET, "/v2/devices?searchText=%00")).await;
        is_no_failure(&app, ana.request(Method::GET, "/v2/devices?entityList=%00")).await;
        // Otherwise every zero character would make another name to guess a password for.
        for name in ["ana\u{0}", "\u{0}ana"] {
            assert_eq!(app.login(name, &ana.password).await.faults(), ["usernameOrEmail"]);
        }
        drop(ana);
        app.end().await;
    }
}
