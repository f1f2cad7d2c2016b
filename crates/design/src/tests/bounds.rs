//! Tests that what is too large, too deep or too long is refused, without overflow.

use serde_json::{Map, Value, json};

use super::given::{Scene, compile, told, transforming};

fn fault_of(expression: &str) -> String {
    let faults = compile(transforming(expression)).map(|_| ()).unwrap_err();
    assert_eq!(faults[0].field, "planes.cloud.elements.t.properties.expression");
    faults[0].message.clone()
}

#[test]
fn elements_and_links_are_bounded() {
    let storages = |count: usize| -> Map<String, Value> {
        (0..count).map(|n| (format!("s{n}"), json!({"type": "storage"}))).collect()
    };
    assert!(compile(Value::Object(storages(1_000))).is_ok());
    let faults = compile(Value::Object(storages(1_001))).unwrap_err();
    assert_eq!(faults[0].message, "a cloud plane has at most 1000 elements");

    let linked = |count: usize| {
        let links = vec![json!({"element": "out", "ability": "store"}); count];
        compile(
            json!({"in": {"type": "deviceEvent", "triggers": {"eventReceived": links}}, "out": {"type": "storage"}}),
        )
    };
    assert!(linked(10_000).is_ok());
    assert_eq!(linked(10_001).unwrap_err()[0].message, "a cloud plane has at most 10000 links");
}

