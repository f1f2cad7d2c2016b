//! Tests that invalid input is refused with every field named, and that nothing is written.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::app::{new_user, with_json};
use crate::support::person::text;
use crate::support::{Device, NOBODY, Person, TestApp};

/// Checks that nothing was stored, recorded or created.
async fn nothing_came_of_it(ana: &Person<'_>, device: &Device<'_>) {
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 0);
    assert_eq!(ana.get(&device.at("storage")).await.ok()["meta"]["totalDocs"], 0);
    assert_eq!(ana.get("/v2/devices").await.ok()["meta"]["totalDocs"], 1);
}

// Holds: error.message, error.errors, device.name, device.projectUuid, device.versionUuid, device.protocol,
// device.protocols, device.meta, device.description, device.streetAddress, organization.name, specification.name,
// status.400, c1.fields
#[tokio::test]
async fn all_failing_fields_are_named_at_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    assert_eq!(ana.post("/v2/devices", json!({})).await.faults(), ["name", "projectUuid"]);
    let wrong = json!({
        "name": 7,
        "projectUuid": "short",
        "versionUuid": "x".repeat(37),
        "protocol": "x".repeat(21),
        "protocols": ["http", 5, "y".repeat(129)],
        "meta": [],
        "description": "x".repeat(201),
        "streetAddress": {"city": 1, "postalCode": 1.5, "country": []},
        "organizationId": {},
    });
    let all = [
        "description",
        "meta",
        "name",
        "organizationId",
        "projectUuid",
        "protocol",
        "protocols[1]",
        "protocols[2]",
        "streetAddress.city",
        "streetAddress.country",
        "streetAddress.postalCode",
        "versionUuid",
    ];
    assert_eq!(ana.post("/v2/devices", wrong.clone()).await.faults(), all);
    assert_eq!(ana.put(&device.url(), wrong).await.faults(), all);
    let wrong =
        json!({"name": "", "parentId": "up", "description": 1, "childrenInheritDashboard": 1, "deviceTable": 1});
    let all = ["childrenInheritDashboard", "description", "deviceTable", "name", "parentId"];
    assert_eq!(ana.post("/v2/organizations", wrong).await.faults(), all);
    let wrong = json!({"name": null, "organizationId": 5});
    assert_eq!(ana.post("/v2/projects", wrong).await.faults(), ["name", "organizationId"]);
    let wrong = json!({"createVersion": "x".repeat(17), "description": "x".repeat(2001), "meta": 1, "planes": []});
    let place = format!("/v2/projects/{}/specification", ana.project().await);
    assert_eq!(ana.put(&place, wrong).await.faults(), ["createVersion", "description", "meta", "name", "planes"]);
    nothing_came_of_it(&ana, &device).await;
}

// Holds: c7.idempotency
#[tokio::test]
async fn values_at_their_limits_are_accepted() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.project().await.to_owned();
    // Characters are counted, not bytes.
    let device = ana
        .creates_device_as(json!({
            "name": "é".repeat(80), "projectUuid": project, "description": "ü".repeat(200),
            "versionUuid": "x".repeat(36), "protocol": "p".repeat(20),
        }))
        .await;
    assert_eq!(ana.get(&device.url()).await.ok()["name"], "é".repeat(80));
    let long = json!({"name": "é".repeat(81), "projectUuid": project});
    assert_eq!(ana.post("/v2/devices", long).await.faults(), ["name"]);
    device.posts(&"x".repeat(128), json!(1)).await.created();
    assert_eq!(device.posts(&"x".repeat(129), json!(1)).await.faults(), ["query.elementName"]);
    device.posts_once(&"k".repeat(64), "e", json!(1)).await.created();
    assert_eq!(device.posts_once(&"k".repeat(65), "e", json!(1)).await.faults().len(), 1);
}

