//! E-mails to users: their order among tenants, their limits in an hour, and that they go to verified addresses.

use isobar_power::becomes;
use reqwest::Method;
use serde_json::{Value, json};

use isobar_hub::LetterBounds;

use crate::support::app::{new_user, with_json};
use crate::support::designs::to;
use crate::support::device::Device;
use crate::support::mail::{Email, SmtpServer};
use crate::support::person::text;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(unverified_address_is_sent_its_verification_alone);

const NO_MORE: &str = "No more e-mails for now";
/// The users of a tenant who prefer e-mails, and the events whose design notifies all of them.
const READERS: usize = 50;
const EVENTS: usize = 40;

fn wants_letters() -> Value {
    let both = json!({"inapp": true, "email": true});
    json!({"notifications": {"deviceNotification": both, "accountNotifications": both, "systemNotification": both}})
}

async fn prefers_letters(person: &Person<'_>) {
    let mut user = person.get("/v2/auth/user").await.ok();
    user["preferences"] = wants_letters();
    person.put(&format!("/v2/users/{}", person.id), user).await.ok();
}

/// Returns a device whose design notifies all users of its events.
async fn teller<'a>(person: &Person<'a>) -> Device<'a> {
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tell", "notify")]}},
        "tell": {"type": "notification", "properties": {"message": "told {{ payload }}", "minimumRole": "basicUser"}},
    });
    let project = person.designs(design).await;
    person.creates_device_as(json!({"name": "d", "projectUuid": project})).await
}

async fn has_heard(person: &Person<'_>, count: usize) {
    becomes(&format!("{count} notifications"), async || {
        let heard = person.get("/v2/notifications?limit=1").await.ok()["meta"]["totalDocs"].clone();
        heard.as_u64().is_some_and(|heard| heard >= count as u64)
    })
    .await;
}

/// Follows the link of a message that asks to verify an address.
async fn follows(app: &TestApp, messages: &[String], name: &str) {
    let of_name = format!("To: {name}@example.com\r\n");
    let message = messages.iter().find(|message| message.contains(&of_name)).unwrap();
    app.get(&Email::read(message).path()).await.is(302);
}

// Holds: c3.letters
#[tokio::test]
async fn link_of_one_tenant_comes_before_the_notices_of_another() {
    let server = SmtpServer::start(0).await;
    let app = TestApp::with(|settings| {
        settings.smtp_url = Some(server.url.clone());
        settings.hub.letters = LetterBounds { account_hour: 60, tenant_hour: 300 };
    })
    .await;
    let (ana, bob, eve) = (app.developer("ana").await, app.stranger("bob").await, app.stranger("eve").await);
    let mut ids = Vec::new();
    for number in 0..READERS {
        let mut body = new_user(&format!("r{number}"), "basicUser");
        body.as_object_mut().unwrap().retain(|name, _| !name.starts_with("password"));
        ids.push(text(&ana.post("/v2/users", body).await.created(), "id").to_owned());
    }
    let verifications = READERS + 3;
    let first = server.messages(verifications).await;
    for (number, id) in ids.iter().enumerate() {
        follows(&app, &first, &format!("r{number}")).await;
        let body = json!({"role": "basicUser", "company": "Acme", "preferences": wants_letters()});
        ana.put(&format!("/v2/users/{id}"), body).await.ok();
    }
    follows(&app, &first, "eve").await;
    prefers_letters(&eve).await;
    let (device, of_eve) = (teller(&ana).await, teller(&eve).await);

    let closed = server.gate.write().await;
    for number in 0..EVENTS {
        device.posts("reading", json!(number)).await.created();
    }
    has_heard(&ana, EVENTS).await;
    of_eve.posts("reading", json!("eve's")).await.created();
    has_heard(&eve, 1).await;
    app.post("/v2/auth/forgot", json!({"emailOrUsername": "bob"})).await.no_content();
    drop(closed);
    // Of 2,000 notices as many become letters as the tenant may still get; each reader gets one letter that says so.
    let letters = 300 - READERS - 1;
    let sent = server.messages(verifications + letters + 2).await.split_off(verifications);
    let place =
        |to: &str| sent.iter().position(|message| message.contains(&format!("To: {to}@example.com\r\n"))).unwrap();
    // They come before the ones that were queued already.
    assert!(place("bob") < 16 && place("eve") < 32, "{} {}", place("bob"), place("eve"));
    let of_readers: Vec<_> = sent.iter().filter(|message| message.contains("To: r")).collect();
    assert_eq!(of_readers.len(), letters);
    for number in 0..READERS {
        let of_one = format!("To: r{number}@example.com\r\n");
        let says_so = |message: &&&String| message.contains(&of_one) && message.contains(NO_MORE);
        assert_eq!(of_readers.iter().filter(says_so).count(), 1, "{number}");
    }
    drop(bob);
}

