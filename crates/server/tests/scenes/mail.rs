//! E-mails with links: an address is verified, a password is set anew.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{new_user, with_json};
use crate::support::mail::{Email, SmtpServer};
use crate::support::{Answer, TestApp, on_both_registries};

on_both_registries!(
    a_new_account_verifies_its_address,
    a_verification_is_sent_again_and_ends_the_older_link,
    forgotten_password_can_be_reset,
    a_reset_link_works_once_and_for_an_hour,
    password_reset_ends_api_keys_on_request,
    emails_on_request_are_limited,
);

const ANA: &str = "ana@example.com";

async fn forgets(app: &TestApp, name: &str) -> Answer {
    app.post("/v2/auth/forgot", json!({"emailOrUsername": name})).await
}

fn reset(token: &str, password: &str) -> Value {
    json!({"token": token, "password": password, "passwordConfirmation": password})
}

// Holds: GET /v2/auth/verify/{nonce}, status.302, c3.verification, c3.links
async fn a_new_account_verifies_its_address(app: &TestApp) {
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
    let email = app.email_to(ANA, 1).await;
    assert_eq!(email.subject, "Verify your e-mail address");
    // HEAD, which mail scanners send, does not use up the link.
    for (path, status) in [(email.path().as_str(), 302), ("/v2/auth/verify/rubbish", 404)] {
        assert_eq!(app.request(Method::HEAD, path).send().await.unwrap().status(), status);
    }
    let verified = app.get(&email.path()).await.is(302);
    assert_eq!(verified.header("location"), "http://127.0.0.1:8080/?verified=1");
    app.get(&email.path()).await.not_found();
    app.get("/v2/auth/verify/rubbish").await.not_found();
    // A browser is sent to the console.
    for path in [email.path().as_str(), "/v2/auth/verify/rubbish"] {
        let accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let browser = app.request(Method::GET, path).header("accept", accept);
        assert_eq!(app.send(browser).await.is(302).header("location"), "http://127.0.0.1:8080/?verified=0");
    }
    // A verified address needs no further e-mail.
    app.get("/v2/auth/verify?emailOrUsername=ana").await.no_content();
    assert_eq!(app.emails_to(ANA, 1).await.len(), 1);
    // A user who was created by another gets a verification e-mail too.
    let ana = crate::support::Person::known(app, me(app, "ana").await, "secret of ana".to_owned()).await;
    ana.invites("tom", "technician").await;
    ana.invites("tess", "technician").await;
    let late = app.email_to("tom@example.com", 1).await;
    let in_time = app.email_to("tess@example.com", 1).await;
    app.wait_seconds(7 * 24 * 3600 - 1);
    app.get(&in_time.path()).await.is(302);
    app.wait_seconds(1);
    app.get(&late.path()).await.not_found();
}

async fn me(app: &TestApp, name: &str) -> Value {
    let tokens = app.login(name, &format!("secret of {name}")).await.created();
    let me = app.request(Method::GET, "/v2/auth/user").bearer_auth(tokens["jwtToken"].as_str().unwrap());
    app.send(me).await.ok()
}

// Holds: GET /v2/auth/verify, c3.again
async fn a_verification_is_sent_again_and_ends_the_older_link(app: &TestApp) {
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
    let first = app.email_to(ANA, 1).await;
    app.get("/v2/auth/verify?emailOrUsername=ANA%40example.com").await.no_content();
    app.get(&first.path()).await.not_found();
    let second = app.email_to(ANA, 2).await;
    let in_body = with_json(app.request(Method::GET, "/v2/auth/verify"), &json!({"emailOrUsername": "ana"}));
    app.send(in_body).await.no_content();
    let third = app.email_to(ANA, 3).await;
    app.get(&second.path()).await.not_found();
    app.get(&third.path()).await.is(302);
    app.get("/v2/auth/verify?emailOrUsername=nobody").await.not_found();
    let empty = with_json(app.request(Method::GET, "/v2/auth/verify"), &json!({}));
    assert_eq!(app.send(empty).await.faults(), ["emailOrUsername"]);
}

// Holds: POST /v2/auth/forgot, POST /v2/auth/reset, status.404
async fn forgotten_password_can_be_reset(app: &TestApp) {
    let ana = app.developer("ana").await;
    app.email_to(ANA, 1).await;
    assert_eq!(app.post("/v2/auth/forgot", json!({})).await.faults(), ["emailOrUsername"]);
    forgets(app, "nobody").await.not_found();
    forgets(app, "ANA").await.no_content();
    let token = app.email_to(ANA, 2).await.token();
    let path = "/v2/auth/reset";
    let all = ["password", "passwordConfirmation", "token"];
    assert_eq!(app.post(path, json!({})).await.faults(), all);
    assert_eq!(app.post(path, reset(&token, "short")).await.faults(), ["password", "passwordConfirmation"]);
    assert_eq!(app.post(path, reset(&token, &"x".repeat(21))).await.faults(), ["password", "passwordConfirmation"]);
    let mut differ = reset(&token, "new secret");
    differ["passwordConfirmation"] = json!("other secret");
    assert_eq!(app.post(path, differ).await.faults(), ["passwordConfirmation"]);
    assert_eq!(app.post(path, reset("rubbish", "new secret")).await.faults(), ["token"]);
    ana.get("/v2/auth/user").await.ok();
    let told = app.post(path, reset(&token, "new secret")).await.ok();
    assert_eq!(told, json!({"message": "the new password is set", "errors": []}));
    ana.get("/v2/auth/user").await.unauthenticated();
    let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &ana.cookie);
    app.send(refresh).await.unauthenticated();
    app.login("ana", "secret of ana").await.unauthenticated();
    app.login("ana", "new secret").await.created();
    assert_eq!(app.post(path, reset(&token, "new secret")).await.faults(), ["token"]);
}