// Holds: limit.deviceProject, c1.400
#[tokio::test]
async fn resource_named_in_a_body_must_be_visible() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let device = ana.creates_device("fridge").await;
    let project = ana.project().await;
    for (organization, fault) in [(NOBODY, "organizationId"), (bob.organization.as_str(), "organizationId")] {
        let body = json!({"name": "x", "projectUuid": project, "organizationId": organization});
        assert_eq!(ana.post("/v2/devices", body.clone()).await.faults(), [fault]);
        assert_eq!(ana.put(&device.url(), body).await.faults(), [fault]);
        let body = json!({"name": "x", "organizationId": organization});
        assert_eq!(ana.post("/v2/projects", body).await.faults(), [fault]);
        assert_eq!(
            ana.post("/v2/organizations", json!({"name": "x", "parentId": organization})).await.faults(),
            ["parentId"]
        );
    }
    for unknown in [NOBODY, bob.project().await] {
        let body = json!({"name": "x", "projectUuid": unknown});
        assert_eq!(ana.post("/v2/devices", body.clone()).await.faults(), ["projectUuid"]);
        assert_eq!(ana.put(&device.url(), body).await.faults(), ["projectUuid"]);
        let both = json!({"name": "x", "projectUuid": unknown, "organizationId": NOBODY});
        assert_eq!(ana.post("/v2/devices", both.clone()).await.faults(), ["organizationId", "projectUuid"]);
        assert_eq!(ana.put(&device.url(), both).await.faults(), ["organizationId", "projectUuid"]);
    }
    nothing_came_of_it(&ana, &device).await;
    // A role that is too low is refused before resources named in the body.
    let basic = ana.invites("basic", "basicUser").await;
    let mut user = new_user("x", "basicUser");
    user["organizationId"] = json!(NOBODY);
    basic.post("/v2/users", user).await.forbidden();
    for place in ["/v2/devices", "/v2/projects", "/v2/organizations"] {
        let body = json!({"name": "x", "projectUuid": NOBODY, "organizationId": NOBODY, "parentId": NOBODY});
        basic.post(place, body).await.forbidden();
    }
}

#[tokio::test]
async fn malformed_json_is_refused_by_every_operation() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let huge = format!("1{}", "0".repeat(400));
    let bodies: [&[u8]; 18] = [
        b"",
        b"{",
        b"{\"name\":\"a\",}",
        b"{'name':'a'}",
        b"{\"name\":\"a\"} x",
        b"{\"a\":1,\"a\":2}",
        b"{\"a\":{\"\\u0061\":1,\"a\":2}}",
        b"NaN",
        b"-Infinity",
        b"01",
        b"1e",
        b"\"\xff\xfe\"",
        b"\"\\ud800\"",
        b"\"tab\tinside\"",
        b"nul",
        b"{\"name\":1e400}",
        huge.as_bytes(),
        deep.as_bytes(),
    ];
    let places =
        ["/v2/devices", "/v2/organizations", "/v2/projects", "/v2/users", "/v2/auth/login", "/v2/auth/register"];
    for body in bodies {
        assert_eq!(device.posts_text("reading", body.to_vec()).await.faults(), ["body"], "{}", body.escape_ascii());
        for place in places {
            assert_eq!(ana.post_text(place, body.to_vec()).await.faults(), ["body"], "{place} {}", body.escape_ascii());
        }
    }
    for (body, message) in [
        (r#"{"a":1e400}"#, "the number 1e400 is beyond the range of a double at byte 5"),
        (r#"["\ud800"]"#, r"\\ud800 is half of a surrogate pair at byte 2"),
    ] {
        let refused = device.posts_text("reading", body.as_bytes().to_vec()).await.is(400);
        assert!(refused.text.contains(message), "{refused:?}");
    }
    for other in [json!([]), json!("text"), json!(1), json!(true)] {
        for place in places {
            assert_eq!(ana.post(place, other.clone()).await.faults(), ["body"], "{place} {other}");
        }
    }
    nothing_came_of_it(&ana, &device).await;
}

// Holds: event.payload, value.payload, rule.events.binary
#[tokio::test]
async fn unusual_json_is_accepted_unchanged() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let (deep, long) = (format!("{}{}", "[".repeat(64), "]".repeat(64)), format!("{}.5", "9".repeat(300)));
    for payload in [
        "0",
        "-0",
        "false",
        "\"\"",
        "[]",
        "{}",
        "{\"\":null}",
        "1E-400",
        &long,
        &deep,
        "\"\\u0000 \\ud83d\\ude00 é\"",
        "\"null\"",
    ] {
        let made = device.posts_text("odd", payload.to_owned()).await.created();
        let event = format!("events/{}", text(&made, "id"));
        for place in ["data/odd?limit=1", "events?limit=1", &event] {
            let newest = ana.get(&device.at(place)).await.is(200);
            let told = ["}", ",\"receivedAt\""].map(|end| format!("\"payload\":{payload}{end}"));
            assert!(told.iter().any(|told| newest.text.contains(told)), "{payload} became {}", newest.text);
        }
        // The device receives it unchanged too.
        let request = app.queueing(&device.id, "odd").await;
        app.send(request.header("content-type", "application/json").body(payload.to_owned())).await.created();
        assert_eq!(device.takes().await.is(200).text, payload);
    }
    // White space around a payload does not belong to it.
    device.posts_text("spaced", " \r\n{ \"a\" : 1 }\t\n").await.created();
    assert_eq!(ana.get(&device.at("last/spaced")).await.ok()["values"], json!({"a": 1}));
}

