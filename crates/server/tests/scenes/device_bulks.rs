//! Creating many devices in one call.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::person::text;
use crate::support::{Device, NOBODY, TestApp, on_both_registries};

on_both_registries!(
    each_device_of_a_bulk_is_created_separately,
    dry_run_of_a_bulk_creates_nothing,
    a_limit_holds_among_bulks_at_the_same_time,
    malformed_bulk_of_devices_creates_nothing,
);

const BULK: &str = "/v2/devices/bulk";

/// Returns the position and the message of each error.
fn errors(outcome: &Value) -> Vec<(u64, String)> {
    let errors = outcome["errors"].as_array().unwrap().iter();
    errors.map(|error| (error["index"].as_u64().unwrap(), text(error, "message").to_owned())).collect()
}

fn places(outcome: &Value) -> Vec<u64> {
    outcome["data"].as_array().unwrap().iter().map(|made| made["index"].as_u64().unwrap()).collect()
}

// Holds: POST /v2/devices/bulk, c13.bulk
async fn each_device_of_a_bulk_is_created_separately(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let project = ana.project().await;
    let branch = ana.founds("branch", &ana.organization).await;
    let hidden = app.stranger("bob").await;
    let theirs = hidden.creates_project("theirs").await;
    let labels: serde_json::Map<_, _> = (0..1_001).map(|number| (format!("l{number}"), json!(number))).collect();
    let body = json!([
        {"name": "zero", "projectUuid": project, "meta": {"a": 1}},
        {"name": "", "projectUuid": project},
        {"name": "two", "projectUuid": project, "organizationId": branch, "description": "beneath"},
        {"projectUuid": 7},
        {"name": "four", "projectUuid": NOBODY},
        {"name": "five", "projectUuid": theirs, "organizationId": hidden.organization},
        "six",
        {"name": "seven", "projectUuid": project, "meta": labels},
        {"name": "eight", "projectUuid": project},
    ]);
    let outcome = tom.post(BULK, body).await.ok();
    assert_eq!(places(&outcome), [0, 2, 8]);
    let told = errors(&outcome);
    assert_eq!(told.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 3, 4, 5, 6, 7]);
    for ((_, message), words) in told.iter().zip([
        &["name: "][..],
        &["name: is required", "projectUuid: "],
        &["projectUuid: no such project"],
        &["organizationId: no such organization", "projectUuid: no such project"],
        &["must be an object, not"],
        &["meta: must hold"],
    ]) {
        assert!(words.iter().all(|words| message.contains(words)), "{message}");
    }
    // Such a device works like any other.
    let made: Vec<Device<'_>> = outcome["data"].as_array().unwrap().iter().map(|made| Device::of(app, made)).collect();
    made[0].posts("reading", json!(1)).await.created();
    let shown = ana.get(&made[1].url()).await.ok();
    let expected = json!(["two", branch, "beneath", tom.id, {}]);
    let is = json!([shown["name"], shown["organizationId"], shown["description"], shown["createdBy"], shown["meta"]]);
    assert_eq!(is, expected);
    assert_eq!(ana.get("/v2/devices?depth=all&searchText=zero").await.list_of("/meta/a"), [json!(1)]);
    assert_eq!(ana.organization(&ana.organization).await["deviceCount"], 3);
    assert_eq!(ana.post(BULK, json!([])).await.ok(), json!({"data": [], "errors": []}));
}

// Holds: c13.bulkTest
async fn dry_run_of_a_bulk_creates_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.project().await;
    let branch = ana.founds("branch", &ana.organization).await;
    let admin = app.admin().await;
    admin.changes(&ana.organization, json!({"deviceCountLimit": 4})).await.ok();
    ana.creates_device("first").await;
    let item = |name: &str| json!({"name": name, "projectUuid": project, "organizationId": branch});
    let own = |name: &str| json!({"name": name, "projectUuid": project});
    let body = json!([item("a"), own(""), own("b"), item("c"), own("d"), item("e")]);
    let outcome = ana.post(&format!("{BULK}?test=true"), body.clone()).await.ok();
    assert_eq!(outcome["data"][1], json!({"index": 2, "id": null, "token": null}));
    assert_eq!((places(&outcome).len(), errors(&outcome).len()), (3, 3));
    assert!(errors(&outcome)[1].1.starts_with("organizationId: the device limit"), "{outcome}");
    assert_eq!(ana.get("/v2/devices?depth=all").await.names(), ["first"]);
    let outcome = ana.post(BULK, body).await.ok();
    assert_eq!((places(&outcome).len(), errors(&outcome).len()), (3, 3));
    assert_eq!(ana.organization(&ana.organization).await["deviceCount"], 4);
    assert_eq!(ana.post(&format!("{BULK}?test=maybe"), json!("x")).await.faults(), ["body", "query.test"]);
}

