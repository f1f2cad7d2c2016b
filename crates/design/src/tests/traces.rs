//! Tests of traced runs.

use serde_json::{Map, Value, json};

use super::given::{Scene, link, scene};
use crate::TraceStep;

fn line(step: &TraceStep) -> String {
    let produced = step.produced.as_ref().map(|it| format!(" -> {} {}", it.trigger, it.value.text()));
    let error = step.error.as_ref().map(|error| format!(" ! {error}"));
    let notes: String = step.notes.iter().map(|note| format!(" ({note})")).collect();
    let (ability, produced) = (step.ability.unwrap_or("-"), produced.unwrap_or_default());
    format!("{} {ability} {}{produced}{}{notes}", step.element, step.received.text(), error.unwrap_or_default())
}

#[test]
fn trace_has_the_input_and_output_of_each_element() {
    let code = "function decodeUplink(input) { return {data: {n: input.bytes.length}, warnings: ['low battery']}; }";
    let scene = scene(
        json!([link("c", "evaluate"), link("bad", "evaluate"), link("f", "evaluate"), link("h", "request")]),
        json!({
            "c": {"type": "condition", "properties": {"expression": "payload.t > 5"}, "triggers": {"true": [link("out", "store")]}},
            "bad": {"type": "transform", "properties": {"expression": "payload.x"}},
            "f": {"type": "function", "properties": {"code": code}},
            "h": {"type": "http", "properties": {"url": "'http://a'"}},
            "out": {"type": "storage"},
        }),
    );
    let payload = r#"{"t":9.10,"bytes":[1,2]}"#;
    let (outcome, trace) = scene.trace(payload);
    let lines: Vec<String> = trace.iter().map(line).collect();
    let expected = [
        format!("in - {payload} -> eventReceived {payload}"),
        format!("c evaluate {payload} -> true {payload}"),
        format!("out store {payload} -> stored {payload}"),
        format!("bad evaluate {payload} ! no such key 'x'"),
        format!(r#"f evaluate {payload} -> result {{"n":2}} (low battery)"#),
        format!("h request {payload}"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(outcome, scene.post(payload), "a trace changes nothing");
}

#[test]
fn a_trace_is_bounded() {
    let links = vec![link("out", "store"); 3_000];
    let scene = scene(Value::from(links), json!({"out": {"type": "storage"}}));
    let (outcome, trace) = scene.trace("1");
    assert_eq!((outcome.effects.len(), trace.len()), (3_000, 1_000));
    assert_eq!(trace[999].notes, ["the trace ends here; the run went on"]);
    let (outcome, trace) = scene.trace(json!("x".repeat(100_000)).to_string());
    assert!(trace.len() < 50);
    assert_eq!(outcome.effects.len(), (4 << 20) / 100_002, "what a run stores is bounded");
    assert_eq!(trace[0].received.text(), r#""(100002 bytes)""#);
}

#[test]
fn errors_and_notes_of_a_trace_are_cut_and_counted() {
    let links = vec![link("t", "evaluate"); 900];
    let scene = scene(
        Value::from(links),
        json!({"t": {"type": "transform", "properties": {"expression": "{'a': 1}[payload.k]"}}}),
    );
    let (_, trace) = scene.trace(json!({"k": "é".repeat(30_000)}).to_string());
    let longest = trace.iter().filter_map(|step| step.error.as_ref()).map(|error| error.chars().count()).max();
    assert!(longest.is_some_and(|chars| chars <= 500), "{longest:?}");
}

#[test]
fn an_empty_plane_is_traced_too() {
    let mut scene = Scene::transforming("payload");
    scene.plan = crate::Plan::compile(&super::raw(Value::Object(Map::new()).to_string()).tree()).unwrap();
    let (_, trace) = scene.trace("1");
    assert_eq!(trace.iter().map(line).collect::<Vec<_>>(), ["in - 1 -> stored 1"]);
}
