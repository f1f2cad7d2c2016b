//! Wires the hub: makes each module, from the lowest to the highest, with the modules beneath it that it needs.

use std::sync::Arc;

use futures::FutureExt as _;
use isobar_model::error::Result;
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use isobar_store::registry::Registry;
use isobar_store::telemetry::Telemetry;
use tokio::sync::watch;

use crate::cache::Caches;
use crate::cache::data_quota::Meters;
use crate::delivery::Delivery;
use crate::delivery::calls::{CallEnded, RunOnAnswer};
use crate::designs::Designs;
use crate::env::Env;
use crate::identity::Identity;
use crate::identity::rate_shares::RATE_SHARES_WORKER;
use crate::ingest::far_queues::FAR_QUEUES_WORKER;
use crate::ingest::{Ingest, Occasion};
use crate::jobs::Jobs;
use crate::jobs::changes::CHANGES_WORKER;
use crate::jobs::nodes::NODES_WORKER;
use crate::metering::activity::Activity;
use crate::metering::usage::{DAILY_COUNT_WORKER, Usage};
use crate::outbox::Outbox;
use crate::resources::alarms::AlarmTurns;
use crate::resources::followed_lists::FollowedLists;
use crate::resources::picture::Pictures;
use crate::supervisor::Supervisor;
use crate::support::bounded_jobs::BoundedJobs;
use crate::{Hub, Parts, resources};
use isobar_quota::{TenantShares, limits};

/// The owners of the modules' state, and the little state of the operations themselves.
pub(crate) struct Rooms {
    pub env: Arc<Env>,
    pub started_at: Timestamp,
    pub supervisor: Supervisor,
    pub designs: Arc<Designs>,
    pub outbox: Arc<Outbox>,
    pub caches: Arc<Caches>,
    pub delivery: Arc<Delivery>,
    pub activity: Arc<Activity>,
    pub usage: Arc<Usage>,
    pub identity: Arc<Identity>,
    pub ingest: Arc<Ingest>,
    pub jobs: Arc<Jobs>,
    pub pictures: Pictures,
    pub exports: Arc<TenantShares>,
    pub bucket_bytes: Arc<TenantShares>,
    pub stream_bytes: Arc<TenantShares>,
    pub followed_lists: FollowedLists,
    pub deliveries: Arc<TenantShares>,
    pub creation_jobs: BoundedJobs,
    pub listing_jobs: BoundedJobs,
    pub selection_jobs: BoundedJobs,
    pub alarm_turns: AlarmTurns,
    /// Becomes true when long polls must end.
    pub closing: watch::Sender<bool>,
}

impl Hub {
    pub(crate) fn registry(&self) -> &Registry {
        self.0.env.registry()
    }

    pub(crate) fn telemetry(&self) -> &dyn Telemetry {
        self.0.env.telemetry()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.env.now()
    }

