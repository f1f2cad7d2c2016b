//! An event stream ends with its credentials: the token, key, session or user, and the user's rights.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::stream::Stream;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(
    stream_ends_with_its_token_and_can_be_resumed,
    a_stream_ends_with_the_logout_of_its_token,
    a_new_password_ends_the_streams_of_other_sessions,
    a_stream_ends_with_its_api_key,
    a_stream_ends_for_a_user_who_is_disabled_or_deleted,
    a_stream_ends_for_a_user_who_may_no_longer_see_its_scope,
    stream_ends_when_its_device_or_organization_is_deleted,
);

/// Opens a stream of a person, by its token or its API key.
async fn stream(person: &Person<'_>, query: &str) -> Stream {
    Stream::open(person, query, None).await
}

/// Changes a user as an administrator does.
async fn changes_user(ana: &Person<'_>, user: &Person<'_>, change: &[(&str, Value)]) {
    let mut body = json!({"role": "technician", "company": "Acme"});
    change.iter().for_each(|(member, value)| body[*member] = value.clone());
    ana.put(&format!("/v2/users/{}", user.id), body).await.ok();
}

// Holds: c7.stream
async fn stream_ends_with_its_token_and_can_be_resumed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let tom = ana.invites("tom", "technician").await;
    let mut by_token = stream(&tom, "").await;
    let ana = ana.with_key().await;
    let mut by_key = stream(&ana, "").await;
    app.wait_seconds(15 * 60 - 1);
    device.posts("reading", json!(1)).await.created();
    let last = by_token.next().await;
    assert_eq!((&last.data["payload"], &by_key.next().await.data["payload"]), (&json!(1), &json!(1)));
    app.wait_seconds(1);
    device.posts("reading", json!(2)).await.created();
    by_token.ends().await;
    assert_eq!(by_key.next().await.data["payload"], 2);
    // A client refreshes its token, and resumes after the last event that it received.
    let again = tom.request(Method::GET, "/v2/events/stream");
    app.send(again).await.unauthenticated();
    let tom = tom.refreshed().await;
    let mut resumed = Stream::open(&tom, "", Some(&last.id)).await;
    assert_eq!(resumed.next().await.data["payload"], 2);
    device.posts("reading", json!(3)).await.created();
    assert_eq!((&resumed.next().await.data["payload"], &by_key.next().await.data["payload"]), (&json!(3), &json!(3)));
}

async fn a_stream_ends_with_the_logout_of_its_token(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let mut ended = stream(&ana, "").await;
    let logout = ana.request(Method::POST, "/v2/auth/logout");
    let ana = ana.refreshed().await;
    let mut goes_on = stream(&ana, "").await;
    app.send(logout).await.no_content();
    // No event is needed for that.
    ended.ends().await;
    device.posts("reading", json!(1)).await.created();
    assert_eq!(goes_on.next().await.data["payload"], 1);
}

async fn a_new_password_ends_the_streams_of_other_sessions(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let elsewhere = ana.logged_in_again().await;
    let (mut own, mut other) = (stream(&ana, "").await, stream(&elsewhere, "").await);
    let mut by_key = stream(&elsewhere.with_key().await, "").await;
    let mut body = json!({"role": "developer", "company": "Acme", "currentPassword": ana.password});
    (body["password"], body["passwordConfirmation"]) = (json!("another one"), json!("another one"));
    ana.put(&format!("/v2/users/{}", ana.id), body).await.ok();
    other.ends().await;
    device.posts("reading", json!(1)).await.created();
    assert_eq!((&own.next().await.data["payload"], &by_key.next().await.data["payload"]), (&json!(1), &json!(1)));
}

async fn a_stream_ends_with_its_api_key(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let keys = format!("/v2/users/{}/apiKeys", ana.id);
    let own = ana.logged_in_again().await.with_key().await;
    let mut by_key = stream(&own, &format!("?deviceId={}", device.id)).await;
    let mut by_token = stream(&ana, "").await;
    device.posts("reading", json!(1)).await.created();
    assert_eq!((&by_key.next().await.data["payload"], &by_token.next().await.data["payload"]), (&json!(1), &json!(1)));
    for id in ana.get(&keys).await.list_of("/id") {
        ana.delete(&format!("{keys}/{}", id.as_str().unwrap())).await.no_content();
    }
    device.posts("reading", json!(2)).await.created();
    by_key.ends().await;
    assert_eq!(by_token.next().await.data["payload"], 2);
}

