//! Measures the time of runs: `cargo run --release -p isobar-design --example design_bench`; an argument selects the
//! measurements whose names contain it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

#[path = "../tests/stand/mod.rs"]
mod stand;

use std::sync::Arc;
use std::time::Duration;

use isobar_design::{DeviceView, EmptyMemory, Plan, Trigger, run};
use stand::{device, event, processor_time, raw};

/// Processor time for which each design runs.
const TIME: Duration = Duration::from_millis(500);
/// Codec of a weather station with a payload of eleven bytes.
const CODEC: &str = include_str!("../tests/codecs/weather/codec.js");

/// Runs a design with one element behind its deviceEvent repeatedly.
fn measure(what: &str, element: &str, ability: &str, payload: &str) {
    if std::env::args().nth(1).is_some_and(|only| !what.contains(&only)) {
        return;
    }
    let planes = format!(
        r#"{{"cloud":{{"elements":{{"in":{{"type":"deviceEvent","triggers":{{"eventReceived":[{{"element":"e","ability":"{ability}"}}]}}}},"e":{element}}}}}}}"#
    );
    let plan = Plan::compile(&raw(&planes).tree()).unwrap();
    let device = DeviceView { settings: vec![(Arc::from("none"), raw("1"))], ..device() };
    let payload = raw(payload);
    let tree = payload.tree();
    let event = event("in", &payload, &tree);
    let one = || run(&plan, Trigger::DeviceEvent { element: "in" }, &event, &device, &EmptyMemory);
    let outcome = one();
    assert!(outcome.errors.is_empty(), "{what}: {:?}", outcome.errors);
    let (begin, mut runs) = (processor_time(), 0_u32);
    while processor_time() - begin < TIME {
        for _ in 0..100 {
            std::hint::black_box(one());
        }
        runs += 100;
    }
    println!("{what:<12} {:>8} ns per run", ((processor_time() - begin) / runs).as_nanos());
}

fn main() {
    measure("storage", r#"{"type":"storage"}"#, "store", r#"{"temp":9.1}"#);
    let condition =
        r#"{"type":"condition","properties":{"expression":"payload.temp > 8.5 && payload.door == 'open'"}}"#;
    measure("condition", condition, "evaluate", r#"{"temp":9.1,"door":"open"}"#);
    let notification = r#"{"type":"notification","properties":{"message":"{{ device.name }}: {{ payload.temp }}"}}"#;
    measure("notification", notification, "notify", r#"{"temp":9.1}"#);
    measure("window", r#"{"type":"window","properties":{"size":10,"aggregate":"mean"}}"#, "push", "9.1");
    for (what, code) in [("codec", CODEC), ("codec: empty", "function decodeUplink() { return {data: 1}; }")] {
        let mut quoted = Vec::new();
        isobar_model::json::write_string(code, &mut quoted);
        let code = String::from_utf8(quoted).unwrap();
        let codec = format!(r#"{{"type":"function","properties":{{"code":{code},"bytesEncoding":"hex"}}}}"#);
        for _ in 0..3 {
            measure(what, &codec, "evaluate", r#"{"fPort":2,"bytes":"08995a27110190000c01a0"}"#);
        }
    }
}
