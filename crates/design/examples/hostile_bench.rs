//! Measures how long hostile code blocks its thread beyond the 50 ms of a call: `cargo run -p isobar-design --example
//! hostile_bench`; an argument selects codes by name.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

#[path = "../tests/stand/mod.rs"]
mod stand;

use isobar_design::{EmptyMemory, Plan, Trigger, run};
use stand::{device, event, processor_time, raw};

/// Codes: a name and the body of a codec each.
const CODES: &str = include_str!("hostile_bench.txt");

fn measure(name: &str, body: &str) {
    let mut code = Vec::new();
    isobar_model::json::write_string(&format!("function decodeUplink(input) {{ {body} }}"), &mut code);
    let code = String::from_utf8(code).unwrap();
    let planes = format!(
        r#"{{"cloud":{{"elements":{{"in":{{"type":"deviceEvent","triggers":{{"eventReceived":[{{"element":"e","ability":"evaluate"}}]}}}},"e":{{"type":"function","properties":{{"code":{code}}}}}}}}}}}"#
    );
    let plan = match Plan::compile(&raw(&planes).tree()) {
        Ok(plan) => plan,
        Err(faults) => return println!("{name:<40} {faults:?}"),
    };
    let payload = raw(r#""00""#);
    let (device, tree) = (device(), payload.tree());
    let event = event("in", &payload, &tree);
    let (trigger, begin) = (Trigger::DeviceEvent { element: "in" }, processor_time());
    let outcome = run(&plan, trigger, &event, &device, &EmptyMemory);
    let took = processor_time() - begin;
    let error: String =
        outcome.errors.first().map_or_else(String::new, |error| error.message.chars().take(70).collect());
    println!("{:>8} ms  {name:<40} {error}", took.as_millis());
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    for line in CODES.lines().filter(|line| line.contains(&only)) {
        let (name, body) = line.split_once(": ").unwrap();
        measure(name, body);
    }
}
