//! The integration webhook: a third party's payloads become devices and their events.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::designs::{to, to_with};
use crate::support::person::text;
use crate::support::{Answer, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    a_delivery_provisions_a_device_and_processes_its_event,
    delivered_payloads_keep_their_digits,
    webhook_parameters_may_be_headers,
    many_deliveries_at_once_provision_a_device_once,
    a_thousand_devices_come_in_one_delivery,
    delivered_event_runs_the_design,
    a_map_chooses_the_project,
    labels_are_added_but_never_erased,
    label_of_the_body_wins_over_its_default,
    delivery_finds_devices_in_the_subtree,
    fault_of_a_block_is_reported,
);

/// A user with an API key who delivers.
pub struct Sender<'a> {
    pub person: Person<'a>,
    pub key: String,
}

impl<'a> Sender<'a> {
    pub async fn of(person: Person<'a>) -> Self {
        let key = person.makes_api_key("for the webhook").await;
        Self { person, key }
    }

    pub async fn delivers(&self, parameters: &[(&str, &str)], body: Value) -> Answer {
        self.delivers_text(parameters, &[], body.to_string()).await
    }

    pub async fn delivers_text(
        &self,
        parameters: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let request = self.person.app.request(Method::POST, &path(parameters)).header("api_auth_token", &self.key);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.person.app.send(request.header("content-type", "application/json").body(body)).await
    }

    /// Returns the devices that the user sees, by name.
    pub async fn devices(&self) -> Vec<Value> {
        let body = self.person.get("/v2/devices?depth=all&limit=10000&sortBy=name").await.ok();
        body["data"].as_array().unwrap().clone()
    }

    /// Returns the payloads of a device's history, oldest first.
    pub async fn history(&self, device: &str) -> Vec<Value> {
        let mut found = self.person.get(&format!("/v2/devices/{device}/events?limit=10000")).await.list_of("/payload");
        found.reverse();
        found
    }
}

/// Returns the webhook's path with parameters.
pub fn path(parameters: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://host/v2/events/integrations").unwrap();
    url.query_pairs_mut().extend_pairs(parameters);
    url.as_str().trim_start_matches("http://host").to_owned()
}

/// Returns the error messages in an answer.
pub fn messages(answer: &Value) -> Vec<String> {
    answer["errors"].as_array().unwrap().iter().map(|error| text(error, "message").to_owned()).collect()
}

/// Returns the debug entry of a device that the delivery created, which has the label `devEUI`.
fn provisioned(device: &Value) -> Value {
    json!({
        "deviceId": device["id"],
        "name": device["name"],
        "organizationId": device["organizationId"],
        "projectUuid": device["projectUuid"],
        "deviceTag": "devEUI",
        "deviceTagValue": device["meta"]["devEUI"],
    })
}

/// Returns the debug entry of an event that ran, from its entry in history.
fn processed(event: &Value, integration: &str) -> Value {
    json!({
        "_id": event["id"],
        "receivedAt": event["receivedAt"],
        "integration": integration,
        "deviceId": event["deviceId"],
        "payload": event["payload"],
    })
}

