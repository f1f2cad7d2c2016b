//! What reading everything once has shown.

use isobar_model::ids::DeviceKey;

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
    /// What is damaged, the first of it.
    pub faults: Vec<String>,
    /// How much is damaged.
    pub faults_found: u64,
}
