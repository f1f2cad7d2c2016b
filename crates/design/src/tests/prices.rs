//! Tests that every use of a value is charged by its bytes, including keys and messages.

use serde_json::{Value, json};

use super::given::{Scene, link, raw, scene};
use crate::{LONG_RUN_UNITS, Outcome};

/// Most bytes of text for one unit.
const BYTES_PER_UNIT: u64 = 16;
/// Most bytes of text for one unit where each value in them is examined.
const READ_BYTES_PER_UNIT: u64 = 4;

fn computed(expression: &str, payload: &Value) -> Outcome {
    Scene::transforming(expression).post(payload.to_string())
}

/// Returns texts of the same length that differ only in the last letter.
fn alike(bytes: usize) -> [String; 2] {
    ["1", "2"].map(|last| "k".repeat(bytes - 1) + last)
}

#[test]
fn long_keys_are_charged_by_their_bytes() {
    const KEY: usize = 100_000;
    let [first, second] = alike(KEY);
    let payload = json!({
        "a": {&first: 1, &second: 2}, "b": {&second: 2, &first: 1}, "k": second, "m": {&first: 1, &second: 2},
    });
    for (expression, keys) in [
        // Both maps are scanned.
        ("payload.a == payload.m ? 1 : 2", 2),
        ("payload.a[payload.k]", 1),
        ("payload.k in payload.a ? 1 : 2", 1),
        ("payload.k in {payload.k: 1} ? 1 : 2", 1),
        ("{payload.k: 1, 1: 2}", 2),
    ] {
        let outcome = computed(expression, &payload);
        assert_eq!(outcome.errors, [], "{expression}");
        let least = keys * KEY as u64 / BYTES_PER_UNIT;
        assert!(outcome.units >= least, "{expression}: {} units", outcome.units);
    }
    // In another order the keys are hashed.
    let turned = r#"{"a":{"K1":1,"K2":2},"b":{"K2":2,"K1":1}}"#.replace("K1", &first).replace("K2", &second);
    let outcome = Scene::transforming("payload.a == payload.b ? 1 : 2").post(turned);
    let least = 4 * KEY as u64 / READ_BYTES_PER_UNIT;
    assert!(outcome.errors.is_empty() && outcome.units >= least, "{} units", outcome.units);
}

#[test]
fn messages_show_the_beginning_of_a_long_key() {
    let payload = json!({"k": "é".repeat(100_000), "o": {"é".repeat(100_000): 1}, "l": [1]});
    let long = "a".repeat(5_000);
    for expression in [
        "{'a': 1}[payload.k]",
        "payload.l.exists(x, {'a': 1}[payload.k] == 1)",
        "1[payload.k]",
        &format!("payload.{long}"),
        &format!("payload.l.{long}"),
        &format!("has(payload.l.{long})"),
        &format!("{{true: 1, 'true': payload.{long}}}"),
        "{payload.k: 1, 1: 2, '1': 3}",
    ] {
        let outcome = computed(expression, &payload);
        let message = &outcome.errors.first().expect(expression).message;
        assert!(message.chars().count() < 150, "{}: {message}", &expression[..20.min(expression.len())]);
    }
}

#[test]
fn duplicate_keys_are_charged_before_they_are_found() {
    let payload = json!({"k": "k".repeat(500_000)});
    let outcome = computed("{payload.k: 1, 1: 2, '1': 3}", &payload);
    assert_eq!(outcome.errors[0].message, "two keys of a map are written '1'");
    assert!(outcome.units >= 500_000 / BYTES_PER_UNIT, "{} units", outcome.units);
}

#[test]
fn functions_are_charged_by_the_bytes_they_scan() {
    let text = "1h".repeat(5_000);
    for (expression, least) in [
        ("duration(payload)", 10_000),
        // Every match costs something, whatever its length.
        ("payload.replace('1', '2')", 5_000),
        ("payload.split('h').size()", 20_000),
        ("double('1' + payload.replace('h', '1')) > 1 ? 1 : 2", 2_500),
        ("payload.matches('(h|1)+x')", 160_000),
    ] {
        let outcome = computed(expression, &json!(text));
        assert!(outcome.errors.is_empty() && outcome.units >= least, "{expression}: {} units", outcome.units);
    }
    // Built variables and discarded errors cost units.
    let outcome = computed("device == event || payload || payload || !payload || true", &json!(1));
    assert!(outcome.units >= 50, "what is put together and errors that are swallowed: {} units", outcome.units);
}

#[test]
fn cost_of_a_pattern_grows_with_its_size() {
    let units = |pattern: &str| computed(&format!("payload.matches('{pattern}')"), &json!("x".repeat(100))).units;
    assert!(units("^x+$") < 5_000, "a small pattern");
    assert!(units("([xy]{0,20}){0,20}z") > 3 * units("^x+$"), "a large pattern");
}

#[test]
fn each_merge_of_last_values_is_charged() {
    let payload = format!("{{\"a\":\"{}\"}}", "x".repeat(40_000));
    let stored = scene(json!([link("out", "store")]), json!({"out": {"type": "storage"}}));
    let least = 2 * payload.len() as u64 / READ_BYTES_PER_UNIT;
    assert!(stored.post(&payload).units >= least);
    let stored = stored.with_last("out", &payload);
    assert!(stored.post(&payload).units >= 2 * least);
    let mut empty = stored;
    empty.plan = crate::Plan::compile(&raw("{}").tree()).unwrap();
    let outcome = empty.post(&payload);
    assert!(outcome.errors.is_empty() && outcome.units >= least, "an empty plane");
}

