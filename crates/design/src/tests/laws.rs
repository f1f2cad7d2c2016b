//! Properties of all specifications, expressions and payloads.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::given::{Scene, compile, told, transforming};
use super::raw;
use crate::{Effect, Plan};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        "[a-z'\"\\\\ é]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

const LEAVES: &str = "payload payload.a payload.b.c event.payload event.receivedAt device.meta device settings settings.limit \
    last last.readings.a 1 -2 0 2.5 9223372036854775807 'a' 'é1' true null critical [1,2] {'a':1} x duration('1h') \
    timestamp('2026-01-01') int";
const BINARY: &str = "+ - * / % < <= > >= == != in && ||";
const UNARY: &str = "size int double string bool type timestamp duration math.abs math.round ! -";
const MEMBERS: &str = ".trim() .split('a') .join('-') .substring(1) .indexOf('a') .charAt(0) .getHours() .getDayOfYear() .a [0] \
    ['a'] .upperAscii() .matches('^a+$') .replace('a','bb') .lastIndexOf('')";
const FOLDS: &str = "all exists exists_one filter map";

fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(words.split_whitespace().collect::<Vec<_>>())
}

/// Generates expressions that often compile: random combinations of the language.
fn any_expression() -> impl Strategy<Value = String> {
    one_of(LEAVES).prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (two.clone(), one_of(BINARY)).prop_map(|((left, right), sign)| format!("({left} {sign} {right})")),
            (one_of(UNARY), inner.clone()).prop_map(|(name, operand)| format!("{name}({operand})")),
            (inner.clone(), one_of(MEMBERS)).prop_map(|(operand, member)| format!("({operand}){member}")),
            (two.clone(), one_of(FOLDS)).prop_map(|((range, body), fold)| format!("({range}).{fold}(x, {body})")),
            (two.clone(), inner.clone()).prop_map(|((a, b), c)| format!("({a} ? {b} : {c})")),
            two.prop_map(|(key, value)| format!("{{{key}: {value}}}")),
            inner.prop_map(|operand| format!("has({operand}.a)")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn result_of_an_expression_is_json(expression in any_expression(), payload in any_json()) {
        if compile(transforming(&expression)).is_ok() {
            let outcome = Scene::transforming(&expression).with_last("readings", r#"{"a":[1]}"#).post(payload.to_string());
            prop_assert_eq!(outcome.effects.len() + outcome.errors.len(), 1);
            for effect in outcome.effects {
                let Effect::Store { value, .. } = effect else { panic!("stored") };
                prop_assert!(isobar_model::json::parse(value.text()).is_ok(), "{}", value.text());
            }
        }
    }

    #[test]
    fn random_expression_is_a_fault_and_never_a_panic(expression in "[ -~é\\n]{0,40}") {
        let _ = compile(transforming(&expression));
    }

    #[test]
    fn tokens_in_any_order_never_panic(tokens in prop::collection::vec(prop::sample::select(vec![
        "(", ")", "[", "]", "{", "}", ",", ".", "?", ":", "+", "-", "!", "&&", "||", "in", "payload", "a", "1", "1.", "0x", "1u", "'", "\"", "'''", "b'a'", "r'",
        "\\", "`", "has(", ".map(", "//", "\n", "null", "if", "==", "=", "'\\u12'", "'\\777'", "..", "@", "#", "1e999", "9223372036854775808", "?.", "[?",
    ]), 0..12)) {
        let _ = compile(transforming(&tokens.concat()));
        let _ = compile(transforming(&tokens.join(" ")));
    }

    #[test]
    fn any_specification_is_a_plan_or_has_faults(planes in any_json(), element in any_json(), triggers in any_json()) {
        let _ = Plan::compile(&raw(planes.to_string()).tree());
        for kind in ["deviceEvent", "storage", "cloudEvent", "deviceSetting", "deviceMeta", "condition", "transform", "changed", "window", "throttle", "notification", "alarm", "http", "interval", "function"] {
            let _ = compile(json!({"a": {"type": kind, "properties": element, "triggers": triggers}}));
            let _ = compile(json!({"a": {"type": kind, "properties": element}, "b": {"type": "deviceEvent",
                "triggers": {"eventReceived": [{"element": "a", "ability": element, "arguments": triggers}]}}}));
        }
    }

    #[test]
    fn every_ability_takes_any_value(value in any_json(), tag in any_json()) {
        let all = [("s", "store"), ("c", "send"), ("d", "set"), ("d", "reset"), ("m", "setStatus"), ("m", "escalateStatus"), ("m", "setValue"), ("m", "setLocation"), ("h", "evaluate")];
        let mut links: Vec<Value> = all.iter().map(|(element, ability)| json!({"element": element, "ability": ability})).collect();
        links.push(json!({"element": "m", "ability": "setValue", "arguments": {"tag": "'t'", "value": if tag.is_string() { Value::Null } else { tag }}}));
        let scene = Scene::new(json!({
            "in": {"type": "deviceEvent", "triggers": {"eventReceived": links}},
            "s": {"type": "storage"}, "c": {"type": "cloudEvent"}, "d": {"type": "deviceSetting"}, "m": {"type": "deviceMeta"}, "h": {"type": "changed"},
        }));
        let outcome = told(&scene.post(value.to_string()));
        let stored = format!("store s {value}");
        prop_assert_eq!(outcome.first(), Some(&stored));
    }

    #[test]
    fn unchanged_number_keeps_its_text(digits in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?(e-?[0-9]{1,2})?") {
        let payload = format!(r#"{{"deep":[{{"v":{digits}}}]}}"#);
        for expression in ["payload.deep[0].v", "[payload.deep[0].v, 1][0]", "payload.deep.map(x, x.v)[0]", "true ? event.payload.deep[0].v : 0", "{'k': payload}.k.deep[0]['v']"] {
            prop_assert_eq!(told(&Scene::transforming(expression).post(&payload)), [format!("store out {digits}")]);
        }
    }

    // Holds: c11.expressions
    #[test]
    fn integers_and_doubles_mix(a in -1_000_000_i64..1_000_000, b in -1000.0..1000.0_f64) {
        let b = (b * 8.0).round() / 8.0;
        let payload = json!({"a": a, "b": b}).to_string();
        let gives = |expression: &str| told(&Scene::transforming(expression).post(&payload)).remove(0);
        let truth = |holds: bool| format!("store out {holds}");
        for (expression, expected) in [
            ("payload.a + payload.b == payload.b + payload.a", true),
            ("payload.a + payload.b == double(payload.a) + payload.b", true),
            ("payload.a - payload.b == -(payload.b - payload.a)", true),
            ("payload.a * payload.b == payload.b * payload.a", true),
            ("payload.a == double(payload.a)", true),
            ("payload.a < payload.b", (a as f64) < b),
            ("payload.a >= payload.b", (a as f64) >= b),
            ("payload.b > payload.a", b > a as f64),
            ("type(payload.a) == int && type(payload.b) == double && type(payload.a + payload.b) == double", true),
        ] {
            prop_assert_eq!(gives(expression), truth(expected), "{}", expression);
        }
    }

    #[test]
    fn an_integer_is_compared_with_a_double_exactly(a in any::<i64>(), step in -2_i64..3) {
        let b = a.saturating_add(step) as f64;
        let payload = json!({"a": a, "b": b}).to_string();
        let gives = |expression: &str| told(&Scene::transforming(expression).post(&payload)).remove(0);
        let less = (i128::from(a)) < (b as i128);
        let equal = i128::from(a) == b as i128;
        prop_assert_eq!(gives("payload.a < payload.b"), format!("store out {less}"));
        prop_assert_eq!(gives("payload.b > payload.a"), format!("store out {less}"));
        prop_assert_eq!(gives("payload.a == payload.b"), format!("store out {equal}"));
    }

    #[test]
    fn integer_arithmetic_is_that_of_64_bits_or_an_error(a in any::<i64>(), b in any::<i64>()) {
        let payload = json!({"a": a, "b": b}).to_string();
        for (sign, expected) in [("+", a.checked_add(b)), ("-", a.checked_sub(b)), ("*", a.checked_mul(b)), ("/", a.checked_div(b)), ("%", a.checked_rem(b))] {
            let outcome = told(&Scene::transforming(&format!("payload.a {sign} payload.b")).post(&payload));
            match expected {
                Some(value) => prop_assert_eq!(outcome, [format!("store out {value}")]),
                None => prop_assert!(outcome[0].starts_with("error t: ")),
            }
        }
    }
}

fn any_body() -> impl Strategy<Value = String> {
    let pieces = "input.bytes input.fPort NaN undefined null 10n Symbol() 'é' [1,,2] {} (()=>1) new(Date) /a+/ -0 1e308 '\\ud83d' {a:{b:[]}} \
        input [input] new(Map) new(Uint8Array)(3) this arguments Infinity \
        {get(a){return(1)}} {toJSON(){return(1)}} {toJSON(){throw(1)}}";
    let piece = prop::sample::select(pieces.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    prop::collection::vec((piece, prop::sample::select(vec!["data", "errors", "warnings"])), 0..4).prop_map(|members| {
        let members: Vec<String> = members.into_iter().map(|(value, name)| format!("{name}: {value}")).collect();
        format!("return {{{}}};", members.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn output_of_code_is_json_or_an_error(body in any_body(), payload in any_json()) {
        let code = format!("function decodeUplink(input) {{ {body} }}");
        if let Ok(plan) = compile(json!({
            "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "f", "ability": "evaluate"}]}},
            "f": {"type": "function", "properties": {"code": code}, "triggers": {"result": [{"element": "out", "ability": "store"}]}},
            "out": {"type": "storage"},
        })) {
            let mut scene = Scene::transforming("payload");
            scene.plan = plan;
            for payload in [payload.to_string(), "[1,2,3]".to_owned()] {
                let outcome = scene.post(payload);
                prop_assert_eq!(outcome.effects.len() + outcome.errors.len(), 1);
                for effect in outcome.effects {
                    let Effect::Store { value, .. } = effect else { panic!("stored") };
                    prop_assert!(isobar_model::json::parse(value.text()).is_ok(), "{}", value.text());
                }
            }
        }
    }

    #[test]
    fn any_text_is_code_or_a_fault(code in "[ -~é\\n]{0,60}") {
        let _ = compile(json!({"f": {"type": "function", "properties": {"code": code}}}));
    }

    #[test]
    fn later_element_types_take_any_value(value in any_json(), other in any_json()) {
        let all = [("w", "push"), ("v", "push"), ("t", "pass"), ("n", "notify"), ("h", "request"), ("f", "evaluate"), ("s", "store")];
        let links: Vec<Value> = all.iter().map(|(element, ability)| json!({"element": element, "ability": ability})).collect();
        let mut scene = Scene::new(json!({
            "in": {"type": "deviceEvent", "triggers": {"eventReceived": links}},
            "w": {"type": "window", "properties": {"size": 2, "aggregate": "mean"}},
            "v": {"type": "window", "properties": {"minutes": 2, "aggregate": "first"}},
            "t": {"type": "throttle", "properties": {"minutes": 2}},
            "n": {"type": "notification", "properties": {"message": "a {{ payload }}"}},
            "h": {"type": "http", "properties": {"url": "payload", "headers": {"a": "payload"}, "body": "payload"}},
            "f": {"type": "function", "properties": {"code": "function decodeUplink(input) { return {data: input}; }"}},
            "s": {"type": "storage"},
        }));
        for value in [&value, &other, &value] {
            let outcome = told(&scene.post_and_keep(&value.to_string()));
            prop_assert!(outcome.contains(&format!("store s {value}")), "an element's failure leaves the other branches alone");
        }
        let _ = (scene.elapsed("w"), scene.answered("h", true, &value.to_string()));
    }
}
