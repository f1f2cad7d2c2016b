//! Paths into payloads and labels: dotted, and quoted for names with other characters.

use serde_json::{Value, json};

use crate::data::with_values;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(labels_with_odd_names_are_filtered_and_listed);

/// Names that a dotted path cannot have.
const ODD_NAMES: [&str; 9] = ["position.latitude", "a,b", "c d", "", "]", "a][eq", "\"q\"\\", "ü&%=+#", "0"];

/// Returns a path with all names in quotes, as in a query.
fn quoted(member: &str, names: &[&str]) -> String {
    let names = names.iter().map(|name| format!("[{}]", json!(name)));
    let path: String = std::iter::once(member.to_owned()).chain(names).collect();
    path.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn asks(ana: &Person<'_>, device: &Device<'_>, query: &str) -> Vec<Value> {
    ana.get(&device.at(&format!("data/reading?{query}"))).await.list_of("/payload/n")
}

// Holds: c6.paths
#[tokio::test]
async fn any_name_of_a_payload_is_filtered_sorted_and_listed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let of = |n: u64| {
        let names = ODD_NAMES.iter().zip(1..).map(|(name, place)| ((*name).to_owned(), json!(place * 10 + n)));
        let mut payload: serde_json::Map<_, _> = names.collect();
        payload.insert("n".to_owned(), json!(n));
        payload.insert("in.ner".to_owned(), json!({"x,y": n * 100, "plain": [n]}));
        payload.insert("position".to_owned(), json!({"latitude": "another"}));
        payload.insert("at.unix".to_owned(), json!(1_800_000_000 + n));
        Value::Object(payload)
    };
    let device = with_values(&ana, [2, 1, 3].map(of)).await;
    for (name, place) in ODD_NAMES.into_iter().zip(1..) {
        let path = quoted("payload", &[name]);
        assert_eq!(asks(&ana, &device, &format!("filter[{path}][eq]={}", place * 10 + 2)).await, [2], "{name}");
        assert_eq!(asks(&ana, &device, &format!("filter[{path}][gt]={}", place * 10 + 1)).await, [3, 2], "{name}");
        assert_eq!(asks(&ana, &device, &format!("sortBy=-{path},id")).await, [3, 2, 1], "{name}");
        let asked = device.at(&format!("data/reading/buckets?fields=payload.n,{path}&functions=sum"));
        let fields = &ana.get(&asked).await.ok()["data"][0]["fields"];
        let sum = fields[format!("payload[{}]", json!(name))]["sum"].as_f64();
        assert_eq!(sum, Some(f64::from(place * 30 + 6)), "{name}: {fields}");
    }
    let inner = quoted("payload", &["in.ner", "x,y"]);
    assert_eq!(asks(&ana, &device, &format!("filter[{inner}][gte]=200&sortBy={inner}")).await, [2, 3]);
    assert_eq!(asks(&ana, &device, "sortBy=payload[\"in.ner\"].plain.0").await, [1, 2, 3]);
    let columns =
        format!("columns=payload.n,{inner},payload[\"position.latitude\"],payload.position.latitude&sortBy=id");
    let csv = ana.get_as("text/csv", &device.at(&format!("data/reading?{columns}"))).await.is(200);
    assert_eq!(
        csv.text,
        "payload.n,\"payload[\"\"in.ner\"\"][\"\"x,y\"\"]\",\"payload[\"\"position.latitude\"\"]\",payload.position.latitude\r\n\
         2,200,12,another\r\n1,100,11,another\r\n3,300,13,another\r\n"
    );
    let by_time = "fields=payload.n&functions=sum&timeField=payload[\"at.unix\"]&every=1s";
    let buckets = ana.get(&device.at(&format!("data/reading/buckets?{by_time}"))).await.ok();
    assert_eq!(buckets["data"].as_array().unwrap().len(), 3, "{buckets}");
}

// Holds: c6.paths
#[tokio::test]
async fn malformed_path_is_refused_with_its_parameter() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [json!({"a.b": 1})]).await;
    for path in [
        "payload[\"a.b\"",
        "payload[\"a.b]",
        "payload['a.b']",
        "payload[0]",
        "payload[\"a.b\"]c",
        "payload.[\"a.b\"]",
        "payload[\"\\x\"]",
        "payload[\"\\ud800\"]",
    ] {
        let data = async |query: String| ana.get(&device.at(&format!("data/reading{query}"))).await.faults();
        assert_eq!(data(format!("?sortBy={path}")).await, ["query.sortBy"], "{path}");
        assert_eq!(data(format!("?filter[{path}][eq]=1")).await, [format!("query.filter[{path}][eq]")], "{path}");
        assert_eq!(data(format!("/buckets?fields={path}")).await, ["query.fields"], "{path}");
        assert_eq!(data(format!("/buckets?fields=payload&timeField={path}")).await, ["query.timeField"], "{path}");
        let csv = ana.get_as("text/csv", &device.at(&format!("data/reading?columns={path}"))).await;
        assert_eq!(csv.faults(), ["query.columns"], "{path}");
        let label = path.replacen("payload", "meta", 1);
        let devices = ana.get(&format!("/v2/devices?filter[{label}][eq]=1")).await;
        assert_eq!(devices.faults(), [format!("query.filter[{label}][eq]")], "{label}");
    }
}

// Holds: c6.paths
async fn labels_with_odd_names_are_filtered_and_listed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("cold").await;
    for (name, place) in [("one", 1), ("two", 2)] {
        let mut labels: serde_json::Map<_, _> =
            ODD_NAMES.iter().map(|name| ((*name).to_owned(), json!(format!("v{place}")))).collect();
        labels.insert("site.of".to_owned(), json!({"floor,no": place}));
        ana.creates_device_as(json!({"name": name, "projectUuid": project, "meta": labels})).await;
    }
    for name in ODD_NAMES {
        let path = quoted("meta", &[name]);
        let found = ana.get(&format!("/v2/devices?filter[{path}][eq]=v2")).await.names();
        assert_eq!(found, ["two"], "{name}");
        let summary = ana.get(&format!("/v2/devices/summary?filter[{path}][in]=v1,v3")).await.ok();
        assert_eq!(summary["total"], 1, "{name}");
    }
    let inner = quoted("meta", &["site.of", "floor,no"]);
    let csv = ana.get_as("text/csv", &format!("/v2/devices?columns=name,{inner}&filter[{inner}][gt]=1")).await.is(200);
    assert_eq!(csv.text, "name,\"meta[\"\"site.of\"\"][\"\"floor,no\"\"]\"\r\ntwo,2\r\n");
}
