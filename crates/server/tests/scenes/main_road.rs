//! The main road, end to end, on either registry: a device event arrives.

use serde_json::json;

use crate::support::designs::fridge;
use crate::support::person::text;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(
    a_device_event_arrives,
    a_design_runs_on_every_event,
    state_set_by_a_design_is_visible_at_once,
    an_organization_sees_its_own_tree,
    names_are_taken_without_regard_to_case,
    a_design_changes_between_two_events,
);

// Holds: event.id, event.type, event.deviceId, event.elementName, event.receivedAt, value.id, value.createdAt,
// value.deviceId, value.elementName, last.updatedAt, last.deviceId, last.elementName, last.values,
// POST /v2/events/device, c6.createdAt
async fn a_device_event_arrives(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    assert_eq!(ana.get(&device.url()).await.ok()["lastActive"], json!(null));
    app.wait_seconds(60);
    let made = device.posts("reading", json!({"temp": 9.1})).await.created();
    let id = text(&made, "id");

    let values = ana.get(&device.at("data/reading")).await.ok();
    let expected = json!({
        "meta": {"totalDocs": 1, "page": 1, "limit": 100, "hasPrevPage": false, "hasNextPage": false, "totalPages": 1},
        "data": [{
            "id": id,
            "createdAt": "2027-01-15T08:01:00.000Z",
            "deviceId": device.id,
            "elementName": "reading",
            "payload": {"temp": 9.1},
        }],
    });
    assert_eq!(values, expected);
    let last = ana.get(&device.at("last/reading")).await.ok();
    let expected = json!({
        "updatedAt": "2027-01-15T08:01:00.000Z",
        "deviceId": device.id,
        "elementName": "reading",
        "values": {"temp": 9.1},
    });
    assert_eq!(last, expected);
    let event = ana.get(&device.at(&format!("events/{id}"))).await.ok();
    let expected = json!({
        "id": id,
        "type": "deviceEvent",
        "deviceId": device.id,
        "elementName": "reading",
        "payload": {"temp": 9.1},
        "receivedAt": "2027-01-15T08:01:00.000Z",
    });
    assert_eq!(event, expected);
    let seen = ana.get(&format!("{}?lastValues=all", device.url())).await.ok();
    assert_eq!(seen["lastActive"], "2027-01-15T08:01:00.000Z");
    assert_eq!(seen["lastValues"], json!([last]));
    app.stranger("bob").await.get(&device.url()).await.not_found();
}

// Holds: rule.events.processing, channel.values, c11.transform, c11.unknown
async fn a_design_runs_on_every_event(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    for temp in [4, 4, 9] {
        device.posts("reading", json!({"temp": temp})).await.created();
    }
    let temps = |list: Vec<serde_json::Value>| serde_json::Value::from(list);
    let stored = ana.get(&device.at("data/store")).await.list_of("/payload/temp");
    assert_eq!(temps(stored), json!([9, 4, 4]));
    let changes = ana.get(&device.at("data/moves")).await.list_of("/payload/temp");
    assert_eq!(temps(changes), json!([9, 4]));
    let converted = ana.get(&device.at("data/converted")).await.list_of("/payload/tempF");
    assert_eq!(converted.iter().map(|f| f.as_f64().unwrap().floor()).collect::<Vec<_>>(), [48.0, 39.0, 39.0]);
    let alarm = device.takes().await.ok();
    assert_eq!((alarm["temp"].as_f64(), alarm["limit"].as_f64()), (Some(9.0), Some(8.0)));
    device.takes().await.no_content();
    // Only elements of the type deviceEvent accept events.
    assert_eq!(device.posts("store", json!({"temp": 1})).await.faults(), ["query.elementName"]);
    assert_eq!(device.posts("unheard", json!({"temp": 1})).await.faults(), ["query.elementName"]);
    let history = ana.get(&device.at("events")).await.list_of("/type");
    assert_eq!(temps(history), json!(["cloudEvent", "deviceEvent", "deviceEvent", "deviceEvent"]));
}

// Holds: channel.cloud
async fn state_set_by_a_design_is_visible_at_once(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
    let status = async || {
        let seen = ana.get(&device.url()).await.ok();
        (text(&seen, "statusText").to_owned(), seen["statusInt"].as_i64(), seen["meta"].clone())
    };
    assert_eq!(status().await, ("none".to_owned(), Some(0), json!({})));
    for round in 0..5 {
        device.posts("reading", json!({"temp": 20 + round})).await.created();
        assert_eq!(status().await, ("critical".to_owned(), Some(4), json!({"lastAlarm": 20 + round})));
        device.posts("reading", json!({"temp": 5})).await.created();
        assert_eq!(status().await, ("good".to_owned(), Some(1), json!({"lastAlarm": 20 + round})));
        assert_eq!(ana.get("/v2/devices").await.list_of("/statusText"), ["good"]);
    }
    // The next event uses the new setting.
    device.posts("newLimit", json!(30)).await.created();
    device.posts("reading", json!({"temp": 25})).await.created();
    assert_eq!(status().await.0, "good");
    // An invalid value changes nothing, and is reported on the event.
    let refused = device.posts("newLimit", json!(41)).await.created();
    let event = ana.get(&device.at(&format!("events/{}", text(&refused, "id")))).await.ok();
    assert_eq!(event["errors"][0]["element"], "limit");
    device.posts("reading", json!({"temp": 29})).await.created();
    assert_eq!(status().await.0, "good");
}

