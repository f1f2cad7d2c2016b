//! Reads of one device: authorized, whole, beside a bare echo in the same run.

use std::fmt::Write as _;

use super::{House, LOAD_CONNECTIONS, grouped, median, millis, shot, turns, verdict};
use crate::page::Page;
use crate::process::Server;
use crate::setup::payload;
use crate::wrk::{Ammunition, Round};
use crate::{Failure, Options};

/// Reads for each answer of the echo.
const TARGET: f64 = 0.5;

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut house = House::build(options).await?;
    let devices = house.devices(options.devices).await?;
    let paths: Vec<String> = devices.iter().map(|device| format!("/v2/devices/{}", device.id)).collect();
    let path = paths.first().ok_or("no devices")?;
    let bytes = house.api.reply("GET", path, None).await?.body.len();
    // A key outlives every round; a login would not.
    let reads = Ammunition::reads(&paths, house.api.credential())?;
    let bodies = Ammunition::bodies(devices.len(), payload)?;
    let echo = Server::echo(options.threads()).await?;
    let (mut baseline, mut isobar) = (Vec::new(), Vec::new());
    for (seconds, counts) in turns(options) {
        let bare = bodies.fire(&shot(options, &echo, "/echo", LOAD_CONNECTIONS, seconds)).await?;
        let full = reads.fire(&shot(options, &house.server, path, LOAD_CONNECTIONS, seconds)).await?;
        if counts {
            eprintln!("bench: echo {:.0}, reads of a device {:.0}", bare.rate, full.rate);
            baseline.push(bare);
            isobar.push(full);
        }
    }
    echo.kill().await?;
    house.server.stop().await?;
    let rate = |round: &Round| round.rate;
    let (Some(bare), Some(full)) = (median(baseline, rate), median(isobar, rate)) else {
        return Err("no rounds".into());
    };
    let ratio = full.rate / bare.rate;
    let mut table = String::from(
        "| echo, requests/s | reads/s | ratio | p50 | p99 | slowest | target |\n|---:|---:|---:|---:|---:|---:|---|\n",
    );
    writeln!(
        table,
        "| {} | {} | {ratio:.2} | {} | {} | {} | ratio ≥ {TARGET:.2}: {} |",
        grouped(bare.rate),
        grouped(full.rate),
        millis(full.p50),
        millis(full.p99),
        millis(full.max),
        verdict(ratio >= TARGET)
    )?;
    writeln!(
        table,
        "\nMedians of {} alternating rounds of {} s over {LOAD_CONNECTIONS} connections; {} devices in turns, answers of {bytes} bytes; \
         both servers have {} thread(s) for HTTP; rate windows are counted.",
        options.rounds,
        options.seconds,
        grouped(devices.len() as f64),
        options.threads()
    )?;
    page.put("device", &table)
}
