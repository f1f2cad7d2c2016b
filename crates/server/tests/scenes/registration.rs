//! Tests how accounts are created.

use reqwest::Method;
use serde_json::json;

use crate::support::app::{new_user, with_json};
use crate::support::{NOBODY, TestApp};

// Holds: user.tosHash, user.times, user.preferences, user.imageUrl, user.organizationName, newUser.username,
// newUser.password, newUser.passwordConfirmation, newUser.firstName, newUser.lastName, newUser.email, newUser.company,
// newUser.role, newUser.tosHash, newUser.language, POST /v2/auth/register, c3.register, c3.verification
#[tokio::test]
async fn registration_creates_an_organization() {
    let app = TestApp::start().await;
    let mut body = new_user("ana", "developer");
    (body["tosHash"], body["language"]) = (json!("signed"), json!("pt"));
    let user = app.post("/v2/auth/register", body).await.created();
    let expected = json!({
        "id": user["id"],
        "username": "ana",
        "email": "ana@example.com",
        "role": "developer",
        "tosHash": "signed",
        "firstName": "ana",
        "lastName": "Scene",
        "company": "ana's company",
        "jobTitle": null,
        "language": "pt",
        "createdAt": "2027-01-15T08:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
        "lastActive": null,
        "preferences": {"notifications": {
            "accountNotifications": {"inapp": true, "email": false},
            "systemNotification": {"inapp": true, "email": false},
            "deviceNotification": {"inapp": true, "email": false},
        }},
        "imageUrl": format!("/users/{}/image.png", user["id"].as_str().unwrap()),
        "organizationName": "ana's company",
        "organizationId": user["organizationId"],
        "disabled": false,
    });
    assert_eq!(user, expected);
    app.login("ana", "secret of ana").await.created();
    let ana = app.login("ana@example.com", "secret of ana").await.created();
    let ask = app.request(Method::GET, "/v2/organizations").bearer_auth(ana["jwtToken"].as_str().unwrap());
    let organizations = app.send(ask).await.ok();
    assert_eq!(organizations["data"][0]["name"], "ana's company");
    assert_eq!(organizations["data"][0]["parentId"], json!(null));
    assert_eq!(organizations["meta"]["totalDocs"], 1);
}

// Holds: c3.firstStart
#[tokio::test]
async fn new_server_has_an_administrator_in_the_root() {
    let app = TestApp::start().await;
    let admin = app.admin().await.get("/v2/auth/user").await.ok();
    let shown = ["username", "role", "organizationName"].map(|member| admin[member].clone());
    assert_eq!(shown, ["admin", "systemAdmin", "Root"]);
    let all = app.admin().await.get("/v2/organizations?depth=all").await.names();
    assert_eq!(all, ["Root"]);
}

// Holds: user.role, c3.register
#[tokio::test]
async fn registration_accepts_every_role_but_system_admin() {
    let app = TestApp::start().await;
    for role in ["basicUser", "technician", "manager", "administrator", "developer"] {
        assert_eq!(app.post("/v2/auth/register", new_user(role, role)).await.created()["role"], role);
    }
    assert_eq!(app.post("/v2/auth/register", new_user("eve", "systemAdmin")).await.faults(), ["role"]);
    assert_eq!(app.post("/v2/auth/register", new_user("eve", "emperor")).await.faults(), ["role"]);
    app.login("eve", "secret of eve").await.unauthenticated();
}

// Holds: newUser.organizationId, c3.register
#[tokio::test]
async fn registration_into_an_organization_needs_its_rights() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let bob = app.stranger("bob").await;
    let mut body = new_user("new", "manager");
    body["organizationId"] = json!(ana.organization);
    app.post("/v2/auth/register", body.clone()).await.unauthenticated();
    // Other faults of the body are not reported either.
    let faulty = json!({"organizationId": ana.organization, "role": 7});
    app.post("/v2/auth/register", faulty.clone()).await.unauthenticated();
    tom.post("/v2/auth/register", faulty).await.forbidden();
    tom.post("/v2/auth/register", body.clone()).await.forbidden();
    assert_eq!(bob.post("/v2/auth/register", body.clone()).await.faults(), ["organizationId"]);
    let key = ana.makes_api_key("script").await;
    let request = app.request(Method::POST, "/v2/auth/register").header("api_auth_token", key);
    let made = app.send(with_json(request, &body)).await.created();
    assert_eq!(made["organizationId"], ana.organization.as_str());
    assert_eq!(ana.post("/v2/auth/register", body.clone()).await.faults(), ["email", "username"]);
    body["organizationId"] = json!(NOBODY);
    body["username"] = json!("new2");
    assert_eq!(ana.post("/v2/auth/register", body).await.faults(), ["organizationId"]);
}

