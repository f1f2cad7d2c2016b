//! Tests the server's description of itself (contract: About).

use isobar_hub::RateLimits;
use reqwest::Method;
use serde_json::json;

use crate::support::TestApp;

const COMMIT: &str = "5d41402abc4b2a76b9719d911017c592ae58c1f3";

// Holds: GET /v2/about, c13.about
#[tokio::test]
async fn about_is_public() {
    let app = TestApp::with(|settings| settings.http.commit = Some(COMMIT)).await;
    let expected = json!({
        "name": "Isobar", "version": env!("CARGO_PKG_VERSION"), "commit": COMMIT,
        "startedAt": "2027-01-15T08:00:00.000Z", "sendsEmail": false,
    });
    app.wait_seconds(60);
    assert_eq!(app.get("/v2/about").await.ok(), expected);
    // Credentials are ignored.
    let odd = app.request(Method::GET, "/v2/about").header("api_auth_token", "rubbish");
    assert_eq!(app.send(odd).await.ok(), expected);
    app.post("/v2/about", json!({})).await.is(405);
    let app = app.restart().await;
    assert_eq!(app.get("/v2/about").await.ok()["startedAt"], "2027-01-15T08:01:00.000Z");
}

// Holds: GET /v2/about
#[tokio::test]
async fn about_of_a_build_without_a_commit_says_so() {
    let app = TestApp::start().await;
    assert_eq!(app.get("/v2/about").await.ok()["commit"], json!(null));
}

// Holds: c13.about
#[tokio::test]
async fn about_says_that_email_is_sent_with_an_smtp_server() {
    let url = "smtp://mail.example:25".to_owned();
    let app = TestApp::with(|settings| settings.smtp_url = Some(url)).await;
    assert_eq!(app.get("/v2/about").await.ok()["sendsEmail"], json!(true));
}

// Holds: GET /v2/about
#[tokio::test]
async fn request_of_about_is_counted_by_address() {
    let limits = RateLimits { user: 0, device: 0, address: 3 };
    let app = TestApp::with(|settings| settings.hub.rate_limit = limits).await;
    for left in (0..3).rev() {
        assert_eq!(app.get("/v2/about").await.is(200).header("x-ratelimit-remaining"), left.to_string());
    }
    app.get("/v2/about").await.is(429);
}
