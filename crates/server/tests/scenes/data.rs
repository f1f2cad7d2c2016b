//! Stored values, last values and storage elements.

use serde_json::{Value, json};

use crate::support::designs::{to, to_with};
use crate::support::person::text;
use crate::support::{Device, Person, TestApp};

/// Returns a device that has stored each of these payloads, a minute apart.
pub async fn with_values<'a>(ana: &Person<'a>, payloads: impl IntoIterator<Item = Value>) -> Device<'a> {
    let device = ana.creates_device("fridge").await;
    for payload in payloads {
        device.posts("reading", payload).await.created();
        ana.app.wait_seconds(60);
    }
    device
}

async fn payloads(ana: &Person<'_>, device: &Device<'_>, query: &str) -> Vec<Value> {
    ana.get(&device.at(&format!("data/reading?{query}"))).await.list_of("/payload")
}

// Holds: GET /v2/devices/{id}/data/{elementName}, rule.data.order, c6.createdAt, c6.order
#[tokio::test]
async fn the_newest_value_comes_first() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [1, 2, 3].map(Value::from)).await;
    assert_eq!(payloads(&ana, &device, "").await, [3, 2, 1]);
    assert_eq!(payloads(&ana, &device, "sortBy=createdAt").await, [1, 2, 3]);
    assert_eq!(payloads(&ana, &device, "sortBy=-id").await, [3, 2, 1]);
    assert_eq!(payloads(&ana, &device, "sortBy=payload").await, [1, 2, 3]);
    assert_eq!(payloads(&ana, &device, "limit=2&page=2").await, [1]);
    let past = ana.get(&device.at("data/reading?limit=2&page=3")).await.ok();
    assert_eq!((&past["data"], &past["meta"]["totalDocs"]), (&json!([]), &json!(3)));
}

// Holds: query.from, query.to
#[tokio::test]
async fn a_range_begins_inclusive_and_ends_exclusive() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [0, 1, 2, 3].map(Value::from)).await;
    for (query, found) in [
        ("from=2027-01-15T08:01:00Z", vec![3, 2, 1]),
        ("to=2027-01-15T08:01:00Z", vec![0]),
        ("from=2027-01-15T08:01:00Z&to=2027-01-15T08:03:00.000Z", vec![2, 1]),
        ("from=2027-01-15T09:01:00%2B01:00&to=2027-01-15T09:02:00+01:00", vec![1]),
        ("from=2027-01-15T08:01:00.001Z", vec![3, 2]),
        ("from=2027-01-15T08:02:00Z&to=2027-01-15T08:02:00Z", vec![]),
        ("from=2028-01-01&to=2026-01-01", vec![]),
        ("from=0000-01-01&to=9999-12-31", vec![3, 2, 1, 0]),
        ("filter[createdAt][gt]=2027-01-15T08:01:00Z", vec![3, 2]),
        ("filter[createdAt][eq]=2027-01-15T08:01:00Z", vec![1]),
    ] {
        assert_eq!(payloads(&ana, &device, query).await, found, "{query}");
    }
}

