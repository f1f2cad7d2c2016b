//! Tests hostile code that uses single long operations, in which the engine checks its clock not at all or without
//! effect: that it ends.

use super::code::{decoding, outcome, with_code};

const LATE: &str = "takes longer than 50 ms";
const FULL: &str = "takes more than 8 MiB of memory";

/// Returns the error of a codec with that body.
fn ends(body: &str) -> String {
    let lines = outcome(&decoding(body), "[]");
    let [_, error] = lines.as_slice() else { panic!("{body}: {lines:?}") };
    error.strip_prefix("error f: ").unwrap().to_owned()
}

#[test]
fn huge_operation_is_the_last_one() {
    for body in [
        "var a = 2n ** 500000n - 1n; for (;;) { var x = a * a; }",
        "var a = 2n ** 500000n - 1n; for (;;) { try { var x = a * a; } catch (e) {} }",
        "var a = 2n ** 1000000n - 1n, b = 2n ** 500000n - 3n; for (;;) { var x = a % b; }",
        "var a = 2n ** 1000000n - 1n, b = 2n ** 500000n - 3n; for (;;) { try { var x = a / b; } catch (e) {} }",
        "for (;;) { var x = 3n ** 600000n; }",
        "var a = 1n << 1000000n; for (;;) { var x = a << 5n; }",
        "var a = 1n << 200000n; for (;;) { try { var x = `${a}`; } catch (e) {} }",
        "var s = '7'.repeat(90000); for (;;) { try { BigInt(s); } catch (e) {} }",
        "var a = 'x'.repeat(1500000); for (;;) { a.toUpperCase(); }",
        "var o = {}; for (var i = 0; i < 20000; i++) o['k' + i] = i; for (;;) { var {k1, ...r} = o; }",
        "var a = new Array(100000).fill(1); for (;;) { try { [...a]; } catch (e) {} }",
        "for (;;) { Array.from({length: 200000}); }",
    ] {
        assert_eq!(ends(body), LATE, "{body}");
    }
}

#[test]
fn structure_with_endless_json_is_ended() {
    let nested = "var a = {}; for (var i = 0; i < 200; i++) a = {a: a, b: a};";
    for rest in [
        "JSON.stringify(a);",
        "for (;;) { try { JSON.stringify(a); } catch (e) {} }",
        "JSON.stringify(a, ['a', 'b']);",
        "return {data: a};",
        "return {errors: [a]};",
        "throw a;",
    ] {
        let message = ends(&format!("{nested} {rest}"));
        assert!(message == LATE || message == FULL, "{rest}: {message}");
    }
    let lists = "var a = []; for (var i = 0; i < 200; i++) a = [a, a]; JSON.stringify(a);";
    assert_eq!(ends(lists), LATE);
    assert!(ends("String.raw({raw: {length: 9e15}});").contains("a list has more than"));
}

#[test]
fn final_exception_cannot_be_caught_by_the_engine() {
    let iterator =
        "var v = {value: 1}, i = {[Symbol.iterator]() { return i; }, next() { return v; }, return() { for (;;); }};";
    for body in [
        "for (;;) new Promise(function () { for (;;); });",
        "async function f() { for (;;); } for (;;) f();",
        "async function* f() { for (;;); } for (;;) f().next();",
        "var t = {get then() { for (;;); }}; for (;;) new Promise(function (f) { f(t); });",
        "function* g() { try { yield 1; } finally { for (;;); } } for (;;) { try { for (var x of g()) throw 1; } catch (e) {} }",
        "function f(n) { for (;;) { new Promise(function () { if (n) f(n - 1); for (;;); }); } } f(100);",
        &format!("{iterator} for (;;) {{ try {{ for (var x of i) throw 1; }} catch (e) {{}} }}"),
        &format!("{iterator} for (;;) {{ try {{ new Map(i); }} catch (e) {{}} }}"),
        &format!("{iterator} for (;;) {{ try {{ Array.from(i, function () {{ throw 1; }}); }} catch (e) {{}} }}"),
        &format!("{iterator} for (;;) {{ try {{ for (var x of i) for (;;) 'x'.repeat(20000); }} catch (e) {{}} }}"),
    ] {
        assert_eq!(ends(body), LATE, "{body}");
    }
}

#[test]
fn code_that_filled_its_memory_cannot_continue() {
    for body in [
        "var k = []; try { for (;;) k.push({}); } catch (e) {} for (;;) { try { for (;;); } catch (e) {} }",
        "var k; try { for (;;) k = [k]; } catch (e) {} for (;;) { try { for (;;); } catch (e) {} }",
        "var k = []; try { for (;;) k.push({}); } catch (e) {} return {data: 1};",
    ] {
        assert_eq!(ends(body), FULL, "{body}");
    }
    // A concatenated text takes no memory until it is read.
    assert!(ends("var s = 'x'; for (;;) s += s;").contains("string too long"));
}

#[test]
fn limits_are_restored_after_code_was_ended() {
    let code = "function decodeUplink(input) { if (input.bytes.length) { for (;;) new Promise(function () { for (;;); }); } \
         function deep(n) { return n ? deep(n - 1) : 'x'.repeat(100000).length; } return {data: deep(200)}; }";
    let scene = with_code(code);
    assert_eq!(outcome(&scene, "[]"), ["store out 100000"]);
    assert_eq!(outcome(&scene, "[1]")[1], format!("error f: {LATE}"));
    assert_eq!(outcome(&scene, "[]"), ["store out 100000"]);
}
