//! Checks of both stores, separately and against each other.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use isobar_model::ids::DeviceKey;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceNumbers, Registry, companions};
use isobar_store::telemetry::Examined;

use super::closed_telemetry::ClosedTelemetry;
use super::{UpkeepReport, files};
use crate::Failure;
use crate::config::Settings;
use crate::folder::is_read_only;
use crate::stores::{Stores, no_registry, require_files, whole};

/// Mode of the folder of a registry's copy: it holds password hashes.
const COPY_FOLDER_MODE: u32 = 0o700;

/// Checks both stores while they are in use: telemetry first, so that its devices are in the registry by then.
pub async fn everything(stores: &Stores) -> Result<UpkeepReport, Failure> {
    compare(stores.telemetry.upkeep().examine().await, &stores.registry, None).await
}

/// Checks both stores without a running platform, and changes nothing.
pub async fn as_they_are(settings: &Settings) -> Result<UpkeepReport, Failure> {
    require_files(settings)?;
    let closed = ClosedTelemetry::of(settings);
    let copy =
        settings.sqlite_file().filter(|file| is_read_only(file)).map(|file| RegistryCopy::of(&file)).transpose()?;
    let address = copy.as_ref().map_or_else(|| settings.registry.clone(), RegistryCopy::address);
    let registry = Registry::open_as_it_is(&address).await.map_err(no_registry)?;
    let known = registry.known_stores().await;
    let telemetry = tokio::task::spawn_blocking(move || {
        let examined = closed.examine();
        let fits = if examined.is_ok() { known.and_then(|known| closed.must_fit(&known)) } else { Ok(()) };
        (examined, fits)
    });
    let (examined, fits) = telemetry.await?;
    let foreign = fits.err().map(|error| format!("telemetry: {}", whole(&error)));
    let told = compare(examined, &registry, foreign).await;
    registry.close().await?;
    told
}

/// A copy of a registry's files in the system's temporary folder, as SQLite opens none on a read-only file system: it
/// writes an index of the log. Removed when dropped.
struct RegistryCopy {
    folder: PathBuf,
    file: PathBuf,
}

impl RegistryCopy {
    fn of(file: &Path) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("isobar-check-{}", std::process::id()));
        let cannot = |error: std::io::Error| format!("cannot copy the registry to {}: {error}", folder.display());
        // Not one that somebody else has made there.
        DirBuilder::new().mode(COPY_FOLDER_MODE).create(&folder).map_err(cannot)?;
        // Removes the folder from here on, whatever fails.
        let mut copy = Self { folder, file: PathBuf::new() };
        let file = file.canonicalize()?;
        for from in std::iter::once(file.clone()).chain(companions(&file)).filter(|from| from.exists()) {
            files::copy_file(&from, &copy.folder.join(from.file_name().unwrap_or_default()))?;
        }
        copy.file = copy.folder.join(file.file_name().unwrap_or_default());
        Ok(copy)
    }

    fn address(&self) -> String {
        format!("sqlite:{}", self.file.display())
    }
}

impl Drop for RegistryCopy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, path = %self.folder.display(), "cannot remove a copy of the registry");
        }
    }
}

/// Compares telemetry with the registry; `foreign` is the fault of telemetry that is not the registry's.
async fn compare(
    telemetry: Result<Examined, StoreError>,
    registry: &Registry,
    foreign: Option<String>,
) -> Result<UpkeepReport, Failure> {
    let mut faults = Vec::from_iter(foreign);
    let telemetry = match telemetry {
        Ok(examined) => examined,
        Err(error) => {
            faults.push(format!("telemetry cannot be read: {}", whole(&error)));
            Examined::default()
        }
    };
    faults.extend(telemetry.faults.iter().map(|fault| format!("telemetry: {fault}")));
    let untold = telemetry.faults_found.saturating_sub(telemetry.faults.len() as u64);
    if untold > 0 {
        faults.push(format!("telemetry: and {untold} faults more"));
    }
    match registry.check().await {
        Ok(found) => faults.extend(found.iter().map(|fault| format!("registry: {fault}"))),
        Err(error) => faults.push(format!("the registry cannot be read: {}", whole(&error))),
    }
    let mut gone = 0;
    match registry.device_numbers().await {
        Ok(numbers) => {
            let (lost, deleted) = strangers(&telemetry, &numbers);
            faults.extend(lost_devices(&lost));
            gone = deleted;
        }
        Err(error) => faults.push(format!("the registry's devices cannot be read: {}", whole(&error))),
    }
    report(&telemetry, gone, &faults)
}

