//! Whether everything is sound: each store by itself, and both with each other.

use std::fmt::Write as _;

use isobar_model::ids::DeviceKey;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceNumbers, Registry};
use isobar_store::telemetry::Examined;
use isobar_store::telemetry::embedded::Embedded;

use super::UpkeepReport;
use crate::Failure;
use crate::config::Settings;
use crate::stores::{Stores, is_telemetry, no_registry, telemetry_options, whole};

/// Looks at both stores. While they are in use: telemetry first, so that its devices are in the registry by then.
pub async fn everything(stores: &Stores) -> Result<UpkeepReport, Failure> {
    compare(stores.telemetry.examine().await, &stores.registry).await
}

/// Looks at both stores, which nobody has open: nothing of them is changed.
pub async fn as_they_are(settings: &Settings) -> Result<UpkeepReport, Failure> {
    let (path, options) = (settings.telemetry.clone(), telemetry_options(settings));
    let telemetry = tokio::task::spawn_blocking(move || match is_telemetry(&path) {
        true => Embedded::examine_folder(&path, &options),
        false => Embedded::loss(&path).and_then(|_| Err(StoreError::Damaged("there is no telemetry store".to_owned()))),
    });
    let telemetry = telemetry.await?;
    let registry = Registry::open_as_it_is(&settings.registry).await.map_err(no_registry)?;
    let told = compare(telemetry, &registry).await;
    registry.close().await?;
    told
}

async fn compare(telemetry: Result<Examined, StoreError>, registry: &Registry) -> Result<UpkeepReport, Failure> {
    let mut faults = Vec::new();
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
            faults.extend(strangers(&telemetry.devices, &numbers));
            gone = telemetry.devices.iter().filter(|key| numbers.present.binary_search(key).is_err()).count();
        }
        Err(error) => faults.push(format!("the registry's devices cannot be read: {}", whole(&error))),
    }
    report(&telemetry, gone, &faults)
}

/// Numbers of devices that were never given out: the next device would find another's events in its history.
fn strangers(devices: &[DeviceKey], numbers: &DeviceNumbers) -> Option<String> {
    let known = devices.partition_point(|key| key.0 <= numbers.last_given);
    let strangers = devices.get(known..).unwrap_or_default();
    let first = strangers.first()?;
    Some(format!(
        "telemetry knows {} devices that the registry has not made yet (the first is number {}, the last one made {}): \
         the registry is older than telemetry",
        strangers.len(),
        first.0,
        numbers.last_given
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
            .try_for_each(|(device, why)| writeln!(text, "  of device number {}: {why}", device.0))?;
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
    use super::*;

    #[test]
    fn a_device_that_the_registry_never_made_is_damage_and_one_that_was_deleted_is_not() {
        let numbers = DeviceNumbers { present: vec![DeviceKey(1), DeviceKey(3)], last_given: 3 };
        assert_eq!(strangers(&[DeviceKey(1), DeviceKey(2)], &numbers), None);
        let told = strangers(&[DeviceKey(2), DeviceKey(4), DeviceKey(9)], &numbers).unwrap();
        assert!(told.contains("2 devices") && told.contains("number 4"), "{told}");
        assert_eq!(strangers(&[], &DeviceNumbers::default()), None);
    }
}
