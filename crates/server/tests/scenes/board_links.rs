//! Links that show one dashboard on a screen, without an account: their creation and their end.

use isobar_hub::RateLimits;
use isobar_power::settled;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::{Answer, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    links_are_made_listed_and_deleted,
    board_link_needs_the_right_to_change_the_board,
    a_board_has_twenty_links,
    board_link_is_refused_after_it_expires,
    board_link_is_refused_after_its_maker_lost_rights,
    board_link_ends_with_its_board_or_its_maker,
    board_link_ends_with_a_new_password_on_request,
    board_link_gives_access_to_its_board_alone,
    invalid_board_link_is_refused,
);

/// An expiry beyond all scenes: 180 days after their beginning.
pub const LATER: &str = "2027-07-14T08:00:00.000Z";

/// Returns the path of a dashboard's links.
pub fn links(organization: &str, board: &str) -> String {
    format!("/v2/organizations/{organization}/dashboards/{board}/links")
}

/// Creates a dashboard with these widgets.
pub async fn makes_board(person: &Person<'_>, widgets: Value) -> String {
    let url = format!("/v2/organizations/{}/dashboards", person.organization);
    let body = json!({"name": "Hall", "configuration": {"widgets": widgets}});
    text(&person.post(&url, body).await.created(), "id").to_owned()
}

/// Creates a link, and returns the part of its address after `#`.
pub async fn makes_link(person: &Person<'_>, board: &str) -> String {
    let body = json!({"name": "hall", "expiresAt": LATER});
    let made = person.post(&links(&person.organization, board), body).await.created();
    let (_, secret) = text(&made, "url").split_once("/wall#").unwrap();
    secret.to_owned()
}

/// Sends a request with a link.
pub async fn shows(app: &TestApp, link: &str, path: &str) -> Answer {
    app.send(app.request(Method::GET, path).header("authorization", format!("Wall {link}"))).await
}

fn ids(link: &str) -> (&str, &str) {
    link.split_once('.').unwrap()
}

// Holds: GET /v2/organizations/{id}/dashboards/{dashboardId}/links,
// POST /v2/organizations/{id}/dashboards/{dashboardId}/links,
// DELETE /v2/organizations/{id}/dashboards/{dashboardId}/links/{linkId}
async fn links_are_made_listed_and_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let board = makes_board(&ana, json!([])).await;
    let url = links(&ana.organization, &board);
    assert_eq!(ana.get(&url).await.names(), [""; 0]);
    let made = ana.post(&url, json!({"name": "hall", "expiresAt": LATER})).await.created();
    let (address, link) = text(&made, "url").split_once('#').unwrap();
    assert!(address.ends_with("/wall"), "{address}");
    let (id, secret) = ids(link);
    assert_eq!((id, secret.len()), (text(&made, "id"), 64));
    let listed = ana.get(&url).await.ok();
    let expected = json!([{
        "id": id, "name": "hall", "createdById": ana.id, "createdAt": "2027-01-15T08:00:00.000Z", "expiresAt": LATER,
    }]);
    assert_eq!(listed["data"], expected);
    let shown = shows(app, link, "/v2/wall").await.ok();
    assert_eq!(shown, json!({"name": "Hall", "expiresAt": LATER, "widgets": []}));
    // Another administrator deletes it, with immediate effect.
    let tom = ana.invites("tom", "administrator").await;
    for nothing in [NOBODY, "x"] {
        tom.delete(&format!("{url}/{nothing}")).await.not_found();
    }
    tom.delete(&format!("{url}/{id}")).await.no_content();
    shows(app, link, "/v2/wall").await.unauthenticated();
    tom.delete(&format!("{url}/{id}")).await.not_found();
    for (body, faults) in [
        (json!({}), vec!["expiresAt"]),
        (json!({"name": "", "expiresAt": "soon"}), vec!["expiresAt", "name"]),
        (json!({"name": "x".repeat(81), "expiresAt": null}), vec!["expiresAt", "name"]),
        (json!({"name": "x", "expiresAt": "2027-01-15T08:00:00Z"}), vec!["expiresAt"]),
        (json!({"name": "x", "expiresAt": "2028-01-17T08:00:00Z"}), vec!["expiresAt"]),
        (json!({"name": "x", "expiresAt": 5}), vec!["expiresAt"]),
    ] {
        assert_eq!(ana.post(&url, body).await.faults(), faults);
    }
    ana.post(&url, json!({"name": "x", "expiresAt": "2028-01-15T08:00:00Z"})).await.created();
    assert_eq!(ana.post(&url, json!({"expiresAt": LATER})).await.created()["name"], "Screen");
    assert_eq!(ana.get(&format!("{url}?page=0")).await.faults(), ["query.page"]);
}