// Holds: POST /v2/events/integrations, webhook.unknown, webhook.deviceTag, webhook.deviceTagValue,
// webhook.deviceTagValueRef, webhook.projectUuid, webhook.debug, webhook.provision, webhook.process,
// webhook.debugShape, c9.elements
async fn a_delivery_provisions_a_device_and_processes_its_event(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "devEUI"),
        ("deviceTagValueRef", "$.ids.eui"),
        ("projectUuid", &*project),
        ("integration", "LORA"),
        ("extraMeta", r#"{"site":"Bern"}"#),
        ("debug", "true"),
        ("unknown", "parameters are fine"),
    ];
    let body = json!({"ids": {"eui": "70B3D5"}, "temp": 4.5});
    let debug = ana.delivers(&parameters, body.clone()).await.ok();
    let devices = ana.devices().await;
    assert_eq!(devices.len(), 1);
    let device = text(&devices[0], "id");
    assert_eq!(devices[0]["meta"], json!({"devEUI": "70B3D5", "site": "Bern"}));
    assert_eq!((text(&devices[0], "name"), text(&devices[0], "projectUuid")), ("70B3D5", &*project));
    assert_eq!(text(&devices[0], "createdBy"), ana.person.id);
    assert_eq!(text(&devices[0], "organizationId"), ana.person.organization);
    let event = &ana.person.get(&format!("/v2/devices/{device}/events")).await.ok()["data"][0];
    assert_eq!(event["payload"], body);
    let task = json!({
        "deviceTag": "devEUI",
        "deviceTagValue": "70B3D5",
        "extraMeta": {"site": "Bern"},
        "integration": "lora",
        "payloads": [body],
        "organization": ana.person.organization,
        "owner": ana.person.id,
        "projectUuid": project,
    });
    let extracted = json!({"requestBody": body, "tasks": [task], "errors": []});
    let done = json!({
        "errors": [],
        "devicesProvisioned": [provisioned(&devices[0])],
        "eventsProcessed": [processed(event, "lora")],
    });
    let executed = json!({"processed": [done], "errors": []});
    assert_eq!(debug, json!({"debug": {"errors": [], "extractedTasks": extracted, "taskExecutions": executed}}));
    // An empty design stores under the type's name; the second time the device is known.
    let again = ana.delivers(&parameters[..5], body.clone()).await.ok();
    let message = "1 event block(s) taken: 1 event(s) processed, 0 device(s) provisioned";
    assert_eq!(again, json!({"message": message, "errors": []}));
    let stored = ana.person.get(&format!("/v2/devices/{device}/data/lora")).await.list_of("/payload");
    assert_eq!(stored, [body.clone(), body]);
}

async fn delivered_payloads_keep_their_digits(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let exact = r#"[{"eui":1,"n":18446744073709551617},{"eui":1,"n":0.10000000000000000001}]"#;
    let parameters = [("deviceTag", "n"), ("deviceTagValueRef", "eui"), ("eventsRef", "$"), ("projectUuid", &*project)];
    ana.delivers_text(&parameters, &[], exact.to_owned()).await.ok();
    let device = &ana.devices().await[0];
    assert_eq!(device["meta"], json!({"n": "1"}));
    let stored = ana.person.get(&format!("/v2/devices/{}/data/custom", text(device, "id"))).await;
    assert!(stored.text.contains("18446744073709551617") && stored.text.contains("0.10000000000000000001"));
}

