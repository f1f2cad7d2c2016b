//! Tests that the effects of a run are limited, whatever the design, the event and earlier state.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::event::STATE_BYTES_BESIDE;
use isobar_model::json::with_members;
use isobar_model::meta::{META_BYTES_MAX, META_LABELS_MAX, MetaSize};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::given::{Scene, compile, raw, told};
use crate::elements::SHAPES;
use crate::elements::context::STATES_BYTES_MAX;
use crate::value::budget::{LEFT_BYTES_MAX, SENDS_MAX, SETTINGS_MAX, TOLD_BYTES_MAX};
use crate::value::failures::{ERROR_CHARS_MAX, ERRORS_MAX};
use crate::{Effect, Memory as _, Outcome};

/// Returns a text of `bytes` bytes of JSON.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

fn object(names: impl Iterator<Item = usize>) -> String {
    let members: Vec<String> = names.map(|n| format!("\"k{n}\":{n}")).collect();
    format!("{{{}}}", members.join(","))
}

/// Returns a scene in which `in` leads to these links, repeated `times` times.
fn scene(times: usize, links: &[Value], others: Value) -> Scene {
    super::given::scene(json!(vec![links; times].concat()), others)
}

/// Returns the bytes of an effect, and how many of them go to the registry.
fn bytes_of(effect: &Effect) -> (usize, usize) {
    let told = |bytes: usize| (bytes, bytes);
    match effect {
        Effect::Store { value, .. } => (value.bytes().len(), 0),
        Effect::Send { payload, .. } => (payload.bytes().len(), 0),
        Effect::Remember { state, .. } => (state.len(), 0),
        Effect::SetStatus(_) | Effect::SetLocation(_) | Effect::Forget { .. } => (0, 0),
        Effect::SetMeta { tag, value } => told(tag.len() + value.bytes().len()),
        Effect::SetSetting { value, .. } => told(value.as_ref().map_or(0, |value| value.bytes().len())),
        Effect::Notify { message, .. } => told(message.len()),
        Effect::Alarm(finding) => {
            let title = finding.begin.as_ref().map_or(0, |begin| begin.title.len());
            told(title + finding.key.len() + finding.value.as_ref().map_or(0, |value| value.bytes().len()))
        }
        Effect::Call { request, .. } => {
            let headers: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            told(request.url.len() + headers + request.body.as_ref().map_or(0, String::len))
        }
    }
}

fn count(outcome: &Outcome, is_one: impl Fn(&Effect) -> bool) -> usize {
    outcome.effects.iter().filter(|effect| is_one(effect)).count()
}

/// Asserts that a run's effects are within all limits.
fn is_within_bounds(scene: &mut Scene, outcome: &Outcome) {
    let bytes = outcome.effects.iter().map(bytes_of).fold((0, 0), |sum, (left, told)| (sum.0 + left, sum.1 + told));
    assert!(bytes.0 <= LEFT_BYTES_MAX && bytes.1 <= TOLD_BYTES_MAX, "{bytes:?}");
    assert!(count(outcome, |it| matches!(it, Effect::Notify { .. } | Effect::Call { .. })) <= SENDS_MAX as usize);
    assert!(count(outcome, |it| matches!(it, Effect::SetSetting { .. })) <= SETTINGS_MAX as usize);
    assert!(outcome.errors.len() <= ERRORS_MAX);
    assert!(outcome.errors.iter().all(|error| error.message.chars().count() <= ERROR_CHARS_MAX));
    let labels = outcome.effects.iter().filter_map(|effect| match effect {
        Effect::SetMeta { tag, value } => Some((tag.as_str(), value)),
        _ => None,
    });
    let (before, after) = (&scene.device.meta, with_members(&scene.device.meta, labels));
    assert_eq!(MetaSize::of(&after).exceeds(MetaSize::of(before)), None);
    let before = scene.left.states_bytes();
    for effect in &outcome.effects {
        match effect {
            Effect::Remember { element, state } => drop(scene.left.states.insert(element.to_string(), state.clone())),
            Effect::Forget { element } => drop(scene.left.states.remove(element.as_ref())),
            _ => {}
        }
    }
    assert!(scene.left.states_bytes() <= STATES_BYTES_MAX.max(before), "{} bytes", scene.left.states_bytes());
}

