//! Dashboards: any number for each organization, the first of which is the one of the specification (contract: Boards).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::person::text;
use crate::support::{Answer, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    boards_are_made_changed_and_deleted,
    boards_are_listed_in_pages_and_orders,
    first_board_is_the_one_of_the_specification,
    boards_are_inherited_together,
    stale_board_is_not_overwritten,
    concurrent_writes_of_a_board_have_one_winner,
    boards_of_other_tenants_are_hidden,
    an_organization_has_a_hundred_boards,
);

fn boards(organization: &str) -> String {
    format!("/v2/organizations/{organization}/dashboards")
}

fn board(organization: &str, id: &str) -> String {
    format!("{}/{id}", boards(organization))
}

fn body(name: &str) -> Value {
    json!({"name": name, "configuration": {"of": name}})
}

async fn makes(person: &Person<'_>, organization: &str, name: &str) -> String {
    text(&person.post(&boards(organization), body(name)).await.created(), "id").to_owned()
}

async fn names(person: &Person<'_>, organization: &str) -> Vec<Value> {
    person.get(&boards(organization)).await.list_of("/name")
}

async fn sends_if(person: &Person<'_>, method: Method, url: &str, tag: &str, name: &str) -> Answer {
    let request = person.request(method, url).header("if-match", tag);
    person.app.send(with_json(request, &body(name))).await
}

async fn tag(person: &Person<'_>, url: &str) -> String {
    person.get(url).await.is(200).header("etag").to_owned()
}

// Holds: POST /v2/organizations/{id}/dashboards, GET /v2/organizations/{id}/dashboards/{dashboardId},
// PUT /v2/organizations/{id}/dashboards/{dashboardId}, DELETE /v2/organizations/{id}/dashboards/{dashboardId}
async fn boards_are_made_changed_and_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let own = ana.organization.clone();
    let tom = ana.invites("tom", "technician").await;
    assert_eq!(names(&tom, &own).await, [json!(null); 0]);
    let whole = json!({"name": "all", "options": {"grid": 12}, "configuration": {"widgets": [{"x": 1}]}});
    let made = ana.post(&boards(&own), whole.clone()).await.created();
    let url = board(&own, text(&made, "id"));
    for member in ["name", "options", "configuration"] {
        assert_eq!(made[member], whole[member]);
    }
    assert_eq!((&made["isInherited"], &made["createdAt"]), (&json!(false), &made["updatedAt"]));
    assert_eq!(tom.get(&url).await.ok(), made);
    app.wait_seconds(3);
    let changed = ana.put(&url, json!({"name": null, "configuration": {}})).await.ok();
    let expected = json!({
        "id": made["id"], "name": null, "projectUuid": null, "isInherited": false, "createdAt": made["createdAt"],
        "updatedAt": "2027-01-15T08:00:03.000Z", "options": {"grid": 12}, "configuration": {},
    });
    assert_eq!(changed, expected);
    assert_eq!(tom.get(&url).await.ok(), expected);
    for refused in [
        ana.put(&url, json!({"name": 1, "options": 5})).await,
        ana.post(&boards(&own), json!({"name": 1, "options": 5})).await,
    ] {
        assert_eq!(refused.faults(), ["configuration", "name", "options"]);
    }
    // The list names the device whose page shows a dashboard, if that is an identifier.
    for (named, told) in [(json!(NOBODY), json!(NOBODY)), (json!("x"), json!(null)), (json!(5), json!(null))] {
        ana.put(&url, json!({"options": {"projectUuid": named}, "configuration": {}})).await.ok();
        assert_eq!(ana.get(&boards(&own)).await.list_of("/projectUuid"), [told]);
    }
    let large = json!({"configuration": {"x": "x".repeat(600_000)}});
    assert_eq!(ana.post(&boards(&own), large).await.faults(), ["configuration"]);
    // A viewer cannot change dashboards, whatever the body is.
    tom.post(&boards(&own), json!({})).await.forbidden();
    tom.put(&url, json!({})).await.forbidden();
    tom.delete(&url).await.forbidden();
    for nothing in [NOBODY, "x", "1"] {
        ana.get(&board(&own, nothing)).await.not_found();
        ana.put(&board(&own, nothing), json!({})).await.not_found();
        ana.delete(&board(&own, nothing)).await.not_found();
    }
    ana.delete(&url).await.no_content();
    ana.delete(&url).await.not_found();
    tom.get(&url).await.not_found();
}

