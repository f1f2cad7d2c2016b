//! Tests of functions: codecs of other software that need more than the convention.

use super::code::{decoding, fault, outcome, with_code};

#[test]
fn code_may_export_its_functions_like_a_node_module() {
    let body = "{ return {data: input.bytes[0]}; }";
    for code in [
        format!("exports.decodeUplink = function (input) {body};"),
        format!("function decodeUplink(input) {body}\nexports.decodeUplink = decodeUplink;"),
        format!("function decodeUplink(input) {body}\nmodule.exports.decodeUplink = decodeUplink;"),
        format!("function own(input) {body}\nmodule.exports = {{ decodeUplink: own, encodeDownlink: null }};"),
        // The `exports` that it declares are the ones that it fills.
        format!("var exports = exports || {{}}; exports.decodeUplink = function (input) {body};"),
        format!("var module = module || {{}}; module.exports = {{ decodeUplink: function (input) {body} }};"),
        format!("var module = {{ exports: null }}; exports.decodeUplink = (input) => {body};"),
        format!("const exports = {{}}; exports.decodeUplink = function (input) {body};"),
        format!("const exports = {{}}; function decodeUplink(input) {body} exports.x = 1;"),
        // There is no module if a name suffices, so that code does not look for the rest of Node.
        format!(
            "function decodeUplink(input) {body}\nif (typeof module !== 'undefined') {{ require.main; module.exports = {{}}; }}"
        ),
        format!("if (typeof exports === 'object') exports.decodeUplink = null; var decodeUplink = (input) => {body};"),
    ] {
        let scene = with_code(&code);
        for _ in 0..2 {
            assert_eq!(outcome(&scene, "[7]"), ["store out 7"], "{code}");
        }
    }
    assert_eq!(fault("exports.encodeDownlink = function () {};"), "has no function decodeUplink(input)");
    let missing = fault("var x = require('x');\nexports.decodeUplink = x;");
    assert_eq!(missing, "does not run: ReferenceError: require is not defined (line 1)");
}

#[test]
fn output_of_compilers_and_bundlers_runs() {
    for code in [
        // TypeScript, compiled to modules of Node.
        "\"use strict\";\nObject.defineProperty(exports, \"__esModule\", { value: true });\nexports.decodeUplink = decodeUplink;\n\
         function decodeUplink(input) { return { data: input.bytes[0] }; }",
        // TypeScript, classes for old engines.
        "\"use strict\"; var __extends = (this && this.__extends) || function (d, b) { function __() { this.constructor = d; } \
         d.prototype = (__.prototype = b.prototype, new __()); };\n\
         var Frame = (function () { function Frame(b) { this.b = b; } Frame.prototype.toString = function () { return 'x'; }; return Frame; }());\n\
         var Up = (function (_super) { __extends(Up, _super); function Up(b) { return _super.call(this, b) || this; } \
         Up.prototype.first = function () { return this.b[0]; }; return Up; }(Frame));\n\
         function decodeUplink(input) { return { data: new Up(input.bytes).first() }; }",
        // A universal module, strict and sloppy.
        "(function (root, factory) { if (typeof exports === 'object') module.exports = factory(); else root.codec = factory(); })\
         (this, function () { return { decode: function (bytes) { return bytes[0]; } }; });\n\
         function decodeUplink(input) { return { data: codec.decode(input.bytes) }; }",
        "'use strict'; (function (root) { root.codec = { decode: (bytes) => bytes[0] }; })(this);\n\
         function decodeUplink(input) { return { data: codec.decode(input.bytes) }; }",
        // A bundle that has its modules in an object.
        "var codec;\n(() => { \"use strict\"; var modules = { 1: ((module, exports, load) => { exports.first = load(2).first; }), \
         2: ((__unused, exports) => { Object.defineProperty(exports, \"__esModule\", { value: true }); exports.first = (b) => b[0]; }) }; \
         var cache = {}; function load(id) { var known = cache[id]; if (known !== undefined) return known.exports; \
         var module = cache[id] = { exports: {} }; modules[id](module, module.exports, load); return module.exports; } \
         codec = load(1); })();\n\
         function decodeUplink(input) { return { data: codec.first(input.bytes) }; }",
        "\u{feff}const decodeUplink = ({ bytes: [first] }) => ({ data: first }); //# sourceMappingURL=codec.js.map",
    ] {
        let scene = with_code(code);
        for _ in 0..2 {
            assert_eq!(outcome(&scene, "[7]"), ["store out 7"], "{code}");
        }
    }
}

