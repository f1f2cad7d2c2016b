//! Tests the list of nodes and databases (contract: Many nodes).

use serde_json::{Value, json};

use crate::support::TestApp;

/// Returns true if these are the names of the registry and of all databases of telemetry.
fn are_all_databases(names: &[Value]) -> bool {
    let is_of = |name: &Value, store: &str| name.as_str().is_some_and(|name| name.starts_with(store));
    names.len() >= 2 && names[0] == "registry" && names[1..].iter().all(|name| is_of(name, "telemetry"))
}

/// Returns the members of the items in a list of an answer.
fn members(answer: &Value, list: &str, member: &str) -> Vec<Value> {
    answer[list].as_array().unwrap().iter().map(|item| item[member].clone()).collect()
}

// Holds: GET /v2/platform, GET /health/ready
#[tokio::test]
async fn platform_names_its_nodes_and_databases() {
    let app = TestApp::start().await;
    let platform = app.admin().await.get("/v2/platform").await.ok();
    let [node] = platform["nodes"].as_array().unwrap().as_slice() else { panic!("{platform}") };
    assert_eq!((&node["serves"], &node["version"]), (&json!(true), &json!(env!("CARGO_PKG_VERSION"))));
    assert!(are_all_databases(&members(&platform, "databases", "name")), "{platform}");
    assert!(members(&platform, "databases", "ready").iter().all(|ready| *ready == true), "{platform}");
    let ready = app.get("/health/ready").await.ok();
    assert!(are_all_databases(&members(&ready, "databases", "name")), "{ready}");
    assert!(members(&ready, "databases", "status").iter().all(|status| status == "up"), "{ready}");
    let ana = app.developer("ana").await;
    ana.get("/v2/platform").await.is(403);
    app.get("/v2/platform").await.is(401);
}

// Holds: GET /v2/platform
#[tokio::test]
async fn platform_names_the_database_that_does_not_answer() {
    let (app, road) = TestApp::on_far_postgres(|_| {}).await;
    let admin = app.admin().await;
    let platform = admin.get("/v2/platform").await.ok();
    let place = platform["databases"][0]["place"].as_str().unwrap();
    assert!(place.starts_with("127.0.0.1:") && !place.contains('@'), "{place}");
    road.closes();
    let platform = admin.get("/v2/platform").await.ok();
    assert_eq!(members(&platform, "databases", "ready")[..2], [false, true]);
    assert_eq!(platform["databases"][0]["message"], "did not answer within 2 s");
    road.opens();
    app.end().await;
}

// Holds: GET /v2/platform
#[tokio::test]
async fn platform_names_each_node_that_serves() {
    let (first, second) = TestApp::two_nodes().await;
    let admin = first.admin().await;
    let both = async || {
        let platform = admin.get("/v2/platform").await.ok();
        members(&platform, "nodes", "serves") == [true, true]
    };
    isobar_power::becomes("both nodes are listed", both).await;
    let seen = admin.through(&second).get("/v2/platform").await.ok();
    assert_eq!(members(&seen, "nodes", "serves"), [true, true]);
    assert_eq!(seen["nodes"][0]["settings"], seen["nodes"][1]["settings"]);
    second.end().await;
    let alone = async || members(&admin.get("/v2/platform").await.ok(), "nodes", "serves") == [true];
    isobar_power::becomes("the node that ended is not listed", alone).await;
    first.end().await;
}
