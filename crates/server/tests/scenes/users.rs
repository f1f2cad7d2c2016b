//! Users of an organization.

use serde_json::json;

use crate::support::app::new_user;
use crate::support::person::text;
use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(a_user_is_created_and_listed, new_user_cannot_outrank_its_creator);

// Holds: user.id, user.organizationId, user.password, query.organizationId, GET /v2/users, POST /v2/users,
// GET /v2/users/{id}, c1.depth
async fn a_user_is_created_and_listed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let tom = ana.invites("tom", "technician").await;
    ana.invites_into(&north, "nora", "manager").await;
    app.stranger("bob").await;
    let fetched = tom.get(&format!("/v2/users/{}", tom.id)).await;
    assert!(!fetched.text.contains("secret") && !fetched.text.contains("argon2"), "a password is never told");
    let fetched = fetched.ok();
    assert_eq!((&fetched["username"], &fetched["role"]), (&json!("tom"), &json!("technician")));
    assert_eq!(fetched["organizationId"], ana.organization.as_str());
    app.wait_seconds(30);
    let own = tom.get("/v2/auth/user").await.ok();
    assert_eq!((&own["id"], &own["lastActive"]), (&fetched["id"], &json!("2027-01-15T08:00:30.000Z")));
    assert_eq!(ana.get("/v2/users?searchText=tom").await.list_of("/lastActive"), [own["lastActive"].clone()]);
    let bea = ana.post("/v2/users", new_user("bea", "basicUser")).await.created();
    let url = format!("/v2/users/{}", text(&bea, "id"));
    assert_eq!(ana.get(&url).await.ok(), bea);
    assert_eq!(ana.get("/v2/users?searchText=bea").await.ok()["data"], json!([bea]));
    ana.delete(&url).await.no_content();
    let list = async |query: &str| ana.get(&format!("/v2/users?{query}")).await.list_of("/username");
    assert_eq!(list("").await, ["ana", "tom"]);
    assert_eq!(list("depth=all").await, ["ana", "nora", "tom"]);
    assert_eq!(list(&format!("organizationId={north}")).await, ["nora"]);
    assert_eq!(list("depth=all&searchText=NORA%40example").await, ["nora"]);
    assert_eq!(list("depth=all&sortBy=-username&limit=2").await, ["tom", "nora"]);
    assert_eq!(list("depth=all&sortBy=role").await, ["tom", "nora", "ana"]);
    assert_eq!(list(&format!("depth=all&entityList={},{NOBODY}", tom.id)).await, ["tom"]);
}

// Holds: user.role, c1.roles
async fn new_user_cannot_outrank_its_creator(app: &TestApp) {
    let ana = app.developer("ana").await;
    let max = ana.invites("max", "manager").await;
    let bob = app.stranger("bob").await;
    for (role, status) in [("basicUser", 201), ("manager", 201), ("administrator", 403), ("systemAdmin", 403)] {
        max.post("/v2/users", new_user(role, role)).await.is(status);
    }
    let mut outside = new_user("out", "basicUser");
    outside["organizationId"] = json!(bob.organization);
    assert_eq!(max.post("/v2/users", outside.clone()).await.faults(), ["organizationId"]);
    outside["role"] = json!("systemAdmin");
    // The role is checked before other faults.
    max.post("/v2/users", outside).await.forbidden();
    max.post("/v2/users", json!({"role": "systemAdmin", "email": 7})).await.forbidden();
    let mut both = new_user("MAX", "basicUser");
    both["email"] = json!("ANA@example.com");
    assert_eq!(max.post("/v2/users", both).await.faults(), ["email", "username"], "both are taken");
}

#[tokio::test]
async fn a_user_without_a_password_cannot_log_in_yet() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let mut body = new_user("tom", "technician");
    let members = body.as_object_mut().unwrap();
    members.remove("password");
    assert_eq!(ana.post("/v2/users", json!(members)).await.faults(), ["passwordConfirmation"]);
    members.remove("passwordConfirmation");
    ana.post("/v2/users", json!(members)).await.created();
    for guess in ["", "secret of tom"] {
        app.login("tom", guess).await.unauthenticated();
    }
}

// Holds: user.times
#[tokio::test]
async fn the_last_activity_is_seen_after_a_restart() {
    let app = TestApp::start().await;
    let jwt = {
        let ana = app.developer("ana").await;
        app.wait_seconds(30);
        ana.get("/v2/devices").await.ok();
        ana.jwt
    };
    let app = app.restart().await;
    let me = app.request(reqwest::Method::GET, "/v2/auth/user").bearer_auth(&jwt);
    assert_eq!(app.send(me).await.ok()["lastActive"], "2027-01-15T08:00:30.000Z");
}