// Holds: organization.path, query.depth, query.organizationId, c1.reach, c1.depth, c2.reach, c2.projects, c5.path
async fn an_organization_sees_its_own_tree(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let pole = ana.founds("Pole", &north).await;
    let project = ana.project().await;
    for (name, organization) in [("top", &ana.organization), ("north", &north), ("pole", &pole)] {
        let body = json!({"name": name, "projectUuid": project, "organizationId": organization});
        ana.creates_device_as(body).await;
    }
    assert_eq!(ana.get("/v2/devices").await.names(), ["top"]);
    assert_eq!(ana.get("/v2/devices?depth=2").await.names(), ["north", "top"]);
    assert_eq!(ana.get("/v2/devices?depth=all").await.names(), ["north", "pole", "top"]);
    assert_eq!(ana.get(&format!("/v2/devices?organizationId={north}&depth=2")).await.names(), ["north", "pole"]);
    let nora = ana.invites_into(&north, "nora", "manager").await;
    assert_eq!(nora.get("/v2/devices?depth=all").await.names(), ["north", "pole"]);
    let seen = nora.get(&format!("/v2/organizations/{pole}")).await.ok();
    assert_eq!(seen["path"], json!([{"id": north, "name": "North"}, {"id": pole, "name": "Pole"}]));
    nora.get(&format!("/v2/organizations/{}", ana.organization)).await.not_found();
    // Its own organization does not show what is above either.
    let own = nora.get(&format!("/v2/organizations/{north}")).await.ok();
    assert_eq!((&own["parentId"], &own["parentName"]), (&json!(null), &json!(null)));
    assert_eq!(own["path"], json!([{"id": north, "name": "North"}]));
    assert_eq!(nora.get("/v2/organizations?depth=all").await.list_of("/parentId"), [json!(null), json!(north)]);
    // A project of an organization above can be read and used, but not changed.
    assert_eq!(nora.get(&format!("/v2/projects/{project}")).await.ok()["name"], "everyday");
    nora.put(&format!("/v2/projects/{project}"), json!({"name": "mine"})).await.forbidden();
    let device = nora.creates_device_of(project, "of nora").await;
    device.posts("reading", json!(1)).await.created();
}

// Holds: user.username, user.email, c1.400, c3.case
async fn names_are_taken_without_regard_to_case(app: &TestApp) {
    app.developer("ana").await;
    for (username, email, fault) in [
        ("ANA", "other@example.com", "username"),
        ("other", "Ana@EXAMPLE.com", "email"),
        // The owner of an address logs in with it.
        ("Ana@example.COM", "other@example.com", "username"),
        ("Ána", "a@b.c", ""),
    ] {
        let mut body = crate::support::app::new_user("x", "developer");
        (body["username"], body["email"]) = (json!(username), json!(email));
        let answer = app.post("/v2/auth/register", body).await;
        if fault.is_empty() {
            answer.created();
        } else {
            assert_eq!(answer.faults(), [fault]);
        }
    }
    app.login("aNa", "secret of ana").await.created();
    app.login("ANA@example.COM", "secret of ana").await.created();
}

async fn a_design_changes_between_two_events(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    device.posts("reading", json!({"temp": 9})).await.created();
    ana.redesigns(&project, json!({})).await.ok();
    device.posts("anything", json!("is stored")).await.created();
    assert_eq!(ana.get(&device.at("data/anything")).await.list_of("/payload"), ["is stored"]);
    // The values of the old design are still there.
    assert_eq!(ana.get(&device.at("data/store")).await.ok()["meta"]["totalDocs"], 1);
}

#[tokio::test]
async fn all_data_survives_a_restart() {
    let app = TestApp::start().await;
    let (device_id, token, jwt) = {
        let ana = app.developer("ana").await;
        let device = ana.creates_device_of(&ana.designs(fridge()).await, "fridge").await;
        device.posts("reading", json!({"temp": 9})).await.created();
        device.posts_once("once", "reading", json!({"temp": 10})).await.created();
        (device.id, device.token, ana.jwt)
    };
    let app = app.restart().await;
    let ask = |path: &str| app.request(reqwest::Method::GET, path).bearer_auth(&jwt);
    let url = format!("/v2/devices/{device_id}");
    let seen = app.send(ask(&url)).await.ok();
    assert_eq!((seen["statusText"].as_str(), &seen["meta"]), (Some("critical"), &json!({"lastAlarm": 10})));
    assert_eq!(seen["lastActive"], "2027-01-15T08:00:00.000Z");
    let device = crate::support::Device { app: &app, id: device_id, token };
    assert_eq!(device.takes().await.ok()["temp"], 9);
    let again = device.posts_once("once", "reading", json!({"temp": 11})).await.created();
    let history = app.send(ask(&format!("{url}/events?cloudEvents=false"))).await.ok();
    assert_eq!(history["meta"]["totalDocs"], 2);
    assert_eq!(history["data"][0]["id"], again["id"]);
    device.posts("reading", json!({"temp": 12})).await.created();
    assert_eq!(app.send(ask(&format!("{url}/data/store"))).await.ok()["meta"]["totalDocs"], 3);
}
