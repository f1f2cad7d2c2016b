//! The telemetry store of a stopped platform, wherever it is.

use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{Examined, LostDevices, postgres};

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

    /// Examines everything, and changes nothing.
    pub fn examine(&self) -> Result<Examined> {
        match &self.place {
            TelemetryPlace::Postgres(address) => waiting(postgres::examine_database(address)),
            TelemetryPlace::Folder(folder) if is_telemetry(folder) => Embedded::examine_folder(folder, &self.options),
            TelemetryPlace::Folder(folder) => {
                Embedded::loss(folder).and_then(|_| Err(StoreError::Damaged("there is no telemetry store".to_owned())))
            }
        }
    }

    /// Returns the devices that the registry has lost.
    pub fn lost_devices(&self) -> Result<Vec<LostDevices>> {
        match &self.place {
            TelemetryPlace::Postgres(address) => waiting(postgres::lost_devices(address)),
            TelemetryPlace::Folder(folder) if is_telemetry(folder) => Embedded::lost_devices(folder, &self.options),
            TelemetryPlace::Folder(_) => Ok(Vec::new()),
        }
    }

    /// Treats these devices as deleted.
    pub fn give_up_lost_devices(&self) -> Result<()> {
        match &self.place {
            TelemetryPlace::Postgres(address) => waiting(postgres::give_up_lost_devices(address)),
            TelemetryPlace::Folder(folder) => Embedded::give_up_lost_devices(folder, &self.options),
        }
    }

    /// Returns the moment up to which the store trusts the clock, if it has seen any.
    pub fn seen(&self) -> Result<Option<Timestamp>> {
        match &self.place {
            TelemetryPlace::Postgres(address) => waiting(postgres::seen(address)),
            TelemetryPlace::Folder(folder) if is_telemetry(folder) => Embedded::seen(folder, &self.options),
            TelemetryPlace::Folder(_) => Ok(None),
        }
    }

    /// Makes the store trust the clock.
    pub fn believe(&self, now: Timestamp) -> Result<()> {
        match &self.place {
            TelemetryPlace::Postgres(address) => waiting(postgres::believe(address, now)),
            TelemetryPlace::Folder(folder) => Embedded::believe(folder, &self.options, now),
        }
    }
}

/// Waits for the database, in a command that serves nobody.
fn waiting<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime::start(1).map_err(StoreError::unavailable)?.block_on(work)
}