#[test]
fn cost_of_checking_a_setting_depends_on_the_value_only() {
    let properties = json!({"inputType": "number", "inputTypeProperties": {"min": 1, "hint": "x".repeat(40_000)}});
    let limit =
        scene(json!([link("limit", "set")]), json!({"limit": {"type": "deviceSetting", "properties": properties}}));
    assert!(limit.post("5").units < 40_000 / READ_BYTES_PER_UNIT);
    assert_eq!(limit.post("0").errors[0].message, "the value must be at least 1");
    // A place whose numbers have thousands of digits.
    let place = format!("{{\"latitude\":1.{0},\"longitude\":1.{0}}}", "1".repeat(40_000));
    let places = scene(
        json!([link("place", "set")]),
        json!({"place": {"type": "deviceSetting", "properties": {"inputType": "geolocation"}}}),
    );
    assert!(places.post(place).units >= 80_000 / READ_BYTES_PER_UNIT);
}

#[test]
fn long_bound_of_a_setting_is_shortened_in_messages() {
    let planes = format!(
        r#"{{"cloud": {{"elements": {{"limit": {{"type": "deviceSetting", "properties": {{"inputType": "number",
            "defaultValue": 2, "inputTypeProperties": {{"min": 1.{}, "max": {}}}}}}}}}}}}}"#,
        "5".repeat(40_000),
        "7".repeat(300)
    );
    let plan = crate::Plan::compile(&raw(&planes).tree()).unwrap();
    let check = |value: &str| plan.setting("limit").unwrap().check(&raw(value).tree());
    assert_eq!(check("5"), Ok(()));
    assert_eq!(check("1.5").unwrap_err(), "must be at least 1.5555555555555556");
    assert_eq!(check("1e305").unwrap_err(), "must be at most 7.777777777777778e299");
}

#[test]
fn small_values_are_charged_by_their_number() {
    let outcome = computed("[payload]", &json!(vec![1; 10_000]));
    assert!(outcome.units >= 20_000 / BYTES_PER_UNIT + 5_000, "{} units", outcome.units);
}

#[test]
fn plan_estimates_which_runs_are_long() {
    let links = |count: usize| Value::from(vec![link("t", "evaluate"); count]);
    let transform = |expression: &str| {
        json!({"t": {"type": "transform", "properties": {"expression": expression},
            "triggers": {"result": [link("out", "store")]}}, "out": {"type": "storage"}})
    };
    let plain = |count: usize| scene(links(count), transform("payload.l.all(x, x > 0) ? 1 : 2")).plan;
    assert!(!plain(25).may_take_long(1_024), "fifty links and a small payload");
    assert!(plain(25).may_take_long(4_096) && plain(50).may_take_long(1_024));
    assert!(!plain(1).may_take_long(10_000) && plain(1).may_take_long(100_000));
    let nested = scene(links(1), transform("payload.l.map(x, payload.l.all(y, x > y))")).plan;
    assert!(!nested.may_take_long(100) && nested.may_take_long(1_024), "each item with each other one");
    let empty = crate::Plan::default();
    assert!(!empty.may_take_long(10_000) && empty.may_take_long(100_000));
}

#[test]
fn change_of_a_setting_is_estimated_by_its_links() {
    let links = |count: usize| Value::from(vec![link("t", "evaluate"); count]);
    let transform = |expression: &str| json!({"type": "transform", "properties": {"expression": expression}});
    let setting = |links: Value| json!({"type": "deviceSetting", "triggers": {"changed": links}});
    let plan = |count: usize, expression: &str| {
        let others = json!({"s": setting(links(count)), "quiet": setting(json!([])), "t": transform(expression)});
        scene(links(5_000), others).plan
    };
    let (few, many) = (plan(10, "payload"), plan(500, "payload"));
    assert!(few.change_units("s", 100) < LONG_RUN_UNITS / 10, "{}", few.change_units("s", 100));
    assert!(few.change_units("s", 50_000) > LONG_RUN_UNITS && many.change_units("s", 1_000) > LONG_RUN_UNITS);
    let nested = plan(1, "payload.map(x, payload.all(y, x > y))");
    assert!(nested.change_units("s", 1_000) > LONG_RUN_UNITS, "each item with each other one");
    // Links of events do not count here.
    assert!(many.may_take_long(1_000) && many.change_units("quiet", 1_000) < LONG_RUN_UNITS / 10);
    assert!(many.change_units("quiet", 1 << 20) > LONG_RUN_UNITS, "the value is read");
}

#[test]
fn long_run_is_recognized_by_its_units() {
    let outcome = computed("payload.l.all(x, payload.l.all(y, x == y))", &json!({"l": vec![1; 100]}));
    assert!(outcome.units > crate::LONG_RUN_UNITS, "{} units", outcome.units);
    assert!(computed("payload.a + 1", &json!({"a": 1})).units < 100);
}

#[test]
fn steps_are_charged() {
    let links = vec![link("pass", "pass"); 1_000];
    let scene = scene(Value::from(links), json!({"pass": {"type": "throttle", "properties": {"minutes": 1}}}));
    assert!(scene.post("1").units >= 5_000);
}