// Holds: webhook.headers, c9.query
async fn webhook_parameters_may_be_headers(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let headers = [
        ("devicetag", "eui"),
        ("DEVICETAGVALUE", "from the header"),
        ("projectuuid", &*project),
        ("extrameta", "%7B%22site%22%3A%22Z%C3%BCrich%22%7D"),
        ("eventPayloadMapRefs", r#"{"t":"$.temp"}"#),
    ];
    ana.delivers_text(&[("deviceTagValue", "from the query")], &headers, json!({"temp": 1}).to_string()).await.ok();
    let devices = ana.devices().await;
    assert_eq!(devices[0]["meta"], json!({"eui": "from the query", "site": "Zürich"}));
    assert_eq!(ana.history(text(&devices[0], "id")).await, [json!({"t": 1})]);
    let bad = [("devicetag", "eui"), ("eventsref", "$["), ("debug", "yes"), ("projectuuid", "mine")];
    let faults = ana.delivers_text(&[("integration", "mqtt")], &bad, "{".to_owned()).await.faults();
    let expected =
        ["body", "header.debug", "header.eventsRef", "header.projectUuid", "query.deviceTagValue", "query.integration"];
    assert_eq!(faults, expected);
}

// Holds: c9.sought, c9.tag
async fn many_deliveries_at_once_provision_a_device_once(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters =
        [("deviceTag", "eui"), ("deviceTagValueRef", "id"), ("eventsRef", "$"), ("projectUuid", &*project)];
    let deliveries = (0..12).map(|turn| {
        let body = json!([{"id": "same", "turn": turn}, {"id": turn % 3, "turn": turn}]);
        ana.delivers(&parameters, body)
    });
    for answer in futures::future::join_all(deliveries).await {
        assert_eq!(messages(&answer.ok()), [""; 0]);
    }
    let devices = ana.devices().await;
    let names: Vec<&str> = devices.iter().map(|device| text(device, "name")).collect();
    assert_eq!(names, ["0", "1", "2", "same"]);
    assert_eq!(ana.history(text(&devices[3], "id")).await.len(), 12);
}

async fn a_thousand_devices_come_in_one_delivery(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters =
        [("deviceTag", "eui"), ("deviceTagValueRef", "$.id"), ("eventsRef", "data"), ("projectUuid", &*project)];
    let blocks: Vec<Value> = (0..1_000).map(|n| json!({"id": n % 500, "n": n})).collect();
    for turn in 1..=2 {
        let answer = ana.delivers(&parameters, json!({"data": blocks})).await.ok();
        let provisioned = if turn == 1 { 500 } else { 0 };
        let message =
            format!("1000 event block(s) taken: 1000 event(s) processed, {provisioned} device(s) provisioned");
        assert_eq!(answer, json!({"message": message, "errors": []}));
    }
    let devices = ana.devices().await;
    assert_eq!(devices.len(), 500);
    let seventh = devices.iter().find(|device| text(device, "name") == "7").unwrap();
    let history = ana.history(text(seventh, "id")).await;
    let numbers: Vec<_> = history.iter().map(|payload| payload["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [7, 507, 7, 507]);
    // One device's events keep the order of the body, whatever their number.
    let blocks: Vec<Value> = (0..300).map(|n| json!({"id": "one", "n": n})).collect();
    ana.delivers(&parameters, json!({"data": blocks})).await.ok();
    let devices = ana.devices().await;
    let one = devices.iter().find(|device| text(device, "name") == "one").unwrap();
    let numbers: Vec<_> = ana.history(text(one, "id")).await.iter().map(|p| p["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
}

// Holds: webhook.integration, c9.elements
async fn delivered_event_runs_the_design(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let receives = |integration: &str, links: Value| json!({"type": "deviceEvent", "properties": {"integration": integration}, "triggers": {"eventReceived": links}});
    let project = ana
        .person
        .designs(json!({
            "up": receives("lora", json!([to_with("raw", "store", json!({"value": "payload.v"}))])),
            "also": receives("lora", json!([to("all", "store")])),
            "own": receives("http", json!([to("raw", "store")])),
            "raw": {"type": "storage"},
            "all": {"type": "storage"},
        }))
        .await;
    let parameters = |integration| {
        [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*project), ("integration", integration)]
    };
    let answer = ana.delivers(&parameters("lora"), json!({"v": 7})).await.ok();
    assert!(text(&answer, "message").contains("2 event(s)"), "{answer}");
    let device = text(&ana.devices().await[0], "id").to_owned();
    let stored =
        async |element: &str| ana.person.get(&format!("/v2/devices/{device}/data/{element}")).await.list_of("/payload");
    assert_eq!((stored("raw").await, stored("all").await), (vec![json!(7)], vec![json!({"v": 7})]));
    let elements = ana.person.get(&format!("/v2/devices/{device}/events")).await.list_of("/elementName");
    assert_eq!(elements, ["up", "also"]);
    let answer = ana.delivers(&parameters("sigfox"), json!({"v": 8})).await.ok();
    assert!(messages(&answer)[0].contains("no deviceEvent element of the integration sigfox"), "{answer}");
    assert_eq!(ana.history(&device).await.len(), 3, "it is kept, and nothing ran");
    assert_eq!(stored("all").await.len(), 1);
}

// Holds: webhook.projectUuidMap, webhook.projectUuidMapRef, c9.map
async fn a_map_chooses_the_project(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let bob = app.stranger("bob").await;
    let foreign = bob.creates_project("bob's").await;
    let (cold, warm) = (ana.person.creates_project("cold").await, ana.person.creates_project("warm").await);
    let map = json!({"fridge": cold, "7": warm, "bob": foreign, "gone": NOBODY}).to_string();
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "$"),
        ("projectUuidMap", &*map),
        ("projectUuidMapRef", "$.kind"),
    ];
    let kinds = [json!("fridge"), json!(7), json!("car"), json!("bob"), json!("gone"), Value::Null];
    let blocks: Vec<Value> = kinds.iter().enumerate().map(|(id, kind)| json!({"id": id, "kind": kind})).collect();
    let answer = ana.delivers(&parameters, json!(blocks)).await.ok();
    let failed: Vec<String> = messages(&answer).iter().map(|message| message[..13].to_owned()).collect();
    assert_eq!(failed, [2, 3, 4, 5].map(|block| format!("event block {block}")), "{answer}");
    let projects: Vec<String> =
        ana.devices().await.iter().map(|device| text(device, "projectUuid").to_owned()).collect();
    assert_eq!(projects, [cold.clone(), warm.clone()]);
    // A block whose project is not in the map uses projectUuid.
    let with_default: Vec<_> = parameters.into_iter().chain([("projectUuid", &*warm)]).collect();
    let answer = ana.delivers(&with_default, json!([{"id": "x", "kind": "car"}, {"id": "y"}])).await.ok();
    assert!(text(&answer, "message").ends_with("2 device(s) provisioned"), "{answer}");
    // A project of another tenant, or an unknown one, is a fault.
    for project in [foreign.as_str(), NOBODY] {
        let parameters = [("deviceTag", "eui"), ("deviceTagValue", "z"), ("projectUuid", project)];
        assert_eq!(ana.delivers(&parameters, json!({})).await.faults(), ["query.projectUuid"]);
    }
    assert!(bob.get("/v2/devices").await.names().is_empty());
}

// Holds: webhook.extraMeta, webhook.extraMetaMapRefs, c9.meta
async fn labels_are_added_but_never_erased(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let meta = json!({"eui": 17, "site": "own"});
    let known = ana.person.creates_device_as(json!({"name": "known", "projectUuid": project, "meta": meta})).await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "readings"),
        ("projectUuid", &*project),
        ("extraMeta", r#"{"site":"default","eui":"never","floor":3}"#),
        ("extraMetaMapRefs", r#"{"gateway":"$.gateway.id","eui":"$.gateway.id","battery":"$.battery"}"#),
    ];
    let body = json!({"gateway": {"id": "gw1"}, "readings": [{"id": 17}, {"id": "new"}]});
    ana.delivers(&parameters, body).await.ok();
    let meta = async |name: &str| {
        let devices = ana.devices().await;
        devices.iter().find(|device| text(device, "name") == name).unwrap()["meta"].clone()
    };
    assert_eq!(meta("known").await, json!({"eui": 17, "site": "own", "floor": 3, "gateway": "gw1"}));
    assert_eq!(meta("new").await, json!({"eui": "new", "site": "default", "floor": 3, "gateway": "gw1"}));
    // A path that finds something sets its label, and one that finds nothing keeps it.
    ana.delivers(&parameters, json!({"battery": 3.6, "readings": [{"id": "17"}]})).await.ok();
    let expected = json!({"eui": 17, "site": "own", "floor": 3, "gateway": "gw1", "battery": 3.6});
    assert_eq!(meta("known").await, expected);
    assert_eq!(ana.history(&known.id).await, [json!({"id": 17}), json!({"id": "17"})]);
    // Labels follow the metadata: a device with another tag is another device.
    ana.person.put(&known.url(), json!({"name": "known", "projectUuid": project, "meta": {"eui": "18"}})).await.ok();
    ana.delivers(&parameters, json!({"readings": [{"id": 18}, {"id": 17}]})).await.ok();
    assert_eq!((ana.history(&known.id).await.len(), ana.devices().await.len()), (3, 3));
}

// Holds: webhook.extraMetaMapRefs
async fn label_of_the_body_wins_over_its_default(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValueRef", "id"),
        ("projectUuid", &*project),
        ("extraMeta", r#"{"gateway":"default"}"#),
        ("extraMetaMapRefs", r#"{"gateway":"$.gateway.id"}"#),
    ];
    for (body, gateway) in [
        (json!({"id": "a", "gateway": {"id": "gw1"}}), "gw1"),
        (json!({"id": "b"}), "default"),
        // A path that leads to null has found nothing.
        (json!({"id": "c", "gateway": {"id": null}}), "default"),
        // A device keeps its label until the body has another value.
        (json!({"id": "a"}), "gw1"),
        (json!({"id": "a", "gateway": {"id": null}}), "gw1"),
        (json!({"id": "b", "gateway": {"id": "gw2"}}), "gw2"),
        (json!({"id": "b", "gateway": null}), "gw2"),
    ] {
        let answer = ana.delivers(&parameters, body.clone()).await.ok();
        assert_eq!(messages(&answer), [""; 0], "{body}");
        let devices = ana.devices().await;
        let device = devices.iter().find(|device| device["name"] == body["id"]).unwrap();
        assert_eq!(device["meta"], json!({"eui": body["id"], "gateway": gateway}), "{body}");
    }
}

// Holds: webhook.organizationId, webhook.deviceTagValue, c9.sought
async fn delivery_finds_devices_in_the_subtree(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let north = ana.person.founds("North", &ana.person.organization).await;
    let project = ana.person.creates_project("p").await;
    let mia = Sender::of(ana.person.invites_into(&north, "mia", "manager").await).await;
    let at = |organization| {
        [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*project), ("organizationId", organization)]
    };
    ana.delivers(&at(&north), json!(1)).await.ok();
    let devices = ana.devices().await;
    assert_eq!((devices.len(), text(&devices[0], "organizationId")), (1, &*north));
    // The device is found from above, and from its own organization too, with a project of the one above.
    ana.delivers(&at(&ana.person.organization)[..], json!(2)).await.ok();
    mia.delivers(&at(&north)[..3], json!(3)).await.ok();
    assert_eq!(ana.history(text(&devices[0], "id")).await, [1, 2, 3]);
    // Devices of other tenants and of the organization above do not count.
    let bob = Sender::of(app.stranger("bob").await).await;
    let theirs = bob.person.creates_project("p").await;
    let parameters = [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*theirs)];
    let answer = bob.delivers(&parameters, json!(4)).await.ok();
    assert!(text(&answer, "message").ends_with("1 device(s) provisioned"), "{answer}");
    for organization in [&*bob.person.organization, NOBODY] {
        assert_eq!(ana.delivers(&at(organization), json!(5)).await.faults(), ["query.organizationId"]);
    }
    let above = mia.delivers(&at(&ana.person.organization), json!(6)).await.faults();
    assert_eq!(above, ["query.organizationId"]);
    assert_eq!(ana.history(text(&devices[0], "id")).await.len(), 3);
    // A technician may not.
    let tom = Sender::of(ana.person.invites("tom", "technician").await).await;
    tom.delivers(&[], json!(null)).await.forbidden();
    // A jwt is no credential here.
    let request = ana.person.request(Method::POST, &path(&at(&north)));
    app.send(with_json(request, &json!(7))).await.unauthenticated();
}

// Holds: webhook.body, status.items, c1.413, c9.answer, c9.eventsRef
async fn fault_of_a_block_is_reported(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValueRef", "id"),
        ("eventsRef", "items"),
        ("projectUuid", &*project),
        ("debug", "true"),
    ];
    let body = json!({"items": [{"id": "a"}, {}, 5, {"id": {}}, null]});
    let debug = ana.delivers(&parameters, body).await.ok();
    let debug = &debug["debug"];
    assert_eq!(debug["errors"], debug["extractedTasks"]["errors"]);
    let failed: Vec<String> = messages(debug).iter().map(|message| message[..13].to_owned()).collect();
    assert_eq!(failed, [1, 2, 3, 4].map(|block| format!("event block {block}")));
    assert_eq!(debug["taskExecutions"]["processed"].as_array().unwrap().len(), 1);
    let answer = ana.delivers(&parameters[..4], json!([])).await.ok();
    assert_eq!(messages(&answer), ["eventsRef finds nothing in the body"]);
    // Without a project for it a device is not created, and the other is processed.
    let answer = ana.delivers(&parameters[..3], json!({"items": [{"id": "a"}, {"id": "b"}]})).await.ok();
    assert!(messages(&answer)[0].starts_with("event block 1: no device carries the tag"), "{answer}");
    assert_eq!(ana.devices().await.len(), 1);
    // A body beyond 5 MiB is refused, one below is taken.
    let large = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    let one = [("deviceTag", "eui"), ("deviceTagValue", "a")];
    ana.delivers_text(&one, &[], large((5 << 20) - 2)).await.ok();
    ana.delivers_text(&one, &[], large(5 << 20)).await.is(413);
    ana.delivers_text(&[], &[], large(5 << 20)).await.is(413);
}
