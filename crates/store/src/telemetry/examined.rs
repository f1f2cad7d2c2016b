//! Describes the result of an examination of a store.

use isobar_model::ids::DeviceKey;

/// Bounds the faults that are reported one by one; further ones are counted.
pub(super) const FAULTS_NAMED_MAX: usize = 50;
/// Bounds the parked entries of the outbox that are reported one by one.
pub(super) const PARKED_NAMED_MAX: usize = 50;

/// Devices to which a registry assigned numbers, and which a restored, older registry does not know. The numbers are dense
/// ones, without a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostDevices {
    /// Greatest number that the older registry had assigned.
    pub after: DeviceKey,
    /// Greatest number that telemetry knew at that time.
    pub up_to: DeviceKey,
}

impl LostDevices {
    /// Returns true if a device is one of them.
    pub fn contains(&self, device: DeviceKey) -> bool {
        self.after.dense() < device.dense() && device.dense() <= self.up_to.dense()
    }
}

/// Content and faults of a telemetry store.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// Number of events in history.
    pub events: u64,
    /// Number of stored values.
    pub values: u64,
    /// Number of entries that wait to be written to the registry.
    pub outbox: u64,
    /// First entries that cannot be written: the device, and the cause.
    pub parked: Vec<(DeviceKey, String)>,
    /// Number of entries that cannot be written.
    pub parked_found: u64,
    /// Devices with stored data, in the order of their numbers.
    pub devices: Vec<DeviceKey>,
    /// Devices that registries are recorded to have lost.
    pub lost: Vec<LostDevices>,
    /// First faults.
    pub faults: Vec<String>,
    /// Number of faults.
    pub faults_found: u64,
}

impl Examined {
    /// Adds what was found in another database, which comes after the earlier ones in the order of their numbers.
    pub fn add(&mut self, name: &str, other: Self) {
        self.events += other.events;
        self.values += other.values;
        self.outbox += other.outbox;
        self.parked_found += other.parked_found;
        self.parked.extend(other.parked);
        self.parked.truncate(PARKED_NAMED_MAX);
        self.devices.extend(other.devices);
        let new: Vec<_> = other.lost.into_iter().filter(|lost| !self.lost.contains(lost)).collect();
        self.lost.extend(new);
        self.faults_found += other.faults_found;
        self.faults.extend(other.faults.into_iter().map(|fault| format!("{name}: {fault}")));
        self.faults.truncate(FAULTS_NAMED_MAX);
    }
}
