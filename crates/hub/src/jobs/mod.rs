//! What comes due by itself: intervals and the look for missing devices, the end of what is old, the look whether the registry
//! is there.

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

/// Does what comes due. Its workers are the supervisor's to run.
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