// Holds: POST /v2/organizations/{id}/dashboards/{dashboardId}/links
async fn board_link_needs_the_right_to_change_the_board(app: &TestApp) {
    let ana = app.developer("ana").await;
    let board = makes_board(&ana, json!([])).await;
    let (url, body) = (links(&ana.organization, &board), json!({"name": "hall", "expiresAt": LATER}));
    let tom = ana.invites("tom", "manager").await;
    tom.post(&url, body.clone()).await.forbidden();
    tom.get(&url).await.forbidden();
    tom.delete(&format!("{url}/{NOBODY}")).await.forbidden();
    let bob = app.stranger("bob").await;
    bob.post(&url, body.clone()).await.not_found();
    bob.get(&links(&bob.organization, &board)).await.not_found();
    ana.post(&links(&ana.organization, NOBODY), body.clone()).await.not_found();
    // A shared dashboard is changed in its own organization, and so are its links.
    ana.changes(&ana.organization, json!({"childrenInheritDashboard": true})).await.ok();
    let low = ana.founds("Low", &ana.organization).await;
    ana.post(&links(&low, &board), body.clone()).await.not_found();
    ana.get(&links(&low, &board)).await.not_found();
    // A key with fewer rights than its user creates no link, which would have more rights than the key.
    for key in [json!({"name": "k", "role": "administrator"}), json!({"name": "k", "expiresAt": LATER})] {
        let key = ana.post(&format!("/v2/users/{}/apiKeys", ana.id), key).await.created();
        let request = app.request(Method::POST, &url).header("api_auth_token", text(&key, "key"));
        app.send(crate::support::app::with_json(request, &body)).await.forbidden();
    }
    let request = app.request(Method::POST, &url).header("api_auth_token", ana.makes_api_key("k").await);
    app.send(crate::support::app::with_json(request, &body)).await.created();
}

async fn a_board_has_twenty_links(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (board, other) = (makes_board(&ana, json!([])).await, makes_board(&ana, json!([])).await);
    let url = links(&ana.organization, &board);
    for _ in 0..19 {
        makes_link(&ana, &board).await;
    }
    ana.post(&url, json!({"name": "brief", "expiresAt": "2027-01-15T08:01:00Z"})).await.created();
    assert_eq!(ana.post(&url, json!({"name": "more", "expiresAt": LATER})).await.faults(), ["body"]);
    makes_link(&ana, &other).await;
    // An expired link makes room.
    app.wait_seconds(60);
    assert_eq!(ana.get(&format!("{url}?limit=100")).await.names().len(), 20);
    makes_link(&ana, &board).await;
    assert!(!ana.get(&format!("{url}?limit=100")).await.names().contains(&"brief".to_owned()));
}

async fn board_link_is_refused_after_it_expires(app: &TestApp) {
    let ana = app.developer("ana").await;
    let board = makes_board(&ana, json!([{"type": "text", "id": "a"}])).await;
    let body = json!({"name": "brief", "expiresAt": "2027-01-15T08:01:00Z"});
    let made = ana.post(&links(&ana.organization, &board), body).await.created();
    let (_, link) = text(&made, "url").split_once('#').unwrap();
    app.wait_seconds(59);
    shows(app, link, "/v2/wall").await.ok();
    shows(app, link, "/v2/wall/widgets/a").await.ok();
    app.wait_seconds(1);
    shows(app, link, "/v2/wall").await.unauthenticated();
    shows(app, link, "/v2/wall/widgets/a").await.unauthenticated();
}

