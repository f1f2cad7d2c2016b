//! The integration webhook's parameters, each in query or header, and its credentials.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::person::text;
use crate::support::{TestApp, on_both_registries};
use crate::webhook::{Sender, path};

on_both_registries!(
    webhook_parameter_may_be_in_query_or_header,
    api_key_delivers_in_each_form_and_nothing_else_does,
    five_integrations_are_known_in_any_case,
    script_is_refused_as_a_reference,
    delivery_without_a_tag_or_its_value_is_refused,
);

/// Returns the devices of an organization, with their metadata and projects.
async fn devices(ana: &Sender<'_>, organization: &str) -> Vec<Value> {
    let list = ana.person.get(&format!("/v2/devices?organizationId={organization}&sortBy=name")).await.ok();
    let shown = |device: &Value| json!([device["name"], device["projectUuid"], device["meta"]]);
    list["data"].as_array().unwrap().iter().map(shown).collect()
}

// Holds: webhook.headers, webhook.deviceTagValue, webhook.eventPayloadMapRefs
async fn webhook_parameter_may_be_in_query_or_header(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let (cold, warm) = (ana.person.creates_project("cold").await, ana.person.creates_project("warm").await);
    let map = json!({"c": cold}).to_string();
    for (place, in_headers) in [("Query", false), ("Headers", true)] {
        let organization = ana.person.founds(place, &ana.person.organization).await;
        let parameters = [
            ("integration", "SigFox"),
            ("organizationId", &*organization),
            ("eventsRef", "$.events[*]"),
            ("deviceTag", "eui"),
            ("deviceTagValueRef", "$.id"),
            ("deviceTagCase", "Insensitive"),
            ("extraMeta", r#"{"site":"Bern"}"#),
            ("extraMetaMapRefs", r#"{"gateway":"$.gateway"}"#),
            ("projectUuid", &*warm),
            ("projectUuidMap", &*map),
            ("projectUuidMapRef", "$.kind"),
            ("eventPayloadMapRefs", r#"{"t":"$.temp"}"#),
            ("idempotencyKeyRef", "$.temp"),
            ("debug", "true"),
        ];
        let body = json!({"gateway": "g1", "events": [{"id": "a", "kind": "c", "temp": 1}, {"id": "b", "temp": 2}]});
        let (query, headers) = if in_headers { (&[][..], &parameters[..]) } else { (&parameters[..], &[][..]) };
        let debug = ana.delivers_text(query, headers, body.to_string()).await.ok();
        assert_eq!(debug["debug"]["errors"], json!([]), "{place}: {debug}");
        let meta = |id: &str| json!({"eui": id, "site": "Bern", "gateway": "g1"});
        let expected = [json!(["a", cold, meta("a")]), json!(["b", warm, meta("b")])];
        assert_eq!(devices(&ana, &organization).await, expected, "{place}");
        let processed = &debug["debug"]["taskExecutions"]["processed"];
        for (task, payload) in [(0, json!({"t": 1})), (1, json!({"t": 2}))] {
            let event = &processed[task]["eventsProcessed"][0];
            assert_eq!((&event["integration"], &event["payload"]), (&json!("sigfox"), &payload), "{place}");
            let stored = format!("/v2/devices/{}/data/sigfox", text(event, "deviceId"));
            assert_eq!(ana.person.get(&stored).await.list_of("/payload"), [payload], "{place}");
        }
        // The remaining way: a value for all blocks.
        let fixed = [
            ("deviceTag", "eui"),
            ("deviceTagValue", "c"),
            ("organizationId", &*organization),
            ("projectUuid", &*cold),
        ];
        let (query, headers) = if in_headers { (&[][..], &fixed[..]) } else { (&fixed[..], &[][..]) };
        ana.delivers_text(query, headers, "1").await.ok();
        assert_eq!(devices(&ana, &organization).await[2], json!(["c", cold, {"eui": "c"}]), "{place}");
    }
}

// Holds: webhook.credentials, auth.webhook
async fn api_key_delivers_in_each_form_and_nothing_else_does(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (project, key) = (ana.creates_project("p").await, ana.makes_api_key("key").await);
    let path = path(&[("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &project)]);
    let ask = || with_json(app.request(Method::POST, &path), &json!(1));
    for header in ["api_auth_token", "authorization"] {
        app.send(ask().header(header, &key)).await.ok();
    }
    app.send(ask().bearer_auth(&key)).await.ok();
    app.send(ask().basic_auth("anybody", Some(&key))).await.ok();
    let device = ana.creates_device("fridge").await;
    for refused in [
        ask(),
        ask().bearer_auth(&ana.jwt),
        ask().header("cloud", &device.token),
        ask().header("cloud", &device.token).header("api_auth_token", &key),
        ask().header("cookie", &ana.cookie),
    ] {
        app.send(refused).await.unauthenticated();
    }
}

// Holds: webhook.integration
async fn five_integrations_are_known_in_any_case(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let mut elements = json!({"http": {"type": "deviceEvent"}});
    for integration in ["custom", "ble", "lora", "sigfox", "zigbee"] {
        elements[format!("of {integration}")] =
            json!({"type": "deviceEvent", "properties": {"integration": integration}});
    }
    let project = ana.person.designs(elements).await;
    let parameters = [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*project)];
    let with = |integration| [&parameters[..], &[("integration", integration)]].concat();
    for integration in ["", "CUSTOM", "Ble", "LoRa", "sigFOX", "zigbee"] {
        let parameters = if integration.is_empty() { parameters.to_vec() } else { with(integration) };
        ana.delivers(&parameters, json!(1)).await.ok();
    }
    let device = ana.person.get("/v2/devices").await.ok()["data"][0].clone();
    let ran = ana.person.get(&format!("/v2/devices/{}/events", text(&device, "id"))).await.list_of("/elementName");
    assert_eq!(ran, ["of zigbee", "of sigfox", "of lora", "of ble", "of custom", "of custom"]);
    for other in ["http", "mqtt", "lora "] {
        assert_eq!(ana.delivers(&with(other), json!(1)).await.faults(), ["query.integration"], "{other}");
    }
}

// Holds: webhook.eventsRef, c9.jsonpath
async fn script_is_refused_as_a_reference(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let fixed = [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*project)];
    for script in ["$[(@.length-1)]", "$..[?(@.constructor.constructor('1')())]", "$.a[`x`]", "$.a.map(x=>x)"] {
        let map = json!({"label": script}).to_string();
        for (name, value, field) in [
            ("eventsRef", script, "query.eventsRef"),
            ("deviceTagValueRef", script, "query.deviceTagValueRef"),
            ("projectUuidMapRef", script, "query.projectUuidMapRef"),
            ("idempotencyKeyRef", script, "query.idempotencyKeyRef"),
            ("extraMetaMapRefs", &map, "query.extraMetaMapRefs.label"),
            ("eventPayloadMapRefs", &map, "query.eventPayloadMapRefs.label"),
        ] {
            let parameters = [&fixed[..], &[(name, value)]].concat();
            assert_eq!(ana.delivers(&parameters, json!({"a": [1]})).await.faults(), [field], "{script}");
        }
    }
    assert_eq!(devices(&ana, &ana.person.organization).await, [] as [Value; 0]);
}

// Holds: c9.tag
async fn delivery_without_a_tag_or_its_value_is_refused(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    for (given, faults) in [
        (&[][..], &["query.deviceTag", "query.deviceTagValue"][..]),
        (&[("deviceTagValue", "1")], &["query.deviceTag"]),
        (&[("deviceTag", "eui")], &["query.deviceTagValue"]),
    ] {
        let given = [given, &[("projectUuid", &*project)]].concat();
        assert_eq!(ana.delivers(&given, json!({})).await.faults(), faults);
    }
    assert_eq!(devices(&ana, &ana.person.organization).await, [] as [Value; 0]);
}
