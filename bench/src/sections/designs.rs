//! What a design costs: the server's processor time for each event, plain, with a condition, with a codec; and how
//! devices fare beside a project whose codec never ends.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::{House, LOAD_CONNECTIONS, Measured, grouped, median, millis, shot, turns, verdict};
use crate::page::Page;
use crate::setup::{Device, EVENT, EVENTS, STORAGE, event_request, make_devices, make_project_of};
use crate::wire::Wire;
use crate::wrk::{Ammunition, Round};
use crate::{Failure, Options, load};

/// What a condition may add to an event, in microseconds.
const CONDITION_MICROS: f64 = 1.0;
/// The same of a codec.
const CODEC_MICROS: f64 = 20.0;
/// Connections of the devices whose codec never ends.
const LOOPING_CONNECTIONS: usize = 4;
/// How many times the 99th percentile of the others may become beside them.
const NEIGHBOUR_FACTOR: f64 = 2.0;
/// Until the server has put an end to every run of the endless codec.
const SETTLING: Duration = Duration::from_secs(1);

/// Conditions in one design: so many that their cost stands out from the noise of a round.
const CONDITIONS: usize = 20;
/// Devices of a design whose newest event is looked at in the end.
const LOOKED_AT: usize = 20;
/// Eleven bytes as weather stations send them.
const CODEC: &str = include_str!("../../../crates/design/tests/codecs/weather/codec.js");
const ENDLESS: &str = "function decodeUplink(input) { while (true) {} }";

/// A design under load.
struct Load {
    name: &'static str,
    /// What it does more than the plain one, how often for each event, and what that may cost each time.
    more: Option<(&'static str, usize, f64)>,
    devices: Vec<Device>,
    posts: Ammunition,
    measured: Vec<Measured>,
}

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut house = House::build(options).await?;
    let condition = |number: usize| json!({"type": "condition", "properties": {"expression": format!("payload.temperature > {number}.0")}});
    let function = |code: &str| vec![json!({"type": "function", "properties": {"code": code, "bytesEncoding": "hex"}})];
    let mut loads = Vec::new();
    for (name, more, elements) in [
        ("plain", None, Vec::new()),
        (
            "and 20 conditions",
            Some(("a condition", CONDITIONS, CONDITION_MICROS)),
            (0..CONDITIONS).map(condition).collect(),
        ),
        ("and a codec", Some(("a codec", 1, CODEC_MICROS)), function(CODEC)),
    ] {
        let devices = devices_of(&mut house, elements, options.devices).await?;
        let posts = Ammunition::posts(&devices, uplink)?;
        loads.push(Load { name, more, devices, posts, measured: Vec::new() });
    }
    for (seconds, counts) in turns(options) {
        for load in &mut loads {
            let measured = house.fire(options, &load.posts, LOAD_CONNECTIONS, seconds).await?;
            if counts {
                eprintln!("bench: {:.0} events/s, {:.2} µs each", measured.round.rate, measured.micros);
                load.measured.push(measured);
            }
        }
    }
    let decoded = decoded(&mut house).await?;
    let looping = devices_of(&mut house, function(ENDLESS), LOOPING_CONNECTIONS).await?;
    let plain = loads.first().ok_or("no designs")?;
    let (alone, beside) = neighbours(options, &house, &plain.posts, &looping).await?;
    for load in &loads {
        expect_errors(&mut house, &load.devices, false).await?;
    }
    expect_errors(&mut house, &looping, true).await?;
    house.server.stop().await?;
    let mut figures = costs(&loads)?;
    writeln!(
        figures,
        "\nMedians of {} rounds of {} s in turns over {LOAD_CONNECTIONS} connections, {} devices a design. The plain design stores each event; the others \
         do more with it: {CONDITIONS} conditions like `payload.temperature > 7.0`, or a codec of 11 bytes whose result goes nowhere. The cost is the median difference to the plain round of the same \
         turn in processor time of the whole server process (user and system, from /proc) for each event, divided by the number of elements: the load generator does not count, \
         but hand-overs between threads do, and so do batches that are smaller at a lower rate. The newest events of {LOOKED_AT} devices of each design have no errors. {decoded}\n",
        options.rounds,
        options.seconds,
        grouped(options.devices as f64)
    )?;
    figures.push_str(&beside_table(alone, beside)?);
    writeln!(
        figures,
        "\nThe same plain devices, without and with {LOOPING_CONNECTIONS} connections that post to another project, whose codec is `while (true) {{}}`."
    )?;
    page.put("designs", &figures)
}

/// How often the codec has run so far, by the server's own count.
async fn decoded(house: &mut House) -> Result<String, Failure> {
    let runs = house.api.metric("isobar_code_runs_total").await?;
    let engines = house.api.metric("isobar_code_engines_total").await?;
    Ok(format!("The codec ran {} times, in {} engines.", grouped(runs), grouped(engines)))
}