// Holds: GET /v2/organizations/{id}/dashboards
async fn boards_are_listed_in_pages_and_orders(app: &TestApp) {
    let ana = app.developer("ana").await;
    let own = ana.organization.clone();
    for name in ["b", "c", "a"] {
        app.wait_seconds(1);
        makes(&ana, &own, name).await;
    }
    let list = async |query: &str| ana.get(&format!("{}?{query}", boards(&own))).await.list_of("/name");
    assert_eq!(list("").await, ["b", "c", "a"]);
    assert_eq!(list("sortBy=-createdAt").await, ["a", "c", "b"]);
    assert_eq!(list("sortBy=name").await, ["a", "b", "c"]);
    assert_eq!(list("sortBy=-updatedAt").await, ["a", "c", "b"]);
    assert_eq!(list("limit=2&page=2").await, ["a"]);
    let page = ana.get(&format!("{}?limit=2", boards(&own))).await.ok();
    assert_eq!((&page["meta"]["totalDocs"], &page["data"][0]["configuration"]), (&json!(3), &json!(null)));
    for (query, field) in [("page=0", "page"), ("limit=10001", "limit"), ("sortBy=options", "sortBy")] {
        assert_eq!(ana.get(&format!("{}?{query}", boards(&own))).await.faults(), [format!("query.{field}")]);
    }
}

// Holds: c18.boards
async fn first_board_is_the_one_of_the_specification(app: &TestApp) {
    let ana = app.developer("ana").await;
    let own = ana.organization.clone();
    let first = format!("/v2/organizations/{own}/dashboard");
    let shown = async || ana.get(&first).await.ok()["name"].clone();
    ana.put(&first, body("old")).await.ok();
    makes(&ana, &own, "next").await;
    assert_eq!(names(&ana, &own).await, ["old", "next"]);
    ana.put(&first, body("first")).await.ok();
    assert_eq!(names(&ana, &own).await, ["first", "next"]);
    let listed = ana.get(&boards(&own)).await.list_of("/id");
    let id = listed[0].as_str().unwrap();
    ana.put(&board(&own, id), body("FIRST")).await.ok();
    assert_eq!(shown().await, "FIRST");
    ana.delete(&board(&own, id)).await.no_content();
    assert_eq!(shown().await, "next");
    ana.delete(&board(&own, listed[1].as_str().unwrap())).await.no_content();
    assert_eq!(ana.get(&first).await.ok(), json!({"name": null, "options": {}, "configuration": {}}));
}

// Holds: c18.boardsInherited
async fn boards_are_inherited_together(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let tom = ana.invites_into(&low, "tom", "administrator").await;
    let (one, two) = (makes(&ana, &ana.organization, "one").await, makes(&ana, &ana.organization, "two").await);
    assert_eq!(names(&tom, &low).await, [json!(null); 0]);
    tom.get(&board(&low, &one)).await.not_found();
    ana.changes(&ana.organization, json!({"childrenInheritDashboard": true})).await.ok();
    assert_eq!(names(&tom, &low).await, ["one", "two"]);
    assert_eq!(tom.get(&boards(&low)).await.list_of("/isInherited"), [true, true]);
    let lent = tom.get(&board(&low, &two)).await.ok();
    assert_eq!((&lent["configuration"], &lent["isInherited"]), (&json!({"of": "two"}), &json!(true)));
    // It is changed in its own organization, which stays invisible.
    tom.put(&board(&low, &one), body("x")).await.not_found();
    tom.delete(&board(&low, &one)).await.not_found();
    tom.get(&board(&ana.organization, &one)).await.not_found();
    let own = makes(&tom, &low, "own").await;
    assert_eq!(names(&tom, &low).await, ["own"]);
    tom.get(&board(&low, &one)).await.not_found();
    tom.delete(&board(&low, &own)).await.no_content();
    assert_eq!(names(&tom, &low).await, ["one", "two"]);
}

