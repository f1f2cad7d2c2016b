//! docs/design-language.md, held to what it says: its designs compile, and its expressions give the values beside them.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::sync::Arc;

use bytes::Bytes;
use isobar_design::{DeviceView, Effect, EventView, Memory, Outcome, Plan, Trigger, run};
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::{RawJson, equal};
use isobar_model::status::Status;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/design-language.md");
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn raw(text: &str) -> RawJson {
    RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// What is between two marks, each time.
fn between<'p>(page: &'p str, begins: &'p str, ends: &'p str) -> impl Iterator<Item = &'p str> {
    page.split(begins).skip(1).map(move |rest| rest.split_once(ends).unwrap().0)
}

/// The storage `readings` holds something; nothing else is remembered.
struct Left;

impl Memory for Left {
    fn last(&self, element: &str) -> Option<RawJson> {
        (element == "readings").then(|| raw(r#"{"temp":8.9}"#))
    }

    fn state(&self, _element: &str) -> Option<Bytes> {
        None
    }
}

/// Posts `payload` to the element `in` of the device of the page.
fn post(elements: &Value, payload: &str) -> Outcome {
    let plan = Plan::compile(&raw(&json!({"cloud": {"elements": elements}}).to_string()).tree()).unwrap();
    let device = DeviceView {
        id: ID.parse::<DeviceId>().unwrap(),
        name: "Fridge 1".to_owned(),
        organization: ID.parse::<OrganizationId>().unwrap(),
        meta: raw(r#"{"site":"north"}"#),
        status: Status::Good,
        settings: vec![(Arc::from("label"), raw(r#""left""#))],
    };
    let (payload, id) = (raw(payload), ID.parse::<EventId>().unwrap());
    let tree = payload.tree();
    let received_at = "2026-03-04T05:06:07.089Z".parse().unwrap();
    let event = EventView { id, element: "in", received_at, payload: &payload, tree: &tree };
    run(&plan, Trigger::DeviceEvent { element: "in" }, &event, &device, &Left)
}

#[test]
fn every_design_of_the_page_compiles() {
    let designs: Vec<&str> = between(PAGE, "```json\n", "\n```").collect();
    assert!(designs.len() >= 8);
    for design in designs {
        assert_eq!(Plan::compile(&raw(design).tree()).map(|_| ()), Ok(()), "{design}");
    }
}

#[test]
fn every_expression_of_the_page_gives_the_value_beside_it() {
    let payload = between(PAGE, "With the payload `", "`").next().unwrap();
    let mut count = 0;
    for table in between(PAGE, "| expression | value |\n|---|---|\n", "\n\n") {
        for line in table.lines() {
            let mut cells = between(line, "| `", "`");
            let (expression, value) = (cells.next().unwrap(), raw(cells.next().unwrap()));
            let outcome = post(
                &json!({
                    "in": {"type": "deviceEvent", "triggers": {"eventReceived": [
                        {"element": "out", "ability": "store", "arguments": {"value": expression}}]}},
                    "out": {"type": "storage"},
                    "readings": {"type": "storage"},
                    "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
                    "label": {"type": "deviceSetting"},
                }),
                payload,
            );
            let stored = outcome.effects.first();
            let fits =
                matches!(stored, Some(Effect::Store { value: found, .. }) if equal(&found.tree(), &value.tree()));
            assert!(fits, "{expression} gives {outcome:?}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}
