//! The hub: the only room where things happen. One file per capability; every door takes the caller and gives
//! an answer or an [`isobar_model::error::Error`]. Nothing here knows HTTP.

mod accepted;
mod account_notices;
mod accounts;
mod activity;
mod alarms;
mod api_keys;
mod appearance;
mod beside;
mod code;
mod data;
mod deliveries;
mod device_notices;
mod device_settings;
mod devices;
mod dry_runs;
mod effects;
mod entries;
mod error;
mod event_input;
mod events;
mod export;
mod flights;
mod fresh;
mod gate;
mod images;
mod in_force;
mod intake;
mod letters;
mod limits;
mod links;
mod live;
mod moves;
mod notifications;
mod operator;
mod organizations;
mod otherwise;
mod outbox;
mod outgoing;
mod pace;
mod passwords;
mod picture;
mod profiles;
mod projects;
mod queue;
mod rate;
mod retention;
mod sessions;
mod setting_bulk;
mod settings;
mod shares;
mod shown;
mod side_runs;
#[cfg(test)]
mod stage;
mod supervisor;
mod tail;
mod throttle;
mod tokens;
mod turns;
mod usage;
mod webhook;

use std::sync::Arc;

use isobar_model::chance::Chance;
use isobar_model::error::{Error, Fault, Result};
use isobar_model::ids::{IdMint, UserId};
use isobar_model::page::Depth;
use isobar_model::time::Clock;
use isobar_outlets::calls::Calls;
use isobar_outlets::mail::Mailer;
use isobar_store::error::StoreError;
use isobar_store::registry::{Purpose, Registry};
use isobar_store::telemetry::Telemetry;
use tokio::sync::watch;

pub use accepted::Accepted;
pub use code::CodeRuns;
pub use data::{StorageElement, StorageList};
pub use device_settings::{Declared, DeviceSetting};
pub use devices::{DeviceView, LastChoice};
pub use dry_runs::DryRun;
pub use event_input::NO_NAME;
pub use events::HistoryRequest;
pub use export::Export;
pub use gate::{Accepts, Credentials, DeviceSession, Principal};
pub use images::HasImage;
pub use isobar_design::{Effect, Outcome, Produced, TraceStep};
pub use isobar_store::registry::NotificationMark;
pub use isobar_store::registry::Png;
pub use isobar_store::registry::sortable;
pub use isobar_store::telemetry::{Filter, FilterField, Operand, Operator, ValueQuery, ValueSort};
pub use operator::reset_password;
pub use projects::ProjectView;
pub use queue::QueueRead;
pub use sessions::Tokens;
pub use setting_bulk::{DefaultsOutcome, DefaultsRefusal, ProjectDefaults, SettingsOutcome};
pub use settings::{RateLimits, Settings};
pub use supervisor::{Shift, guarded, spawn_guarded, words};
pub use tail::StreamScope;
pub use webhook::{Given, PARAMETERS as WEBHOOK_PARAMETERS, Provision, TaskReport, WebhookReport};

use crate::error::Told as _;

/// Links of one purpose that are sent to one account in 15 minutes.
const LINKS_MAX: u32 = 5;
/// Longest time that a store may take to answer and be ready. Whoever asks has little patience.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// What a hub is made of.
pub struct Parts {
    /// Who and what.
    pub registry: Registry,
    /// What devices said.
    pub telemetry: Arc<dyn Telemetry>,
    /// Sends e-mails.
    pub mailer: Mailer,
    /// Tells the time.
    pub clock: Clock,
    /// Makes secrets and identifiers.
    pub chance: Chance,
    /// What the operator set.
    pub settings: Settings,
}

/// A hub that has started.
pub struct Started {
    /// Its door.
    pub hub: Hub,
    /// The first administrator's password, when one was made up: to be shown once.
    pub first_password: Option<String>,
}

/// The door to everything. Clones share one hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    registry: Registry,
    telemetry: Arc<dyn Telemetry>,
    clock: Clock,
    chance: Chance,
    settings: Settings,
    mint: IdMint,
    passwords: passwords::Passwords,
    pictures: picture::Pictures,
    compiling: turns::Turns,
    tokens: tokens::Jwts,
    throttle: throttle::Throttle,
    link_quota: throttle::Quota<(UserId, Purpose)>,
    entries: entries::Entries,
    shown: shown::Shown,
    rates: gate::Rates,
    live: live::Live,
    moves: moves::Moves,
    alarms: alarms::Alarms,
    exports: Arc<shares::Shares>,
    streams: Arc<shares::Shares>,
    taking_apart: turns::Turns,
    reading: turns::Turns,
    outbox: Arc<outbox::Outbox>,
    activity: activity::Activity,
    code: code::Code,
    calls: Calls,
    outgoing: outgoing::Outgoing,
    device_notices: device_notices::DeviceNotices,
    usage: usage::Usage,
    notices: notifications::Notices,
    mailer: Mailer,
    templates: letters::Templates,
    deliveries: deliveries::Deliveries,
    /// Becomes true when calls no longer wait for what may come.
    closing: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    supervisor: supervisor::Supervisor,
}