/// Returns the devices in telemetry that the registry has lost, and the number of others that it does not know, which
/// were deleted.
fn strangers(telemetry: &Examined, numbers: &DeviceNumbers) -> (Vec<DeviceKey>, usize) {
    let is_lost =
        |key: &DeviceKey| key.dense() > numbers.last_given || telemetry.lost.iter().any(|lost| lost.contains(*key));
    let strangers = telemetry.devices.iter().filter(|key| numbers.present.binary_search(key).is_err());
    let (lost, deleted): (Vec<_>, Vec<_>) = strangers.copied().partition(is_lost);
    (lost, deleted.len())
}

/// Returns a device's number without its database, and names that if it is not the first one.
fn shown(key: DeviceKey) -> String {
    match key.database() {
        0 => key.dense().to_string(),
        database => format!("{} in database {database}", key.dense()),
    }
}

/// Describes devices that the registry has lost, if there are any.
fn lost_devices(lost: &[DeviceKey]) -> Option<String> {
    let (first, last) = (lost.first()?, lost.last()?);
    Some(format!(
        "telemetry knows {} devices that the registry does not (the first is number {}, the last {}), and nobody can reach \
         what they said: the registry is older than telemetry. Bring the newer one back, or take them for deleted \
         (isobar recover, after a start)",
        lost.len(),
        shown(*first),
        shown(*last)
    ))
}

fn report(telemetry: &Examined, gone: usize, faults: &[String]) -> Result<UpkeepReport, Failure> {
    let mut text = String::new();
    writeln!(
        text,
        "{} events in history, {} stored values, of {} devices; {} entries wait for the registry.",
        telemetry.events,
        telemetry.values,
        telemetry.devices.len(),
        telemetry.outbox
    )?;
    if telemetry.parked_found > 0 {
        writeln!(
            text,
            "{} of these entries are parked: the registry refuses them for their own sake, and they are tried again now and then:",
            telemetry.parked_found
        )?;
        telemetry
            .parked
            .iter()
            .try_for_each(|(device, why)| writeln!(text, "  of device number {}: {why}", shown(*device)))?;
        let untold = telemetry.parked_found.saturating_sub(telemetry.parked.len() as u64);
        if untold > 0 {
            writeln!(text, "  and {untold} more")?;
        }
    }
    if gone > 0 {
        writeln!(text, "{gone} devices with data were deleted: nobody can reach what is left of them.")?;
    }
    match faults {
        [] => writeln!(text, "Everything is sound.")?,
        faults => {
            writeln!(text, "Damage was found:")?;
            faults.iter().try_for_each(|fault| writeln!(text, "  {fault}"))?;
        }
    }
    Ok(UpkeepReport { text, sound: faults.is_empty() })
}

#[cfg(test)]
mod tests {
    use isobar_store::telemetry::LostDevices;

    use super::*;

    #[test]
    fn lost_device_is_distinguished_from_a_deleted_one() {
        let key = |numbers: &[u64]| numbers.iter().copied().map(DeviceKey).collect::<Vec<_>>();
        let registry = DeviceNumbers { present: key(&[1, 3, 12]), last_given: 12 };
        let telemetry = |devices: &[u64], lost: &[(u64, u64)]| Examined {
            devices: key(devices),
            lost: lost
                .iter()
                .map(|(after, to)| LostDevices { after: DeviceKey(*after), up_to: DeviceKey(*to) })
                .collect(),
            ..Examined::default()
        };
        assert_eq!(strangers(&telemetry(&[1, 2, 12], &[]), &registry), (vec![], 1));
        // Numbers that were never given out, and those that an earlier start found missing.
        let found = strangers(&telemetry(&[2, 3, 7, 12, 14, 19], &[(5, 10)]), &registry);
        assert_eq!(found, (key(&[7, 14, 19]), 1));
        let told = lost_devices(&found.0).unwrap();
        assert!(told.contains("3 devices") && told.contains("number 7, the last 19"), "{told}");
        assert_eq!(lost_devices(&[]), None);
        // The database of a device makes its number no greater.
        let [present, deleted, lost] = [3, 2, 14].map(|dense| DeviceKey::new(1, dense).0);
        let registry = DeviceNumbers { present: key(&[1, present]), last_given: 12 };
        let found = strangers(&telemetry(&[1, present, deleted, lost], &[]), &registry);
        assert_eq!(found, (key(&[lost]), 1));
        assert!(lost_devices(&found.0).unwrap().contains("number 14 in database 1"));
    }
}
