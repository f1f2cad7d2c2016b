//! Login, refresh, logout, and API keys.

use futures::StreamExt as _;
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::json;

use crate::support::person::text;
use crate::support::{NOBODY, Person, TestApp};

async fn me(person: &Person<'_>) -> u16 {
    person.get("/v2/auth/user").await.status.as_u16()
}

// Holds: login.usernameOrEmail, token.jwtTokenExpiry, POST /v2/auth/login, GET /v2/auth/user
#[tokio::test]
async fn a_user_logs_in_by_name_or_address() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    for name in ["ana", "ana@example.com", "ANA"] {
        let login = app.login(name, &ana.password).await.is(201);
        let body = login.json();
        assert_eq!(body["jwtTokenExpiry"], "2027-01-15T08:15:00.000Z");
        let jwt = text(&body, "jwtToken");
        let user = app.send(app.request(Method::GET, "/v2/auth/user").bearer_auth(jwt)).await.ok();
        assert_eq!(user["username"], "ana");
    }
}

// Holds: login.password, POST /v2/auth/login, c3.alike
#[tokio::test]
async fn an_unknown_account_looks_like_a_wrong_password() {
    let app = TestApp::start().await;
    app.developer("ana").await;
    let wrong = app.login("ana", "not it").await.is(401);
    let unknown = app.login("nobody", "not it").await.is(401);
    assert_eq!(wrong.text, unknown.text);
    assert!(!wrong.headers.contains_key("set-cookie"));
    assert_eq!(app.post("/v2/auth/login", json!({})).await.faults(), ["password", "usernameOrEmail"]);
}

// Holds: c3.throttle
#[tokio::test]
async fn password_guesses_count_by_account_and_reveal_nothing() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let guess = async |name: &str| app.login(name, "a guess").await.status.as_u16();
    // Ten guesses with each name: the answers are the same whether the account exists or not.
    for account in ["ana", "nobody"] {
        for name in [account.to_owned(), format!("{account}@example.com")] {
            for turn in 0..10 {
                assert_eq!(guess(&name).await, 401, "{name} {turn}");
            }
            assert_eq!(guess(&name).await, 429, "{name}");
        }
    }
    app.wait_seconds(15 * 60);
    // Five guesses with each name are ten: further ones fail with any password.
    for _ in 0..5 {
        assert_eq!([guess("ana").await, guess("ana@example.com").await], [401, 401]);
    }
    for name in ["ana", "ana@example.com"] {
        let right = app.login(name, &ana.password).await.is(401);
        assert_eq!(right.text, app.login("nobody", "a guess").await.is(401).text);
    }
    // The same holds for the other name after ten guesses with one.
    app.wait_seconds(15 * 60);
    for _ in 0..10 {
        assert_eq!(guess("ANA").await, 401);
    }
    app.login("ana@example.com", &ana.password).await.is(401);
    app.wait_seconds(15 * 60);
    app.login("ana@example.com", &ana.password).await.created();
}

// Holds: c3.cookie
#[tokio::test]
async fn refresh_cookie_is_hidden_from_scripts_and_other_sites() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let attributes = |line: &str| {
        let mut parts: Vec<String> = line.split("; ").skip(1).map(str::to_owned).collect();
        parts.sort();
        parts
    };
    let login = app.login("ana", &ana.password).await;
    let cookie = login.header("set-cookie");
    assert!(cookie.starts_with("refreshToken="), "{cookie}");
    assert_eq!(attributes(cookie), ["HttpOnly", "Max-Age=1209600", "Path=/v2/auth", "SameSite=Strict"]);
    let secure = TestApp::with(|settings| settings.hub.public_url = "https://isobar.example".to_owned()).await;
    let bob = secure.developer("bob").await;
    let login = secure.login("bob", &bob.password).await;
    assert!(attributes(login.header("set-cookie")).contains(&"Secure".to_owned()));
}

