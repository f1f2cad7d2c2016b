//! Tests the usage of organizations, and the effects of their limits.

use isobar_power::{becomes, settled};
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    usage_covers_the_data_of_the_whole_subtree,
    values_hidden_by_a_bound_do_not_count,
    events_beyond_the_data_limit_have_history_but_no_values,
    a_limit_above_holds_for_all_beneath,
    administrators_are_notified_once_for_each_crossing,
);

async fn used(person: &Person<'_>, organization: &str) -> Value {
    let usage = person.get(&format!("/v2/organizations/{organization}/usage")).await.ok();
    json!([usage["deviceCount"], usage["dataUsageMb"]])
}

/// Posts a text that makes a payload of this many bytes.
async fn posts(device: &Device<'_>, bytes: usize) {
    device.posts("reading", json!("x".repeat(bytes - 2))).await.created();
}

async fn stored(person: &Person<'_>, device: &Device<'_>) -> usize {
    person.get(&device.at("data/reading?limit=10000")).await.list_of("/id").len()
}

// Holds: organization.figures, GET /v2/organizations/{id}/usage
async fn usage_covers_the_data_of_the_whole_subtree(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let project = ana.project().await;
    let new = |organization: &str| json!({"name": "d", "projectUuid": project, "organizationId": organization});
    let device = ana.creates_device_as(new(&left)).await;
    let other = ana.creates_device_as(new(&right)).await;
    assert_eq!(used(&ana, &ana.organization).await, json!([2, 0.0]));
    posts(&device, 1_000).await;
    posts(&device, 500).await;
    posts(&other, 200).await;
    assert_eq!(used(&ana, &ana.organization).await, json!([2, 0.0017]));
    assert_eq!(used(&ana, &left).await, json!([1, 0.0015]));
    assert_eq!(ana.organization(&right).await["dataUsageMb"], 0.0002);
    let list = ana.get("/v2/organizations").await.list_of("/dataUsageMb");
    assert_eq!(list, [json!(0.0015), json!(0.0002), json!(0.0017)]);
    // The usage equals that of the storage lists.
    assert_eq!(ana.get(&device.at("storage")).await.ok()["bytesStored"], 1500);

    // A moved branch takes its usage along, and so does a device.
    ana.changes(&left, json!({"parentId": right})).await.ok();
    assert_eq!(used(&ana, &right).await, json!([2, 0.0017]));
    ana.put(&device.url(), new(&right)).await.ok();
    assert_eq!(used(&ana, &left).await, json!([0, 0.0]));
    posts(&device, 100).await;
    assert_eq!(used(&ana, &right).await, json!([2, 0.0018]));
    // Deleted data no longer counts.
    ana.delete(&device.at("storage/reading")).await.no_content();
    assert_eq!(used(&ana, &right).await, json!([2, 0.0002]));
    ana.delete(&other.url()).await.no_content();
    assert_eq!(used(&ana, &ana.organization).await, json!([1, 0.0]));
}

// Holds: c13.retentionSpace, organization.figures
async fn values_hidden_by_a_bound_do_not_count(app: &TestApp) {
    let ana = app.developer("ana").await;
    let keeping = |properties: Value| {
        json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("log", "store")]}},
            "log": {"type": "storage", "properties": properties},
        })
    };
    let project = ana.designs(keeping(json!({}))).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for _ in 0..20 {
        posts(&device, 100).await;
    }
    assert_eq!(used(&ana, &ana.organization).await, json!([1, 0.002]));
    // Too few are hidden to be dropped, and none comes that would have the device counted.
    ana.redesigns(&project, keeping(json!({"valuesMax": 4}))).await;
    becomes("what is hidden does not count", async || used(&ana, &ana.organization).await == json!([1, 0.0004])).await;
    assert_eq!(ana.get(&device.at("storage")).await.ok()["bytesStored"], 400);
    // A device that stores little, and much in the course of time, meets no limit.
    let low = ana.founds("Low", &ana.organization).await;
    ana.changes(&low, json!({"dataUsageMbLimit": 0.0006})).await.ok();
    ana.put(&device.url(), json!({"name": "fridge", "projectUuid": project, "organizationId": low})).await.ok();
    for _ in 0..20 {
        posts(&device, 100).await;
        assert_eq!(used(&ana, &low).await, json!([1, 0.0004]));
    }
    let errors = ana.get(&device.at("events?limit=20")).await.list_of("/errors");
    assert!(errors.iter().all(Value::is_null), "{errors:?}");
}

#[tokio::test]
async fn usage_is_the_same_after_a_restart() {
    let app = TestApp::start().await;
    let (organization, id) = {
        let ana = app.developer("ana").await;
        let device = ana.creates_device("d").await;
        posts(&device, 1_000).await;
        (ana.organization.clone(), device.id.clone())
    };
    let app = app.restart().await;
    let ana = app.login("ana", "secret of ana").await.created();
    let get = async |path: &str| {
        let jwt = ana["jwtToken"].as_str().unwrap();
        app.send(app.request(reqwest::Method::GET, path).bearer_auth(jwt)).await.ok()
    };
    assert_eq!(get(&format!("/v2/organizations/{organization}")).await["dataUsageMb"], 0.001);
    assert_eq!(get(&format!("/v2/devices/{id}/storage")).await["bytesStored"], 1000);
}

