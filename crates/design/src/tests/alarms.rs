//! Tests of alarms: which are active, and what findings say.

use std::sync::Arc;

use isobar_model::alarm::{AlarmFinding, AlarmSeverity, LIVING_ALARMS_MAX, NO_EPISODE};
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
fn alarm_key_that_is_a_number_or_boolean_is_its_text() {
    for (key, text) in [("5", "5"), ("1.50", "1.50"), ("true", "true"), (r#""""#, "")] {
        let mut scene = fridge();
        let lines = done(&scene.post_and_keep(&format!(r#"{{"k":{key},"v":1}}"#)));
        assert_eq!((&*lines[0], lines.len()), (&*format!("alarm warm '{text}' critical 1 degrees 1 1"), 3));
        assert_eq!(
            done(&scene.post_and_keep(&format!(r#"{{"k":{key}}}"#)))[0],
            format!("alarm warm '{text}' cleared 1")
        );
    }
}

// Holds: c18.alarmsRaised
#[test]
fn alarm_key_that_cannot_be_made_is_an_error_and_raised() {
    let (text, short) =
        ("a key is a text, a number or a boolean", "a key is a text of at most 128 bytes, without U+0000");
    let long = "ü".repeat(65);
    for (key, raised, error) in [
        (json!(null), "", text),
        (json!([1]), "", text),
        (json!(long), &long[..128], short),
        (json!("a\0b"), "ab", short),
        (json!("x".repeat(129)), &"x".repeat(128), short),
    ] {
        let mut scene = fridge();
        let lines = done(&scene.post_and_keep(&json!({"k": key, "v": 1}).to_string()));
        assert_eq!(lines[0], format!("alarm warm '{raised}' critical 1 degrees 1 1"));
        assert_eq!(&lines[3..], [format!("error warm: {error}")]);
        let cleared = done(&scene.post_and_keep(&json!({"k": key}).to_string()));
        assert_eq!(cleared[0], format!("alarm warm '{raised}' cleared 1"));
    }
    let missing = done(&fridge().post_and_keep(r#"{"v":1}"#));
    assert_eq!((&*missing[0], missing.len()), ("alarm warm '' critical 1 degrees 1 1", 4));
    assert!(missing[3].starts_with("error warm: "), "{missing:?}");
    assert_eq!(done(&fridge().post_and_keep(&json!({"k": "ü".repeat(64), "v": 1}).to_string())).len(), 3);
}

// Holds: c18.alarmsRaised
#[test]
fn alarm_whose_title_cannot_be_made_is_raised() {
    for (title, shown) in [
        ("{{ payload.room }} is warm", "is warm"),
        ("{{ payload.room }}: {{ payload.v }} in {{ payload.hall }}", ": 9 in"),
        ("{{ payload.room }}", "warm"),
        (" {{ payload.room }} ", "warm"),
        ("{{ payload.k.first.second }} is {{ device.name }}", "is fridge"),
    ] {
        let warm = json!({"type": "alarm", "properties": {"title": title}});
        let mut scene = scene(json!([link("warm", "raise")]), json!({"warm": warm}));
        let lines = done(&scene.post_and_keep(r#"{"k":"a","v":9}"#));
        let raised =
            [format!(r#"alarm warm '' warning {shown} 1 {{"k":"a","v":9}}"#), format!("notify warm basicUser {shown}")];
        assert_eq!(&lines[..2], raised, "{title}");
        assert!(lines.len() > 2 && lines[2..].iter().all(|line| line.starts_with("error warm: ")), "{lines:?}");
    }
}

#[test]
fn empty_title_of_an_alarm_is_the_name_of_its_element() {
    for payload in [r#""""#, r#""  ""#] {
        let warm = json!({"type": "alarm", "properties": {"title": "{{ payload }}"}});
        let mut scene = scene(json!([link("warm", "raise")]), json!({"warm": warm}));
        let lines = done(&scene.post_and_keep(payload));
        assert_eq!(lines, [format!("alarm warm '' warning warm 1 {payload}"), "notify warm basicUser warm".to_owned()]);
    }
}

// Holds: c18.alarmsRaised
#[test]
fn alarm_whose_value_cannot_be_made_is_raised_with_null() {
    let raise = json!({"element": "warm", "ability": "raise", "arguments": {"value": "payload.temp"}});
    let warm = json!({"type": "alarm", "properties": {"title": "warm"}});
    let mut scene = scene(json!([raise]), json!({"warm": warm}));
    for raised in ["alarm warm '' warning warm 1 null", "alarm warm '' again 2 null"] {
        let lines = done(&scene.post_and_keep("{}"));
        assert_eq!(lines[0], raised);
        assert!(lines.last().unwrap().starts_with("error warm: "), "{lines:?}");
    }
}

#[test]
fn alarm_whose_title_takes_too_long_is_raised() {
    let slow = "payload.map(a, payload.map(b, payload.map(c, a + b + c)))";
    let warm = json!({"type": "alarm", "properties": {"title": format!("{{{{ {slow} }}}} is too much")}});
    let raise = json!({"element": "warm", "ability": "raise", "arguments": {"value": "1"}});
    let scene = scene(json!([raise]), json!({"warm": warm}));
    let lines = done(&scene.post(serde_json::Value::from((0..200).collect::<Vec<_>>()).to_string()));
    assert_eq!(lines[..2], ["alarm warm '' warning is too much 1 1", "notify warm basicUser is too much"]);
    assert_eq!(lines[2], "error warm: the expressions of this run take too long");
}

/// Returns the findings of a run.
fn findings(outcome: &crate::Outcome) -> Vec<AlarmFinding> {
    let effects = outcome.effects.iter();
    effects
        .filter_map(|effect| if let crate::Effect::Alarm(it) = effect { Some((**it).clone()) } else { None })
        .collect()
}

// Holds: c18.alarmsWhole
#[test]
fn every_raise_of_an_alarm_has_what_the_list_shows() {
    let mut scene = fridge();
    let first = findings(&scene.post_and_keep(r#"{"k":"a","v":9}"#)).remove(0);
    scene.wait_minutes(1.0);
    let again = findings(&scene.post_and_keep(r#"{"k":"a","v":10}"#)).remove(0);
    let [begin, later] = [&first, &again].map(|finding| finding.begin.clone().unwrap());
    assert_eq!((begin.at, later.at, &*later.title), (first.at, first.at, "10 degrees"));
    assert_eq!((again.episode, again.count, later.severity), (first.episode, 2, AlarmSeverity::Critical));
    assert!(first.is_unlisted && !again.is_unlisted);
}

// Holds: c18.alarmsWhole
#[test]
fn clear_ends_an_alarm_that_only_the_list_shows_as_active() {
    let mut scene = fridge();
    Arc::make_mut(&mut scene.device.alarms).insert("warm", "a");
    let outcome = scene.post_and_keep(r#"{"k":"a"}"#);
    assert_eq!(done(&outcome), ["alarm warm 'a' cleared 0"]);
    let cleared = findings(&outcome).remove(0);
    assert_eq!((cleared.episode, cleared.cleared_at), (NO_EPISODE, Some(scene.now)));
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a"}"#)), Vec::<String>::new());
}

// Holds: c18.alarmsWhole
#[test]
fn alarm_without_room_in_the_list_is_an_error_until_there_is() {
    let mut scene = fridge();
    (0..LIVING_ALARMS_MAX).for_each(|n| Arc::make_mut(&mut scene.device.alarms).insert("others", &n.to_string()));
    let full = "error warm: cannot list the alarm: at most 1000 alarms of a device are listed as active";
    let first = done(&scene.post_and_keep(r#"{"k":"a","v":9}"#));
    assert_eq!(first, ["notify warm manager 9 degrees", r#"store raised {"k":"a","v":9}"#, full]);
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a","v":9}"#)), [full]);
    Arc::make_mut(&mut scene.device.alarms).remove("others", "7");
    let listed = findings(&scene.post_and_keep(r#"{"k":"a","v":9}"#)).remove(0);
    assert_eq!((listed.count, listed.is_unlisted, listed.begin.is_some()), (3, true, true));
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a","v":9}"#)), ["alarm warm 'a' again 4 9"]);
}

// Holds: c18.alarmsWhole
#[test]
fn alarm_that_the_list_lacks_is_listed_by_any_run() {
    let mut scene = fridge();
    for key in ["a", "b"] {
        scene.post_and_keep(&json!({"k": key, "v": 9}).to_string());
    }
    let begun = scene.now;
    scene.wait_minutes(1.0);
    Arc::make_mut(&mut scene.device.alarms).remove("warm", "a");
    let outcome = scene.post_and_keep(r#"{"k":"c"}"#);
    assert_eq!(done(&outcome), ["alarm warm 'a' critical warm 1 -"]);
    let listed = findings(&outcome).remove(0);
    assert_eq!((listed.begin.unwrap().at, listed.is_unlisted, listed.value), (begun, true, None));
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"c"}"#)), Vec::<String>::new());
    // A raise or a clear of its own says all that there is to say.
    Arc::make_mut(&mut scene.device.alarms).remove("warm", "a");
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a","v":8}"#)), ["alarm warm 'a' again 2 8"]);
    Arc::make_mut(&mut scene.device.alarms).remove("warm", "a");
    assert_eq!(done(&scene.post_and_keep(r#"{"k":"a"}"#))[0], "alarm warm 'a' cleared 2");
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
