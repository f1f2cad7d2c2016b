//! Changes of users: profile, role, organization, password, and deletion.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::{NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    updated_profile_keeps_omitted_members,
    update_with_several_faults_has_all_of_them_named,
    user_cannot_be_given_a_role_above_the_callers,
    last_system_administrator_cannot_be_demoted,
    a_disabled_user_is_refused_at_once_with_everything,
    a_new_password_ends_the_other_sessions,
    new_password_requires_the_current_one,
    wrong_current_passwords_count_as_failed_logins,
    a_user_moves_and_sees_its_new_place_at_once,
    a_deleted_user_is_gone,
    user_is_notified_of_changes_of_its_account,
);

fn url(person: &Person<'_>) -> String {
    format!("/v2/users/{}", person.id)
}

async fn as_is(person: &Person<'_>) -> Value {
    person.get("/v2/auth/user").await.ok()
}

/// Returns the smallest body that changes only the given members.
fn with(role: &str, change: Value) -> Value {
    let mut body = json!({"role": role, "company": "Acme"});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    body
}

// Holds: user.tosHash, user.names, user.jobTitle, user.times, user.preferences, user.reason, PUT /v2/users/{id},
// c1.put
async fn updated_profile_keeps_omitted_members(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let before = as_is(&tom).await;
    app.wait_seconds(5);
    // A body that was read can be sent back.
    let mut same = tom.put(&url(&tom), before.clone()).await.ok();
    assert_eq!(same["updatedAt"], "2027-01-15T08:00:05.000Z");
    (same["updatedAt"], same["lastActive"]) = (before["updatedAt"].clone(), before["lastActive"].clone());
    assert_eq!(same, before);
    let change = json!({
        "firstName": "Tomé", "jobTitle": "fitter", "language": "pt", "tosHash": "signed", "reason": "asked for",
        "preferences": {"notifications": {"deviceNotification": {"email": true}}},
    });
    let after = tom.put(&url(&tom), with("technician", change)).await.ok();
    for (member, expected) in [
        ("firstName", "Tomé"),
        ("lastName", "Scene"),
        ("company", "Acme"),
        ("jobTitle", "fitter"),
        ("language", "pt"),
        ("tosHash", "signed"),
    ] {
        assert_eq!(after[member], expected, "{member}");
    }
    let notifications = &after["preferences"]["notifications"];
    assert_eq!(notifications["deviceNotification"], json!({"inapp": true, "email": true}));
    assert_eq!(notifications["accountNotifications"], json!({"inapp": true, "email": false}));
    assert!(after.get("reason").is_none(), "it is for the operator alone");
    let cleared = tom.put(&url(&tom), with("technician", json!({"jobTitle": null, "preferences": null}))).await.ok();
    assert_eq!((&cleared["jobTitle"], &cleared["language"]), (&json!(null), &json!("pt")));
    assert_eq!(cleared["preferences"], before["preferences"]);
}

// Holds: user.username, user.email, c1.400
async fn update_with_several_faults_has_all_of_them_named(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let path = url(&tom);
    assert_eq!(ana.put(&path, json!({})).await.faults(), ["company", "role"]);
    let body = json!({
        "username": "", "email": 7, "role": "emperor", "firstName": "", "lastName": "x".repeat(81), "company": "",
        "jobTitle": "x".repeat(81), "language": 1, "tosHash": [], "organizationId": "north", "reason": "",
        "disabled": "yes", "password": "short", "passwordConfirmation": "x".repeat(21),
        "preferences": {"notifications": {"accountNotifications": {"inapp": 1}}},
    });
    let faults = ana.put(&path, body).await.faults();
    let expected = [
        "company",
        "disabled",
        "email",
        "firstName",
        "jobTitle",
        "language",
        "lastName",
        "organizationId",
        "password",
        "passwordConfirmation",
        "passwordConfirmation",
        "preferences.notifications.accountNotifications.inapp",
        "reason",
        "role",
        "tosHash",
        "username",
    ];
    let mut unique = faults.clone();
    unique.dedup();
    let mut expected = expected.to_vec();
    expected.dedup();
    assert_eq!(unique, expected);
    let renamed =
        with("developer", json!({"username": "other", "email": "other@example.com", "organizationId": NOBODY}));
    assert_eq!(ana.put(&path, renamed).await.faults(), ["email", "organizationId", "username"]);
    let alone = with("technician", json!({"password": "new secret"}));
    assert_eq!(ana.put(&path, alone).await.faults(), ["passwordConfirmation"]);
    assert_eq!(as_is(&tom).await["role"], "technician", "nothing was half-done");
}

