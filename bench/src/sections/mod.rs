//! The measurements, one file each.

mod batch;
mod buckets;
mod compare;
mod delete;
mod designs;
mod device;
mod flat;
mod fleet;
mod lists;
mod neighbours;
mod nodes;
mod outbox;
mod reads;
mod road;
mod settings;
mod start;
mod tls;
mod webhook;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum as _;
pub use neighbours::Hostile;
use tempfile::TempDir;

use crate::api::Api;
use crate::page::Page;
use crate::process::Server;
use crate::setup::{Device, EVENTS, make_devices, make_project};
use crate::wrk::{Ammunition, Round, Shot};
use crate::{Failure, Options, Section, load};

/// Connections of the exact load.
const LOAD_CONNECTIONS: usize = 256;
/// Seconds of a first run that fills caches and does not count.
const WARM_UP_SECONDS: u64 = 2;

/// An Isobar with a folder of its own, a project, and someone who may do everything.
pub struct House {
    server: Server,
    folder: TempDir,
    api: Api,
    project: String,
}

impl House {
    /// A new one.
    async fn build(options: &Options) -> Result<Self, Failure> {
        let folder = TempDir::with_prefix_in("isobar-bench-", &options.folder)?;
        let server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
        let mut api = Api::log_in(&server.address).await?;
        let project = make_project(&mut api).await?;
        Ok(Self { server, folder, api, project })
    }

    async fn devices(&self, count: usize) -> Result<Vec<Device>, Failure> {
        make_devices(&self.api, &self.project, count).await
    }

    /// A device with a series of so many values.
    async fn long_series(&self, length: usize) -> Result<Device, Failure> {
        let mut devices = self.devices(1).await?;
        let mark = length.div_ceil(4);
        load::post(&self.server.address, &devices, length, LOAD_CONNECTIONS, mark).await?;
        devices.pop().ok_or_else(|| "no device".into())
    }

    /// Fires these posts for so long, and looks at what they cost.
    async fn fire(
        &self,
        options: &Options,
        posts: &Ammunition,
        connections: usize,
        seconds: u64,
    ) -> Result<Measured, Failure> {
        let before = self.server.processor_time()?;
        let round = posts.fire(&shot(options, &self.server, EVENTS, connections, seconds)).await?;
        let spent = self.server.processor_time()?.saturating_sub(before);
        Ok(Measured { round, micros: spent.as_secs_f64() * 1e6 / (round.answers as f64).max(1.0) })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A round, and the processor time that the server spent on each of its events, in microseconds.
#[derive(Clone, Copy)]
struct Measured {
    round: Round,
    micros: f64,
}

/// Runs the chosen sections.
pub async fn run(options: &Options, page: &Page) -> Result<(), Failure> {
    if let Some(before) = &options.against {
        return compare::measure(options, before).await;
    }
    for section in Section::value_variants().iter().filter(|section| options.includes(**section)) {
        match section {
            Section::Road => road::measure(options, page).await?,
            Section::Tls => tls::measure(options, page).await?,
            Section::Buckets => buckets::measure(options, page).await?,
            Section::Lists => lists::measure(options, page).await?,
            Section::Fleet => fleet::measure(options, page).await?,
            Section::Device => device::measure(options, page).await?,
            Section::Settings => settings::measure(options, page).await?,
            Section::Batch => batch::measure(options, page).await?,
            Section::Webhook => webhook::measure(options, page).await?,
            Section::Designs => designs::measure(options, page).await?,
            Section::Outbox => outbox::measure(options, page).await?,
            Section::Neighbours => neighbours::measure(options, page).await?,
            Section::Nodes => nodes::measure(options, page).await?,
            Section::Flat | Section::Reads | Section::Delete | Section::Start => {}
        }
    }
    crowded(options, page).await
}

/// Runs those of the chosen sections that need much stored, in one house.
async fn crowded(options: &Options, page: &Page) -> Result<(), Failure> {
    let crowded = [Section::Flat, Section::Reads, Section::Delete, Section::Start];
    if !crowded.into_iter().any(|section| options.includes(section)) {
        return Ok(());
    }
    let mut house = House::build(options).await?;
    let devices = house.devices(options.flat_devices).await?;
    // Reads, deletes and restarts are measured among as many events as the flat section leaves behind.
    let stored = flat::measure(options, page, &house, &devices).await?;
    if options.includes(Section::Reads) || options.includes(Section::Delete) {
        let device = house.long_series(options.series).await?;
        if options.includes(Section::Reads) {
            reads::measure(options, page, &mut house, &devices, &device).await?;
        }
        if options.includes(Section::Delete) {
            delete::measure(options, page, &mut house, &device).await?;
        }
    }
    match options.includes(Section::Start) {
        true => start::measure(options, page, house, &devices, stored).await,
        false => house.server.stop().await.map(drop),
    }
}

/// The turns of a measurement: how many seconds each lasts, and whether it counts. The first fills caches.
fn turns(options: &Options) -> impl Iterator<Item = (u64, bool)> {
    let counted = std::iter::repeat_n((options.seconds, true), options.rounds);
    std::iter::once((WARM_UP_SECONDS, false)).chain(counted)
}

fn shot<'a>(options: &Options, server: &'a Server, target: &'a str, connections: usize, seconds: u64) -> Shot<'a> {
    Shot { origin: &server.origin, target, threads: options.wrk_threads, connections, seconds }
}

/// `12,345`
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.23 ms`
fn millis(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1_000.0;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{} ms", grouped(millis)) }
}

/// `12.3 MB`
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The one in the middle, by `key`.
fn median<T: Copy>(mut values: Vec<T>, key: impl Fn(&T) -> f64) -> Option<T> {
    values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    values.get(values.len() / 2).copied()
}

/// The row of a call that was timed several times: the one in the middle, the slowest, items a second, and the target.
fn timed_row(name: &str, durations: Vec<Duration>, items: usize, target: Duration) -> Result<String, Failure> {
    let slowest = durations.iter().max().copied().unwrap_or_default();
    let took = median(durations, Duration::as_secs_f64).ok_or("no rounds")?;
    let rate = grouped(items as f64 / took.as_secs_f64());
    let holds = verdict(took < target);
    Ok(format!("| {name} | {} | {} | {rate} | < {}: {holds} |\n", millis(took), millis(slowest), millis(target)))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "**missed**" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (grouped(999.4), grouped(1_000.0), grouped(1_234_567.0)),
            ("999".into(), "1,000".into(), "1,234,567".into())
        );
        assert_eq!(millis(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(median(vec![3.0, 1.0, 2.0], |x| *x), Some(2.0));
    }
}
