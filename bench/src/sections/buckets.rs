//! Questions in buckets: of a million values, of ten million, and of the newest day of a short and a long series.
//!
//! The series reach back for years, so they are written into the store while the server does not run.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use isobar_model::access;
use isobar_model::chance::seeded;
use isobar_model::ids::{DeviceRef, EventId, IdMint};
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use isobar_store::registry::Registry;
use isobar_store::telemetry::embedded::{Embedded, Options as StoreOptions};
use isobar_store::telemetry::{Commit, NewValue, Telemetry};

use super::{House, grouped, median, millis, verdict};
use crate::api::Api;
use crate::page::Page;
use crate::process::Server;
use crate::setup::{STORAGE, payload};
use crate::{Failure, Options};

/// Seconds between two values of a series.
const SECONDS_APART: i64 = 1;
/// When both series end.
const END: i64 = 1_790_000_000;
/// Values of one commit.
const AT_ONCE: usize = 4_000;
/// Buckets of an answer.
const BUCKETS: i64 = 600;
/// How often each question is asked after the first time.
const REPEATS: usize = 20;
/// Most values of a question.
const VALUES_MAX: usize = 10_000_000;
const MILLION_TARGET: Duration = Duration::from_millis(120);
const TEN_MILLIONS_TARGET: Duration = Duration::from_secs(1);
const DAY: i64 = 86_400;

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let House { server, folder, api, project } = House::build(options).await?;
    let devices = crate::setup::make_devices(&api, &project, 2).await?;
    let [short, long] = [options.series, options.long_series];
    server.stop().await?;
    let filled = Instant::now();
    fill(folder.path(), &[(&devices[0].id, short), (&devices[1].id, long)]).await?;
    eprintln!("bench: wrote series of {short} and {long} values in {:.0} s", filled.elapsed().as_secs_f64());
    let server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
    let mut api = Api::log_in(&server.address).await?;
    let mut table =
        String::from("| question | values | first | p50 | slowest | target |\n|---|---:|---:|---:|---:|---|\n");
    let many = long.min(VALUES_MAX);
    let mut days = Vec::new();
    for (name, device, values, functions, target) in [
        ("600 buckets", 0, short, "", Some(MILLION_TARGET)),
        ("600 buckets, four percentiles", 0, short, "p50,p90,p95,p99", None),
        ("600 buckets, first and last, which are read from rows", 0, short, "first,last", None),
        ("newest day of the short series, by hour", 0, short.min(DAY as usize), "", None),
        ("newest day of the long series, by hour", 1, long.min(DAY as usize), "", None),
        ("600 buckets", 1, many, "", Some(TEN_MILLIONS_TARGET)),
    ] {
        let seconds = values as i64 * SECONDS_APART;
        let width = if seconds <= DAY { 3_600 } else { (seconds / BUCKETS).max(1) };
        let every = if width < DAY { format!("{width}s") } else { format!("{}d", (width + DAY - 1) / DAY) };
        let path = format!(
            "/v2/devices/{}/data/{STORAGE}/buckets?fields=payload.temperature&every={every}&functions={functions}&from={}&to={}",
            devices[device].id,
            Timestamp::from_millis((END - seconds) * 1_000),
            Timestamp::from_millis(END * 1_000)
        );
        let (first, p50, slowest) = ask(&mut api, &path, values).await?;
        if name.starts_with("newest") {
            days.push(p50);
        }
        let target = target.map(|target| format!("< {}: {}", millis(target), verdict(p50 < target)));
        writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {} |",
            grouped(values as f64),
            millis(first),
            millis(p50),
            millis(slowest),
            target.unwrap_or_default()
        )?;
    }
    let memory = server.memory()?;
    server.stop().await?;
    writeln!(
        table,
        "\nOne connection, whole answers: series of {} and {} values, one a second. The first question reads rows, those after it what is remembered of \
         them ({REPEATS} repetitions). The newest day of the long series took {:.2} times as long as that of the short one. Memory in the end: {}.",
        grouped(short as f64),
        grouped(long as f64),
        days.last().zip(days.first()).map_or(0.0, |(long, short)| long.as_secs_f64() / short.as_secs_f64()),
        super::megabytes(memory)
    )?;
    page.put("buckets", &table)
}

/// What the first question took, the one in the middle of those after it, and the slowest of them.
async fn ask(api: &mut Api, path: &str, values: usize) -> Result<(Duration, Duration, Duration), Failure> {
    let mut took = Vec::with_capacity(REPEATS);
    let mut first = None;
    for _ in 0..=REPEATS {
        let begun = Instant::now();
        let answer = api.call("GET", path, None).await?;
        let elapsed = begun.elapsed();
        if answer["meta"]["values"].as_u64() != Some(values as u64) {
            return Err(format!("{path} tells of {} values instead of {values}", answer["meta"]["values"]).into());
        }
        match first {
            None => first = Some(elapsed),
            Some(_) => took.push(elapsed),
        }
    }
    let slowest = took.iter().max().copied().unwrap_or_default();
    Ok((first.unwrap_or_default(), median(took, Duration::as_secs_f64).unwrap_or_default(), slowest))
}

/// Writes series of so many values into the stores of a folder.
async fn fill(folder: &Path, series: &[(&str, usize)]) -> Result<(), Failure> {
    let registry = Registry::open(&format!("sqlite:{}", folder.join("registry.db").display())).await?;
    let telemetry = Embedded::open(&folder.join("telemetry"), StoreOptions::default())?;
    for (device, count) in series {
        let placed = registry.device_placement(device.parse().map_err(|_| "no identifier")?).await?;
        let (device, _) = placed.ok_or("no such device")?;
        write(&telemetry, device, *count).await?;
    }
    telemetry.close().await?;
    Ok(registry.close().await?)
}

async fn write(telemetry: &Embedded, device: DeviceRef, count: usize) -> Result<(), Failure> {
    let (mint, mut rng, permit) = (IdMint::new(), seeded(1), access::system(device, "the bench fills a series"));
    for first in (0..count).step_by(AT_ONCE) {
        let mut work = |_: &dyn isobar_store::telemetry::Memory| {
            let value = |number: usize| {
                let at = Timestamp::from_millis((END - (count - number) as i64 * SECONDS_APART) * 1_000);
                NewValue {
                    event: EventId(mint.mint(at, &mut rng)),
                    element: STORAGE.into(),
                    payload: RawJson::trusted(payload(number).into()),
                }
            };
            let values = (first..(first + AT_ONCE).min(count)).map(value).collect();
            Commit { values, ..Commit::default() }
        };
        telemetry.run(&permit, None, Timestamp::from_millis(END * 1_000), &mut work).await?;
    }
    Ok(())
}
