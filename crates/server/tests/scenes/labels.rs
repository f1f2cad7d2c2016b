//! Labels of devices, changed one by one.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::designs::to_with;
use crate::support::person::text;
use crate::support::{Answer, Device, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    labels_are_set_and_removed_one_by_one,
    labels_of_a_patch_keep_their_digits,
    patch_that_is_no_object_is_refused,
    patch_of_labels_has_bounds,
    patch_of_labels_needs_reach_and_role,
    bulk_changes_labels_of_each_device_separately,
    malformed_bulk_of_labels_changes_nothing,
    concurrent_writes_of_labels_are_all_kept,
    label_of_a_user_wins_over_an_older_one_of_a_design,
);

const BULK: &str = "/v2/devices/meta";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Returns a design that sets a label with each event `label`.
fn labelling() -> Value {
    let set = to_with("labels", "setValue", json!({"tag": "payload.tag", "value": "payload.value"}));
    json!({
        "label": {"type": "deviceEvent", "triggers": {"eventReceived": [set]}},
        "labels": {"type": "deviceMeta"},
    })
}

async fn sends(ana: &Person<'_>, path: &str, content_type: &str, method: Method, body: &str) -> Answer {
    let request = ana.request(method, path).header("content-type", content_type).body(body.to_owned());
    ana.app.send(request).await
}

async fn patches(ana: &Person<'_>, device: &Device<'_>, body: &str) -> Answer {
    sends(ana, &device.at("meta"), MERGE_PATCH, Method::PATCH, body).await
}

async fn meta_of(ana: &Person<'_>, device: &Device<'_>) -> Value {
    ana.get(&device.url()).await.ok()["meta"].clone()
}

fn item(device: &str, meta: Value) -> Value {
    json!({"deviceId": device, "meta": meta})
}

fn messages(outcome: &Value) -> Vec<&str> {
    outcome["errors"].as_array().unwrap().iter().map(|error| text(error, "message")).collect()
}

