//! Tests that each resource is found by the fields that the contract names, and by no others.

use serde_json::{Value, json};

use crate::support::app::new_user;
use crate::support::person::text;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(
    devices_are_found_by_their_fields,
    users_are_found_by_their_fields,
    organizations_and_projects_are_found_by_their_fields,
);

/// Checks that a part of each of these texts finds only this resource, in any case of letters, and that none of the
/// others does.
async fn is_found_by(ana: &Person<'_>, list: &str, id: &str, found_by: &[&str], hidden: &[&str]) {
    let found = async |words: &str| {
        let part: String = words.chars().skip(1).flat_map(char::to_uppercase).collect();
        ana.get(&format!("{list}?depth=all&searchText={part}")).await.list_of("/id")
    };
    for words in found_by {
        assert_eq!(found(words).await, [id], "{list} by {words}");
    }
    for words in hidden {
        assert_eq!(found(words).await, [] as [Value; 0], "{list} by {words}");
    }
}

// Holds: query.searchText, c1.searchText
async fn devices_are_found_by_their_fields(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana
        .creates_device_as(json!({
            "name": "thename", "description": "thewords", "projectUuid": ana.project().await, "versionUuid": "theversion",
            "protocol": "theprotocol", "meta": {"thelabel": "thevalue", "deep": {"er": ["thedeepest"]}, "n": 987654321},
            "streetAddress": {"city": "thecity"},
        }))
        .await;
    ana.creates_device("another").await;
    let found_by = ["thename", "thewords", &device.id, "thevalue", "thedeepest", "987654321"];
    let hidden = ["theversion", "theprotocol", "thelabel", "thecity"];
    is_found_by(&ana, "/v2/devices", &device.id, &found_by, &hidden).await;
}

// Holds: query.searchText, c1.searchText
async fn users_are_found_by_their_fields(app: &TestApp) {
    let ana = app.developer("ana").await;
    let mut body = new_user("thename", "technician");
    for (member, words) in [
        ("email", "theaddress@example.com"),
        ("firstName", "thefirst"),
        ("lastName", "thelast"),
        ("company", "thecompany"),
        ("language", "thelanguage"),
        ("tosHash", "thehash"),
    ] {
        body[member] = json!(words);
    }
    let user = ana.post("/v2/users", body).await.created();
    let found_by = ["thename", "theaddress", "thefirst", "thelast", "thecompany"];
    is_found_by(&ana, "/v2/users", text(&user, "id"), &found_by, &["thelanguage", "thehash", "technician"]).await;
}

// Holds: query.searchText, c1.searchText
async fn organizations_and_projects_are_found_by_their_fields(app: &TestApp) {
    let ana = app.developer("ana").await;
    let body = json!({"name": "thename", "description": "thewords", "deviceTable": {"a": "thetable"}});
    let made = ana.post("/v2/organizations", body).await.created();
    let id = text(&made, "id");
    is_found_by(&ana, "/v2/organizations", id, &["thename", "thewords"], &["thetable", "critical"]).await;
    let project = ana.creates_project("theproject").await;
    let design = json!({"name": "thedesign", "description": "thewords"});
    ana.put(&format!("/v2/projects/{project}/specification"), design).await.ok();
    is_found_by(&ana, "/v2/projects", &project, &["theproject", &project], &["thedesign", "thewords"]).await;
}
