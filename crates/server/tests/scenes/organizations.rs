//! Organizations: a tree.

use serde_json::json;

use crate::support::designs::fridge;
use crate::support::person::text;
use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(
    an_organization_is_founded_beneath_its_parent,
    organization_list_has_the_requested_depth,
    an_organization_shows_the_highest_status_beneath_it,
);

// Holds: organization.id, organization.parentId, organization.description, organization.path, organization.imageUrl,
// organization.parentName, organization.times, organization.hasChildren, organization.childrenInheritDashboard,
// POST /v2/organizations, GET /v2/organizations/{id}, c5.path
async fn an_organization_is_founded_beneath_its_parent(app: &TestApp) {
    let ana = app.developer("ana").await;
    let body = json!({
        "name": "North", "description": "cold", "childrenInheritDashboard": true, "deviceTable": {"columns": ["a"]},
    });
    let made = ana.post("/v2/organizations", body).await.created();
    let id = text(&made, "id");
    let expected = json!({
        "id": id,
        "name": "North",
        "parentId": ana.organization,
        "description": "cold",
        "path": [{"id": ana.organization, "name": "ana's company"}, {"id": id, "name": "North"}],
        "imageUrl": format!("/v2/organizations/{id}/image.png"),
        "parentName": "ana's company",
        "createdAt": "2027-01-15T08:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
        "hasChildren": false,
        "statusText": "none",
        "statusInt": 0,
        "urgentStatus": "none",
        "deviceCount": 0,
        "dataUsageMb": 0.0,
        "deviceCountLimit": 0.0,
        "dataUsageMbLimit": 0.0,
        "childrenInheritDashboard": true,
        "deviceTable": {"columns": ["a"]},
    });
    assert_eq!(made, expected);
    assert_eq!(ana.get(&format!("/v2/organizations/{id}")).await.ok(), expected);
    let own = ana.get(&format!("/v2/organizations/{}", ana.organization)).await.ok();
    assert_eq!((&own["hasChildren"], &own["parentId"], &own["parentName"]), (&json!(true), &json!(null), &json!(null)));
    // Names need not be unique.
    let bare = ana.post("/v2/organizations", json!({"name": "North"})).await.created();
    assert_eq!(
        (&bare["description"], &bare["childrenInheritDashboard"], &bare["deviceTable"]),
        (&json!(null), &json!(false), &json!({}))
    );
    // Only a system administrator creates organizations at the top of the tree; those of other users are beneath their
    // own.
    for none in [json!(null), json!("")] {
        let beneath = ana.post("/v2/organizations", json!({"name": "x", "parentId": none})).await.created();
        assert_eq!(beneath["parentId"], ana.organization.as_str());
    }
    let longest = json!({"name": "x", "parentId": "x".repeat(36)});
    assert_eq!(ana.post("/v2/organizations", longest).await.faults(), ["parentId"]);
    let top = app.admin().await.post("/v2/organizations", json!({"name": "Top", "parentId": null})).await.created();
    assert_eq!((&top["parentId"], top["path"].as_array().unwrap().len()), (&json!(null), 1));
}

// Holds: query.depth, GET /v2/organizations, c1.depth
async fn organization_list_has_the_requested_depth(app: &TestApp) {
    let ana = app.developer("ana").await;
    let b = ana.founds("b", &ana.organization).await;
    let a = ana.founds("a", &ana.organization).await;
    let c = ana.founds("c", &b).await;
    ana.founds("d 100%", &c).await;
    app.stranger("bob").await;
    let list = async |query: &str| ana.get(&format!("/v2/organizations?{query}")).await.names();
    assert_eq!(list("").await, ["a", "ana's company", "b"]);
    assert_eq!(list("depth=2").await, ["a", "ana's company", "b", "c"]);
    assert_eq!(list("depth=all").await, ["a", "ana's company", "b", "c", "d 100%"]);
    assert_eq!(list(&format!("parentId={b}")).await, ["c"]);
    assert_eq!(list(&format!("parentId={b}&depth=4294967295")).await, ["c", "d 100%"]);
    assert_eq!(list(&format!("parentId={a}&depth=all")).await, [""; 0]);
    assert_eq!(list("depth=all&searchText=D%20100%25").await, ["d 100%"]);
    assert_eq!(list("depth=all&sortBy=-name&limit=2&page=2").await, ["b", "ana's company"]);
    assert_eq!(list(&format!("depth=all&entityList={a},{c},{NOBODY}")).await, ["a", "c"]);
    ana.get(&format!("/v2/organizations?parentId={NOBODY}")).await.not_found();
    // From below, the tree begins at the own organization.
    let cleo = ana.invites_into(&c, "cleo", "administrator").await;
    assert_eq!(cleo.get("/v2/organizations?depth=all").await.names(), ["c", "d 100%"]);
    cleo.get(&format!("/v2/organizations?parentId={b}")).await.not_found();
    assert_eq!(cleo.post("/v2/organizations", json!({"name": "x", "parentId": a})).await.faults(), ["parentId"]);
}

// Holds: organization.status
async fn an_organization_shows_the_highest_status_beneath_it(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.designs(fridge()).await;
    let body = json!({"name": "f", "projectUuid": project, "organizationId": north});
    let device = ana.creates_device_as(body).await;
    let status =
        async |id: &str| text(&ana.get(&format!("/v2/organizations/{id}")).await.ok(), "statusText").to_owned();
    for (temp, expected) in [(20, "critical"), (4, "good")] {
        device.posts("reading", json!({"temp": temp})).await.created();
        // Its organizations show it at once, and so does the device.
        assert_eq!(status(&north).await, expected);
        assert_eq!(status(&ana.organization).await, expected);
        assert_eq!(text(&ana.get(&device.url()).await.ok(), "statusText"), expected);
    }
    // The most urgent of several is shown, and only along their branch.
    let other = ana.creates_device_of(&project, "other").await;
    other.posts("reading", json!({"temp": 20})).await.created();
    assert_eq!(ana.get("/v2/organizations").await.list_of("/statusText"), ["good", "critical"]);
    assert_eq!((status(&north).await.as_str(), status(&ana.organization).await.as_str()), ("good", "critical"));
    assert_eq!(ana.organization(&ana.organization).await["statusInt"], 4);
    ana.delete(&other.url()).await.no_content();
    assert_eq!(status(&ana.organization).await, "good");
    ana.delete(&device.url()).await.no_content();
    assert_eq!(status(&ana.organization).await, "none");
    assert_eq!(ana.organization(&north).await["statusInt"], 0);
}

#[tokio::test]
async fn the_tree_is_bounded() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let mut lowest = ana.organization.clone();
    for level in 2..=32 {
        lowest = ana.founds(&format!("level {level}"), &lowest).await;
    }
    assert_eq!(ana.post("/v2/organizations", json!({"name": "x", "parentId": lowest})).await.faults(), ["parentId"]);
}
