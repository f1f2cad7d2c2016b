//! Tests that each fault of a specification is reported with its path.

use serde_json::{Value, json};

use super::given::{compile, transforming};
use super::raw;
use crate::Plan;

const OK_CODE: &str = "function decodeUplink(input) { return {data: {}}; }";

fn faults(elements: Value) -> Vec<String> {
    let faults = compile(elements).err().unwrap_or_default();
    faults.into_iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect()
}

fn to(element: &str, ability: &str) -> Value {
    json!({"element": element, "ability": ability})
}

#[test]
fn planes_and_the_cloud_plane_are_objects() {
    for (planes, path) in [
        ("[]", "planes"),
        (r#"{"cloud":null}"#, "planes.cloud"),
        (r#"{"cloud":[]}"#, "planes.cloud"),
        (r#"{"cloud":{"elements":[]}}"#, "planes.cloud.elements"),
    ] {
        let faults = Plan::compile(&raw(planes).tree()).unwrap_err();
        assert_eq!((faults.len(), faults[0].field.as_str()), (1, path));
    }
}

#[test]
fn unknown_element_type_is_refused() {
    let found = faults(json!({"b": {"type": "fridge"}, "c": {}, "d": 1, "e": {"type": 5}}));
    let expected = [
        "planes.cloud.elements.b.type: unknown element type",
        "planes.cloud.elements.c.type: is required",
        "planes.cloud.elements.d: must be an object",
        "planes.cloud.elements.e.type: must be a string",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_storage_keeps_a_bounded_number_of_days_and_values() {
    let storage = |properties: Value| faults(json!({"log": {"type": "storage", "properties": properties}}));
    for good in [
        json!({}),
        json!({"retentionDays": null, "valuesMax": null}),
        json!({"retentionDays": 1, "valuesMax": 1}),
        json!({"retentionDays": 3_650, "valuesMax": 1_000_000_000}),
        json!({"retentionDays": 30.0}),
    ] {
        assert!(storage(good.clone()).is_empty(), "{good}");
    }
    let at = "planes.cloud.elements.log.properties";
    let days = format!("{at}.retentionDays: must be a whole number from 1 to 3650");
    let values = format!("{at}.valuesMax: must be a whole number from 1 to 1000000000");
    for bad in [json!(0), json!(-1), json!(1.5), json!("30"), json!([1]), json!(true), json!(1e300)] {
        let found = storage(json!({"retentionDays": bad, "valuesMax": bad}));
        assert_eq!(found, [days.clone(), values.clone()], "{bad}");
    }
    assert_eq!(storage(json!({"retentionDays": 3_651})), [days]);
    assert_eq!(storage(json!({"valuesMax": 1_000_000_001})), [values]);
}

#[test]
fn link_to_an_unknown_ability_is_refused() {
    let found = faults(json!({
        "in": {"type": "deviceEvent", "triggers": {
            "eventReceived": [to("nowhere", "store"), to("out", "send"), {"element": "out"}, {"ability": "store"}, 5, to("in", "evaluate"),
                {"element": "out", "ability": "store", "arguments": {"valeu": 1}}, {"element": "out", "ability": "store", "arguments": []}],
            "eventRecieved": {}, "sent": []}},
        "out": {"type": "storage", "triggers": 1},
    }));
    let expected = [
        "planes.cloud.elements.in.triggers.eventReceived[0].element: unknown element",
        "planes.cloud.elements.in.triggers.eventReceived[1].ability: a storage has no such ability",
        "planes.cloud.elements.in.triggers.eventReceived[2].ability: is required",
        "planes.cloud.elements.in.triggers.eventReceived[3].element: is required",
        "planes.cloud.elements.in.triggers.eventReceived[4]: must be an object",
        "planes.cloud.elements.in.triggers.eventReceived[5].ability: a deviceEvent has no such ability",
        "planes.cloud.elements.in.triggers.eventReceived[6].arguments.valeu: unknown argument",
        "planes.cloud.elements.in.triggers.eventReceived[7].arguments: must be an object",
        "planes.cloud.elements.in.triggers.eventRecieved: unknown trigger",
        "planes.cloud.elements.in.triggers.eventRecieved: must be an array of links",
        "planes.cloud.elements.in.triggers.sent: unknown trigger",
        "planes.cloud.elements.out.triggers: must be an object",
        "planes.cloud.elements.in.triggers.eventReceived[5].element: closes a cycle back to 'in'",
    ];
    assert_eq!(found, expected);
}

#[test]
fn cycle_is_reported_at_the_link_that_closes_it() {
    let found = faults(json!({
        "a": {"type": "storage", "triggers": {"stored": [to("b", "store")]}},
        "b": {"type": "storage", "triggers": {"stored": [to("nowhere", "store"), to("c", "store")]}},
        "c": {"type": "storage", "triggers": {"stored": [to("a", "store"), to("c", "store")]}},
    }));
    let expected = [
        "planes.cloud.elements.b.triggers.stored[0].element: unknown element",
        "planes.cloud.elements.c.triggers.stored[0].element: closes a cycle back to 'a'",
        "planes.cloud.elements.c.triggers.stored[1].element: closes a cycle back to 'c'",
    ];
    assert_eq!(found, expected);
}

#[test]
fn two_paths_to_one_element_are_not_a_cycle() {
    let found = faults(json!({
        "a": {"type": "storage", "triggers": {"stored": [to("b", "store"), to("c", "store")]}},
        "b": {"type": "storage", "triggers": {"stored": [to("c", "store")]}},
        "c": {"type": "storage"},
    }));
    assert!(found.is_empty());
}

#[test]
fn faulty_expression_is_named_by_its_path() {
    let found = faults(json!({
        "high": {"type": "condition", "properties": {"expression": "payload.temp >"}},
        "none": {"type": "condition"},
        "number": {"type": "transform", "properties": {"expression": 5}},
        "names": {"type": "transform", "properties": {"expression": "paylod.temp"}},
        "link": {"type": "deviceEvent", "triggers": {"eventReceived":
            [{"element": "names", "ability": "evaluate"}, {"element": "out", "ability": "store", "arguments": {"value": "foo(1)"}}]}},
        "key": {"type": "changed", "properties": {"expression": "settings.nothing"}},
        "out": {"type": "storage"},
    }));
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(found.iter().any(|it| it.starts_with("planes.cloud.elements.high.properties.expression: ")));
    for expected in [
        "planes.cloud.elements.none.properties.expression: is required",
        "planes.cloud.elements.number.properties.expression: must be an expression, in a string",
        "planes.cloud.elements.names.properties.expression: unknown variable 'paylod'",
        "planes.cloud.elements.link.triggers.eventReceived[1].arguments.value: unknown function 'foo'",
        "planes.cloud.elements.key.properties.expression: unknown setting 'nothing'",
    ] {
        assert!(found.iter().any(|it| it == expected), "{expected} in {found:#?}");
    }
}

/// Asserts that each element, given by type and properties, has exactly this fault.
fn each_is_at_fault<const N: usize>(elements: [(&str, Value, &str); N]) {
    for (kind, properties, expected) in elements {
        let found = faults(json!({"a": {"type": kind, "properties": properties}}));
        assert_eq!(found, [format!("planes.cloud.elements.a.properties{expected}")]);
    }
}

#[test]
fn properties_of_storing_and_deciding_elements_are_checked() {
    each_is_at_fault([
        ("storage", json!([]), ": must be an object"),
        (
            "deviceEvent",
            json!({"integration": "mqtt"}),
            ".integration: must be one of http, custom, ble, lora, sigfox, zigbee",
        ),
        ("cloudEvent", json!({"ttlMinutes": 0}), ".ttlMinutes: must be a positive number"),
        ("cloudEvent", json!({"ttlMinutes": "5"}), ".ttlMinutes: must be a positive number"),
        ("cloudEvent", json!({"ttlMinutes": 1.5}), ".ttlMinutes: must be a whole number, at most 4294967295"),
        ("deviceMeta", json!({"missingAfterMinutes": -1}), ".missingAfterMinutes: must be a positive number"),
        (
            "deviceMeta",
            json!({"missingAfterMinutes": 1.5}),
            ".missingAfterMinutes: must be a whole number, at most 527040",
        ),
        ("interval", json!({}), ".minutes: is required"),
        ("interval", json!({"minutes": 0}), ".minutes: must be a positive number"),
        ("interval", json!({"minutes": 527_041}), ".minutes: must be a whole number, at most 527040"),
        ("throttle", json!({}), ".minutes: is required"),
        ("throttle", json!({"minutes": "5"}), ".minutes: must be a positive number"),
        ("throttle", json!({"minutes": 1e9}), ".minutes: must be at most 527040"),
        ("window", json!({"aggregate": "sum"}), ".size: is required, or minutes"),
        ("window", json!({"aggregate": "sum", "size": 0}), ".size: must be a whole number, 1 to 4096"),
        ("window", json!({"aggregate": "sum", "size": "3"}), ".size: must be a whole number, 1 to 4096"),
        ("window", json!({"aggregate": "sum", "size": 4097}), ".size: must be a whole number, 1 to 4096"),
        (
            "window",
            json!({"aggregate": "sum", "size": 3, "minutes": 3}),
            ".minutes: stands in for size: give one of them",
        ),
        ("window", json!({"size": 3}), ".aggregate: is required"),
        (
            "window",
            json!({"size": 3, "aggregate": "median"}),
            ".aggregate: must be one of mean, min, max, sum, count, first, last",
        ),
        ("window", json!({"size": 3, "aggregate": "sum", "expression": "x"}), ".expression: unknown variable 'x'"),
    ]);
}

#[test]
fn properties_of_notifications_and_calls_are_checked() {
    each_is_at_fault([
        ("alarm", json!({}), ".title: is required"),
        ("alarm", json!({"title": "{{ x }}"}), ".title: unknown variable 'x'"),
        ("alarm", json!({"title": "t", "severity": "bad"}), ".severity: must be one of info, warning, critical"),
        ("notification", json!({}), ".message: is required"),
        ("notification", json!({"message": " "}), ".message: must be a text that is not empty"),
        ("notification", json!({"message": 5}), ".message: must be a text that is not empty"),
        ("notification", json!({"message": "a {{ payload"}), ".message: an expression is not closed by '}}'"),
        ("notification", json!({"message": "{{ x }}"}), ".message: unknown variable 'x'"),
        ("notification", json!({"message": "x".repeat(10_001)}), ".message: has at most 10000 characters"),
        ("notification", json!({"message": "{{1}}".repeat(101)}), ".message: has at most 100 expressions"),
        (
            "notification",
            json!({"message": "a", "minimumRole": "boss"}),
            ".minimumRole: must be one of basicUser, technician, manager, administrator, developer, systemAdmin",
        ),
        ("http", json!({}), ".url: is required"),
        ("http", json!({"url": 5}), ".url: must be an expression, in a string"),
        ("http", json!({"url": "http://a b"}), ".url: the url has white space in it"),
        ("http", json!({"url": "https://a", "method": "GET", "body": {}}), ".body: GET has no body"),
        (
            "http",
            json!({"url": "https://a", "method": "FETCH"}),
            ".method: must be one of GET, HEAD, POST, PUT, PATCH, DELETE, or an expression",
        ),
        ("http", json!({"url": "https://a", "headers": []}), ".headers: must be an object of expressions"),
        ("http", json!({"url": "https://a", "headers": {"Host": "'b'"}}), ".headers.Host: may not be set"),
        ("http", json!({"url": "https://a", "headers": {"a b": "'b'"}}), ".headers.a b: is no name of a header"),
        ("http", json!({"url": "https://a", "headers": {"a": "1", "A": "2"}}), ".headers.a: is there twice"),
        ("http", json!({"url": "https://a", "headers": {"a": "x"}}), ".headers.a: unknown variable 'x'"),
        ("http", json!({"url": "https://a", "headers": {"a": []}}), ".headers.a: must be an expression, in a string"),
    ]);
}

#[test]
fn properties_of_functions_and_settings_are_checked() {
    each_is_at_fault([
        ("function", json!({}), ".code: is required"),
        ("function", json!({"code": 5}), ".code: must be JavaScript, in a string"),
        ("function", json!({"code": "var x = 1"}), ".code: has no function decodeUplink(input)"),
        ("function", json!({"code": OK_CODE, "fPortRef": 5}), ".fPortRef: must be a string"),
        ("function", json!({"code": OK_CODE, "bytesEncoding": "octal"}), ".bytesEncoding: must be one of base64, hex"),
        ("function", json!({"code": OK_CODE, "bytesEncoding": "auto"}), ".bytesEncoding: must be one of base64, hex"),
        (
            "function",
            json!({"code": OK_CODE, "bytesRef": "$..x"}),
            ".bytesRef: must be a JSONPath to one place: names and indexes, as in $.data[0]['b']",
        ),
        ("deviceSetting", json!({"title": 5}), ".title: must be a string, or an object of strings by locale"),
        (
            "deviceSetting",
            json!({"description": {"en": 1}}),
            ".description: must be a string, or an object of strings by locale",
        ),
        (
            "deviceSetting",
            json!({"inputType": "slider"}),
            ".inputType: must be one of text, number, toggle, geolocation",
        ),
        (
            "deviceSetting",
            json!({"inputTypeProperties": 5}),
            ".inputTypeProperties: must be an object, an array or null",
        ),
        (
            "deviceSetting",
            json!({"inputType": "number", "inputTypeProperties": {"min": "1"}}),
            ".inputTypeProperties.min: must be a number",
        ),
        (
            "deviceSetting",
            json!({"inputType": "number", "inputTypeProperties": {"min": 2, "max": 1}}),
            ".inputTypeProperties.max: must be at least min",
        ),
        ("deviceSetting", json!({"defaultValue": 5}), ".defaultValue: must be a string"),
        ("deviceSetting", json!({"listOrder": 1.5}), ".listOrder: must be a whole number"),
    ]);
}

// Holds: c8.history
#[test]
fn no_setting_may_be_called_history() {
    let found = faults(json!({"history": {"type": "deviceSetting"}}));
    assert_eq!(found, ["planes.cloud.elements.history: no setting may be called 'history'"]);
    assert!(faults(json!({"history": {"type": "storage"}})).is_empty());
}

// Holds: setting.name, c11.names
#[test]
fn names_are_bounded() {
    assert_eq!(faults(json!({"": {"type": "storage"}})), ["planes.cloud.elements.: a name has 1 to 128 characters"]);
    assert!(faults(json!({"é".repeat(128): {"type": "storage"}})).is_empty());
    assert_eq!(faults(json!({"é".repeat(129): {"type": "storage"}})).len(), 1);
}

#[test]
fn faulty_setting_is_still_known_to_expressions() {
    let mut elements = transforming("settings.limit");
    elements["limit"]["properties"]["listOrder"] = json!("x");
    assert_eq!(faults(elements), ["planes.cloud.elements.limit.properties.listOrder: must be a whole number"]);
}
