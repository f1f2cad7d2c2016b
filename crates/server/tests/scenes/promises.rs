//! Tests the document's statements on bodies and parameters against the server, in both directions.

use isobar_http::{RouteRow, table};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cases::{Case, Things, name, request};
use crate::support::{Answer, Person, TestApp};

/// Returns the document's description of a row.
fn told<'d>(document: &'d Value, row: &RouteRow) -> &'d Value {
    &document["paths"][row.path][row.method.name().to_lowercase()]
}

/// Resolves a reference to a schema; returns any other schema itself.
fn followed<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    schema["$ref"].as_str().map_or(schema, |reference| document.pointer(&reference[1..]).unwrap())
}

/// Returns the members of a row's JSON body, if it is an object.
fn members<'d>(document: &'d Value, row: &RouteRow) -> Vec<(&'d str, &'d Value)> {
    let body = &told(document, row)["requestBody"]["content"]["application/json"]["schema"];
    let properties = followed(document, body)["properties"].as_object();
    properties.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema)).collect()
}

fn is_nullable(schema: &Value) -> bool {
    let is_null = |kind: &Value| kind == "null";
    schema["type"].as_array().is_some_and(|kinds| kinds.iter().any(is_null))
        || schema["oneOf"].as_array().is_some_and(|choices| choices.iter().any(|choice| is_null(&choice["type"])))
}

/// Returns the message about a field, if the answer names it.
fn said(answer: &Answer, field: &str) -> Option<String> {
    if answer.status != 400 {
        return None;
    }
    let body = answer.json();
    let fault = body["errors"].as_array().unwrap().iter().find(|fault| fault["field"] == field)?.clone();
    Some(fault["message"].as_str().unwrap().to_owned())
}

struct Stage<'a> {
    admin: Person<'a>,
    things: Things<'a>,
    document: Value,
}

impl<'a> Stage<'a> {
    async fn set(app: &'a TestApp) -> Self {
        let ana = app.developer("ana").await;
        let user = ana.invites("user", "basicUser").await;
        let things = Things::made_by(&ana, &user).await;
        Self { admin: app.admin().await, things, document: app.get("/v2/spec").await.ok() }
    }

    /// Sends the case of a row with another value for one member.
    async fn with(&self, row: &RouteRow, case: &Case, member: &str, value: Value) -> Answer {
        let mut case = case.clone();
        let body = case.body.get_or_insert_with(|| json!({}));
        body[member] = value;
        self.admin.app.send(request(self.admin.app, row, &case).bearer_auth(&self.admin.jwt)).await
    }

    fn rows(&self) -> impl Iterator<Item = (RouteRow, Case, Vec<(&str, &Value)>)> {
        let rows = table().into_iter().map(|row| (row, self.things.case(&row), members(&self.document, &row)));
        // A missing resource is reported before its members.
        rows.filter(|(_, case, members)| !members.is_empty() && case.success != 404)
    }
}

// Holds: c1.document
#[tokio::test]
async fn nullable_members_match_the_document() {
    let app = TestApp::start().await;
    let stage = Stage::set(&app).await;
    let mut looked = 0;
    for (row, case, members) in stage.rows() {
        for (member, schema) in members {
            let answer = stage.with(&row, &case, member, json!(null)).await;
            let fault = said(&answer, member);
            let is_told = is_nullable(schema);
            assert_eq!(fault.is_none(), is_told, "{}: {member} of null: {} {}", name(&row), answer.status, answer.text);
            looked += 1;
        }
    }
    assert!(looked > 60, "{looked}");
}

// Holds: c1.document
#[tokio::test]
async fn length_limits_match_the_document() {
    let app = TestApp::start().await;
    let stage = Stage::set(&app).await;
    let of_length = |message: &Option<String>| message.as_deref().is_some_and(|said| said.contains("characters long"));
    let mut looked = 0;
    for (row, case, members) in stage.rows() {
        for (member, schema) in members {
            let is_text = schema["type"] == "string"
                || schema["type"].as_array().is_some_and(|all| all.contains(&json!("string")));
            if !is_text || schema["format"].is_string() {
                continue;
            }
            looked += 1;
            let (least, most) = (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64());
            let text = |length: u64| json!("x".repeat(length as usize));
            let ask = async |length| said(&stage.with(&row, &case, member, text(length)).await, member);
            let told = format!("{}: {member}, {least} to {most:?}", name(&row));
            match most {
                Some(most) => {
                    let beyond = ask(most + 1).await;
                    assert!(beyond.is_some(), "{told}: one more is taken");
                    let at = ask(most).await;
                    assert!(!of_length(&at), "{told}: {at:?}");
                }
                None => assert!(!of_length(&ask(5_000).await), "{told}"),
            }
            // A confirmation that is too short fails because it does not match.
            if member != "passwordConfirmation" {
                assert!(!of_length(&ask(least.max(1)).await), "{told}");
                assert!(least == 0 || ask(least - 1).await.is_some(), "{told}: one less is taken");
            }
        }
    }
    assert!(looked > 40, "{looked}");
}

