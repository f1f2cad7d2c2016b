//! The parts of the store that all databases of a process share: numbers, memory, and slots of long reads.

use std::sync::Arc;

use isobar_quota::{FairQueue, TenantShares, limits};
use isobar_threads::GivingThreads;

use super::devices::DeviceSlots;
use super::numbers::ProcessNumbers;
use crate::error::{Result, StoreError};
use crate::telemetry::scan::SortedBytes;

/// Name of the threads that look at values.
const LOOKING_THREAD: &str = "isobar-look";

/// Parts that all databases of a process share. Cloning shares them.
#[derive(Clone)]
pub(crate) struct ProcessParts {
    pub numbers: Arc<ProcessNumbers>,
    pub devices: Arc<DeviceSlots>,
    /// Bytes of commits that wait for their groups.
    pub commit_bytes: Arc<TenantShares>,
    pub scans: Arc<FairQueue>,
    pub scan_threads: Arc<GivingThreads>,
    /// Memory of all sorts of values.
    pub sorted_bytes: Arc<SortedBytes>,
}

impl ProcessParts {
    /// Makes the parts for a process with these numbers, whose devices' states may take this many bytes.
    pub fn new(numbers: ProcessNumbers, device_bytes: usize) -> Result<Self> {
        let threads = GivingThreads::new(LOOKING_THREAD, limits::SCANS.at_once).map_err(StoreError::unavailable)?;
        Ok(Self {
            numbers: Arc::new(numbers),
            devices: Arc::new(DeviceSlots::new(device_bytes)),
            commit_bytes: TenantShares::new(&limits::COMMIT_BYTES),
            scans: Arc::new(FairQueue::new(&limits::SCANS)),
            scan_threads: Arc::new(threads),
            sorted_bytes: Arc::default(),
        })
    }
}
