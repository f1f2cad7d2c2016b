//! Wakes long polls at the queues of devices that other nodes have queued events for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::ids::DeviceKey;
use isobar_store::error::StoreError;
use isobar_store::telemetry::SharedTelemetry;

use super::Ingest;
use crate::supervisor::Shift;

/// Name of the worker.
pub(crate) const FAR_QUEUES_WORKER: &str = "far_queues";
/// Interval between two looks while somebody waits.
const QUEUES_LOOK: Duration = Duration::from_millis(100);
/// Queues that one statement looks at.
const QUEUES_AT_ONCE: usize = 5_000;

impl Ingest {
    /// Looks at the queues at which somebody waits, for all of them in one statement.
    pub(crate) async fn run_far_queues(self: Arc<Self>, mut shift: Shift) {
        let (mut seen, mut is_told) = (HashMap::new(), false);
        loop {
            self.env.reaches(FAR_QUEUES_WORKER);
            if let Some(shared) = self.env.telemetry().shared() {
                let looked = self.look_at_queues(shared, &mut seen).await;
                if let Err(error) = &looked
                    && !is_told
                {
                    tracing::warn!(%error, "cannot look at queues that other nodes fill, will retry");
                }
                is_told = looked.is_err();
            }
            shift.well();
            if shift.pause(QUEUES_LOOK).await {
                return;
            }
        }
    }

    /// Rings for the queues that have grown since the last look. One that was not looked at before has perhaps.
    async fn look_at_queues(
        &self,
        shared: &dyn SharedTelemetry,
        seen: &mut HashMap<DeviceKey, u64>,
    ) -> Result<(), StoreError> {
        let waiting = self.committer.bells.waiting();
        let mut now = HashMap::with_capacity(waiting.len());
        for devices in waiting.chunks(QUEUES_AT_ONCE) {
            let ends = shared.queue_ends(devices).await?;
            now.extend(devices.iter().copied().zip(ends).filter_map(|(device, end)| Some((device, end?))));
        }
        for (device, end) in &now {
            if seen.get(device) != Some(end) {
                self.ring(*device);
            }
        }
        *seen = now;
        Ok(())
    }
}
