//! The hub: the only crate where things happen. Nothing here knows HTTP.
//!
//! This file is the façade. The verbs that the interface calls are methods of [`Hub`]: those about resources, settings of
//! devices and the webhook stand in the rooms of that name, the others below, where they lead to the room that owns what
//! they need. Each takes the caller and gives an answer or an [`isobar_model::error::Error`].
//!
//! A room owns its state in a struct with private fields and knows only the rooms beneath it; ARCHITECTURE.md has their
//! order, and a test holds it. [`Hub`] wires them.
//!
//! # Errors of all verbs
//! `Unauthenticated` and `Forbidden` (who calls, and its role), `Missing` (what is not there, or out of reach), `Invalid`
//! (what was asked for, fault by fault), `Busy` (a bound is reached, or a store does not answer: another time it may work)
//! and `Internal` (a defect, or damage; the log has the cause). A verb that names a permit asks `access` for it before
//! anything else; `Missing` comes before `Forbidden`. No verb blocks its thread; what is heavy runs where it may.

mod cache;
mod code;
mod config;
mod delivery;
mod env;
mod error;
mod identity;
mod ingest;
mod jobs;
mod metering;
mod outbox;
mod resources;
mod settings;
#[cfg(test)]
mod stage;
mod supervisor;
mod support;
mod webhook;
mod wiring;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use isobar_model::access::{Action, Caller};
use isobar_model::chance::Chance;
use isobar_model::error::{Error, Fault, RateWindow, Result};
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId, UserId};
use isobar_model::time::{Clock, Timestamp};
use isobar_model::user::Login;
use isobar_model::user_input::ResetInput;
use isobar_outlets::mail::Mailer;
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;
use isobar_store::telemetry::Telemetry;

pub use code::CodeRuns;
pub use config::{Config, RateLimits};
pub use identity::authentication::{Accepts, Credentials, DeviceSession, Principal};
pub use identity::authorization::TreeQuery;
pub use identity::board_links::LinkSession;
pub use identity::operator::reset_password;
pub use identity::sessions::Tokens;
pub use ingest::accepted::Accepted;
pub use ingest::event_batch::BatchReport;
pub use ingest::event_input::NO_NAME;
pub use isobar_design::{Effect, Outcome, Produced, TraceStep};
pub use isobar_quota::{TenantShare, TenantShares, WaitPlace, WaitPlaces};
pub use isobar_store::registry::LetterBounds;
pub use isobar_store::registry::NotificationMark;
pub use isobar_store::registry::Png;
pub use isobar_store::registry::sortable;
pub use isobar_store::registry::{ActiveDevices, AlarmField, AlarmFilter, DeviceField, DeviceFilter};
pub use isobar_store::telemetry::{
    Filter, FilterField, HistoryQuery, Operand, Operator, PayloadTime, ValueQuery, ValueSort,
};
pub use resources::alarms::AlarmView;
pub use resources::bucket_rows::{BucketAnswer, BucketRow, BucketRows, FieldRow};
pub use resources::buckets::{
    BucketDevices, BucketFill, BucketRequest, BucketWidth, DEVICES_ALIKE_MAX, DEVICES_APART_MAX,
};
pub use resources::data::{StorageElement, StorageList};
pub use resources::device_creation::CreationOutcome;
pub use resources::device_labels::LabelsOutcome;
pub use resources::device_selection::{DeviceExport, SummaryView};
pub use resources::devices::{DeviceView, LastChoice, LastRead};
pub use resources::dry_runs::DryRun;
pub use resources::event_stream::{StreamScope, StreamWriter};
pub use resources::export::Export;
pub use resources::images::HasImage;
pub use resources::projects::ProjectView;
pub use resources::queue::{QueueBudget, QueueRead};
pub use resources::wall::{WallBoard, WallData, WallDevice, WallFigure, WallTable, WallWidget};
pub use resources::wall_numbers::{WallKnown, WallPoint, WallReading};
pub use settings::bulk::{DefaultsOutcome, DefaultsRefusal, ProjectDefaults, SettingsOutcome};
pub use settings::device::{Declared, DeviceSetting};
pub use supervisor::{Shift, guarded, spawn_guarded, words};
pub use webhook::{Given, PARAMETERS as WEBHOOK_PARAMETERS, Provision, TaskReport, WebhookReport};

use crate::wiring::Rooms;

