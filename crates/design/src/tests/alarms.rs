//! Tests of alarms: which are active, and what findings say.

use serde_json::json;

use super::given::{Scene, done, link, scene};
use crate::Trigger;
use crate::tests::raw;

/// Returns a scene in which `in` raises an alarm with the payload's key and `calm` clears it.
fn fridge() -> Scene {
    let by_key = |ability: &str| {
        json!({"element": "warm", "ability": ability,
            "arguments": if ability == "raise" { json!({"key": "payload.k", "value": "payload.v"}) } else { json!({"key": "payload.k"}) }})
    };
    let triggers = json!({"raised": [link("raised", "store")], "cleared": [link("cleared", "store")],
        "acknowledged": [link("seen", "store")]});
    scene(
        json!([{"element": "is", "ability": "evaluate"}]),
        json!({
            "is": {"type": "condition", "properties": {"expression": "has(payload.v)"},
                   "triggers": {"true": [by_key("raise")], "false": [by_key("clear")]}},
            "warm": {"type": "alarm", "properties": {"title": "{{ payload.v }} degrees", "severity": "critical",
                     "minimumRole": "manager"}, "triggers": triggers},
            "raised": {"type": "storage"}, "cleared": {"type": "storage"}, "seen": {"type": "storage"},
        }),
    )
}

// Holds: c11.alarm
#[test]
fn alarm_is_raised_once_counted_and_cleared_once() {
    let mut scene = fridge();
    let first = r#"{"k":"a","v":9}"#;
    assert_eq!(
        done(&scene.post_and_keep(first)),
        ["alarm warm 'a' critical 9 degrees 1 9", "notify warm manager 9 degrees", r#"store raised {"k":"a","v":9}"#,]
    );
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a","v":10}"#)), ["alarm warm 'a' again 2 10"]);
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"b"}"#)), Vec::<String>::new());
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a"}"#)), ["alarm warm 'a' cleared 2", r#"store cleared {"k":"a"}"#]);
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a"}"#)), Vec::<String>::new());
    assert_eq!(done(&scene.post_and_keep(first)).len(), 3);
}

// Holds: c11.alarm
#[test]
fn alarm_keys_are_separate_and_limited_in_number() {
    let mut scene = fridge();
    for key in 0..64 {
        assert_eq!(done(&scene.post_and_keep(&json!({"k": key.to_string(), "v": 1}).to_string())).len(), 3);
    }
    let beyond = r#"{"k":"x","v":1}"#;
    assert_eq!(done(&scene.post_and_keep(beyond)), ["error warm: at most 64 alarms of an element are active"]);
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"7","v":2}"#)), ["alarm warm '7' again 2 2"]);
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"7"}"#)).len(), 2);
    assert_eq!(done(&scene.post_and_keep(beyond)).len(), 3);
}

#[test]
fn alarm_key_that_is_not_a_short_text_is_an_error() {
    let mut scene = fridge();
    let error = "error warm: a key must be a text of at most 128 bytes, without U+0000";
    for key in [json!(5), json!("x".repeat(129)), json!("a\0"), json!(null)] {
        assert_eq!(done(&scene.post_and_keep(&json!({"k": key, "v": 1}).to_string())), [error]);
    }
    assert_eq!(done(&scene.post_and_keep(&json!({"k": "ü".repeat(64), "v": 1}).to_string())).len(), 3);
}

#[test]
fn alarm_without_arguments_has_an_empty_key_and_the_input() {
    let others = json!({"warm": {"type": "alarm", "properties": {"title": "warm"}}});
    let mut scene = scene(json!([link("warm", "raise")]), others);
    assert_eq!(done(&scene.post_and_keep("9.1")), ["alarm warm '' warning warm 1 9.1", "notify warm basicUser warm"]);
}

#[test]
fn too_large_alarm_value_is_null_and_an_error() {
    let mut scene = fridge();
    let large = json!({"k": "a", "v": "x".repeat(5_000)}).to_string();
    let lines = done(&scene.post_and_keep(&large));
    assert!(lines[0].starts_with("alarm warm 'a' critical xxx") && lines[0].ends_with("… 1 null"), "{lines:?}");
    assert_eq!(lines[3], "error warm: an alarm keeps no value larger than 4 KiB");
}

#[test]
fn episodes_of_alarm_grow_even_within_a_moment() {
    let mut scene = fridge();
    let mut episodes = Vec::new();
    for payload in [r#"{"k":"a","v":1}"#, r#"{"k":"a"}"#, r#"{"k":"a","v":1}"#, r#"{"k":"b","v":1}"#] {
        let outcome = scene.post_and_keep(payload);
        let finding = outcome.effects.iter().find_map(|it| match it {
            crate::Effect::Alarm(finding) => Some(finding.episode),
            _ => None,
        });
        episodes.push(finding.unwrap());
    }
    let [first, cleared, again, other] = episodes[..] else { unreachable!("there are four") };
    assert!(first == cleared && first < again && again < other, "{episodes:?}");
}

// Holds: c11.alarm
#[test]
fn alarm_is_cleared_by_hand_once_and_acknowledged() {
    let mut scene = fridge();
    scene.post_and_keep(r#"{"k":"a","v":9}"#);
    let clears = |scene: &mut Scene, key: &str| {
        let outcome = scene.begins(Trigger::AlarmCleared { element: "warm", key }, &raw(r#"{"k":1}"#));
        scene.keep(&outcome);
        done(&outcome)
    };
    assert_eq!(clears(&mut scene, "b"), Vec::<String>::new());
    assert_eq!(clears(&mut scene, "a"), ["alarm warm 'a' cleared 1", r#"store cleared {"k":1}"#]);
    assert_eq!(clears(&mut scene, "a"), Vec::<String>::new());
    let seen = scene.begins(Trigger::AlarmAcknowledged { element: "warm" }, &raw(r#"{"k":2}"#));
    assert_eq!(done(&seen), [r#"store seen {"k":2}"#]);
    assert_eq!(done(&scene.begins(Trigger::AlarmAcknowledged { element: "is" }, &raw("1"))), Vec::<String>::new());
}

#[test]
fn alarm_state_of_another_element_type_is_ignored() {
    for state in [&b"x"[..], &[0; 8], &[255; 40], &[0; 9]] {
        let mut scene = fridge();
        scene.left.states.insert("warm".to_owned(), bytes::Bytes::copy_from_slice(state));
        assert_eq!(done(&scene.post_and_keep(r#"{"k":"a","v":9}"#)).len(), 3);
    }
}
