//! Reads when much is stored: the newest values, a far page, an exact count, a filter and a sort over a whole series.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{House, grouped, millis};
use crate::page::Page;
use crate::setup::{Device, STORAGE};
use crate::{Failure, Options};

/// How many devices are asked for their newest values.
const NEWEST_READS: usize = 2_000;
/// How often each read of the long series is repeated.
const REPEATS: usize = 20;
/// The same for reads that scan all of it.
const SCAN_REPEATS: usize = 5;

/// What a kind of read took.
struct Took {
    p50: Duration,
    p99: Duration,
}

pub async fn measure(
    options: &Options,
    page: &Page,
    house: &mut House,
    devices: &[Device],
    long: &Device,
) -> Result<(), Failure> {
    let of = |device: &Device, query: &str| format!("/v2/devices/{}/data/{STORAGE}?{query}", device.id);
    let newest: Vec<String> = devices.iter().cycle().take(NEWEST_READS).map(|device| of(device, "limit=100")).collect();
    let long_newest = vec![of(long, "limit=100"); NEWEST_READS];
    let far_page = (options.series / 100 / 2).max(1);
    let far = vec![of(long, &format!("limit=100&page={far_page}")); REPEATS];
    let count = vec![of(long, "limit=1&from=2001-01-01T00:00:00Z&to=2101-01-01T00:00:00Z"); REPEATS];
    let filter =
        vec![of(long, "limit=100&filter[payload.temperature][gt]=15&filter[payload.humidity][lt]=50"); SCAN_REPEATS];
    let sort = vec![of(long, "limit=100&filter[payload.temperature][gt]=15&sortBy=-payload.humidity"); SCAN_REPEATS];
    let length = grouped(options.series as f64);
    let mut table = String::from("| read | p50 | p99 | values/s |\n|---|---:|---:|---:|\n");
    for (name, paths, scans) in [
        ("newest 100, a device of few values".to_owned(), newest, false),
        (format!("newest 100 of {length}"), long_newest, false),
        (format!("page {} of 100, of {length}", grouped(far_page as f64)), far, false),
        (format!("totalDocs of a range, of {length}"), count, false),
        (format!("filter on two keys, {length} values"), filter, true),
        (format!("filter and sort by payload, {length} values"), sort, true),
    ] {
        let took = read_all(house, &paths).await?;
        let scanned = options.series as f64 / took.p50.as_secs_f64();
        let speed = if scans { grouped(scanned) } else { String::new() };
        writeln!(table, "| {name} | {} | {} | {speed} |", millis(took.p50), millis(took.p99))?;
    }
    let total = house.api.call("GET", &of(long, "limit=1"), None).await?["meta"]["totalDocs"].as_u64();
    if total != Some(options.series as u64) {
        return Err(format!("totalDocs is {total:?} of {}", options.series).into());
    }
    writeln!(
        table,
        "\nOne connection, whole answers, among {} events of {} devices and one series of {length} values. The newest 100 within 5 ms are the target.",
        grouped((options.flat_events + options.series) as f64),
        grouped(devices.len() as f64)
    )?;
    page.put("reads", &table)
}

async fn read_all(house: &mut House, paths: &[String]) -> Result<Took, Failure> {
    let mut latency = Histogram::<u64>::new(3)?;
    for path in paths {
        let begun = Instant::now();
        house.api.reply("GET", path, None).await?;
        latency.record(u64::try_from(begun.elapsed().as_micros())?)?;
    }
    let at = |quantile| Duration::from_micros(latency.value_at_quantile(quantile));
    Ok(Took { p50: at(0.5), p99: at(0.99) })
}
