//! What comes due by itself: intervals and the look for missing devices, the end of what is old.

mod retention;
pub(crate) mod scheduler;

use std::sync::Arc;

use self::scheduler::SchedulerState;
use crate::cache::Caches;
use crate::delivery::Delivery;
use crate::env::Env;
use crate::identity::Identity;
use crate::ingest::Ingest;
use crate::metering::activity::Activity;

/// Does what comes due. Its workers are the supervisor's to run.
pub(crate) struct Jobs {
    env: Arc<Env>,
    caches: Arc<Caches>,
    delivery: Arc<Delivery>,
    activity: Arc<Activity>,
    identity: Arc<Identity>,
    ingest: Arc<Ingest>,
    scheduler: SchedulerState,
}

impl Jobs {
    pub(crate) fn new(
        env: Arc<Env>,
        caches: Arc<Caches>,
        delivery: Arc<Delivery>,
        activity: Arc<Activity>,
        identity: Arc<Identity>,
        ingest: Arc<Ingest>,
    ) -> Self {
        Self { env, caches, delivery, activity, identity, ingest, scheduler: SchedulerState::new() }
    }
}
