//! Status: six of them, in rising priority, of devices and of the organizations above them.

use serde_json::{Value, json};

use crate::support::designs::to_with;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(an_organization_shows_the_highest_of_all_beneath_it_whatever_they_are);

const RISING: [&str; 6] = ["none", "good", "info", "warning", "critical", "missing"];

async fn shown(person: &Person<'_>, url: &str) -> (Value, Value) {
    let thing = person.get(url).await.ok();
    (thing["statusInt"].clone(), thing["statusText"].clone())
}

async fn an_organization_shows_the_highest_of_all_beneath_it_whatever_they_are(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let links = json!([to_with("meta", "setStatus", json!({"status": "payload"}))]);
    let design = json!({
        "is": {"type": "deviceEvent", "triggers": {"eventReceived": links}},
        "meta": {"type": "deviceMeta"},
    });
    let project = ana.designs(design).await;
    let mut devices = Vec::new();
    for organization in [&left, &right, &right] {
        let body = json!({"name": "d", "projectUuid": project, "organizationId": organization});
        devices.push(ana.creates_device_as(body).await);
    }
    let organization = |id: &str| format!("/v2/organizations/{id}");
    for (one, name) in RISING.iter().enumerate() {
        for other in 0..RISING.len() {
            devices[0].posts("is", json!(name)).await.created();
            devices[1].posts("is", json!(other)).await.created();
            let expected = |number: usize| (json!(number), json!(RISING[number]));
            assert_eq!(shown(&ana, &devices[0].url()).await, expected(one));
            assert_eq!(shown(&ana, &devices[1].url()).await, expected(other));
            assert_eq!(shown(&ana, &organization(&left)).await, expected(one));
            assert_eq!(shown(&ana, &organization(&right)).await, expected(other));
            assert_eq!(shown(&ana, &organization(&ana.organization)).await, expected(one.max(other)));
        }
    }
}