// Holds: newUser.username, newUser.password, newUser.passwordConfirmation, newUser.firstName, newUser.lastName,
// newUser.email, newUser.company, newUser.role, newUser.tosHash, newUser.language
#[tokio::test]
async fn registration_with_several_faults_has_all_of_them_named() {
    let app = TestApp::start().await;
    let all = ["company", "email", "firstName", "lastName", "password", "passwordConfirmation", "role", "username"];
    assert_eq!(app.post("/v2/auth/register", json!({})).await.faults(), all);
    let mut body = new_user("ana", "developer");
    body["passwordConfirmation"] = json!("something else");
    body["email"] = json!("no address");
    body["username"] = json!("");
    body["firstName"] = json!("x".repeat(81));
    body["tosHash"] = json!(7);
    let faults = app.post("/v2/auth/register", body.clone()).await.faults();
    assert_eq!(faults, ["email", "firstName", "passwordConfirmation", "tosHash", "username"]);
    // Naming an organization, even an invalid one, needs credentials.
    body["organizationId"] = json!("north");
    app.post("/v2/auth/register", body.clone()).await.unauthenticated();
    let faults = app.stranger("bob").await.post("/v2/auth/register", body).await.faults();
    assert_eq!(faults, ["email", "firstName", "organizationId", "passwordConfirmation", "tosHash", "username"]);
    let mut body = new_user("ana", "developer");
    (body["password"], body["passwordConfirmation"]) = (json!("short"), json!("short"));
    assert_eq!(app.post("/v2/auth/register", body).await.faults(), ["password"]);
    // Nothing was written.
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
}

#[tokio::test]
async fn email_address_has_one_fault_at_a_time() {
    let app = TestApp::start().await;
    let long = format!("{}@example.com", "x".repeat(250));
    for bad in ["", "x", "no address", "a@b@c", &long, "a\0@example.com"] {
        let mut body = new_user("ana", "developer");
        body["email"] = json!(bad);
        assert_eq!(app.post("/v2/auth/register", body).await.faults(), ["email"], "{bad}");
    }
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
}

// Holds: c1.roles
#[tokio::test]
async fn role_of_a_new_user_is_at_most_the_callers() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let max = ana.invites("max", "manager").await;
    let mut body = new_user("new", "administrator");
    body["organizationId"] = json!(ana.organization);
    max.post("/v2/auth/register", body.clone()).await.forbidden();
    app.post("/v2/auth/register", body.clone()).await.unauthenticated();
    // The role is checked before other faults, but after the credentials.
    max.post("/v2/auth/register", json!({"organizationId": ana.organization, "role": "developer"})).await.forbidden();
    body["role"] = json!("manager");
    max.post("/v2/auth/register", body).await.created();
}

// Holds: c3.register
#[tokio::test]
async fn closed_registration_is_refused() {
    let app = TestApp::with(|settings| settings.hub.registration_open = false).await;
    app.post("/v2/auth/register", new_user("ana", "developer")).await.unauthenticated();
    app.post("/v2/auth/register", json!({})).await.unauthenticated();
    // Existing users can still invite others.
    let admin = app.admin().await;
    admin.invites("ana", "developer").await.get("/v2/auth/user").await.ok();
}

#[tokio::test]
async fn unverified_user_cannot_log_in_when_required() {
    let app = TestApp::with(|settings| settings.hub.require_verified_email = true).await;
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
    app.login("ana", "secret of ana").await.unauthenticated();
    app.admin().await.get("/v2/auth/user").await.ok();
}

// Holds: user.username
#[tokio::test]
async fn concurrent_registrations_of_a_name_make_one_account() {
    let app = TestApp::start().await;
    let register = |number: u32| {
        let mut body = new_user("ana", "developer");
        body["email"] = json!(format!("ana{number}@example.com"));
        app.post("/v2/auth/register", body)
    };
    let answers = futures::future::join_all((0..6).map(register)).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 1);
    for answer in answers.into_iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.faults(), ["username"]);
    }
}
