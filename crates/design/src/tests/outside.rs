//! Tests of notifications and calls, and of what triggers a run later.

use serde_json::{Value, json};

use super::given::{Scene, compile, link, scene, told, transforming};

fn notifying(properties: Value) -> Scene {
    scene(
        json!([link("n", "notify")]),
        json!({"n": {"type": "notification", "properties": properties, "triggers": {"sent": [link("out", "store")]}}, "out": {"type": "storage"}}),
    )
}

#[test]
fn notification_contains_the_results_of_its_expressions() {
    let message =
        "{{ device.name }}: {{payload.temp}} degrees, {{ {'a': {'b': [1, '}}']}} }} {{ payload.name + '!' }}{{null}}";
    let scene = notifying(json!({"message": message, "minimumRole": "manager"}));
    let expected = [
        r#"notify n manager fridge: 9.10 degrees, {"a":{"b":[1,"}}"]}} x!null"#,
        r#"store out {"temp":9.10,"name":"x"}"#,
    ];
    assert_eq!(told(&scene.post(r#"{"temp":9.10,"name":"x"}"#)), expected);
    assert_eq!(told(&notifying(json!({"message": "{{{'a':1}}}!"})).post("1"))[0], r#"notify n basicUser {"a":1}!"#);
    assert_eq!(told(&notifying(json!({"message": "plain } {"})).post("1"))[0], "notify n basicUser plain } {");
}

// Holds: c18.alarmsRaised
#[test]
fn notification_whose_expression_fails_is_sent_with_the_rest() {
    let missing = "error n: no such key 'nothing'";
    for (message, sent) in
        [("{{ payload.nothing }} is {{ payload.v }}", "is 1"), ("{{ payload.nothing }}", "n"), ("{{ payload.e }}", "n")]
    {
        let lines = told(&notifying(json!({"message": message})).post(r#"{"v":1,"e":" "}"#));
        assert_eq!(lines[..2], [format!("notify n basicUser {sent}"), r#"store out {"v":1,"e":" "}"#.to_owned()]);
        let errors = usize::from(message.contains("nothing"));
        assert_eq!(lines[2..], vec![missing; errors]);
    }
}

#[test]
fn a_long_notification_is_cut() {
    let scene = notifying(json!({"message": "{{ payload }}"}));
    let line = told(&scene.post(json!("é".repeat(3_000)).to_string())).remove(0);
    let message = line.strip_prefix("notify n basicUser ").unwrap();
    assert_eq!(message.chars().count(), 2_000);
    assert!(message.ends_with("é…"));
}

fn calling(properties: Value) -> Scene {
    scene(
        json!([link("h", "request")]),
        json!({
            "h": {"type": "http", "properties": properties, "triggers": {"response": [link("good", "store")], "error": [link("bad", "store")]}},
            "good": {"type": "storage"}, "bad": {"type": "storage"},
        }),
    )
}

#[test]
fn call_sends_the_results_of_its_expressions() {
    let scene = calling(json!({
        "url": "'https://example.org/' + payload.path", "method": "put",
        "headers": {"X-Device": "device.name", "x-n": 5},
        "body": "{'temp': payload.temp}",
    }));
    let expected =
        [r#"call h PUT https://example.org/a [x-device=fridge x-n=5 content-type=application/json] {"temp":9.10}"#];
    assert_eq!(told(&scene.post(r#"{"path":"a","temp":9.10}"#)), expected);
}

#[test]
fn a_call_without_a_method_is_a_post_if_it_has_a_body() {
    let told = |properties: Value| told(&calling(properties).post(r#"{"m":"delete","u":"http://x"}"#)).remove(0);
    assert_eq!(told(json!({"url": "http://a/b?c=d"})), "call h GET http://a/b?c=d [] -");
    assert_eq!(
        told(json!({"url": "payload.u", "body": "'text'"})),
        "call h POST http://x [content-type=text/plain; charset=utf-8] text"
    );
    assert_eq!(
        told(json!({"url": "'HTTP://x'", "body": [1, {"a": "payload"}]})),
        r#"call h POST HTTP://x [content-type=application/json] [1,{"a":"payload"}]"#
    );
    assert_eq!(
        told(json!({"url": "'http://x'", "body": "'<a/>'", "headers": {"Content-Type": "'text/xml'"}})),
        "call h POST http://x [content-type=text/xml] <a/>"
    );
    assert_eq!(told(json!({"url": "'http://x'", "method": "payload.m"})), "call h DELETE http://x [] -");
    assert_eq!(told(json!({"url": "'http://x'", "method": "'GET'"})), "call h GET http://x [] -");
}

#[test]
fn invalid_request_is_an_error_of_its_element() {
    let told = |properties: Value| told(&calling(properties).post(r#"{"a":"x\r\ny","é":"é","l":[1]}"#));
    for (properties, message) in [
        (json!({"url": "'ftp://a'"}), "the url must begin with http:// or https://"),
        (json!({"url": "payload.l"}), "the url must begin with http:// or https://"),
        (json!({"url": "'http://' + payload.a"}), "the url has white space in it"),
        (json!({"url": "payload.nothing"}), "no such key 'nothing'"),
        (
            json!({"url": "'http://a'", "headers": {"x": "payload.a"}}),
            "the header 'x' has a character that a header cannot carry",
        ),
        (
            json!({"url": "'http://a'", "headers": {"x": "payload['é']"}}),
            "the header 'x' has a character that a header cannot carry",
        ),
        (
            json!({"url": "'http://a'", "method": "payload.a"}),
            "the method must be one of GET, HEAD, POST, PUT, PATCH, DELETE",
        ),
        (json!({"url": "'http://a'", "method": "'head'", "body": "1"}), "HEAD has no body"),
    ] {
        assert_eq!(told(properties), [format!("error h: {message}")]);
    }
}

#[test]
fn answer_of_a_call_triggers_a_run_at_its_element() {
    let scene = calling(json!({"url": "'http://a'"}));
    assert_eq!(told(&scene.answered("h", true, r#"{"status":200}"#)), [r#"store good {"status":200}"#]);
    assert_eq!(told(&scene.answered("h", false, r#"{"message":"m"}"#)), [r#"store bad {"message":"m"}"#]);
    assert!(told(&scene.answered("good", true, "1")).is_empty());
    assert!(told(&scene.answered("nothing", true, "1")).is_empty());
}

#[test]
fn a_run_sends_a_bounded_number_of_messages() {
    let links = vec![link("n", "notify"); 40];
    let scene = scene(Value::from(links), json!({"n": {"type": "notification", "properties": {"message": "m"}}}));
    let outcome = scene.post("1");
    assert_eq!((outcome.effects.len(), outcome.errors.len()), (32, 8));
    assert_eq!(outcome.errors[0].message, "a run sends at most 32 notifications and calls");
}

#[test]
fn an_interval_sets_off_elapsed() {
    let scene = Scene::new(json!({
        "in": {"type": "deviceEvent"},
        "daily": {"type": "interval", "properties": {"minutes": 1440}, "triggers": {"elapsed": [
            {"element": "out", "ability": "store", "arguments": {"value": "device.name"}}]}},
        "out": {"type": "storage"},
    }));
    assert_eq!(told(&scene.elapsed("daily")), [r#"store out "fridge""#]);
    assert!(told(&scene.elapsed("in")).is_empty() && told(&scene.elapsed("nothing")).is_empty());
    assert!(!scene.plan.accepts("daily"));
}

#[test]
fn plan_lists_intervals_calls_and_missing_time() {
    let plan = compile(transforming("payload")).unwrap();
    assert!(!plan.runs_code() && !plan.calls_out());
    assert_eq!((plan.intervals().count(), plan.missing_after_minutes()), (0, None));
    let meta = |minutes: Value| json!({"type": "deviceMeta", "properties": {"missingAfterMinutes": minutes}});
    let plan = compile(json!({
        "a": {"type": "interval", "properties": {"minutes": 5}},
        "b": {"type": "interval", "properties": {"minutes": 60}},
        "m": meta(json!(60)), "n": meta(json!(30)), "o": meta(json!(null)),
        "h": {"type": "http", "properties": {"url": "'http://a'"}},
        "f": {"type": "function", "properties": {"code": "function decodeUplink(input) { return {data: 1}; }"}},
    }))
    .unwrap();
    assert!(plan.runs_code() && plan.calls_out());
    let mut intervals: Vec<(&str, u32)> = plan.intervals().map(|(name, minutes)| (name.as_ref(), minutes)).collect();
    intervals.sort_unstable();
    assert_eq!(intervals, [("a", 5), ("b", 60)]);
    assert_eq!(plan.missing_after_minutes(), Some(30));
}