// Holds: rule.data.filter, rule.data.operators
#[tokio::test]
async fn filter_supports_every_operator() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(
        &ana,
        [
            json!({"n": 1, "t": 5, "s": "a"}),
            json!({"n": 2, "t": 5.0, "s": "b", "deep": {"er": true}}),
            json!({"n": 3, "t": "5", "s": null}),
            json!({"n": 4}),
        ],
    )
    .await;
    for (query, found) in [
        ("filter[payload.t][eq]=5", vec![2, 1]),
        ("filter[payload.t][eq]=5.00", vec![2, 1]),
        ("filter[payload.t][ne]=5", vec![4, 3]),
        ("filter[payload.n][lt]=2", vec![1]),
        ("filter[payload.n][lte]=2", vec![2, 1]),
        ("filter[payload.n][gt]=2", vec![4, 3]),
        ("filter[payload.n][gte]=2&filter[payload.n][lt]=4", vec![3, 2]),
        ("filter[payload.n][in]=1,4,x", vec![4, 1]),
        ("filter[payload.n][nin]=1,4", vec![3, 2]),
        ("filter[payload.s][eq]=a", vec![1]),
        ("filter[payload.s][eq]=null", vec![3]),
        ("filter[payload.s][ne]=a", vec![4, 3, 2]),
        ("filter[payload.s][gte]=a", vec![2, 1]),
        ("filter[payload.s][lt]=7", vec![]),
        ("filter[payload.deep.er][eq]=true", vec![2]),
        ("filter[payload.deep.er][nin]=true", vec![4, 3, 1]),
        ("filter[payload.missing][lt]=1", vec![]),
        ("filter[payload.missing][ne]=1&filter[payload.n][eq]=4", vec![4]),
        ("filter%5Bpayload.n%5D%5Beq%5D=3", vec![3]),
    ] {
        let answer = ana.get(&device.at(&format!("data/reading?{query}"))).await.ok();
        let numbers: Vec<i64> =
            answer["data"].as_array().unwrap().iter().map(|value| value["payload"]["n"].as_i64().unwrap()).collect();
        assert_eq!(numbers, found, "{query}");
        assert_eq!(answer["meta"]["totalDocs"], found.len(), "{query}");
    }
    // The total is that of the whole list, whatever the page.
    let page = ana.get(&device.at("data/reading?filter[payload.n][gt]=1&limit=1&page=2")).await.ok();
    assert_eq!((&page["meta"]["totalDocs"], &page["data"][0]["payload"]["n"]), (&json!(3), &json!(3)));
    let id = text(&page["data"][0], "id");
    assert_eq!(ana.get(&device.at(&format!("data/reading?filter[id][eq]={id}"))).await.list_of("/payload/n"), [3]);
}

// Holds: rule.data.sortBy, c6.sortBy
#[tokio::test]
async fn payload_path_sorts_by_type_and_missing_last() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let keys = [json!("b"), json!(true), json!(10), json!([1]), json!(9.5), json!("a"), json!(null)];
    let mut stored: Vec<Value> = keys.iter().map(|key| json!({"k": key})).collect();
    stored.push(json!({"other": 1}));
    let device = with_values(&ana, stored).await;
    let sorted = async |query: &str| ana.get(&device.at(&format!("data/reading?{query}"))).await.list_of("/payload/k");
    let up = sorted("sortBy=payload.k").await;
    assert_eq!(up[..5], [json!(9.5), json!(10), json!("a"), json!("b"), json!(true)]);
    assert_eq!(up[7], json!(null));
    let down = ana.get(&device.at("data/reading?sortBy=-payload.k")).await.list_of("/payload");
    assert_eq!(down[7], json!({"other": 1}), "what is missing is last in either direction");
    assert_eq!(
        down[2..7].iter().map(|p| p["k"].clone()).collect::<Vec<_>>(),
        [json!(true), json!("b"), json!("a"), json!(10), json!(9.5)]
    );
    let mut paged = Vec::new();
    for page in 1..=4 {
        paged.extend(sorted(&format!("sortBy=payload.k&limit=2&page={page}")).await);
    }
    assert_eq!(paged, up);
}

// Holds: rule.data.sortBy
#[tokio::test]
async fn further_sort_keys_order_equal_values() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let stored = [("b", 1, "x"), ("a", 2, "x"), ("b", 2, "y"), ("a", 1, "z")];
    let stored = stored.map(|(room, floor, note)| json!({"at": {"room": room, "floor": floor}, "note": note}));
    let device = with_values(&ana, stored).await;
    for (order, found) in [
        ("sortBy=payload.at.room,payload.at.floor", ["a1", "a2", "b1", "b2"]),
        ("sortBy=payload.at.room&sortBy=-payload.at.floor", ["a2", "a1", "b2", "b1"]),
        ("sortBy=-payload.at.room,+payload.at.floor", ["b1", "b2", "a1", "a2"]),
        ("sortBy=-payload.note,payload.at.room", ["a1", "b2", "a2", "b1"]),
        ("sortBy=payload.at.floor,-createdAt", ["a1", "b1", "b2", "a2"]),
        ("sortBy=payload.at.floor,createdAt", ["b1", "a1", "a2", "b2"]),
    ] {
        let places = ana.get(&device.at(&format!("data/reading?{order}"))).await.list_of("/payload/at");
        let places: Vec<_> = places.iter().map(|at| format!("{}{}", text(at, "room"), at["floor"])).collect();
        assert_eq!(places, found, "{order}");
    }
}

