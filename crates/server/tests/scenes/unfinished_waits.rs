//! A call that waits for a cloud event loses its rights when its credentials end: it is refused, and takes nothing.

use isobar_power::within_patience;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::{Answer, Device, Person, TestApp, on_both_registries};

on_both_registries!(
    long_poll_ends_with_the_token_of_its_device,
    long_poll_ends_with_the_credentials_of_its_user,
    long_poll_ends_with_its_device,
    long_poll_continues_while_its_credentials_are_valid,
    event_queued_after_credentials_ended_remains,
);

/// Number of attempts to make calls coincide: not all do.
const ROUNDS: usize = 16;

/// Waits for an answer while something happens, before or after the call has arrived.
async fn meanwhile(app: &TestApp, waits: RequestBuilder, happens: impl Future<Output = ()>) -> Answer {
    let waiting = within_patience("the end of the wait", app.send(waits));
    let happening = async {
        // A round trip lets the call begin first.
        app.get("/health/live").await;
        happens.await;
    };
    tokio::join!(waiting, happening).0
}

/// Returns both requests that wait for a cloud event of a device.
fn waits(device: &Device<'_>) -> [String; 2] {
    ["/next", ""].map(|way| format!("/v2/events/cloud{way}?wait=60&deviceId={}", device.id))
}

async fn queues(person: &Person<'_>, device: &Device<'_>, payload: Value) {
    person.post(&format!("{}&elementName=alarm", device.queue()), payload).await.created();
}

async fn rotates<'a>(person: &Person<'_>, device: &Device<'a>) -> Device<'a> {
    let rotated = person.post(&device.at("token"), json!({})).await.created();
    Device { app: device.app, id: device.id.clone(), token: text(&rotated, "token").to_owned() }
}

async fn long_poll_ends_with_the_token_of_its_device(app: &TestApp) {
    let ana = app.developer("ana").await;
    let mut device = ana.creates_device("fridge").await;
    for path in waits(&device) {
        for peek in ["", "&peek=true"] {
            let waits = device.request(Method::GET, &format!("{path}{peek}"));
            let mut newer = None;
            let answer = meanwhile(app, waits, async { newer = Some(rotates(&ana, &device).await) }).await;
            answer.unauthenticated();
            device = newer.unwrap();
        }
    }
    queues(&ana, &device, json!(1)).await;
    assert_eq!(device.takes().await.ok(), 1);
}

async fn long_poll_ends_with_the_credentials_of_its_user(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let [next, list] = waits(&device);
    let profile = |change: Value| {
        let mut body = json!({"role": "technician", "company": "Acme"});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        body
    };
    // The user is disabled, deleted, moved elsewhere, and given a role that is too low.
    let north = ana.founds("North", &ana.organization).await;
    let changes =
        [json!({"disabled": true}), json!({"organizationId": north}), json!({"role": "basicUser"}), json!(null)];
    for (number, change) in changes.into_iter().enumerate() {
        let tom = ana.invites(&format!("tom{number}"), "technician").await;
        let user = format!("/v2/users/{}", tom.id);
        let answer = meanwhile(app, tom.request(Method::GET, &next), async {
            if change.is_null() {
                ana.delete(&user).await.no_content();
            } else {
                ana.put(&user, profile(change)).await.ok();
            }
        });
        answer.await.is([401, 404, 403, 401][number]);
    }
    // A logout, a new password, and the expiry of an access token.
    let tom = ana.invites("tom", "technician").await;
    let logout = tom.request(Method::POST, "/v2/auth/logout");
    let answer = meanwhile(app, tom.request(Method::GET, &list), async {
        app.send(logout).await.no_content();
    });
    answer.await.unauthenticated();
    let tom = tom.refreshed().await;
    let elsewhere = tom.logged_in_again().await;
    let answer = meanwhile(app, elsewhere.request(Method::GET, &next), async {
        let mut password = json!({"password": "another one", "passwordConfirmation": "another one"});
        password["currentPassword"] = json!(tom.password);
        tom.put(&format!("/v2/users/{}", tom.id), profile(password)).await.ok();
    });
    answer.await.unauthenticated();
    // A deleted key.
    let keys = format!("/v2/users/{}/apiKeys", tom.id);
    let key = tom.makes_api_key("waits").await;
    let waits = app.request(Method::GET, &list).header("api_auth_token", key);
    let answer = meanwhile(app, waits, async {
        for id in tom.get(&keys).await.list_of("/id") {
            tom.delete(&format!("{keys}/{}", id.as_str().unwrap())).await.no_content();
        }
    });
    answer.await.unauthenticated();
    let answer = meanwhile(app, tom.request(Method::GET, &next), async { app.wait_seconds(15 * 60) });
    answer.await.unauthenticated();
}

async fn long_poll_ends_with_its_device(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (own, named) = (ana.creates_device("own").await, ana.creates_device("named").await);
    let [next, list] = waits(&named);
    let deletes = async |device: &Device<'_>| ana.delete(&device.url()).await.no_content();
    let by_token = meanwhile(app, own.request(Method::GET, &next), deletes(&own)).await;
    by_token.unauthenticated();
    meanwhile(app, ana.request(Method::GET, &list), deletes(&named)).await.not_found();
}

async fn long_poll_continues_while_its_credentials_are_valid(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let [next, _] = waits(&device);
    let project = ana.project().await.to_owned();
    for by_user in [false, true] {
        let waits = if by_user { ana.request(Method::GET, &next) } else { device.request(Method::GET, &next) };
        let answer = meanwhile(app, waits, async {
            // Other changes do not affect it.
            ana.put(&device.url(), json!({"name": "renamed", "projectUuid": project})).await.ok();
            ana.redesigns(&project, json!({"alarm": {"type": "cloudEvent"}})).await.ok();
            let company = json!({"role": "developer", "company": "Another"});
            ana.put(&format!("/v2/users/{}", ana.id), company).await.ok();
            queues(&ana, &device, json!(by_user)).await;
        });
        assert_eq!(answer.await.ok(), by_user);
    }
}

async fn event_queued_after_credentials_ended_remains(app: &TestApp) {
    let ana = app.developer("ana").await;
    let mut device = ana.creates_device("fridge").await;
    for round in 0..ROUNDS {
        let [next, _] = waits(&device);
        let kim = ana.invites(&format!("kim{round}"), "technician").await;
        let mut newer = None;
        let (by_token, by_user) = (device.request(Method::GET, &next), kim.request(Method::GET, &next));
        let user = format!("/v2/users/{}", kim.id);
        // Both calls wait at once; an event is queued as soon as their credentials have ended.
        let both = async {
            let happening = async {
                app.get("/health/live").await;
                let (rotated, deleted) = tokio::join!(rotates(&ana, &device), ana.delete(&user));
                deleted.no_content();
                queues(&ana, &device, json!(round)).await;
                newer = Some(rotated);
            };
            tokio::join!(app.send(by_token), app.send(by_user), happening)
        };
        let (by_token, by_user, ()) = within_patience("the end of the waits", both).await;
        by_token.unauthenticated();
        by_user.unauthenticated();
        device = newer.unwrap();
        assert_eq!(device.takes().await.ok(), round);
    }
}
