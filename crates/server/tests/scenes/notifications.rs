//! Notifications: their recipients, and their state for each user.

use isobar_power::settled;
use serde_json::{Value, json};

use crate::support::app::new_user;
use crate::support::person::text;
use crate::support::{NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    a_system_notification_reaches_every_user,
    a_notification_is_read_and_unread_again,
    notifications_are_marked_by_time,
    notifications_are_deleted_by_time,
    pages_of_notifications_are_exact,
    notification_reaches_hundreds_of_users_at_once,
    notification_is_emailed_to_users_who_prefer_it,
    account_notification_reaches_its_user_alone,
);

const FUTURE: &str = "/v2/notifications?to=2100-01-01T00:00:00Z";

/// Sends a notification to all users, and advances the clock by a second.
async fn tells(admin: &Person<'_>, message: &str) {
    let answer = admin.post("/v2/notifications/system", json!({"message": message})).await.created();
    assert_eq!((&answer["errors"], answer["message"].is_string()), (&json!([]), true));
    admin.app.wait_seconds(1);
}

/// Returns the messages that a user has.
async fn told(person: &Person<'_>, query: &str) -> Vec<Value> {
    person.get(&format!("/v2/notifications?{query}")).await.list_of("/translations/en/message")
}

async fn newest(person: &Person<'_>) -> Value {
    person.get("/v2/notifications?limit=1").await.ok()["data"][0].clone()
}

// Holds: notification.createdAt, notification.id, notification.type, notification.translations,
// POST /v2/notifications/system, channel.system
async fn a_system_notification_reaches_every_user(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    let bob = app.stranger("bob").await;
    tells(&admin, "we update at noon").await;
    let late = ana.invites("late", "developer").await;
    let expected = json!({
        "createdAt": "2027-01-15T08:00:00.000Z",
        "id": newest(&ana).await["id"],
        "type": "systemNotification",
        "read": false,
        "translations": {"en": {"message": "we update at noon"}},
        "deviceId": null,
        "alarmId": null,
    });
    let url = format!("/v2/notifications/{}", text(&expected, "id"));
    for person in [&admin, &ana, &tom, &bob] {
        assert_eq!(person.get("/v2/notifications").await.ok()["data"], json!([expected]));
        assert_eq!(person.get(&url).await.ok(), expected);
    }
    // A user who is created later does not get it.
    assert_eq!(told(&late, "").await, [""; 0]);
    late.get(&url).await.not_found();
    late.put(&url, json!({"read": true})).await.not_found();
    // An API key can read them too.
    let key = tom.makes_api_key("key").await;
    let asked = app.request(reqwest::Method::GET, &url).header("api_auth_token", key);
    assert_eq!(app.send(asked).await.ok(), expected);
}

// Holds: error.messages, notification.read, state.notification.read, state.notification.unread, GET /v2/notifications,
// GET /v2/notifications/{id}, PUT /v2/notifications/{id}
async fn a_notification_is_read_and_unread_again(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    tells(&admin, "1").await;
    tells(&admin, "2").await;
    let url = format!("/v2/notifications/{}", text(&newest(&ana).await, "id"));
    let answer = ana.put(&url, json!({"read": true, "other": 1})).await.ok();
    assert_eq!((&answer["errors"], answer["message"].is_string()), (&json!([]), true));
    assert_eq!(ana.get(&url).await.ok()["read"], true);
    assert_eq!(told(&ana, "unread=true").await, ["1"]);
    assert_eq!(told(&ana, "unread=false").await, ["2", "1"]);
    // Each user reads them separately.
    assert_eq!(told(&tom, "unread=true").await, ["2", "1"]);
    ana.put(&url, json!({"read": false})).await.ok();
    assert_eq!(told(&ana, "unread=true").await, ["2", "1"]);
    ana.get(&format!("/v2/notifications/{NOBODY}")).await.not_found();
    ana.put(&format!("/v2/notifications/{NOBODY}"), json!({})).await.not_found();
    ana.put("/v2/notifications/none", json!({"read": true})).await.not_found();
    for bad in [json!({}), json!({"read": null}), json!({"read": "true"}), json!({"read": 1})] {
        assert_eq!(ana.put(&url, bad).await.faults(), ["read"]);
    }
    assert_eq!(ana.put(&url, json!([true])).await.faults(), ["body"]);
}

