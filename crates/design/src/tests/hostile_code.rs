//! Tests that hostile code stays within its limits and the design continues.

use super::code::{decoding, outcome, with_code};
use super::given::compile;

/// Returns the error of a codec with that body; runs it twice, so that an effect on the next run is noticed.
fn ends(body: &str) -> String {
    let scene = decoding(body);
    let first = outcome(&scene, "[]");
    let [_, error] = first.as_slice() else { panic!("{body}: {first:?}") };
    error.strip_prefix("error f: ").unwrap().to_owned()
}

// Holds: c11.bounds
#[test]
fn endless_code_is_ended() {
    let late = "takes longer than 50 ms";
    for body in [
        "while (true);",
        "for (;;) { try { while (true); } catch (e) {} finally { continue; } }",
        "(function f() { try { f(); } finally { f(); } })();",
        "return {data: {toJSON() { while (true); }}};",
        "return {get data() { while (true); }};",
        "throw {toJSON() { while (true); }};",
        "/(a+)+b/.exec('a'.repeat(40));",
        "var a = []; while (true) a.indexOf(1);",
        "function* g() { while (true) yield 1; } for (var x of g());",
        "[1, 2].sort(function () { while (true); });",
        "'x'.replace(/x/, function () { while (true); });",
        "while (true) { try { 'x'.repeat(1e6); } catch (e) {} }",
    ] {
        assert_eq!(ends(body), late, "{body}");
    }
}

// Holds: c11.bounds
#[test]
fn growing_code_is_ended() {
    for body in [
        "return 'x'.repeat(1e9);",
        "var s = 'x'; while (true) s += s;",
        "var a = []; while (true) a.push(a.length);",
        "var a = []; while (true) a.push('x'.repeat(1000) + a.length);",
        "return new Uint8Array(1e9);",
        "return new Array(4294967295).fill(0);",
        "return {data: Array(4294967295)};",
        "var o = {}; for (var i = 0; ; i++) o['k' + i] = i;",
        "return {data: JSON.parse('['.repeat(1e6))};",
        "return Array(4294967295).join('x');",
        "return {data: 'x'.repeat(2000000)};",
        "return [].concat(Array(4294967295));",
        "return Array(4294967295).indexOf(1);",
        "return Array.prototype.indexOf.call({length: Math.pow(2, 53) - 1}, 1);",
        "var n = 0; return Array.prototype.indexOf.call({get length() { return n++ ? 9e15 : 0; }}, 1);",
        "return JSON.stringify({}, Array(4294967295));",
        "return [Array(4294967295)].flat();",
        "return [1].flatMap(function () { return Array(4294967295); });",
        "return 'a'.repeat(1e6).indexOf('a'.repeat(5e5) + 'b');",
        "return 'a'.repeat(1e6).split('a'.repeat(5e5) + 'b');",
        "return '\\u0301\\u0327'.repeat(1e5).normalize();",
        "return 2n ** 100000000n;",
        "(function f() { f(); })();",
        "var a = []; for (var i = 0; i < 1e5; i++) a = [a]; return {data: a};",
        "var a = {}; a.a = a; return {data: a};",
        "return {data: 10n};",
        "var e = []; for (var i = 0; i < 100; i++) e.push('x'.repeat(5000)); return {errors: e};",
    ] {
        let message = ends(body);
        assert!(!message.is_empty() && message.len() < 40_000, "{body}: {message}");
    }
}

#[test]
fn promises_are_refused_and_leave_nothing() {
    assert_eq!(ends("return Promise.resolve({data: 1});"), "TypeError: the answer is a promise");
    let waiting = with_code("async function decodeUplink() { await null; return {data: 1}; }");
    assert_eq!(outcome(&waiting, "[]")[1], "error f: TypeError: the answer is a promise");
    let later = decoding("Promise.resolve().then(function () { while (true); }); return {data: 1};");
    for _ in 0..3 {
        assert_eq!(outcome(&later, "[]"), ["store out 1"]);
    }
}

#[test]
fn code_cannot_be_made_of_text() {
    for body in [
        "return {data: eval('1')};",
        "return {data: Function('return 1')()};",
        "return {data: new Function('return 1')()};",
        "return {data: (function () {}).constructor('return 1')()};",
        "return {data: (function* () {}).constructor('yield 1')().next()};",
        "return {data: (async function () {}).constructor('return 1')()};",
        "return {data: (0, eval)('this')};",
    ] {
        let message = ends(body);
        assert!(message.contains("cannot be made of text") || message.contains("not defined"), "{body}: {message}");
    }
}

#[test]
fn changed_prototypes_do_not_reach_the_next_run() {
    let games = [
        "Object.prototype.toJSON = function () { return 'evil'; };",
        "Object.prototype.then = function () {};",
        "Object.prototype.errors = ['evil'];",
        "Object.defineProperty(Object.prototype, 'data', {get() { return 'evil'; }});",
        "Array.prototype[Symbol.iterator] = function () { throw 1; };",
        "JSON.stringify = function () { return 'evil'; };",
        "Date = function () { throw 1; };",
        "Reflect.ownKeys = Reflect.apply = function () { return []; };",
        "String.prototype.slice = function () { throw 1; };",
        "delete globalThis.JSON; delete globalThis.Object;",
        "globalThis.globalThis = {};",
        "Object.freeze(globalThis);",
        "Object.defineProperty(globalThis, 'data', {get() { throw 1; }});",
        "Array.prototype.indexOf.call = null; input.__proto__.x = 1;",
    ];
    for game in games {
        let code = format!(
            "function decodeUplink(input) {{ if (input.bytes[0]) {{ try {{ {game} }} catch (e) {{}} }} return {{data: {{n: input.bytes.length}}}}; }}"
        );
        let scene = with_code(&code);
        outcome(&scene, "[1]");
        assert_eq!(outcome(&scene, "[0]"), [r#"store out {"n":1}"#], "{game}");
        let other =
            decoding("return {data: {a: [1].map(x => x + 1), s: JSON.stringify({}), u: ({}).x === undefined}};");
        assert_eq!(outcome(&other, "[]"), [r#"store out {"a":[2],"s":"{}","u":true}"#], "{game}");
    }
}

#[test]
fn endless_top_level_is_a_fault() {
    for code in ["while (true);", "var s = 'x'; while (true) s += s;", "(function f() { f(); })();"] {
        let code = format!("{code} function decodeUplink() {{ return {{data: 1}}; }}");
        let element = serde_json::json!({"f": {"type": "function", "properties": {"code": code}}});
        assert_eq!(compile(element).unwrap_err().len(), 1);
    }
}

#[test]
fn functions_of_a_run_share_a_time_limit() {
    use super::given::{link, scene, told};
    let links = vec![link("f", "evaluate"); 50];
    let code = "function decodeUplink() { while (true); }";
    let scene = scene(links.into(), serde_json::json!({"f": {"type": "function", "properties": {"code": code}}}));
    let lines = told(&scene.post("[]"));
    assert!(lines.contains(&"error f: takes longer than 50 ms".to_owned()), "{lines:?}");
    assert!(lines.contains(&"error f: the functions of this run take too long".to_owned()), "{lines:?}");
}

#[test]
fn codec_input_beyond_its_limit_is_an_error() {
    let scene = decoding("return {data: 1};");
    let lines = outcome(&scene, &format!("\"{}\"", "AAAA".repeat(21_846)));
    let message = "there are more than 65536 bytes";
    assert_eq!(lines, [format!("store bad \"{message}\""), format!("error f: {message}")]);
}
