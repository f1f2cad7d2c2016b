//! Functions: what codecs of other software expect beside the convention.

use super::code::{decoding, fault, outcome, with_code};

#[test]
fn code_may_give_its_functions_away_as_a_module_of_node_does() {
    let body = "{ return {data: input.bytes[0]}; }";
    for code in [
        format!("exports.decodeUplink = function (input) {body};"),
        format!("function decodeUplink(input) {body}\nexports.decodeUplink = decodeUplink;"),
        format!("function decodeUplink(input) {body}\nmodule.exports.decodeUplink = decodeUplink;"),
        format!("function own(input) {body}\nmodule.exports = {{ decodeUplink: own, encodeDownlink: null }};"),
        format!("const exports = {{}}; function decodeUplink(input) {body} exports.x = 1;"),
        // Where a name is enough there is no module, and nobody goes looking for the rest of Node.
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
    assert_eq!(missing, "ReferenceError: require is not defined (line 1)");
}

#[test]
fn what_compilers_and_bundlers_make_of_a_codec_runs() {
    for code in [
        // TypeScript, to modules of Node.
        "\"use strict\";\nObject.defineProperty(exports, \"__esModule\", { value: true });\nexports.decodeUplink = decodeUplink;\n\
         function decodeUplink(input) { return { data: input.bytes[0] }; }",
        // TypeScript, classes for old engines.
        "\"use strict\"; var __extends = (this && this.__extends) || function (d, b) { function __() { this.constructor = d; } \
         d.prototype = (__.prototype = b.prototype, new __()); };\n\
         var Frame = (function () { function Frame(b) { this.b = b; } Frame.prototype.toString = function () { return 'x'; }; return Frame; }());\n\
         var Up = (function (_super) { __extends(Up, _super); function Up(b) { return _super.call(this, b) || this; } \
         Up.prototype.first = function () { return this.b[0]; }; return Up; }(Frame));\n\
         function decodeUplink(input) { return { data: new Up(input.bytes).first() }; }",
        // A universal module, strict and not.
        "(function (root, factory) { if (typeof exports === 'object') module.exports = factory(); else root.codec = factory(); })\
         (this, function () { return { decode: function (bytes) { return bytes[0]; } }; });\n\
         function decodeUplink(input) { return { data: codec.decode(input.bytes) }; }",
        "'use strict'; (function (root) { root.codec = { decode: (bytes) => bytes[0] }; })(this);\n\
         function decodeUplink(input) { return { data: codec.decode(input.bytes) }; }",
        // A bundle that keeps its modules in an object.
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

#[test]
fn a_buffer_reads_as_nodes_does() {
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
fn a_buffer_is_there_for_code_that_names_it_and_stays_as_it_is() {
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