// Holds: c1.document
#[tokio::test]
async fn required_members_match_the_document() {
    let app = TestApp::start().await;
    let stage = Stage::set(&app).await;
    for (row, case, members) in stage.rows() {
        let body = &told(&stage.document, &row)["requestBody"]["content"]["application/json"]["schema"];
        let required = &followed(&stage.document, body)["required"];
        let mut empty = case.clone();
        empty.body = Some(json!({}));
        let answer = app.send(request(&app, &row, &empty).bearer_auth(&stage.admin.jwt)).await;
        for (member, _) in members {
            let is_told = required.as_array().is_some_and(|all| all.contains(&json!(member)));
            assert_eq!(said(&answer, member).is_some(), is_told, "{}: {member}: {}", name(&row), answer.text);
        }
    }
    for path in ["/v2/events/device", "/v2/events/cloud"] {
        let parameters = stage.document["paths"][path]["post"]["parameters"].as_array().unwrap();
        let element = parameters.iter().find(|parameter| parameter["name"] == "elementName").unwrap();
        assert_eq!(element["required"], true, "{path}");
        let body = &stage.document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let kinds = followed(&stage.document, body)["anyOf"].as_array().unwrap();
        assert!(kinds.len() == 5 && kinds.iter().all(|kind| kind["type"] != "null"), "{path}");
    }
}

// Holds: c1.document
#[tokio::test]
async fn sort_orders_match_the_document() {
    let app = TestApp::start().await;
    let stage = Stage::set(&app).await;
    let mut looked = 0;
    for row in table() {
        let parameters = told(&stage.document, &row)["parameters"].as_array().cloned().unwrap_or_default();
        let Some(sort) = parameters.into_iter().find(|parameter| parameter["name"] == "sortBy") else { continue };
        looked += 1;
        let pattern = sort["schema"]["items"]["pattern"].as_str().unwrap();
        let fields = pattern.split_once('(').unwrap().1.split(')').next().unwrap();
        let case = stage.things.case(&row);
        let ask = async |order: &str| {
            let mut case = case.clone();
            case.path = format!("{}{}sortBy={order}", case.path, if case.path.contains('?') { '&' } else { '?' });
            app.send(request(&app, &row, &case).bearer_auth(&stage.admin.jwt)).await
        };
        for field in fields.split('|').filter(|field| field.chars().all(char::is_alphanumeric)) {
            for order in [field.to_owned(), format!("-{field}"), format!("%2B{field},-{field}")] {
                ask(&order).await.is(200);
            }
        }
        for odd in ["nonsense", "", "--name"] {
            assert_eq!(ask(odd).await.faults(), ["query.sortBy"], "{} by {odd}", name(&row));
        }
    }
    assert_eq!(looked, 11);
}

// Holds: c1.document
#[tokio::test]
async fn public_operations_match_the_document() {
    let app = TestApp::start().await;
    let document = app.get("/v2/spec").await.ok();
    for row in table() {
        let security = &told(&document, &row)["security"];
        let answer =
            app.request(row.method.name().parse::<Method>().unwrap(), &row.path.replace('{', "x").replace('}', ""));
        let refused = answer.send().await.unwrap().status() == 401;
        let open = security == &json!([]) || security.as_array().unwrap().contains(&json!({}));
        assert_eq!(refused, !open, "{}: {security}", name(&row));
    }
}

// Holds: c1.deletes
#[test]
fn delete_is_204_but_where_it_has_a_message() {
    let document = serde_json::to_value(isobar_http::openapi()).unwrap();
    for row in table().into_iter().filter(|row| row.method.name() == "DELETE") {
        let answers = told(&document, &row)["responses"].as_object().unwrap();
        let successes: Vec<_> = answers.keys().filter(|status| status.starts_with('2')).collect();
        let has_a_message = row.path.ends_with("/deviceTable") || row.path == "/v2/notifications";
        assert_eq!(successes, [if has_a_message { "200" } else { "204" }], "{}", name(&row));
    }
}
