//! Tests of functions: the input of code, and what follows from its output.

use serde_json::{Value, json};

use super::given::{Scene, compile, link, scene, told};

/// Returns a scene with a function element whose result is stored in `out` and whose error in `bad`.
pub(crate) fn with_properties(properties: Value) -> Scene {
    scene(
        json!([link("f", "evaluate"), link("after", "store")]),
        json!({
            "f": {"type": "function", "properties": properties, "triggers": {"result": [link("out", "store")], "error": [link("bad", "store")]}},
            "out": {"type": "storage"}, "bad": {"type": "storage"},
            "after": {"type": "storage"},
        }),
    )
}

pub(crate) fn with_code(code: &str) -> Scene {
    with_properties(json!({"code": code}))
}

/// Returns a scene whose `decodeUplink` has that body.
pub(crate) fn decoding(body: &str) -> Scene {
    with_code(&format!("function decodeUplink(input) {{ {body} }}"))
}

/// Returns the effects of a run, without what the other branch stored.
pub(crate) fn outcome(scene: &Scene, payload: &str) -> Vec<String> {
    let lines = told(&scene.post(payload));
    assert!(lines.contains(&format!("store after {payload}")), "the other branch went on: {lines:?}");
    lines.into_iter().filter(|line| !line.starts_with("store after ")).collect()
}

/// Returns the effects of a run whose function fails with that message.
fn failure(message: &str) -> [String; 2] {
    [format!("store bad {}", json!(message)), format!("error f: {message}")]
}

pub(crate) fn fault(code: &str) -> String {
    let element = json!({"f": {"type": "function", "properties": {"code": code}}});
    let faults = compile(element).map(|_| ()).unwrap_err();
    assert_eq!((faults.len(), faults[0].field.as_str()), (1, "planes.cloud.elements.f.properties.code"));
    faults[0].message.clone()
}

