//! Devices on a map.

use serde_json::{Value, json};

use crate::support::designs::to_with;
use crate::support::{Device, NOBODY, TestApp, on_both_registries};

on_both_registries!(
    devices_with_coordinates_are_on_the_map,
    a_design_moves_its_device,
    map_is_answered_in_cells,
    cells_that_cannot_be_asked_are_named,
);

// Holds: location.texts, location.degrees, location.status, query.organizationId, GET /v2/devices/locations,
// c5.locations
async fn devices_with_coordinates_are_on_the_map(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.project().await;
    let made = async |name: &str, organization: &str, meta: Value| {
        let body = json!({"name": name, "projectUuid": project, "organizationId": organization, "meta": meta});
        Device::of(app, &ana.post("/v2/devices", body).await.created())
    };
    let here = made("here", &ana.organization, json!({"latitude": 46.5, "longitude": 7.25})).await;
    made("nowhere", &ana.organization, json!({})).await;
    made("beyond", &ana.organization, json!({"latitude": 91, "longitude": 7})).await;
    made("in words", &ana.organization, json!({"latitude": "46", "longitude": "7"})).await;
    made("up north", &north, json!({"latitude": 70, "longitude": -8})).await;
    let list = async |query: &str| ana.get(&format!("/v2/devices/locations{query}")).await.names();
    assert_eq!(list("").await, ["here"]);
    assert_eq!(list("?depth=all").await, ["here", "up north"]);
    assert_eq!(list("?depth=all&limit=1&page=2").await, ["up north"]);
    assert_eq!(list(&format!("?organizationId={north}")).await, ["up north"]);
    let whole = ana.get("/v2/devices/locations").await.ok();
    let expected = json!({
        "id": here.id, "uuid": here.id, "organizationId": ana.organization, "name": "here",
        "latitude": 46.5, "longitude": 7.25, "statusInt": 0, "statusText": "none",
    });
    assert_eq!(whole["data"], json!([expected]));
    assert_eq!(whole["meta"]["totalDocs"], 1);
    ana.get(&format!("/v2/devices/locations?organizationId={NOBODY}")).await.not_found();
    let bad = ana.get("/v2/devices/locations?depth=0&limit=0&organizationId=x").await.faults();
    assert_eq!(bad, ["query.depth", "query.limit", "query.organizationId"]);
    // A device is removed from the map.
    let body = json!({"name": "here", "projectUuid": project, "meta": {}});
    ana.put(&here.url(), body).await.ok();
    assert_eq!(list("").await, [""; 0]);
}

// Holds: location.status, c5.locations, c11.deviceMeta
async fn a_design_moves_its_device(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana
        .designs(json!({
            "position": {"type": "deviceEvent", "triggers": {"eventReceived": [
                to_with("place", "setLocation", json!({"latitude": "payload.lat", "longitude": "payload.lon"})),
                to_with("place", "setStatus", json!({"status": "warning"})),
            ]}},
            "place": {"type": "deviceMeta"},
        }))
        .await;
    let body = json!({"name": "truck", "projectUuid": project, "meta": {"latitude": 1, "longitude": 2}});
    let truck = ana.creates_device_as(body).await;
    let place = async || {
        let list = ana.get("/v2/devices/locations").await.ok();
        (list["data"][0]["latitude"].as_f64(), list["data"][0]["longitude"].as_f64())
    };
    assert_eq!(place().await, (Some(1.0), Some(2.0)));
    truck.posts("position", json!({"lat": 46.25, "lon": 7})).await.created();
    assert_eq!(place().await, (Some(46.25), Some(7.0)));
    let shown = ana.get("/v2/devices/locations").await.ok()["data"][0].clone();
    assert_eq!((&shown["statusText"], &shown["statusInt"]), (&json!("warning"), &json!(3)));
    ana.put(&truck.url(), json!({"name": "truck", "projectUuid": project, "meta": {"latitude": 3, "longitude": 4}}))
        .await
        .ok();
    assert_eq!(place().await, (Some(46.25), Some(7.0)));
}

// Holds: GET /v2/devices/locations/clusters, c13.clusters
async fn map_is_answered_in_cells(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.project().await;
    let made = async |name: &str, organization: &str, latitude: f64, longitude: f64| {
        let meta = json!({"latitude": latitude, "longitude": longitude});
        let body = json!({"name": name, "projectUuid": project, "organizationId": organization, "meta": meta});
        Device::of(app, &ana.post("/v2/devices", body).await.created())
    };
    made("a", &ana.organization, 46.0, 7.0).await;
    made("b", &ana.organization, 47.0, 8.0).await;
    let alone = made("c", &north, 70.0, -179.5).await;
    let asked = async |query: &str| ana.get(&format!("/v2/devices/locations/clusters?{query}")).await.ok();
    let counts = |none: u64| json!({"none": none, "good": 0, "info": 0, "warning": 0, "critical": 0, "missing": 0});
    let near = json!({
        "latitude": 46.5, "longitude": 7.5, "count": 2, "statusInt": 0, "statusText": "none", "byStatus": counts(2),
        "west": 7.0, "south": 46.0, "east": 8.0, "north": 47.0, "device": null,
    });
    assert_eq!(asked("cellSize=30").await, json!({"data": [near]}));
    let far = json!({
        "latitude": 70.0, "longitude": -179.5, "count": 1, "statusInt": 0, "statusText": "none", "byStatus": counts(1),
        "west": -179.5, "south": 70.0, "east": -179.5, "north": 70.0, "device": {"id": alone.id, "name": "c"},
    });
    assert_eq!(asked("cellSize=30&depth=all").await, json!({"data": [near, far]}));
    assert_eq!(asked("cellSize=1&depth=all&box=170,60,-170,80").await, json!({"data": [far]}));
    assert_eq!(asked(&format!("cellSize=1&organizationId={north}&box=170,60,-170,80")).await, json!({"data": [far]}));
    let listed = ana.get("/v2/devices/locations?depth=all&box=170,60,-170,80").await;
    assert_eq!(listed.names(), ["c"]);
    assert_eq!(ana.get("/v2/devices/locations?box=1,2,3").await.faults(), ["query.box"]);
    assert_eq!(asked("cellSize=1&box=-10,0,0,1").await, json!({"data": []}));
    // Hidden devices are not shown.
    let bob = app.developer("bob").await;
    assert_eq!(bob.get("/v2/devices/locations/clusters?cellSize=30&depth=all").await.ok(), json!({"data": []}));
    bob.get(&format!("/v2/devices/locations/clusters?cellSize=30&organizationId={north}")).await.not_found();
}

// Holds: c13.clusters
async fn cells_that_cannot_be_asked_are_named(app: &TestApp) {
    let ana = app.developer("ana").await;
    for (query, faults) in [
        ("", &["query.cellSize"][..]),
        ("?cellSize=0", &["query.cellSize"]),
        ("?cellSize=1", &["query.cellSize"]),
        ("?cellSize=10&box=1,2,3", &["query.box"]),
        ("?cellSize=10&box=0,10,5,9", &["query.box"]),
        ("?cellSize=x&box=0,0,181,0&depth=0", &["query.box", "query.cellSize", "query.depth"]),
    ] {
        let mut found = ana.get(&format!("/v2/devices/locations/clusters{query}")).await.faults();
        found.sort();
        assert_eq!(found, faults, "{query}");
    }
}