// Holds: POST /v2/devices/bulk
async fn a_limit_holds_among_bulks_at_the_same_time(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.project().await;
    let mut branches = vec![ana.organization.clone()];
    for name in ["one", "two"] {
        branches.push(ana.founds(name, &ana.organization).await);
    }
    app.admin().await.changes(&ana.organization, json!({"deviceCountLimit": 50})).await.ok();
    let bulk = |number: usize| {
        let item = |at: usize| {
            let organization = &branches[(number + at) % 3];
            json!({"name": format!("d{number}-{at}"), "projectUuid": project, "organizationId": organization})
        };
        let body: Vec<Value> = (0..20).map(item).collect();
        let ana = &ana;
        async move { ana.post(BULK, json!(body)).await.ok() }
    };
    let single = |number: usize| {
        let body = json!({"name": format!("s{number}"), "projectUuid": project});
        let ana = &ana;
        async move { usize::from(ana.post("/v2/devices", body).await.status.as_u16() == 201) }
    };
    let (bulks, singles) = tokio::join!(join_all((0..4).map(bulk)), join_all((0..5).map(single)));
    let made: usize = bulks.iter().map(|outcome| places(outcome).len()).sum();
    let refused: usize = bulks.iter().map(|outcome| errors(outcome).len()).sum();
    assert_eq!((made + singles.iter().sum::<usize>(), made + refused), (50, 80));
    assert_eq!(ana.organization(&ana.organization).await["deviceCount"], 50);
    assert_eq!(ana.get("/v2/devices?depth=all&limit=1").await.ok()["meta"]["totalDocs"], 50);
}

// Holds: c13.bulk
async fn malformed_bulk_of_devices_creates_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let reader = ana.invites("reader", "basicUser").await;
    reader.post(BULK, json!([{"name": "d", "projectUuid": ana.project().await}])).await.forbidden();
    reader.post(BULK, json!("no list")).await.forbidden();
    for body in [json!({"items": []}), json!(vec![0; 10_001]), json!(null)] {
        assert_eq!(ana.post(BULK, body).await.faults(), ["body"]);
    }
    assert_eq!(ana.post_text(BULK, "[").await.faults(), ["body"]);
    ana.post_text(BULK, format!("[\"{}\"]", "x".repeat(5 << 20))).await.is(413);
    assert_eq!(ana.get("/v2/devices").await.names(), [] as [&str; 0]);
}

// Holds: c13.bulk
#[tokio::test]
async fn bulk_of_a_client_that_disconnects_leaves_whole_devices() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.project().await;
    let item = |number: usize| json!({"name": format!("d{number:05}"), "projectUuid": project, "meta": {"n": number}});
    let body: Vec<Value> = (0..3_000).map(item).collect();
    let outcome = ana.post(BULK, json!(body)).await.ok();
    assert_eq!((places(&outcome), errors(&outcome).len()), ((0..3_000).collect(), 0));
    let asked = with_json(ana.request(Method::POST, BULK), &json!(body)).timeout(Duration::from_millis(60));
    let _ = asked.send().await;
    // Every created device is in the count, in the list and in its labels, however the call ended.
    let count = async || ana.organization(&ana.organization).await["deviceCount"].as_u64().unwrap();
    let total = async |query: &str| {
        ana.get(&format!("/v2/devices?limit=1&{query}")).await.ok()["meta"]["totalDocs"].as_u64().unwrap()
    };
    loop {
        let before = count().await;
        let found = [total("").await, total("filter[meta.n][gte]=0").await, total("searchText=d").await];
        if count().await == before {
            assert_eq!(found, [before; 3]);
            assert_eq!(before % 50, 0, "whole transactions");
            break;
        }
    }
}