// Holds: rule.events.null, c1.400
#[tokio::test]
async fn json_without_its_content_type_is_refused() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""] {
        let body = json!({"name": "x", "projectUuid": ana.project().await}).to_string();
        let request = ana.request(Method::POST, "/v2/devices").header("content-type", kind).body(body);
        assert_eq!(app.send(request).await.faults(), ["body"], "{kind}");
        let request = device.request(Method::POST, "/v2/events/device?elementName=reading");
        assert_eq!(app.send(request.header("content-type", kind).body("1")).await.faults(), ["body"], "{kind}");
    }
    let bare = device.request(Method::POST, "/v2/events/device?elementName=reading").body("1");
    assert_eq!(app.send(bare).await.faults(), ["body"]);
    nothing_came_of_it(&ana, &device).await;
    let spelled = device.request(Method::POST, "/v2/events/device?elementName=reading");
    app.send(spelled.header("content-type", "application/json; charset=utf-8").body("1")).await.created();
}

// Holds: c1.errors
#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let app = TestApp::with(|settings| settings.http.max_body_bytes = 1000).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    device.posts_text("reading", text(1001)).await.is(413);
    // A body without a declared length is refused too.
    let pieces = (0..200).map(|_| Ok::<_, std::io::Error>("x".repeat(100)));
    let stream = http_body_util::StreamBody::new(futures::stream::iter(
        pieces.map(|piece| piece.map(|text| hyper::body::Frame::data(bytes::Bytes::from(text)))),
    ));
    device.posts_text("reading", reqwest::Body::wrap(stream)).await.is(413);
    ana.post("/v2/devices", json!({"name": "x".repeat(1000)})).await.is(413);
    nothing_came_of_it(&ana, &device).await;
    device.posts_text("reading", text(1000)).await.created();
    // 404, 401 and 403 come before 413.
    let basic = ana.invites("basic", "basicUser").await;
    let door = device.door("reading");
    basic.post_text(&door, text(1001)).await.forbidden();
    app.send(with_json(app.request(Method::POST, &door), &json!("x".repeat(2000)))).await.unauthenticated();
    ana.put(&format!("/v2/devices/{NOBODY}"), json!("x".repeat(2000))).await.not_found();
}

// Holds: rule.events.deviceId, c1.parameters, c1.lists
#[tokio::test]
async fn invalid_parameters_are_all_named() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(1)).await.created();
    let bad =
        "page=0&limit=10001&from=soon&to=2026-02-30&sortBy=size&filter[payload.a][like]=1&filter[createdAt][lt]=x";
    let all = [
        "query.filter[createdAt][lt]",
        "query.filter[payload.a][like]",
        "query.from",
        "query.limit",
        "query.page",
        "query.sortBy",
        "query.to",
    ];
    assert_eq!(ana.get(&device.at(&format!("data/reading?{bad}"))).await.faults(), all);
    let bad = "page=x&limit=0&depth=-1&organizationId=here&sortBy=payload";
    let all = ["query.depth", "query.limit", "query.organizationId", "query.page", "query.sortBy"];
    for list in ["devices", "projects", "users"] {
        assert_eq!(ana.get(&format!("/v2/{list}?{bad}")).await.faults(), all);
    }
    let all = ["query.cloudEvents", "query.deviceEvents", "query.limit"];
    assert_eq!(ana.get(&device.at("events?deviceEvents=1&cloudEvents=&limit=-5")).await.faults(), all);
    let bad = format!("{}&peek=maybe&wait=61&limit=ten", device.queue());
    assert_eq!(ana.get(&bad).await.faults(), ["query.limit", "query.peek", "query.wait"]);
    assert_eq!(ana.get("/v2/events/cloud").await.faults(), ["query.deviceId"]);
    assert_eq!(ana.post("/v2/events/device", json!(1)).await.faults(), ["query.deviceId", "query.elementName"]);
    let nowhere = format!("/v2/events/device?deviceId={NOBODY}&elementName=");
    assert_eq!(ana.post_text(&nowhere, "{").await.faults(), ["body", "query.deviceId", "query.elementName"]);
    // An unknown resource is reported before faults of parameters.
    ana.get(&device.at("data/unheard?limit=0")).await.not_found();
    ana.get(&format!("/v2/devices/{NOBODY}/events?limit=0")).await.not_found();
}

