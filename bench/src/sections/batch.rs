//! Batches beside single posts: events a second, all of them durable before they are acknowledged.

use std::fmt::Write as _;

use super::{House, Measured, grouped, median, millis, shot, turns, verdict};
use crate::page::Page;
use crate::setup::{Device, EVENT, EVENTS, STORAGE, payload};
use crate::wrk::Ammunition;
use crate::{Failure, Options};

/// Where batches are posted.
const BATCH: &str = "/v2/events/device/batch";
/// Connections that post, each the batches of one device after the other.
const CONNECTIONS: usize = 64;
/// Devices that post: what they say stands ready in a file.
const DEVICES: usize = 128;
/// Events of a batch, from small to the largest.
const SIZES: [usize; 3] = [10, 100, 1_000];
/// So many times the events of single posts are aimed at, of batches of a hundred and more.
const TARGET: f64 = 3.0;

/// How one way to post does.
struct Way {
    /// Events of a post.
    events: usize,
    posts: Ammunition,
    measured: Vec<Measured>,
}

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let house = House::build(options).await?;
    let devices = house.devices(DEVICES).await?;
    let mut ways = vec![Way { events: 1, posts: Ammunition::posts(&devices, payload)?, measured: Vec::new() }];
    for events in SIZES {
        let posts = Ammunition::posts(&devices, |number| batch(number, events))?;
        ways.push(Way { events, posts, measured: Vec::new() });
    }
    for (seconds, counts) in turns(options) {
        for way in &mut ways {
            let before = house.server.processor_time()?;
            let target = if way.events == 1 { EVENTS } else { BATCH };
            let fired = way.posts.fire(&shot(options, &house.server, target, CONNECTIONS, seconds)).await?;
            let spent = house.server.processor_time()?.saturating_sub(before);
            let events = (fired.answers as f64 * way.events as f64).max(1.0);
            if counts {
                eprintln!("bench: posts of {}: {:.0} events/s", way.events, fired.rate * way.events as f64);
                way.measured.push(Measured { round: fired, micros: spent.as_secs_f64() * 1e6 / events });
            }
        }
    }
    all_are_there(house, &devices).await?;
    page.put("batch", &table(options, ways)?)
}

fn batch(number: usize, events: usize) -> String {
    let event = |nth| format!("{{\"elementName\":\"{EVENT}\",\"payload\":{}}}", payload(number * events + nth));
    format!("[{}]", (0..events).map(event).collect::<Vec<_>>().join(","))
}

/// A batch is answered 200 whatever becomes of its events: a device must have stored whole batches.
async fn all_are_there(mut house: House, devices: &[Device]) -> Result<(), Failure> {
    let device = devices.first().ok_or("no device")?;
    let path = format!("/v2/devices/{}/data/{STORAGE}?limit=1", device.id);
    let stored = house.api.call("GET", &path, None).await?["meta"]["totalDocs"].as_u64().unwrap_or_default();
    house.server.stop().await?;
    // Single posts aside, batches of 1,000 were posted by every device.
    if stored < 1_000 { Err(format!("a device has stored {stored} values only").into()) } else { Ok(()) }
}

fn table(options: &Options, ways: Vec<Way>) -> Result<String, Failure> {
    let mut table = String::from(
        "| a post | posts/s | events/s | times single posts | processor time an event | p50 | p99 | target |\n\
         |---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let mut single = None;
    for Way { events, measured, .. } in ways {
        let Measured { round, micros } = median(measured, |it| it.round.rate).ok_or("no rounds")?;
        let rate = round.rate * events as f64;
        let times = rate / *single.get_or_insert(rate);
        let target = match events {
            100.. => format!("≥ {TARGET:.0} times: {}", verdict(times >= TARGET)),
            _ => String::new(),
        };
        let name = if events == 1 { "one event".to_owned() } else { format!("a batch of {}", grouped(events as f64)) };
        writeln!(
            table,
            "| {name} | {} | {} | {times:.1} | {micros:.1} µs | {} | {} | {target} |",
            grouped(round.rate),
            grouped(rate),
            millis(round.p50),
            millis(round.p99)
        )?;
    }
    writeln!(
        table,
        "\nMedians of {} alternating rounds of {} s at {CONNECTIONS} connections; {DEVICES} devices, each posts for itself; the design stores \
         each event and evaluates one condition.",
        options.rounds, options.seconds
    )?;
    Ok(table)
}
