//! How long hostile code holds its thread, beyond the 50 ms that a call has:
//! `cargo run -p isobar-design --example hostile_bench`; with a word behind it, only those that are called so; with
//! `shared` behind that, as on a thread for which others wait.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::time::Duration;

use bytes::Bytes;
use isobar_design::{DeviceView, EventView, Memory, Plan, Trigger, run, run_shared};
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::RawJson;
use isobar_model::status::Status;
use rustix::time::{ClockId, clock_gettime};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
/// What each does: a name, and the body of a codec.
const CODES: &str = include_str!("hostile_bench.txt");

struct Nothing;

impl Memory for Nothing {
    fn last(&self, _element: &str) -> Option<RawJson> {
        None
    }

    fn state(&self, _element: &str) -> Option<Bytes> {
        None
    }
}

fn raw(text: &str) -> RawJson {
    RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// What this thread has taken, whoever else wants a processor.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

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
    let device = DeviceView {
        id: ID.parse::<DeviceId>().unwrap(),
        name: "bench".to_owned(),
        organization: ID.parse::<OrganizationId>().unwrap(),
        meta: raw("{}"),
        status: Status::Good,
        settings: Vec::new(),
    };
    let payload = raw(r#""00""#);
    let (id, tree) = (ID.parse::<EventId>().unwrap(), payload.tree());
    let received_at = "2026-03-04T05:06:07.089Z".parse().unwrap();
    let event = EventView { id, element: "in", received_at, payload: &payload, tree: &tree };
    let (trigger, begin) = (Trigger::DeviceEvent { element: "in" }, processor_time());
    let outcome = match std::env::args().nth(2).as_deref() {
        Some("shared") => run_shared(&plan, trigger, &event, &device, &Nothing),
        _ => Some(run(&plan, trigger, &event, &device, &Nothing)),
    };
    let took = processor_time() - begin;
    let error = outcome.map_or_else(
        || "wants more".to_owned(),
        |outcome| outcome.errors.first().map_or_else(String::new, |error| error.message.chars().take(70).collect()),
    );
    println!("{:>8} ms  {name:<40} {error}", took.as_millis());
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    for line in CODES.lines().filter(|line| line.contains(&only)) {
        let (name, body) = line.split_once(": ").unwrap();
        measure(name, body);
    }
}
