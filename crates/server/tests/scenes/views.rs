//! Views of the device list: each user has its own, in any session (contract: Beyond the specification).

use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::{NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    views_are_made_changed_and_deleted,
    views_are_listed_by_name_in_pages,
    invalid_view_has_each_field_named,
    views_of_others_are_hidden,
    views_go_with_their_user,
    a_user_has_fifty_views,
    last_concurrent_write_of_a_view_wins,
);

const VIEWS: &str = "/v2/views";

fn view(id: &str) -> String {
    format!("{VIEWS}/{id}")
}

fn body(name: &str) -> Value {
    json!({"name": name, "query": "status=critical"})
}

async fn makes(person: &Person<'_>, name: &str) -> String {
    text(&person.post(VIEWS, body(name)).await.created(), "id").to_owned()
}

async fn names(person: &Person<'_>) -> Vec<Value> {
    person.get(VIEWS).await.list_of("/name")
}

// Holds: POST /v2/views, PUT /v2/views/{id}, DELETE /v2/views/{id}
async fn views_are_made_changed_and_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let tom = ana.invites("tom", "basicUser").await;
    assert_eq!(names(&tom).await, [json!(null); 0]);
    let query = "q=K%C3%BChl&filter%5Bmeta.floor%5D%5Bgt%5D=3&sort=-lastActive&columns=name%2Cmeta.floor";
    let whole = json!({"name": "Kühlräume <b>", "organizationId": low, "query": query});
    let made = tom.post(VIEWS, whole.clone()).await.created();
    for member in ["name", "organizationId", "query"] {
        assert_eq!(made[member], whole[member]);
    }
    assert_eq!(made["createdAt"], made["updatedAt"]);
    let url = view(text(&made, "id"));
    app.wait_seconds(3);
    // Omitted members are kept, and null removes a member.
    let changed = tom.put(&url, json!({"name": "cold", "query": ""})).await.ok();
    let expected = json!({
        "id": made["id"], "name": "cold", "organizationId": low, "query": "", "createdAt": made["createdAt"],
        "updatedAt": "2027-01-15T08:00:03.000Z",
    });
    assert_eq!(changed, expected);
    assert_eq!(tom.get(VIEWS).await.ok()["data"], json!([expected]));
    let untied = tom.put(&url, json!({"name": "cold", "query": "", "organizationId": null})).await.ok();
    assert_eq!(untied["organizationId"], json!(null));
    for nothing in [NOBODY, "x", "1"] {
        tom.put(&view(nothing), body("x")).await.not_found();
        tom.delete(&view(nothing)).await.not_found();
    }
    tom.delete(&url).await.no_content();
    tom.delete(&url).await.not_found();
    assert_eq!(names(&tom).await, [json!(null); 0]);
}

// Holds: GET /v2/views
async fn views_are_listed_by_name_in_pages(app: &TestApp) {
    let ana = app.developer("ana").await;
    for name in ["b", "c", "a"] {
        makes(&ana, name).await;
    }
    assert_eq!(names(&ana).await, ["a", "b", "c"]);
    assert_eq!(ana.get(&format!("{VIEWS}?limit=2&page=2")).await.list_of("/name"), ["c"]);
    assert_eq!(ana.get(&format!("{VIEWS}?limit=2")).await.ok()["meta"]["totalDocs"], 3);
    assert_eq!(ana.get(&format!("{VIEWS}?page=0")).await.faults(), ["query.page"]);
}

// Holds: c13.views
async fn invalid_view_has_each_field_named(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let id = makes(&ana, "a").await;
    makes(&ana, "taken").await;
    let long = "x".repeat(8_001);
    for (body, faults) in [
        (json!({}), vec!["name", "query"]),
        (json!({"name": null, "query": null}), vec!["name", "query"]),
        (json!({"name": 1, "query": {}, "organizationId": []}), vec!["name", "organizationId", "query"]),
        (json!({"name": "", "query": "a b"}), vec!["name", "query"]),
        (json!({"name": "é".repeat(81), "query": "ü"}), vec!["name", "query"]),
        (json!({"name": "\0", "query": "\0"}), vec!["name", "query", "query"]),
        (json!({"name": "b", "query": long}), vec!["query"]),
        (json!({"name": "b", "query": "", "organizationId": "x"}), vec!["organizationId"]),
        (json!({"name": "b", "query": "", "organizationId": ""}), vec!["organizationId"]),
        (json!({"name": "b", "query": "", "organizationId": NOBODY}), vec!["organizationId"]),
        (json!({"name": "b", "query": "", "organizationId": bob.organization}), vec!["organizationId"]),
        (body("taken"), vec!["name"]),
        (json!([]), vec!["body"]),
        (json!("a"), vec!["body"]),
    ] {
        assert_eq!(ana.post(VIEWS, body.clone()).await.faults(), faults, "{body}");
        assert_eq!(ana.put(&view(&id), body.clone()).await.faults(), faults, "{body}");
    }
    for text in ["{", "", "[[[[", "{\"name\": \"\\ud800\", \"query\": \"\"}"] {
        assert_eq!(ana.post_text(VIEWS, text).await.faults(), ["body"], "{text}");
        assert_eq!(ana.put_text(&view(&id), text).await.faults(), ["body"], "{text}");
    }
    assert_eq!(names(&ana).await, ["a", "taken"]);
    // With the longest allowed members.
    let longest = json!({"name": "é".repeat(80), "query": "x".repeat(8_000), "organizationId": ana.organization});
    assert_eq!(ana.put(&view(&id), longest.clone()).await.ok()["query"], longest["query"]);
}

