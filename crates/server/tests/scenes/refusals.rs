//! Tests which of several faults is reported first: 401, 429, 404, 403, and only then the parameters and the body.

use isobar_http::{RouteAccess, RouteRow, table};
use isobar_hub::RateLimits;
use isobar_model::role::Role;
use reqwest::Method;
use serde_json::{Value, json};

use crate::access::status;
use crate::cases::{Case, Things, name, request};
use crate::support::app::with_json;
use crate::support::{NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    resource_of_a_path_is_checked_before_the_role,
    part_of_a_resource_is_checked_before_the_role,
    unknown_device_is_a_fault_of_device_events_alone,
);

/// Returns the case with another name for every resource.
fn renamed(case: &Case, things: &Things<'_>, other: &str) -> Case {
    let mut case = case.clone();
    for id in things.ids() {
        case.path = case.path.replace(id, other);
    }
    case
}

fn names_a_thing(row: &RouteRow, case: &Case) -> bool {
    matches!(row.access, RouteAccess::User | RouteAccess::UserOrDevice)
        && case.hidden == Some(404)
        && row.path.contains('{')
}

// Holds: c1.ids, c1.order
async fn resource_of_a_path_is_checked_before_the_role(app: &TestApp) {
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let things = Things::made_by(&ana, &user).await;
    for row in table() {
        let case = things.case(&row);
        if !names_a_thing(&row, &case) {
            continue;
        }
        // A malformed identifier, or another spelling of one, names nothing.
        for other in [NOBODY, "not-an-id", &things.fridge.id.to_uppercase()] {
            let mut case = renamed(&case, &things, other);
            case.body = case.body.map(|_| json!("no object"));
            let asked = request(app, &row, &case).bearer_auth(&user.jwt);
            assert_eq!(status(asked).await, 404, "{} of {other}", name(&row));
        }
    }
}

// Holds: c1.order
async fn part_of_a_resource_is_checked_before_the_role(app: &TestApp) {
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(1)).await.created();
    for part in ["storage/unheard", "settings/unheard", "image"] {
        user.delete(&device.at(part)).await.not_found();
    }
    user.put(&device.at("settings/unheard"), json!(null)).await.not_found();
    user.delete(&device.at("storage/reading")).await.forbidden();
    ana.post_plain(&device.at("image"), crate::images::TINY_PNG).await.no_content();
    user.delete(&device.at("image")).await.forbidden();
    assert_eq!(ana.get(&device.at("data/reading")).await.list_of("/payload"), [1]);
    ana.get(&device.at("image")).await.is(200);
}

// Holds: c1.unknownDevice
async fn unknown_device_is_a_fault_of_device_events_alone(app: &TestApp) {
    let ana = app.developer("ana").await;
    let hidden = app.stranger("bob").await.creates_device("hidden").await;
    for device in [NOBODY, "nonsense", &hidden.id] {
        let at = |path: &str| format!("/v2/events/{path}?deviceId={device}&elementName=e");
        assert_eq!(ana.post(&at("device"), json!(1)).await.faults(), ["query.deviceId"]);
        ana.post(&at("cloud"), json!(1)).await.not_found();
        ana.get(&at("cloud")).await.not_found();
        ana.get(&at("cloud/next")).await.not_found();
        ana.delete(&at(&format!("cloud/{NOBODY}"))).await.not_found();
        if device != "nonsense" {
            ana.get(&at("stream")).await.not_found();
        }
    }
}

/// Calls that a user may make in a minute: enough to set the stage.
const A_MINUTE: u32 = 60;

// Holds: c1.order
#[tokio::test]
async fn rate_is_checked_right_after_the_credentials() {
    let limits = RateLimits { user: A_MINUTE, device: 0, address: 0 };
    let app = TestApp::with(|settings| settings.hub.rate_limit = limits).await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let key = user.makes_api_key("key").await;
    let things = Things::made_by(&ana, &user).await;
    app.wait_seconds(60);
    for _ in 0..A_MINUTE {
        user.get("/v2/auth/user").await.ok();
    }
    for row in
        table().into_iter().filter(|row| row.action.is_some_and(|action| action.minimum_role() > Role::BasicUser))
    {
        let mut case = renamed(&things.case(&row), &things, NOBODY);
        case.body = case.body.map(|_| Value::Null);
        let asked = match row.access {
            RouteAccess::ApiKey => request(&app, &row, &case).header("api_auth_token", &key),
            _ => request(&app, &row, &case).bearer_auth(&user.jwt),
        };
        assert_eq!(status(asked).await, 429, "{}", name(&row));
        assert_eq!(status(request(&app, &row, &case).bearer_auth("rubbish")).await, 401, "{}", name(&row));
    }
}

/// Sends a body that is too large.
async fn sends_too_much(person: &Person<'_>, path: &str) -> u16 {
    let request = with_json(person.request(Method::POST, path), &json!("x".repeat((1 << 20) - 1)));
    person.app.send(request).await.status.as_u16()
}

// Holds: c1.413
#[tokio::test]
async fn body_limit_is_a_mebibyte_unless_configured() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    ana.post(&device.door("e"), json!("x".repeat((1 << 20) - 2))).await.created();
    assert_eq!(sends_too_much(&ana, &device.door("e")).await, 413);
    let basic = ana.invites("basic", "basicUser").await;
    assert_eq!(sends_too_much(&basic, &device.door("e")).await, 403);
    assert_eq!(sends_too_much(&ana, &format!("/v2/projects/{NOBODY}/specification/test")).await, 404);
}

/// Returns a body of this many bytes that no operation can use.
fn rubbish(bytes: usize) -> String {
    format!("{{\"x\":\"{}\"}}", "x".repeat(bytes - 8))
}

// Holds: c1.413
#[tokio::test]
async fn body_limit_of_public_operations_is_sixteen_kibibytes() {
    let app = TestApp::start().await;
    let document = app.get("/v2/spec").await.ok();
    let mut seen = 0;
    for row in table() {
        let method: Method = row.method.name().parse().unwrap();
        let said = &document["paths"][row.path][row.method.name().to_lowercase()]["requestBody"];
        let is_open = !matches!(row.access, RouteAccess::User | RouteAccess::UserOrDevice | RouteAccess::ApiKey);
        assert_eq!(said["description"] == "At most 16384 bytes.", is_open && said.is_object(), "{}", row.path);
        // The account may be named in a body there too.
        if !is_open || !(said.is_object() || row.path == "/v2/auth/verify") {
            continue;
        }
        seen += 1;
        for (bytes, is_refused) in [(16 << 10, false), ((16 << 10) + 1, true), (1 << 20, true)] {
            let request = app.request(method.clone(), row.path).header("content-type", "application/json");
            let answer = app.send(request.body(rubbish(bytes))).await;
            assert_eq!(answer.status == 413, is_refused, "{bytes} bytes: {answer:?}");
            if is_refused {
                assert_eq!(answer.json()["errors"][0]["field"], "body");
            }
        }
    }
    assert_eq!(seen, 5);
    // A call with credentials may send more.
    let ana = app.developer("ana").await;
    let design =
        json!({"name": "p", "description": "", "planes": {"cloud": {"elements": {}}, "note": "x".repeat(100_000)}});
    ana.put(&format!("/v2/projects/{}/specification", ana.project().await), design).await.ok();
}
