//! `isobar support-bundle FILE`: what somebody who helps an operator asks for first, in one archive, without secrets and
//! payloads. It works while the platform runs and when it does not; what cannot be had is noted in the bundle.

mod archive;
mod log;
mod machine;
mod running;
mod scrub;
mod stopped;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use isobar_model::time::{Clock, Timestamp};
use isobar_store::registry::sqlite_version;
use isobar_store::telemetry::postgres;
pub use running::describe;

use crate::config::{self, Flags, Loaded, Settings, ShownSettings, TelemetryPlace};
use crate::folder::{DataFolder, LAYOUT_VERSION};
use crate::serve::COMMIT;
use crate::stores::whole;
use crate::upkeep::UpkeepReport;
use crate::{Failure, backups, health, logging, runtime};

/// Longest time that a store, or the running process, may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Largest page of metrics that is read, in bytes.
const METRICS_BYTES_MAX: u64 = 8 << 20;

/// The parts that were found, and what could not be had.
#[derive(Default)]
struct Bundle {
    parts: Vec<(&'static str, String)>,
    missing: Vec<String>,
}

impl Bundle {
    fn add(&mut self, name: &'static str, found: Result<String, Failure>) {
        match found {
            Ok(text) => self.parts.push((name, text)),
            Err(failure) => self.missing.push(format!("{name}: {failure}")),
        }
    }

    /// Removes secrets from all parts, and puts a description before them.
    fn finish(mut self, now: Timestamp, secrets: &[String]) -> Self {
        for (_, text) in &mut self.parts {
            *text = scrub::text(text, secrets);
        }
        for missing in &mut self.missing {
            *missing = scrub::text(missing, secrets);
        }
        let mut readme = format!(
            "Support bundle of isobar {}, made at {now}.\n\
             In it: settings, versions, readiness, metrics, the newest lines of the log, disks, sizes of files, backups.\n\
             Not in it: secrets ({mask} stands in their place), payloads, names of mailboxes.\n",
            env!("CARGO_PKG_VERSION"),
            mask = config::MASK,
        );
        for missing in &self.missing {
            let _ = writeln!(readme, "Could not be had: {missing}");
        }
        self.parts.insert(0, ("README.txt", readme));
        self
    }
}

/// Runs `isobar support-bundle FILE`.
pub fn bundle(flags: &Flags, to: &Path) -> Result<UpkeepReport, Failure> {
    let Loaded { settings, shown, .. } = config::load(flags)?;
    logging::start(&settings.log);
    archive::must_be_new(to)?;
    let now = Clock::System.now();
    let runtime = runtime::start(1)?;
    let bundle = runtime.block_on(collect(&settings, &shown)).finish(now, &shown.secrets);
    // A name that cannot be resolved may hold a thread for long.
    runtime.shutdown_background();
    let folder = format!("isobar-support-{}", now.to_string().replace([':', '.'], "-"));
    let bytes = archive::pack(&folder, now, &bundle.parts)?;
    archive::write(to, &bytes)?;
    let mut text = format!("{} has {} bytes. Look at it before it leaves the house:\n", to.display(), bytes.len());
    bundle.parts.iter().try_for_each(|(name, text_of)| writeln!(text, "  {name:<24} {} bytes", text_of.len()))?;
    bundle.missing.iter().try_for_each(|missing| writeln!(text, "Could not be had: {missing}"))?;
    Ok(UpkeepReport { text, sound: true })
}

async fn collect(settings: &Settings, shown: &ShownSettings) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.add("settings.txt", Ok(shown.text.clone()));
    let mut address = health::operations_address(settings);
    let mut versions = program() + &machine::system();
    match running::ask(&settings.data).await {
        Ok(Some(found)) => {
            if found.settings != shown.text {
                bundle.add("settings-of-the-process.txt", Ok(found.settings));
            }
            address = found.address;
            versions.push_str(&found.stores);
            bundle.add("log.txt", Ok(found.log));
        }
        Ok(None) => {
            versions.push_str(&layout(&settings.data));
            match stopped::stores(settings).await {
                Ok(stores) => versions.push_str(&stores),
                Err(failure) => bundle.missing.push(format!("formats of the stores: {failure}")),
            }
            bundle.add("log.txt", log::of_the_journal(&shown.secrets));
        }
        Err(failure) => {
            bundle.missing.push(format!("what the running process has: {failure}"));
            bundle.add("log.txt", log::of_the_journal(&shown.secrets));
        }
    }
    versions.push_str(&databases(settings).await);
    bundle.add("versions.txt", Ok(versions));
    let get = |path, most| match &address {
        Ok(address) => health::get(*address, path, most)
            .map_err(|error| Failure::from(format!("no answer from {address}: {error}"))),
        Err(why) => Err(why.to_string().into()),
    };
    bundle.add("ready.txt", get("/health/ready", health::HEALTH_BYTES_MAX));
    bundle.add("metrics.txt", get("/metrics", METRICS_BYTES_MAX).map(|page| scrub::metrics(&page)));
    bundle.add("disks.txt", Ok(machine::disks(settings)));
    bundle.add("files.txt", Ok(machine::files(settings)));
    bundle.add("backups.txt", backups::list(&settings.data).map_err(Failure::from));
    bundle
}

fn program() -> String {
    format!("isobar: {}\ncommit: {}\n", env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or("unknown"))
}

fn layout(data: &Path) -> String {
    let found = DataFolder::layout_of(data).map_or_else(|error| error.to_string(), |layout| layout.to_string());
    format!("layout of the data folder: {found} (this program's: {LAYOUT_VERSION})\n")
}

/// Returns the version of each database that the settings name.
async fn databases(settings: &Settings) -> String {
    let mut addresses = Vec::new();
    let mut text = String::new();
    match settings.sqlite_file() {
        None => addresses.push(&settings.registry),
        Some(_) => {
            let version = sqlite_version().await.unwrap_or_else(|error| whole(&error));
            let _ = writeln!(text, "registry: SQLite {version}");
        }
    }
    match &settings.telemetry {
        TelemetryPlace::Folder(_) => text.push_str("telemetry: RocksDB\n"),
        TelemetryPlace::Postgres(databases) => addresses.extend(databases),
    }
    for address in addresses {
        let version = match Clock::System.timeout(ANSWER_TIME, postgres::server_version(address)).await {
            Ok(version) => version.unwrap_or_else(|error| whole(&error)),
            Err(late) => late.to_string(),
        };
        let _ = writeln!(text, "{}: PostgreSQL {version}", postgres::name_of(address));
    }
    text
}