// Holds: user.role, c1.roles, c2.roles
async fn user_cannot_be_given_a_role_above_the_callers(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (max, tom) = (ana.invites("max", "manager").await, ana.invites("tom", "technician").await);
    tom.put(&url(&tom), with("manager", json!({}))).await.forbidden();
    max.put(&url(&tom), with("administrator", json!({}))).await.forbidden();
    // The role is checked before other faults.
    max.put(&url(&tom), json!({"role": "administrator", "company": 7})).await.forbidden();
    tom.put(&url(&max), with("manager", json!({}))).await.forbidden();
    max.put(&url(&ana), with("basicUser", json!({}))).await.forbidden();
    max.put(&url(&tom), with("technician", json!({"disabled": true}))).await.forbidden();
    tom.put(&url(&tom), with("technician", json!({"disabled": true}))).await.forbidden();
    let north = ana.founds("North", &ana.organization).await;
    tom.put(&url(&tom), with("technician", json!({"organizationId": north}))).await.forbidden();
    assert_eq!(ana.put(&url(&ana), with("developer", json!({"disabled": true}))).await.faults(), ["disabled"]);
    // A new role counts from the next call on.
    tom.put(&url(&max), with("manager", json!({}))).await.forbidden();
    max.put(&url(&tom), with("manager", json!({}))).await.ok();
    tom.put(&url(&max), with("technician", json!({}))).await.ok();
    max.put(&url(&tom), with("manager", json!({}))).await.forbidden();
}

async fn last_system_administrator_cannot_be_demoted(app: &TestApp) {
    let admin = app.admin().await;
    let refused = admin.put(&url(&admin), with("developer", json!({}))).await;
    assert_eq!(refused.faults(), ["role"]);
    assert_eq!(as_is(&admin).await["role"], "systemAdmin");
    let eve = admin.invites("eve", "systemAdmin").await;
    admin.put(&url(&admin), with("developer", json!({}))).await.ok();
    assert_eq!(eve.put(&url(&eve), with("manager", json!({}))).await.faults(), ["role"], "now it is the last");
    eve.put(&url(&admin), with("systemAdmin", json!({}))).await.ok();
    eve.put(&url(&eve), with("manager", json!({}))).await.ok();
}

// Holds: user.disabled, state.user.disabled, c2.disabled
async fn a_disabled_user_is_refused_at_once_with_everything(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let key = tom.makes_api_key("script").await;
    let by_key = || app.request(Method::GET, "/v2/auth/user").header("api_auth_token", &key);
    let by_cookie = || app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &tom.cookie);
    app.send(by_key()).await.ok();
    tom.get("/v2/auth/user").await.ok();
    let disabled = ana.put(&url(&tom), with("technician", json!({"disabled": true}))).await.ok();
    assert_eq!(disabled["disabled"], true);
    tom.get("/v2/auth/user").await.unauthenticated();
    app.send(by_key()).await.unauthenticated();
    app.send(by_cookie()).await.unauthenticated();
    app.login("tom", &tom.password).await.unauthenticated();
    app.send(tom.request(Method::POST, "/v2/auth/logout")).await.unauthenticated();
    // An omitted `disabled` is kept.
    assert_eq!(ana.put(&url(&tom), with("technician", json!({}))).await.ok()["disabled"], true);
    ana.put(&url(&tom), with("technician", json!({"disabled": false}))).await.ok();
    tom.get("/v2/auth/user").await.ok();
    app.send(by_key()).await.ok();
    app.send(by_cookie()).await.created();
}

