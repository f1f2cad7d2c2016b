//! Tests hostile code that uses single long operations, in which the engine checks its clock not at all or without
//! effect: that it ends, and that it leaves a shared thread before it begins a large operation.

use super::code::{decoding, outcome, with_code};
use super::given::{Scene, told};
use crate::Outcome;

const LATE: &str = "takes longer than 50 ms";
const FULL: &str = "takes more than 8 MiB of memory";

/// Returns the error of a codec with that body, on a thread of its own.
fn ends(body: &str) -> String {
    let lines = outcome(&decoding(body), "[]");
    let [_, error] = lines.as_slice() else { panic!("{body}: {lines:?}") };
    error.strip_prefix("error f: ").unwrap().to_owned()
}

fn stored(outcome: &Outcome) -> Vec<String> {
    told(outcome).into_iter().filter(|line| !line.starts_with("store after ")).collect()
}

/// Returns the outcome of `[]` on a shared thread; `None` if the code needs more.
fn shared(scene: &Scene) -> Option<Vec<String>> {
    scene.post_shared("[]").map(|outcome| stored(&outcome))
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

#[test]
fn code_with_large_blocks_leaves_the_shared_thread() {
    for body in [
        "var x = 1n << 1000000n;",
        "try { 'x'.repeat(40000); } catch (e) {}",
        "try { new Uint8Array(40000); } catch (e) {}",
        "var a = []; for (var i = 0; i < 5000; i++) a.push(i);",
        "var s = ''; for (var i = 0; i < 5000; i++) s += 'abcdefghij'; s.indexOf('x');",
        "var a = {}; for (var i = 0; i < 200; i++) a = {a: a, b: a}; JSON.stringify(a);",
    ] {
        let scene = decoding(&format!("{body} return {{data: 1}};"));
        assert_eq!(shared(&scene), None, "{body}");
        // From then on it is refused at once.
        assert_eq!(shared(&scene), None, "{body}");
    }
    let sound = decoding("try { 'x'.repeat(40000); } catch (e) { return {data: 0}; } return {data: 1};");
    assert_eq!(shared(&sound), None);
    assert_eq!(outcome(&sound, "[]"), ["store out 1"]);
}

#[test]
fn slow_code_leaves_the_shared_thread() {
    let ended = decoding("for (;;);");
    assert!(!ended.plan.has_heavy_code());
    let lines = shared(&ended).unwrap();
    assert!(lines.iter().any(|line| line.contains(LATE)), "{lines:?}");
    assert!(ended.plan.has_heavy_code());
    assert_eq!(shared(&ended), None);
}

#[test]
fn light_code_stays_on_the_shared_thread() {
    let sound = decoding("return {data: input.bytes.length};");
    for _ in 0..3 {
        assert_eq!(shared(&sound).unwrap(), ["store out 0"]);
    }
    let bytes = format!("\"{}\"", "BwcH".repeat(600));
    assert_eq!(stored(&sound.post_shared(&bytes).unwrap()), ["store out 1800"]);
}
