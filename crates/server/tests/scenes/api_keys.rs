//! API keys with fewer rights than their user: by a role, or by an expiry (contract: API keys).

use isobar_power::within_patience;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::person::text;
use crate::support::stream::Stream;
use crate::support::{Answer, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    lower_role_of_api_key_and_user_counts,
    api_key_of_a_system_administrator_has_its_own_role,
    a_key_has_at_most_the_role_of_its_user,
    api_key_is_refused_after_it_expires,
    long_poll_ends_when_its_api_key_expires,
    stream_ends_when_its_api_key_expires,
    restricted_api_key_creates_no_lasting_credentials,
    key_with_a_role_changes_no_role_password_or_other_key,
);

fn keys(person: &Person<'_>) -> String {
    format!("/v2/users/{}/apiKeys", person.id)
}

/// Creates a key of a person from a body, and returns its secret.
async fn key(person: &Person<'_>, mut body: Value) -> String {
    body["name"] = json!("script");
    text(&person.post(&keys(person), body).await.created(), "key").to_owned()
}

/// Sends a request with a key.
async fn with_key(app: &TestApp, key: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let request = app.request(method, path).header("api_auth_token", key);
    app.send(body.iter().fold(request, with_json)).await
}

// Holds: c13.keyRole
async fn lower_role_of_api_key_and_user_counts(app: &TestApp) {
    let ana = app.developer("ana").await;
    let max = ana.invites("max", "manager").await;
    let device = json!({"name": "d", "projectUuid": ana.project().await});
    let key = key(&max, json!({"role": "technician"})).await;
    let creates = async || with_key(app, &key, Method::POST, "/v2/devices", Some(device.clone())).await;
    let makes_user = async || with_key(app, &key, Method::POST, "/v2/users", Some(json!({}))).await;
    creates().await.created();
    makes_user().await.forbidden();
    assert_eq!(max.post("/v2/users", json!({})).await.status, 400, "its user may");
    // When the user's role falls beneath the key's, and rises again, the next call uses it.
    let becomes = async |role: &str| {
        ana.put(&format!("/v2/users/{}", max.id), json!({"role": role, "company": "Acme"})).await.ok();
    };
    for (role, status) in [("basicUser", 403), ("technician", 201), ("developer", 201)] {
        becomes(role).await;
        creates().await.is(status);
        makes_user().await.forbidden();
        assert_eq!(with_key(app, &key, Method::GET, "/v2/auth/user", None).await.ok()["role"], role);
    }
    let listed = max.get(&keys(&max)).await.ok();
    assert_eq!((&listed["data"][0]["role"], &listed["data"][0]["expiresAt"]), (&json!("technician"), &json!(null)));
    // The lowest role is deleted with its user like any other.
    ana.delete(&format!("/v2/users/{}", max.id)).await.no_content();
    creates().await.unauthenticated();
}

// Holds: c13.keyRole
async fn api_key_of_a_system_administrator_has_its_own_role(app: &TestApp) {
    let admin = app.admin().await;
    let ana = app.developer("ana").await;
    let hers = format!("/v2/organizations/{}", ana.organization);
    let own = format!("/v2/organizations/{}", admin.organization);
    let [full, less] = [key(&admin, json!({})).await, key(&admin, json!({"role": "developer"})).await];
    with_key(app, &full, Method::GET, &hers, None).await.ok();
    with_key(app, &less, Method::GET, &hers, None).await.not_found();
    with_key(app, &less, Method::GET, &own, None).await.ok();
    let notice = Some(json!({"message": "hello"}));
    with_key(app, &less, Method::POST, "/v2/notifications/system", notice.clone()).await.forbidden();
    with_key(app, &full, Method::POST, "/v2/notifications/system", notice).await.created();
}

// Holds: c13.keyRole
async fn a_key_has_at_most_the_role_of_its_user(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let named = |role: Value| json!({"name": "k", "role": role});
    tom.post(&keys(&tom), named(json!("manager"))).await.forbidden();
    tom.post(&keys(&tom), named(json!("technician"))).await.created();
    // A role above the caller's own is forbidden; one above the user's is a fault.
    ana.post(&keys(&tom), named(json!("systemAdmin"))).await.forbidden();
    assert_eq!(ana.post(&keys(&tom), named(json!("manager"))).await.faults(), ["role"]);
    ana.post(&keys(&tom), named(json!("basicUser"))).await.created();
    for odd in [json!("unheard"), json!(3), json!(["technician"]), json!("")] {
        assert_eq!(ana.post(&keys(&ana), named(odd)).await.faults(), ["role"]);
    }
    let made = ana.post(&keys(&ana), json!({"name": "k", "role": null, "expiresAt": null})).await.created();
    assert_eq!((&made["role"], &made["expiresAt"]), (&json!(null), &json!(null)));
    // The resource is checked before the role, and the role before the body.
    app.stranger("bob").await.post(&keys(&tom), named(json!("systemAdmin"))).await.not_found();
    tom.post(&keys(&tom), json!({"role": "developer"})).await.forbidden();
    assert_eq!(ana.post(&keys(&ana), json!({"role": 1, "expiresAt": 1})).await.faults(), ["expiresAt", "name", "role"]);
    assert_eq!(tom.get(&keys(&tom)).await.list_of("/role"), [json!("technician"), json!("basicUser")]);
}