// Holds: user.password, c3.passwordChange
async fn a_new_password_ends_the_other_sessions(app: &TestApp) {
    let ana = app.developer("ana").await;
    let here = ana.invites("tom", "technician").await;
    let there = Person::known(app, as_is(&here).await, here.password.clone()).await;
    there.get("/v2/auth/user").await.ok();
    let password = |new: &str| with("technician", json!({"password": new, "passwordConfirmation": new}));
    here.put(&url(&here), knowing(&here.password, password("new secret"))).await.ok();
    here.get("/v2/auth/user").await.ok();
    there.get("/v2/auth/user").await.unauthenticated();
    let refresh = |cookie: &str| app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", cookie);
    app.send(refresh(&there.cookie)).await.unauthenticated();
    app.send(refresh(&here.cookie)).await.created();
    app.login("tom", &here.password).await.unauthenticated();
    app.login("tom", "new secret").await.created();
    // A change by another user ends all sessions.
    ana.put(&url(&here), password("given to tom")).await.ok();
    here.get("/v2/auth/user").await.unauthenticated();
    app.login("tom", "given to tom").await.created();
}

/// Adds the current password to a body.
fn knowing(current: &str, mut body: Value) -> Value {
    body["currentPassword"] = json!(current);
    body
}

// Holds: c3.passwordChange
async fn new_password_requires_the_current_one(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let password = |role: &str| with(role, json!({"password": "new secret", "passwordConfirmation": "new secret"}));
    let keyed = tom.logged_in_again().await.with_key().await;
    for thief in [&tom, &keyed] {
        let path = url(&tom);
        for wrong in ["", "new secret", &tom.password.to_uppercase()] {
            assert_eq!(thief.put(&path, knowing(wrong, password("technician"))).await.faults(), ["currentPassword"]);
        }
        for odd in [json!(null), json!(7), json!("x".repeat(1025))] {
            let mut body = password("technician");
            body["currentPassword"] = odd;
            assert_eq!(thief.put(&path, body).await.faults(), ["currentPassword"]);
        }
        let renamed = with(
            "technician",
            json!({"password": "new secret", "passwordConfirmation": "new secret", "username": "other"}),
        );
        assert_eq!(thief.put(&path, knowing("wrong", renamed)).await.faults(), ["username"]);
    }
    app.login("tom", &tom.password).await.created();
    // Other fields need no current password, and an unnecessary one is not checked.
    tom.put(&url(&tom), with("technician", json!({"jobTitle": "Fitter"}))).await.ok();
    tom.put(&url(&tom), knowing("wrong", with("technician", json!({})))).await.ok();
    // A change of another user's password needs no current one.
    ana.put(&url(&tom), knowing("wrong", password("technician"))).await.ok();
    app.login("tom", "new secret").await.created();
    ana.put(&url(&ana), knowing(&ana.password, password("developer"))).await.ok();
    app.login("ana", "new secret").await.created();
}

// Holds: c3.passwordChange
async fn wrong_current_passwords_count_as_failed_logins(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let password = with("technician", json!({"password": "new secret", "passwordConfirmation": "new secret"}));
    for _ in 0..10 {
        assert_eq!(tom.put(&url(&tom), knowing("wrong", password.clone())).await.faults(), ["currentPassword"]);
    }
    let refused = tom.put(&url(&tom), knowing(&tom.password, password.clone())).await.is(429);
    assert_eq!(refused.header("retry-after"), "901");
    app.login("tom", &tom.password).await.is(429);
    app.login("ana", &ana.password).await.created();
    app.wait_seconds(15 * 60);
    let tom = tom.refreshed().await;
    tom.put(&url(&tom), knowing(&tom.password, password)).await.ok();
    app.login("tom", "new secret").await.created();
}