// Holds: token.jwtToken, token.jwtTokenExpiry, state.jwt, state.refresh, GET /v2/auth/refreshToken, auth.jwt,
// auth.refreshToken, limit.jwt, limit.refresh, c3.cookie
#[tokio::test]
async fn access_token_expires_and_is_refreshed_for_fourteen_days() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let refresh = async || {
        let request = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &ana.cookie);
        app.send(request).await
    };
    app.wait_seconds(14 * 60 + 59);
    assert_eq!(me(&ana).await, 200);
    app.wait_seconds(1);
    assert_eq!(me(&ana).await, 401);
    let refreshed = refresh().await.is(201);
    assert!(!refreshed.headers.contains_key("set-cookie"), "its end is not moved");
    let tokens = refreshed.json();
    assert_eq!(tokens["jwtTokenExpiry"], "2027-01-15T08:30:00.000Z");
    let jwt = text(&tokens, "jwtToken");
    app.send(app.request(Method::GET, "/v2/auth/user").bearer_auth(jwt)).await.ok();
    // A browser sends it among other cookies.
    let among = format!("refreshTokens=x; theme=dark; {}; last=1", ana.cookie);
    app.send(app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", among)).await.created();
    app.wait_seconds(14 * 24 * 3600 - 15 * 60 - 1);
    refresh().await.created();
    app.wait_seconds(1);
    refresh().await.unauthenticated();
}

// Holds: state.logout, POST /v2/auth/logout, c3.logout
#[tokio::test]
async fn logout_revokes_all_given_tokens_at_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let other = app.login("ana", &ana.password).await.created();
    let logout = ana.request(Method::POST, "/v2/auth/logout").header("cookie", &ana.cookie);
    let gone = app.send(logout).await.is(204);
    let cleared = gone.header("set-cookie");
    assert!(cleared.starts_with("refreshToken=;") && cleared.contains("Max-Age=0"), "{cleared}");
    assert_eq!(me(&ana).await, 401);
    let (jwt, cookie) = (ana.jwt.clone(), ana.cookie.clone());
    let app = app.restart().await;
    let ask = |jwt: &str| app.request(Method::GET, "/v2/auth/user").bearer_auth(jwt);
    app.send(ask(&jwt)).await.unauthenticated();
    let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &cookie);
    app.send(refresh).await.unauthenticated();
    let again = app.request(Method::POST, "/v2/auth/logout").bearer_auth(&jwt);
    app.send(again).await.unauthenticated();
    // The other session continues.
    app.send(ask(text(&other, "jwtToken"))).await.ok();
}

// Holds: state.logout, POST /v2/auth/logout, auth.refreshToken, auth.logout
#[tokio::test]
async fn logout_with_one_token_leaves_the_other() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let refresh = || app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &ana.cookie);
    app.send(ana.request(Method::POST, "/v2/auth/logout")).await.no_content();
    assert_eq!(me(&ana).await, 401);
    let jwt = text(&app.send(refresh()).await.created(), "jwtToken").to_owned();
    let with_cookie = app.request(Method::POST, "/v2/auth/logout").header("cookie", &ana.cookie);
    app.send(with_cookie).await.no_content();
    app.send(refresh()).await.unauthenticated();
    app.send(app.request(Method::GET, "/v2/auth/user").bearer_auth(jwt)).await.ok();
}

// Holds: c3.cookies
#[tokio::test]
async fn refresh_cookie_is_found_beside_other_cookies() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let bytes = |parts: &[&[u8]]| HeaderValue::from_bytes(&parts.concat()).unwrap();
    let own = ana.cookie.as_bytes();
    let stale = b"refreshToken=0123; ";
    let lines = [
        bytes(&["name=J\u{fc}rgen; ".as_bytes(), own]),
        bytes(&[b"a=\xfc; ", own, b"; b=\xff"]),
        bytes(&[stale, b"refreshToken=\xfc; ", own, b"; refreshToken="]),
    ];
    for line in &lines {
        let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", line);
        app.send(refresh).await.created();
    }
    // Cookies may come in several lines.
    let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", "a=b").header("cookie", own);
    app.send(refresh).await.created();
    let only_stale = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &stale[..]);
    app.send(only_stale).await.unauthenticated();
    // A logout revokes each of several.
    let other =
        app.login("ana", &ana.password).await.is(201).header("set-cookie").split(';').next().unwrap().to_owned();
    let both = bytes(&["name=J\u{fc}rgen; ".as_bytes(), own, b"; ", stale, other.as_bytes()]);
    app.send(app.request(Method::POST, "/v2/auth/logout").header("cookie", both)).await.no_content();
    for revoked in [own, other.as_bytes()] {
        let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", revoked);
        app.send(refresh).await.unauthenticated();
    }
}