/// Longest time that a store may take to answer and be ready. Whoever asks has little patience.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
/// The stores, as readiness names them. All else that it names is a worker.
const STORES: [&str; 2] = ["registry", "telemetry"];
/// Shows what readiness says of each store, and of all workers together.
const READY: &str = "isobar_ready";

/// What a hub is made of.
pub struct Parts {
    /// Organizations, users, projects, devices.
    pub registry: Registry,
    /// Events and values.
    pub telemetry: Arc<dyn Telemetry>,
    /// Sends e-mails.
    pub mailer: Mailer,
    /// Tells the time.
    pub clock: Clock,
    /// Makes secrets and identifiers.
    pub chance: Chance,
    /// What the operator configured.
    pub config: Config,
}

/// A hub that has started.
pub struct Started {
    /// The hub.
    pub hub: Hub,
    /// The first administrator's password, when one was made up: to be shown once.
    pub first_password: Option<String>,
}

/// The façade of everything. Clones share one hub.
#[derive(Clone)]
pub struct Hub(Arc<Rooms>);

/// What is the matter with a store that is asked whether it is well.
async fn matter(
    clock: &Clock,
    store: &str,
    asked: impl Future<Output = std::result::Result<(), StoreError>>,
) -> Option<Fault> {
    match clock.timeout(READY_WITHIN, asked).await {
        Ok(answer) => answer.map_err(Error::from).err().map(|_| Fault::new(store, "does not work: the log tells why")),
        Err(_) => Some(Fault::new(store, format!("did not answer within {} s", READY_WITHIN.as_secs()))),
    }
}

/// The life of the hub.
impl Hub {
    /// Starts a hub: founds the first administrator if there is no user yet, takes up what the outbox still holds,
    /// and starts the workers.
    ///
    /// # Errors
    /// A store does not answer, or the configuration cannot be used.
    pub async fn start(parts: Parts) -> Result<Started> {
        let hub = Self::made_of(parts).await?;
        let first_password = hub.found_first_administrator().await?;
        hub.0.delivery.take_up_left_work().await?;
        hub.0.usage.usage_begins().await?;
        hub.employ_all();
        Ok(Started { hub, first_password })
    }

    /// Has a worker work until the hub stops. It is started again whenever it panics, so it keeps nothing for itself that
    /// another one could not find in a store or in the hub; and says whenever it has come through.
    pub fn employ<F>(&self, worker: &'static str, work: impl Fn(Shift) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.supervisor.employ(worker, work);
    }

