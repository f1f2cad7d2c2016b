//! Final changes to the OpenAPI document, the same for every operation: closes the schemas of responses, and adds an
//! example to every body.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

const SCHEMAS: &str = "#/components/schemas/";
/// An example for each schema, by its name.
const EXAMPLES: &str = include_str!("examples.json");
/// Deprecated members (specification: Versioning), as pairs of schema and member.
const DEPRECATED: [(&str, &str); 3] = [("Device", "meta"), ("DeviceInput", "meta"), ("NewDevice", "meta")];

/// Closes the schemas of responses, and adds examples.
pub(super) fn finish(mut document: Value) -> Value {
    let examples = serde_json::from_str(EXAMPLES).unwrap_or_default();
    merge_parts(&mut document["components"]["schemas"]);
    document["components"]["headers"]["x-request-id"]["required"] = json!(true);
    for (schema, member) in DEPRECATED {
        document["components"]["schemas"][schema]["properties"][member]["deprecated"] = json!(true);
    }
    let (mut sent, mut shown) = (BTreeSet::new(), BTreeSet::new());
    for operation in operations(&mut document) {
        reached(&operation["requestBody"], &mut sent);
        reached(&operation["responses"], &mut shown);
        for response in members(&mut operation["responses"]) {
            media(response).for_each(|media| close(&mut media["schema"]));
        }
    }
    reached(&document["components"]["responses"], &mut shown);
    let sent = with_parts(sent, &document["components"]["schemas"]);
    let shown = with_parts(shown, &document["components"]["schemas"]);
    // Schemas of requests stay open: unknown members are ignored (contract: Conventions).
    for name in shown.difference(&sent) {
        close(&mut document["components"]["schemas"][name]);
    }
    for operation in operations(&mut document) {
        let body = operation.get_mut("requestBody").into_iter().flat_map(media);
        body.for_each(|media| exemplify(media, &examples));
        for response in members(&mut operation["responses"]) {
            media(response).for_each(|media| exemplify(media, &examples));
        }
    }
    document
}

fn members(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_object_mut().into_iter().flat_map(Map::values_mut)
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    members(&mut document["paths"]).flat_map(members)
}

/// Returns the content of a body or response, one for each content type.
fn media(holder: &mut Value) -> impl Iterator<Item = &mut Value> {
    holder.get_mut("content").into_iter().flat_map(members)
}

/// Merges a schema of several parts, all objects, into one object, as only that can be closed.
fn merge_parts(schemas: &mut Value) {
    let names: Vec<String> = schemas.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    for name in names {
        if schemas[&name].get("allOf").is_some() {
            let (mut properties, mut required) = (Map::new(), Vec::new());
            gather(schemas, &schemas[&name], &mut properties, &mut required);
            let description = schemas[&name]["description"].clone();
            schemas[&name] =
                json!({"type": "object", "description": description, "properties": properties, "required": required});
        }
    }
}

fn gather(schemas: &Value, schema: &Value, properties: &mut Map<String, Value>, required: &mut Vec<Value>) {
    let referred = schema["$ref"].as_str().and_then(|name| schemas.get(name.strip_prefix(SCHEMAS)?));
    if let Some(referred) = referred {
        return gather(schemas, referred, properties, required);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        gather(schemas, part, properties, required);
    }
    properties.extend(schema["properties"].as_object().cloned().unwrap_or_default());
    required.extend(schema["required"].as_array().cloned().unwrap_or_default());
}

/// Collects the names of the schemas that a value refers to.
fn reached(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(|name| name.as_str()?.strip_prefix(SCHEMAS));
            names.extend(name.map(str::to_owned));
            members.values().for_each(|member| reached(member, names));
        }
        Value::Array(items) => items.iter().for_each(|item| reached(item, names)),
        _ => {}
    }
}

/// Adds to these schemas those that they refer to.
fn with_parts(mut names: BTreeSet<String>, schemas: &Value) -> BTreeSet<String> {
    loop {
        let mut more = names.clone();
        names.iter().for_each(|name| reached(&schemas[name], &mut more));
        if more.len() == names.len() {
            return more;
        }
        names = more;
    }
}

/// Closes the schema of a response: no other members, and nullable ones are always present.
fn close(schema: &mut Value) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let nullable = properties.iter().filter(|(_, schema)| may_be_null(schema)).map(|(name, _)| name.clone());
        let listed = schema["required"].as_array().into_iter().flatten();
        let listed = listed.filter_map(Value::as_str).map(str::to_owned);
        let required: BTreeSet<String> = nullable.chain(listed).collect();
        if schema.get("additionalProperties").is_none() {
            schema["additionalProperties"] = json!(false);
        }
        schema["required"] = json!(required);
    }
    for inner in ["properties", "oneOf", "anyOf"] {
        match schema.get_mut(inner) {
            Some(Value::Object(members)) => members.values_mut().for_each(close),
            Some(Value::Array(items)) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
    if let Some(items) = schema.get_mut("items") {
        close(items);
    }
}

fn may_be_null(schema: &Value) -> bool {
    let is_null = |kind: &Value| kind == "null";
    let by_type = schema["type"].as_array().is_some_and(|kinds| kinds.iter().any(is_null));
    by_type || schema["oneOf"].as_array().is_some_and(|choices| choices.iter().any(|choice| is_null(&choice["type"])))
}

/// Adds the example of a body's schema to the body.
fn exemplify(media: &mut Value, examples: &Value) {
    if let Some(example) = example_of(&media["schema"], examples) {
        media["example"] = example;
    }
}

fn example_of(schema: &Value, examples: &Value) -> Option<Value> {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(SCHEMAS)) {
        return examples.get(name).cloned();
    }
    if let Some(items) = schema.get("items") {
        return example_of(items, examples).map(|item| json!([item]));
    }
    let data = example_of(schema["properties"].get("data")?, examples)?;
    Some(json!({"meta": examples["Meta"], "data": data}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_of_responses_are_closed_and_of_requests_open() {
        let document = super::super::openapi();
        let schemas = &document["components"]["schemas"];
        for closed in ["Device", "NewDevice", "Project", "User", "ErrorBody", "Fault", "Meta"] {
            assert_eq!(schemas[closed]["additionalProperties"], false, "{closed}");
        }
        for open in ["DeviceInput", "NewUser", "StreetAddress"] {
            assert!(schemas[open].get("additionalProperties").is_none(), "{open}");
        }
        let required = schemas["NewDevice"]["required"].as_array().unwrap();
        assert!(["token", "id", "lastActive"].iter().all(|name| required.contains(&json!(name))), "{required:?}");
    }

    #[test]
    fn every_json_body_has_an_example() {
        let mut document = super::super::openapi();
        let mut without = BTreeSet::new();
        for operation in operations(&mut document) {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let mut look = |holder: &Value, what: &str| {
                let media = &holder["content"]["application/json"];
                if !media.is_null() && media.get("example").is_none() && media["schema"]["$ref"] != json!(ANY) {
                    without.insert(format!("{id} {what}: {}", media["schema"]));
                }
            };
            look(&operation["requestBody"], "body");
            operation["responses"].as_object().unwrap().iter().for_each(|(status, response)| look(response, status));
        }
        assert!(without.is_empty(), "examples.json lacks {without:#?}");
    }

    const ANY: &str = "#/components/schemas/AnyJson";
}