// Holds: c3.sessions
#[tokio::test]
async fn session_beyond_a_hundred_ends_the_oldest() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let second = app.login("ana", &ana.password).await.created();
    let ask =
        async |jwt: &str| app.send(app.request(Method::GET, "/v2/auth/user").bearer_auth(jwt)).await.status.as_u16();
    for _ in 0..98 {
        app.login("ana", &ana.password).await.created();
    }
    assert_eq!((me(&ana).await, ask(text(&second, "jwtToken")).await), (200, 200));
    let newest = app.login("ana", &ana.password).await.created();
    assert_eq!((me(&ana).await, ask(text(&second, "jwtToken")).await), (401, 200));
    let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &ana.cookie);
    app.send(refresh).await.unauthenticated();
    assert_eq!(ask(text(&newest, "jwtToken")).await, 200);
}

// Holds: c3.throttle
#[tokio::test]
async fn locked_out_account_refuses_the_right_password_too() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    for name in ["ana", "nobody"] {
        for _ in 0..10 {
            app.login(name, "a guess").await.unauthenticated();
        }
        let waits = app.login(&name.to_uppercase(), &ana.password).await.is(429);
        assert_eq!(waits.header("retry-after"), "901");
    }
    // An open session stays open.
    assert_eq!(me(&ana).await, 200);
    app.wait_seconds(15 * 60);
    app.login("ana", &ana.password).await.created();
}

// Holds: GET /v2/auth/user, GET /v2/users/{id}/apiKeys, POST /v2/users/{id}/apiKeys,
// DELETE /v2/users/{id}/apiKeys/{keyId}, auth.apiKey, auth.apiKeyAlt, c3.apiKeys
#[tokio::test]
async fn api_key_acts_as_its_user_in_each_form() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let keys = format!("/v2/users/{}/apiKeys", ana.id);
    let made = ana.post(&keys, json!({"name": "script"})).await.created();
    let key = text(&made, "key");
    let shown = json!({
        "id": made["id"], "name": "script", "key": key, "role": null, "createdAt": "2027-01-15T08:00:00.000Z",
        "expiresAt": null,
    });
    assert_eq!(made, shown);
    for header in ["api_auth_token", "authorization"] {
        let user = app.send(app.request(Method::GET, "/v2/auth/user").header(header, key)).await.ok();
        assert_eq!(user["id"], ana.id.as_str());
    }
    let ask = || app.request(Method::GET, "/v2/auth/user");
    for by_scheme in [ask().bearer_auth(key), ask().basic_auth("telegraf", Some(key)), ask().basic_auth("", Some(key))]
    {
        assert_eq!(app.send(by_scheme).await.ok()["id"], ana.id.as_str());
    }
    for wrong in
        [ask().basic_auth(key, Some("")), ask().basic_auth(key, Some("x")), ask().bearer_auth(format!("{key}x"))]
    {
        app.send(wrong).await.unauthenticated();
    }
    let list = ana.get(&keys).await;
    assert!(!list.text.contains(key), "a key is shown once");
    let listed = list.ok();
    assert_eq!(listed["data"][0]["name"], "script");
    let id = text(&listed["data"][0], "id");
    let expected = json!({
        "id": made["id"], "name": "script", "role": null, "createdAt": made["createdAt"], "expiresAt": null,
        "lastUsedAt": "2027-01-15T08:00:00.000Z",
    });
    assert_eq!(listed["data"], json!([expected]));
    ana.delete(&format!("{keys}/{id}")).await.no_content();
    for deleted in [ask().header("api_auth_token", key), ask().bearer_auth(key), ask().basic_auth("a", Some(key))] {
        app.send(deleted).await.unauthenticated();
    }
    ana.delete(&format!("{keys}/{id}")).await.not_found();
    ana.delete(&format!("{keys}/{NOBODY}")).await.not_found();
}

