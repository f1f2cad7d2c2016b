//! Refused events of the webhook: they are in the history of a known device, with the reason.

use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::person::text;
use crate::support::{TestApp, on_both_registries};
use crate::webhook::{Sender, messages};

on_both_registries!(
    refused_event_of_a_known_device_is_kept_with_its_error,
    refused_event_of_an_unknown_device_makes_none,
);

/// Returns a device's history, oldest first: element, payload and messages of each.
async fn history(ana: &Sender<'_>, device: &str) -> Vec<(String, Value, Vec<String>)> {
    let events = ana.person.get(&format!("/v2/devices/{device}/events")).await.ok();
    let mut shown: Vec<_> = events["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let errors = if event.get("errors").is_some() { messages(event) } else { Vec::new() };
            (text(event, "elementName").to_owned(), event["payload"].clone(), errors)
        })
        .collect();
    shown.reverse();
    shown
}

// Holds: c9.refused
async fn refused_event_of_a_known_device_is_kept_with_its_error(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let design = json!({
        "up": {"type": "deviceEvent", "properties": {"integration": "lora"},
               "triggers": {"eventReceived": [to("all", "store")]}},
        "all": {"type": "storage"},
    });
    let project = ana.person.designs(design).await;
    let body = json!({"name": "known", "projectUuid": project, "meta": {"eui": "1"}});
    let device = ana.person.creates_device_as(body).await;
    let parameters = |integration| {
        [
            ("deviceTag", "eui"),
            ("deviceTagValue", "1"),
            ("eventsRef", "items"),
            ("idempotencyKeyRef", "key"),
            ("integration", integration),
        ]
    };
    let long = "k".repeat(65);
    let items = json!([{"n": 1}, null, {"n": 2, "key": long}, {"n": 3, "key": [1]}, {"n": 4, "key": "k".repeat(64)}]);
    let answer = ana.delivers(&parameters("lora"), json!({"items": items})).await.ok();
    let null = "the payload is null";
    let too_long = "what idempotencyKeyRef finds must be at most 64 characters long";
    let no_key = "idempotencyKeyRef finds a array, not a string or a number";
    let told = [(1, null), (2, too_long), (3, no_key)].map(|(index, why)| format!("event block {index}: {why}"));
    assert_eq!(messages(&answer), told);
    assert!(text(&answer, "message").contains("2 event(s) processed"), "{answer}");
    let answer = ana.delivers(&parameters("sigfox"), json!({"items": [{"n": 5}]})).await.ok();
    let no_element = "the design of the device's project has no deviceEvent element of the integration sigfox";
    assert_eq!(messages(&answer), [format!("event block 0: {no_element}")]);
    let kept = |element: &str, payload: Value, why: &str| {
        let errors = if why.is_empty() { Vec::new() } else { vec![why.to_owned()] };
        (element.to_owned(), payload, errors)
    };
    let expected = [
        kept("up", json!({"n": 1}), ""),
        kept("up", json!({}), null),
        kept("up", json!({"n": 2, "key": long}), too_long),
        kept("up", json!({"n": 3, "key": [1]}), no_key),
        kept("up", json!({"n": 4, "key": "k".repeat(64)}), ""),
        kept("sigfox", json!({"n": 5}), no_element),
    ];
    assert_eq!(history(&ana, &device.id).await, expected);
    let stored = ana.person.get(&device.at("data/all?sortBy=id")).await.list_of("/payload/n");
    assert_eq!(stored, [1, 4], "what is refused runs nothing");
    // A block that is too deep for a composed payload is stored as it was received.
    let deep = (0..63).fold(json!(1), |inner, _| json!([inner]));
    let maps = [
        ("deviceTag", "eui"),
        ("deviceTagValue", "1"),
        ("integration", "lora"),
        ("eventPayloadMapRefs", r#"{"a":"$"}"#),
    ];
    let deeper = json!([deep]);
    let answer = ana.delivers(&maps, deeper.clone()).await.ok();
    assert!(messages(&answer)[0].contains("nested deeper"), "{answer}");
    let history = history(&ana, &device.id).await;
    let (_, payload, errors) = &history[6];
    assert_eq!((payload, errors.len()), (&deeper, 1));
}

// Holds: c9.refused
async fn refused_event_of_an_unknown_device_makes_none(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "$"),
        ("projectUuid", &*project),
        ("idempotencyKeyRef", "key"),
    ];
    let answer = ana.delivers(&parameters, json!([{"id": "a", "key": {}}])).await.ok();
    assert_eq!(messages(&answer), ["event block 0: idempotencyKeyRef finds a object, not a string or a number"]);
    assert_eq!(ana.devices().await, [] as [Value; 0]);
    // A device that is created for another event has it too.
    ana.delivers(&parameters, json!([{"id": "a", "key": {}}, {"id": "a"}])).await.ok();
    let device = text(&ana.devices().await[0], "id").to_owned();
    assert_eq!(history(&ana, &device).await.len(), 2);
}
