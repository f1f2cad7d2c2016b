//! Where a search looks, and where it does not.

use serde_json::{Value, json};

use crate::support::app::new_user;
use crate::support::person::text;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(
    a_device_is_found_by_name_description_identifier_and_metadata,
    a_user_is_found_by_names_address_and_company,
    an_organization_is_found_by_name_and_description,
    a_project_is_found_by_name_and_identifier,
);

/// How many of a list a search finds.
async fn hits(person: &Person<'_>, list: &str, words: &str) -> Value {
    let path = format!("/v2/{list}?depth=all&searchText={words}");
    person.get(&path).await.ok()["meta"]["totalDocs"].clone()
}

async fn a_device_is_found_by_name_description_identifier_and_metadata(app: &TestApp) {
    let ana = app.developer("ana").await;
    ana.creates_device("other").await;
    let body = json!({
        "name": "In The Name", "projectUuid": ana.project().await, "description": "in the description",
        "meta": {"labelled": "in a label", "number": 987654, "deep": {"er": "beneath a label"}},
        "protocol": "in the protocol", "versionUuid": "in the version", "streetAddress": {"city": "in the city"},
    });
    let device = ana.creates_device_as(body).await;
    for words in ["IN%20THE%20NAME", "The%20Description", "in%20a%20LABEL", "87654", &device.id, &device.id[1..30]] {
        assert_eq!(hits(&ana, "devices", words).await, 1, "{words}");
    }
    for words in ["labelled", "the%20protocol", "the%20version", "the%20city", "somewhere%20else"] {
        assert_eq!(hits(&ana, "devices", words).await, 0, "{words}");
    }
    assert_eq!(hits(&ana, "devices", "").await, 2);
}

async fn a_user_is_found_by_names_address_and_company(app: &TestApp) {
    let ana = app.developer("ana").await;
    let mut body = new_user("tom", "technician");
    for (member, value) in [
        ("username", "the-username"),
        ("email", "The.Address@example.org"),
        ("firstName", "First"),
        ("lastName", "Last"),
        ("company", "Their Company"),
        ("tosHash", "the-terms"),
        ("language", "the-language"),
    ] {
        body[member] = json!(value);
    }
    let tom = ana.post("/v2/users", body).await.created();
    let title =
        json!({"role": "technician", "company": "Their Company", "jobTitle": "the-title", "reason": "a-reason"});
    ana.put(&format!("/v2/users/{}", text(&tom, "id")), title).await.ok();
    for words in ["THE-USER", "the.address%40EXAMPLE", "first", "LAST", "their%20comp"] {
        assert_eq!(hits(&ana, "users", words).await, 1, "{words}");
    }
    for words in ["the-terms", "the-language", "the-title", "a-reason", "technician", "argon2", text(&tom, "id")] {
        assert_eq!(hits(&ana, "users", words).await, 0, "{words}");
    }
}

async fn an_organization_is_found_by_name_and_description(app: &TestApp) {
    let ana = app.developer("ana").await;
    let body = json!({"name": "North Pole", "description": "Cold and Dark", "deviceTable": {"columns": ["a-column"]}});
    let made = ana.post("/v2/organizations", body).await.created();
    for words in ["NORTH", "th%20po", "cold%20AND"] {
        assert_eq!(hits(&ana, "organizations", words).await, 1, "{words}");
    }
    for words in ["a-column", text(&made, "id")] {
        assert_eq!(hits(&ana, "organizations", words).await, 0, "{words}");
    }
}

async fn a_project_is_found_by_name_and_identifier(app: &TestApp) {
    let ana = app.developer("ana").await;
    ana.creates_project("other").await;
    let project = ana.creates_project("Cold Chain").await;
    let specification = json!({"name": "the-design", "description": "of-the-design"});
    ana.put(&format!("/v2/projects/{project}/specification"), specification).await.ok();
    for words in ["cold", "D%20CHAIN", &project, &project[3..33]] {
        assert_eq!(hits(&ana, "projects", words).await, 1, "{words}");
    }
    for words in ["of-the-design", "api"] {
        assert_eq!(hits(&ana, "projects", words).await, 0, "{words}");
    }
}