// Holds: c3.order
#[tokio::test]
async fn first_credential_present_decides() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let key = ana.makes_api_key("script").await;
    let ask = || app.request(Method::GET, "/v2/auth/user");
    app.send(ask().bearer_auth("bad").header("api_auth_token", &key)).await.unauthenticated();
    app.send(ask().header("authorization", "bad").header("api_auth_token", &key)).await.ok();
    app.send(ask().header("authorization", &key).header("api_auth_token", "bad")).await.unauthenticated();
    app.send(ask().header("authorization", &key).header("cloud", "bad")).await.unauthenticated();
    app.send(ask().header("authorization", format!("bearer {}", ana.jwt))).await.ok();
}

// Holds: DELETE /v2/users/{id}/apiKeys/{keyId}, c3.apiKeys
#[tokio::test]
async fn api_keys_of_others_need_the_right_to_change_their_user() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let (tom, max) = (ana.invites("tom", "technician").await, ana.invites("max", "manager").await);
    let of = |person: &Person<'_>| format!("/v2/users/{}/apiKeys", person.id);
    tom.makes_api_key("own").await;
    assert_eq!(max.get(&of(&tom)).await.names(), ["own"]);
    tom.get(&of(&max)).await.forbidden();
    max.post(&of(&ana), json!({"name": "a step up"})).await.forbidden();
    max.get(&of(&ana)).await.forbidden();
    assert_eq!(tom.post(&of(&tom), json!({})).await.faults(), ["name"]);
    // A key of one user is not deleted through another.
    let id = tom.get(&of(&tom)).await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    max.delete(&format!("{}/{id}", of(&max))).await.not_found();
    assert_eq!(tom.get(&of(&tom)).await.ok()["meta"]["totalDocs"], 1);
}

// Holds: c3.apiKeys
#[tokio::test]
async fn api_key_without_a_name_or_above_the_limit_is_refused() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let keys = format!("/v2/users/{}/apiKeys", ana.id);
    for bad in [json!({}), json!({"name": 1}), json!({"name": null}), json!({"name": ""}), json!({"name": ["a"]})] {
        assert_eq!(ana.post(&keys, bad).await.faults(), ["name"]);
    }
    assert_eq!(ana.post(&keys, json!({"name": "x".repeat(81)})).await.faults(), ["name"]);
    assert_eq!(ana.post(&keys, json!([])).await.faults(), ["body"]);
    assert_eq!(ana.post_text(&keys, r#"{"name":"a","name":"b"}"#).await.faults(), ["body"]);
    assert_eq!(ana.get(&keys).await.ok()["meta"]["totalDocs"], 0);
    // Two keys may have the same name, and other members of the body are ignored.
    for _ in 0..2 {
        let made = ana.post(&keys, json!({"name": "é".repeat(80), "key": "mine", "id": NOBODY})).await.created();
        assert!(made["key"] != "mine" && made["id"] != NOBODY, "{made}");
    }
    // The last places are taken once by concurrent requests.
    let more = (0..1_001).map(|_| async { ana.post(&keys, json!({"name": "many"})).await.status.as_u16() });
    let statuses = futures::stream::iter(more).buffer_unordered(32).collect::<Vec<u16>>().await;
    let refused = statuses.iter().filter(|status| **status == 400).count();
    assert_eq!((refused, ana.get(&keys).await.ok()["meta"]["totalDocs"].clone()), (3, json!(1_000)));
    assert_eq!(ana.post(&keys, json!({"name": "more"})).await.faults(), ["body"]);
    let first = ana.get(&format!("{keys}?limit=1")).await.list_of("/id");
    ana.delete(&format!("{keys}/{}", first[0].as_str().unwrap())).await.no_content();
    ana.post(&keys, json!({"name": "more"})).await.created();
}

// Holds: c3.apiKeys
#[tokio::test]
async fn api_key_follows_the_current_rights_of_its_user() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let roles = ["basicUser", "technician", "manager", "administrator", "developer"];
    let device = json!({"name": "d", "projectUuid": ana.project().await});
    for (rank, role) in roles.into_iter().enumerate() {
        let user = ana.invites(&format!("key-{role}"), role).await.with_key().await;
        user.get("/v2/devices").await.ok();
        user.post("/v2/devices", device.clone()).await.is(if rank >= 1 { 201 } else { 403 });
        user.post("/v2/projects", json!({"name": "p"})).await.is(if rank >= 3 { 201 } else { 403 });
        let profile = format!("/v2/users/{}", user.id);
        ana.put(&profile, json!({"role": "technician", "company": "Acme"})).await.ok();
        user.post("/v2/devices", device.clone()).await.created();
        user.post("/v2/projects", json!({"name": "p"})).await.forbidden();
        let disabled = |disabled: bool| json!({"role": "technician", "company": "Acme", "disabled": disabled});
        ana.put(&profile, disabled(true)).await.ok();
        assert_eq!(me(&user).await, 401);
        ana.put(&profile, disabled(false)).await.ok();
        assert_eq!(me(&user).await, 200);
        // It can delete itself.
        let keys = format!("{profile}/apiKeys");
        let own = user.get(&keys).await.list_of("/id");
        user.delete(&format!("{keys}/{}", own[0].as_str().unwrap())).await.no_content();
        assert_eq!(me(&user).await, 401);
    }
}

