//! Versions of designs: kept with each written design, restored, and overwritten only with the current tag (contract:
//! Versions of a design).

use isobar_model::access;
use isobar_model::ids::ProjectId;
use isobar_model::json::RawJson;
use isobar_model::project::SpecificationInput;
use isobar_store::registry::NewSpecification;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::with_json;
use crate::support::designs::to;
use crate::support::{Answer, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    every_written_design_is_kept_as_a_version,
    versions_are_listed_in_pages_and_orders,
    restored_version_becomes_the_newest,
    restored_version_is_checked_by_current_rules,
    a_project_keeps_its_newest_hundred_versions,
    author_of_a_version_is_shown_if_visible,
    a_design_has_an_entity_tag_and_is_not_sent_again,
    stale_design_is_not_overwritten,
    concurrent_writes_of_a_design_have_one_winner,
    invalid_design_is_refused_before_a_stale_one,
);

fn place(project: &str) -> String {
    format!("/v2/projects/{project}/specification")
}

fn versions(project: &str) -> String {
    format!("{}/versions", place(project))
}

fn restore(project: &str, number: u64) -> String {
    format!("{}/{number}/restore", versions(project))
}

/// Returns a design that stores events under this name.
fn storing(store: &str) -> Value {
    let reading = json!({"type": "deviceEvent", "triggers": {"eventReceived": [to(store, "store")]}});
    json!({"reading": reading, store: {"type": "storage"}})
}

fn body(name: &str, elements: Value) -> Value {
    json!({"name": name, "planes": {"cloud": {"elements": elements}}})
}

/// Overwrites a design on a condition.
async fn puts_if(person: &Person<'_>, project: &str, tag: &str, name: &str) -> Answer {
    let request = person.request(Method::PUT, &place(project)).header("if-match", tag);
    person.app.send(with_json(request, &body(name, json!({})))).await
}

async fn tag(person: &Person<'_>, project: &str) -> String {
    person.get(&place(project)).await.is(200).header("etag").to_owned()
}

async fn numbers(person: &Person<'_>, project: &str) -> Vec<Value> {
    person.get(&versions(project)).await.list_of("/number")
}

// Holds: GET /v2/projects/{id}/specification/versions/{number}, c13.versions
async fn every_written_design_is_kept_as_a_version(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("cold").await;
    app.wait_seconds(5);
    let planes = r#"{"edge":{"z":[0.1000,18446744073709551616],"a":"é \" \\"},"cloud":{"elements":{}},"10":1,"9":2}"#;
    let meta = r#"{"z":12345678901234567890123,"a":1.10}"#;
    let exact = format!(
        "{{\"name\":\"exact\",\"createVersion\":\"3\",\"description\":\"to the digit\",\"meta\":{meta},\"planes\":{planes}}}"
    );
    ana.put_text(&place(&project), exact).await.ok();
    app.wait_seconds(5);
    ana.put(&place(&project), body("designed", storing("log"))).await.ok();
    let head = |number: u64, seconds: u64, name: &str, elements: u64| {
        json!({
            "number": number, "createdAt": format!("2027-01-15T08:00:{seconds:02}.000Z"), "createdById": ana.id,
            "name": name, "elementCount": elements,
        })
    };
    let expected = [head(3, 10, "designed", 2), head(2, 5, "exact", 0), head(1, 0, "cold", 0)];
    assert_eq!(ana.get(&versions(&project)).await.ok()["data"], json!(expected));
    let exact = ana.get(&format!("{}/2", versions(&project))).await.is(200);
    assert!(exact.text.contains(&format!("\"planes\":{planes}")), "{}", exact.text);
    assert!(exact.text.contains(&format!("\"meta\":{meta}")), "{}", exact.text);
    let exact = exact.json();
    assert_eq!((&exact["createVersion"], &exact["description"]), (&json!("3"), &json!("to the digit")));
    for (member, value) in head(2, 5, "exact", 0).as_object().unwrap() {
        assert_eq!(&exact[member], value);
    }
    // A refused design makes no version, and neither does a dry run.
    ana.put(&place(&project), body("bad", json!({"x": {"type": "unheard"}}))).await.is(400);
    let try_out = json!({"elementName": "reading", "payload": 1});
    ana.post(&format!("{}/test", place(&project)), try_out).await.ok();
    assert_eq!(numbers(&ana, &project).await, [3, 2, 1]);
    // They are deleted with their project.
    ana.delete(&format!("/v2/projects/{project}")).await.no_content();
    ana.get(&versions(&project)).await.not_found();
    ana.get(&format!("{}/1", versions(&project))).await.not_found();
}

