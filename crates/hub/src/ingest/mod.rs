//! Everything that changes a device: an event, a setting, an interval, the answer to a call. Each locks the device, runs
//! its design, commits and publishes.

pub(crate) mod accepted;
mod committer;
pub(crate) mod design_runs;
pub(crate) mod device_event;
mod effects;
pub(crate) mod event_batch;
pub(crate) mod event_input;
pub(crate) mod far_queues;
pub(crate) mod incoming;
mod queue_bells;
mod revisions;
mod run_commit;
mod run_design;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use isobar_model::ids::DeviceKey;
use tokio::sync::Notify;

use self::committer::Committer;
use crate::cache::Caches;
use crate::delivery::Delivery;
use crate::designs::Designs;
use crate::env::Env;
use crate::identity::Identity;
use crate::metering::activity::Activity;
use crate::metering::usage::Usage;
use crate::outbox::Outbox;
use crate::support::pace::Pace;
use isobar_quota::TenantShares;

pub(crate) use self::revisions::LinePlace;
pub(crate) use self::run_design::Occasion;

/// Runs of one event, when its device changes under it again and again.
pub(crate) const RUNS_MAX: usize = 32;

/// Changes devices: it runs their designs and commits what these cause.
pub(crate) struct Ingest {
    env: Arc<Env>,
    designs: Arc<Designs>,
    outbox: Arc<Outbox>,
    caches: Arc<Caches>,
    delivery: Arc<Delivery>,
    activity: Arc<Activity>,
    identity: Arc<Identity>,
    committer: Committer,
    batch_bytes: Arc<TenantShares>,
    batch_pace: Pace,
}

impl Ingest {
    pub(crate) fn new(
        env: Arc<Env>,
        designs: Arc<Designs>,
        outbox: Arc<Outbox>,
        (caches, delivery): (Arc<Caches>, Arc<Delivery>),
        (activity, usage): (Arc<Activity>, Arc<Usage>),
        identity: Arc<Identity>,
    ) -> Self {
        let committer = Committer::new(Arc::clone(&env), Arc::clone(&outbox), usage);
        let (batch_bytes, batch_pace) = (event_batch::batch_bytes(), Pace::default());
        Self { env, designs, outbox, caches, delivery, activity, identity, committer, batch_bytes, batch_pace }
    }

    /// Returns the bell that rings when a cloud event is queued for the device, or its token ends.
    pub(crate) fn queue_bell(&self, device: DeviceKey) -> Arc<Notify> {
        self.committer.bells.queue_bell(device)
    }

    /// Returns true if other processes may run the same devices.
    pub(crate) fn is_shared(&self) -> bool {
        self.env.telemetry().shared().is_some()
    }

    /// A cloud event was queued for the device, or its token has ended: long polls look again.
    pub(crate) fn ring(&self, device: DeviceKey) {
        self.committer.bells.ring(device);
    }
}