// Holds: last.updatedAt, last.values, GET /v2/devices/{id}/last/{elementName}, rule.last.merge, rule.last.objects,
// rule.last.others, c6.last
#[tokio::test]
async fn last_values_merge_the_newest_of_every_key() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device =
        with_values(&ana, [json!({"a": 1, "b": {"x": 1, "y": 1}}), json!({"b": {"x": 2}}), json!({"c": null})]).await;
    let last = ana.get(&device.at("last/reading")).await.ok();
    assert_eq!(last["values"], json!({"a": 1, "b": {"x": 2}, "c": null}));
    assert_eq!(last["updatedAt"], "2027-01-15T08:02:00.000Z");
    for other in [json!(5), json!("text"), json!([1, {"a": 2}]), json!(false)] {
        device.posts("reading", other.clone()).await.created();
        assert_eq!(ana.get(&device.at("last/reading")).await.ok()["values"], other);
    }
    // Every key that was received so far is still present.
    device.posts("reading", json!({"d": 4, "a": 5})).await.created();
    let all = json!({"a": 5, "b": {"x": 2}, "c": null, "d": 4});
    assert_eq!(ana.get(&device.at("last/reading")).await.ok()["values"], all);
    ana.get(&device.at("last/unheard")).await.not_found();
}

// Holds: event.payload, value.payload
#[tokio::test]
async fn numbers_come_back_as_they_were_sent() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("meter").await;
    let payload = r#"{"kwh":9007199254740993,"max":18446744073709551615,"min":-9223372036854775808,"pi":3.14159265358979323846264338327950288,"e":1E+2,"z":1.50,"o":-0.0}"#;
    device.posts_text("reading", payload).await.created();
    for place in ["data/reading", "last/reading", "events"] {
        let answer = ana.get(&device.at(place)).await.is(200);
        assert!(answer.text.contains(payload), "{place}: {}", answer.text);
    }
    for (query, hits) in [
        ("filter[payload.kwh][eq]=9007199254740993", 1),
        ("filter[payload.kwh][eq]=9007199254740992", 0),
        ("filter[payload.max][gt]=18446744073709551614", 1),
        ("filter[payload.pi][eq]=3.14159265358979323846264338327950288", 1),
        ("filter[payload.e][eq]=100", 1),
        ("filter[payload.o][eq]=0", 1),
    ] {
        assert_eq!(payloads(&ana, &device, query).await.len(), hits, "{query}");
    }
}