// Holds: PATCH /v2/devices/{id}/meta
async fn labels_are_set_and_removed_one_by_one(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let before = patches(&ana, &device, r#"{"room":"cellar","place":{"floor":1,"door":"left"},"old":true}"#).await.ok();
    assert_eq!(before["meta"], json!({"room": "cellar", "place": {"floor": 1, "door": "left"}, "old": true}));
    app.wait_seconds(1);
    let after = patches(&ana, &device, r#"{"place":{"door":null,"shelf":[null]},"old":null,"none":null}"#).await.ok();
    assert_eq!(after["meta"], json!({"room": "cellar", "place": {"floor": 1, "shelf": [null]}}));
    assert_eq!(after, ana.get(&device.url()).await.ok());
    assert!(text(&after, "updatedAt") > text(&before, "updatedAt"));
    assert_eq!((&after["name"], &after["projectUuid"]), (&before["name"], &before["projectUuid"]));
    // A patch without effect is no change, and the plain media type of JSON is accepted.
    let same =
        sends(&ana, &device.at("meta"), "application/json; charset=utf-8", Method::PATCH, r#"{"no":null}"#).await;
    assert_eq!(same.ok(), after);
    let found = async |query: &str| ana.get(&format!("/v2/devices?{query}")).await.names();
    assert_eq!(found("filter[meta.room][eq]=cellar").await, ["fridge"]);
    assert_eq!(found("searchText=left").await, [""; 0]);
    patches(&ana, &device, r#"{"latitude":46.9,"longitude":7.4,"room":"attic"}"#).await.ok();
    assert_eq!(found("filter[meta.room][eq]=attic").await, ["fridge"]);
    assert_eq!(ana.get("/v2/devices/locations").await.list_of("/latitude"), [json!(46.9)]);
    patches(&ana, &device, r#"{"latitude":null}"#).await.ok();
    assert_eq!(ana.get("/v2/devices/locations").await.list_of("/latitude"), [json!(null); 0]);
}

async fn labels_of_a_patch_keep_their_digits(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let first = r#"{"serial":9007199254740826,"factor":1.0,"deep":{"n":571124000000000571124}}"#;
    patches(&ana, &device, first).await.ok();
    let answer = patches(&ana, &device, r#"{"deep":{"m":1.50},"wide":12345678901234567890.10}"#).await.is(200);
    let expected = r#""meta":{"serial":9007199254740826,"factor":1.0,"deep":{"n":571124000000000571124,"m":1.50},"wide":12345678901234567890.10}"#;
    assert!(answer.text.contains(expected), "{}", answer.text);
    let bulk = format!(r#"[{{"deviceId":"{}","meta":{{"factor":1,"wide":null}}}}]"#, device.id);
    let answer = sends(&ana, BULK, MERGE_PATCH, Method::POST, &bulk).await.is(200);
    let expected = r#""meta":{"serial":9007199254740826,"factor":1,"deep":{"n":571124000000000571124,"m":1.50}}"#;
    assert!(answer.text.contains(expected), "{}", answer.text);
}

async fn patch_that_is_no_object_is_refused(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    patches(&ana, &device, r#"{"a":1}"#).await.ok();
    for body in ["", "null", "[]", "7", r#""text""#, "{", r#"{"a":1,"a":2}"#, r#"[{"op":"add","path":"/a","value":2}]"#]
    {
        assert_eq!(patches(&ana, &device, body).await.faults(), ["body"], "{body}");
    }
    for content_type in ["text/plain", "application/json-patch+json", "application/merge-patch"] {
        let refused = sends(&ana, &device.at("meta"), content_type, Method::PATCH, r#"{"a":2}"#).await;
        assert_eq!(refused.faults(), ["body"], "{content_type}");
    }
    assert_eq!(meta_of(&ana, &device).await, json!({"a": 1}));
    let refused = ana.get(&device.at("meta")).await.is(405);
    assert_eq!(refused.header("allow"), "PATCH");
}

async fn patch_of_labels_has_bounds(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let large = json!({"a": "x".repeat(60_000)});
    ana.patch(&device.at("meta"), large.clone()).await.ok();
    assert_eq!(ana.patch(&device.at("meta"), json!({"b": "x".repeat(6_000)})).await.faults(), ["meta"]);
    let many: serde_json::Map<_, _> = (0..1_001).map(|n| (format!("l{n}"), json!(n))).collect();
    assert_eq!(ana.patch(&device.at("meta"), json!(many)).await.faults(), ["meta"]);
    assert_eq!(meta_of(&ana, &device).await, large);
    // A removed label makes room for another in the same patch.
    ana.patch(&device.at("meta"), json!({"a": null, "b": "x".repeat(6_000)})).await.ok();
    let items = json!([item(&device.id, large), item(&device.id, json!({"b": 1})), item(&device.id, json!(many))]);
    let outcome = ana.post(BULK, items).await.ok();
    assert_eq!(
        messages(&outcome),
        ["[0].meta: must hold at most 65536 bytes", "[2].meta: must hold at most 1000 labels",]
    );
    assert_eq!(meta_of(&ana, &device).await, json!({"b": 1}));
}

async fn patch_of_labels_needs_reach_and_role(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let (tom, reader) = (ana.invites("tom", "technician").await, ana.invites("reader", "basicUser").await);
    let bob = app.stranger("bob").await;
    let (path, patch) = (device.at("meta"), json!({"a": 1}));
    tom.patch(&path, patch.clone()).await.ok();
    reader.patch(&path, patch.clone()).await.forbidden();
    reader.patch(&path, json!([])).await.forbidden();
    reader.post(BULK, json!([item(&device.id, patch.clone())])).await.forbidden();
    reader.post(BULK, json!("no list")).await.forbidden();
    bob.patch(&path, json!([])).await.not_found();
    bob.patch(&format!("/v2/devices/{NOBODY}/meta"), patch.clone()).await.not_found();
    ana.patch("/v2/devices/no-id/meta", patch.clone()).await.not_found();
    app.send(with_json(device.request(Method::PATCH, &path), &patch)).await.unauthenticated();
    app.send(with_json(device.request(Method::POST, BULK), &json!([]))).await.unauthenticated();
    ana.delete(&device.url()).await.no_content();
    ana.patch(&path, patch).await.not_found();
}

// Holds: POST /v2/devices/meta
async fn bulk_changes_labels_of_each_device_separately(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let (one, two) = (ana.creates_device("one").await, ana.creates_device("two").await);
    let hidden = app.stranger("bob").await.creates_device("hidden").await;
    let outcome = tom
        .post(
            BULK,
            json!([
                item(&two.id, json!({"room": "cellar"})),
                item("no identifier", json!({"room": "cellar"})),
                item(NOBODY, json!({})),
                item(&hidden.id, json!({"room": "cellar"})),
                item(&one.id, json!({"room": "attic", "old": 1})),
                item(&one.id, json!({"old": null, "new": {"a": 1}})),
                item(&one.id, json!({"new": {"b": 2}})),
            ]),
        )
        .await
        .ok();
    let expected = ["[1].deviceId: no such device", "[2].deviceId: no such device", "[3].deviceId: no such device"];
    assert_eq!(messages(&outcome), expected);
    let [first, second, third, fourth] = &outcome["data"].as_array().unwrap()[..] else { panic!("{outcome}") };
    assert_eq!(first, &ana.get(&two.url()).await.ok());
    assert_eq!(first["meta"], json!({"room": "cellar"}));
    assert_eq!(second["meta"], json!({"room": "attic", "new": {"a": 1, "b": 2}}));
    assert!(second == third && third == fourth);
    assert_eq!(tom.post(BULK, json!([])).await.ok(), json!({"data": [], "errors": []}));
    // More devices than one transaction takes.
    let items: Vec<Value> = (0..120).map(|n| item(&one.id, json!({format!("l{n}"): n, "last": n}))).collect();
    let outcome = tom.post(BULK, json!(items)).await.ok();
    assert_eq!(outcome["data"].as_array().unwrap().len(), 120);
    let meta = meta_of(&ana, &one).await;
    assert_eq!((&meta["last"], &meta["l0"], &meta["l119"]), (&json!(119), &json!(0), &json!(119)));
}

async fn malformed_bulk_of_labels_changes_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let body = json!([
        item(&device.id, json!({"a": 1})),
        {"deviceId": device.id},
        {"deviceId": 7, "meta": {}},
        "labels",
        item(&device.id, json!(null)),
        item(&device.id, json!([])),
    ]);
    assert_eq!(ana.post(BULK, body).await.faults(), ["[1].meta", "[2].deviceId", "[3]", "[4].meta", "[5].meta"]);
    assert_eq!(ana.post(BULK, json!({"items": []})).await.faults(), ["body"]);
    assert_eq!(ana.post(BULK, json!(vec![0; 10_001])).await.faults(), ["body"]);
    assert_eq!(ana.post_text(BULK, "[").await.faults(), ["body"]);
    assert_eq!(sends(&ana, BULK, "text/plain", Method::POST, "[]").await.faults(), ["body"]);
    assert_eq!(meta_of(&ana, &device).await, json!({}));
}

// Holds: PATCH /v2/devices/{id}/meta
async fn concurrent_writes_of_labels_are_all_kept(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(labelling()).await, "fridge").await;
    let (ana, device) = (&ana, &device);
    let label = |by: &str, n: usize| json!({format!("{by}{n}"): n});
    let by_patch = (0..20).map(|n| async move { drop(ana.patch(&device.at("meta"), label("patch", n)).await.ok()) });
    // As many concurrent bulks as a tenant may have.
    let by_bulk = (0..8).map(|n| async move {
        let outcome = ana.post(BULK, json!([item(&device.id, label("bulk", n))])).await.ok();
        assert_eq!(outcome["errors"], json!([]));
    });
    let by_design = (0..40).map(|n| async move {
        drop(device.posts("label", json!({"tag": format!("design{n}"), "value": n})).await.created());
    });
    tokio::join!(join_all(by_patch), join_all(by_bulk), join_all(by_design));
    let meta = meta_of(ana, device).await;
    let expected: serde_json::Map<_, _> = [("patch", 20), ("bulk", 8), ("design", 40)]
        .into_iter()
        .flat_map(|(by, count)| (0..count).map(move |n| (format!("{by}{n}"), json!(n))))
        .collect();
    assert_eq!(meta, json!(expected));
}

async fn label_of_a_user_wins_over_an_older_one_of_a_design(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(labelling()).await, "fridge").await;
    for round in 0..10 {
        device.posts("label", json!({"tag": "mode", "value": "design"})).await.created();
        device.posts("label", json!({"tag": "round", "value": round})).await.created();
        let after = ana.patch(&device.at("meta"), json!({"mode": "person"})).await.ok();
        assert_eq!(after["meta"], json!({"mode": "person", "round": round}));
        assert_eq!(meta_of(&ana, &device).await, after["meta"]);
    }
    device.posts("label", json!({"tag": "mode", "value": "design"})).await.created();
    assert_eq!(meta_of(&ana, &device).await["mode"], "design");
}
