//! Answers that are compressed, and those that are not.

use std::io::Read as _;

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::{Person, TestApp};

/// Sends a request whose client accepts these codings, and returns status, headers and body as received.
async fn sent(request: RequestBuilder, codings: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
    let response = request.header("accept-encoding", codings).send().await.unwrap();
    (response.status(), response.headers().clone(), response.bytes().await.unwrap().to_vec())
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

fn unpacked(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        "br" => brotli::Decompressor::new(bytes, 4_096).read_to_end(&mut out).unwrap(),
        _ => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
    };
    out
}

/// Returns a person with a device that has stored much data.
async fn with_much(app: &TestApp) -> (Person<'_>, String) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for number in 0..120 {
        device.posts("reading", json!({"n": number, "note": "as cold as it should be ".repeat(60)})).await.created();
    }
    let path = device.at("data/reading");
    (ana, path)
}

// Holds: c18.compression
#[tokio::test]
async fn answer_is_compressed_as_its_client_asks() {
    let app = TestApp::start().await;
    let (ana, readings) = with_much(&app).await;
    for (path, accept) in [
        (readings.clone(), "*/*"),
        (format!("{readings}?limit=5"), "*/*"),
        (readings.clone(), "text/csv"),
        (readings.clone(), "application/x-ndjson"),
        ("/v2/spec".to_owned(), "*/*"),
        ("/v2/docs".to_owned(), "*/*"),
    ] {
        let request = |method| ana.request(method, &path).header("accept", accept);
        let plain = request(Method::GET).send().await.unwrap();
        assert!(!plain.headers().contains_key("content-encoding"), "{path}");
        assert!(header(plain.headers(), "vary").contains(&"accept-encoding"), "{path}");
        let plain = plain.bytes().await.unwrap();
        for (codings, coding) in
            [("gzip, deflate, br", "br"), ("gzip;q=1.0, identity; q=0.5, *;q=0", "gzip"), ("*", "br")]
        {
            let (status, headers, bytes) = sent(request(Method::GET), codings).await;
            assert_eq!((status, header(&headers, "content-encoding")), (StatusCode::OK, vec![coding]), "{path}");
            assert!(header(&headers, "vary").contains(&"accept-encoding"), "{path}");
            assert!(bytes.len() < plain.len() / 2, "{path}: {} of {}", bytes.len(), plain.len());
            let unpacked = unpacked(coding, &bytes);
            assert!(unpacked == plain, "{path} {accept} {coding}");
            let (_, of_head, body) = sent(request(Method::HEAD), codings).await;
            assert_eq!((header(&of_head, "content-encoding"), body.len()), (vec![coding], 0), "{path}");
        }
        for codings in ["identity", "br;q=0, gzip;q=0", "identity, gzip;q=0.1", "deflate, zstd"] {
            let (_, headers, bytes) = sent(request(Method::GET), codings).await;
            assert!(!headers.contains_key("content-encoding"), "{path} {codings}");
            assert!(bytes == plain, "{path} {codings}");
        }
    }
    app.end().await;
}

// Holds: c18.compression
#[tokio::test]
async fn short_answer_and_stream_stay_plain() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    for path in ["/v2/about", "/v2/auth/user", "/v2/nothing"] {
        let (_, headers, _) = sent(ana.request(Method::GET, path), "br, gzip").await;
        assert!(!headers.contains_key("content-encoding"), "{path}");
    }
    let stream =
        ana.request(Method::GET, "/v2/events/stream").header("accept-encoding", "br, gzip").send().await.unwrap();
    assert!(!stream.headers().contains_key("content-encoding"));
    drop(stream);
    app.end().await;
}

// Holds: c18.compression
#[tokio::test]
async fn answer_with_a_secret_is_never_compressed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.project().await.to_owned();
    let name = "n".repeat(80);
    let device = || json!({"name": name, "projectUuid": project, "description": "d".repeat(200)});
    let bulk: Vec<Value> = (0..30).map(|_| device()).collect();
    let fridge = ana.creates_device("fridge").await;
    for (path, body) in [
        ("/v2/devices".to_owned(), device()),
        ("/v2/devices/bulk".to_owned(), json!(bulk)),
        (format!("{}/token", fridge.url()), json!({})),
        (format!("/v2/users/{}/apiKeys", ana.id), json!({"name": name})),
        (
            "/v2/auth/login".to_owned(),
            json!({"usernameOrEmail": "ana", "password": crate::support::app::password_of("ana")}),
        ),
    ] {
        let (status, headers, bytes) = sent(with_json(ana.request(Method::POST, &path), &body), "br, gzip").await;
        assert!(status.is_success() && serde_json::from_slice::<Value>(&bytes).is_ok(), "{path} {status}");
        assert!(!headers.contains_key("content-encoding") && !headers.contains_key("vary"), "{path}");
        assert!(path != "/v2/devices/bulk" || bytes.len() > 1_024);
    }
    app.end().await;
}

// Holds: c18.compression
#[tokio::test]
async fn tag_of_a_compressed_design_is_good_for_conditions() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(crate::support::designs::copied(90)).await;
    let place = format!("/v2/projects/{project}/specification");
    let request = |method: Method| ana.request(method, &place);
    let (_, plain, _) = sent(request(Method::GET), "identity").await;
    let (_, headers, design) = sent(request(Method::GET), "br").await;
    let (plain, tag) = (header(&plain, "etag")[0], header(&headers, "etag")[0]);
    assert_eq!(tag, format!("{}-br\"", plain.strip_suffix('"').unwrap()));
    for (known, codings) in [(tag, "br"), (plain, "identity"), (plain, "br")] {
        let (status, headers, body) = sent(request(Method::GET).header("if-none-match", known), codings).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!((header(&headers, "etag"), header(&headers, "vary")), (vec![known], vec!["accept-encoding"]));
    }
    let design: Value = serde_json::from_slice(&unpacked("br", &design)).unwrap();
    let put = |tag: &str| with_json(request(Method::PUT).header("if-match", tag), &design);
    assert_eq!(sent(put(tag), "br").await.0, StatusCode::OK);
    assert_eq!(sent(put(tag), "br").await.0, StatusCode::PRECONDITION_FAILED);
    app.end().await;
}