/// What is the matter with a store that is asked whether it is well.
async fn matter(store: &str, asked: impl Future<Output = std::result::Result<(), StoreError>>) -> Option<Fault> {
    match tokio::time::timeout(READY_WITHIN, asked).await {
        Ok(answer) => answer.told().err().map(|_| Fault::new(store, "does not work: the log tells why")),
        Err(_) => Some(Fault::new(store, format!("did not answer within {} s", READY_WITHIN.as_secs()))),
    }
}

impl Hub {
    /// Starts a hub: founds the first administrator if there is no user yet, takes up what the outbox still holds,
    /// and begins the work that goes on beside the calls.
    pub async fn start(parts: Parts) -> Result<Started> {
        let hub = Self::made_of(parts).await?;
        let first_password = hub.found_first_administrator().await?;
        hub.take_up_left_work().await?;
        hub.usage_begins().await?;
        hub.employ_all();
        Ok(Started { hub, first_password })
    }

    async fn made_of(parts: Parts) -> Result<Self> {
        let signing_key = parts.registry.signing_key(parts.chance.bits_256()).await.told()?;
        let now = parts.clock.now();
        let revoked = parts.registry.jwts_revoked(now).await.told()?;
        let inner = Inner {
            passwords: passwords::Passwords::new(),
            pictures: picture::Pictures::new(),
            compiling: entries::compiling(),
            tokens: tokens::Jwts::new(&signing_key, revoked, now),
            throttle: throttle::Throttle::default(),
            link_quota: throttle::Quota::new(LINKS_MAX),
            entries: entries::Entries::new(),
            shown: shown::Shown::new(),
            rates: gate::Rates::new(&parts.settings.rate_limit),
            live: live::Live::new(),
            moves: moves::Moves::new(),
            alarms: alarms::Alarms::new(),
            exports: export::exports(),
            streams: tail::streams(),
            taking_apart: webhook::taking_apart(),
            reading: event_input::reading(),
            outbox: Arc::new(outbox::Outbox::new()),
            activity: activity::Activity::default(),
            code: code::Code::start()?,
            calls: Calls::new(&parts.settings.outgoing_allow).map_err(Error::internal)?,
            outgoing: outgoing::Outgoing::default(),
            device_notices: device_notices::DeviceNotices::default(),
            usage: usage::Usage::new(),
            notices: notifications::Notices::new(),
            templates: letters::Templates::new()?,
            deliveries: deliveries::Deliveries::new(),
            mailer: parts.mailer,
            mint: IdMint::new(),
            closing: watch::Sender::new(false),
            stop: watch::Sender::new(false),
            supervisor: supervisor::Supervisor::new(),
            registry: parts.registry,
            telemetry: parts.telemetry,
            clock: parts.clock,
            chance: parts.chance,
            settings: parts.settings,
        };
        Ok(Hub(Arc::new(inner)))
    }

    /// Begins the work that goes on beside the calls.
    fn employ_all(&self) {
        macro_rules! employ {
            ($($worker:literal: $run:ident),* $(,)?) => {
                $({
                    let hub = self.clone();
                    self.employ($worker, move |shift| hub.clone().$run(shift));
                })*
            };
        }
        employ! {
            "outbox": run_outbox,
            "activity": run_activity,
            "usage": run_usage,
            "retention": run_retention,
            "alarms": run_alarms,
            "calls": run_calls,
            "device_notices": run_device_notices,
            "notices": run_notices,
        }
        self.employ_deliveries();
    }

    /// From here on no call waits for what may come: each answers what there is.
    pub fn end_waits(&self) {
        self.0.closing.send_replace(true);
    }

    /// Finishes the work beside the calls. The stores are the caller's to close.
    pub async fn stop(&self) {
        self.end_waits();
        self.0.stop.send_replace(true);
        self.0.supervisor.end().await;
    }

    /// Work has come to a point where tests of this room may have it panic; elsewhere that is nothing.
    #[cfg(not(test))]
    #[inline(always)]
    fn reaches(&self, _point: &'static str) {}

    /// Tells the time.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Brings what is measured now and then up to date: whoever shows it asks for it.
    pub fn measure(&self) {
        self.0.outbox.measure(&self.0.clock);
    }

    /// How often the code of projects has run since the start.
    pub fn code_runs(&self) -> CodeRuns {
        self.0.code.runs()
    }

    /// What the operator set.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Whether both stores answer, and soon, and all workers come through: what is the matter with each that does not.
    pub async fn ready(&self) -> std::result::Result<(), Vec<Fault>> {
        let (registry, telemetry) = tokio::join!(
            matter("registry", self.0.registry.healthy()),
            matter("telemetry", self.0.telemetry.healthy()),
        );
        let faults: Vec<Fault> = registry.into_iter().chain(telemetry).chain(self.0.supervisor.matters()).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// A new identifier.
    fn new_id(&self) -> isobar_model::ids::EventId {
        let now = self.0.clock.now();
        isobar_model::ids::EventId(self.0.chance.with(|rng| self.0.mint.mint(now, rng)))
    }
}

/// Which part of the organization tree a list looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeQuery {
    /// The organization at its top; none: the caller's.
    pub organization: Option<isobar_model::ids::OrganizationId>,
    /// How far down.
    pub depth: Depth,
}

/// Waits until the hub stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A hub that is gone has stopped too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
