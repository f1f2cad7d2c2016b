//! Counts of devices.

use serde_json::{Value, json};

use crate::support::designs::to_with;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(
    summary_counts_the_devices_of_a_fleet,
    summary_sees_the_newest_state_of_devices,
    summary_covers_visible_devices_alone,
);

async fn summary(person: &Person<'_>, query: &str) -> Value {
    person.get(&format!("/v2/devices/summary?{query}")).await.ok()
}

const NONE: &str = r#"{"none":0,"good":0,"info":0,"warning":0,"critical":0,"missing":0}"#;

fn statuses(counts: &[(&str, u64)]) -> Value {
    let mut all: Value = serde_json::from_str(NONE).unwrap();
    for (status, count) in counts {
        all[status] = json!(count);
    }
    all
}

// Holds: GET /v2/devices/summary, c13.summary
async fn summary_counts_the_devices_of_a_fleet(app: &TestApp) {
    let ana = app.developer("ana").await;
    let branch = ana.founds("branch", &ana.organization).await;
    let [cold, warm] = [ana.creates_project("cold").await, ana.creates_project("warm").await];
    let mut devices = Vec::new();
    for (name, project, organization, meta) in [
        ("a", &cold, &ana.organization, json!({"site": "east"})),
        ("b", &cold, &branch, json!({"latitude": 1, "longitude": 2})),
        ("c", &warm, &branch, json!({"site": "east", "latitude": 1, "longitude": 2})),
    ] {
        let body = json!({"name": name, "projectUuid": project, "organizationId": organization, "meta": meta});
        devices.push(ana.creates_device_as(body).await);
    }
    let ana = ana.with_key().await;
    devices[0].posts("reading", json!(1)).await.created();
    app.wait_seconds(3_600 * 5);
    devices[1].posts("reading", json!(1)).await.created();
    let project = |id: &str, name: &str, count: u64| json!({"projectUuid": id, "projectName": name, "count": count});
    let expected = json!({
        "total": 3,
        "byStatus": statuses(&[("none", 3)]),
        "byProject": [project(&cold, "cold", 2), project(&warm, "warm", 1)],
        "active": {"hour": 1, "day": 2, "week": 2, "never": 1},
        "located": 2,
    });
    assert_eq!(summary(&ana, "depth=all").await, expected);
    assert_eq!(summary(&ana, "depth=all&filter[name][ne]=x").await, expected);
    let own = json!({
        "total": 1,
        "byStatus": statuses(&[("none", 1)]),
        "byProject": [project(&cold, "cold", 1)],
        "active": {"hour": 0, "day": 1, "week": 1, "never": 0},
        "located": 0,
    });
    assert_eq!(summary(&ana, "").await, own);
    let east = summary(&ana, "depth=all&filter[meta.site][eq]=east").await;
    assert_eq!((&east["total"], &east["located"], &east["active"]["never"]), (&json!(2), &json!(1), &json!(1)));
    let beneath = summary(&ana, &format!("organizationId={branch}")).await;
    assert_eq!((&beneath["total"], &beneath["byProject"][0]["count"]), (&json!(2), &json!(1)));
    app.wait_seconds(86_400 * 7 + 1);
    let active = json!({"hour": 0, "day": 0, "week": 0, "never": 1});
    assert_eq!(summary(&ana, "depth=all").await["active"], active);
}

// Holds: c13.summary
async fn summary_sees_the_newest_state_of_devices(app: &TestApp) {
    let ana = app.developer("ana").await;
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to_with("state", "setStatus", json!({"status": "payload"})),
            to_with("state", "setLocation", json!({"latitude": "1.0", "longitude": "2.0"}))]}},
        "state": {"type": "deviceMeta"},
    });
    let project = ana.designs(design).await;
    let device = ana.creates_device_of(&project, "one").await;
    ana.creates_device_of(&project, "two").await;
    for (number, status) in ["good", "info", "warning", "critical"].into_iter().enumerate() {
        device.posts("reading", json!(number + 1)).await.created();
        let now = summary(&ana, "").await;
        assert_eq!(now["byStatus"], statuses(&[("none", 1), (status, 1)]));
        assert_eq!((&now["located"], &now["active"]["hour"]), (&json!(1), &json!(1)));
        let some = summary(&ana, &format!("filter[statusInt][gte]={}", number + 1)).await;
        assert_eq!((&some["total"], &some["byStatus"]), (&json!(1), &statuses(&[(status, 1)])));
    }
}

// Holds: GET /v2/devices/summary, c13.summary
async fn summary_covers_visible_devices_alone(app: &TestApp) {
    let ana = app.developer("ana").await;
    ana.creates_device("fridge").await;
    let bob = app.stranger("bob").await;
    assert_eq!(summary(&bob, "depth=all").await["total"], 0);
    bob.get(&format!("/v2/devices/summary?organizationId={}", ana.organization)).await.not_found();
    assert_eq!(
        ana.get("/v2/devices/summary?depth=0&organizationId=x").await.faults(),
        ["query.depth", "query.organizationId"]
    );
    // A project of an organization above can be named from below; the lowest role may count.
    let branch = ana.founds("branch", &ana.organization).await;
    let body = json!({"name": "d", "projectUuid": ana.project().await, "organizationId": branch});
    ana.creates_device_as(body).await;
    let tom = ana.invites_into(&branch, "tom", "basicUser").await;
    assert_eq!(summary(&tom, "").await["byProject"][0]["projectName"], "everyday");
}
