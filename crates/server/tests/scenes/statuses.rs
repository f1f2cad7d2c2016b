//! Status: six of them, in rising priority, of devices and of the organizations above them.

use serde_json::{Value, json};

use crate::support::designs::to_with;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(organization_shows_the_most_urgent_status_beneath_it, organizations_are_listed_by_urgency,);

const RISING: [&str; 6] = ["none", "good", "info", "warning", "critical", "missing"];

async fn shown(person: &Person<'_>, url: &str) -> (Value, Value) {
    let thing = person.get(url).await.ok();
    (thing["statusInt"].clone(), thing["statusText"].clone())
}

/// Makes a project whose devices have the status that their element `is` names.
async fn project_of_statuses(person: &Person<'_>) -> String {
    let links = json!([to_with("meta", "setStatus", json!({"status": "payload"}))]);
    let design = json!({
        "is": {"type": "deviceEvent", "triggers": {"eventReceived": links}},
        "meta": {"type": "deviceMeta"},
    });
    person.designs(design).await
}

// Holds: organization.status
async fn organizations_are_listed_by_urgency(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = project_of_statuses(&ana).await;
    // The most urgent of several statuses is shown.
    let sites: [(&str, &[&str], &str); 5] = [
        ("a", &["missing"], "missing"),
        ("b", &["missing", "critical"], "critical"),
        ("c", &[], "none"),
        ("d", &["info", "good"], "info"),
        ("e", &["warning", "missing"], "warning"),
    ];
    for (name, statuses, expected) in sites {
        let site = ana.founds(name, &ana.organization).await;
        let hall = ana.founds("hall", &site).await;
        for status in statuses {
            let body = json!({"name": "d", "projectUuid": project, "organizationId": hall});
            ana.creates_device_as(body).await.posts("is", json!(status)).await.created();
        }
        for id in [&site, &hall] {
            assert_eq!(ana.organization(id).await["urgentStatus"], expected, "{name}");
        }
    }
    assert_eq!(ana.organization(&ana.organization).await["urgentStatus"], "critical");
    let beneath = format!("/v2/organizations?parentId={}&sortBy=", ana.organization);
    let names = async |order: &str| ana.get(&format!("{beneath}{order}")).await.list_of("/name");
    assert_eq!(names("-urgency,name").await, ["b", "e", "a", "d", "c"]);
    assert_eq!(names("urgency,-name").await, ["c", "d", "a", "e", "b"]);
    assert_eq!(names("-urgency,name&limit=2&page=2").await, ["a", "d"]);
}

// Holds: c5.status
async fn organization_shows_the_most_urgent_status_beneath_it(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let project = project_of_statuses(&ana).await;
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
