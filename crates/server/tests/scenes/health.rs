//! Health and metrics.

use isobar_power::becomes;
use serde_json::json;

use crate::support::TestApp;

// Holds: GET /health/live, GET /health/ready, GET /metrics, c1.paths
#[tokio::test]
async fn healthy_server_reports_health() {
    let app = TestApp::start().await;
    assert_eq!(app.get("/health/live").await.ok()["status"], "up");
    assert_eq!(app.get("/health/ready").await.ok()["status"], "up");
    assert!(app.get("/metrics").await.is(200).header("content-type").starts_with("text/plain"));
}

// Holds: GET /health/ready
#[tokio::test]
async fn unresponsive_store_is_named_without_waiting() {
    let (app, road) = TestApp::on_far_postgres(|_| {}).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(1)).await.created();
    app.get("/health/ready").await.ok();
    road.closes();
    // The registry sends nothing before the road opens: every answer until then did not wait for it.
    let unready = async || app.get("/health/ready").await.is(503).json();
    let because = |message: &str| json!({"message": "the service is not ready", "errors": [{"field": "registry", "message": message}]});
    assert_eq!(unready().await, because("did not answer within 2 s"));
    let is_away = because("does not work: the log tells why");
    becomes("the registry is away", async || unready().await == is_away).await;
    // The server is alive all the same, and serves calls without the registry.
    app.get("/health/live").await.ok();
    device.posts("reading", json!(2)).await.created();
    road.opens();
    becomes("the registry is back", async || app.get("/health/ready").await.status == 200).await;
    assert_eq!(ana.get(&device.at("data/reading")).await.list_of("/payload"), [2, 1]);
    app.end().await;
}
