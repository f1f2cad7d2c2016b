//! Tests a design's descriptions of the keys of stored values (contract: The project design).

use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(
    fields_are_shown_with_their_storage_element,
    bad_fields_are_refused_each_by_its_path,
    fields_change_nothing_that_is_stored,
);

fn design(fields: Value) -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("climate", "store")]}},
        "climate": {"type": "storage", "properties": {"fields": fields}},
        "plain": {"type": "storage"},
    })
}

fn meant() -> Value {
    json!({
        "payload.temp": {"title": {"en": "Temperature", "de": "Temperatur"}, "unit": "°C", "decimals": 1,
            "minimum": -30, "maximum": 40, "low": 2.5, "high": 8},
        "payload[\"front door\"].open": {"title": "Door", "words": {"true": "open", "false": "closed"}},
    })
}

// Holds: c18.fields
async fn fields_are_shown_with_their_storage_element(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(design(meant())).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    assert_eq!(ana.get(&device.at("storage/climate")).await.ok()["fields"], meant());
    assert_eq!(ana.get(&device.at("storage/plain")).await.ok()["fields"], json!({}));
    let list = ana.get(&device.at("storage")).await.ok();
    assert_eq!([&list["storageElements"][0]["fields"], &list["storageElements"][1]["fields"]], [&meant(), &json!({})]);
    let specification = ana.get(&format!("/v2/projects/{project}/specification")).await.ok();
    assert_eq!(specification["planes"]["cloud"]["elements"]["climate"]["properties"]["fields"], meant());
    device.posts("reading", json!({"temp": 9.1})).await.created();
    // A new design takes effect at once, for existing values too; one without the element describes nothing.
    let changed = json!({"payload.temp": {"unit": "K", "decimals": null}});
    ana.redesigns(&project, design(changed)).await.ok();
    assert_eq!(ana.get(&device.at("storage/climate")).await.ok()["fields"], json!({"payload.temp": {"unit": "K"}}));
    ana.redesigns(&project, json!({})).await.ok();
    assert_eq!(ana.get(&device.at("storage/climate")).await.ok()["fields"], json!({}));
    app.stranger("bob").await.get(&device.at("storage/climate")).await.not_found();
}

// Holds: c18.fields
async fn bad_fields_are_refused_each_by_its_path(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(design(meant())).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    let refused = ana
        .redesigns(
            &project,
            design(json!({
                "payload.temp": {"decimals": 13, "low": 9, "high": 8, "words": {"true": 1}},
                "temp": {},
                "payload.a": {"colour": "red"},
            })),
        )
        .await;
    let at = |place: &str| format!("planes.cloud.elements.climate.properties.fields.{place}");
    let expected =
        ["payload.a.colour", "payload.temp.decimals", "payload.temp.low", "payload.temp.words.true", "temp"].map(at);
    assert_eq!(refused.faults(), expected);
    assert_eq!(ana.get(&device.at("storage/climate")).await.ok()["fields"], meant());
}

// Holds: c18.fields
async fn fields_change_nothing_that_is_stored(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(design(meant())).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    let payload = json!({"temp": 99.123456, "front door": {"open": true}});
    device.posts("reading", payload.clone()).await.created();
    assert_eq!(ana.get(&device.at("data/climate")).await.list_of("/payload"), std::slice::from_ref(&payload));
    assert_eq!(ana.get(&device.at("last/climate")).await.ok()["values"], payload);
}
