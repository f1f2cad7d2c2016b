//! The port for what processes must know of each other that share a store.

use async_trait::async_trait;
use isobar_model::ids::DeviceKey;

use super::OutboxEntry;
use crate::error::{Result, StoreError};

/// The revision of a device (see [`Memory::revision`](super::Memory::revision)), and its work that waits for the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The revision. The registry has everything up to it once nothing is pending.
    pub revision: u64,
    /// The revision with the oldest work that the registry does not have, without parked work; `None` if it has all.
    pub pending: Option<u64>,
}

/// A store that several processes may share.
#[async_trait]
pub trait SharedTelemetry: Send + Sync {
    /// Returns the standings of devices, in their order. Revision and outbox are read at the same moment. In a store with
    /// several databases, a device whose database does not answer has none.
    ///
    /// # Errors
    /// The store does not answer; of several databases, that of the only device that is asked about.
    async fn standings(&self, devices: &[DeviceKey]) -> Result<Vec<Option<Standing>>>;
    /// Returns the standing of a device.
    async fn standing(&self, device: DeviceKey) -> Result<Standing> {
        self.standings(&[device]).await?.pop().flatten().ok_or(StoreError::Busy)
    }
    /// Returns the numbers of the next events in the queues of devices, in their order: one that has grown has new events.
    /// A device whose database does not answer has none, as with [`Self::standings`].
    async fn queue_ends(&self, devices: &[DeviceKey]) -> Result<Vec<Option<u64>>>;
    /// Finds devices with work of processes that have not been seen for some seconds, and with work of this process that
    /// has been waiting for long, in case that nobody knows of it; at most `limit`. Databases that do not answer are left out,
    /// unless none does.
    async fn left_work(&self, limit: usize) -> Result<Vec<DeviceKey>>;
    /// Returns the entries of the outbox of a device, in the order of their numbers.
    async fn outbox_of(&self, device: DeviceKey) -> Result<Vec<OutboxEntry>>;
    /// Makes this process the one that is to do all work of a device, and returns its entries, in the order of their
    /// numbers. Takes none if the device is not at the revision: of several processes that take it over, the one that was
    /// last to change the revision does its work.
    async fn outbox_take(&self, device: DeviceKey, revision: u64) -> Result<Vec<OutboxEntry>>;
}
