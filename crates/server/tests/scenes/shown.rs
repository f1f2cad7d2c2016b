//! Tests that a device is never shown in an older state than was acknowledged, however often it was read before.

use std::pin::pin;

use futures::future::{Either, select};
use isobar_model::access;
use isobar_model::time::Timestamp;
use isobar_power::becomes;
use isobar_store::telemetry::{Commit, OutboxChange};
use serde_json::{Value, json};

use crate::support::designs::to_with;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    cached_device_shows_every_later_change,
    a_device_shows_its_organization_by_the_new_name,
    device_shows_state_not_yet_in_the_registry,
);

/// Returns a design that stores a reading's number as metadata and as status.
fn state() -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to_with("state", "setStatus", json!({"status": "payload.n % 4 + 1"})),
            to_with("state", "setValue", json!({"tag": "'n'", "value": "payload.n"})),
        ]}},
        "state": {"type": "deviceMeta"},
    })
}

async fn cached_device_shows_every_later_change(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(state()).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for n in 0..20 {
        device.posts("reading", json!({"n": n})).await.created();
        let shown = ana.get(&device.url()).await.ok();
        assert_eq!((&shown["statusInt"], &shown["meta"]["n"]), (&json!(n % 4 + 1), &json!(n)));
        assert!(shown["lastActive"].is_string());
        let body = json!({"name": format!("fridge {n}"), "projectUuid": project});
        ana.put(&device.url(), body).await.ok();
        assert_eq!(ana.get(&device.url()).await.ok()["name"], format!("fridge {n}"));
        assert_eq!(device.get(&device.url()).await.ok()["name"], format!("fridge {n}"));
    }
    ana.delete(&device.url()).await.no_content();
    ana.get(&device.url()).await.not_found();
}

async fn a_device_shows_its_organization_by_the_new_name(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let before = ana.get(&device.url()).await.ok();
    let organization = before["organizationId"].as_str().unwrap();
    ana.changes(organization, json!({"name": "Cold and Sons"})).await.ok();
    assert_eq!(ana.get(&device.url()).await.ok()["organizationName"], "Cold and Sons");
}

async fn device_shows_state_not_yet_in_the_registry(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(state()).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    device.posts("reading", json!({"n": 1})).await.created();
    assert_eq!(ana.get(&device.url()).await.ok()["statusInt"], 2);
    let held = app.holds_the_registry().await;
    if app.shares_telemetry() {
        // Other nodes read the registry: nothing is acknowledged that it does not have.
        let post = device.posts("reading", json!({"n": 6}));
        let committed = async {
            let is_in_history = async || ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"] == 2;
            becomes("the event is in history", is_in_history).await;
        };
        match select(pin!(post), pin!(committed)).await {
            Either::Left((answer, _)) => panic!("acknowledged too early: {answer:?}"),
            Either::Right(((), post)) => {
                drop(held);
                post.await.created();
            }
        }
    } else {
        device.posts("reading", json!({"n": 6})).await.created();
        shows_the_newest(&ana, &device).await;
        drop(held);
    }
    shows_the_newest(&ana, &device).await;
    // A change waits for the report, and keeps it.
    let renamed = ana.put(&device.url(), json!({"name": "freezer", "projectUuid": project})).await.ok();
    assert_eq!(shown(&renamed), (json!(3), json!(6)));
    shows_the_newest(&ana, &device).await;
}

fn shown(device: &Value) -> (Value, Value) {
    (device["statusInt"].clone(), device["meta"]["n"].clone())
}

async fn shows_the_newest(ana: &Person<'_>, device: &Device<'_>) {
    assert_eq!(shown(&ana.get(&device.url()).await.ok()), (json!(3), json!(6)));
    assert_eq!(shown(&device.get(&device.url()).await.ok()), (json!(3), json!(6)));
    assert_eq!(shown(&ana.get("/v2/devices").await.ok()["data"][0]), (json!(3), json!(6)));
}

#[tokio::test]
async fn first_read_after_a_crash_shows_unreported_state() {
    /// Runs whose work an earlier process left.
    const LEFT: u8 = 200;
    let app = TestApp::start().await;
    let (url, jwt) = {
        let ana = app.developer("ana").await;
        let device = ana.creates_device_of(&ana.designs(state()).await, "fridge").await;
        device.posts("reading", json!({"n": 1})).await.created();
        (device.url(), ana.jwt)
    };
    let id = url.rsplit('/').next().unwrap();
    let (device, _) = app.registry().device_placement(id.parse().unwrap()).await.unwrap().unwrap();
    let app = app
        .restart_after(async |telemetry| {
            for n in 1..=LEFT {
                let work = json!({"device": id, "status": n % 4 + 1, "meta": [["n", n.to_string()]]});
                let pass = access::system(device, "a scene leaves work");
                let entry = || OutboxChange::Put { number: telemetry.outbox_number(), work: work.to_string().into() };
                let commit = || Commit { outbox: vec![entry()], ..Commit::default() };
                telemetry.run(&pass, None, Timestamp::default(), &mut |_| commit()).await.unwrap();
            }
        })
        .await;
    let read = async || {
        let device = app.send(app.request(reqwest::Method::GET, &url).bearer_auth(&jwt)).await.ok();
        (device["statusInt"].clone(), device["meta"]["n"].clone())
    };
    let newest = (json!(LEFT % 4 + 1), json!(LEFT));
    if app.shares_telemetry() {
        // Where processes share telemetry, reads show what the registry has: nothing else was acknowledged.
        becomes("the registry has what was left", async || read().await == newest).await;
    } else {
        assert_eq!(read().await, newest);
    }
    app.end().await;
}
