//! Designs that tell the registry something with every event: what that costs the road, and what others notice of it.

use std::cell::Cell;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::json;

use super::{House, LOAD_CONNECTIONS, Measured, grouped, median, millis, turns, verdict};
use crate::api::Api;
use crate::page::Page;
use crate::setup::{Device, EVENT, STORAGE, event_request, make_devices, make_project_of, payload};
use crate::wire::Wire;
use crate::wrk::Ammunition;
use crate::{Failure, Options};

/// Events with a label for each plain one.
const TARGET: f64 = 0.7;
/// How long a neighbour's list of devices may take.
const LIST_TARGET: Duration = Duration::from_millis(20);
/// Devices of the neighbour.
const NEIGHBOURS: usize = 100;
/// Between two looks at what others notice.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What others noticed meanwhile, in microseconds.
struct Noticed {
    lists: Histogram<u64>,
    /// From an event's answer to that of the read of its device.
    reads: Histogram<u64>,
}

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut house = House::build(options).await?;
    let plain = devices_of(&mut house, false, options.devices).await?;
    let labelled = devices_of(&mut house, true, options.devices).await?;
    let mut watched = devices_of(&mut house, true, 1).await?;
    let watched = watched.pop().ok_or("no device")?;
    let mut neighbour = neighbour(&house).await?;
    let posts = [Ammunition::posts(&plain, payload)?, Ammunition::posts(&labelled, payload)?];
    let (mut rounds, mut noticed) = ([Vec::new(), Vec::new()], Noticed::new()?);
    let (mut alone, mut entries) = (Noticed::new()?, 0.0_f64);
    for (seconds, counts) in turns(options) {
        for (kind, posts) in posts.iter().enumerate() {
            let over = Cell::new(false);
            let mut unnoted = Noticed::new()?;
            let seen = match (counts, kind) {
                (false, _) => &mut unnoted,
                (_, 0) => &mut alone,
                _ => &mut noticed,
            };
            let address = house.server.address.clone();
            let looks = look(&address, &mut neighbour, &house.api, &watched, seen, &over);
            let fired = async {
                let fired = house.fire(options, posts, LOAD_CONNECTIONS, seconds).await;
                over.set(true);
                fired
            };
            let (fired, most) = tokio::try_join!(fired, looks)?;
            entries = entries.max(most);
            if counts {
                eprintln!("bench: {:.0} events/s, {:.2} µs each", fired.round.rate, fired.micros);
                rounds[kind].push(fired);
            }
        }
    }
    let stopped = house.server.stop().await?;
    let mut figures = table(&rounds, &alone, &noticed)?;
    writeln!(
        figures,
        "\nMedians of {} alternating rounds of {} s over {LOAD_CONNECTIONS} connections, {} devices of each design. Both store each event; the second also keeps its number in a label of \
         its device, so that each event tells the registry something. Meanwhile a neighbour, a tenant of its own with {NEIGHBOURS} devices, lists them again and again, and one more device of the second design \
         posts, and is read at once: each of {} reads showed the label of its event. At most {} entries waited for the registry. A SIGTERM right after the last event was answered took {}.",
        options.rounds,
        options.seconds,
        grouped(options.devices as f64),
        grouped(noticed.reads.len() as f64 + alone.reads.len() as f64),
        grouped(entries),
        millis(stopped),
    )?;
    page.put("outbox", &figures)
}

/// Devices of a new project that stores each event, and labels its device with it.
async fn devices_of(house: &mut House, labels: bool, count: usize) -> Result<Vec<Device>, Failure> {
    let mut links = vec![json!({"element": STORAGE, "ability": "store"})];
    if labels {
        let arguments = json!({"tag": "'number'", "value": "payload.number"});
        links.push(json!({"element": "state", "ability": "setValue", "arguments": arguments}));
    }
    let elements = json!({
        EVENT: {"type": "deviceEvent", "triggers": {"eventReceived": links}},
        STORAGE: {"type": "storage"},
        "state": {"type": "deviceMeta"},
    });
    let project = make_project_of(&mut house.api, "Labels", &elements).await?;
    make_devices(&house.api, &project, count).await
}

/// Somebody of another tenant, with devices of its own.
async fn neighbour(house: &House) -> Result<Api, Failure> {
    let mut neighbour = Api::register(&house.server.address, "neighbour").await?;
    let project = make_project_of(&mut neighbour, "Quiet", &json!({})).await?;
    make_devices(&neighbour, &project, NEIGHBOURS).await?;
    Ok(neighbour)
}

/// Looks at what others notice until it is over; the most entries that waited.
async fn look(
    address: &str,
    neighbour: &mut Api,
    api: &Api,
    device: &Device,
    seen: &mut Noticed,
    over: &Cell<bool>,
) -> Result<f64, Failure> {
    let (mut wire, mut api) = (Wire::open(address).await?, api.again().await?);
    let (mut number, mut entries) = (0_usize, 0.0_f64);
    while !over.get() {
        let begun = Instant::now();
        neighbour.reply("GET", "/v2/devices", None).await?;
        note(&mut seen.lists, begun);
        number += 1;
        let body = payload(number);
        let status = wire.exchange_status(&event_request(address, device, &body)).await?;
        let begun = Instant::now();
        let read = api.call("GET", &format!("/v2/devices/{}", device.id), None).await?;
        note(&mut seen.reads, begun);
        if status != 201 || read["meta"]["number"] != json!(number) {
            return Err(
                format!("event {number} is answered {status}, and its device then shows {}", read["meta"]).into()
            );
        }
        entries = entries.max(api.metric("isobar_outbox_entries").await?);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(entries)
}

impl Noticed {
    fn new() -> Result<Self, Failure> {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000, 3);
        Ok(Self { lists: histogram()?, reads: histogram()? })
    }
}

fn note(latencies: &mut Histogram<u64>, begun: Instant) {
    latencies.saturating_record(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
}

fn table(rounds: &[Vec<Measured>; 2], alone: &Noticed, noticed: &Noticed) -> Result<String, Failure> {
    let rate = |measured: &Measured| measured.round.rate;
    let [Some(plain), Some(labels)] = [0, 1].map(|kind| median(rounds[kind].clone(), rate)) else {
        return Err("no rounds".into());
    };
    let ratio = labels.round.rate / plain.round.rate;
    let mut table = String::from(
        "| design | events/s | p99 | processor time an event | neighbour's list p50 | p99 | read after an event p50 | p99 | target |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let at = |latencies: &Histogram<u64>, quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
    let list = at(&noticed.lists, 0.99);
    let targets = format!(
        "{TARGET} of plain ({ratio:.2}): {}; list p99 < {}: {}",
        verdict(ratio >= TARGET),
        millis(LIST_TARGET),
        verdict(list < LIST_TARGET)
    );
    for (name, measured, seen, target) in [("plain", plain, alone, ""), ("and a label", labels, noticed, &*targets)] {
        writeln!(
            table,
            "| {name} | {} | {} | {:.2} µs | {} | {} | {} | {} | {target} |",
            grouped(measured.round.rate),
            millis(measured.round.p99),
            measured.micros,
            millis(at(&seen.lists, 0.5)),
            millis(at(&seen.lists, 0.99)),
            millis(at(&seen.reads, 0.5)),
            millis(at(&seen.reads, 0.99)),
        )?;
    }
    Ok(table)
}