/// Returns the required properties of an element type.
fn properties(kind: &str) -> Value {
    match kind {
        "condition" => json!({"expression": "true"}),
        "transform" => json!({"expression": "[payload, payload]"}),
        "function" => json!({"code": "function decodeUplink(input) { return {data: input.bytes}; }"}),
        "window" => json!({"size": 4096, "aggregate": "last"}),
        "throttle" => json!({"minutes": 0.001}),
        "notification" => json!({"message": "{{ payload }} {{ payload }}"}),
        "alarm" => json!({"title": "{{ payload }} {{ payload }}"}),
        "http" => json!({"url": "http://example.com/", "body": "payload"}),
        "interval" => json!({"minutes": 1}),
        _ => json!({}),
    }
}

/// Returns every ability of every element type, for several elements each, with the incoming value for every argument
/// except the tag, which is unique for each link.
fn every_link(elements: usize) -> (Vec<Value>, Map<String, Value>) {
    let (mut links, mut others) = (Vec::new(), Map::new());
    for shape in SHAPES {
        for n in 0..elements {
            let name = format!("{}{n}", shape.name);
            for ability in shape.abilities {
                let tag = format!("'{name}'");
                let arguments = if ability.arguments.contains(&"tag") { json!({"tag": tag}) } else { json!({}) };
                links.push(json!({"element": name, "ability": ability.name, "arguments": arguments}));
            }
            others.insert(name, json!({"type": shape.name, "properties": properties(shape.name)}));
        }
    }
    (links, others)
}

#[test]
fn every_element_type_has_a_place_in_these_tests() {
    let (links, others) = every_link(1);
    assert_eq!((compile(Value::Object(others.clone())).map(|_| ()), others.len()), (Ok(()), SHAPES.len()));
    let mut scene = scene(1, &links, Value::Object(others));
    let outcome = scene.post("\"AQ==\"");
    is_within_bounds(&mut scene, &outcome);
    assert!(outcome.effects.len() > 8, "{:?}", told(&outcome));
}

fn any_payload() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\"AQ==\"".to_owned()),
        (1_usize..60).prop_map(|kib| text(kib << 10)),
        (500_usize..1_000).prop_map(|kib| text(kib << 10)),
        (1_usize..20_000).prop_map(|names| object(0..names)),
        (1_usize..20_000).prop_map(|items| format!("[{}]", vec!["0"; items].join(","))),
        (1_usize..100_000).prop_map(|digits| format!("0.{}", "1".repeat(digits))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    // Holds: c11.bounds
    #[test]
    fn any_design_and_event_stay_within_all_limits(
        elements in 1_usize..30,
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        times in 1_usize..400,
        payloads in prop::collection::vec(any_payload(), 1..3),
        labels in 0_usize..1_500,
        strange in 0_usize..20,
    ) {
        let (all, others) = every_link(elements);
        let links: Vec<Value> = chosen.iter().map(|index| index.get(&all).clone()).collect();
        let mut scene = scene(times, &links, Value::Object(others));
        scene.device.meta = raw(object(0..labels));
        for n in 0..strange {
            scene.left.states.insert(format!("gone{n}"), Bytes::from(vec![7; 100_000]));
        }
        for payload in payloads {
            let outcome = scene.post(payload);
            is_within_bounds(&mut scene, &outcome);
        }
    }
}

/// Uses a large value a few times, and a small one as often as a run may.
#[test]
fn repeated_ability_stays_within_all_limits() {
    let (links, others) = every_link(1);
    for link in links {
        for (times, payload) in [(12, text(400 << 10)), (12, object(0..20_000)), (3_000, "\"AQ==\"".to_owned())] {
            let mut scene = scene(times, std::slice::from_ref(&link), Value::Object(others.clone()));
            let outcome = scene.post(payload);
            is_within_bounds(&mut scene, &outcome);
        }
    }
}

#[test]
fn a_large_payload_is_no_label() {
    let label = |n: usize| json!({"element": "m", "ability": "setValue", "arguments": {"tag": format!("'t{n}'")}});
    let links: Vec<Value> = (0..300).map(label).collect();
    let outcome = scene(1, &links, json!({"m": {"type": "deviceMeta"}})).post(text(1 << 20));
    assert_eq!((outcome.effects.len(), outcome.errors.len()), (0, 16));
    assert_eq!(outcome.errors[0].message, format!("the metadata of a device holds at most {META_BYTES_MAX} bytes"));
}