    /// Has a worker work where this is awaited, until the hub stops; it is started again whenever it panics.
    pub fn keep<W, F>(&self, worker: &'static str, work: W) -> impl Future<Output = ()> + use<W, F>
    where
        W: Fn(Shift) -> F,
        F: Future<Output = ()>,
    {
        self.0.supervisor.keep(worker, work)
    }

    /// From here on no call waits for what may come: each answers what there is.
    pub fn end_waits(&self) {
        self.0.closing.send_replace(true);
    }

    /// Ends all waits, and stops the workers after they have written what they can write soon. The stores are the caller's
    /// to close. Everything that was acknowledged is durable before and after.
    pub async fn stop(&self) {
        self.end_waits();
        self.0.supervisor.stop().await;
    }

    /// Tells the time.
    pub fn clock(&self) -> &Clock {
        self.0.env.clock()
    }

    /// When the hub was started.
    pub fn started_at(&self) -> Timestamp {
        self.0.started_at
    }

    /// Returns true if e-mails go out, and do not become files.
    pub fn sends_email(&self) -> bool {
        self.0.delivery.sends_email()
    }

    /// What the operator configured.
    pub fn config(&self) -> &Config {
        self.0.env.config()
    }

    /// Brings the gauges up to date that are measured now and then: whoever shows metrics calls this before. It asks both
    /// stores whether they work, and waits as long for them as [`Hub::ready`].
    pub async fn measure(&self) {
        self.0.outbox.measure(self.0.env.clock());
        self.0.caches.measure();
        let faults = self.ready().await.err().unwrap_or_default();
        for store in STORES {
            let works = faults.iter().all(|fault| fault.field != store);
            metrics::gauge!(READY, "part" => store).set(f64::from(works));
        }
        let all_work = faults.iter().all(|fault| STORES.contains(&fault.field.as_str()));
        metrics::gauge!(READY, "part" => "workers").set(f64::from(all_work));
    }

    /// How often the code of projects has run since the start.
    pub fn code_runs(&self) -> CodeRuns {
        self.0.code.runs()
    }

    /// Whether both stores answer within two seconds each, and all workers come through.
    ///
    /// # Errors
    /// What is the matter with each store and worker for which that is not so.
    pub async fn ready(&self) -> std::result::Result<(), Vec<Fault>> {
        let clock = self.0.env.clock();
        let [registry, telemetry] = STORES;
        let (registry, telemetry) = tokio::join!(
            matter(clock, registry, self.registry().healthy()),
            matter(clock, telemetry, self.telemetry().healthy()),
        );
        let faults: Vec<Fault> = registry.into_iter().chain(telemetry).chain(self.0.supervisor.matters()).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// Who calls, how often, and what it may do.
impl Hub {
    /// Finds out who calls. A credential that the operation does not accept is as good as none.
    ///
    /// # Errors
    /// `Unauthenticated` where there is no good credential of a kind that `accepts` names; `Busy` where the registry had to
    /// be asked and did not answer.
    pub fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials<'a>,
        accepts: Accepts,
    ) -> impl Future<Output = Result<Principal>> + Send + 'a {
        self.0.identity.authenticate(credentials, accepts)
    }

    /// Counts a call in the window (one minute) of its user, its device, its link, or its address. None: that limit is off.
    ///
    /// # Errors
    /// `RateLimited`, with the window, when it is spent.
    pub fn count_call(&self, principal: &Principal, address: IpAddr) -> Result<Option<RateWindow>> {
        self.0.identity.count_call(principal, address)
    }

    /// Counts a call with bad credentials; true: there were so many from its address that its connection should end.
    pub fn count_refused(&self, address: IpAddr) -> bool {
        self.0.identity.count_refused(address)
    }

    /// Whether the caller's role is high enough for an action that names no thing yet.
    ///
    /// # Errors
    /// `Forbidden`.
    pub async fn allow(&self, caller: &Caller, action: Action) -> Result<()> {
        self.0.identity.allow(caller, action).await
    }

    /// Whether a user or a device may do something with a device.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_device(&self, principal: &Principal, id: DeviceId, action: Action) -> Result<()> {
        self.0.identity.device_write(principal, id, action).await.map(|_| ())
    }

    /// Whether the caller may do something with a project.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_project(&self, caller: &Caller, id: ProjectId, action: Action) -> Result<()> {
        match action {
            Action::ProjectRead => self.0.identity.project_read(caller, id).await.map(|_| ()),
            _ => self.0.identity.project_write(caller, id, action).await.map(|_| ()),
        }
    }

    /// Whether the caller may do something with an organization.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_organization(&self, caller: &Caller, id: OrganizationId, action: Action) -> Result<()> {
        self.0.identity.organization_write(caller, id, action).await.map(|_| ())
    }

    /// Whether the caller may do something with a user.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_user(&self, caller: &Caller, id: UserId, action: Action) -> Result<()> {
        self.0.identity.user_write(caller, id, action).await.map(|_| ())
    }

    /// Logs a user in by username or e-mail address, and opens a session. The session is durable when this returns. Takes
    /// tens of milliseconds for the hash, and waits for a slot among the hashes.
    ///
    /// # Errors
    /// `Unauthenticated`: an unknown account and a wrong password look the same. `Throttled` after too many failures.
    pub async fn session_login(&self, login: Login, address: IpAddr) -> Result<Tokens> {
        self.0.identity.session_login(login, address).await
    }

    /// A new access token for a refresh token. The refresh token's own end stays where it was.
    ///
    /// # Errors
    /// `Unauthenticated`.
    pub async fn session_refresh(&self, credentials: &Credentials<'_>) -> Result<Tokens> {
        self.0.identity.session_refresh(credentials).await
    }

    /// Whether a refresh token would be good at this moment.
    ///
    /// # Errors
    /// `Unauthenticated`.
    pub async fn allow_refresh(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.0.identity.allow_refresh(credentials).await
    }

    /// Whether there is anything that a logout would end.
    ///
    /// # Errors
    /// `Unauthenticated`.
    pub async fn allow_logout(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.0.identity.allow_logout(credentials).await
    }

    /// Revokes each token that it is given, durably: the jwt at once, the refresh token for good.
    ///
    /// # Errors
    /// `Unauthenticated`: a bad token beside a good one is a bad one.
    pub async fn session_logout(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.0.identity.session_logout(credentials).await
    }

    /// Verifies the e-mail address that a link was sent to, durably; where its reader goes from here.
    ///
    /// # Errors
    /// `Missing`: the link is unknown, used up or too old.
    pub async fn user_verify(&self, nonce: &str) -> Result<String> {
        self.0.identity.user_verify(nonce).await
    }

    /// Where such a link leads, for one who looks and does not follow it: that is no use of it.
    ///
    /// # Errors
    /// `Missing`: the link is unknown, used up or too old.
    pub async fn verification_look(&self, nonce: &str) -> Result<String> {
        self.0.identity.verification_look(nonce).await
    }

    /// Returns where somebody is led whose link to verify an address holds no more.
    pub fn unverified_place(&self) -> String {
        self.0.identity.unverified_place()
    }

    /// Sends another link to verify an account's address; the older one ends. It is durable that the e-mail will be sent.
    /// Nothing is done where the address is verified.
    ///
    /// # Errors
    /// `Missing`: there is no such account.
    pub async fn verification_send(&self, name: &str) -> Result<()> {
        self.0.identity.verification_send(name).await
    }

    /// Sends a link to set a new password; an older one ends. It is durable that the e-mail will be sent.
    ///
    /// # Errors
    /// `Missing`: there is no such account.
    pub async fn reset_send(&self, name: &str) -> Result<()> {
        self.0.identity.reset_send(name).await
    }

    /// Sets a new password by what a link carried, durably. Every session of the user ends. Waits for a slot among the
    /// hashes.
    ///
    /// # Errors
    /// `Invalid`: the link is unknown, used up or too old.
    pub async fn password_reset(&self, input: ResetInput, address: IpAddr) -> Result<()> {
        self.0.identity.password_reset(input, address).await
    }
}

