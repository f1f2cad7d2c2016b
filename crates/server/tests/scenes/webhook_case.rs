//! Devices that the webhook finds in any case of letters.

use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::{TestApp, on_both_registries};
use crate::webhook::{Sender, messages};

on_both_registries!(
    device_is_found_whatever_the_case,
    deliveries_in_two_cases_provision_a_device_once,
    value_that_fits_several_devices_is_refused,
);

const EUI: &str = "70B3D57ED00001A6";

// Holds: webhook.deviceTagCase, c9.case
async fn device_is_found_whatever_the_case(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let body = json!({"name": "known", "projectUuid": project, "meta": {"devEui": EUI}});
    let device = ana.person.creates_device_as(body).await;
    let lower = EUI.to_lowercase();
    let parameters = [
        ("deviceTag", "devEui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "$"),
        ("deviceTagCase", "insensitive"),
        ("extraMeta", r#"{"site":"Bern"}"#),
    ];
    let blocks =
        json!([{"id": lower, "n": 1}, {"id": EUI, "n": 2}, {"id": "70b3D57ed00001A6", "n": 3}, {"id": lower, "n": 4}]);
    let answer = ana.delivers(&parameters, blocks).await.ok();
    assert_eq!(messages(&answer), [""; 0]);
    let numbers: Vec<Value> = ana.history(&device.id).await.iter().map(|payload| payload["n"].clone()).collect();
    assert_eq!(numbers, [1, 2, 3, 4], "in the body's order");
    let devices = ana.devices().await;
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0]["meta"], json!({"devEui": EUI, "site": "Bern"}), "the label stays as it was written");
    // By default, and if requested, the case counts.
    for case in ["", "sensitive"] {
        let parameters = [("deviceTag", "devEui"), ("deviceTagValue", &*lower), ("deviceTagCase", case)];
        let answer = ana.delivers(&parameters, json!(5)).await.ok();
        assert!(messages(&answer)[0].starts_with("event block 0: no device carries the tag"), "{answer}");
    }
    let bad = [("deviceTag", "devEui"), ("deviceTagValue", EUI), ("deviceTagCase", "lower")];
    assert_eq!(ana.delivers(&bad, json!(6)).await.faults(), ["query.deviceTagCase"]);
    // The parameter may be a header too.
    let headers = [("deviceTag", "devEui"), ("deviceTagValue", &*lower), ("deviceTagCase", "Insensitive")];
    ana.delivers_text(&[], &headers, "7").await.ok();
    assert_eq!(ana.history(&device.id).await.len(), 5);
}

// Holds: c9.case
async fn deliveries_in_two_cases_provision_a_device_once(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "devEui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "$"),
        ("projectUuid", &*project),
        ("deviceTagCase", "insensitive"),
    ];
    let lower = EUI.to_lowercase();
    let deliveries = (0..12).map(|turn| {
        let (first, second) = if turn % 2 == 0 { (EUI, &*lower) } else { (&*lower, EUI) };
        ana.delivers(&parameters, json!([{"id": first, "turn": turn}, {"id": second, "turn": turn}]))
    });
    for answer in futures::future::join_all(deliveries).await {
        assert_eq!(messages(&answer.ok()), [""; 0]);
    }
    let devices = ana.devices().await;
    assert_eq!(devices.len(), 1);
    assert_eq!(ana.history(text(&devices[0], "id")).await.len(), 24);
}

// Holds: c9.case
async fn value_that_fits_several_devices_is_refused(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let mut made = Vec::new();
    for eui in ["ab", "AB"] {
        let body = json!({"name": eui, "projectUuid": project, "meta": {"devEui": eui}});
        made.push(ana.person.creates_device_as(body).await);
    }
    let parameters = [
        ("deviceTag", "devEui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "$"),
        ("projectUuid", &*project),
        ("deviceTagCase", "insensitive"),
    ];
    let answer = ana.delivers(&parameters, json!([{"id": "ab"}, {"id": "Ab"}, {"id": "AB"}])).await.ok();
    assert_eq!(
        messages(&answer),
        ["event block 1: several devices carry the tag in other cases, and none in this one"]
    );
    assert_eq!(ana.history(&made[0].id).await, [json!({"id": "ab"})]);
    assert_eq!(ana.history(&made[1].id).await, [json!({"id": "AB"})]);
    assert_eq!(ana.devices().await.len(), 2, "none is made");
}