// Holds: c13.keyEnd
async fn api_key_is_refused_after_it_expires(app: &TestApp) {
    let ana = app.developer("ana").await;
    // The time may have any offset, and is shown in UTC.
    let made = ana.post(&keys(&ana), json!({"name": "k", "expiresAt": "2027-01-15T09:01:00+01:00"})).await.created();
    assert_eq!(made["expiresAt"], "2027-01-15T08:01:00.000Z");
    let key = text(&made, "key").to_owned();
    let asks = async |header: &str| {
        let asked = app.send(app.request(Method::GET, "/v2/auth/user").header(header, &key)).await;
        let webhook = app.request(Method::POST, "/v2/events/integrations").header(header, &key);
        (asked.status.as_u16(), app.send(with_json(webhook, &json!({}))).await.status.as_u16())
    };
    for header in ["api_auth_token", "authorization"] {
        assert_eq!(asks(header).await, (200, 400), "{header}");
    }
    app.wait_seconds(59);
    assert_eq!(asks("api_auth_token").await, (200, 400));
    app.wait_seconds(1);
    for header in ["api_auth_token", "authorization"] {
        assert_eq!(asks(header).await, (401, 401), "{header}");
    }
    // It is listed with its last use until it is deleted.
    let listed = ana.get(&keys(&ana)).await.ok()["data"][0].clone();
    assert_eq!(listed["lastUsedAt"], "2027-01-15T08:00:59.000Z");
    assert_eq!(listed["expiresAt"], made["expiresAt"]);
    ana.delete(&format!("{}/{}", keys(&ana), text(&made, "id"))).await.no_content();
    for (odd, _) in [("2027-01-15T08:01:00Z", "now"), ("1970-01-01T00:00:00Z", "past"), ("soon", ""), ("", "")] {
        let refused = ana.post(&keys(&ana), json!({"name": "k", "expiresAt": odd})).await;
        assert_eq!(refused.faults(), ["expiresAt"], "{odd}");
    }
    assert_eq!(ana.post(&keys(&ana), json!({"name": "k", "expiresAt": 9})).await.faults(), ["expiresAt"]);
    ana.post(&keys(&ana), json!({"name": "k", "expiresAt": "2027-01-15T08:01:00.001Z"})).await.created();
}

// Holds: c13.keyEnd
async fn long_poll_ends_when_its_api_key_expires(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for (way, end) in [("", "2027-01-15T08:01:00Z"), ("/next", "2027-01-15T08:02:00Z")] {
        let key = key(&ana, json!({"expiresAt": end})).await;
        let path = format!("/v2/events/cloud{way}?wait=60&deviceId={}", device.id);
        let waits = app.send(app.request(Method::GET, &path).header("api_auth_token", &key));
        let waits = within_patience("the end of the wait", waits);
        let happens = async {
            app.get("/health/live").await;
            app.wait_seconds(60);
        };
        tokio::join!(waits, happens).0.unauthenticated();
        // It has taken nothing, and takes nothing later.
        device.queues("alarm", json!(1)).await;
        with_key(app, &key, Method::GET, &path, None).await.unauthenticated();
        let left = device.request(Method::GET, "/v2/events/cloud");
        assert_eq!(app.send(left).await.ok().as_array().unwrap().len(), 1);
    }
}

// Holds: c13.keyEnd
async fn stream_ends_when_its_api_key_expires(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let [brief, long] =
        [key(&ana, json!({"expiresAt": "2027-01-15T08:01:00Z"})).await, key(&ana, json!({"role": "basicUser"})).await];
    let stream = async |key: &str| {
        Stream::of(app.request(Method::GET, "/v2/events/stream").header("api_auth_token", key), None).await
    };
    let (mut brief, mut long) = (stream(&brief).await, stream(&long).await);
    device.posts("reading", json!(1)).await.created();
    assert_eq!(
        (brief.next().await.data["payload"].clone(), long.next().await.data["payload"].clone()),
        (json!(1), json!(1))
    );
    app.wait_seconds(60);
    brief.ends().await;
    device.posts("reading", json!(2)).await.created();
    assert_eq!(long.next().await.data["payload"], 2);
}

