//! Tests docs/design-language.md: its designs compile, its expressions have the values next to them, and its examples
//! run as described.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod stand;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use isobar_design::{DeviceView, Effect, EventView, Memory, Outcome, Plan, Trigger, run};
use isobar_model::json::{RawJson, equal};
use isobar_model::time::Timestamp;
use serde_json::{Value, json};
use stand::raw;

const PAGE: &str = include_str!("../../../docs/design-language.md");

/// Returns each part of a page between two marks.
fn between<'p>(page: &'p str, begins: &'p str, ends: &'p str) -> impl Iterator<Item = &'p str> {
    page.split(begins).skip(1).map(move |rest| rest.split_once(ends).unwrap().0)
}

/// Memory in which only the storage element `readings` has values.
struct Left;

impl Memory for Left {
    fn last(&self, element: &str) -> Option<RawJson> {
        (element == "readings").then(|| raw(r#"{"temp":8.9}"#))
    }

    fn last_bytes(&self, _element: &str) -> usize {
        0
    }

    fn state(&self, _element: &str) -> Option<Bytes> {
        None
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        Vec::new()
    }

    fn states_bytes(&self) -> usize {
        0
    }
}

/// Returns the device of the page.
fn device() -> DeviceView {
    DeviceView {
        meta: raw(r#"{"site":"north"}"#),
        settings: vec![(Arc::from("label"), raw(r#""left""#))],
        alarms: Arc::default(),
        ..stand::device()
    }
}

/// Posts `payload` to the element `in` of the page's device.
fn post(elements: &Value, payload: &str) -> Outcome {
    let plan = Plan::compile(&raw(&json!({"cloud": {"elements": elements}}).to_string()).tree()).unwrap();
    let payload = raw(payload);
    let tree = payload.tree();
    let event = stand::event("in", &payload, &tree);
    run(&plan, Trigger::DeviceEvent { element: "in" }, &event, &device(), &Left)
}

#[test]
fn every_documented_design_compiles() {
    let examples = between(PAGE, "```json design\n", "\n```");
    let designs: Vec<&str> = between(PAGE, "```json\n", "\n```").chain(examples).collect();
    assert!(designs.len() >= 14);
    for design in designs {
        assert_eq!(Plan::compile(&raw(design).tree()).map(|_| ()), Ok(()), "{design}");
    }
}

// Holds: c11.expressions
#[test]
fn every_documented_expression_has_the_stated_value() {
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

#[test]
fn documented_gaps_of_cel_are_refused() {
    let section = between(PAGE, "### What CEL has, and this has not\n", "\nWhat is different:").next().unwrap();
    let mut count = 0;
    for line in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let (_, examples) = line.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        for expression in examples.split("`").skip(1).step_by(2) {
            let design = json!({"cloud": {"elements": {
                "it": {"type": "transform", "properties": {"expression": expression}}}}});
            let faults = Plan::compile(&raw(&design.to_string()).tree()).map(|_| ()).unwrap_err();
            assert_eq!(faults[0].field, "planes.cloud.elements.it.properties.expression", "{expression}");
            count += 1;
        }
    }
    assert!(count >= 24, "{count}");
}

/// Element states that earlier events of an example have left.
#[derive(Default)]
struct States(HashMap<String, Bytes>);

impl Memory for States {
    fn last(&self, _element: &str) -> Option<RawJson> {
        None
    }

    fn last_bytes(&self, _element: &str) -> usize {
        0
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        self.0.get(element).cloned()
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        self.0.iter().map(|(element, state)| (Arc::from(element.as_str()), state.len())).collect()
    }

    fn states_bytes(&self) -> usize {
        self.0.values().map(Bytes::len).sum()
    }
}

/// Formats an outcome as the page does, without element states.
fn written(outcome: &Outcome) -> Value {
    let parsed = |raw: &RawJson| serde_json::from_str::<Value>(raw.text()).unwrap();
    let effects = outcome.effects.iter().filter_map(|effect| match effect {
        Effect::Store { element, value } => Some(json!({"store": element.as_ref(), "value": parsed(value)})),
        Effect::Send { element, payload, .. } => Some(json!({"send": element.as_ref(), "payload": parsed(payload)})),
        Effect::Notify { element, message, minimum_role, .. } => {
            Some(json!({"notify": element.as_ref(), "message": message, "minimumRole": minimum_role.name()}))
        }
        Effect::Alarm(finding) => {
            let begin = finding.begin.as_ref().filter(|_| finding.count == 1).map(|begin| json!({"title": begin.title, "severity": begin.severity.name()}));
            Some(json!({"alarm": finding.element, "key": finding.key, "active": finding.cleared_at.is_none(), "raised": begin, "count": finding.count}))
        }
        Effect::Call { element, request } => {
            let headers: HashMap<_, _> = request.headers.iter().cloned().collect();
            Some(json!({"call": element.as_ref(), "method": request.method, "url": request.url, "headers": headers, "body": request.body}))
        }
        Effect::Remember { .. } | Effect::Forget { .. } => None,
        other => Some(json!(format!("{other:?}"))),
    });
    let errors = outcome.errors.iter().map(|it| json!({"error": it.element, "message": it.message}));
    effects.chain(errors).collect()
}

/// Runs the event of an example.
fn happen(plan: &Plan, event: &Value, now: Timestamp, states: &States) -> Outcome {
    let word = |name: &str| event[name].as_str();
    let (element, trigger) = match (word("elementName"), word("answered"), word("elapsed")) {
        (Some(element), None, None) => (element, Trigger::DeviceEvent { element }),
        (None, Some(element), None) => (element, Trigger::Answered { element, response: event["response"] == true }),
        (None, None, Some(element)) => (element, Trigger::Elapsed { element }),
        _ => panic!("no event: {event}"),
    };
    let payload = raw(&event["payload"].to_string());
    let tree = payload.tree();
    let seen = EventView { received_at: now, now, ..stand::event(element, &payload, &tree) };
    run(plan, trigger, &seen, &device(), states)
}

#[test]
fn every_documented_example_runs_as_described() {
    let mut count = 0;
    for example in PAGE.split("```json design\n").skip(1) {
        let (design, rest) = example.split_once("\n```").unwrap();
        let rest = rest.split("```json\n").next().unwrap();
        let plan = Plan::compile(&raw(design).tree()).unwrap();
        let (mut now, mut states) = (stand::received_at(), States::default());
        let outcomes: Vec<&str> = between(rest, "```json outcome\n", "\n```").collect();
        let events: Vec<&str> = between(rest, "```json event\n", "\n```").collect();
        assert!(!events.is_empty() && events.len() == outcomes.len(), "{design}");
        for (event, expected) in events.into_iter().zip(outcomes) {
            let event: Value = serde_json::from_str(event).unwrap();
            now = now.plus_seconds(60 * event["minutesLater"].as_i64().unwrap_or(0));
            let outcome = happen(&plan, &event, now, &states);
            let (found, expected) = (written(&outcome), raw(expected));
            assert!(equal(&raw(&found.to_string()).tree(), &expected.tree()), "{event} gives {found}");
            for effect in outcome.effects {
                if let Effect::Remember { element, state } = effect {
                    states.0.insert(element.to_string(), state);
                }
            }
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}