// Holds: c3.letters
#[tokio::test]
async fn letters_to_an_account_are_bounded_an_hour() {
    let app = TestApp::with(|settings| {
        settings.hub.letters = LetterBounds { account_hour: 5, tenant_hour: 1_000 };
    })
    .await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    app.verifies("tom").await;
    prefers_letters(&tom).await;
    let (profile, path) = (format!("/v2/users/{}", tom.id), "/v2/notifications?limit=1");
    let becomes = async |person: &Person<'_>, role: &str| {
        person.put(&profile, json!({"role": role, "company": "Acme"})).await.ok();
    };
    for _ in 0..4 {
        becomes(&ana, "manager").await;
        becomes(&ana, "technician").await;
    }
    let subjects = |emails: Vec<Email>| emails.into_iter().map(|email| email.subject).collect::<Vec<_>>();
    let notice = "About your account";
    let mut expected = vec!["Verify your e-mail address", notice, notice, notice, NO_MORE];
    let sorted = |mut subjects: Vec<String>| {
        subjects.sort();
        subjects
    };
    expected.sort_unstable();
    assert_eq!(sorted(subjects(app.emails_to("tom@example.com", 5).await)), expected);
    assert_eq!(tom.get(path).await.ok()["meta"]["totalDocs"], 8, "all stand in the application");
    // A restart keeps the counts of the hour. Links are sent all the same.
    let (jwt, id) = (ana.jwt.clone(), tom.id.clone());
    let app = app.restart().await;
    let becomes = async |role: &str| {
        let put = app.request(Method::PUT, &format!("/v2/users/{id}")).bearer_auth(&jwt);
        app.send(with_json(put, &json!({"role": role, "company": "Acme"}))).await
    };
    becomes("manager").await.ok();
    app.post("/v2/auth/forgot", json!({"emailOrUsername": "tom"})).await.no_content();
    expected.push("Set a new password");
    expected.sort_unstable();
    assert_eq!(sorted(subjects(app.emails_to("tom@example.com", 6).await)), expected);
    // The next hour starts at zero; nothing else was queued by then.
    app.wait_seconds(3_600);
    let ana = app.login("ana", "secret of ana").await.created();
    let put = app.request(Method::PUT, &format!("/v2/users/{id}")).bearer_auth(text(&ana, "jwtToken"));
    app.send(with_json(put, &json!({"role": "basicUser", "company": "Acme"}))).await.ok();
    expected.push(notice);
    expected.sort_unstable();
    assert_eq!(sorted(subjects(app.emails_to("tom@example.com", 7).await)), expected);
}

// Holds: c3.letters
async fn unverified_address_is_sent_its_verification_alone(app: &TestApp) {
    let (admin, ana) = (app.admin().await, app.developer("ana").await);
    let device = teller(&ana).await;
    app.verifies("ana").await;
    prefers_letters(&ana).await;
    let mut body = new_user("victim", "basicUser");
    body["firstName"] = json!("Visit https://evil.example now");
    body["company"] = json!("<a href='https://evil.example'>Acme</a>");
    let id = text(&ana.post("/v2/users", body).await.created(), "id").to_owned();
    let profile = format!("/v2/users/{id}");
    let set = |role: &str| json!({"role": role, "company": "Acme", "preferences": wants_letters()});
    ana.put(&profile, set("basicUser")).await.ok();
    let tells = async |message: &str, role: &str| {
        device.posts("reading", json!(message)).await.created();
        admin.post("/v2/notifications/system", json!({"message": message})).await.created();
        ana.put(&profile, set(role)).await.ok();
    };
    for (number, role) in ["technician", "manager", "technician"].into_iter().enumerate() {
        tells("https://evil.example", role).await;
        // All allowed letters have been sent: no other is queued.
        app.emails_to("ana@example.com", 3 + 2 * number).await;
    }
    let only = app.emails_to("victim@example.com", 1).await;
    let text = &only[0].text;
    assert!(
        only[0].subject == "Verify your e-mail address" && !text.contains("evil") && !text.contains("Acme"),
        "{text}"
    );
    app.get(&only[0].path()).await.is(302);
    tells("hello", "manager").await;
    let heard = app.emails_to("victim@example.com", 4).await;
    assert!(heard.len() == 4 && heard.iter().all(|email| !email.text.contains("evil")), "{heard:?}");
}