// Holds: c5.beyond
async fn events_beyond_the_data_limit_have_history_but_no_values(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let body = json!({"name": "d", "projectUuid": ana.project().await, "organizationId": low});
    let device = ana.creates_device_as(body).await;
    posts(&device, 1_000).await;
    ana.changes(&low, json!({"dataUsageMbLimit": 0.002})).await.ok();
    posts(&device, 999).await;
    posts(&device, 100).await;
    assert_eq!(stored(&ana, &device).await, 3);
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 3);
    let newest = ana.get(&device.at("events?limit=1")).await.ok()["data"][0].clone();
    assert_eq!(newest["errors"][0]["element"], "reading");
    assert!(newest["errors"][0]["message"].as_str().unwrap().contains("limit"), "{newest}");
    assert_eq!(ana.get(&device.at("events?limit=2")).await.ok()["data"][1]["errors"], Value::Null);
    // A device elsewhere is not limited.
    let free = ana.creates_device("free").await;
    posts(&free, 5_000).await;
    assert_eq!(stored(&ana, &free).await, 1);
    // The limit ends when it is raised, when it is removed, and when data is deleted.
    ana.changes(&low, json!({"dataUsageMbLimit": 0.0021})).await.ok();
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 4);
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 4);
    ana.delete(&device.at("storage")).await.no_content();
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 1);
    ana.changes(&low, json!({"dataUsageMbLimit": 0.000_01})).await.ok();
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 1);
    ana.changes(&low, json!({"dataUsageMbLimit": 0})).await.ok();
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 2);
}

// Holds: c5.limits
async fn a_limit_above_holds_for_all_beneath(app: &TestApp) {
    let ana = app.developer("ana").await;
    let middle = ana.founds("Middle", &ana.organization).await;
    let [left, right] = [ana.founds("Left", &middle).await, ana.founds("Right", &middle).await];
    let project = ana.project().await;
    let new = |organization: &str| json!({"name": "d", "projectUuid": project, "organizationId": organization});
    let device = ana.creates_device_as(new(&left)).await;
    let other = ana.creates_device_as(new(&right)).await;
    ana.changes(&middle, json!({"dataUsageMbLimit": 0.001})).await.ok();
    posts(&device, 600).await;
    posts(&other, 600).await;
    posts(&device, 10).await;
    posts(&other, 10).await;
    assert_eq!((stored(&ana, &device).await, stored(&ana, &other).await), (1, 1));
    // A branch that moves away is not limited any more, and frees its usage.
    ana.changes(&left, json!({"parentId": ana.organization})).await.ok();
    posts(&device, 10).await;
    posts(&other, 10).await;
    assert_eq!((stored(&ana, &device).await, stored(&ana, &other).await), (2, 2));
    ana.changes(&left, json!({"parentId": middle})).await.ok();
    posts(&device, 10).await;
    assert_eq!(stored(&ana, &device).await, 2);
}

/// Waits until a user has this many notifications, and returns their messages, oldest first.
async fn hears(person: &Person<'_>, count: usize) -> Vec<String> {
    let told = settled("word to administrators", async || {
        let told = person.get("/v2/notifications").await.list_of("/translations/en/message");
        (told.len() >= count).then_some(told)
    });
    told.await.into_iter().rev().map(|told| told.as_str().unwrap().to_owned()).collect()
}

// Holds: c5.marks
async fn administrators_are_notified_once_for_each_crossing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let lou = ana.invites_into(&low, "lou", "administrator").await;
    let tom = ana.invites_into(&low, "tom", "manager").await;
    let project = ana.project().await;
    ana.changes(&low, json!({"name": "Low", "deviceCountLimit": 10, "dataUsageMbLimit": 0.001})).await.ok();
    let new = json!({"name": "d", "projectUuid": project, "organizationId": low});
    let mut devices = Vec::new();
    for _ in 0..9 {
        devices.push(ana.creates_device_as(new.clone()).await);
    }
    let told = hears(&lou, 1).await;
    assert!(told[0].contains("Low") && told[0].contains("90%") && told[0].contains("devices"), "{told:?}");
    app.wait_seconds(1);
    devices.push(ana.creates_device_as(new.clone()).await);
    assert!(hears(&lou, 2).await[1].contains("100%"));
    // Changes near the mark cause no further notification.
    ana.delete(&devices.pop().unwrap().url()).await.no_content();
    app.wait_seconds(1);
    devices.push(ana.creates_device_as(new.clone()).await);
    // Data has a notification of its own.
    app.wait_seconds(1);
    posts(&devices[0], 1_000).await;
    used(&ana, &low).await;
    let told = hears(&lou, 3).await;
    assert!(told[2].contains("100%") && told[2].contains("megabytes"), "{told:?}");
    // Falling well below the mark and rising again is another crossing.
    ana.delete(&devices[0].at("storage")).await.no_content();
    app.wait_seconds(1);
    posts(&devices[0], 950).await;
    used(&ana, &low).await;
    let told = hears(&lou, 4).await;
    assert!(told[3].contains("90%") && told[3].contains("megabytes"), "{told:?}");
    let newest = lou.get("/v2/notifications?limit=1").await.ok()["data"][0].clone();
    assert_eq!(newest["type"], "systemNotification");
    // Only administrators of that organization itself are notified.
    assert_eq!(tom.get("/v2/notifications").await.list_of("/id").len(), 0);
    assert_eq!(ana.get("/v2/notifications").await.list_of("/id").len(), 0);
    assert_eq!(hears(&lou, 4).await.len(), told.len());
}