#[test]
fn a_codec_gets_bytes_port_and_time() {
    let scene = decoding(
        "return {data: [input.bytes, Array.isArray(input.bytes), input.fPort, input.recvTime.toISOString()]};",
    );
    let expected = [r#"store out [[1,255],true,2,"2026-03-04T05:06:07.089Z"]"#];
    assert_eq!(outcome(&scene, r#"{"fPort":2,"bytes":[1,255]}"#), expected);
    assert_eq!(outcome(&scene, r#"{"fPort":"2","data":"Af8="}"#), expected);
    let without = [r#"store out [[1,255],true,null,"2026-03-04T05:06:07.089Z"]"#];
    assert_eq!(outcome(&scene, r#""Af8=""#), without);
    assert_eq!(outcome(&scene, "[1,255.0]"), without);
    assert_eq!(outcome(&decoding("return {data: input.fPort === null};"), "[1]"), ["store out true"]);
}

#[test]
fn references_say_where_port_and_bytes_are() {
    let code = "function decodeUplink(input) { return {data: [input.fPort, input.bytes]}; }";
    for (port, bytes) in [("$.up.port", "$['up']['frm']"), ("up.port", "up.frm"), ("payload.up.port", "payload.up.frm")]
    {
        let scene = with_properties(json!({"code": code, "fPortRef": port, "bytesRef": bytes}));
        assert_eq!(outcome(&scene, r#"{"up":{"port":7,"frm":"AQI="}}"#), ["store out [7,[1,2]]"]);
        assert_eq!(outcome(&scene, r#"{"up":{"frm":"AQI="}}"#), ["store out [null,[1,2]]"]);
        assert_eq!(outcome(&scene, r#"{"up":{}}"#), failure(&format!("there are no bytes at {bytes}")));
    }
}

// Holds: c11.function
#[test]
fn the_encoding_of_a_text_is_never_guessed() {
    let code = "function decodeUplink(input) { return {data: input.bytes}; }";
    for (properties, text, stored) in [
        (json!({"code": code}), "abcd", "[105,183,29]"),
        (json!({"code": code, "bytesEncoding": null}), "ABEC", "[0,17,2]"),
        (json!({"code": code, "bytesEncoding": "base64"}), "01ff", "[211,87,223]"),
        (json!({"code": code, "bytesEncoding": "hex"}), "abcd", "[171,205]"),
        (json!({"code": code, "bytesEncoding": "hex"}), "ABcd", "[171,205]"),
    ] {
        let payload = format!(r#"{{"data":"{text}"}}"#);
        assert_eq!(outcome(&with_properties(properties), &payload), [format!("store out {stored}")], "{text}");
    }
    let hex = with_properties(json!({"code": code, "bytesEncoding": "hex"}));
    let message = "the bytes are not hexadecimal, digits in pairs, as bytesEncoding says";
    assert_eq!(outcome(&hex, r#""AQID=""#), failure(message));
}

#[test]
fn stored_design_with_encoding_auto_means_base64() {
    let planes = json!({"cloud": {"elements": {"f": {"type": "function", "properties": {
        "code": "function decodeUplink(input) { return {data: input.bytes}; }", "bytesEncoding": "auto"}}}}});
    let planes = isobar_model::json::RawJson::check(planes.to_string().into()).unwrap();
    assert!(crate::Plan::compile_stored(&planes.tree()).is_ok());
}

// Holds: c11.function
#[test]
fn function_without_bytes_or_with_a_bad_port_fires_error() {
    let scene = decoding("return {data: 1};");
    for (payload, message) in [
        ("{}", "there are no bytes: the value has neither 'bytes' nor 'data'"),
        ("5", "the bytes are a value of type int, not a list or a text"),
        (r#"{"bytes":{"a":1}}"#, "the bytes are a value of type map, not a list or a text"),
        ("[256]", "a byte is no whole number from 0 to 255"),
        ("[-1]", "a byte is no whole number from 0 to 255"),
        (r#"["1"]"#, "a byte is no whole number from 0 to 255"),
        (r#""?""#, "the bytes are no Base64; for hexadecimal, bytesEncoding is 'hex'"),
        (r#"{"bytes":[],"fPort":256}"#, "the fPort is no whole number from 0 to 255"),
        (r#"{"bytes":[],"fPort":[]}"#, "the fPort is no whole number from 0 to 255"),
    ] {
        assert_eq!(outcome(&scene, payload), failure(message));
    }
}

#[test]
fn data_of_a_codec_is_the_result() {
    for (data, stored) in [
        (
            "{a: 1.5, b: 21, c: -0, d: 1e21, e: 'é\"', f: [true, null]}",
            r#"{"a":1.5,"b":21,"c":0,"d":1e21,"e":"é\"","f":[true,null]}"#,
        ),
        ("{a: NaN, b: -Infinity, c: undefined, d: () => 1, e: Symbol('x')}", r#"{"a":null,"b":null}"#),
        ("new Date(0)", r#""1970-01-01T00:00:00.000Z""#),
        ("{toJSON() { return {a: 1}; }}", r#"{"a":1}"#),
        ("{get a() { return 2; }}", r#"{"a":2}"#),
        ("null", "null"),
        ("9007199254740991", "9007199254740991"),
        ("{['__proto__']: 1, constructor: 2, toString: 3}", r#"{"__proto__":1,"constructor":2,"toString":3}"#),
    ] {
        assert_eq!(
            outcome(&decoding(&format!("return {{data: {data}}};")), "[]"),
            [format!("store out {stored}")],
            "{data}"
        );
    }
}

// Holds: c11.function
#[test]
fn codec_errors_and_exceptions_fire_error_and_are_recorded() {
    for (body, value, message) in [
        ("return {errors: ['a', 'b'], data: 1};", r#"["a","b"]"#, "a; b"),
        ("return {errors: 'alone'};", r#"["alone"]"#, "alone"),
        ("return {errors: [['a', 'b'], [], 'c', [['d']]]};", r#"["a","b","c","[\"d\"]"]"#, r#"a; b; c; ["d"]"#),
        ("return {errors: [[]]};", r#""TypeError: the answer has no data""#, "TypeError: the answer has no data"),
        (
            "return {errors: [new Error('x'), {a: 1}, 5, null]};",
            r#"["Error: x","{\"a\":1}","5","null"]"#,
            r#"Error: x; {"a":1}; 5; null"#,
        ),
        ("throw new Error('bad');", r#""Error: bad""#, "Error: bad"),
        ("throw '\\ud800';", "\"\u{fffd}\"", "\u{fffd}"),
        (
            "return {data: '\\ud800'};",
            r#""answers no sound JSON: \\ud800 is half of a surrogate pair at byte 1""#,
            r"answers no sound JSON: \ud800 is half of a surrogate pair at byte 1",
        ),
        ("throw 'text';", r#""text""#, "text"),
        (
            "return input.nothing.x;",
            r#""TypeError: cannot read property 'x' of undefined""#,
            "TypeError: cannot read property 'x' of undefined",
        ),
        ("return {};", r#""TypeError: the answer has no data""#, "TypeError: the answer has no data"),
        (
            "return {data: undefined, errors: []};",
            r#""TypeError: the answer has no data""#,
            "TypeError: the answer has no data",
        ),
        (
            "return {data: function () {}};",
            r#""TypeError: the answer has no data""#,
            "TypeError: the answer has no data",
        ),
        ("", r#""TypeError: the answer is no object""#, "TypeError: the answer is no object"),
        ("return 5;", r#""TypeError: the answer is no object""#, "TypeError: the answer is no object"),
    ] {
        let expected = [format!("store bad {value}"), format!("error f: {message}")];
        assert_eq!(outcome(&decoding(body), "[]"), expected, "{body}");
    }
}

#[test]
fn older_forms_of_codecs_run() {
    let chirpstack =
        with_code("function Decode(fPort, bytes, variables) { return {p: fPort, n: bytes.length, v: variables}; }");
    assert_eq!(outcome(&chirpstack, r#"{"fPort":3,"bytes":[1]}"#), [r#"store out {"p":3,"n":1,"v":{}}"#]);
    let things = with_code("function Decoder(bytes, port) { return {p: port, n: bytes.length}; }\nfunction other() {}");
    assert_eq!(outcome(&things, r#"{"fPort":3,"bytes":[1]}"#), [r#"store out {"p":3,"n":1}"#]);
    let both = with_code(
        "function Decoder(b) { return {n: b[0]}; } var decodeUplink = (input) => ({data: Decoder(input.bytes)});",
    );
    assert_eq!(outcome(&both, "[9]"), [r#"store out {"n":9}"#]);
}

#[test]
fn code_with_a_fault_is_refused_with_the_line() {
    assert_eq!(
        fault("function decodeUplink(input) {\n  return {data: ;\n}"),
        "does not run: SyntaxError: unexpected token in expression: ';' (line 2)"
    );
    assert!(fault("}); evil(); (function () {").starts_with("does not run: SyntaxError"));
    assert!(fault("return 1; function decodeUplink() {}").starts_with("does not run: SyntaxError"));
    assert!(fault("import x from 'y'; function decodeUplink() {}").starts_with("does not run: SyntaxError"));
    assert_eq!(fault("throw 1; function decodeUplink() {}"), "does not run: 1");
    assert_eq!(
        fault("function f() { f(); } f(); function decodeUplink() {}"),
        "does not run: calls itself too deeply (line 1)"
    );
    assert_eq!(outcome(&decoding("const f = () => f(); return f();"), "[1]"), failure("calls itself too deeply"));
    assert_eq!(
        fault("var x = 1;\nx.y.z;\nfunction decodeUplink() {}"),
        "does not run: TypeError: cannot read property 'z' of undefined (line 2)"
    );
    assert_eq!(fault("function decodeDownlink() {}"), "has no function decodeUplink(input)");
    assert_eq!(fault("var decodeUplink = 5;"), "has no function decodeUplink(input)");
    assert_eq!(
        fault("var x = 1;\nvar s = 'a\0b'; function decodeUplink() {}"),
        "has the character U+0000 in line 2: write it as \\u0000"
    );
    assert_eq!(fault(&format!("//{}", "x".repeat(262_144))), "has at most 262144 bytes");
}

#[test]
fn run_sees_nothing_of_the_previous_run() {
    let codes = [
        "var n = 0; function decodeUplink() { n += 1; return {data: n}; }",
        "let n = {}; function decodeUplink() { n.x = (n.x || 0) + 1; return {data: n.x}; }",
        "function decodeUplink() { if (typeof n === 'undefined') n = 0; n += 1; return {data: n}; }",
        "function decodeUplink() { globalThis.n = (globalThis.n || 0) + 1; return {data: n}; }",
        "function decodeUplink() { Object.prototype.n = ({}.n || 0) + 1; return {data: 1}; }",
        "function decodeUplink() { Array.prototype.n = ([].n || 0) + 1; return {data: [].n || 1}; }",
        "function decodeUplink() { console.n = (console.n || 0) + 1; return {data: console.n || 1}; }",
        "function decodeUplink() { Math.n = (Math.n || 0) + 1; return {data: Math.n || 1}; }",
        "function decodeUplink() { var p = {n: (globalThis.n || 0) + 1}; Object.setPrototypeOf(globalThis, p); return {data: n}; }",
        "function decodeUplink() { var f = (globalThis.n || 0) + 1; Object.defineProperty(globalThis, 'n', {value: f}); return {data: n}; }",
        "function decodeUplink() { Error.prepareStackTrace = (Error.prepareStackTrace || 0) + 1; return {data: Error.prepareStackTrace || 1}; }",
        "String.prototype.n = (String.prototype.n || 0) + 1; function decodeUplink() { return {data: ''.n}; }",
        "Array.prototype.push = function () { return 7; }; function decodeUplink() { return {data: [].push(1) - 6}; }",
    ];
    for code in codes {
        let scene = with_code(code);
        for _ in 0..3 {
            assert_eq!(outcome(&scene, "[]"), ["store out 1"], "{code}");
        }
    }
}

#[test]
fn code_may_use_what_codecs_use() {
    for (expression, value) in [
        ("(function () { for (i = 0; i < 3; i++); return i; })()", "3"),
        ("new DataView(new Uint8Array([0x40, 0x49, 0x0f, 0xdb]).buffer).getFloat32(0).toFixed(4)", r#""3.1416""#),
        ("[3, 1, 2].sort().map(x => x * 2).concat([1], 5).indexOf(6)", "2"),
        ("[1, [2, [3]]].flat(Infinity).concat([[4]].flatMap(x => x))", "[1,2,3,4]"),
        ("'a-b-c'.split('-').reverse().join('') + 'x'.padStart(3, '0') + 'ab'.repeat(2)", r#""cba00xabab""#),
        (
            "'Temp 21.5'.replace(/[^0-9.]/g, '') + 'abab'.replaceAll('b', 'c') + 'x,y'.split(/,/).length",
            r#""21.5acac2""#,
        ),
        ("new RegExp('(\\\\d+)', 'g').exec('a12b')[1] + /x/.test('x') + (/a/ instanceof RegExp)", r#""12truetrue""#),
        ("Object.assign({}, {a: 1}, null, {b: 2})", r#"{"a":1,"b":2}"#),
        ("Object.keys({a: 1}).concat(Object.entries({b: 2})[0])", r#"["a","b",2]"#),
        ("JSON.parse(JSON.stringify({a: [1, 2]}))", r#"{"a":[1,2]}"#),
        ("parseInt('ff', 16) + Number('1') + (255).toString(2).length", "264"),
        ("String.fromCharCode.apply(null, input.bytes)", r#""AB""#),
        ("Array.from({length: 3}, (_, i) => i).includes(2)", "true"),
        ("Number(BigInt.asIntN(64, 0xffffffffffffffffn)) + Number(5n)", "4"),
        ("new Map([[1, 'a']]).get(1) + new Set([1, 1]).size", r#""a1""#),
        (
            "(() => { class A { constructor() { this.n = 1; } toString() { return 'A' + this.n; } } return `${new A()}`; })()",
            r#""A1""#,
        ),
        (
            "(() => { function B() {} B.prototype.toString = () => 'B'; var e = new Error('m'); e.name = 'N'; return new B() + ' ' + e; })()",
            r#""B N: m""#,
        ),
        (
            "(console.log('mute'), typeof module + typeof require + typeof eval + typeof process)",
            r#""undefinedundefinedundefinedundefined""#,
        ),
        ("[...'ab'].map((c) => c.charCodeAt(0)).reduce((a, b) => a + b, 0)", "195"),
        ("Array.prototype.slice.call(arguments).length", "1"),
        ("new Date(2026, 0, 1) instanceof Date", "true"),
    ] {
        let scene = decoding(&format!("return {{data: {expression}}};"));
        for _ in 0..2 {
            assert_eq!(outcome(&scene, "[65,66]"), [format!("store out {value}")], "{expression}");
        }
    }
}