// Holds: c11.bounds
#[test]
fn the_steps_of_a_run_are_bounded() {
    // Fourteen layers of storage elements, each with two links to the next: 2^14 paths.
    let mut elements = Map::new();
    elements.insert(
        "in".into(),
        json!({"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "s0", "ability": "store"}]}}),
    );
    for layer in 0..14 {
        let next = json!({"element": format!("s{}", layer + 1), "ability": "store"});
        elements.insert(format!("s{layer}"), json!({"type": "storage", "triggers": {"stored": [next, next]}}));
    }
    elements.insert("s14".into(), json!({"type": "storage"}));
    let outcome = Scene::new(Value::Object(elements)).post("1");
    assert_eq!(outcome.effects.len(), 10_000);
    assert_eq!(outcome.errors.len(), 1);
    assert_eq!(outcome.errors[0].message, "the run takes more than 10000 steps");
}

// Holds: c11.bounds
#[test]
fn effects_of_a_run_are_bounded() {
    let links = |ability: &str| vec![json!({"element": "out", "ability": ability}); 10_000];
    // A sent value is in the queue and in history.
    for (element, ability, fit) in [("storage", "store", 4), ("cloudEvent", "send", 2)] {
        let scene = Scene::new(json!({
            "in": {"type": "deviceEvent", "triggers": {"eventReceived": links(ability)}},
            "out": {"type": element},
        }));
        let outcome = scene.post(format!("\"{}\"", "x".repeat((1 << 20) - 2)));
        assert_eq!(outcome.effects.len(), fit, "{element}");
        assert_eq!(outcome.errors[0].message, "a run stores and sends at most 4 MiB");
    }
}

#[test]
fn the_same_error_is_kept_sixteen_times() {
    let links = vec![json!({"element": "bad", "ability": "evaluate"}); 100];
    let scene = Scene::new(json!({
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": links}},
        "bad": {"type": "transform", "properties": {"expression": "payload.x"}},
    }));
    assert_eq!(scene.post("{}").errors.len(), 16);
}

#[test]
fn a_long_expression_is_refused() {
    let of_length = |length: usize| format!("'{}'", "é".repeat(length - 2));
    assert!(compile(transforming(&of_length(10_000))).is_ok());
    assert_eq!(fault_of(&of_length(10_001)), "an expression has at most 10000 characters");
}

#[test]
fn deep_nesting_is_refused_without_stack_overflow() {
    for hostile in [
        "(".repeat(5_000),
        "[".repeat(5_000),
        "{1:".repeat(3_000),
        format!("{}1{}", "(".repeat(4_000), ")".repeat(4_000)),
        format!("{}1{}", "[1].map(x,".repeat(900), ")".repeat(900)),
        "true?1:".repeat(1_400) + "1",
        format!("'a\\''+{}", "(".repeat(5_000)),
        format!("r'\\'+{}", "(".repeat(5_000)),
        format!("'''it's'''+{}", "(".repeat(5_000)),
        format!("1 // '\n+{}", "(".repeat(5_000)),
    ] {
        assert_eq!(fault_of(&hostile), "an expression is nested at most 64 deep", "{}", &hostile[..20]);
    }
}

#[test]
fn long_chains_are_refused_without_stack_overflow() {
    for hostile in [
        vec!["payload"; 1_250].join("+"),
        vec!["1"; 5_000].join("<"),
        format!("payload{}", ".a".repeat(4_900)),
        format!("payload{}", "[0]".repeat(3_300)),
        format!("payload{}", ".size()".repeat(1_400)),
        format!("{}{}", "(".repeat(60), vec!["1"; 4_900].join("-")) + &")".repeat(60),
    ] {
        assert_eq!(fault_of(&hostile), "an expression has at most 200 operations in a row", "{}", &hostile[..20]);
    }
    assert!(compile(transforming(&vec!["payload.a"; 700].join(" && "))).is_ok());
    assert!(compile(transforming(&vec!["payload.a"; 150].join(" + "))).is_ok());
}

#[test]
fn brackets_within_texts_do_not_nest() {
    let scene = Scene::transforming(&format!("'{}' + \"\\\"{}\"", "(".repeat(500), "[".repeat(500)));
    assert!(scene.post("1").errors.is_empty());
}

#[test]
fn a_list_of_many_conditionals_is_not_deep() {
    let scene = Scene::transforming(&format!("[{}]", vec!["payload ? 1 : 2"; 300].join(",")));
    assert!(scene.post("true").errors.is_empty());
}

#[test]
fn the_work_of_expressions_is_bounded() {
    let list: Vec<u32> = (0..2_000).collect();
    let payload = json!({"l": list}).to_string();
    for greedy in [
        "payload.l.map(a, payload.l.map(b, payload.l.map(c, 1)))",
        "payload.l.all(a, payload.l.all(b, payload.l.all(c, payload.l == payload.l)))",
        "payload.l.exists(a, payload.l.exists(b, payload.l.exists(c, c + 'x' == 1)))",
        "payload.l.filter(a, payload.l.exists(b, -1 in payload.l))",
        "payload.l.map(a, payload.l)",
    ] {
        let outcome = told(&Scene::transforming(greedy).post(&payload));
        let bounded = outcome.iter().any(|it| it.contains("take too long") || it.contains("larger than"));
        assert!(bounded, "{greedy}: {outcome:?}");
    }
}

#[test]
fn texts_are_bounded() {
    let long = json!("x".repeat(600_000)).to_string();
    for greedy in ["payload + payload", "payload.replace('x', 'xyz')", "[payload, payload].join()"] {
        assert_eq!(told(&Scene::transforming(greedy).post(&long)), ["error t: a text is longer than 1048576 bytes"]);
    }
}

#[test]
fn value_that_doubles_at_each_step_is_bounded() {
    let mut elements = Map::new();
    elements.insert(
        "in".into(),
        json!({"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "t0", "ability": "evaluate"}]}}),
    );
    for step in 0..200 {
        let next = json!([{"element": format!("t{}", step + 1), "ability": "evaluate"}]);
        let doubling = json!({"expression": if step < 40 { "[payload, payload]" } else { "[payload]" }});
        elements.insert(
            format!("t{step}"),
            json!({"type": "transform", "properties": doubling, "triggers": {"result": next}}),
        );
        if step == 39 {
            let both = json!([{"element": "out", "ability": "store"}, {"element": "t40", "ability": "evaluate"}]);
            elements.insert("t39".into(), json!({"type": "transform", "properties": {"expression": "[payload, payload]"}, "triggers": {"result": both}}));
        }
    }
    elements.insert("t200".into(), json!({"type": "transform", "properties": {"expression": "payload"}}));
    elements.insert("out".into(), json!({"type": "storage"}));
    let outcome = told(&Scene::new(Value::Object(elements)).post("1"));
    assert_eq!(outcome[0], "error out: the value is larger than 1048576 bytes");
    assert_eq!(outcome[1], "error t64: the value is nested deeper than 64");
}

#[test]
fn a_pattern_is_constant_sound_and_small() {
    assert_eq!(fault_of("payload.matches(payload)"), "the pattern of matches() must be a constant text");
    assert_eq!(fault_of("payload.matches('(')"), "the pattern of matches() is no regular expression");
    assert_eq!(fault_of("payload.matches('(a{1000}){1000}')"), "the pattern of matches() is too large");
}

#[test]
fn the_deepest_expressions_run_on_an_ordinary_stack() {
    for deep in [
        format!("{}payload{}", "(".repeat(60), " + 1 - 1 + 1)".repeat(60)),
        format!("payload{}", " + 1".repeat(198)),
        format!("{}payload{}", "[1].map(x, ".repeat(60), ")[0]".repeat(60)),
        format!("{}payload{}", "[".repeat(60), "]".repeat(60)),
        format!("{}payload{}", "math.abs(".repeat(60), " + 1)".repeat(60)),
        format!("{}1", "payload == 5 ? 2 : ".repeat(60)),
    ] {
        let outcome = Scene::transforming(&deep).post("1");
        assert!(outcome.errors.is_empty() && outcome.effects.len() == 1, "{deep}: {:?}", outcome.errors);
    }
}

#[test]
fn a_pattern_over_much_text_is_bounded() {
    let long = json!("x".repeat(200_000)).to_string();
    let outcome = told(&Scene::transforming("payload.matches('(x+x+)+y')").post(&long));
    assert_eq!(outcome, ["error t: the expressions of this run take too long"]);
}