// Holds: c18.boardsEtag
async fn stale_board_is_not_overwritten(app: &TestApp) {
    let ana = app.developer("ana").await;
    let url = board(&ana.organization, &makes(&ana, &ana.organization, "a").await);
    let old = tag(&ana, &url).await;
    let again = async |tag: &str| ana.app.send(ana.request(Method::GET, &url).header("if-none-match", tag)).await;
    again(&old).await.is(304);
    sends_if(&ana, Method::PUT, &url, &old, "b").await.ok();
    let new = tag(&ana, &url).await;
    assert_ne!(old, new);
    assert_eq!(again(&old).await.ok()["name"], "b");
    sends_if(&ana, Method::PUT, &url, &old, "c").await.is(412);
    sends_if(&ana, Method::DELETE, &url, &old, "c").await.is(412);
    let weak = format!("W/{new}");
    sends_if(&ana, Method::PUT, &url, &weak, "c").await.is(412);
    assert_eq!(ana.get(&url).await.ok()["name"], "b");
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(sends_if(&ana, method, &url, "b", "c").await.faults(), ["header.If-Match"]);
    }
    let tom = ana.invites("tom", "basicUser").await;
    sends_if(&tom, Method::PUT, &url, &old, "c").await.forbidden();
    sends_if(&ana, Method::PUT, &url, "*", "d").await.ok();
    sends_if(&ana, Method::DELETE, &url, &tag(&ana, &url).await, "").await.no_content();
    sends_if(&ana, Method::DELETE, &url, "*", "").await.not_found();
}

// Holds: c18.boardsEtag
async fn concurrent_writes_of_a_board_have_one_winner(app: &TestApp) {
    let ana = app.developer("ana").await;
    let url = board(&ana.organization, &makes(&ana, &ana.organization, "a").await);
    for _ in 0..5 {
        let known = tag(&ana, &url).await;
        let put = |name| sends_if(&ana, Method::PUT, &url, &known, name);
        let (left, right) = tokio::join!(put("left"), put("right"));
        let (won, lost) = if left.status == 200 { (left, right) } else { (right, left) };
        lost.is(412);
        assert_eq!(ana.get(&url).await.ok(), won.ok());
    }
}

// Holds: c18.boardsHidden
async fn boards_of_other_tenants_are_hidden(app: &TestApp) {
    let (ana, bob) = (app.developer("ana").await, app.stranger("bob").await);
    let id = makes(&ana, &ana.organization, "a").await;
    for url in [board(&ana.organization, &id), board(&bob.organization, &id)] {
        bob.get(&url).await.not_found();
        bob.put(&url, body("x")).await.not_found();
        bob.delete(&url).await.not_found();
    }
    bob.get(&boards(&ana.organization)).await.not_found();
    bob.post(&boards(&ana.organization), body("x")).await.not_found();
    // It is not found through another organization of the same tenant either.
    let low = ana.founds("Low", &ana.organization).await;
    ana.get(&board(&low, &id)).await.not_found();
    ana.delete(&board(&low, &id)).await.not_found();
    assert_eq!(ana.get(&board(&ana.organization, &id)).await.ok()["name"], "a");
}

// Holds: c18.boards
async fn an_organization_has_a_hundred_boards(app: &TestApp) {
    let ana = app.developer("ana").await;
    for number in 0..100 {
        makes(&ana, &ana.organization, &number.to_string()).await;
    }
    assert_eq!(ana.post(&boards(&ana.organization), body("more")).await.faults(), ["body"]);
    let listed = ana.get(&format!("{}?limit=100", boards(&ana.organization))).await.list_of("/id");
    ana.delete(&board(&ana.organization, listed[7].as_str().unwrap())).await.no_content();
    makes(&ana, &ana.organization, "more").await;
}