async fn board_link_is_refused_after_its_maker_lost_rights(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let tom = ana.invites("tom", "administrator").await;
    let board = makes_board(&tom, json!([{"type": "status", "id": "a"}])).await;
    let link = makes_link(&tom, &board).await;
    let user = format!("/v2/users/{}", tom.id);
    let becomes = async |change: Value| {
        let mut body = json!({"role": "administrator", "company": "Acme", "organizationId": ana.organization});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        ana.put(&user, body).await.ok();
    };
    let why = async |path: &str| text(&shows(app, &link, path).await.is(403).json(), "message").to_owned();
    shows(app, &link, "/v2/wall").await.ok();
    becomes(json!({"role": "manager"})).await;
    assert_eq!(why("/v2/wall").await, "whoever made this link may no longer change its dashboard");
    assert_eq!(why("/v2/wall/widgets/a").await, "whoever made this link may no longer change its dashboard");
    becomes(json!({})).await;
    shows(app, &link, "/v2/wall").await.ok();
    becomes(json!({"organizationId": north})).await;
    why("/v2/wall").await;
    becomes(json!({"disabled": true})).await;
    shows(app, &link, "/v2/wall").await.unauthenticated();
    becomes(json!({"disabled": false})).await;
    shows(app, &link, "/v2/wall/widgets/a").await.ok();
}

async fn board_link_ends_with_its_board_or_its_maker(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "administrator").await;
    let (first, second) = (makes_board(&tom, json!([])).await, makes_board(&tom, json!([])).await);
    let (of_first, of_second) = (makes_link(&tom, &first).await, makes_link(&tom, &second).await);
    let by_ana = makes_link(&ana, &second).await;
    ana.delete(&format!("/v2/organizations/{}/dashboards/{first}", ana.organization)).await.no_content();
    shows(app, &of_first, "/v2/wall").await.unauthenticated();
    shows(app, &of_second, "/v2/wall").await.ok();
    ana.delete(&format!("/v2/users/{}", tom.id)).await.no_content();
    shows(app, &of_second, "/v2/wall").await.unauthenticated();
    shows(app, &by_ana, "/v2/wall").await.ok();
}

// Holds: GET /v2/wall
async fn board_link_gives_access_to_its_board_alone(app: &TestApp) {
    let ana = app.developer("ana").await;
    let fridge = ana.creates_device("fridge").await;
    fridge.posts("reading", json!({"temp": 9})).await.created();
    let board = makes_board(&ana, json!([{"type": "text", "id": "mine"}])).await;
    let other = makes_board(&ana, json!([{"type": "status", "id": "theirs"}])).await;
    let link = makes_link(&ana, &board).await;
    makes_link(&ana, &other).await;
    for path in [
        "/v2/auth/user".to_owned(),
        "/v2/devices".to_owned(),
        fridge.at("last/reading"),
        format!("/v2/organizations/{}/dashboards/{board}", ana.organization),
        links(&ana.organization, &board),
        "/v2/events/stream".to_owned(),
        "/v2/data/buckets?elementName=reading".to_owned(),
    ] {
        shows(app, &link, &path).await.unauthenticated();
    }
    let post = async |path: &str, body: &'static str| {
        let request = app.request(Method::POST, path).header("authorization", format!("Wall {link}"));
        app.send(request.header("content-type", "application/json").body(body)).await
    };
    post(&fridge.door("reading"), r#"{"temp": 1}"#).await.unauthenticated();
    post(&links(&ana.organization, &board), "{}").await.unauthenticated();
    assert_eq!(post("/v2/wall", "{}").await.status, 405);
    // Widgets of other dashboards and unknown names are not found, and further parameters are ignored.
    for widget in ["theirs", "", "%00", "mine%2F", &"x".repeat(4_000)] {
        let status = shows(app, &link, &format!("/v2/wall/widgets/{widget}")).await.status;
        assert_eq!(status, 404, "{widget}");
    }
    let beside = format!("/v2/wall/widgets/mine?deviceIds={}&elementName=reading&organizationId={NOBODY}", fridge.id);
    assert_eq!(shows(app, &link, &beside).await.ok(), shows(app, &link, "/v2/wall/widgets/mine").await.ok());
    // Other credentials are refused there.
    for answer in [ana.get("/v2/wall").await, fridge.get("/v2/wall").await, app.get("/v2/wall").await] {
        answer.unauthenticated();
    }
}

