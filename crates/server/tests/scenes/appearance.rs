//! Tests the appearance of organizations: branding, dashboard, device table.

use serde_json::{Value, json};

use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(
    a_branding_is_set_piece_by_piece,
    a_dashboard_is_inherited_from_above,
    a_device_table_is_the_organizations_own,
);

fn at(organization: &str, what: &str) -> String {
    format!("/v2/organizations/{organization}/{what}")
}

// Holds: branding.organizationId, branding.lines, branding.domain, branding.objects, branding.email,
// GET /v2/organizations/{id}/branding, PUT /v2/organizations/{id}/branding
async fn a_branding_is_set_piece_by_piece(app: &TestApp) {
    let ana = app.developer("ana").await;
    let url = at(&ana.organization, "branding");
    let mut expected = json!({
        "organizationId": ana.organization,
        "companyName": null,
        "addressLine1": null,
        "addressLine2": null,
        "domain": null,
        "domainHTTPFileOverrides": {},
        "domainPublicConfiguration": {},
        "email": null,
        "emailSenderName": null,
    });
    assert_eq!(ana.get(&url).await.ok(), expected);
    let all = json!({
        "organizationId": ana.organization,
        "companyName": "Cold Ltd",
        "addressLine1": "1 Ice Road",
        "addressLine2": "North",
        "domain": "cold.example.com",
        "domainHTTPFileOverrides": {"favicon.ico": "…"},
        "domainPublicConfiguration": {"theme": {"dark": true}},
        "email": "hello@cold.example.com",
        "emailSenderName": "Cold",
    });
    assert_eq!(ana.put(&url, all.clone()).await.ok(), all);
    expected = all;
    (expected["addressLine2"], expected["companyName"]) = (json!(null), json!("Colder Ltd"));
    let part = json!({"addressLine2": null, "companyName": "Colder Ltd", "unknown": 1});
    assert_eq!(ana.put(&url, part).await.ok(), expected);
    let bad = json!({
        "organizationId": NOBODY, "companyName": 5, "domain": "not a domain", "email": "nobody",
        "domainHTTPFileOverrides": "x", "domainPublicConfiguration": {"a": "x".repeat(70_000)},
        "emailSenderName": "x".repeat(201),
    });
    let faults = [
        "companyName",
        "domain",
        "domainHTTPFileOverrides",
        "domainPublicConfiguration",
        "email",
        "emailSenderName",
        "organizationId",
    ];
    assert_eq!(ana.put(&url, bad).await.faults(), faults);
    assert_eq!(ana.invites("tom", "basicUser").await.get(&url).await.ok(), expected);
}

// Holds: organization.childrenInheritDashboard, dashboard.members, GET /v2/organizations/{id}/dashboard,
// PUT /v2/organizations/{id}/dashboard
async fn a_dashboard_is_inherited_from_above(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let tom = ana.invites_into(&low, "tom", "basicUser").await;
    let empty = json!({"name": null, "options": {}, "configuration": {}});
    assert_eq!(tom.get(&at(&low, "dashboard")).await.ok(), empty);
    let own = json!({"name": "all", "options": {"grid": 12}, "configuration": {"widgets": [{"x": 1.50}]}});
    assert_eq!(ana.put(&at(&ana.organization, "dashboard"), own.clone()).await.ok(), own);
    assert_eq!(tom.get(&at(&low, "dashboard")).await.ok(), empty);
    ana.changes(&ana.organization, json!({"childrenInheritDashboard": true})).await.ok();
    assert_eq!(tom.get(&at(&low, "dashboard")).await.ok(), own);
    tom.get(&at(&ana.organization, "dashboard")).await.not_found();
    // An organization's own dashboard takes precedence, and is empty at first.
    let lower = json!({"name": null, "options": {}, "configuration": {"mine": true}});
    assert_eq!(ana.put(&at(&low, "dashboard"), json!({"configuration": {"mine": true}})).await.ok(), lower);
    assert_eq!(tom.get(&at(&low, "dashboard")).await.ok(), lower);
    let put = async |body: Value| ana.put(&at(&low, "dashboard"), body).await.faults();
    assert_eq!(put(json!({"name": "x"})).await, ["configuration"]);
    assert_eq!(
        put(json!({"configuration": null, "options": 5, "name": 1})).await,
        ["configuration", "name", "options"]
    );
    assert_eq!(put(json!({"configuration": "x"})).await, ["configuration"]);
    assert_eq!(put(json!({"configuration": {"x": "x".repeat(600_000)}})).await, ["configuration"]);
    assert_eq!(tom.get(&at(&low, "dashboard")).await.ok(), lower);
}

// Holds: error.messages, organization.deviceTable, deviceTable.members, GET /v2/organizations/{id}/deviceTable,
// PUT /v2/organizations/{id}/deviceTable, DELETE /v2/organizations/{id}/deviceTable
async fn a_device_table_is_the_organizations_own(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let own = ana.organization.as_str();
    let url = at(own, "deviceTable");
    let empty = json!({"organizationId": own, "deviceId": null, "columns": []});
    assert_eq!(ana.get(&url).await.ok(), empty);
    let device = ana.creates_device("d").await;
    let columns = json!([{"path": "name", "type": "DeviceModel"}, {"path": "meta.floor", "type": null}]);
    let table = json!({"organizationId": own, "deviceId": device.id, "columns": columns});
    assert_eq!(ana.put(&url, table.clone()).await.ok(), table);
    assert_eq!(ana.get(&url).await.ok(), table);
    let stored = ana.organization(own).await["deviceTable"].clone();
    assert_eq!(stored["columns"][0], json!({"path": "name", "type": "DeviceModel"}));
    assert_eq!(stored["deviceId"], device.id.as_str());
    // A table that is set on the organization is shown here, and its other members stay.
    ana.changes(own, json!({"deviceTable": {"columns": [{"path": "id"}, 5], "width": 3}})).await.ok();
    let seen = json!({"organizationId": own, "deviceId": null, "columns": [{"path": "id", "type": null}]});
    assert_eq!(ana.get(&url).await.ok(), seen);
    ana.put(&url, json!({"organizationId": own, "columns": []})).await.ok();
    assert_eq!(ana.organization(own).await["deviceTable"], json!({"columns": [], "width": 3}));
    let put = async |body: Value| ana.put(&url, body).await.faults();
    assert_eq!(put(json!({})).await, ["columns", "organizationId"]);
    assert_eq!(put(json!({"organizationId": NOBODY, "columns": {}})).await, ["columns", "organizationId"]);
    assert_eq!(put(json!({"organizationId": own, "columns": [{}, 1]})).await, ["columns[0].path", "columns[1]"]);
    let strange = bob.creates_device("b").await;
    for nobody in [strange.id.as_str(), NOBODY, "x"] {
        assert_eq!(put(json!({"organizationId": own, "columns": [], "deviceId": nobody})).await, ["deviceId"]);
    }
    let deleted = ana.delete(&url).await.ok();
    assert_eq!(deleted, json!({"message": "the device table was deleted", "errors": []}));
    assert_eq!(ana.get(&url).await.ok(), empty);
    assert_eq!(ana.organization(own).await["deviceTable"], json!({}));
}