// Holds: error.message, c1.errors, c1.405
#[tokio::test]
async fn unknown_paths_and_methods_are_refused_with_a_problem_body() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    for path in ["/v2", "/v2/nothing", "/v2/devices/", "/v1/devices", "/v2/devices/%ff", "/v2//devices"] {
        ana.get(path).await.is(404);
        app.get(path).await;
    }
    for (method, path, allow) in [
        (Method::DELETE, "/v2/devices", "GET,HEAD,POST"),
        (Method::PATCH, "/v2/devices/x", "GET,HEAD,PUT,DELETE"),
        (Method::GET, "/v2/events/device", "POST"),
        (Method::POST, "/v2/auth/user", "GET,HEAD"),
    ] {
        let refused = ana.app.send(ana.request(method, path)).await.is(405);
        let mut allowed: Vec<&str> = refused.header("allow").split(',').map(str::trim).collect();
        let mut expected: Vec<&str> = allow.split(',').collect();
        allowed.sort();
        expected.sort();
        assert_eq!(allowed, expected, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_disconnects_midway_leaves_nothing() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let head = format!(
        "POST /v2/events/device?elementName=reading HTTP/1.1\r\nhost: isobar\r\ncloud: {}\r\n\
         content-type: application/json\r\ncontent-length: 20\r\n\r\n",
        device.token
    );
    for sent in [&head[..10], &head[..head.len() - 2], &head, &format!("{head}{{\"temp\":")] {
        for _ in 0..5 {
            let mut socket = TcpStream::connect(app.address).unwrap();
            socket.write_all(sent.as_bytes()).unwrap();
            drop(socket);
        }
    }
    // A client that ends early is told the reason.
    let mut socket = TcpStream::connect(app.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(format!("{head}{{\"temp\":").as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    nothing_came_of_it(&ana, &device).await;
    device.posts("reading", json!({"temp": 9.1})).await.created();
}

// Holds: rule.events.deviceId, rule.events.null
#[tokio::test]
async fn event_with_several_faults_has_all_of_them_named() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let badly = |path: &str| ana.request(Method::POST, path).header("idempotency-key", "\u{e9}").body("1");
    let (key, body) = ("header.Idempotency-Key", "body");
    let all = [body, key, "query.deviceId", "query.elementName"];
    for path in ["/v2/events/device", "/v2/events/cloud"] {
        assert_eq!(app.send(badly(path)).await.faults(), all, "{path}");
        assert_eq!(ana.post(path, json!(null)).await.faults(), [body, "query.deviceId", "query.elementName"], "{path}");
        let named = format!("{path}?deviceId={}", device.id);
        assert_eq!(app.send(badly(&named)).await.faults(), [body, key, "query.elementName"], "{path}");
    }
    for path in ["/v2/events/cloud", "/v2/events/cloud/next"] {
        let faults = ana.get(&format!("{path}?peek=maybe&wait=61")).await.faults();
        assert_eq!(faults, ["query.deviceId", "query.peek", "query.wait"], "{path}");
    }
    // The resource and the role are checked first.
    app.send(badly(&format!("/v2/events/cloud?deviceId={NOBODY}"))).await.not_found();
    let basic = ana.invites("basic", "basicUser").await;
    app.send(basic.request(Method::POST, "/v2/events/device").body("1")).await.forbidden();
    basic.get("/v2/events/cloud?wait=61").await.forbidden();
    nothing_came_of_it(&ana, &device).await;
}