// Holds: GET /v2/projects/{id}/specification/versions
async fn versions_are_listed_in_pages_and_orders(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("b").await;
    for (name, store) in [("a", "x"), ("b", "y"), ("a", "z")] {
        app.wait_seconds(1);
        ana.put(&place(&project), body(name, storing(store))).await.ok();
    }
    let list = async |query: &str| ana.get(&format!("{}?{query}", versions(&project))).await.list_of("/number");
    assert_eq!(list("").await, [4, 3, 2, 1]);
    assert_eq!(list("sortBy=number").await, [1, 2, 3, 4]);
    assert_eq!(list("sortBy=-createdAt").await, [4, 3, 2, 1]);
    assert_eq!(list("sortBy=name").await, [2, 4, 1, 3]);
    assert_eq!(list("sortBy=elementCount,-name").await, [1, 3, 4, 2]);
    assert_eq!(list("limit=2&page=2").await, [2, 1]);
    assert_eq!(list("limit=2&page=3").await, [0; 0]);
    let meta = ana.get(&format!("{}?limit=3", versions(&project))).await.ok()["meta"].clone();
    assert_eq!((&meta["totalDocs"], &meta["hasNextPage"]), (&json!(4), &json!(true)));
    for (query, field) in [("page=0", "page"), ("limit=10001", "limit"), ("sortBy=planes", "sortBy")] {
        let refused = ana.get(&format!("{}?{query}", versions(&project))).await.faults();
        assert_eq!(refused, [format!("query.{field}")]);
    }
    for number in ["0", "5", "01", "-1", "1.0", "x", "99999999999999999999999", "1%00"] {
        ana.get(&format!("{}/{number}", versions(&project))).await.not_found();
        ana.post(&format!("{}/{number}/restore", versions(&project)), json!({})).await.not_found();
    }
    ana.get(&versions(NOBODY)).await.not_found();
}

// Holds: POST /v2/projects/{id}/specification/versions/{number}/restore, c13.restore
async fn restored_version_becomes_the_newest(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    let device = ana.creates_device_of(&project, "fridge").await;
    ana.put(&place(&project), body("old", storing("old"))).await.ok();
    device.posts("reading", json!(1)).await.created();
    ana.put(&place(&project), body("new", storing("new"))).await.ok();
    device.posts("reading", json!(2)).await.created();
    app.wait_seconds(60);
    let made = ana.post(&restore(&project, 2), json!({})).await.created();
    let expected = json!({
        "number": 4, "createdAt": "2027-01-15T08:01:00.000Z", "createdById": ana.id, "name": "old", "elementCount": 2,
    });
    assert_eq!(made, expected);
    // The next event runs it.
    device.posts("reading", json!(3)).await.created();
    assert_eq!(ana.get(&device.at("data/old")).await.list_of("/payload"), [3, 1]);
    assert_eq!(ana.get(&device.at("data/new")).await.list_of("/payload"), [2]);
    let present = ana.get(&place(&project)).await.ok();
    assert_eq!((&present["name"], &present["lastModified"]), (&json!("old"), &json!("2027-01-15T08:01:00.000Z")));
    assert_eq!(
        (&present["created"], &present["planes"]),
        (&json!("2027-01-15T08:00:00.000Z"), &body("", storing("old"))["planes"])
    );
    assert_eq!(numbers(&ana, &project).await, [4, 3, 2, 1]);
    // The current version can be restored too, and the call needs no body.
    let again = ana.request(Method::POST, &restore(&project, 4));
    assert_eq!(app.send(again).await.created()["number"], 5);
    // A viewer cannot restore, and an unknown version is reported first.
    let basic = ana.invites("basic", "basicUser").await;
    basic.get(&versions(&project)).await.ok();
    basic.get(&format!("{}/2", versions(&project))).await.ok();
    basic.post(&restore(&project, 2), json!({})).await.forbidden();
    basic.post(&restore(&project, 77), json!({})).await.not_found();
    app.stranger("bob").await.post(&restore(&project, 2), json!({})).await.not_found();
    assert_eq!(numbers(&ana, &project).await, [5, 4, 3, 2, 1]);
}

