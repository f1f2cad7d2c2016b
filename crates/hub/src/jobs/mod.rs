//! Runs the periodic work: intervals and the check for missing devices, the removal of old data, the check that the
//! registry answers, the look for what other nodes have changed, and the signs of life for them.

pub(crate) mod changes;
pub(crate) mod nodes;
mod registry_watch;
mod retention;
pub(crate) mod scheduler;
mod value_retention;

use std::sync::Arc;

use self::scheduler::SchedulerState;
use self::value_retention::RetentionState;
use crate::cache::Caches;
use crate::delivery::Delivery;
use crate::env::Env;
use crate::identity::Identity;
use crate::ingest::Ingest;
use crate::metering::activity::Activity;
use crate::metering::usage::Usage;

/// Runs the periodic work. The supervisor runs its workers.
pub(crate) struct Jobs {
    env: Arc<Env>,
    caches: Arc<Caches>,
    delivery: Arc<Delivery>,
    activity: Arc<Activity>,
    usage: Arc<Usage>,
    identity: Arc<Identity>,
    ingest: Arc<Ingest>,
    scheduler: SchedulerState,
    retention: RetentionState,
}

impl Jobs {
    pub(crate) fn new(
        env: Arc<Env>,
        caches: Arc<Caches>,
        delivery: Arc<Delivery>,
        (activity, usage): (Arc<Activity>, Arc<Usage>),
        identity: Arc<Identity>,
        ingest: Arc<Ingest>,
    ) -> Self {
        let (scheduler, retention) = (SchedulerState::new(), RetentionState::default());
        Self { env, caches, delivery, activity, usage, identity, ingest, scheduler, retention }
    }
}