// Holds: state.notification.read, state.notification.unread, query.from, query.to, PUT /v2/notifications
async fn notifications_are_marked_by_time(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    for message in ["08:00:00", "08:00:01", "08:00:02"] {
        tells(&admin, message).await;
    }
    let at = |time: &str| format!("2027-01-15T{time}.000Z");
    let between = |from, to| format!("/v2/notifications?from={}&to={}", at(from), at(to));
    let read = async |path: &str, read: bool| {
        let answer = ana.put(path, json!({"read": read})).await.ok();
        assert_eq!(answer["errors"], json!([]));
        told(&ana, "unread=true").await
    };
    assert_eq!(read(&between("08:00:00", "08:00:01"), true).await, ["08:00:02", "08:00:01"]);
    assert_eq!(read(&between("08:00:02", "08:00:01"), true).await, ["08:00:02", "08:00:01"]);
    assert_eq!(read(FUTURE, true).await, [""; 0]);
    assert_eq!(read(&format!("/v2/notifications?to={}", at("08:00:02")), false).await, ["08:00:01", "08:00:00"]);
    // Times with an offset, and with an unescaped plus.
    assert_eq!(read("/v2/notifications?from=2027-01-15T09:00:01+01:00&to=2028-01-01", true).await, ["08:00:00"]);
    assert_eq!(told(&tom, "unread=true").await.len(), 3);
    // A later notification is not affected, however far the range went.
    tells(&admin, "later").await;
    assert_eq!(told(&ana, "unread=true").await, ["later", "08:00:00"]);
    for (path, body, faults) in [
        ("/v2/notifications", json!({"read": true}), vec!["query.to"]),
        ("/v2/notifications?from=now", json!({}), vec!["query.from", "query.to", "read"]),
        ("/v2/notifications?to=", json!({"read": 1}), vec!["query.to", "read"]),
        (FUTURE, json!(1), vec!["body"]),
    ] {
        assert_eq!(ana.put(path, body).await.faults(), faults, "{path}");
    }
}

// Holds: DELETE /v2/notifications
async fn notifications_are_deleted_by_time(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    for message in ["08:00:00", "08:00:01", "08:00:02"] {
        tells(&admin, message).await;
    }
    let url = format!("/v2/notifications/{}", text(&newest(&ana).await, "id"));
    let middle = "/v2/notifications?from=2027-01-15T08:00:01Z&to=2027-01-15T08:00:02Z";
    let deleted = ana.delete(middle).await.ok();
    assert_eq!(deleted, json!({"message": "the notifications were deleted", "errors": []}));
    assert_eq!(told(&ana, "").await, ["08:00:02", "08:00:00"]);
    ana.delete(FUTURE).await.ok();
    assert_eq!(ana.get("/v2/notifications").await.ok()["meta"]["totalDocs"], 0);
    ana.get(&url).await.not_found();
    ana.put(&url, json!({"read": true})).await.not_found();
    assert_eq!(told(&tom, "").await.len(), 3);
    tells(&admin, "later").await;
    assert_eq!(told(&ana, "").await, ["later"]);
    assert_eq!(ana.delete("/v2/notifications").await.faults(), ["query.to"]);
    assert_eq!(ana.delete("/v2/notifications?from=x&to=y").await.faults(), ["query.from", "query.to"]);
}

// Holds: GET /v2/notifications, c6.order
async fn pages_of_notifications_are_exact(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    for number in 0..7 {
        tells(&admin, &number.to_string()).await;
    }
    assert_eq!(told(&ana, "limit=3&page=2").await, ["3", "2", "1"]);
    let last = ana.get("/v2/notifications?limit=3&page=3").await.ok();
    let meta = json!({
        "totalDocs": 7, "page": 3, "limit": 3, "hasPrevPage": true, "hasNextPage": false, "totalPages": 3,
    });
    assert_eq!((&last["meta"], last["data"].as_array().unwrap().len()), (&meta, 1));
    assert_eq!(told(&ana, "limit=3&page=4").await, [""; 0]);
    assert_eq!(ana.get("/v2/notifications?page=0&unread=yes").await.faults(), ["query.page", "query.unread"]);
}

async fn notification_reaches_hundreds_of_users_at_once(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let mut body = new_user("somebody", "basicUser");
    for member in ["password", "passwordConfirmation"] {
        body.as_object_mut().unwrap().remove(member);
    }
    for number in 0..300 {
        (body["username"], body["email"]) = (json!(format!("u{number}")), json!(format!("u{number}@example.com")));
        ana.post("/v2/users", body.clone()).await.created();
    }
    let tom = ana.invites("tom", "basicUser").await;
    tells(&admin, "hello").await;
    for person in [&admin, &ana, &tom] {
        assert_eq!(told(person, "unread=true").await, ["hello"]);
    }
}

/// Waits for this many letters with these words, and returns them.
async fn letters(app: &TestApp, count: usize, words: &str) -> Vec<String> {
    settled(&format!("{count} letters that say {words}"), async || {
        let letters: Vec<_> = app.mails().into_iter().filter(|letter| letter.contains(words)).collect();
        (letters.len() >= count).then_some(letters)
    })
    .await
}

/// Sets the preferences of a user.
async fn prefers(person: &Person<'_>, preferences: Value) {
    let mut user = person.get("/v2/auth/user").await.ok();
    user["preferences"] = preferences;
    person.put(&format!("/v2/users/{}", person.id), user).await.ok();
}

