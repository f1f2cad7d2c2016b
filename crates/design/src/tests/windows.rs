//! Tests of windows and throttles, whose values affect later runs.

use serde_json::{Value, json};

use super::given::{Scene, done, link, scene, told};

fn window(properties: Value) -> Scene {
    scene(
        json!([link("w", "push")]),
        json!({"w": {"type": "window", "properties": properties, "triggers": {"result": [link("out", "store")]}}, "out": {"type": "storage"}}),
    )
}

/// Returns the output of the window after each value.
fn slides(properties: Value, values: &[&str]) -> Vec<String> {
    let mut scene = window(properties);
    values.iter().flat_map(|value| done(&scene.post_and_keep(value))).map(|it| it.replace("store out ", "")).collect()
}

// Holds: c11.window
#[test]
fn a_window_by_count_slides_with_every_push() {
    let values = ["4", "2", "9", "1"];
    for (aggregate, results) in [
        ("mean", ["4.0", "3.0", "5.5", "5.0"]),
        ("min", ["4", "2", "2", "1"]),
        ("max", ["4", "4", "9", "9"]),
        ("sum", ["4", "6", "11", "10"]),
        ("count", ["1", "2", "2", "2"]),
        ("first", ["4", "4", "2", "9"]),
        ("last", ["4", "2", "9", "1"]),
    ] {
        assert_eq!(slides(json!({"size": 2, "aggregate": aggregate}), &values), results, "{aggregate}");
    }
}

// Holds: c11.window
#[test]
fn window_by_time_drops_entries_as_old_as_its_width() {
    let mut scene = window(json!({"minutes": 1.5, "aggregate": "sum", "expression": "payload.v"}));
    let mut push = |wait: f64, v: u32| {
        scene.wait_minutes(wait);
        done(&scene.post_and_keep(&json!({"v": v}).to_string())).remove(0)
    };
    assert_eq!(push(0.0, 1), "store out 1");
    assert_eq!(push(1.0, 10), "store out 11");
    assert_eq!(push(0.49, 100), "store out 111");
    assert_eq!(push(0.01, 1000), "store out 1110");
    assert_eq!(push(60.0, 5), "store out 5");
}

#[test]
fn windows_and_throttles_follow_a_clock_set_back() {
    let mut scene = scene(
        json!([link("w", "push"), link("t", "pass")]),
        json!({
            "w": {"type": "window", "properties": {"minutes": 5, "aggregate": "count"}, "triggers": {"result": [link("out", "store")]}},
            "t": {"type": "throttle", "properties": {"minutes": 5}, "triggers": {"passed": [link("passed", "store")]}},
            "out": {"type": "storage"},
            "passed": {"type": "storage"},
        }),
    );
    scene.wait_minutes(60.0);
    assert_eq!(done(&scene.post_and_keep("1")), ["store out 1", "store passed 1"]);
    // The clock is right again: events get the time of the newest until it has caught up.
    scene.newest = Some(scene.now);
    for (wait, outcome) in [
        (-60.0, vec!["store out 2", "store passed 2"]),
        (4.0, vec!["store out 3"]),
        // Entries from the time when the clock was ahead count as older than the first of these.
        (2.0, vec!["store out 2", "store passed 2"]),
        (5.0, vec!["store out 1", "store passed 2"]),
    ] {
        scene.wait_minutes(wait);
        assert_eq!(done(&scene.post_and_keep("2")), outcome, "{wait}");
    }
}

#[test]
fn ints_stay_ints_and_sums_do_not_overflow() {
    assert_eq!(
        slides(json!({"size": 2, "aggregate": "sum"}), &["9223372036854775807", "1"])[1],
        "9.223372036854776e18"
    );
    assert_eq!(slides(json!({"size": 2, "aggregate": "sum"}), &["1", "0.5"]), ["1", "1.5"]);
    assert_eq!(
        slides(json!({"size": 2, "aggregate": "max"}), &["9223372036854775806", "9223372036854775807"])[1],
        "9223372036854775807"
    );
    assert_eq!(slides(json!({"size": 2, "aggregate": "mean"}), &["1.5e308", "1.7e308"])[1], "1.6e308");
    let overflown = slides(json!({"size": 2, "aggregate": "sum"}), &["1.5e308", "1.5e308"]);
    assert_eq!(overflown[1], "error w: the result is infinite, which JSON cannot write");
}

