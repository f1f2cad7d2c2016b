//! Scenes of the headers that every answer carries.

use isobar_http::table;
use reqwest::Method;

use crate::support::TestApp;

#[tokio::test]
async fn a_sane_request_id_comes_back_and_any_other_is_replaced() {
    let app = TestApp::start().await;
    let ask = |id: &str| app.request(Method::GET, "/v2/auth/user").header("x-request-id", id);
    assert_eq!(app.send(ask("trace-1.a_B")).await.header("x-request-id"), "trace-1.a_B");
    for odd in ["", "two words", "<script>", &"x".repeat(65)] {
        assert_ne!(app.send(ask(odd)).await.header("x-request-id"), odd);
    }
    assert_eq!(app.send(ask("a")).await.header("cache-control"), "no-store");
}

// Holds: c1.cors
#[tokio::test]
async fn other_origins_may_call_only_when_they_are_named() {
    let closed = TestApp::start().await;
    let open = TestApp::with(|settings| settings.http.cors_origins = vec!["https://console.example".to_owned()]).await;
    let preflight = async |app: &TestApp, origin: &str| {
        let request = app.request(Method::OPTIONS, "/v2/devices").header("origin", origin);
        let asked = request.header("access-control-request-method", "POST");
        asked.header("access-control-request-headers", "authorization,content-type").send().await.unwrap()
    };
    const ALLOWED: &str = "access-control-allow-origin";
    assert_eq!(preflight(&closed, "https://console.example").await.status(), 405);
    assert!(!preflight(&open, "https://elsewhere.example").await.headers().contains_key(ALLOWED));
    let allowed = preflight(&open, "https://console.example").await;
    assert_eq!(
        (allowed.status().as_u16(), &allowed.headers()[ALLOWED]),
        (200, &"https://console.example".parse().unwrap())
    );
    // Headers that a console reads and sends for conditional writes.
    let conditional = open.request(Method::OPTIONS, "/v2/devices").header("origin", "https://console.example");
    let conditional = conditional.header("access-control-request-method", "PUT").send().await.unwrap();
    let headers = conditional.headers()["access-control-allow-headers"].to_str().unwrap().to_owned();
    assert!(headers.contains("if-match") && headers.contains("if-none-match"), "{headers}");
    let asked = open.request(Method::GET, "/v2/auth/user").header("origin", "https://console.example");
    let refused = open.send(asked).await.is(401);
    assert_eq!(refused.header(ALLOWED), "https://console.example");
    assert!(refused.header("access-control-expose-headers").contains("etag"), "{refused:?}");
    let plain = closed.request(Method::GET, "/v2/auth/user").header("origin", "https://console.example");
    assert_eq!(closed.send(plain).await.header(ALLOWED), "");
}

// Holds: GET /v2/spec, version.prefix, version.meta, c1.paths
#[tokio::test]
async fn openapi_document_lists_every_operation() {
    let app = TestApp::start().await;
    let document = app.get("/v2/spec").await.ok();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(document["info"]["version"], "2.0.0");
    // One member of a device is deprecated, wherever it appears.
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let with_meta: Vec<_> = schemas.keys().filter(|name| name.contains("Device")).collect();
    let metas: Vec<_> = with_meta.iter().filter_map(|name| schemas[*name]["properties"].get("meta")).collect();
    assert!(metas.len() >= 2 && metas.iter().all(|meta| meta["deprecated"] == true), "{with_meta:?}: {metas:?}");
    for row in table().into_iter().filter(|row| row.path.starts_with("/v2/")) {
        let paths = &document["paths"];
        let found = [row.path, row.path.trim_start_matches("/v2")]
            .iter()
            .any(|path| paths[*path][row.method.name().to_lowercase()].is_object());
        assert!(found, "{} {} is not in the document", row.method.name(), row.path);
    }
    assert!(app.get("/v2/docs").await.is(200).header("content-type").starts_with("text/html"));
}

#[tokio::test]
async fn a_head_is_a_get_without_its_body() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let get = ana.get("/v2/devices").await.is(200);
    let head = ana.app.send(ana.request(Method::HEAD, "/v2/devices")).await.is(200);
    assert_eq!(head.text, "");
    assert_eq!(head.header("content-length"), get.text.len().to_string());
}

// Holds: GET /v2/docs
#[tokio::test]
async fn reference_page_loads_no_external_resource() {
    let app = TestApp::start().await;
    let page = app.request(Method::GET, "/v2/docs").send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers()["x-frame-options"], "DENY");
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    for held in ["default-src 'none';", "script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'"] {
        assert!(policy.contains(held), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    let text = page.text().await.unwrap();
    for outside in ["http:", "https:", "\"//", "'//", "src=", "<link", "@import"] {
        assert!(!text.contains(outside), "{outside}");
    }
    assert!(text.contains("fetch(\"/v2/spec\")"));
}
