//! Flatness: whether the ten-millionth event is as fast as the first.

use std::fmt::Write as _;

use super::{House, LOAD_CONNECTIONS, grouped, megabytes};
use crate::page::Page;
use crate::process::size_of;
use crate::setup::Device;
use crate::{Failure, Options, Section, load};

/// Rates are taken for so many parts.
const PARTS: usize = 10;

/// Answers how many events are there afterwards.
pub async fn measure(options: &Options, page: &Page, house: &House, devices: &[Device]) -> Result<usize, Failure> {
    let part = options.flat_events.div_ceil(PARTS);
    let outcome = load::post(&house.server.address, devices, options.flat_events, LOAD_CONNECTIONS, part).await?;
    if !options.includes(Section::Flat) {
        return Ok(outcome.acknowledged);
    }
    let rates: Vec<f64> = outcome.marks.iter().map(|took| part as f64 / took.as_secs_f64()).collect();
    let (Some(first), Some(last)) = (rates.first(), rates.last()) else { return Err("no rates".into()) };
    let mut table = String::from("| events | events/s |\n|---:|---:|\n");
    for (number, rate) in rates.iter().enumerate() {
        writeln!(table, "| {} | {} |", grouped(((number + 1) * part) as f64), grouped(*rate))?;
    }
    let at = |quantile| outcome.latency.value_at_quantile(quantile) as f64 / 1_000.0;
    writeln!(
        table,
        "\nThe last of {} parts runs at {:.2} of the first. {} events of {} devices over {LOAD_CONNECTIONS} connections in {:.0} s; \
         p50 {:.1} ms, p99 {:.1} ms, slowest {:.0} ms. Afterwards the folder holds {} ({:.0} bytes an event), the process {}.",
        rates.len(),
        last / first,
        grouped(outcome.acknowledged as f64),
        grouped(devices.len() as f64),
        outcome.elapsed.as_secs_f64(),
        at(0.5),
        at(0.99),
        outcome.latency.max() as f64 / 1_000.0,
        megabytes(size_of(house.path())),
        size_of(house.path()) as f64 / outcome.acknowledged.max(1) as f64,
        megabytes(house.server.memory()?)
    )?;
    page.put("flat", &table)?;
    Ok(outcome.acknowledged)
}
