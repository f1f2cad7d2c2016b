//! Compares a plan's own estimate of its memory with the bytes allocated for it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's helpers fail with the test")]
#![allow(unsafe_code, reason = "an allocator has no safe interface")]

mod stand;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_design::{EmptyMemory, Plan, Trigger, run};
use serde_json::{Map, Value, json};
use stand::{device, event, raw};

/// Allocator that counts allocated bytes.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of a block in bytes: allocators round up.
fn taken(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

// SAFETY: each method delegates to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(taken(layout.size()), Ordering::SeqCst) + taken(layout.size());
        MOST.fetch_max(held, Ordering::SeqCst);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(taken(layout.size()), Ordering::SeqCst);
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work`, and returns its result and the bytes allocated and not freed.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::SeqCst);
    let made = work();
    (made, HELD.load(Ordering::SeqCst) - before)
}

fn planes(elements: &Value) -> String {
    json!({"cloud": {"elements": elements}}).to_string()
}

/// Returns `count` named elements.
fn many(count: usize, element: impl Fn(usize) -> Value) -> Value {
    Value::Object((0..count).map(|at| (format!("{at:0>4}"), element(at))).collect::<Map<_, _>>())
}

fn transforms(count: usize, expression: &str) -> Value {
    many(count, |_| json!({"type": "transform", "properties": {"expression": expression}}))
}

/// Repeats a part as often as it fits into an expression.
fn as_long(begin: &str, part: &str, end: &str) -> String {
    format!("{begin}{}{end}", part.repeat((9_990 - begin.len() - end.len()) / part.len()))
}

/// Returns specifications of up to a MiB, each full of something that takes far more memory than text.
fn specifications() -> Vec<(&'static str, Value)> {
    let linked = |argument: Value| {
        let link = json!({"element": "out", "ability": "store", "arguments": {"value": argument}});
        json!({"in": {"type": "deviceEvent", "triggers": {"eventReceived": vec![link; 9_000]}}, "out": {"type": "storage"}})
    };
    let constants = |value: Value| {
        let link = json!({"element": "out", "ability": "store", "arguments": {"value": value}});
        json!({"in": {"type": "deviceEvent", "triggers": {"eventReceived": vec![link; 20]}}, "out": {"type": "storage"}})
    };
    let members: Map<String, Value> = (0..4_000).map(|at| (format!("{at:x}"), json!(1))).collect();
    vec![
        ("nothing", json!({})),
        (
            "a small design",
            json!({
                "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "high", "ability": "evaluate"}]}},
                "high": {"type": "condition", "properties": {"expression": "payload.temp > settings.limit"},
                         "triggers": {"true": [{"element": "alarm", "ability": "notify"}, {"element": "out", "ability": "store"}]}},
                "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
                "alarm": {"type": "notification", "properties": {"message": "{{ device.name }}: {{ payload.temp }} degrees"}},
                "out": {"type": "storage"}
            }),
        ),
        ("names", many(1_000, |_| json!({"type": "storage"}))),
        (
            "fields",
            many(20, |_| {
                let fields: Map<String, Value> = (0..200)
                    .map(|at| (format!("payload.{at}"), json!({"title": "x".repeat(180), "high": at})))
                    .collect();
                json!({"type": "storage", "properties": {"fields": fields}})
            }),
        ),
        ("links", linked(json!(null))),
        ("links with small constants", linked(json!([[], [1]]))),
        ("links with expressions", linked(json!("payload.a"))),
        ("numbers", constants(json!(vec![1; 20_000]))),
        ("lists", constants(json!(vec![json!([]); 15_000]))),
        ("members", constants(Value::Object(members))),
        (
            "settings",
            many(
                1_000,
                |at| json!({"type": "deviceSetting", "properties": {"defaultValue": "x".repeat(at), "title": "a setting"}}),
            ),
        ),
    ]
}

/// Returns such specifications of computed values.
fn computing() -> Vec<(&'static str, Value)> {
    vec![
        ("paths", transforms(3, &as_long("[", "payload.a.a.a.a.a.a.a.a,", "payload]"))),
        ("lists of members", transforms(3, &as_long("[", "payload,", "payload]"))),
        ("negations", transforms(3, &as_long("[", "!!!!!!!!payload,", "payload]"))),
        ("sums", transforms(3, &as_long("[", "payload+payload,", "payload]"))),
        ("maps", transforms(3, &as_long("[", "{'a':payload},", "payload]"))),
        ("calls", transforms(3, &as_long("[", "size(payload),", "payload]"))),
        ("macros", transforms(3, &as_long("[", "payload.all(a,a),", "payload]"))),
        ("constants", transforms(3, &as_long("[", "[],", "payload]"))),
        (
            "templates",
            many(50, |_| json!({"type": "notification", "properties": {"message": "x{{payload}}".repeat(100)}})),
        ),
        (
            "calls out",
            many(
                500,
                |at| json!({"type": "http", "properties": {"url": "'http://x'", "headers": {format!("h{at}"): "payload"}, "body": [1, 2, 3]}}),
            ),
        ),
        (
            "code",
            many(3, |at| {
                let code = format!(
                    "var {} function decodeUplink(input) {{ return {{data: this.a{at}}}; }}",
                    "x = 1;".repeat(1_000)
                );
                json!({"type": "function", "properties": {"code": code, "bytesRef": "$.a.b.c"}})
            }),
        ),
    ]
}

#[test]
fn plan_estimates_its_memory_closely_from_above() {
    for (what, elements) in specifications().into_iter().chain(computing()) {
        let text = planes(&elements);
        assert!(text.len() <= 1 << 20, "{what}: {}", text.len());
        let specification = raw(&text);
        // The first one allocates what all share.
        drop(Plan::compile(&specification.tree()));
        let (plan, allocated) = counted(|| Plan::compile(&specification.tree()));
        let plan = plan.unwrap_or_else(|faults| panic!("{what}: {:?}", faults.first()));
        let said = plan.held_bytes();
        assert!(said >= allocated, "{what}: {said} of {allocated}");
        assert!(said <= 3 * allocated + 4_096, "{what}: {said} of {allocated}");
    }
}

/// Returns a design that matches an event with `count` patterns of this form; `#` is replaced by their number.
fn matching(count: usize, pattern: &str) -> Value {
    let links: Vec<_> = (0..count).map(|at| json!({"element": format!("{at:0>4}"), "ability": "evaluate"})).collect();
    let mut elements = many(count, |at| {
        let expression = format!("payload.matches(r'{}')", pattern.replace('#', &at.to_string()));
        json!({"type": "condition", "properties": {"expression": expression}})
    });
    elements["in"] = json!({"type": "deviceEvent", "triggers": {"eventReceived": links}});
    elements
}

/// Returns texts that visit many states of a pattern.
fn texts() -> Vec<String> {
    let letters: Vec<char> = "aä字0 -.:@zZ_9\u{1d7d8}".chars().collect();
    let text = |seed: usize| {
        let mut state = seed as u64 + 1;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            letters[(state >> 33) as usize % letters.len()]
        };
        (0..1_000).map(next).collect()
    };
    (0..8).map(text).collect()
}