// Holds: POST /v2/auth/reset, c3.links
async fn a_reset_link_works_once_and_for_an_hour(app: &TestApp) {
    app.developer("ana").await;
    forgets(app, "ana").await.no_content();
    let first = app.email_to(ANA, 2).await.token();
    forgets(app, ANA).await.no_content();
    let second = app.email_to(ANA, 3).await.token();
    assert_eq!(app.post("/v2/auth/reset", reset(&first, "new secret")).await.faults(), ["token"]);
    // A verification link resets no password, and the other way round.
    app.get(&format!("/v2/auth/verify/{second}")).await.not_found();
    app.wait_seconds(3600);
    assert_eq!(app.post("/v2/auth/reset", reset(&second, "new secret")).await.faults(), ["token"]);
    forgets(app, "ana").await.no_content();
    let third = app.email_to(ANA, 4).await.token();
    app.wait_seconds(3599);
    let tries = (0..4).map(|_| app.post("/v2/auth/reset", reset(&third, "new secret")));
    let answers = futures::future::join_all(tries).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert!(answers.iter().all(|answer| matches!(answer.status.as_u16(), 200 | 400)));
}

// Holds: POST /v2/auth/reset, c18.endApiKeys
async fn password_reset_ends_api_keys_on_request(app: &TestApp) {
    let (ana, bob) = (app.developer("ana").await, app.stranger("bob").await);
    let [key, of_bob] = [ana.makes_api_key("script").await, bob.makes_api_key("script").await];
    let asks = async |key: &str| {
        let asked = app.request(Method::GET, "/v2/auth/user").header("api_auth_token", key);
        app.send(asked).await.status.as_u16()
    };
    for (number, (ends, left)) in [(json!(false), 200), (json!(null), 200), (json!(true), 401)].into_iter().enumerate()
    {
        forgets(app, "ana").await.no_content();
        let token = app.email_to(ANA, number + 2).await.token();
        let mut body = reset(&token, "new secret");
        body["endApiKeys"] = json!("yes");
        assert_eq!(app.post("/v2/auth/reset", body.clone()).await.faults(), ["endApiKeys"]);
        match ends {
            Value::Null => body.as_object_mut().unwrap().remove("endApiKeys"),
            ends => body.as_object_mut().unwrap().insert("endApiKeys".to_owned(), ends),
        };
        assert_eq!(asks(&key).await, 200);
        app.post("/v2/auth/reset", body).await.ok();
        assert_eq!((asks(&key).await, asks(&of_bob).await), (left, 200));
    }
}

async fn emails_on_request_are_limited(app: &TestApp) {
    app.developer("ana").await;
    for _ in 0..8 {
        forgets(app, "ana").await.no_content();
    }
    app.wait_seconds(15 * 60);
    forgets(app, "ana").await.no_content();
    let reset = |email: &Email| email.subject == "Set a new password";
    let last = app.emails_to(ANA, 7).await;
    assert_eq!(last.iter().filter(|email| reset(email)).count(), 6);
    app.post("/v2/auth/reset", self::reset(&last[6].token(), "new secret")).await.ok();
}

#[tokio::test]
async fn user_without_a_password_sets_one_through_a_reset() {
    let app = TestApp::with(|settings| settings.hub.require_verified_email = true).await;
    let admin = app.admin().await;
    let mut body = new_user("tom", "technician");
    body.as_object_mut().unwrap().retain(|name, _| !name.starts_with("password"));
    admin.post("/v2/users", body).await.created();
    forgets(&app, "tom").await.no_content();
    let emails = app.emails_to("tom@example.com", 2).await;
    let token = emails.iter().find(|email| email.link().contains("resetToken")).unwrap().token();
    app.post("/v2/auth/reset", reset(&token, "own secret")).await.ok();
    // The link came by e-mail, so the address is verified too.
    app.login("tom", "own secret").await.created();
}

// Holds: c3.verification
#[tokio::test]
async fn login_waits_for_verification_when_required() {
    let app = TestApp::with(|settings| settings.hub.require_verified_email = true).await;
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
    app.login("ana", "secret of ana").await.unauthenticated();
    app.get(&app.email_to(ANA, 1).await.path()).await.is(302);
    app.login("ana", "secret of ana").await.created();
}

// Holds: c3.mail
#[tokio::test]
async fn email_refused_by_its_server_is_retried() {
    let server = SmtpServer::start(1).await;
    let app = TestApp::with(|settings| settings.smtp_url = Some(server.url.clone())).await;
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
    server.has_refused(1).await;
    // A stopped server does not lose it either.
    let app = app.restart().await;
    app.wait_seconds(10);
    let messages = server.messages(1).await;
    assert!(messages[0].contains("To: ana@example.com") && messages[0].contains("From: Isobar <isobar@localhost>"));
    app.get(&Email::read(&messages[0]).path()).await.is(302);
}

#[tokio::test]
async fn refused_email_address_delays_no_other() {
    let server = SmtpServer::start(0).await;
    let app = TestApp::with(|settings| settings.smtp_url = Some(server.url.clone())).await;
    app.post("/v2/auth/register", new_user("bad", "developer")).await.created();
    server.has_refused(1).await;
    app.post("/v2/auth/register", new_user("ana", "developer")).await.created();
    assert!(server.messages(1).await[0].contains("To: ana@example.com"));
    app.wait_seconds(10);
    server.has_refused(2).await;
    assert_eq!(server.messages(1).await.len(), 1);
}
