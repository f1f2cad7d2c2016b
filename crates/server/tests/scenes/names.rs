//! Element names that are not valid text, or contain U+0000: they are refused, and the answer names the field.

use reqwest::Method;
use serde_json::json;

use crate::support::app::with_json;
use crate::support::socket::Socket;
use crate::support::{NOBODY, TestApp};

/// Texts that are not names: invalid UTF-8, and U+0000.
const ODD: [&str; 6] = ["%ff", "a%C3", "%ED%A0%80", "%00", "a%00b", "%C0%80"];

// Holds: c1.names
#[tokio::test]
async fn element_name_that_is_not_utf8_is_refused() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("%EF%BF%BD%20%C3%A9", json!(1)).await.created();
    for odd in ODD {
        let field = ["query.elementName"];
        assert_eq!(device.posts(odd, json!(1)).await.faults(), field, "{odd}");
        assert_eq!(ana.post(&device.door(odd), json!(1)).await.faults(), field, "{odd}");
        assert_eq!(device.posts(odd, json!(null)).await.faults(), ["body", field[0]], "{odd}");
        let cloud = format!("{}&elementName={odd}", device.queue());
        assert_eq!(ana.post(&cloud, json!(1)).await.faults(), field, "{odd}");
        assert_eq!(ana.get(&cloud).await.faults(), field, "{odd}");
        let next = format!("/v2/events/cloud/next?elementName={odd}&peek=2");
        assert_eq!(device.get(&next).await.faults(), [field[0], "query.peek"], "{odd}");
        let field = ["path.elementName"];
        for part in ["data", "last", "storage"] {
            assert_eq!(ana.get(&device.at(&format!("{part}/{odd}"))).await.faults(), field, "{part} {odd}");
            // The resource and its visibility are checked first.
            ana.get(&format!("/v2/devices/{NOBODY}/{part}/{odd}")).await.not_found();
            app.get(&device.at(&format!("{part}/{odd}"))).await.unauthenticated();
        }
        let both = ana.get(&device.at(&format!("data/{odd}?limit=0"))).await.faults();
        assert_eq!(both, [field[0], "query.limit"], "{odd}");
        assert_eq!(ana.delete(&device.at(&format!("storage/{odd}"))).await.faults(), field, "{odd}");
        ana.get(&device.at(&format!("settings/{odd}"))).await.not_found();
    }
    assert_eq!(ana.get(&device.at("events")).await.list_of("/elementName"), ["\u{fffd} \u{e9}"]);
}

#[tokio::test]
async fn webhook_parameter_that_is_not_utf8_is_refused() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (project, key) = (ana.project().await.to_owned(), ana.makes_api_key("hook").await);
    let hook = |query: &str| {
        let path = format!("/v2/events/integrations?projectUuid={project}&{query}");
        with_json(app.request(Method::POST, &path).header("api_auth_token", &key), &json!({"id": "a"}))
    };
    for odd in ODD {
        for (query, field) in [
            (format!("deviceTag={odd}&deviceTagValue=x"), "deviceTag"),
            (format!("deviceTag=serial&deviceTagValue={odd}"), "deviceTagValue"),
            (format!("deviceTag=serial&deviceTagValueRef={odd}"), "deviceTagValueRef"),
            (format!("deviceTag=serial&deviceTagValue=x&eventsRef={odd}"), "eventsRef"),
        ] {
            let faults = app.send(hook(&query)).await.faults();
            assert_eq!(faults[0], format!("query.{field}"), "{query}: {faults:?}");
        }
    }
    let in_header = hook("deviceTag=serial").header("deviceTagValue", [0xff].as_slice());
    assert_eq!(app.send(in_header).await.faults(), ["header.deviceTagValue"]);
    assert_eq!(ana.get("/v2/devices").await.ok()["meta"]["totalDocs"], 0);
}

// Holds: c1.names
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameter_of_raw_bytes_is_named() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let post = |name: &[u8]| {
        let head = format!(
            "&x=1 HTTP/1.1\r\nhost: isobar\r\ncloud: {}\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1",
            device.token
        );
        [b"POST /v2/events/device?elementName=", name, head.as_bytes()].concat()
    };
    for odd in [&b"\xff"[..], b"a\xc3", b"\0", b"a\0b"] {
        let mut socket = Socket::to(&app);
        socket.sends(post(odd));
        let heard = socket.hears_all();
        assert!(heard.starts_with("HTTP/1.1 400"), "{odd:?}: {heard}");
        assert!(heard.contains(r#""errors":[{"field":"query.elementName","message":"#), "{odd:?}: {heard}");
    }
    // Raw bytes of UTF-8 are unusual in a request, but a valid name.
    let mut socket = Socket::to(&app);
    socket.sends(post("\u{e9}".as_bytes()));
    assert!(socket.hears_one().starts_with("HTTP/1.1 201"));
    assert_eq!(ana.get(&device.at("events")).await.list_of("/elementName"), ["\u{e9}"]);
}
