//! Tests of `fields` of a storage element: what is stored, and each fault with its path.

use isobar_model::json::RawJson;
use serde_json::{Map, Value, json};

use super::given::{compile, done, scene};
use super::raw;
use crate::Plan;

fn storage(fields: Value) -> Value {
    json!({"log": {"type": "storage", "properties": {"fields": fields}}})
}

/// Returns the faults of these fields, with shortened paths.
fn faults(fields: Value) -> Vec<String> {
    let found = compile(storage(fields)).err().unwrap_or_default();
    let short = |path: &str| path.replacen("planes.cloud.elements.log.properties.", "", 1);
    found.into_iter().map(|fault| format!("{}: {}", short(&fault.field), fault.message)).collect()
}

fn said(fields: Value) -> Option<String> {
    compile(storage(fields)).unwrap().storage_fields("log").map(RawJson::text).map(str::to_owned)
}

fn many(count: usize, value: &Value) -> Value {
    (0..count).map(|at| (format!("payload.{at}"), value.clone())).collect::<Map<_, _>>().into()
}

#[test]
fn fields_are_stored_unchanged_without_nulls() {
    let whole = json!({
        "payload": {"unit": "°C"},
        "payload.temp": {"title": {"en": "Temperature", "de": "Temperatur"}, "unit": "°C", "decimals": 1,
            "minimum": -30, "maximum": 40.50, "low": 2, "high": 2, "words": {}},
        "payload.doors[\"front door\"]": {"title": "Door", "words": {"true": "open", "false": "closed"}},
    });
    assert_eq!(serde_json::from_str::<Value>(&said(whole.clone()).unwrap()).unwrap(), whole);
    let exact = Plan::compile(
        &raw(r#"{"cloud":{"elements":{"log":{"type":"storage","properties":{"fields":{"payload.a":{"high":9007199254740993.10}}}}}}}"#).tree(),
    );
    assert_eq!(exact.unwrap().storage_fields("log").unwrap().text(), r#"{"payload.a":{"high":9007199254740993.10}}"#);
    assert_eq!(
        said(json!({"payload.a": {"unit": "V", "low": null}, "payload.b": null})).unwrap(),
        r#"{"payload.a":{"unit":"V"}}"#
    );
    for nothing in [json!(null), json!({}), json!({"payload.a": null})] {
        assert_eq!(said(nothing), None);
    }
    assert_eq!(compile(json!({"log": {"type": "storage"}})).unwrap().storage_fields("other"), None);
}

#[test]
fn fields_of_a_bad_path_are_refused_by_it() {
    for bad in ["", "temp", "payloads", "payload.", "payload..a", "payload[0]", "payload['a']", "meta.a"] {
        let found = faults(json!({ bad: {} }));
        assert_eq!(
            found,
            [format!("fields.{bad}: must be a path as payload.a.b or payload[\"a b\"], or payload itself")]
        );
    }
    let long = format!("payload.{}", "é".repeat(505));
    assert_eq!(
        faults(json!({ &long: {} })),
        [format!("fields.{}: a path has at most 512 characters", &long[..long.len() - 2])]
    );
    assert_eq!(
        faults(json!({"payload.a": {}, "payload[\"a\"]": {}})),
        ["fields.payload[\"a\"]: names the same as 'payload.a'"]
    );
}

// Holds: c18.fields
#[test]
fn every_fault_of_a_field_is_named_by_it() {
    let long = |chars: usize| "x".repeat(chars);
    let locales: Map<String, Value> = (0..51).map(|at| (at.to_string(), json!("x"))).collect();
    let text = |name: &str, most: usize| format!("{name}: must be a string of 1 to {most} characters");
    let decimals = "decimals: must be a whole number from 0 to 12".to_owned();
    for (bad, fault) in [
        (json!({"title": 5}), "title: must be a string, or an object of strings by locale".to_owned()),
        (json!({"title": ""}), text("title", 200)),
        (json!({"title": long(201)}), text("title", 200)),
        (json!({"title": {}}), "title: must have 1 to 50 locales".to_owned()),
        (json!({"title": locales}), "title: must have 1 to 50 locales".to_owned()),
        (json!({"title": {"en": ["x"]}}), text("title.en", 200)),
        (json!({"title": {long(36): "x"}}), format!("title.{}: its name must have at most 35 characters", long(35))),
        (json!({"unit": long(33)}), text("unit", 32)),
        (json!({"unit": true}), text("unit", 32)),
        (json!({"decimals": 13}), decimals.clone()),
        (json!({"decimals": -1}), decimals.clone()),
        (json!({"decimals": 1.5}), decimals.clone()),
        (json!({"decimals": "1"}), decimals),
        (json!({"low": "2"}), "low: must be a number".to_owned()),
        (json!({"maximum": [2]}), "maximum: must be a number".to_owned()),
        (json!({"minimum": 2.1, "maximum": 2}), "minimum: must be at most maximum".to_owned()),
        (json!({"low": 3, "high": 2}), "low: must be at most high".to_owned()),
        (json!({"words": ["open"]}), "words: must be an object of strings by value".to_owned()),
        (json!({"words": {"true": 1}}), text("words.true", 128)),
        (json!({"words": {"true": ""}}), text("words.true", 128)),
        (json!({"words": {long(129): "x"}}), format!("words.{}: its name must have at most 128 characters", long(128))),
        (
            json!({"decimal": 1}),
            "decimal: unknown: title, unit, decimals, minimum, maximum, low, high or words".to_owned(),
        ),
    ] {
        assert_eq!(faults(json!({"payload.a": bad})), [format!("fields.payload.a.{fault}")], "{bad}");
    }
    assert_eq!(faults(json!({"payload.a": 5})), ["fields.payload.a: must be an object"]);
    assert_eq!(faults(json!([])), ["fields: must be an object"]);
}

#[test]
fn fields_and_words_are_bounded_in_number() {
    assert!(faults(many(200, &json!({"unit": "V"}))).is_empty());
    assert_eq!(faults(many(201, &json!({}))), ["fields: must have at most 200 paths"]);
    let words = |count: usize| json!({"payload.a": {"words": (0..count).map(|at| (at.to_string(), json!("x"))).collect::<Map<_, _>>()}});
    assert!(faults(words(50)).is_empty());
    assert_eq!(faults(words(51)), ["fields.payload.a.words: must have at most 50 words"]);
}

#[test]
fn stored_design_with_faulty_fields_runs_without_them() {
    let planes = json!({"cloud": {"elements": storage(json!({"temp": {"kind": 5}}))}}).to_string();
    assert!(Plan::compile(&raw(&planes).tree()).is_err());
    assert_eq!(Plan::compile_stored(&raw(&planes).tree()).unwrap().storage_fields("log"), None);
}

/// Returns the text of a notification for a payload, in a design that describes keys.
fn told(message: &str, payload: &str) -> String {
    let fields = json!({
        "payload.temp": {"title": {"de": "Temperatur", "en": "Temperature"}, "unit": "°C", "decimals": 1},
        "payload.deep[\"front door\"]": {"title": "Door", "words": {"true": "open", "false": "closed", "2": "ajar"}},
        "payload.level": {"unit": "m", "decimals": 2},
    });
    let elements = json!({
        "tell": {"type": "notification", "properties": {"message": message}},
        "log": {"type": "storage", "properties": {"fields": fields}},
    });
    let scene = scene(json!([{"element": "tell", "ability": "notify"}]), elements);
    let told = done(&scene.with_last("log", r#"{"temp":-0.04}"#).post(payload)).remove(0);
    told.strip_prefix("notify tell basicUser ").unwrap_or(&told).to_owned()
}

#[test]
fn quoted_value_has_its_unit_decimals_and_words() {
    let payload = r#"{"temp":9.128,"deep":{"front door":true},"level":2,"other":9.128}"#;
    for (message, expected) in [
        ("It is {{ payload.temp }} now", "It is 9.1 °C now"),
        ("It is {{ payload.temp }}°C, {{ event.payload.temp }} °C", "It is 9.1°C, 9.1 °C"),
        ("The door is {{ payload.deep['front door'] }}", "The door is open"),
        ("{{ payload.level }} more, {{ payload.level }} m", "2.00 m more, 2.00 m"),
        ("Before: {{ last.log.temp }}", "Before: 0.0 °C"),
        // Calculated values, and those without a description, are unchanged.
        ("{{ payload.temp + 1.0 }} {{ payload.other }}", "10.128 9.128"),
    ] {
        assert_eq!(told(message, payload), expected, "{message}");
    }
}

#[test]
fn quoted_value_alone_in_its_line_has_its_title() {
    let payload = r#"{"temp":9,"deep":{"front door":2}}"#;
    assert_eq!(told("{{ payload.temp }}", payload), "Temperature: 9.0 °C");
    assert_eq!(
        told("Look:\n{{ payload.temp }}\n  {{ payload.deep['front door'] }}\n", payload),
        "Look:\nTemperature: 9.0 °C\n  Door: ajar\n"
    );
    assert_eq!(told("{{ payload.temp }} {{ payload.temp }}", payload), "9.0 °C 9.0 °C");
}

#[test]
fn quoted_value_of_another_type_is_unchanged() {
    for (value, expected) in [
        (r#""warm""#, "It is warm"),
        ("null", "It is null"),
        ("[1]", "It is [1]"),
        ("1e300", "It is 1e300 °C"),
        ("9007199254740993", "It is 9007199254740993.0 °C"),
    ] {
        assert_eq!(told("It is {{ payload.temp }}", &format!(r#"{{"temp":{value}}}"#)), expected, "{value}");
    }
}