// Holds: c2.disabled
async fn a_stream_ends_for_a_user_who_is_disabled_or_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let (tom, kim) = (ana.invites("tom", "technician").await, ana.invites("kim", "technician").await);
    let mut of_tom = stream(&tom, "").await;
    let kim = kim.with_key().await;
    let mut of_kim = stream(&kim, "").await;
    device.posts("reading", json!(1)).await.created();
    assert_eq!((&of_tom.next().await.data["payload"], &of_kim.next().await.data["payload"]), (&json!(1), &json!(1)));
    changes_user(&ana, &tom, &[("disabled", json!(true))]).await;
    device.posts("reading", json!(2)).await.created();
    of_tom.ends().await;
    assert_eq!(of_kim.next().await.data["payload"], 2);
    ana.delete(&format!("/v2/users/{}", kim.id)).await.no_content();
    of_kim.ends().await;
}

async fn a_stream_ends_for_a_user_who_may_no_longer_see_its_scope(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (north, south) = (ana.founds("North", &ana.organization).await, ana.founds("South", &ana.organization).await);
    let tom = ana.invites_into(&north, "tom", "technician").await;
    let device = tom.creates_device_of(ana.project().await, "fridge").await;
    let (mut of_all, mut of_one) = (stream(&tom, "").await, stream(&tom, &format!("?deviceId={}", device.id)).await);
    // Every role may read streams.
    changes_user(&ana, &tom, &[("role", json!("basicUser"))]).await;
    device.posts("reading", json!(1)).await.created();
    assert_eq!((&of_all.next().await.data["payload"], &of_one.next().await.data["payload"]), (&json!(1), &json!(1)));
    changes_user(&ana, &tom, &[("organizationId", json!(south))]).await;
    device.posts("reading", json!(2)).await.created();
    of_all.ends().await;
    of_one.ends().await;
    // A former system administrator sees its own organization alone.
    let root = app.admin().await;
    let sue = root.invites("sue", "systemAdmin").await;
    let mut foreign = stream(&sue, &format!("?organizationId={north}")).await;
    device.posts("reading", json!(3)).await.created();
    assert_eq!(foreign.next().await.data["payload"], 3);
    changes_user(&root, &sue, &[("role", json!("developer"))]).await;
    foreign.ends().await;
}

async fn stream_ends_when_its_device_or_organization_is_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (north, south) = (ana.founds("North", &ana.organization).await, ana.founds("South", &ana.organization).await);
    let nora = ana.invites_into(&north, "nora", "manager").await;
    let project = ana.project().await.to_owned();
    let (moves, goes) = (nora.creates_device_of(&project, "m").await, nora.creates_device_of(&project, "g").await);
    let mut of_moved = stream(&nora, &format!("?deviceId={}", moves.id)).await;
    let mut above = stream(&ana, &format!("?deviceId={}", moves.id)).await;
    let mut of_gone = stream(&nora, &format!("?deviceId={}", goes.id)).await;
    let mut of_south = stream(&ana, &format!("?organizationId={south}")).await;
    ana.put(&moves.url(), json!({"name": "m", "projectUuid": project, "organizationId": south})).await.ok();
    of_moved.ends().await;
    nora.delete(&goes.url()).await.no_content();
    of_gone.ends().await;
    moves.posts("reading", json!(1)).await.created();
    assert_eq!((&above.next().await.data["payload"], &of_south.next().await.data["payload"]), (&json!(1), &json!(1)));
    ana.delete(&moves.url()).await.no_content();
    ana.delete(&format!("/v2/organizations/{south}")).await.no_content();
    of_south.ends().await;
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let app = TestApp::start().await;
    let mut open = {
        let ana = app.developer("ana").await;
        stream(&ana, "").await
    };
    let (_, ()) = tokio::join!(app.restart(), open.ends());
}
