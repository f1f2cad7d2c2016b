//! `isobar upgrade-check`: reports what this program would change in a data folder when it first serves it.

use std::fmt::Write as _;

use isobar_store::registry::Registry;
use isobar_store::telemetry::embedded::Embedded;

use super::UpkeepReport;
use crate::config::{self, Flags, Settings};
use crate::folder::{DataFolder, LAYOUT_VERSION};
use crate::process::disk;
use crate::stores::{no_registry, require_files, telemetry_options, whole};
use crate::{Failure, runtime};

/// Most copies of the registry that migrations write: one in the database, one in its log.
const REGISTRY_COPIES: u64 = 2;

/// Runs `isobar upgrade-check`. Changes nothing.
pub fn upgrade_check(flags: &Flags) -> Result<UpkeepReport, Failure> {
    let settings = config::of_a_platform(flags)?;
    let folder = DataFolder::take(&settings.data)?;
    require_files(&settings)?;
    let layout = folder.layout()?;
    let format = Embedded::format(settings.telemetry_folder()?, &telemetry_options(&settings));
    let format = format.map_err(|error| format!("telemetry cannot be opened: {}", whole(&error)))?;
    let (found, known) = runtime::start(1)?.block_on(async {
        let registry = Registry::open_as_it_is(&settings.registry).await.map_err(no_registry)?;
        let steps = registry.steps().await;
        registry.close().await?;
        Ok::<_, Failure>(steps?)
    })?;
    let mut text = String::new();
    writeln!(text, "This is isobar {}.", env!("CARGO_PKG_VERSION"))?;
    writeln!(text, "The data folder has layout {layout}, and would have {LAYOUT_VERSION}.")?;
    writeln!(text, "Telemetry has format {format}, and is left as it is.")?;
    let pending = known.saturating_sub(found);
    if pending == 0 && layout == LAYOUT_VERSION {
        writeln!(
            text,
            "The registry has all {known} steps. Nothing would be changed: the program of before can be put back."
        )?;
        return Ok(UpkeepReport { text, sound: true });
    }
    writeln!(text, "The registry has {found} steps of {known}: {pending} would be taken, in one transaction.")?;
    writeln!(text, "That cannot be undone, and an older program does not open what comes of it: make a backup first.")?;
    let sound = tell_of_room(&settings, &mut text)?;
    Ok(UpkeepReport { text, sound })
}

/// Reports whether the disk has room for the migrations.
fn tell_of_room(settings: &Settings, text: &mut String) -> Result<bool, Failure> {
    let Some(file) = settings.sqlite_file() else { return Ok(true) };
    let wanted = file.metadata()?.len().saturating_mul(REGISTRY_COPIES);
    let folder = file.parent().unwrap_or(&settings.data);
    let Some((free, _)) = disk(folder) else { return Ok(true) };
    let (wanted_mb, free_mb) = (wanted.div_ceil(1_000_000), free / 1_000_000);
    if free < wanted {
        writeln!(
            text,
            "The steps may take {wanted_mb} MB, and {} has {free_mb} MB left: make room first.",
            folder.display()
        )?;
        return Ok(false);
    }
    writeln!(text, "The steps may take {wanted_mb} MB; {free_mb} MB are free.")?;
    Ok(true)
}
