//! Every answer of every scene is checked against the OpenAPI document: its status is listed, and its body has the
//! described shape without further members.

use std::sync::LazyLock;

use serde_json::Value;

use super::Answer;

pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(isobar_http::openapi()).unwrap());

/// Checks that the document describes this answer.
pub fn tells_of(answer: &Answer) {
    let (status, kind) = (answer.status.as_u16(), answer.header("content-type"));
    let Some(operation) = operation(&answer.question) else {
        assert!(matches!(status, 404 | 405 | 429), "the document has no such operation: {answer:?}");
        return;
    };
    let told = &operation["responses"][status.to_string()];
    assert!(told.is_object(), "the document does not list this status: {answer:?}");
    let kind = kind.split(';').next().unwrap_or_default();
    let told = followed(told);
    let Some(content) = told["content"].as_object() else {
        assert_eq!(answer.text, "", "the document tells of no body: {answer:?}");
        return;
    };
    let content = content.get(kind).unwrap_or_else(|| panic!("the document does not tell of {kind}: {answer:?}"));
    if kind == "application/json"
        && !answer.question.starts_with("HEAD ")
        && let Some(fault) = fault(&answer.json(), &content["schema"], "$")
    {
        panic!("{fault}, by the document: {answer:?}");
    }
}

/// Checks that the document describes an endless answer of this status and media type.
pub fn tells_of_stream(question: &str, status: u16, kind: &str) {
    let operation = operation(question).unwrap_or_else(|| panic!("the document has no such operation: {question}"));
    let told = followed(&operation["responses"][status.to_string()]);
    assert!(told["content"].get(kind).is_some(), "the document does not tell of {status} with {kind}: {question}");
}

/// Checks that a value is what the document calls `schema`.
pub fn tells_of_value(value: &Value, schema: &str) {
    let told = &DOCUMENT["components"]["schemas"][schema];
    assert!(told.is_object(), "the document has no {schema}");
    if let Some(fault) = fault(value, told, "$") {
        panic!("{fault}, by the document: {value}");
    }
}

/// Returns the operation of a request line like `GET http://host/v2/devices?page=1`: of two matching paths, the more
/// literal one.
fn operation(question: &str) -> Option<&'static Value> {
    let (method, url) = question.split_once(' ')?;
    let path = url.split_once("://").map_or(url, |(_, rest)| &rest[rest.find('/').unwrap_or(rest.len())..]);
    let asked: Vec<&str> = path.split(['?', '#']).next()?.split('/').collect();
    let fits = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        let fit = |(part, asked): (&&str, &&str)| part == asked || (part.starts_with('{') && !asked.is_empty());
        parts.len() == asked.len() && parts.iter().zip(&asked).all(fit)
    };
    let paths = DOCUMENT["paths"].as_object()?.iter().filter(|(path, _)| fits(path));
    let (_, item) = paths.min_by_key(|(path, _)| path.matches('{').count())?;
    // HEAD is answered where GET is.
    item.get(method.to_lowercase().replace("head", "get"))
}

/// Follows a reference.
fn followed(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(&reference[1..]).unwrap(),
        None => value,
    }
}

/// Returns the fault of a value by its schema, with as much of JSON Schema as our document uses.
fn fault(value: &Value, schema: &'static Value, at: &str) -> Option<String> {
    let schema = followed(schema);
    if let Some(choices) = schema["oneOf"].as_array() {
        let faults: Vec<_> = choices.iter().map_while(|choice| fault(value, choice, at)).collect();
        return (faults.len() == choices.len()).then(|| faults.join("; or "));
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(value, kind)) {
        return Some(format!("{at} is no {}", kinds.join(" or ")));
    }
    if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
        return Some(format!("{at} is none of {}", schema["enum"]));
    }
    match value {
        Value::Array(items) if schema["items"].is_object() => {
            items.iter().enumerate().find_map(|(index, item)| fault(item, &schema["items"], &format!("{at}[{index}]")))
        }
        Value::Object(members) => {
            let parts = parts(schema);
            let missing = parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten());
            let mut missing = missing.filter_map(Value::as_str).filter(|name| !members.contains_key(*name));
            missing.next().map(|name| format!("{at}.{name} is missing")).or_else(|| {
                members.iter().find_map(|(name, member)| member_fault(name, member, &parts, &format!("{at}.{name}")))
            })
        }
        _ => None,
    }
}

fn member_fault(name: &str, member: &Value, parts: &[&'static Value], at: &str) -> Option<String> {
    if let Some(told) = parts.iter().find_map(|part| part["properties"].get(name)) {
        return fault(member, told, at);
    }
    let others = parts.iter().find_map(|part| part.get("additionalProperties"));
    match others {
        Some(schema) if schema.is_object() => fault(member, schema, at),
        // A schema without properties says nothing of members.
        _ if others.is_some() || parts.iter().all(|part| part["properties"].is_null()) => None,
        _ => Some(format!("{at} is not told of")),
    }
}

/// Returns a schema and all its parts.
fn parts(schema: &'static Value) -> Vec<&'static Value> {
    let schema = followed(schema);
    let inner = schema["allOf"].as_array().into_iter().flatten().flat_map(parts);
    std::iter::once(schema).chain(inner).collect()
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