/// Stores a design that an earlier release accepted and this one refuses.
async fn of_an_earlier_release(app: &TestApp, project: &str) {
    let planes = r#"{"cloud":{"elements":{"x":{"type":"unheard"},"y":{"type":"storage"}}}}"#;
    let input = SpecificationInput {
        name: "earlier".to_owned(),
        create_version: "2".to_owned(),
        description: String::new(),
        meta: RawJson::trusted("{}".into()),
        planes: RawJson::trusted(planes.into()),
    };
    let project: ProjectId = project.parse().unwrap();
    let permit = access::system(project, "an earlier release has written it");
    let new = NewSpecification::new(input);
    app.registry()
        .specification_write(
            &permit,
            &new,
            None,
            &[],
            &isobar_model::retention::DesignRetention::new(),
            app.clock.now(),
        )
        .await
        .unwrap();
}

// Holds: c13.restore
async fn restored_version_is_checked_by_current_rules(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    of_an_earlier_release(app, &project).await;
    ana.put(&place(&project), body("new", storing("new"))).await.ok();
    // It is stored, shown and listed; it is compiled only when somebody restores it.
    let earlier = ana.get(&format!("{}/2", versions(&project))).await.ok();
    assert_eq!((&earlier["elementCount"], &earlier["createdById"]), (&json!(2), &json!(null)));
    let as_a_put = ana.put(&place(&project), json!({"name": "n", "planes": earlier["planes"]})).await.faults();
    assert_eq!(ana.post(&restore(&project, 2), json!({})).await.faults(), as_a_put);
    assert!(as_a_put.iter().any(|field| field.starts_with("planes.cloud.elements.x")), "{as_a_put:?}");
    // The current version stays.
    assert_eq!(ana.get(&place(&project)).await.ok()["name"], "new");
    assert_eq!(numbers(&ana, &project).await, [3, 2, 1]);
}

// Holds: c13.versions
async fn a_project_keeps_its_newest_hundred_versions(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    for number in 2..=102 {
        ana.put(&place(&project), body(&format!("of {number}"), json!({}))).await.ok();
    }
    let kept = ana.get(&format!("{}?limit=1000", versions(&project))).await.list_of("/number");
    assert_eq!(kept, (3..=102).rev().map(|number| json!(number)).collect::<Vec<_>>());
    ana.get(&format!("{}/2", versions(&project))).await.not_found();
    ana.post(&restore(&project, 2), json!({})).await.not_found();
    // A number is not used again, and the oldest version can be restored.
    assert_eq!(ana.post(&restore(&project, 3), json!({})).await.created()["number"], 103);
    assert_eq!(ana.get(&place(&project)).await.ok()["name"], "of 3");
    assert_eq!(ana.get(&versions(&project)).await.ok()["meta"]["totalDocs"], 100);
}

// Holds: c13.versions
async fn author_of_a_version_is_shown_if_visible(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let nora = ana.invites_into(&north, "nora", "developer").await;
    let eve = ana.invites("eve", "developer").await;
    let project = ana.creates_project("shared").await;
    eve.put(&place(&project), body("of eve", json!({}))).await.ok();
    let writers = async |person: &Person<'_>| person.get(&versions(&project)).await.list_of("/createdById");
    assert_eq!(writers(&ana).await, [json!(eve.id), json!(ana.id)]);
    assert_eq!(writers(&nora).await, [json!(null), json!(null)]);
    let whole = format!("{}/2", versions(&project));
    assert_eq!(nora.get(&whole).await.ok()["createdById"], json!(null));
    let moved = json!({"role": "developer", "company": "Acme", "organizationId": north});
    ana.put(&format!("/v2/users/{}", eve.id), moved).await.ok();
    assert_eq!(writers(&nora).await, [json!(eve.id), json!(null)]);
    assert_eq!(nora.get(&whole).await.ok()["createdById"], json!(eve.id));
    nora.post(&restore(&project, 1), json!({})).await.forbidden();
}

// Holds: c13.etag
async fn a_design_has_an_entity_tag_and_is_not_sent_again(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    let first = tag(&ana, &project).await;
    assert!(first.starts_with('"') && first.ends_with('"') && first.len() > 2, "{first} is no strong tag");
    let asks =
        async |known: &str| app.send(ana.request(Method::GET, &place(&project)).header("if-none-match", known)).await;
    for known in [&*first, "*", &format!("W/{first}"), &format!("\"other\", {first}")] {
        let unchanged = asks(known).await.is(304);
        assert_eq!((&*unchanged.text, unchanged.header("etag")), ("", &*first), "{known}");
    }
    for known in ["\"other\"", "", "nonsense", first.trim_matches('"')] {
        assert_eq!(asks(known).await.is(200).header("etag"), first, "{known}");
    }
    let head = app.send(ana.request(Method::HEAD, &place(&project))).await.is(200);
    assert_eq!(head.header("etag"), first);
    // A design may have credentials for other servers, so browsers must not cache it.
    assert_eq!(asks(&first).await.header("cache-control"), "no-store");
    assert_eq!(head.header("cache-control"), "no-store");
    // Each written design has another tag, whatever its content.
    let same = ana.get(&place(&project)).await.ok();
    ana.put(&place(&project), same).await.ok();
    let second = tag(&ana, &project).await;
    assert_ne!(second, first);
    asks(&first).await.is(200);
    asks(&second).await.is(304);
    // A caller without access is not answered by tag either.
    let bob = app.stranger("bob").await;
    app.send(bob.request(Method::GET, &place(&project)).header("if-none-match", "*")).await.not_found();
}

