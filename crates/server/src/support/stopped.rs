//! Reads the stores of a platform that is stopped for a support bundle.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;

use isobar_model::time::Clock;
use isobar_store::registry::Registry;
use isobar_store::telemetry::embedded::Embedded;

use super::ANSWER_TIME;
use crate::Failure;
use crate::config::Settings;
use crate::folder::DataFolder;
use crate::stores::{no_registry, telemetry_options, whole};

/// Describes the formats of the stores.
pub async fn stores(settings: &Settings) -> Result<String, Failure> {
    let data = settings.data.display();
    if !DataFolder::is_there(&settings.data) {
        return Err(format!("{data} is no data folder of isobar").into());
    }
    // A store that is opened may get files of this user, which its own could not write.
    if std::fs::metadata(&settings.data)?.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{data} belongs to another user, as which this command reads them").into());
    }
    let _folder = DataFolder::take(&settings.data)?;
    let mut text = String::new();
    let steps = Clock::System.timeout(ANSWER_TIME, steps(&settings.registry)).await.map_err(Failure::from);
    let _ = match steps.and_then(|steps| steps) {
        Ok((found, known)) => writeln!(text, "steps of the registry: {found} (this program's: {known})"),
        Err(failure) => writeln!(text, "steps of the registry: {failure}"),
    };
    if let Ok(folder) = settings.telemetry_folder() {
        let _ = match Embedded::format(folder, &telemetry_options(settings)) {
            Ok(format) => writeln!(text, "format of telemetry: {format}"),
            Err(error) => writeln!(text, "format of telemetry: {}", whole(&error)),
        };
    }
    Ok(text)
}

async fn steps(address: &str) -> Result<(u64, u64), Failure> {
    let registry = Registry::open_as_it_is(address).await.map_err(no_registry)?;
    let steps = registry.steps().await;
    registry.close().await?;
    Ok(steps?)
}
