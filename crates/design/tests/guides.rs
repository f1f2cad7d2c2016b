//! Tests docs/integrations: on every page, the properties of its function extract the bytes of its first example.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails with what it cannot read")]

mod stand;

use std::fs;

use isobar_design::{Effect, EmptyMemory, Plan, Trigger, run};
use serde_json::{Value, json};
use stand::{device, event, raw};

/// A codec that returns its input.
const CODE: &str = "function decodeUplink(input) { return {data: {fPort: input.fPort, bytes: input.bytes}}; }";

/// Returns the first code block of a language on a page.
fn block(page: &str, kind: &str) -> Option<Value> {
    let (_, rest) = page.split_once(&format!("```{kind}\n"))?;
    let (text, _) = rest.split_once("```")?;
    serde_json::from_str(text).ok()
}

/// Returns the input that a function with these properties gets from a payload.
fn given(mut properties: Value, payload: &Value) -> Value {
    properties["code"] = json!(CODE);
    let planes = json!({"cloud": {"elements": {
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "f", "ability": "evaluate"}]}},
        "f": {"type": "function", "properties": properties, "triggers": {"result": [{"element": "out", "ability": "store"}]}},
        "out": {"type": "storage"},
    }}});
    let plan = Plan::compile(&raw(&planes.to_string()).tree()).unwrap();
    let payload = raw(&payload.to_string());
    let tree = payload.tree();
    let event = event("in", &payload, &tree);
    let outcome = run(&plan, Trigger::DeviceEvent { element: "in" }, &event, &device(), &EmptyMemory);
    match outcome.effects.as_slice() {
        [Effect::Store { value, .. }] => serde_json::from_str(value.text()).unwrap(),
        other => panic!("{other:?} {:?}", outcome.errors),
    }
}

// Holds: c11.function
#[test]
fn every_guide_names_the_encoding_of_its_bytes() {
    let mut pages = 0;
    for entry in fs::read_dir("../../docs/integrations").unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("README.md") {
            continue;
        }
        let page = fs::read_to_string(&path).unwrap();
        let [outcome, properties, decoded] = ["json outcome", "json properties", "json decoded"]
            .map(|kind| block(&page, kind).unwrap_or_else(|| panic!("{} has no {kind}", path.display())));
        assert_eq!(given(properties, &outcome[0]["payload"]), decoded, "{}", path.display());
        pages += 1;
    }
    assert_eq!(pages, 6);
}
