//! Tests of each element type.

use serde_json::{Value, json};

use super::given::{Scene, link, scene, told};

// Holds: c11.storage
#[test]
fn storage_keeps_the_incoming_value_as_it_was_sent() {
    let scene = scene(json!([link("out", "store")]), json!({"out": {"type": "storage"}}));
    let payload = super::raw(r#"{ "temp" : 9.100, "big":12345678901234567890 }"#);
    let outcome = scene.post_raw("in", &payload);
    let crate::Effect::Store { value, .. } = &outcome.effects[0] else { panic!("stored") };
    assert_eq!(value.text(), r#"{ "temp" : 9.100, "big":12345678901234567890 }"#);
    assert!(std::ptr::eq(value.bytes(), payload.bytes()), "the bytes are shared");
}

#[test]
fn storage_stores_its_argument_and_passes_it_on() {
    let scene = scene(
        json!([{"element": "out", "ability": "store", "arguments": {"value": "payload.temp"}}]),
        json!({"out": {"type": "storage", "triggers": {"stored": [link("copy", "store")]}}, "copy": {"type": "storage"}}),
    );
    assert_eq!(told(&scene.post(r#"{"temp":9.10}"#)), ["store out 9.10", "store copy 9.10"]);
}

#[test]
fn argument_other_than_a_text_is_a_constant() {
    let constant = |value: Value| {
        let links = json!([{"element": "out", "ability": "store", "arguments": {"value": value}}]);
        told(&scene(links, json!({"out": {"type": "storage"}})).post("1"))
    };
    assert_eq!(constant(json!(7)), ["store out 7"]);
    assert_eq!(constant(json!({"a": [1, "payload"]})), [r#"store out {"a":[1,"payload"]}"#]);
    assert_eq!(constant(json!(null)), ["store out null"]);
    assert_eq!(constant(json!("'on'")), [r#"store out "on""#]);
}

// Holds: c11.cloudEvent
#[test]
fn a_cloud_event_is_queued_with_its_time_to_live() {
    let scene = scene(
        json!([link("plain", "send"), {"element": "brief", "ability": "send", "arguments": {"value": "{'led': payload.on}"}}]),
        json!({
            "plain": {"type": "cloudEvent"},
            "brief": {"type": "cloudEvent", "properties": {"ttlMinutes": 15}, "triggers": {"sent": [link("sent", "store")]}},
            "sent": {"type": "storage"},
        }),
    );
    let expected = [r#"send plain {"on":true}"#, r#"send brief {"led":true} 15"#, r#"store sent {"led":true}"#];
    assert_eq!(told(&scene.post(r#"{"on":true}"#)), expected);
}

// Holds: c11.condition
#[test]
fn a_condition_passes_the_incoming_value_on() {
    let scene = scene(
        json!([link("high", "evaluate")]),
        json!({
            "high": {"type": "condition", "properties": {"expression": "payload.temp > settings.limit"},
                     "triggers": {"true": [link("hot", "store")], "false": [link("cold", "store")]}},
            "hot": {"type": "storage"},
            "cold": {"type": "storage"},
            "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
        }),
    );
    assert_eq!(told(&scene.post(r#"{"temp":8.01}"#)), [r#"store hot {"temp":8.01}"#]);
    assert_eq!(told(&scene.post(r#"{"temp":8}"#)), [r#"store cold {"temp":8}"#]);
    assert_eq!(told(&scene.post("{}")), ["error high: no such key 'temp'"]);
    assert_eq!(told(&scene.with_setting("limit", "20").post(r#"{"temp":9}"#)), [r#"store cold {"temp":9}"#]);
}

#[test]
fn a_condition_takes_a_boolean_only() {
    let condition = json!({"c": {"type": "condition", "properties": {"expression": "payload"}}});
    let outcome = scene(json!([link("c", "evaluate")]), condition).post("1");
    assert_eq!(told(&outcome), ["error c: expected a bool, got a value of type int"]);
}

#[test]
fn a_failing_element_stops_its_branch_only() {
    let scene = scene(
        json!([link("bad", "evaluate"), link("out", "store")]),
        json!({
            "bad": {"type": "transform", "properties": {"expression": "payload.x / 0"}, "triggers": {"result": [link("never", "store")]}},
            "never": {"type": "storage"},
            "out": {"type": "storage"},
        }),
    );
    assert_eq!(told(&scene.post(r#"{"x":1}"#)), [r#"store out {"x":1}"#, "error bad: division by zero"]);
}

#[test]
fn links_are_followed_in_order_each_to_its_end() {
    let step = |next: Value| json!({"type": "storage", "triggers": {"stored": next}});
    let scene = scene(
        json!([link("a", "store"), link("d", "store")]),
        json!({"a": step(json!([link("b", "store"), link("c", "store")])), "b": step(json!([])), "c": step(json!([])), "d": step(json!([]))}),
    );
    assert_eq!(told(&scene.post("1")), ["store a 1", "store b 1", "store c 1", "store d 1"]);
}

fn status_scene(ability: &str, argument: Value) -> Scene {
    scene(
        json!([{"element": "meta", "ability": ability, "arguments": {"status": argument}}]),
        json!({"meta": {"type": "deviceMeta", "triggers": {"done": [link("out", "store")]}}, "out": {"type": "storage"}}),
    )
}

// Holds: c11.deviceMeta
#[test]
fn a_status_is_set_by_constant_name_or_number() {
    for argument in [json!("critical"), json!("'critical'"), json!("payload"), json!(4), json!("4.0")] {
        assert_eq!(told(&status_scene("setStatus", argument).post("4")), ["status critical", "store out 4"]);
    }
}

#[test]
fn current_status_is_not_a_change() {
    assert_eq!(told(&status_scene("setStatus", json!("good")).post("1")), ["store out 1"]);
}

#[test]
fn invalid_status_is_refused() {
    let refusal = "error meta: a status is none, good, info, warning, critical, missing, or its number 0 to 5";
    for argument in [json!("6"), json!("'bad'"), json!(-1), json!("1.5"), json!(true), json!(null)] {
        assert_eq!(told(&status_scene("setStatus", argument).post("1")), [refusal]);
    }
}

// Holds: c11.deviceMeta
#[test]
fn escalating_only_raises() {
    assert_eq!(told(&status_scene("escalateStatus", json!("none")).post("1")), ["store out 1"]);
    assert_eq!(told(&status_scene("escalateStatus", json!("warning")).post("1")), ["status warning", "store out 1"]);
}

// Holds: c11.sees
#[test]
fn expressions_see_earlier_changes_of_the_run() {
    let scene = scene(
        json!([
            {"element": "meta", "ability": "setStatus", "arguments": {"status": "warning"}},
            {"element": "meta", "ability": "setValue", "arguments": {"tag": "'site'", "value": "'south'"}},
            {"element": "limit", "ability": "set", "arguments": {"value": "settings.limit + 1"}},
            {"element": "out", "ability": "store", "arguments": {"value": "[device.statusInt, device.meta.site, settings.limit, device.meta]"}},
            {"element": "limit", "ability": "reset"},
            {"element": "out", "ability": "store", "arguments": {"value": "settings.limit"}},
        ]),
        json!({
            "meta": {"type": "deviceMeta"},
            "out": {"type": "storage"},
            "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
        }),
    );
    let expected = [
        "status warning",
        r#"meta site "south""#,
        "set limit 9",
        r#"store out [3,"south",9,{"floor":3,"site":"south"}]"#,
        "reset limit",
        "store out 8",
    ];
    assert_eq!(told(&scene.post("{}")), expected);
}

#[test]
fn equal_label_value_is_not_a_change() {
    let scene = scene(
        json!([
            {"element": "meta", "ability": "setValue", "arguments": {"tag": "'floor'", "value": 3.0}},
            {"element": "meta", "ability": "setValue", "arguments": {"tag": "'seen'", "value": "payload"}},
            {"element": "meta", "ability": "setValue", "arguments": {"tag": "'seen'", "value": "payload"}},
            {"element": "meta", "ability": "setValue", "arguments": {"tag": "''", "value": 1}},
            {"element": "meta", "ability": "setValue", "arguments": {"tag": 5, "value": 1}},
        ]),
        json!({"meta": {"type": "deviceMeta"}}),
    );
    let refusal = "error meta: a tag must be a text of 1 to 128 characters";
    assert_eq!(told(&scene.post(r#"{"a":1}"#)), [r#"meta seen {"a":1}"#, refusal, refusal]);
}

#[test]
fn a_location_must_be_within_its_bounds() {
    let located = |latitude: Value, longitude: Value| {
        let arguments = json!({"latitude": latitude, "longitude": longitude});
        let links = json!([{"element": "meta", "ability": "setLocation", "arguments": arguments}]);
        told(&scene(links, json!({"meta": {"type": "deviceMeta"}})).post(r#"{"lat":52,"lon":4.9}"#))
    };
    assert_eq!(located(json!("payload.lat"), json!("payload.lon")), ["location 52 4.9"]);
    let refusal = ["error meta: the latitude or the longitude is out of its bounds"];
    assert_eq!(located(json!(90.1), json!(0)), refusal);
    assert_eq!(located(json!(0), json!(-181)), refusal);
    assert_eq!(located(json!("'x'"), json!(0)), ["error meta: latitude and longitude must be numbers"]);
}

fn setting_scene(properties: Value, argument: Value) -> Scene {
    scene(
        json!([{"element": "s", "ability": "set", "arguments": {"value": argument}}]),
        json!({"s": {"type": "deviceSetting", "properties": properties, "triggers": {"changed": [link("out", "store")]}}, "out": {"type": "storage"}}),
    )
}

#[test]
fn setting_changed_by_the_design_triggers_changed() {
    assert_eq!(told(&setting_scene(json!({}), json!("'a'")).post("1")), [r#"set s "a""#, r#"store out "a""#]);
}

// Holds: c8.types
#[test]
fn setting_value_must_fit_its_input_type() {
    let number = json!({"inputType": "number", "inputTypeProperties": {"min": 0, "max": 10}});
    for (properties, value, message) in [
        (json!({}), json!(1), "must be a string"),
        (json!({}), json!(null), "must be a string"),
        (json!({"inputType": "toggle"}), json!("'on'"), "must be a boolean"),
        (number.clone(), json!(11), "must be at most 10"),
        (number.clone(), json!(-0.5), "must be at least 0"),
        (number, json!("'5'"), "must be a number"),
        (
            json!({"inputType": "geolocation"}),
            json!({"latitude": 91, "longitude": 0}),
            "must be {latitude, longitude}, within -90..90 and -180..180 degrees",
        ),
    ] {
        assert_eq!(told(&setting_scene(properties, value).post("1")), [format!("error s: the value {message}")]);
    }
}

#[test]
fn a_geolocation_moves_the_device() {
    let place = json!({"latitude": 1.5, "longitude": 2});
    let scene = setting_scene(json!({"inputType": "geolocation"}), place);
    let expected =
        [r#"set s {"latitude":1.5,"longitude":2}"#, "location 1.5 2", r#"store out {"latitude":1.5,"longitude":2}"#];
    assert_eq!(told(&scene.post("1")), expected);
}

#[test]
fn reset_passes_the_default_on() {
    let scene = scene(
        json!([link("s", "reset")]),
        json!({"s": {"type": "deviceSetting", "properties": {"defaultValue": "blue"}, "triggers": {"changed": [link("out", "store")]}}, "out": {"type": "storage"}}),
    );
    assert_eq!(told(&scene.with_setting("s", r#""red""#).post("1")), ["reset s", r#"store out "blue""#]);
}

#[test]
fn a_setting_changed_by_the_api_starts_at_its_changed_links() {
    let scene = setting_scene(json!({}), json!("'a'"));
    assert_eq!(told(&scene.setting_changes("s", r#""b""#)), [r#"store out "b""#]);
    assert!(told(&scene.setting_changes("out", "1")).is_empty());
    assert!(told(&scene.setting_changes("nothing", "1")).is_empty());
}

// Holds: c11.changed
#[test]
fn changed_fires_for_a_first_and_for_a_different_key() {
    let mut scene = scene(
        json!([link("c", "evaluate")]),
        json!({
            "c": {"type": "changed", "properties": {"expression": "payload.door"},
                  "triggers": {"changed": [link("new", "store")], "unchanged": [link("same", "store")]}},
            "new": {"type": "storage"},
            "same": {"type": "storage"},
        }),
    );
    let first = scene.post_and_keep(r#"{"door":1}"#);
    assert_eq!(told(&first), ["remember c 1", r#"store new {"door":1}"#]);
    assert_eq!(told(&scene.post_and_keep(r#"{"door":1.0}"#)), [r#"store same {"door":1.0}"#]);
    assert_eq!(told(&scene.post_and_keep(r#"{"door":2}"#)), ["remember c 2", r#"store new {"door":2}"#]);
    assert_eq!(told(&scene.post_and_keep("{}")), ["error c: no such key 'door'"]);
    assert_eq!(told(&scene.post_and_keep(r#"{"door":2}"#)), [r#"store same {"door":2}"#]);
}

#[test]
fn changed_without_an_expression_compares_the_payload() {
    let mut scene = scene(
        json!([link("c", "evaluate"), link("c", "evaluate")]),
        json!({"c": {"type": "changed", "triggers": {"unchanged": [link("same", "store")]}}, "same": {"type": "storage"}}),
    );
    let first = scene.post_and_keep(r#"{"a":1,"b":[2]}"#);
    assert_eq!(told(&first), [r#"remember c {"a":1,"b":[2]}"#, r#"store same {"a":1,"b":[2]}"#]);
    let reordered = r#"{"b":[2],"a":1}"#;
    assert_eq!(
        told(&scene.post_and_keep(reordered)),
        [format!("store same {reordered}"), format!("store same {reordered}")]
    );
}

#[test]
fn value_without_json_is_an_error_of_its_element() {
    let scene = |expression: &str| told(&Scene::transforming(expression).post(r#"{"x":1.5}"#));
    assert_eq!(scene("payload.x / 0"), ["error t: the result is infinite, which JSON cannot write"]);
    assert_eq!(scene("payload.x % 0"), ["error t: the result is NaN, which JSON cannot write"]);
    assert_eq!(scene("[payload.x / 0]"), ["error out: the result is infinite, which JSON cannot write"]);
}