#[test]
fn memory_of_matched_patterns_is_within_the_estimate() {
    const THREADS: usize = 4;
    for pattern in [
        "^#",
        "^[a-z]{3}#$",
        "#[0-9a-f]{8}-[0-9a-f]{4}",
        "\\w+@\\w+\\.#",
        "#\\d{4}-\\d{2}",
        "\\w{5}#",
        "(?i)alarm|warnung|#",
    ] {
        let specification = raw(&planes(&matching(30, pattern)));
        Plan::compile(&specification.tree()).unwrap();
        let (plan, compiled) = counted(|| Plan::compile(&specification.tree()).unwrap());
        let (_, matched) = counted(|| {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for text in texts() {
                            let payload = raw(&json!(text).to_string());
                            let tree = payload.tree();
                            let event = event("in", &payload, &tree);
                            run(&plan, Trigger::DeviceEvent { element: "in" }, &event, &device(), &EmptyMemory);
                        }
                    });
                }
            });
        });
        let (said, allocated) = (plan.held_bytes(), compiled + matched);
        assert!(said >= allocated, "{pattern}: {said} of {allocated}");
    }
}

#[test]
fn patterns_of_a_design_share_a_memory_limit() {
    // Each takes hundreds of times its text.
    let pattern = "payload.matches(r'\\w{5}') || ";
    let specification = raw(&planes(&transforms(3, &as_long("", pattern, "true"))));
    let before = HELD.load(Ordering::SeqCst);
    MOST.store(before, Ordering::SeqCst);
    let faults = Plan::compile(&specification.tree()).map(drop).unwrap_err();
    let most = MOST.load(Ordering::SeqCst) - before;
    assert!(
        faults.iter().all(|fault| fault.message == "the patterns of the design are too large together"),
        "{faults:?}"
    );
    assert!(most < 64 << 20, "{most} bytes for a specification of {}", specification.bytes().len());
    assert!(Plan::compile(&raw(&planes(&matching(64, "\\w{5}#"))).tree()).is_ok());
}