// Holds: c13.etag
async fn stale_design_is_not_overwritten(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    let first = tag(&ana, &project).await;
    puts_if(&ana, &project, &first, "second").await.ok();
    let outdated = puts_if(&ana, &project, &first, "third").await.is(412).json();
    assert!(outdated["message"].as_str().unwrap().contains("has been changed"), "{outdated}");
    let second = tag(&ana, &project).await;
    // A weak tag means equivalent content, not the same version.
    for other in [&*format!("W/{second}"), "\"\"", &format!("{first}, \"x\"")] {
        puts_if(&ana, &project, other, "third").await.is(412);
    }
    assert_eq!(ana.get(&place(&project)).await.ok()["name"], "second");
    puts_if(&ana, &project, &format!("{first},{second}"), "third").await.ok();
    puts_if(&ana, &project, "*", "fourth").await.ok();
    // Several lines are one list.
    let fourth = tag(&ana, &project).await;
    let lines = ana.request(Method::PUT, &place(&project)).header("if-match", "\"x\"").header("if-match", &fourth);
    app.send(with_json(lines, &body("fifth", json!({})))).await.ok();
    // A restore is a change too.
    let restores =
        async |tag: &str| app.send(ana.request(Method::POST, &restore(&project, 1)).header("if-match", tag)).await;
    restores(&fourth).await.is(412);
    assert_eq!(restores(&tag(&ana, &project).await).await.created()["number"], 6);
    for odd in ["", "nonsense", "\"open", "*, \"a\""] {
        assert_eq!(puts_if(&ana, &project, odd, "odd").await.faults(), ["header.If-Match"], "{odd}");
        assert_eq!(restores(odd).await.faults(), ["header.If-Match"], "{odd}");
    }
    assert_eq!(numbers(&ana, &project).await, [6, 5, 4, 3, 2, 1]);
}

// Holds: c13.etag
async fn concurrent_writes_of_a_design_have_one_winner(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    for round in 0..3_u64 {
        let known = tag(&ana, &project).await;
        let writers = (0..16).map(|writer| {
            let (ana, project, known) = (&ana, &project, &known);
            async move {
                let name = format!("{round} of {writer}");
                (puts_if(ana, project, known, &name).await, name)
            }
        });
        let answers = futures::future::join_all(writers).await;
        let won: Vec<_> = answers.iter().filter(|(answer, _)| answer.status == 200).collect();
        let lost = answers.iter().filter(|(answer, _)| answer.status == 412).count();
        assert_eq!((won.len(), lost), (1, 15), "{answers:?}");
        assert_eq!(ana.get(&place(&project)).await.ok()["name"], *won[0].1);
        assert_eq!(numbers(&ana, &project).await.len() as u64, round + 2);
    }
}

// Holds: c13.etag
async fn invalid_design_is_refused_before_a_stale_one(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    let basic = ana.invites("basic", "basicUser").await;
    let outdated = |person: &Person<'_>| person.request(Method::PUT, &place(&project)).header("if-match", "\"x\"");
    app.send(app.request(Method::PUT, &place(&project)).header("if-match", "\"x\"")).await.unauthenticated();
    let bad = body("bad", json!({"x": {"type": "unheard"}}));
    app.send(with_json(outdated(&basic), &bad)).await.forbidden();
    app.send(with_json(outdated(&ana), &bad)).await.is(400);
    app.send(with_json(outdated(&ana), &body("good", json!({})))).await.is(412);
    // Faults of a header and a body are reported together.
    let odd = ana.request(Method::PUT, &place(&project)).header("if-match", "x");
    assert_eq!(app.send(with_json(odd, &json!({}))).await.faults(), ["header.If-Match", "name"]);
    assert_eq!(numbers(&ana, &project).await, [1]);
}