// Holds: c13.viewsOwn
async fn views_of_others_are_hidden(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "basicUser").await;
    let (bob, admin) = (app.stranger("bob").await, app.admin().await);
    let id = makes(&tom, "own").await;
    // No other user sees them, with any role.
    for person in [&ana, &bob, &admin] {
        assert_eq!(names(person).await, [json!(null); 0]);
        person.put(&view(&id), body("x")).await.not_found();
        person.put(&view(&id), json!({"name": 1})).await.not_found();
        person.delete(&view(&id)).await.not_found();
    }
    // A name of another user's view is free.
    makes(&ana, "own").await;
    assert_eq!(names(&tom).await, ["own"]);
    // The user is the same with any credentials.
    let keyed = tom.logged_in_again().await.with_key().await;
    assert_eq!(names(&keyed).await, ["own"]);
}

// Holds: c13.viewsOwn
async fn views_go_with_their_user(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let tom = ana.invites("tom", "basicUser").await;
    makes(&tom, "any").await;
    tom.post(VIEWS, json!({"name": "low", "query": "", "organizationId": low})).await.created();
    ana.delete(&format!("/v2/organizations/{low}")).await.no_content();
    assert_eq!(names(&tom).await, ["any"]);
    ana.delete(&format!("/v2/users/{}", tom.id)).await.no_content();
    tom.get(VIEWS).await.unauthenticated();
    // A new user with that name is another user.
    let other = ana.invites("tom", "basicUser").await;
    assert_eq!(names(&other).await, [json!(null); 0]);
}

// Holds: c13.views
async fn a_user_has_fifty_views(app: &TestApp) {
    let ana = app.developer("ana").await;
    let mut last = String::new();
    for number in 0..50 {
        last = makes(&ana, &number.to_string()).await;
    }
    assert_eq!(ana.post(VIEWS, body("more")).await.faults(), ["body"]);
    ana.put(&view(&last), body("changed")).await.ok();
    ana.delete(&view(&last)).await.no_content();
    makes(&ana, "more").await;
    let tom = ana.invites("tom", "basicUser").await;
    makes(&tom, "his").await;
}

/// Checks that each tab writes a whole view: the last write of a view wins, and writes of different views are
/// independent.
// Holds: c13.viewsTabs
async fn last_concurrent_write_of_a_view_wins(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tab = ana.logged_in_again().await;
    let (left, right) = (makes(&ana, "left").await, makes(&tab, "right").await);
    let (one, two) = (view(&left), view(&right));
    let (a, b) = tokio::join!(ana.put(&one, body("LEFT")), tab.put(&two, body("RIGHT")));
    assert_eq!((a.ok()["name"].clone(), b.ok()["name"].clone()), (json!("LEFT"), json!("RIGHT")));
    assert_eq!(names(&ana).await, ["LEFT", "RIGHT"]);
    for _ in 0..5 {
        let (a, b) = tokio::join!(ana.put(&one, body("a")), tab.put(&one, body("b")));
        let written = [a.ok()["name"].clone(), b.ok()["name"].clone()];
        let shown = ana.get(VIEWS).await.list_of("/name");
        assert!(written.contains(&shown[1]), "{shown:?}");
    }
    // Of two concurrent views with one name, one is created.
    let (a, b) = tokio::join!(ana.post(VIEWS, body("new")), tab.post(VIEWS, body("new")));
    let (made, refused) = if a.status == 201 { (a, b) } else { (b, a) };
    made.created();
    assert_eq!(refused.faults(), ["name"]);
}