    /// Makes all modules, from the lowest to the highest.
    pub(crate) async fn made_of(parts: Parts) -> Result<Self> {
        let Parts { registry, telemetry, mailer, clock, chance, config } = parts;
        let env = Arc::new(Env::new(registry, telemetry, clock.clone(), chance, config)?);
        env.ids_go_on().await?;
        let designs = Arc::new(Designs::start()?);
        let outbox = Arc::new(Outbox::new(env.clock().clone(), env.telemetry().shared().is_some()));
        let meters = Arc::new(Meters::default());
        let caches = Arc::new(Caches::new(env.clone(), outbox.clone(), meters.clone())?);
        let delivery = Arc::new(Delivery::new(env.clone(), outbox.clone(), caches.clone(), mailer)?);
        let activity = Arc::new(Activity::new(env.clone(), caches.clone()));
        let usage = Arc::new(Usage::new(env.clone(), caches.clone(), delivery.clone(), meters));
        let identity = Identity::new(env.clone(), caches.clone(), delivery.clone(), activity.clone()).await?;
        let identity = Arc::new(identity);
        let counted = (activity.clone(), usage.clone());
        let ingest = Ingest::new(
            env.clone(),
            designs.clone(),
            outbox.clone(),
            (caches.clone(), delivery.clone()),
            counted,
            identity.clone(),
        );
        let ingest = Arc::new(ingest);
        let jobs = Jobs::new(
            env.clone(),
            caches.clone(),
            delivery.clone(),
            (activity.clone(), usage.clone()),
            identity.clone(),
            ingest.clone(),
        );
        let rooms = Rooms {
            started_at: env.now(),
            env,
            supervisor: Supervisor::new(clock),
            designs,
            outbox,
            caches,
            delivery,
            activity,
            usage,
            identity,
            ingest,
            jobs: Arc::new(jobs),
            pictures: Pictures::new()?,
            exports: resources::export::exports(),
            bucket_bytes: resources::buckets::bucket_bytes(),
            stream_bytes: resources::event_stream::stream_bytes(),
            followed_lists: FollowedLists::new()?,
            deliveries: TenantShares::new(&limits::WEBHOOK_BYTES),
            creation_jobs: resources::device_creation::creation_jobs()?,
            listing_jobs: resources::devices::listing_jobs(),
            selection_jobs: resources::device_selection::selection_jobs(),
            alarm_turns: AlarmTurns::default(),
            closing: watch::Sender::new(false),
        };
        Ok(Hub(Arc::new(rooms)))
    }

    /// Starts the workers.
    pub(crate) fn employ_all(&self) {
        macro_rules! employ {
            ($($worker:literal: $room:ident.$run:ident),* $(,)?) => {
                $({
                    let room = Arc::clone(&self.0.$room);
                    self.employ($worker, move |shift| Arc::clone(&room).$run(shift));
                })*
            };
        }
        employ! {
            "outbox": delivery.run_outbox,
            "left_work": delivery.run_left_work,
            "activity": activity.run_activity,
            "usage": usage.run_usage,
            "registry_watch": jobs.run_registry_watch,
            "retention": jobs.run_retention,
            "timers": jobs.run_scheduler,
            "device_notices": delivery.run_device_notices,
            "notices": delivery.run_notices,
            "deliveries_mail": delivery.run_mail,
        }
        if self.config().has_other_nodes {
            let jobs = Arc::clone(&self.0.jobs);
            self.employ(CHANGES_WORKER, move |shift| Arc::clone(&jobs).run_changes(shift));
            let jobs = Arc::clone(&self.0.jobs);
            self.employ(NODES_WORKER, move |shift| Arc::clone(&jobs).run_nodes(shift));
            let identity = Arc::clone(&self.0.identity);
            self.employ(RATE_SHARES_WORKER, move |shift| Arc::clone(&identity).run_rate_shares(shift));
            let usage = Arc::clone(&self.0.usage);
            self.employ(DAILY_COUNT_WORKER, move |shift| Arc::clone(&usage).run_daily_count(shift));
            let ingest = Arc::clone(&self.0.ingest);
            self.employ(FAR_QUEUES_WORKER, move |shift| Arc::clone(&ingest).run_far_queues(shift));
        }
        let (delivery, run_on_answer) = (Arc::clone(&self.0.delivery), self.run_on_answer());
        self.employ("calls", move |shift| Arc::clone(&delivery).run_calls(Arc::clone(&run_on_answer), shift));
    }

    /// Returns the function that runs a design on the answer to its call.
    fn run_on_answer(&self) -> RunOnAnswer {
        let ingest = Arc::clone(&self.0.ingest);
        Arc::new(move |device, ended: CallEnded| {
            let ingest = Arc::clone(&ingest);
            let CallEnded { call, element, response, payload } = ended;
            let payload = RawJson::trusted(payload.into());
            let occasion = Occasion::Answered { element, response };
            async move {
                // Another process may have made the call too, where this one took longer than its claim.
                let key = ingest.is_shared().then(|| format!("\0call:{call}"));
                ingest.run_design(device, occasion, payload, key).await
            }
            .boxed()
        })
    }
}