/// The main road.
impl Hub {
    /// Accepts an event of a device: its design has run when this returns, and the event is durable and in history, with all
    /// that it has caused, when [`Accepted::durable`] returns. A device posts its own events; a user needs the permit
    /// `DeviceEventCreate` (role and reach). What may take long runs on other threads, in its project's queue.
    ///
    /// # Errors
    /// `Invalid`: all faults of the request, an unknown device among them. `Busy`: too many runs of the project wait, the
    /// outbox is full, or the store takes nothing; then nothing has happened.
    pub fn event_accept<'a>(
        &'a self,
        principal: &'a Principal,
        device: Option<&'a str>,
        element: Option<&'a str>,
        body: Bytes,
        idempotency_key: Option<&'a str>,
    ) -> impl Future<Output = Result<Accepted>> + Send + 'a {
        self.0.ingest.event_accept(principal, device, element, body, idempotency_key)
    }

    /// Whether the caller may post events at all.
    ///
    /// # Errors
    /// `Forbidden`.
    pub async fn allow_batch(&self, principal: &Principal) -> Result<()> {
        self.0.ingest.allow_batch(principal).await
    }

    /// Accepts many events, as [`Hub::event_accept`] accepts one: those of a device in their order, devices side by side. What
    /// is wrong with one is told beside what came of the others; all that is accepted is durable when this returns. The body
    /// counts, beside the call by which it came, as one call for every further started hundred of its events.
    ///
    /// # Errors
    /// `Invalid`: the body is no batch. `RateLimited`: the window has no room for the whole batch; nothing has happened.
    /// `Busy`, or the defect: the tenant's batches hold as much memory as they may, or the stores took nothing at all.
    pub async fn events_accept(&self, principal: &Principal, body: Bytes) -> Result<BatchReport> {
        self.0.ingest.events_accept(principal, body).await
    }

    /// Reads a body of so many bytes: a long one on a thread that may block, in a slot of the tenant that it
    /// comes from.
    ///
    /// # Errors
    /// `Busy`: too many long bodies wait for a slot.
    pub async fn body_read<T: Send + 'static>(
        &self,
        tenant: Option<OrganizationId>,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.0.env.bodies().read(tenant, bytes, read).await
    }

    /// What is wrong with the parameters of an event whose body was found wrong already.
    ///
    /// # Errors
    /// `Invalid`: all faults of the parameters.
    pub async fn event_parameters(
        &self,
        principal: &Principal,
        device: Option<&str>,
        element: Option<&str>,
    ) -> Result<()> {
        self.0.ingest.event_parameters(principal, device, element).await
    }
}