// Holds: page.storage, storage.members, GET /v2/devices/{id}/storage, DELETE /v2/devices/{id}/storage,
// GET /v2/devices/{id}/storage/{elementName}, DELETE /v2/devices/{id}/storage/{elementName}
#[tokio::test]
async fn storage_elements_are_listed_with_their_bytes_and_deleted() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let empty = ana.get(&device.at("storage")).await.ok();
    assert_eq!((&empty["bytesStored"], &empty["storageElements"]), (&json!(0), &json!([])));
    device.posts("b", json!("1234")).await.created();
    app.wait_seconds(60);
    device.posts("b", json!("1234")).await.created();
    device.posts("a", json!(12345678)).await.created();
    let list = ana.get(&device.at("storage")).await.ok();
    let expected = json!([
        {"name": "a", "deviceId": device.id, "createdAt": "2027-01-15T08:01:00.000Z", "updatedAt": "2027-01-15T08:01:00.000Z", "fields": {}},
        {"name": "b", "deviceId": device.id, "createdAt": "2027-01-15T08:00:00.000Z", "updatedAt": "2027-01-15T08:01:00.000Z", "fields": {}},
    ]);
    assert_eq!((&list["bytesStored"], &list["storageElements"]), (&json!(20), &expected));
    assert_eq!(list["meta"]["totalDocs"], 2);
    let page = ana.get(&device.at("storage?limit=1&page=2")).await.ok();
    assert_eq!((&page["storageElements"][0], &page["bytesStored"]), (&expected[1], &json!(20)));
    let turned = ana.get(&device.at("storage?sortBy=-name&limit=1")).await.ok();
    assert_eq!(turned["storageElements"], json!([expected[1]]));
    assert_eq!(ana.get(&device.at("storage?sortBy=+name")).await.ok(), list);
    assert_eq!(ana.get(&device.at("storage?sortBy=size")).await.faults(), ["query.sortBy"]);
    assert_eq!(ana.get(&device.at("storage/b")).await.ok(), expected[1]);
    ana.get(&device.at("storage/unheard")).await.not_found();

    ana.delete(&device.at("storage/b")).await.no_content();
    for gone in ["storage/b", "data/b", "last/b"] {
        ana.get(&device.at(gone)).await.not_found();
    }
    ana.delete(&device.at("storage/b")).await.not_found();
    assert_eq!(ana.get(&device.at("storage")).await.ok()["bytesStored"], 8);
    // Raw history is separate.
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 3);
    device.posts("b", json!("new")).await.created();
    assert_eq!(ana.get(&device.at("data/b")).await.list_of("/payload"), ["new"]);
    ana.delete(&device.at("storage")).await.no_content();
    assert_eq!(ana.get(&device.at("storage")).await.ok()["bytesStored"], 0);
    ana.get(&device.at("data/a")).await.not_found();
    ana.delete(&device.at("storage")).await.no_content();
}

// Holds: storage.origin, c6.exists
#[tokio::test]
async fn empty_storage_element_is_listed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
                to("positive", "evaluate"), to_with("names", "store", json!({"value": "device.name"})),
            ]}},
            "positive": {"type": "condition", "properties": {"expression": "payload > 0"},
                "triggers": {"true": [to("values", "store")]}},
            "values": {"type": "storage", "triggers": {"stored": [to_with("twice", "store", json!({"value": "payload * 2"}))]}},
            "twice": {"type": "storage"},
            "names": {"type": "storage"},
        }))
        .await;
    let device = ana.creates_device_of(&project, "fridge").await;
    assert_eq!(ana.get(&device.at("data/values")).await.ok()["meta"]["totalDocs"], 0);
    assert_eq!(ana.get(&device.at("last/values")).await.ok()["values"], json!({}));
    assert_eq!(ana.get(&device.at("last/values")).await.ok()["updatedAt"], json!(null));
    assert_eq!(ana.get(&device.at("storage")).await.ok()["meta"]["totalDocs"], 3);
    ana.get(&device.at("data/reading")).await.not_found();
    device.posts("reading", json!(-1)).await.created();
    device.posts("reading", json!(21)).await.created();
    assert_eq!(ana.get(&device.at("data/values")).await.list_of("/payload"), [21]);
    assert_eq!(ana.get(&device.at("data/twice")).await.list_of("/payload"), [42]);
    assert_eq!(ana.get(&device.at("data/names")).await.list_of("/payload"), ["fridge", "fridge"]);
    // No other operation creates one.
    ana.post(&device.at("storage"), json!({"name": "other"})).await.is(405);
    ana.put(&device.at("storage/other"), json!({"name": "other"})).await.is(405);
    ana.delete(&device.at("storage/values")).await.no_content();
    assert_eq!(ana.get(&device.at("data/values")).await.ok()["meta"]["totalDocs"], 0, "declared, and empty again");
    ana.delete(&device.at("storage/values")).await.no_content();
}