fn wants_letters(kind: &str, inapp: bool) -> Value {
    json!({"notifications": {kind: {"inapp": inapp, "email": true}}})
}

// Holds: c5.notices
async fn notification_is_emailed_to_users_who_prefer_it(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    app.verifies("tom").await;
    prefers(&tom, wants_letters("systemNotification", false)).await;
    prefers(&ana, wants_letters("deviceNotification", true)).await;
    tells(&admin, "the first word").await;
    tells(&admin, "the second word").await;
    assert!(letters(app, 1, "the second word").await[0].contains("tom@example.com"));
    assert!(letters(app, 1, "the first word").await[0].contains("tom@example.com"));
    // All users were processed by now, and no other prefers a letter.
    assert_eq!(letters(app, 0, "word").await.len(), 2);
    // A system notification appears in the application for any preference.
    for person in [&tom, &ana] {
        assert_eq!(told(person, "").await, ["the second word", "the first word"]);
    }
}

// Holds: c5.notices
async fn account_notification_reaches_its_user_alone(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    let mut user = tom.get("/v2/auth/user").await.ok();
    let promote = async |user: &mut Value, role: &str| {
        user["role"] = json!(role);
        ana.put(&format!("/v2/users/{}", tom.id), user.clone()).await.ok();
    };
    app.verifies("tom").await;
    prefers(&tom, wants_letters("accountNotifications", true)).await;
    user.as_object_mut().unwrap().remove("preferences");
    promote(&mut user, "technician").await;
    let told_tom = newest(&tom).await;
    assert_eq!((&told_tom["type"], &told_tom["read"]), (&json!("accountNotification"), &json!(false)));
    assert!(letters(app, 1, "technician").await[0].contains("tom@example.com"));
    // A user who does not want it in the application does not find it there.
    prefers(&tom, wants_letters("accountNotifications", false)).await;
    promote(&mut user, "manager").await;
    letters(app, 1, "manager").await;
    assert_eq!(tom.get("/v2/notifications").await.ok()["meta"]["totalDocs"], 1);
    // Users who may change this user do not see it either.
    let url = format!("/v2/notifications/{}", text(&told_tom, "id"));
    ana.get(&url).await.not_found();
    ana.put(&url, json!({"read": true})).await.not_found();
    ana.delete(FUTURE).await.ok();
    assert_eq!(tom.get(&url).await.ok(), told_tom);
    tom.put(FUTURE, json!({"read": true})).await.ok();
    assert_eq!(told(&tom, "unread=true").await, [""; 0]);
    tom.put(&url, json!({"read": false})).await.ok();
    assert_eq!(tom.get("/v2/notifications?unread=true").await.ok()["meta"]["totalDocs"], 1);
    tom.delete(FUTURE).await.ok();
    tom.get(&url).await.not_found();
}

#[tokio::test]
async fn emails_are_sent_after_an_immediate_stop() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    app.verifies("ana").await;
    prefers(&ana, wants_letters("systemNotification", true)).await;
    tells(&app.admin().await, "before the end").await;
    let app = app.restart().await;
    let app = app.restart().await;
    assert_eq!(letters(&app, 1, "before the end").await.len(), 1);
    app.end().await;
}

// Holds: POST /v2/notifications/system
#[tokio::test]
async fn text_of_a_system_notification_is_bounded() {
    let app = TestApp::start().await;
    let admin = app.admin().await;
    let says = async |message: Value| admin.post("/v2/notifications/system", json!({"message": message})).await;
    for bad in [json!(""), json!("\u{0}"), json!(null), json!(5), json!("é".repeat(10_001))] {
        assert_eq!(says(bad).await.faults(), ["message"]);
    }
    assert_eq!(admin.post("/v2/notifications/system", json!({})).await.faults(), ["message"]);
    assert_eq!(admin.get("/v2/notifications").await.ok()["meta"]["totalDocs"], 0, "nothing came of it");
    says(json!("é".repeat(10_000))).await.created();
    let ana = app.developer("ana").await;
    ana.post("/v2/notifications/system", json!({"message": ""})).await.forbidden();
}

#[tokio::test]
async fn notifications_outlive_a_restart_but_not_six_months() {
    let app = TestApp::start().await;
    tells(&app.admin().await, "before").await;
    let app = app.restart().await;
    let admin = app.admin().await;
    tells(&admin, "after").await;
    assert_eq!(told(&admin, "").await, ["after", "before"]);
    drop(admin);
    app.wait_seconds(184 * 24 * 3600);
    // The sweep runs at the start too, next to the calls. A clock that has jumped so far removes nothing by itself.
    let app = app.restart().await;
    let admin = app.admin().await;
    tells(&admin, "later").await;
    assert_eq!(told(&admin, "").await, ["later", "after", "before"]);
    drop(admin);
    let app = app.restart_believing_the_clock().await;
    let admin = app.admin().await;
    while told(&admin, "").await != ["later"] {
        tokio::task::yield_now().await;
    }
    app.end().await;
}
