//! `isobar recover`: makes a platform start again that refuses to because acknowledged data is lost. Each store
//! determines the loss; nothing is done before it is named and confirmed.

use std::path::Path;

use isobar_model::time::{Clock, Timestamp};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;
use isobar_store::telemetry::KnownStores;
use isobar_store::telemetry::embedded::{Embedded, Loss};

use super::closed_telemetry::ClosedTelemetry;
use super::{UpkeepReport, registry_loss};
use crate::Failure;
use crate::cli::Recovery;
use crate::config::{self, Flags, Settings, TelemetryPlace};
use crate::folder::DataFolder;
use crate::runtime;
use crate::stores::{no_registry, require_files, telemetry_options, whole};

/// A recovery of one store.
struct Step {
    /// The loss or change, for the operator; ends with a line break.
    named: String,
    /// Carries it out; returns the result in words.
    take: Box<dyn FnOnce() -> Result<String, Failure>>,
}

/// Runs `isobar recover`.
pub fn recover(flags: &Flags, wanted: &Recovery) -> Result<UpkeepReport, Failure> {
    let settings = config::of_a_platform_anywhere(flags)?;
    let is_there = DataFolder::is_there(&settings.data);
    let _folder = is_there.then(|| DataFolder::take(&settings.data)).transpose()?;
    require_files(&settings)?;
    let now = Clock::System.now();
    let mut steps = Vec::new();
    let aside = settings.data.join(format!("dropped-{}", now.to_string().replace(':', "-")));
    steps.extend(lost_telemetry(&settings, &aside)?);
    steps.extend(lost_changes(&settings, &aside)?);
    if steps.is_empty() {
        steps.extend(lost_devices(&settings));
        steps.extend(other_telemetry(&settings));
    }
    if wanted.clock {
        steps.push(clock(&settings, now));
    }
    let mut text: String = steps.iter().map(|step| step.named.as_str()).collect();
    if steps.is_empty() {
        text.push_str("Nothing that was acknowledged is missing: there is nothing to recover.\n");
        return Ok(UpkeepReport { text, sound: true });
    }
    if !wanted.yes {
        text.push_str("Nothing was changed. To do this, run the command again with --yes.\n");
        return Ok(UpkeepReport { text, sound: false });
    }
    for step in steps {
        text.push_str(&(step.take)()?);
    }
    text.push_str("Run isobar check: it tells whether what is left fits together.\n");
    Ok(UpkeepReport { text, sound: true })
}

/// Finds acknowledged writes of the telemetry store that cannot be replayed.
fn lost_telemetry(settings: &Settings, aside: &Path) -> Result<Option<Step>, Failure> {
    // A database answers by itself for the writes that it has acknowledged.
    let TelemetryPlace::Folder(path) = &settings.telemetry else { return Ok(None) };
    let cannot = |error| format!("the telemetry store {} cannot be recovered: {}", path.display(), whole(&error));
    let Some(loss) = Embedded::loss(path).map_err(cannot)? else { return Ok(None) };
    let named = format!("Telemetry: {loss}.\nWhat is left of the log is copied to {} first.\n", aside.display());
    let (settings, aside) = (settings.clone(), aside.to_owned());
    let take = move || drop_telemetry(&settings, &loss, &aside);
    Ok(Some(Step { named, take: Box::new(take) }))
}

fn drop_telemetry(settings: &Settings, loss: &Loss, aside: &Path) -> Result<String, Failure> {
    let (path, options) = (settings.telemetry_folder()?, telemetry_options(settings));
    Embedded::recover(path, &options, loss, aside)
        .map_err(|error| format!("the telemetry store {} cannot be recovered: {}", path.display(), whole(&error)))?;
    Ok("The telemetry store goes on without them.\n".to_owned())
}

/// Finds acknowledged changes of the registry that are not in its log.
fn lost_changes(settings: &Settings, aside: &Path) -> Result<Option<Step>, Failure> {
    let Some(named) = registry_loss::named(settings, aside)? else { return Ok(None) };
    let (settings, aside) = (settings.clone(), aside.to_owned());
    Ok(Some(Step { named, take: Box::new(move || registry_loss::accept(&settings, &aside)) }))
}

/// Returns the devices that the registry has lost, as a start recorded them.
fn lost_devices(settings: &Settings) -> Option<Step> {
    let closed = ClosedTelemetry::of(settings);
    // Failures that need a change are left for the next start, or `isobar check`.
    let lost = closed.lost_devices().ok().filter(|lost| !lost.is_empty())?;
    let numbers: Vec<_> =
        lost.iter().map(|devices| format!("{} to {}", devices.after.0 + 1, devices.up_to.0)).collect();
    let named = format!(
        "Registry: it is older than telemetry, and has lost the devices with the numbers {}. What they said is out of \
         reach; if the newer registry comes back, it is not. They are taken for deleted.\n",
        numbers.join(", ")
    );
    let take = move || {
        closed.give_up_lost_devices().map_err(|error| whole(&error))?;
        Ok("The lost devices are taken for deleted.\n".to_owned())
    };
    Some(Step { named, take: Box::new(take) })
}

/// Finds out that the telemetry of the settings is not that of the registry. Where it would be refused all the same if the
/// registry had noted none, there is nothing to recover from.
fn other_telemetry(settings: &Settings) -> Option<Step> {
    let (registry, closed) = (settings.registry.clone(), ClosedTelemetry::of(settings));
    // Failures to read either store are left for the next start, or `isobar check`.
    let known = with_registry(&registry, async |registry| registry.known_stores().await).ok()?;
    let foreign = closed.must_fit(&known).err()?;
    closed.must_fit(&KnownStores::with_devices_in(&known.used)).ok()?;
    let named = format!(
        "Telemetry is not that of the registry: {}.\nThe registry takes what stores.telemetry names when it starts next. What \
         devices said to the other one is out of reach from then on.\n",
        whole(&foreign)
    );
    let take = move || {
        with_registry(&registry, async |registry| registry.telemetry_stores_forget().await)?;
        Ok("The registry takes the telemetry of the next start.\n".to_owned())
    };
    Some(Step { named, take: Box::new(take) })
}

/// Does something with the registry of a stopped platform.
fn with_registry<T>(
    address: &str,
    work: impl AsyncFnOnce(&Registry) -> std::result::Result<T, StoreError>,
) -> Result<T, Failure> {
    runtime::start(1)?.block_on(async {
        let registry = Registry::open_as_it_is(address).await.map_err(no_registry)?;
        let done = work(&registry).await.map_err(no_registry);
        registry.close().await?;
        Ok(done?)
    })
}

/// Makes the telemetry store trust the clock.
fn clock(settings: &Settings, now: Timestamp) -> Step {
    let closed = ClosedTelemetry::of(settings);
    let seen = match closed.seen() {
        Ok(Some(seen)) => format!("the telemetry store believes it up to {seen}"),
        Ok(None) => "the telemetry store has not seen any time yet".to_owned(),
        Err(error) => format!("what the telemetry store believes cannot be read: {}", whole(&error)),
    };
    let named = format!(
        "The clock says {now}; {seen}. Believed, it ends history and notifications that are six months older than that, for good.\n"
    );
    let take = move || {
        closed.believe(now).map_err(|error| whole(&error))?;
        Ok("The clock is believed.\n".to_owned())
    };
    Step { named, take: Box::new(take) }
}