#[test]
fn window_input_that_is_no_number_is_an_error() {
    let results = slides(json!({"size": 3, "aggregate": "mean"}), &["1", "\"x\"", "null", "3"]);
    assert_eq!(results[0], "1.0");
    assert_eq!(results[1], "error w: expected a number, got a value of type string");
    assert_eq!(results[2], "error w: expected a number, got a value of type null_type");
    assert_eq!(results[3], "2.0");
}

#[test]
fn first_and_last_keep_any_small_value() {
    let values = [r#"{"a":[1,"x"]}"#, "null", r#""é""#];
    assert_eq!(slides(json!({"size": 2, "aggregate": "first"}), &values), [values[0], values[0], "null"]);
    assert_eq!(slides(json!({"size": 2, "aggregate": "last"}), &values), values);
    let large = json!("x".repeat(2_000)).to_string();
    let results = slides(json!({"size": 2, "aggregate": "first"}), &[&large]);
    assert_eq!(results, ["error w: a window keeps no value larger than 1024 bytes"]);
}

#[test]
fn a_large_window_keeps_its_state_small() {
    let mut scene = window(json!({"minutes": 500_000, "aggregate": "first"}));
    let value = json!("x".repeat(1_000)).to_string();
    for _ in 0..200 {
        scene.post_and_keep(&value);
    }
    let state = &scene.left.states["w"];
    assert!(state.len() <= 128 << 10, "{}", state.len());
    let mut scene = window(json!({"size": 4096, "aggregate": "count"}));
    for _ in 0..20 {
        scene.post_and_keep("1");
    }
    assert_eq!(scene.left.states["w"].len(), 20 * 9);
}

#[test]
fn window_state_of_another_element_type_is_ignored() {
    for foreign in [b"{\"a\":1}".as_slice(), b"", &[7; 100], &[0; 8], &[0; 17]] {
        for aggregate in ["mean", "count", "first", "sum"] {
            let mut scene = window(json!({"size": 5, "aggregate": aggregate}));
            scene.left.states.insert("w".to_owned(), bytes::Bytes::copy_from_slice(foreign));
            assert!(scene.post("1").errors.is_empty());
        }
    }
    let mut scene = window(json!({"size": 5, "aggregate": "first"}));
    scene.post_and_keep(r#"{"a":1}"#);
    let states = scene.left.states;
    let mut scene = window(json!({"size": 5, "aggregate": "mean"}));
    scene.left.states = states;
    assert_eq!(done(&scene.post("5")), ["store out 5.0"]);
}

#[test]
fn push_sees_an_earlier_push_of_the_same_run() {
    let scene = scene(
        json!([link("w", "push"), link("w", "push")]),
        json!({"w": {"type": "window", "properties": {"size": 9, "aggregate": "sum"}, "triggers": {"result": [link("out", "store")]}}, "out": {"type": "storage"}}),
    );
    let outcome = scene.post("4");
    assert_eq!(done(&outcome), ["store out 4", "store out 8"]);
    assert_eq!(told(&outcome).iter().filter(|line| line.starts_with("remember w")).count(), 1);
}

// Holds: c11.throttle
#[test]
fn throttle_passes_one_value_in_its_minutes() {
    let mut scene = scene(
        json!([link("t", "pass")]),
        json!({
            "t": {"type": "throttle", "properties": {"minutes": 10}, "triggers": {"passed": [link("through", "store")], "dropped": [link("lost", "store")]}},
            "through": {"type": "storage"}, "lost": {"type": "storage"},
        }),
    );
    let mut after = |minutes: f64| {
        scene.wait_minutes(minutes);
        done(&scene.post_and_keep("1")).remove(0)
    };
    assert_eq!(after(0.0), "store through 1");
    assert_eq!(after(0.0), "store lost 1");
    assert_eq!(after(9.99), "store lost 1");
    assert_eq!(after(0.01), "store through 1", "dropped values do not prolong it");
    assert_eq!(after(9.0), "store lost 1");
    assert_eq!(after(-60.0), "store through 1", "a clock that was set back does not shut it for long");
}