#[tokio::test]
async fn tampered_token_is_refused() {
    let app = TestApp::start().await;
    let (ana, bob) = (app.developer("ana").await, app.stranger("bob").await);
    let parts = |jwt: &str| jwt.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (own, other) = (parts(&ana.jwt), parts(&bob.jwt));
    // {"typ":"JWT","alg":"none"}
    let none = "eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0";
    for forged in [
        format!("{}.{}.{}", own[0], other[1], own[2]),
        format!("{none}.{}.", own[1]),
        format!("{none}.{}.{}", own[1], own[2]),
        format!("{}.{}.", own[0], own[1]),
        format!("{}.{}", own[0], own[1]),
        format!("{}A", ana.jwt),
        "..".to_owned(),
    ] {
        app.send(app.request(Method::GET, "/v2/auth/user").bearer_auth(forged)).await.unauthenticated();
    }
    // A token of another server, with another signing key, is refused too.
    let elsewhere = TestApp::start().await;
    let eve = elsewhere.developer("ana").await;
    app.send(app.request(Method::GET, "/v2/auth/user").bearer_auth(&eve.jwt)).await.unauthenticated();
}

// Holds: GET /v2/auth/refreshToken, POST /v2/auth/logout
#[tokio::test]
async fn session_cookie_from_a_page_of_another_site_is_refused() {
    let named = "https://console.example";
    let app = TestApp::with(|settings| settings.http.cors_origins = vec![named.to_owned()]).await;
    let ana = app.developer("ana").await;
    let ask = |method: Method, path: &str, origin: &str| {
        app.send(app.request(method, path).header("cookie", &ana.cookie).header("origin", origin))
    };
    let (refresh, logout) = ("/v2/auth/refreshToken", "/v2/auth/logout");
    for foreign in ["https://evil.example", "null"] {
        ask(Method::GET, refresh, foreign).await.is(403);
        ask(Method::POST, logout, foreign).await.is(403);
        // 401 comes first.
        let spoilt = app.request(Method::GET, refresh).header("cookie", "refreshToken=x").header("origin", foreign);
        app.send(spoilt).await.unauthenticated();
    }
    let own = format!("http://{}", app.address);
    for origin in [named, &own] {
        ask(Method::GET, refresh, origin).await.created();
    }
    // A token in a header is no cookie that a browser adds by itself.
    let other = app.login("ana", &ana.password).await.created();
    let by_token = app.request(Method::POST, logout).bearer_auth(text(&other, "jwtToken"));
    app.send(by_token.header("origin", "https://evil.example")).await.no_content();
    ask(Method::POST, logout, &own).await.no_content();
}