// Holds: user.organizationName, c2.moves
async fn a_user_moves_and_sees_its_new_place_at_once(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let north = ana.founds("North", &ana.organization).await;
    let tom = ana.invites("tom", "technician").await;
    let home = format!("/v2/organizations/{}", ana.organization);
    tom.get(&home).await.ok();
    let outside = with("technician", json!({"organizationId": bob.organization}));
    assert_eq!(ana.put(&url(&tom), outside).await.faults(), ["organizationId"]);
    let moved = ana.put(&url(&tom), with("technician", json!({"organizationId": north}))).await.ok();
    assert_eq!((&moved["organizationId"], &moved["organizationName"]), (&json!(north), &json!("North")));
    tom.get(&home).await.not_found();
    tom.get(&format!("/v2/organizations/{north}")).await.ok();
    bob.put(&url(&tom), with("technician", json!({}))).await.not_found();
}

// Holds: DELETE /v2/users/{id}, c7.delete
async fn a_deleted_user_is_gone(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (tom, max) = (ana.invites("tom", "technician").await, ana.invites("max", "manager").await);
    let key = tom.makes_api_key("script").await;
    let by_key = || app.request(Method::GET, "/v2/auth/user").header("api_auth_token", &key);
    app.send(by_key()).await.ok();
    max.delete(&url(&tom)).await.forbidden();
    tom.delete(&url(&tom)).await.forbidden();
    app.stranger("bob").await.delete(&url(&tom)).await.not_found();
    assert_eq!(ana.delete(&url(&ana)).await.faults(), ["id"]);
    ana.delete(&url(&tom)).await.no_content();
    ana.delete(&url(&tom)).await.not_found();
    ana.get(&url(&tom)).await.not_found();
    tom.get("/v2/auth/user").await.unauthenticated();
    app.send(by_key()).await.unauthenticated();
    let refresh = app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &tom.cookie);
    app.send(refresh).await.unauthenticated();
    app.login("tom", &tom.password).await.unauthenticated();
    // Its names can be used again.
    ana.invites("tom", "basicUser").await;
}

// Holds: notification.type, c5.notices
async fn user_is_notified_of_changes_of_its_account(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let told = async || tom.get("/v2/notifications").await.list_of("/translations/en/message");
    assert!(told().await.is_empty(), "the first sign-in is no news");
    app.login("tom", &tom.password).await.created();
    ana.put(&url(&tom), with("manager", json!({}))).await.ok();
    let news = told().await;
    assert_eq!(news, ["The role of your account is now manager."]);
    let body = with("manager", json!({"password": "new secret", "passwordConfirmation": "new secret"}));
    tom.put(&url(&tom), knowing(&tom.password, body)).await.ok();
    assert!(told().await[0].as_str().unwrap().starts_with("The password of your account was changed."));
    let list = tom.get("/v2/notifications").await.ok();
    assert_eq!(list["data"][0]["type"], "accountNotification");
    // Another loopback address counts separately.
    let elsewhere = std::net::IpAddr::from([127, 0, 0, 2]);
    let client = reqwest::Client::builder().local_address(elsewhere).build().unwrap();
    let login = client.post(format!("http://{}/v2/auth/login", app.address));
    let body = json!({"usernameOrEmail": "tom", "password": "new secret"});
    for _ in 0..2 {
        let login = with_json(login.try_clone().unwrap(), &body).send().await.unwrap();
        assert_eq!(login.status(), 201);
    }
    let news = told().await;
    assert_eq!(news.len(), 3, "{news:?}");
    assert!(news[0].as_str().unwrap().contains("from a new address: 127.0.0.2"), "{news:?}");
}
