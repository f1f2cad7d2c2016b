//! The main road: events a second, durable before they are acknowledged, beside a bare echo in the same run.

use std::fmt::Write as _;
use std::time::Duration;

use super::{House, grouped, median, megabytes, millis, shot, turns, verdict};
use crate::page::Page;
use crate::process::Server;
use crate::setup::{EVENTS, payload};
use crate::wrk::{Ammunition, Round};
use crate::{Failure, Options};

/// What is aimed at, at so many connections.
struct Target {
    connections: usize,
    ratio: f64,
    p99: Option<Duration>,
}

const TARGETS: [Target; 2] = [
    Target { connections: 256, ratio: 0.45, p99: Some(Duration::from_millis(20)) },
    Target { connections: 1_024, ratio: 0.50, p99: None },
];

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let house = House::build(options).await?;
    let idle = house.server.memory()?;
    let devices = house.devices(options.devices).await?;
    let (bodies, posts) = (Ammunition::bodies(devices.len(), payload)?, Ammunition::posts(&devices, payload)?);
    let echo = Server::echo(options.threads()).await?;
    let mut peak = 0;
    let mut table = String::from(
        "| connections | echo, requests/s | Isobar, events/s | ratio | p50 | p99 | slowest | target |\n|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for &connections in &options.connections {
        let (mut baseline, mut isobar) = (Vec::new(), Vec::new());
        for (seconds, counts) in turns(options) {
            let bare = bodies.fire(&shot(options, &echo, "/echo", connections, seconds)).await?;
            let full = posts.fire(&shot(options, &house.server, EVENTS, connections, seconds)).await?;
            peak = peak.max(house.server.memory()?);
            if counts {
                eprintln!("bench: {connections} connections: echo {:.0}, Isobar {:.0}", bare.rate, full.rate);
                baseline.push(bare);
                isobar.push(full);
            }
        }
        let rate = |round: &Round| round.rate;
        let (Some(bare), Some(full)) = (median(baseline, rate), median(isobar, rate)) else {
            return Err("no rounds".into());
        };
        write_row(&mut table, connections, &bare, &full)?;
    }
    echo.kill().await?;
    house.server.stop().await?;
    writeln!(
        table,
        "\nMedians of {} alternating rounds of {} s; {} devices; the design stores each event and evaluates one condition; \
         both servers have {} thread(s) for HTTP. Memory: {} before, {} at most under load.",
        options.rounds,
        options.seconds,
        grouped(options.devices as f64),
        options.threads(),
        megabytes(idle),
        megabytes(peak)
    )?;
    page.put("road", &table)
}

fn write_row(table: &mut String, connections: usize, bare: &Round, full: &Round) -> std::fmt::Result {
    let ratio = full.rate / bare.rate;
    let target = TARGETS.iter().find(|target| target.connections == connections).map_or(String::new(), |target| {
        let p99 = target.p99.map(|most| format!(", p99 < {}", millis(most))).unwrap_or_default();
        let holds = ratio >= target.ratio && target.p99.is_none_or(|most| full.p99 < most);
        format!("ratio ≥ {:.2}{p99}: {}", target.ratio, verdict(holds))
    });
    writeln!(
        table,
        "| {} | {} | {} | {ratio:.2} | {} | {} | {} | {target} |",
        grouped(connections as f64),
        grouped(bare.rate),
        grouped(full.rate),
        millis(full.p50),
        millis(full.p99),
        millis(full.max)
    )
}
