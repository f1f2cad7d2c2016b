//! What reading everything once has shown.

use isobar_model::ids::DeviceKey;

/// Devices that a registry gave out numbers to, and that a later one, which is older, does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostDevices {
    /// The greatest number that the older registry had given out.
    pub after: DeviceKey,
    /// The greatest number that telemetry knew by then.
    pub up_to: DeviceKey,
}

impl LostDevices {
    /// Returns true if a device is one of them.
    pub fn contains(&self, device: DeviceKey) -> bool {
        self.after < device && device <= self.up_to
    }
}

/// What a telemetry store holds, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// Events in history.
    pub events: u64,
    /// Stored values.
    pub values: u64,
    /// Entries that wait to be carried into the registry.
    pub outbox: u64,
    /// Those of them that cannot be, the first of them: the device, and why.
    pub parked: Vec<(DeviceKey, String)>,
    /// How many of them cannot be.
    pub parked_found: u64,
    /// Devices that something is stored of, in the order of their numbers.
    pub devices: Vec<DeviceKey>,
    /// Devices that registries have lost, as far as it was noted at starts.
    pub lost: Vec<LostDevices>,
    /// What is damaged, the first of it.
    pub faults: Vec<String>,
    /// How much is damaged.
    pub faults_found: u64,
}