/// Devices of a new project that stores each event, and hands it to some elements more.
async fn devices_of(house: &mut House, more: Vec<Value>, count: usize) -> Result<Vec<Device>, Failure> {
    let mut links = vec![json!({"element": STORAGE, "ability": "store"})];
    let mut elements = json!({STORAGE: {"type": "storage"}});
    for (number, element) in more.into_iter().enumerate() {
        let name = format!("more{number}");
        links.push(json!({"element": name, "ability": "evaluate"}));
        elements[name] = element;
    }
    elements[EVENT] = json!({"type": "deviceEvent", "triggers": {"eventReceived": links}});
    let project = make_project_of(&mut house.api, "Designs", &elements).await?;
    make_devices(&house.api, &project, count).await
}

/// The payload that all designs get: what a condition looks at, and what a codec decodes.
fn uplink(number: usize) -> String {
    format!(
        "{{\"temperature\":{}.5,\"fPort\":2,\"bytes\":\"08{:02x}5a27110190000c01a0\"}}",
        10 + number % 20,
        number % 256
    )
}

/// Whether the newest events of some of the devices have gone through their design, or failed there.
async fn expect_errors(house: &mut House, devices: &[Device], expected: bool) -> Result<(), Failure> {
    for device in devices.iter().step_by(devices.len().div_ceil(LOOKED_AT).max(1)) {
        let events = house.api.call("GET", &format!("/v2/devices/{}/events?limit=1", device.id), None).await?;
        let event = events["data"].get(0).ok_or("a device has no events")?;
        if event["errors"].as_array().is_some_and(|errors| !errors.is_empty()) != expected {
            let errors = if expected { "its" } else { "no" };
            return Err(format!("this event should have {errors} errors: {event}").into());
        }
    }
    Ok(())
}

fn costs(loads: &[Load]) -> Result<String, Failure> {
    let mut table = String::from(
        "| design | events/s | p99 | processor time an event | cost | target |\n|---|---:|---:|---:|---:|---|\n",
    );
    let plain = &loads.first().ok_or("no designs")?.measured;
    for load in loads {
        let middle = median(load.measured.clone(), |measured| measured.micros).ok_or("no rounds")?;
        let differences = load.measured.iter().zip(plain).map(|(more, plain)| more.micros - plain.micros).collect();
        let difference = median(differences, |micros: &f64| *micros).ok_or("no rounds")?;
        let (cost, target) = match load.more {
            Some((each, times, most)) => {
                let cost = difference / times as f64;
                (format!("{each}: {cost:.2} µs"), format!("< {most:.0} µs: {}", verdict(cost < most)))
            }
            None => (String::new(), String::new()),
        };
        let name = load.name;
        writeln!(
            table,
            "| {name} | {} | {} | {:.2} µs | {cost} | {target} |",
            grouped(middle.round.rate),
            millis(middle.round.p99),
            middle.micros
        )?;
    }
    Ok(table)
}

/// Rounds of the plain devices alone, and beside those whose codec never ends, in turns; the median of either.
async fn neighbours(
    options: &Options,
    house: &House,
    posts: &Ammunition,
    looping: &[Device],
) -> Result<(Round, Round), Failure> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let shot = shot(options, &house.server, EVENTS, LOAD_CONNECTIONS, options.seconds);
        alone.push(posts.fire(&shot).await?);
        let busy = load::all(looping.iter().map(|device| keep_busy(&house.server.address, device)).collect());
        let round = tokio::select! {
            round = posts.fire(&shot) => round?,
            ended = busy => return Err(ended.err().unwrap_or_else(|| "nothing loops".into())),
        };
        eprintln!("bench: beside an endless codec {:.0} events/s, p99 {}", round.rate, millis(round.p99));
        beside.push(round);
        tokio::time::sleep(SETTLING).await;
    }
    let p99 = |round: &Round| round.p99.as_secs_f64();
    Ok((median(alone, p99).ok_or("no rounds")?, median(beside, p99).ok_or("no rounds")?))
}

/// A device posts without end; its events are taken, though its codec fails.
async fn keep_busy(address: &str, device: &Device) -> Result<(), Failure> {
    let mut wire = Wire::open(address).await?;
    let request = event_request(address, device, &uplink(0));
    loop {
        let status = wire.exchange_status(&request).await?;
        if status != 201 {
            return Err(format!("an event with an endless codec is answered {status}").into());
        }
    }
}

fn beside_table(alone: Round, beside: Round) -> Result<String, Failure> {
    let factor = beside.p99.as_secs_f64() / alone.p99.as_secs_f64();
    let mut table =
        String::from("| plain devices | events/s | p50 | p99 | slowest | target |\n|---|---:|---:|---:|---:|---|\n");
    let target =
        format!("p99 ≤ {NEIGHBOUR_FACTOR:.0} times that alone: {factor:.2}, {}", verdict(factor <= NEIGHBOUR_FACTOR));
    for (name, round, target) in [("alone", alone, ""), ("beside an endless codec", beside, &*target)] {
        writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {target} |",
            grouped(round.rate),
            millis(round.p50),
            millis(round.p99),
            millis(round.max)
        )?;
    }
    Ok(table)
}
