//! Rate limits: a fixed window of a minute, stated in the headers.

use isobar_http::{RouteAccess, table};
use isobar_hub::RateLimits;
use reqwest::Method;
use serde_json::json;

use crate::cases::{Things, name, request};
use crate::support::app::with_json;
use crate::support::{Answer, TestApp};

async fn limited(user: u32, device: u32, address: u32) -> TestApp {
    TestApp::with(|settings| settings.hub.rate_limit = RateLimits { user, device, address }).await
}

fn window(answer: &Answer) -> (&str, &str, &str) {
    (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining"), answer.header("x-ratelimit-reset"))
}

// Holds: limit.rate, limit.rateHeaders, c1.429, c10.window
#[tokio::test]
async fn user_has_one_rate_window_for_all_credentials() {
    let app = limited(4, 0, 0).await;
    let ana = app.developer("ana").await;
    let first = ana.get("/v2/auth/user").await;
    assert_eq!(window(&first), ("4", "3", "1800000060"));
    app.wait_seconds(59);
    let key = ana.makes_api_key("script").await;
    let with_key = || app.request(Method::GET, "/v2/auth/user").header("api_auth_token", &key);
    assert_eq!(window(&app.send(with_key()).await), ("4", "1", "1800000060"));
    // A refused call counts too, and has the headers.
    let refused = ana.post("/v2/devices", json!({})).await.is(400);
    assert_eq!(window(&refused), ("4", "0", "1800000060"));
    for spent in [ana.get("/v2/auth/user").await, app.send(with_key()).await] {
        let spent = spent.is(429);
        assert_eq!(window(&spent), ("4", "0", "1800000060"));
        assert_eq!(spent.header("retry-after"), "2");
    }
    // Another user has a window of its own.
    app.stranger("bob").await.get("/v2/auth/user").await.ok();
    app.wait_seconds(1);
    assert_eq!(window(&ana.get("/v2/auth/user").await.is(200)), ("4", "3", "1800000120"));
}

// Holds: limit.rate, c10.window
#[tokio::test]
async fn device_has_its_own_rate_window() {
    let app = limited(0, 2, 0).await;
    let ana = app.developer("ana").await;
    let (one, other) = (ana.creates_device("one").await, ana.creates_device("other").await);
    one.posts("reading", json!(1)).await.created();
    assert_eq!(window(&one.posts("reading", json!(2)).await.is(201)), ("2", "0", "1800000060"));
    one.posts("reading", json!(3)).await.is(429);
    one.takes().await.is(429);
    other.posts("reading", json!(1)).await.created();
    assert_eq!(ana.get(&one.at("data/reading")).await.list_of("/payload"), [2, 1]);
    app.wait_seconds(60);
    one.posts("reading", json!(4)).await.created();
}

// Holds: c10.window
#[tokio::test]
async fn request_without_valid_credentials_is_counted_by_address() {
    let app = limited(0, 0, 5).await;
    app.login("nobody", "a guess").await.unauthenticated();
    app.get("/v2/spec").await.is(200);
    app.get("/v2/devices").await.unauthenticated();
    let guess = || app.request(Method::GET, "/v2/devices").bearer_auth("a guess");
    app.send(guess()).await.unauthenticated();
    assert_eq!(window(&app.send(guess()).await.is(401)), ("5", "0", "1800000060"));
    // Credentials are checked before the rate: a call with bad ones is refused for that.
    let bad = app.send(guess()).await;
    assert_eq!((bad.status.as_u16(), window(&bad).1), (401, "0"));
    app.get("/v2/spec").await.is(429);
    // Calls of monitoring are not counted.
    let live = app.get("/health/live").await.is(200);
    assert_eq!(window(&live), ("", "", ""));
}

// Holds: c1.flood
#[tokio::test]
async fn flood_of_bad_credentials_is_refused_and_disconnected() {
    let app = limited(0, 0, 3).await;
    let ana = app.developer("ana").await;
    app.wait_seconds(60);
    let bad = |path: &str| app.request(Method::GET, path).header("cloud", "a guess");
    let closes = async |asked| app.send(asked).await.is(401).header("connection") == "close";
    for round in 0..30 {
        assert!(!closes(bad("/v2/devices")).await, "{round}");
    }
    // Bad credentials never get a 429, in any operation.
    for path in ["/v2/devices", "/v2/events/cloud", "/v2/auth/user", "/v2/auth/refreshToken"] {
        assert!(closes(bad(path)).await, "{path}");
    }
    let post = with_json(app.request(Method::POST, "/v2/events/device?elementName=e"), &json!(1));
    assert!(closes(post.header("cloud", "a guess")).await);
    assert!(closes(app.request(Method::POST, "/v2/auth/logout").bearer_auth("a guess")).await);
    // Valid credentials from that address are served.
    assert_eq!(ana.get("/v2/auth/user").await.is(200).header("connection"), "");
    app.get("/v2/spec").await.is(429);
    app.wait_seconds(60);
    assert!(!closes(bad("/v2/devices")).await);
}

// Holds: limit.rate
#[tokio::test]
async fn unknown_operation_is_counted_too() {
    let app = limited(3, 2, 2).await;
    let ana = app.developer("ana").await;
    app.wait_seconds(60);
    for (path, method, status) in [("/v2/nothing", Method::GET, 404), ("/v2/devices", Method::PATCH, 405)] {
        for _ in 0..2 {
            app.send(app.request(method.clone(), path)).await.is(status);
        }
        let spent = app.send(app.request(method.clone(), path)).await.is(429);
        assert_eq!((window(&spent).0, window(&spent).1), ("2", "0"));
        app.wait_seconds(60);
        for _ in 0..3 {
            assert_eq!(window(&app.send(ana.request(method.clone(), path)).await.is(status)).0, "3");
        }
        app.send(ana.request(method, path)).await.is(429);
        ana.get("/v2/auth/user").await.is(429);
        app.wait_seconds(60);
    }
}

// Holds: limit.rate
#[tokio::test]
async fn credentials_are_counted_on_public_operations_too() {
    let app = limited(50, 0, 60).await;
    let ana = app.developer("ana").await;
    let body = || json!({"organizationId": ana.organization});
    assert_eq!(window(&ana.post("/v2/auth/register", body()).await.is(400)).0, "50");
    assert_eq!(window(&app.post("/v2/auth/register", body()).await.is(401)).0, "60");
    assert_eq!(window(&app.send(ana.request(Method::POST, "/v2/auth/logout")).await.is(204)).0, "50");
}

// Holds: limit.rateHeaders, c10.headers
#[tokio::test]
async fn every_counted_response_states_its_rate_window() {
    let app = limited(10_000, 10_000, 10_000).await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let things = Things::made_by(&ana, &user).await;
    let key = ana.makes_api_key("key").await;
    for row in table() {
        let case = things.case(&row);
        for (header, value) in [("x-none", ""), ("api_auth_token", &key), ("cloud", &things.fridge.token)] {
            let sent = request(&app, &row, &case).header(header, value);
            // The head is enough: a stream is endless.
            let answer = sent.send().await.unwrap();
            let tells = |name: &str| answer.headers().contains_key(name);
            let told = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(tells);
            assert_eq!(told, [row.access != RouteAccess::Probe; 3], "{} with {header}: {answer:?}", name(&row));
        }
    }
}

// Holds: c10.off
#[tokio::test]
async fn disabled_rate_limit_sends_no_headers() {
    let app = limited(0, 0, 0).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for answer in [ana.get("/v2/auth/user").await, device.takes().await, app.get("/v2/spec").await] {
        assert_eq!(window(&answer), ("", "", ""));
    }
}