// Holds: c11.function
#[test]
fn buffer_reads_as_in_node() {
    for (expression, value) in [
        ("b.length + b[0] + b.readUInt8(1)", "262"),
        (
            "[b.readUInt16BE(0), b.readUInt16LE(0), b.readInt16BE(2), b.readUint16BE(2), b.readInt8(3)]",
            "[1023,65283,-2,65534,-2]",
        ),
        (
            "[b.readUInt32BE(0), b.readInt32LE(0), b.readUIntBE(1, 3), b.readIntLE(1, 3)]",
            "[67108862,-16777469,16777214,-65537]",
        ),
        ("[Buffer.from('41480000', 'hex').readFloatBE(), Buffer.from([0, 0, 72, 65]).readFloatLE(0)]", "[12.5,12.5]"),
        ("Buffer.from('3fb999999999999a', 'hex').readDoubleBE(0)", "0.1"),
        ("Number(Buffer.from('ffffffffffffffff', 'hex').readBigInt64LE(0))", "-1"),
        (
            "[b.toString('hex'), b.toString('base64'), b.slice(1, 3).toString('HEX'), b.subarray(-1).toString('hex')]",
            r#"["03fffffe","A////g==","ffff","fe"]"#,
        ),
        ("Buffer.from('A////g', 'base64').equals(b) && Buffer.from('A___-g', 'base64url').equals(b)", "false"),
        ("Buffer.from('A////g', 'base64').equals(b) && Buffer.from('A____g', 'base64url').equals(b)", "true"),
        ("Buffer.from('Zürich 😀').toString() + Buffer.from('é', 'latin1').toString('latin1')", r#""Zürich 😀é""#),
        ("Buffer.from([0x41, 0xff, 0xc3, 0xa9, 0xe2, 0x82]).toString('utf8')", "\"A\u{fffd}é\u{fffd}\u{fffd}\""),
        ("Buffer.from([0xc8]).toString('ascii')", r#""H""#),
        ("Buffer.concat([b, Buffer.alloc(2, 7)]).toJSON().data", "[3,255,255,254,7,7]"),
        ("new Buffer(input.bytes)", r#"{"type":"Buffer","data":[3,255,255,254]}"#),
        (
            "[Buffer.isBuffer(b), Buffer.isBuffer([]), b instanceof Uint8Array, Buffer(3).length, Buffer.byteLength('é')]",
            "[true,false,true,3,2]",
        ),
        ("Array.from(b.map((byte) => byte & 1)).concat(Array.prototype.slice.call(b, 0, 1))", "[1,1,1,0,3]"),
        ("(b.writeUInt16BE(513, 0), b.writeInt8(-1, 2), b.toString('hex'))", r#""0201fffe""#),
        ("(() => { try { return b.readUInt16BE(3); } catch (e) { return e.name; } })()", r#""RangeError""#),
        (
            "(() => { try { return Buffer.from('x', 'utf7'); } catch (e) { return e.message; } })()",
            r#""Unknown encoding: utf7""#,
        ),
        ("[...b.entries()].length + Buffer.from('0g', 'hex').length", "4"),
        ("input.variables.offset === undefined && typeof atob === 'undefined'", "true"),
    ] {
        let scene = decoding(&format!("var b = Buffer.from(input.bytes); return {{data: {expression}}};"));
        for _ in 0..2 {
            assert_eq!(outcome(&scene, "[3,255,255,254]"), [format!("store out {value}")], "{expression}");
        }
    }
}

#[test]
fn buffer_exists_for_code_that_names_it_and_is_frozen() {
    let unnamed = decoding("return {data: typeof globalThis['Buf' + 'fer'] + typeof ArrayBuffer};");
    assert_eq!(outcome(&unnamed, "[]"), [r#"store out "undefinedfunction""#]);
    let changed = decoding(
        "try { Buffer.x = 1; Buffer.prototype.y = 1; } catch (e) {} return {data: [typeof Buffer.x, typeof Buffer.from('').y]};",
    );
    assert_eq!(outcome(&changed, "[]"), [r#"store out ["undefined","undefined"]"#]);
    for hostile in ["Buffer.alloc(1e9)", "Buffer.from({length: 1e9})", "Buffer.alloc(4e6, 1).toString('hex')"] {
        let lines = outcome(&decoding(&format!("return {{data: ({hostile}).length}};")), "[]");
        assert!(lines.iter().any(|line| line.starts_with("error f: ")), "{hostile}: {lines:?}");
    }
}

#[test]
fn date_is_in_utc_and_otherwise_standard() {
    for (expression, value) in [
        (
            "[new Date(2024, 1, 29, 23, 59, 58, 7).getTime(), new Date(99, 0).getTime(), new Date(2024, NaN).getTime()]",
            { "[1709251198007,915148800000,null]" },
        ),
        (
            "['2024-02-29T10:00:00', '2024-02-29T10:00', '2024-02-29 10:00:00', 'Feb 29, 2024 10:00', '02/29/2024 10:00 AM', '29 Feb 2024 10:00:00'].every((text) => Date.parse(text) === 1709200800000)",
            "true",
        ),
        (
            "['2024-02-29T10:00:00Z', '2024-02-29T12:00:00+02:00', '2024-02-29T05:30:00.000-0430', 'Thu, 29 Feb 2024 10:00:00 GMT', 'Thu Feb 29 2024 15:30:00 GMT+0530', '02/29/2024 10:00 AM UTC', '29 Feb 2024 05:00:00 EST'].every((text) => +new Date(text) === 1709200800000)",
            "true",
        ),
        (
            "[Date.parse('2024-02-29'), Date.parse('2024'), Date.parse(''), Date.parse('no time'), +new Date('x' + 'y'.repeat(1e5))]",
            { "[1709164800000,1704067200000,null,null,null]" },
        ),
        (
            "(() => { const d = new Date(0); d.setFullYear(2024, 1, 29); d.setHours(10, 5); d.setMinutes(6, 7, 8); return d; })()",
            { r#""2024-02-29T10:06:07.008Z""# },
        ),
        (
            "(() => { const d = new Date(0); d.setYear(99); return [d.getYear(), d.getFullYear(), d.setYear('x')]; })()",
            { "[99,1999,null]" },
        ),
        ("[new Date(NaN).toString(), new Date(NaN).toLocaleString(), new Date(NaN).getTimezoneOffset()]", {
            r#"["Invalid Date","Invalid Date",null]"#
        }),
        ("[new Date(-1e15).toString(), new Date(46800000).toLocaleTimeString(), `${new Date(0)}`, new Date(0) + 1]", {
            r#"["Tue Apr 05 -29719 22:13:20 GMT+0000","01:00:00 PM","Thu Jan 01 1970 00:00:00 GMT+0000","Thu Jan 01 1970 00:00:00 GMT+00001"]"#
        }),
        (
            "[input.recvTime instanceof Date, input.recvTime.constructor === Date, Date.name, Date.length, typeof Date(), new Date(new Date(7)).getTime(), Math.abs(new Date() - Date.now()) < 1000]",
            r#"[true,true,"Date",7,"string",7,true]"#,
        ),
        (
            "(() => { class Stamp extends Date { hour() { return this.getHours(); } } const s = new Stamp(2024, 1, 29, 10); return [s.hour(), s instanceof Stamp, s instanceof Date]; })()",
            "[10,true,true]",
        ),
        ("(() => { try { Date.prototype.getHours.call({}); } catch (e) { return e.name; } })()", r#""TypeError""#),
        ("new Date({valueOf() { return 7; }}).getTime() + Date.UTC(1970, 0, 1, 0, 0, 1)", "1007"),
    ] {
        let scene = decoding(&format!("return {{data: {expression}}};"));
        for _ in 0..2 {
            assert_eq!(outcome(&scene, "[7]"), [format!("store out {value}")], "{expression}");
        }
    }
}

/// Returns code with the top level `top` and a codec with that body.
fn topped(top: &str, body: &str) -> String {
    format!("{top}\nfunction decodeUplink(input) {{ {body} }}")
}

// Holds: c11.function
#[test]
fn names_of_a_script_are_members_of_the_global_object() {
    for (top, expression, value) in [
        // A decoder found by name, in each way to the global object.
        ("function port_7(b) { return b[0]; }", "this['port_' + input.bytes[0]](input.bytes)", "7"),
        ("function port_7(b) { return b[0]; }", "globalThis['port_' + input.bytes[0]](input.bytes)", "7"),
        ("var root = this; var port_7 = function (b) { return b[0]; };", "root.port_7(input.bytes)", "7"),
        ("var port_7 = (b) => b[0];", "(function () { return this; })().port_7(input.bytes)", "7"),
        ("'use strict'; var names = this; var n = 7;", "names.n", "7"),
        ("'use strict'; function port_7(b) { return b[0]; }", "globalThis.port_7(input.bytes)", "7"),
        // One variable under both names.
        ("var n = 1;", "(this.n += 1, n += 1, [n, this.n, globalThis.n])", "[3,3,3]"),
        (
            "var { a, b: [c = 5] } = { a: 1, b: [] }; for (var i = 0; i < 3; i++) { var d = i; }",
            "[this.a, this.c, this.i, this.d]",
            "[1,5,3,2]",
        ),
        ("if (true) { function inner() { return 7; } }", "this.inner()", "7"),
        (
            "async function later() {} function* some() {}",
            "[typeof this.later, typeof this.some]",
            r#"["function","function"]"#,
        ),
        ("var \\u0061b = 7, größe = 8;", "[this.ab, this.größe]", "[7,8]"),
        // Hoisted variables before they have a value, and how they appear.
        (
            "var early = typeof this.late, late = 7, hoisted = this.decodeUplink === decodeUplink;",
            "[early, this.late, hoisted]",
            r#"["undefined",7,true]"#,
        ),
        (
            "var n = 7, m;",
            "[this.hasOwnProperty('n'), 'm' in globalThis, Object.keys(this).includes('n'), delete this.n, n, (() => { for (var k in this) if (k === 'm') return k; })()]",
            r#"[true,true,true,false,7,"m"]"#,
        ),
        // `let`, `const` and `class` do not declare members of the global object.
        (
            "let a = 1; const b = 2; class C {}",
            "[this.a, this.b, typeof this.C, a + b]",
            r#"[null,null,"undefined",3]"#,
        ),
        ("(function () { var inside = 1; })();", "[typeof this.inside, typeof inside]", r#"["undefined","undefined"]"#),
        (
            "'use strict'; { function inner() {} }",
            "[typeof globalThis.inner, typeof inner]",
            r#"["undefined","undefined"]"#,
        ),
        // Names that collide with those of the wrapper.
        (
            "var begin_0_, begin_1_1 = 1, at = 2, value = 3, arguments = 4, undefined, NaN;",
            "[this.begin_1_1, this.at, this.value, this.arguments, begin_0_]",
            "[1,2,3,4,null]",
        ),
        // As in a script, `var` leaves a built-in object unchanged.
        (
            "var console = console || {none: 1}; var JSON, Math = Math || {}, Object = Object, globalThis;",
            "[typeof console.log, typeof JSON.stringify, Math.max(1, 2), typeof Object.keys, typeof globalThis.Math.max]",
            r#"["function","function",2,"function","function"]"#,
        ),
        (
            "var module = module || {}, window = window || this; window.codec = 7;",
            "[typeof module, codec, this.window === this]",
            r#"["object",7,true]"#,
        ),
        (
            "function parseInt() { return 5; } function Map() { this.n = 1; } function Error() {}",
            "[this.parseInt('7'), new Map().n, Number.parseInt('7')]",
            "[5,1,7]",
        ),
        ("#!/usr/bin/env node\nvar n = 7;", "this.n", "7"),
    ] {
        let scene = with_code(&topped(top, &format!("return {{data: {expression}}};")));
        for _ in 0..3 {
            assert_eq!(outcome(&scene, "[7]"), [format!("store out {value}")], "{top} {expression}");
        }
    }
}

#[test]
fn script_with_shared_names_leaves_nothing_of_a_call() {
    for (top, body) in [
        ("var n = 0;", "this.n += 1; return {data: n};"),
        ("var n; n = (n || 0) + 1;", "return {data: globalThis.n};"),
        ("var n = 0; function f() {}", "f.n = (this.f.n || 0) + 1; return {data: f.n};"),
        ("function f() { return 1; }", "var v = this.f(); this.f = function () { return 2; }; return {data: v};"),
        ("var o = {};", "this.o.n = (o.n || 0) + 1; return {data: this.o.n};"),
        ("var a = 1;", "this.b = (this.b || 0) + 1; return {data: b};"),
        (
            "var a = 1;",
            "var own = Object.getOwnPropertyDescriptor(this, 'a'); try { own.get.n = (own.get.n || 0) + 1; } catch (e) {} return {data: own.get.n || 1};",
        ),
        ("var a = 1;", "try { Object.defineProperty(this, 'a', {value: 2}); } catch (e) {} return {data: a};"),
        ("var a = 1;", "if (typeof x === 'undefined') { x = 1; } Object.preventExtensions(this); return {data: x};"),
        ("var Math = Math;", "try { Math.n = (Math.n || 0) + 1; } catch (e) {} return {data: this.Math.n || 1};"),
        (
            "var Date; function Array() {}",
            "Date.prototype.n = ([].n || 0) + 1; [].constructor.prototype.n = 5; return {data: [].n && new Date(0).n === undefined ? 2 : 1};",
        ),
        ("'use strict'; var n = 0;", "globalThis.n++; return {data: n};"),
    ] {
        let scene = with_code(&topped(top, body));
        for _ in 0..3 {
            assert_eq!(outcome(&scene, "[7]"), ["store out 1"], "{top} {body}");
        }
    }
    // The script is invisible to other code.
    let other = decoding("return {data: typeof this.n + typeof n + typeof f};");
    assert_eq!(outcome(&other, "[]"), [r#"store out "undefinedundefinedundefined""#]);
}

#[test]
fn properties_of_wrapper_functions_end_with_the_call() {
    for top in [
        "var c = arguments.callee; c.n = (c.n || 0) + 1; var n = c.n;",
        "var c = arguments.callee.caller || {}; c.n = (c.n || 0) + 1; var n = c.n;",
        "var c = arguments[0] || {}; c.n = (c.n || 0) + 1; var n = c.n;",
        "'use strict'; var c = arguments[0] || {}; c.n = (c.n || 0) + 1; var n = c.n;",
    ] {
        let plain = with_code(&topped(top, "return {data: n};"));
        let module =
            with_code(&format!("{top} module.exports.decodeUplink = function (input) {{ return {{data: n}}; }};"));
        for scene in [plain, module] {
            for _ in 0..3 {
                assert_eq!(outcome(&scene, "[7]"), ["store out 1"], "{top}");
            }
        }
    }
}

#[test]
fn code_does_not_run_while_it_is_surveyed() {
    // It closes its wrapper and opens another function: the code in between must not run.
    for middle in ["for (;;);", "var a = 'a'.repeat(2e6); for (;;) a.indexOf(a + 'b');", "throw new Error('ran');"] {
        let told = fault(&format!("}}); /* use strict */ {middle} (function () {{"));
        assert!(!told.contains("ran") && !told.contains("time"), "{told}");
    }
}

#[test]
fn engine_with_a_frozen_global_object_is_not_reused() {
    let scene =
        decoding("if (input.bytes[0]) Object.preventExtensions(globalThis); else x = 1; return {data: typeof x};");
    assert_eq!(outcome(&scene, "[1]"), [r#"store out "undefined""#]);
    assert_eq!(outcome(&scene, "[0]"), [r#"store out "number""#]);
}