#[test]
fn label_beyond_the_size_limit_fails_and_a_smaller_one_fits() {
    let label =
        json!({"element": "m", "ability": "setValue", "arguments": {"tag": "payload.tag", "value": "payload.value"}});
    let mut scene = scene(1, &[label], json!({"m": {"type": "deviceMeta"}}));
    let mut post = |tag: &str, value: &str| {
        let outcome = scene.post(format!(r#"{{"tag":"{tag}","value":{value}}}"#));
        is_within_bounds(&mut scene, &outcome);
        for effect in &outcome.effects {
            let Effect::SetMeta { tag, value } = effect else { panic!("a label") };
            scene.device.meta = with_members(&scene.device.meta, [(tag.as_str(), value)]);
        }
        outcome.errors.first().map(|error| error.message.clone())
    };
    let too_large = Some(format!("the metadata of a device holds at most {META_BYTES_MAX} bytes"));
    assert_eq!(post("a", &text(60 << 10)), None);
    assert_eq!(post("b", &text(4 << 10)), too_large);
    assert_eq!(post("a", &text(50 << 10)), None);
    assert_eq!(post("b", &text(4 << 10)), None);
    assert_eq!(post("a", "1"), None);
    // A computed tag: each event adds one.
    let taken = 4;
    for n in taken..META_LABELS_MAX {
        assert_eq!(post(&format!("t{n}"), "1"), None, "{n}");
    }
    assert_eq!(post("more", "1"), Some(format!("the metadata of a device holds at most {META_LABELS_MAX} labels")));
    assert_eq!(post("t5", "2"), None);
}

#[test]
fn oversized_labels_stay_and_do_not_grow() {
    let label = json!({"element": "m", "ability": "setValue", "arguments": {"tag": "'a'"}});
    let mut scene = scene(1, &[label], json!({"m": {"type": "deviceMeta"}}));
    scene.device.meta = raw(format!(r#"{{"a":{},"b":1}}"#, text(100 << 10)));
    assert_eq!(scene.post(text(99 << 10)).errors, []);
    assert_eq!(scene.post(text(101 << 10)).effects, []);
}

#[test]
fn settings_are_bounded_in_bytes_and_in_number() {
    let (set, others) = (super::given::link("s", "set"), json!({"s": {"type": "deviceSetting"}}));
    let outcome = scene(300, std::slice::from_ref(&set), others.clone()).post(text(1_000_000));
    assert_eq!(outcome.effects.len(), 2);
    assert_eq!(outcome.errors[0].message, "settings, labels, notifications and calls of a run take at most 2 MiB");
    let outcome = scene(3_000, &[set], others).post("\"a\"");
    assert_eq!(outcome.effects.len(), SETTINGS_MAX as usize);
    assert_eq!(outcome.errors[0].message, "a run changes settings at most 1000 times");
}

#[test]
fn setting_beyond_the_size_limit_fails_and_a_smaller_one_fits() {
    let setting = json!({"type": "deviceSetting"});
    let others = json!({"a": setting, "b": setting, "c": setting});
    let set = |element: &str, value: &str| json!({"element": element, "ability": "set", "arguments": {"value": value}});
    let reset = |element: &str| json!({"element": element, "ability": "reset"});
    let no_room = "the value has no room: the settings of a device take at most 1 MiB together";
    let payload = format!(r#"{{"most":{},"half":{},"small":"s"}}"#, text(900_000), text(500_000));
    let (most, half, small) = ("payload.most", "payload.half", "payload.small");
    for (links, done, errors) in [
        // Changes within the run count, and undone ones do not.
        (vec![set("a", most), set("b", half), set("b", small)], 2, 1),
        (vec![set("a", half), set("b", half), set("a", most)], 2, 1),
        (vec![set("a", most), set("a", small), set("b", most)], 3, 0),
        (vec![set("a", most), reset("a"), set("b", most)], 3, 0),
        // The device's former state counts too.
        (vec![set("c", most), set("a", half), set("c", half), set("a", half)], 3, 1),
    ] {
        let scene = scene(1, &links, others.clone()).with_setting("c", "\"before\"");
        let outcome = scene.post(&payload);
        let messages: Vec<&str> = outcome.errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!((outcome.effects.len(), messages), (done, vec![no_room; errors]), "{links:?}");
    }
}

#[test]
fn oversized_settings_stay_and_do_not_grow() {
    let scene = |value: &str| {
        let set = json!({"element": "a", "ability": "set", "arguments": {"value": value}});
        let others = json!({"a": {"type": "deviceSetting"}});
        // One belongs to an earlier design.
        let scene = scene(1, &[set], others).with_setting("gone", &text(1 << 20));
        scene.with_setting("a", &text(1 << 10)).post(format!(r#"{{"less":{},"more":{}}}"#, text(1 << 9), text(1 << 11)))
    };
    assert_eq!((scene("payload.less").errors, scene("payload.less").effects.len()), (vec![], 1));
    assert_eq!((scene("payload.more").errors.len(), scene("payload.more").effects), (1, vec![]));
}

#[test]
fn last_value_of_a_label_is_emitted_once() {
    let label = |tag: &str, value: Value| json!({"element": "m", "ability": "setValue", "arguments": {"tag": format!("'{tag}'"), "value": value}});
    let links = [label("a", json!(1)), label("b", json!(2)), label("a", json!(3)), label("a", json!(4))];
    let outcome = scene(1, &links, json!({"m": {"type": "deviceMeta"}})).post("1");
    assert_eq!(told(&outcome), ["meta a 4", "meta b 2"]);
}

#[test]
fn each_value_of_a_label_is_charged() {
    let label =
        |value: &str| json!({"element": "m", "ability": "setValue", "arguments": {"tag": "'a'", "value": value}});
    let scene = scene(100, &[label("payload.one"), label("payload.other")], json!({"m": {"type": "deviceMeta"}}));
    let outcome = scene.post(format!(r#"{{"one":{},"other":{}}}"#, text(60 << 10), text(61 << 10)));
    assert_eq!(outcome.effects.len(), 1);
    assert_eq!(outcome.errors[0].message, "settings, labels, notifications and calls of a run take at most 2 MiB");
}

#[test]
fn changed_state_is_small_for_a_key_of_any_size() {
    const NAMES: usize = 20_000;
    let others = json!({
        "c": {"type": "changed", "triggers": {"changed": [{"element": "new", "ability": "store", "arguments": {"value": 1}}],
                                              "unchanged": [{"element": "same", "ability": "store", "arguments": {"value": 1}}]}},
        "new": {"type": "storage"}, "same": {"type": "storage"},
    });
    let mut scene = scene(1, &[super::given::link("c", "evaluate")], others);
    let mut found = Vec::new();
    let other = object(0..NAMES).replace("\"k7\":7,", "\"k7\":8,");
    for payload in
        [object(0..NAMES), object((0..NAMES).rev()), object(0..NAMES).replace("\"k7\":7,", "\"k7\":7.0, "), other]
    {
        let outcome = scene.post_and_keep(&payload);
        assert!(scene.left.states["c"].len() <= 1_024, "{} bytes", scene.left.states["c"].len());
        found.push(super::given::done(&outcome).remove(0));
    }
    assert_eq!(found, ["store new 1", "store same 1", "store same 1", "store new 1"]);
}

#[test]
fn large_stored_key_is_compared_and_replaced_by_a_fingerprint() {
    let others = json!({"c": {"type": "changed", "triggers": {"unchanged": [super::given::link("same", "store")]}}, "same": {"type": "storage"}});
    let mut scene = scene(1, &[super::given::link("c", "evaluate")], others);
    scene.left.states.insert("c".to_owned(), Bytes::from(object(0..2_000)));
    let outcome = scene.post_and_keep(&object((0..2_000).rev()));
    assert!(told(&outcome).iter().any(|line| line.starts_with("store same")));
    assert!(scene.left.states["c"].len() <= 1_024);
    assert!(told(&scene.post_and_keep(&object(0..2_000))).iter().all(|line| line.starts_with("store same")));
}

#[test]
fn large_keys_are_charged_to_the_run() {
    let others: Map<String, Value> = (0..999).map(|n| (format!("c{n}"), json!({"type": "changed"}))).collect();
    let links: Vec<Value> = (0..999).map(|n| super::given::link(&format!("c{n}"), "evaluate")).collect();
    let mut scene = scene(1, &links, Value::Object(others));
    let outcome = scene.post(object(0..60_000));
    is_within_bounds(&mut scene, &outcome);
    assert!((1..20).contains(&outcome.effects.len()), "{} keys", outcome.effects.len());
    assert!(told(&outcome).iter().any(|line| line.contains("take too long")));
}

/// Returns the state of a window with `values` numbers.
fn full_window(values: usize) -> Bytes {
    let entry: Vec<u8> = [&0_i64.to_le_bytes()[..], &[0], &7_i64.to_le_bytes()].concat();
    Bytes::from(entry.repeat(values))
}

fn windows(count: usize) -> Scene {
    let window = json!({"type": "window", "properties": {"size": 4096, "aggregate": "sum"}});
    let others: Map<String, Value> = (0..count).map(|n| (format!("w{n}"), window.clone())).collect();
    let links: Vec<Value> = (0..count).map(|n| super::given::link(&format!("w{n}"), "push")).collect();
    scene(1, &links, Value::Object(others))
}

#[test]
fn states_of_windows_are_charged_to_the_run() {
    let mut scene = windows(900);
    for n in 0..900 {
        scene.left.states.insert(format!("w{n}"), full_window(4_096));
    }
    let outcome = scene.post("7");
    let written: usize = outcome.effects.iter().map(|effect| bytes_of(effect).0).sum();
    assert!((1..5 << 20).contains(&written), "{written} bytes are written");
    assert!(outcome.errors.iter().any(|error| error.message.contains("take too long")), "{:?}", outcome.errors.first());
    // An oversized state stays, and does not grow.
    is_within_bounds(&mut scene, &outcome);
}

#[test]
fn element_states_are_limited_and_orphans_make_room() {
    let mut scene = windows(20);
    let state = |n: usize| (format!("w{n}"), full_window(4_000));
    scene.left.states.extend((0..15).map(state));
    assert!(scene.left.states_bytes() + 4_000 * 17 > STATES_BYTES_MAX);
    for n in 15..20 {
        scene.left.states.insert(format!("w{n}"), full_window(100));
    }
    let mut refused = Vec::new();
    for _ in 0..80 {
        refused = scene.post_and_keep("7").errors;
        assert!(scene.left.states_bytes() <= STATES_BYTES_MAX);
    }
    assert_eq!(refused[0].message, "what the elements of a device remember takes at most 1024 KiB");
    // Elements that the design no longer has.
    let left = scene.left;
    let mut scene = windows(4);
    scene.left = left;
    let outcome = scene.post_and_keep("7");
    assert_eq!((outcome.errors, scene.left.states.len()), (vec![], 4));
    assert!(scene.left.states_bytes() < 5 * (4_096 * 17 + STATE_BYTES_BESIDE));
}

#[test]
fn error_message_is_cut() {
    let payload = format!("{{\"key\":{}}}", text(1 << 20));
    let outcome = Scene::transforming("payload[payload.key]").post(payload);
    assert!(outcome.errors[0].message.chars().count() <= ERROR_CHARS_MAX);
    // An exception may have any message.
    let outcome = super::code::decoding("throw 'é'.repeat(100000);").post("[]");
    assert_eq!(outcome.errors[0].message, "é".repeat(ERROR_CHARS_MAX));
}

/// Checks that expensive operations are charged: units end the run before its time does.
#[test]
fn building_comparing_and_searching_are_charged() {
    let list: Vec<u32> = (0..2_000).collect();
    let (a, b) = (text(100_000), text(100_000));
    let payload = format!(r#"{{"l":{list:?},"a":{a},"b":{b},"n":0.{}}}"#, "1".repeat(100_000));
    let mut elements = super::given::transforming("0");
    for n in 0..900 {
        elements[format!("s{n}")] = json!({"type": "deviceSetting"});
    }
    for greedy in [
        "payload.l.map(x, settings).size()",
        "payload.l.all(x, payload.a <= payload.b)",
        "payload.l.map(x, 'x'.indexOf(payload.a)).size()",
        "payload.l.map(x, 'x'.replace(payload.a, '')).size()",
        "payload.l.map(x, payload.n + 1).size()",
        "payload.l.exists(x, payload.n == x)",
        "payload.l.map(x, type(payload.n)).size() + payload.l.map(x, int(payload.n)).size()",
    ] {
        elements["t"]["properties"]["expression"] = json!(greedy);
        let outcome = told(&Scene::new(elements.clone()).post(&payload));
        assert!(outcome.iter().any(|line| line.contains("take too long")), "{greedy}: {:?}", outcome.first());
    }
}

#[test]
fn merging_into_large_last_values_is_charged_once_a_run() {
    let store = |n: usize| super::given::link(&format!("o{n}"), "store");
    let others: Map<String, Value> = (0..100).map(|n| (format!("o{n}"), json!({"type": "storage"}))).collect();
    let scene = |links: &[Value]| {
        let mut scene = scene(1, links, Value::Object(others.clone()));
        for n in 0..100 {
            scene.left.last.insert(format!("o{n}"), raw(text(250 << 10)));
        }
        scene
    };
    let many: Vec<Value> = (0..100).map(store).collect();
    let outcome = scene(&many).post("{}");
    assert!((5..20).contains(&outcome.effects.len()), "{}", outcome.effects.len());
    let outcome = scene(&vec![store(0); 1_000]).post("{}");
    assert_eq!(outcome.effects.len(), 1_000);
    let element: Arc<str> = Arc::from("o0");
    assert!(outcome.effects.iter().all(|effect| matches!(effect, Effect::Store { element: it, .. } if *it == element)));
}
