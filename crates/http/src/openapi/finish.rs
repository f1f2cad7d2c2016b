//! Final changes to the OpenAPI document, the same for every operation: closes the schemas of responses, and adds an
//! example to every body.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

const SCHEMAS: &str = "#/components/schemas/";
/// Examples of schemas, by name. An object without one gets an example that is derived from its schema.
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
    // Null is the end of the list; a list without pages by `after` has no such member.
    if let Some(required) = document["components"]["schemas"]["Meta"]["required"].as_array_mut() {
        required.retain(|name| name != "after");
    }
    let examples = Examples { written: examples, schemas: document["components"]["schemas"].clone() };
    for operation in operations(&mut document) {
        let body = operation.get_mut("requestBody").into_iter().flat_map(media);
        body.for_each(|media| examples.add_to(media));
        for response in members(&mut operation["responses"]) {
            media(response).for_each(|media| examples.add_to(media));
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

/// Examples of bodies.
struct Examples {
    written: Value,
    schemas: Value,
}

impl Examples {
    /// Adds the example of a body's schema to the body.
    fn add_to(&self, media: &mut Value) {
        if let Some(example) = self.of(&media["schema"]) {
            media["example"] = example;
        }
    }

    fn of(&self, schema: &Value) -> Option<Value> {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(SCHEMAS)) {
            let is_object = self.schemas[name].get("properties").is_some();
            return self.written.get(name).cloned().or_else(|| is_object.then(|| self.derived(&self.schemas[name])));
        }
        if let Some(items) = schema.get("items") {
            return self.of(items).map(|item| json!([item]));
        }
        let data = self.of(schema["properties"].get("data")?)?;
        Some(json!({"meta": self.written["Meta"], "data": data}))
    }

    /// Derives an example from a schema: written ones of its parts, the first word of several, the least number.
    fn derived(&self, schema: &Value) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(SCHEMAS)) {
            return self.written.get(name).cloned().unwrap_or_else(|| self.derived(&self.schemas[name]));
        }
        let choices = ["oneOf", "anyOf"].iter().find_map(|name| schema[name].as_array());
        if let Some(choice) = choices.and_then(|choices| choices.iter().find(|choice| choice["type"] != "null")) {
            return self.derived(choice);
        }
        if let Some(word) = schema["enum"].get(0) {
            return word.clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
            kind => kind.as_str(),
        };
        match (kind, schema["format"].as_str()) {
            (Some("string"), Some("uuid")) => json!("01981c30-1b00-7b22-a002-1122334455bb"),
            (Some("string"), Some("date-time")) => json!("2026-01-02T03:04:05.678Z"),
            (Some("string"), _) => json!("a text"),
            (Some("boolean"), _) => json!(true),
            (Some("integer" | "number"), _) => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
            (Some("array"), _) => json!([self.derived(&schema["items"])]),
            _ => {
                let properties = schema["properties"].as_object().into_iter().flatten();
                Value::Object(properties.map(|(name, schema)| (name.clone(), self.derived(schema))).collect())
            }
        }
    }
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

    #[test]
    fn example_is_derived_from_its_schema() {
        let schemas = json!({
            "Room": {"type": "object", "properties": {
                "id": {"type": "string", "format": "uuid"},
                "name": {"type": ["string", "null"]},
                "kind": {"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/Kind"}]},
                "floors": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "owner": {"$ref": "#/components/schemas/Owner"},
            }},
            "Kind": {"type": "string", "enum": ["cold", "warm"]},
            "Owner": {"type": "object", "properties": {"name": {"type": "string"}}},
        });
        let examples = Examples { written: json!({"Owner": {"name": "Ana"}}), schemas };
        let room = json!({"id": "01981c30-1b00-7b22-a002-1122334455bb", "name": "a text", "kind": "cold", "floors": [0],
            "owner": {"name": "Ana"}});
        assert_eq!(examples.of(&json!({"$ref": "#/components/schemas/Room"})), Some(room));
        assert_eq!(examples.of(&json!({"$ref": "#/components/schemas/Kind"})), None);
    }

    const ANY: &str = "#/components/schemas/AnyJson";
}
