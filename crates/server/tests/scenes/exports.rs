//! Whole series as CSV and as lines of JSON.

use reqwest::Method;
use serde_json::{Value, json};

use crate::data::with_values;
use crate::support::designs::copied;
use crate::support::{Device, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    a_series_is_exported_as_csv,
    a_series_is_exported_as_lines_of_json,
    an_export_is_refused_like_any_other_read,
);

async fn csv(ana: &Person<'_>, device: &Device<'_>, query: &str) -> String {
    let answer = ana.get_as("text/csv", &device.at(&format!("data/reading?{query}"))).await.is(200);
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8; header=present");
    assert_eq!(answer.header("content-disposition"), "attachment; filename=\"reading.csv\"");
    answer.text
}

// Holds: c6.csv, c7.export
async fn a_series_is_exported_as_csv(app: &TestApp) {
    let ana = app.developer("ana").await;
    let payloads = [
        json!({"temp": 1.5, "note": "a, \"b\""}),
        json!({"temp": -2, "note": "=1+1", "deep": {"x": [1]}}),
        json!("text"),
        json!({"temp": null}),
    ];
    let device = with_values(&ana, payloads).await;
    let usual = csv(&ana, &device, "sortBy=createdAt&limit=0&page=none").await;
    let lines: Vec<&str> = usual.split("\r\n").collect();
    assert_eq!((lines.len(), lines[0], lines[5]), (6, "createdAt,id,payload", ""));
    assert!(lines[1].starts_with("2027-01-15T08:00:00.000Z,"), "{usual}");
    assert!(lines[1].ends_with(r#","{""note"":""a, \""b\"""",""temp"":1.5}""#), "{usual}");
    assert!(lines[3].ends_with(",text"), "{usual}");
    let named = "columns=payload.temp,payload.note&columns=payload.deep";
    assert_eq!(
        csv(&ana, &device, &format!("{named}&sortBy=+createdAt")).await,
        "payload.temp,payload.note,payload.deep\r\n1.5,\"a, \"\"b\"\"\",\r\n-2,'=1+1,\"{\"\"x\"\":[1]}\"\r\n,,\r\nnull,,\r\n"
    );
    assert_eq!(csv(&ana, &device, "columns=payload.temp").await, "payload.temp\r\nnull\r\n\"\"\r\n-2\r\n1.5\r\n");
    let filtered = "columns=payload.temp&filter[payload.temp][lt]=100&sortBy=-id";
    assert_eq!(csv(&ana, &device, filtered).await, "payload.temp\r\n-2\r\n1.5\r\n");
    let range = "columns=payload.temp&from=2027-01-15T08:01:00Z&to=2027-01-15T08:02:00Z";
    assert_eq!(csv(&ana, &device, range).await, "payload.temp\r\n-2\r\n");
    assert_eq!(csv(&ana, &device, "columns=id&from=2030-01-01T00:00:00Z").await, "id\r\n");
    let bad = ana.get_as("text/csv", &device.at("data/reading?columns=temp,payload.&sortBy=size")).await;
    assert_eq!(bad.faults(), ["query.columns", "query.columns", "query.sortBy"]);
    let sorted = ana.get_as("text/csv", &device.at("data/reading?sortBy=payload.temp")).await;
    assert_eq!(sorted.faults(), ["query.sortBy"]);
}

// Holds: c6.csv
async fn a_series_is_exported_as_lines_of_json(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for payload in ["{\"big\": 12345678901234567890,\r\n \"dec\": 1.50}", "[\n1]", "\"x\""] {
        device.posts_text("reading", payload).await.created();
        app.wait_seconds(1);
    }
    let path = device.at("data/reading");
    let answer = ana.get_as("application/x-ndjson, */*;q=0.1", &format!("{path}?limit=1")).await.is(200);
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let page = ana.get(&path).await.ok();
    assert_eq!(Value::Array(lines), page["data"]);
    assert!(answer.text.contains("\"payload\":{\"big\": 12345678901234567890,   \"dec\": 1.50}"), "{}", answer.text);
    // Any other accepted type leads to JSON.
    for accept in ["*/*", "text/html", "application/json, text/csv;q=0.9", "text/csv;q=0", "rubbish"] {
        assert_eq!(ana.get_as(accept, &path).await.ok(), page);
    }
    // HEAD has no body, and a declared element has no values.
    let head = ana.request(Method::HEAD, &path).header("accept", "text/csv");
    assert_eq!(app.send(head).await.is(200).text, "");
    let project = ana.designs(json!({"in": {"type": "deviceEvent"}, "odd/../name": {"type": "storage"}})).await;
    let empty = ana.creates_device_of(&project, "empty").await;
    let answer = ana.get_as("application/x-ndjson", &empty.at("data/odd%2F..%2Fname")).await.is(200);
    assert_eq!(answer.text, "");
    assert_eq!(answer.header("content-disposition"), "attachment; filename=\"odd_.._name.ndjson\"");
}

async fn an_export_is_refused_like_any_other_read(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [json!(1)]).await;
    ana.get_as("text/csv", &device.at("data/nothing")).await.not_found();
    ana.get_as("text/csv", &format!("/v2/devices/{NOBODY}/data/reading")).await.not_found();
    app.stranger("bob").await.get_as("text/csv", &device.at("data/reading")).await.not_found();
}

// Holds: c7.export
#[tokio::test]
async fn a_long_series_is_streamed_whole() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(copied(90)).await;
    let device = ana.creates_device_of(&project, "logger").await;
    let padding = "x".repeat(500);
    for number in 0..120 {
        device.posts("in", json!({"n": number, "padding": padding})).await.created();
    }
    let answer = ana.get_as("text/csv", &device.at("data/log?columns=payload.n&sortBy=createdAt")).await.is(200);
    let numbers: Vec<u32> = answer.text.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..120).flat_map(|number| [number; 90]).collect::<Vec<_>>());
    let lines = ana.get_as("application/x-ndjson", &device.at("data/log")).await.is(200);
    assert_eq!(lines.text.lines().count(), 120 * 90);
    assert!(lines.text.starts_with("{\"id\":") && lines.text.ends_with("}\n"));
}

#[tokio::test]
async fn export_of_a_deleted_series_breaks_off() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("logger").await;
    let large = json!("x".repeat(900_000));
    for _ in 0..40 {
        device.posts("log", large.clone()).await.created();
    }
    let request = ana.request(Method::GET, &device.at("data/log")).header("accept", "application/x-ndjson");
    let mut response = request.send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    ana.delete(&device.at("storage/log")).await.no_content();
    let mut read = 0;
    let broken = loop {
        match response.chunk().await {
            Ok(Some(piece)) => read += piece.len(),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken, "a part of {read} bytes passed for the whole");
}
