//! Measures the worst time of a unit by kind of work: `cargo run --release -p isobar-design --example unit_bench`; an
//! argument selects kinds by name. Each kind does as much as a run may, or as its payload allows.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

#[path = "../tests/stand/mod.rs"]
mod stand;

use isobar_design::{EmptyMemory, Plan, Trigger, run};
use isobar_model::json::{LastKept, RawJson, write_string};
use stand::{device, event, processor_time, raw};

/// Repetitions of each measurement; the fastest counts.
const TIMES: u32 = 3;

fn quoted(text: &str) -> String {
    let mut json = Vec::new();
    write_string(text, &mut json);
    String::from_utf8(json).unwrap()
}

fn measure(what: &str, element: &str, ability: &str, links: usize, payload: &str) {
    if std::env::args().nth(1).is_some_and(|only| !what.contains(&only)) {
        return;
    }
    let link = format!(r#"{{"element":"e","ability":"{ability}"}}"#);
    let links = vec![link; links].join(",");
    let planes = format!(
        r#"{{"cloud":{{"elements":{{"in":{{"type":"deviceEvent","triggers":{{"eventReceived":[{links}]}}}},"e":{element}}}}}}}"#
    );
    let plan = match Plan::compile(&raw(&planes).tree()) {
        Ok(plan) => plan,
        Err(faults) => return println!("{what} {faults:?}"),
    };
    let (device, payload) = (device(), raw(payload));
    let tree = payload.tree();
    let event = event("in", &payload, &tree);
    let mut best = f64::MAX;
    let (mut units, mut error) = (0, String::new());
    for _ in 0..TIMES {
        let begin = processor_time();
        let outcome = run(&plan, Trigger::DeviceEvent { element: "in" }, &event, &device, &EmptyMemory);
        let took = (processor_time() - begin).as_nanos() as f64;
        // Merging happens after the run.
        let stored: Vec<&RawJson> = outcome.effects.iter().filter_map(stored).collect();
        let begin = processor_time();
        for _ in 0..2 {
            std::hint::black_box(LastKept::after_all(None, stored.iter().copied()));
        }
        let took = took + (processor_time() - begin).as_nanos() as f64;
        units = outcome.units;
        error = outcome.errors.first().map_or_else(String::new, |error| error.message.chars().take(50).collect());
        best = best.min(took / units.max(1) as f64);
    }
    println!("{best:>8.1} ns  {units:>8} units  {what:<28} {error}");
}

fn stored(effect: &isobar_design::Effect) -> Option<&RawJson> {
    match effect {
        isobar_design::Effect::Store { value, .. } => Some(value),
        _ => None,
    }
}

fn condition(what: &str, expression: &str, payload: &str) {
    let element = format!(r#"{{"type":"condition","properties":{{"expression":{}}}}}"#, quoted(expression));
    measure(what, &element, "evaluate", 10_000, payload);
}

/// Returns a payload with a long list and another member.
fn with_list(member: &str) -> String {
    format!(r#"{{"l":[{}],"v":{member}}}"#, vec!["0"; 1_000].join(","))
}

fn for_each_pair(what: &str, term: &str, member: &str) {
    condition(what, &format!("payload.l.all(x, payload.l.all(y, {term}))"), &with_list(member));
    condition(
        &format!("{what}, exists"),
        &format!("payload.l.exists(x, payload.l.exists(y, {term}))"),
        &with_list(member),
    );
}

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

fn main() {
    for_each_pair("plain", "x == y", "1");
    for_each_pair("swallowed errors", "payload.q || payload.q || payload.q || payload.q", "1");
    for_each_pair("swallowed errors, bool", "x || x || x || x || x || x", "1");
    for_each_pair("double to text", "string(1e-300 * 1.1) == ''", "1");
    for_each_pair("time to text", "string(timestamp(x)) == ''", "1");
    for_each_pair("device", "device == 1", "1");
    for_each_pair("event", "event == 1", "1");
    for_each_pair("device.id", "device.id == '1'", "1");
    for_each_pair("remainder", "payload.v % 5e-324 < 0.0", "1.7e308");
    for_each_pair("halfway number", "payload.v > 1", "2.2250738585072011360574e-308");
    for_each_pair("halfway text", "double(payload.v) > 1", "\"2.2250738585072011360574e-308\"");
    let [first, second] = ["1", "2"].map(|last| "k".repeat(15) + last);
    let many = |key: &str, count: usize| -> String {
        let members: Vec<String> = (0..count).map(|n| format!(r#""{}{n:05}":1"#, &key[..10])).collect();
        format!("{{{}}}", members.join(","))
    };
    for_each_pair("member among many", "payload.v.kkkkkkkkkkxxxxx == 1", &many(&first, 30_000));
    for_each_pair(
        "long key",
        "payload.v[payload.v.k] == 1",
        &format!(r#"{{"{0}1":1,"{0}2":2,"k":"{0}2"}}"#, "k".repeat(100_000)),
    );
    let turned = format!(r#"[{0},{{{1}}}]"#, many(&first, 20_000), {
        let mut members: Vec<String> = (0..20_000).map(|n| format!(r#""{}{n:05}":1"#, &second[..10])).collect();
        members.reverse();
        members.join(",")
    });
    for_each_pair("equal maps, turned", "payload.v[0] == payload.v[1]", &turned);
    for_each_pair("equal texts", "payload.v[0] == payload.v[1]", &format!(r#"["{0}","{0}"]"#, "k".repeat(100_000)));
    // Random letters without repeated substrings, which make automata large.
    let mut drawn = 1_u32;
    let letters: String = std::iter::repeat_with(|| {
        drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if drawn >> 31 == 0 { 'a' } else { 'b' }
    })
    .take(900)
    .collect();
    for (what, term) in [
        ("contains", "payload.v.contains('aaaaaaaaaaab')"),
        ("lastIndexOf", "payload.v.lastIndexOf('baaaaaaaaaa') > 0"),
        ("indexOf", "payload.v.indexOf('ab', 99990) > 0"),
        ("charAt", "payload.v.charAt(99999) == ''"),
        ("replace", "payload.v.replace('a', 'c') == ''"),
        ("split", "payload.v.split('') == 1"),
        ("split at each", "payload.v.split('a') == 1"),
        ("lowerAscii", "payload.v.lowerAscii() == ''"),
        ("size", "payload.v.size() == 1"),
        ("matches, small", "payload.v.matches('^(a|b)*c$')"),
        ("matches, 256 KiB", "payload.v.matches('([ab]{0,35}){0,35}[^ab]z')"),
        ("matches, 64 KiB", "payload.v.matches('([ab]{0,18}){0,20}cz')"),
        ("matches, 16 KiB", "payload.v.matches('([ab]{0,12}){0,15}[^ab]z')"),
        ("matches, 4 KiB", "payload.v.matches('([ab]{0,5}){0,8}[^ab]z')"),
        ("matches, unbounded", "payload.v.matches('(.*a.{60}){2}z')"),
    ] {
        let text = if what.starts_with("matches") { letters.as_str() } else { &"a".repeat(100_000) };
        for_each_pair(what, term, &quoted(text));
    }
    for_each_pair("trim", "payload.v.trim() == 'x'", &quoted(&" ".repeat(100_000)));
    for_each_pair("é contains", "payload.v.indexOf('a', 49990) > 0", &quoted(&"é".repeat(50_000)));
    for_each_pair("duration", "duration(payload.v) == 1", &quoted(&"1h".repeat(10_000)));
    for_each_pair("join", "payload.v.join() == ''", &list("\"\"", 10_000));
    for_each_pair("join lists", "payload.v + payload.v == 1", &list("1", 10_000));
    for_each_pair("list", "[x, x, x, x, x, x] == 1", "1");
    for_each_pair("map", "{'a': x, 'b': x} == 1", "1");
    let storage = r#"{"type":"storage"}"#;
    measure("store: short names", storage, "store", 1, &many(&first, 30_000));
    measure(
        "store: shortest names",
        storage,
        "store",
        1,
        &format!("{{{}}}", (0..60_000).map(|n| format!("\"{n:x}\":1")).collect::<Vec<_>>().join(",")),
    );
    measure(
        "store: many",
        storage,
        "store",
        100,
        &format!("{{{}}}", (0..600).map(|n| format!("\"{n:x}\":1")).collect::<Vec<_>>().join(",")),
    );
    let changed = r#"{"type":"changed"}"#;
    for (what, item) in [
        ("1", "1"),
        ("[1]", "[1]"),
        ("halfway", "2.2250738585072011360574e-308"),
        ("{\"\":1}", "{\"\":1}"),
        ("escapes", "\"\\n\""),
        ("texts", "\"aaaaaaaaaaaa\""),
    ] {
        measure(&format!("changed: {what}"), changed, "evaluate", 1, &list(item, 900_000 / (item.len() + 1)));
    }
    measure("changed: names", changed, "evaluate", 1, &many(&first, 30_000));
    measure("changed: a text", changed, "evaluate", 1, &quoted(&"a".repeat(500_000)));
    let window = r#"{"type":"window","properties":{"size":4000,"aggregate":"mean"}}"#;
    measure("window", window, "push", 4_000, "1.5");
    measure("throttle", r#"{"type":"throttle","properties":{"minutes":1}}"#, "pass", 10_000, "1");
    let built = r#"{"type":"cloudEvent"}"#;
    measure("send", built, "send", 10_000, "1");
    for (what, expression) in [("write numbers", "[payload]"), ("write", "{1: payload}")] {
        let element = format!(
            r#"{{"type":"notification","properties":{{"message":{}}}}}"#,
            quoted(&format!("{{{{ {expression} }}}}"))
        );
        for (kind, item) in
            [("1", "1"), ("1.5", "1.5"), ("escapes", "\"\\n\\n\\n\\n\""), ("{}", "{}"), ("texts", "\"aaaaaaaaaaaa\"")]
        {
            measure(&format!("{what}: {kind}"), &element, "notify", 30, &list(item, 60_000));
        }
    }
}
