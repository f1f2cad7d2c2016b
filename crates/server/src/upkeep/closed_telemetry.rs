//! The telemetry store of a stopped platform, wherever it is.

use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Examined, KnownStores, LostDevices, NamedStore, postgres};

use crate::config::{Settings, TelemetryPlace};
use crate::runtime;
use crate::stores::{is_telemetry, telemetry_options};

type Result<T> = std::result::Result<T, StoreError>;

/// A telemetry store that nobody serves.
pub struct ClosedTelemetry {
    place: TelemetryPlace,
    options: Options,
}

impl ClosedTelemetry {
    /// Returns the store that the settings name.
    pub fn of(settings: &Settings) -> Self {
        Self { place: settings.telemetry.clone(), options: telemetry_options(settings) }
    }

    /// Examines everything, and changes nothing. Of several databases, each is examined by itself.
    pub fn examine(&self) -> Result<Examined> {
        match &self.place {
            TelemetryPlace::Postgres(databases) => waiting(examine_databases(databases)),
            TelemetryPlace::Folder(folder) if is_telemetry(folder) => Embedded::examine_folder(folder, &self.options),
            TelemetryPlace::Folder(folder) => {
                Embedded::loss(folder).and_then(|_| Err(StoreError::Damaged("there is no telemetry store".to_owned())))
            }
        }
    }

    /// Fails if this is not the telemetry that a registry knows.
    pub fn must_fit(&self, known: &KnownStores) -> Result<()> {
        match &self.place {
            TelemetryPlace::Postgres(databases) => waiting(postgres::must_fit(databases, known)),
            TelemetryPlace::Folder(folder) => {
                let identity = match is_telemetry(folder) {
                    true => Embedded::identity_of(folder, &self.options)?,
                    false => None,
                };
                let named = NamedStore { place: folder.display().to_string(), identity, number: Some(0) };
                known.must_fit(&[named]).map_err(StoreError::unavailable)
            }
        }
    }

    /// Returns the devices that the registry has lost.
    pub fn lost_devices(&self) -> Result<Vec<LostDevices>> {
        match &self.place {
            TelemetryPlace::Postgres(databases) => {
                let mut lost = waiting(each(databases, postgres::lost_devices))?.concat();
                // Each database has the same records.
                lost.sort_unstable_by_key(|lost| (lost.after, lost.up_to));
                lost.dedup();
                Ok(lost)
            }
            TelemetryPlace::Folder(folder) if is_telemetry(folder) => Embedded::lost_devices(folder, &self.options),
            TelemetryPlace::Folder(_) => Ok(Vec::new()),
        }
    }

    /// Treats these devices as deleted.
    pub fn give_up_lost_devices(&self) -> Result<()> {
        match &self.place {
            TelemetryPlace::Postgres(databases) => waiting(each(databases, postgres::give_up_lost_devices)).map(drop),
            TelemetryPlace::Folder(folder) => Embedded::give_up_lost_devices(folder, &self.options),
        }
    }

    /// Returns the moment up to which the store trusts the clock, if it has seen any.
    pub fn seen(&self) -> Result<Option<Timestamp>> {
        match &self.place {
            TelemetryPlace::Postgres(databases) => {
                let seen = waiting(each(databases, postgres::seen))?;
                Ok(seen.into_iter().flatten().min())
            }
            TelemetryPlace::Folder(folder) if is_telemetry(folder) => Embedded::seen(folder, &self.options),
            TelemetryPlace::Folder(_) => Ok(None),
        }
    }

    /// Makes the store trust the clock.
    pub fn believe(&self, now: Timestamp) -> Result<()> {
        match &self.place {
            TelemetryPlace::Postgres(databases) => {
                waiting(each(databases, |address| postgres::believe(address, now))).map(drop)
            }
            TelemetryPlace::Folder(folder) => Embedded::believe(folder, &self.options, now),
        }
    }
}

/// Waits for the database, in a command that serves nobody.
fn waiting<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime::start(1).map_err(StoreError::unavailable)?.block_on(work)
}

/// Examines each of some databases.
async fn examine_databases(databases: &[String]) -> Result<Examined> {
    let mut examined = Vec::with_capacity(databases.len());
    for address in databases {
        let number = postgres::number_of(address).await.map_err(|error| postgres::named(address, error))?;
        let found = postgres::examine_database(address).await.map_err(|error| postgres::named(address, error))?;
        examined.push((number, postgres::name_of(address), found));
    }
    if let [(_, _, _)] = examined.as_slice() {
        return Ok(examined.pop().map(|(_, _, found)| found).unwrap_or_default());
    }
    examined.sort_by_key(|(number, ..)| *number);
    let mut all = Examined::default();
    examined.into_iter().for_each(|(_, name, found)| all.add(&name, found));
    Ok(all)
}

/// Does the same in each of some databases, one after the other.
async fn each<'a, T, F: Future<Output = Result<T>>>(
    databases: &'a [String],
    work: impl Fn(&'a str) -> F,
) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(databases.len());
    for address in databases {
        results.push(work(address).await.map_err(|error| postgres::named(address, error))?);
    }
    Ok(results)
}