// Holds: c13.keyRole
async fn key_with_a_role_changes_no_role_password_or_other_key(app: &TestApp) {
    let ana = app.developer("ana").await;
    let max = ana.invites("max", "manager").await;
    let tom = ana.invites("tom", "technician").await;
    let child = ana.post("/v2/organizations", json!({"name": "below"})).await.created();
    let profile = |person: &Person<'_>| format!("/v2/users/{}", person.id);
    let (other, of_tom) = (key(&max, json!({})).await, key(&tom, json!({})).await);
    // The same holds for a key with the role of its user.
    for role in ["technician", "manager"] {
        let key = key(&max, json!({"role": role})).await;
        let asks = async |method, path: &str, body: Value| with_key(app, &key, method, path, Some(body)).await;
        for lower in ["basicUser", "technician"] {
            asks(Method::PUT, &profile(&max), json!({"role": lower, "company": "Acme"})).await.forbidden();
        }
        // Other faults are not reported.
        asks(Method::PUT, &profile(&max), json!({"role": "basicUser"})).await.forbidden();
        asks(Method::PUT, &profile(&tom), json!({"role": "basicUser", "company": "Acme"})).await.forbidden();
        let secret = "another one";
        let password = json!({"company": "A", "password": secret, "passwordConfirmation": secret});
        for (person, role) in [(&max, "manager"), (&tom, "technician")] {
            let mut body = password.clone();
            body["role"] = json!(role);
            asks(Method::PUT, &profile(person), body).await.forbidden();
        }
        let moved = json!({"role": "manager", "company": "A", "organizationId": child["id"]});
        asks(Method::PUT, &profile(&max), moved).await.forbidden();
        for person in [&max, &tom] {
            asks(Method::POST, &keys(person), json!({"name": "k"})).await.forbidden();
            let first = person.get(&keys(person)).await.list_of("/id")[0].as_str().unwrap().to_owned();
            let first = format!("{}/{first}", keys(person));
            with_key(app, &key, Method::DELETE, &first, None).await.forbidden();
        }
        with_key(app, &key, Method::DELETE, &format!("{}/{NOBODY}", keys(&max)), None).await.forbidden();
        // It may read and send back the profile, and delete itself.
        asks(Method::PUT, &profile(&max), json!({"role": "manager", "company": "Acme"})).await.ok();
        let own = max.get(&keys(&max)).await.list_of("/id").pop().unwrap();
        let own = format!("{}/{}", keys(&max), own.as_str().unwrap());
        with_key(app, &key, Method::DELETE, &own, None).await.no_content();
        with_key(app, &key, Method::GET, "/v2/auth/user", None).await.unauthenticated();
    }
    for untouched in [&other, &of_tom] {
        with_key(app, untouched, Method::GET, "/v2/auth/user", None).await.ok();
    }
    app.login("max", &max.password).await.created();
    app.login("tom", &tom.password).await.created();
    // A key without a role has the rights of its user.
    with_key(app, &other, Method::POST, &keys(&max), Some(json!({"name": "k"}))).await.created();
}

// Holds: c13.keyRole
async fn restricted_api_key_creates_no_lasting_credentials(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let profile = format!("/v2/users/{}", ana.id);
    let bodies = [(json!({"role": "developer"}), 403), (json!({"expiresAt": "2027-01-15T09:00:00Z"}), 201)];
    for (body, others) in bodies {
        let key = key(&ana, body.clone()).await;
        let asks = async |method, path: &str, body: Value| with_key(app, &key, method, path, Some(body)).await;
        // Another key or a password would outlive it.
        for wanted in [json!({"name": "k"}), json!({"name": "k", "role": "basicUser"}), json!({})] {
            asks(Method::POST, &keys(&ana), wanted).await.forbidden();
        }
        let secret = "another one";
        let with_password =
            json!({"role": "developer", "company": "A", "password": secret, "passwordConfirmation": secret});
        asks(Method::PUT, &profile, with_password).await.forbidden();
        app.login("ana", secret).await.unauthenticated();
        // The user's other profile fields may be changed; keys of others may not, by a key with a role.
        asks(Method::PUT, &profile, json!({"role": "developer", "company": "A"})).await.ok();
        asks(Method::POST, &keys(&tom), json!({"name": "k"})).await.is(others);
        with_key(app, &key, Method::GET, &keys(&ana), None).await.ok();
        // It can delete itself.
        let own = ana.get(&keys(&ana)).await.list_of("/id");
        let own = format!("{}/{}", keys(&ana), own.last().unwrap().as_str().unwrap());
        with_key(app, &key, Method::DELETE, &own, None).await.no_content();
        asks(Method::GET, &profile, json!({})).await.unauthenticated();
    }
    let full = key(&ana, json!({})).await;
    with_key(app, &full, Method::POST, &keys(&ana), Some(json!({"name": "k"}))).await.created();
}
