//! The port for operators: what commands for upkeep need of a store, beside [`Telemetry`].

use async_trait::async_trait;
use isobar_model::ids::DeviceKey;
use isobar_quota::FairQueue;

use super::{Examined, LostDevices, Telemetry};
use crate::error::Result;

/// A telemetry store, as commands for upkeep see it.
#[async_trait]
pub trait Upkeep: Telemetry {
    /// Reads everything once, as of one moment, and finds references to missing rows. May run while the store is in use.
    async fn examine(&self) -> Result<Examined>;

    /// Returns the greatest number of a device with any stored data, or 0.
    async fn greatest_device(&self) -> Result<DeviceKey>;

    /// Returns the devices that registries are recorded to have lost.
    async fn devices_lost(&self) -> Result<Vec<LostDevices>>;

    /// Records, durably, that the registry has lost devices.
    async fn note_lost_devices(&self, devices: LostDevices) -> Result<()>;

    /// Removes the records of devices that are no longer lost.
    async fn forget_lost_devices(&self, found: Vec<LostDevices>) -> Result<()>;

    /// Returns the slots of long reads; a caller that keeps one makes others wait.
    fn scans(&self) -> &FairQueue;
}