async fn invalid_board_link_is_refused(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (board, other) = (makes_board(&ana, json!([])).await, makes_board(&ana, json!([])).await);
    let (link, second) = (makes_link(&ana, &board).await, makes_link(&ana, &other).await);
    let ((id, secret), (_, other_secret)) = (ids(&link), ids(&second));
    for wrong in [
        format!("{id}.{}", "0".repeat(64)),
        format!("{id}.{other_secret}"),
        format!("{NOBODY}.{secret}"),
        format!("{id}.{secret}0"),
        format!("{id}.{}", &secret[1..]),
        format!("{}.{secret}", id.to_uppercase()),
        format!("{id}{secret}"),
        format!("{id}."),
        ".".to_owned(),
        String::new(),
        format!("{id}.{}", "x".repeat(6_000)),
        format!("{id}.{secret}.{secret}"),
    ] {
        shows(app, &wrong, "/v2/wall").await.unauthenticated();
    }
    let sent = |values: [&str; 2]| {
        let request = app.request(Method::GET, "/v2/wall");
        app.send(values.iter().fold(request, |request, value| request.header("authorization", *value)))
    };
    let (good, bad) = (format!("Wall {link}"), format!("Wall {NOBODY}.{secret}"));
    // The first credential decides, as everywhere.
    sent([&good, &bad]).await.ok();
    sent([&bad, &good]).await.unauthenticated();
    sent([&format!("Bearer {link}"), &good]).await.unauthenticated();
    let beside = app.request(Method::GET, "/v2/wall").header("authorization", &good).header("cloud", "x");
    app.send(beside).await.unauthenticated();
    // The scheme is accepted in any case.
    sent([&format!("wALL {link}"), &good]).await.ok();
}

#[tokio::test]
async fn board_link_has_its_own_rate_limit() {
    let limits = RateLimits { user: 20, device: 0, address: 0 };
    let app = TestApp::with(|settings| settings.hub.rate_limit = limits).await;
    let ana = app.developer("ana").await;
    let board = makes_board(&ana, json!([])).await;
    let (link, other) = (makes_link(&ana, &board).await, makes_link(&ana, &board).await);
    app.wait_seconds(60);
    for _ in 0..20 {
        shows(&app, &link, "/v2/wall").await.ok();
    }
    let refused = shows(&app, &link, "/v2/wall").await.is(429);
    assert_eq!(text(&refused.json(), "message"), "the rate limit of 20 requests a minute for this link is exceeded");
    shows(&app, &other, "/v2/wall").await.ok();
    ana.get("/v2/auth/user").await.ok();
    app.wait_seconds(60);
    shows(&app, &link, "/v2/wall").await.ok();
    app.end().await;
}

// Holds: PUT /v2/users/{id}, POST /v2/auth/reset
async fn board_link_ends_with_a_new_password_on_request(app: &TestApp) {
    let (ana, bob) = (app.developer("ana").await, app.stranger("bob").await);
    let (board, of_bob) = (makes_board(&ana, json!([])).await, makes_board(&bob, json!([])).await);
    let of_bob = makes_link(&bob, &of_bob).await;
    let ends = async |how: &str, ends: Value, left: u16| {
        let link = makes_link(&ana, &board).await;
        let mut body = json!({"password": "wine-red-10", "passwordConfirmation": "wine-red-10", "endLinks": ends});
        if how == "reset" {
            app.post("/v2/auth/forgot", json!({"emailOrUsername": "ana"})).await.no_content();
            let letter = settled("a link by e-mail", async || {
                let letters = app.emails_to("ana@example.com", 1).await;
                letters.into_iter().find(|letter| letter.subject == "Set a new password")
            });
            body["token"] = json!(letter.await.token());
            app.post("/v2/auth/reset", body).await.ok();
        } else {
            body["role"] = json!("developer");
            body["company"] = json!("Acme");
            ana.put(&format!("/v2/users/{}", ana.id), body).await.ok();
        }
        assert_eq!(shows(app, &link, "/v2/wall").await.status.as_u16(), left, "{how} {ends}");
        assert_eq!(shows(app, &of_bob, "/v2/wall").await.status, 200);
    };
    ends("change", json!(false), 200).await;
    ends("change", json!(true), 401).await;
    ends("reset", json!(true), 401).await;
}
