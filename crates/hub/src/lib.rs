//! The hub: the only crate that changes the platform's state. It does not depend on HTTP.
//!
//! This file is the façade. The operations of the interface are methods of [`Hub`]: those on resources, settings of
//! devices and the webhook are in the modules of that name, the others below, which call the module that owns their
//! state. Each takes the caller and returns an answer or an [`isobar_model::error::Error`].
//!
//! A module owns its state in a struct with private fields and depends only on the modules beneath it; ARCHITECTURE.md
//! has their order, and a test checks it. [`Hub`] wires them.
//!
//! # Errors of all operations
//! `Unauthenticated` and `Forbidden` (the caller and its role), `Missing` (the resource does not exist, or is out of
//! reach), `Invalid` (the request, fault by fault), `Busy` (a limit is reached, or a store does not answer: a later
//! call may succeed) and `Internal` (a defect, or damage; the log has the cause). An operation that names a permit asks
//! `access` for it before anything else; `Missing` comes before `Forbidden`. No operation blocks its thread; heavy work
//! runs on threads for it.

mod cache;
mod config;
mod delivery;
mod designs;
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
#[path = "../tests/stage/mod.rs"]
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
use isobar_model::error::{RateWindow, Result};
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId, UserId};
use isobar_model::time::{Clock, Timestamp};
use isobar_model::user::Login;
use isobar_model::user_input::ResetInput;
use isobar_outlets::mail::Mailer;
use isobar_store::registry::Registry;
use isobar_store::telemetry::Telemetry;

pub use config::{Config, RateLimits};
pub use designs::DesignCounts;
pub use env::CLOCK_DIFFERS_MAX;
pub use identity::authentication::{Accepts, Credentials, DeviceSession, Principal};
pub use identity::authorization::TreeQuery;
pub use identity::board_links::LinkSession;
pub use identity::operator::reset_password;
pub use identity::sessions::Tokens;
pub use ingest::accepted::Accepted;
pub use ingest::event_batch::BatchReport;
pub use ingest::event_input::NO_NAME;
pub use isobar_design::{Effect, Outcome, Produced, TraceStep};
pub use isobar_quota::{TenantShare, TenantShares, UNLIMITED, WaitPlace, WaitPlaces, limits};
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
pub use resources::platform::{PlatformNode, PlatformState};
pub use resources::projects::ProjectView;
pub use resources::queue::{QueueBudget, QueueRead};
pub use resources::readiness::DatabaseState;
pub use resources::stream_start::ResumeAfter;
pub use resources::wall::{WallBoard, WallData, WallDevice, WallFigure, WallTable, WallWidget};
pub use resources::wall_numbers::{WallKnown, WallPoint, WallReading};
pub use settings::bulk::{DefaultsOutcome, DefaultsRefusal, ProjectDefaults, SettingsOutcome};
pub use settings::device::{Declared, DeviceSetting};
pub use supervisor::{Shift, guarded, spawn_guarded, words};
pub use webhook::{Given, PARAMETERS as WEBHOOK_PARAMETERS, Provision, TaskReport, WebhookReport};

use crate::wiring::Rooms;

/// The parts that a hub is made of.
pub struct Parts {
    /// The store of organizations, users, projects and devices.
    pub registry: Registry,
    /// The store of events and values.
    pub telemetry: Arc<dyn Telemetry>,
    /// Sends e-mails.
    pub mailer: Mailer,
    /// The clock.
    pub clock: Clock,
    /// Makes secrets and identifiers.
    pub chance: Chance,
    /// The configuration.
    pub config: Config,
}

/// A hub that has started.
pub struct Started {
    /// The hub.
    pub hub: Hub,
    /// The first administrator's password, if one was generated: to be shown once.
    pub first_password: Option<String>,
}

/// The façade of all modules. Clones share one hub.
#[derive(Clone)]
pub struct Hub(Arc<Rooms>);

/// Starting, stopping and supervising the hub.
impl Hub {
    /// Starts a hub: creates the first administrator if there is no user yet, loads the entries left in the outbox, and
    /// starts the workers.
    ///
    /// # Errors
    /// Returns an error if a store does not answer, or the configuration cannot be used.
    pub async fn start(parts: Parts) -> Result<Started> {
        let hub = Self::made_of(parts).await?;
        hub.0.jobs.compare_clock().await?;
        let first_password = hub.found_first_administrator().await?;
        hub.0.delivery.take_up_left_work().await?;
        hub.0.usage.usage_begins().await?;
        hub.employ_all();
        Ok(Started { hub, first_password })
    }

    /// Runs a worker until the hub stops. It is restarted after each panic, so it has no state that is not in a store
    /// or in the hub; and it reports each completed round.
    pub fn employ<F>(&self, worker: &'static str, work: impl Fn(Shift) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.supervisor.employ(worker, work);
    }

    /// Runs a worker in the task that awaits this, until the hub stops; it is restarted after each panic.
    pub fn keep<W, F>(&self, worker: &'static str, work: W) -> impl Future<Output = ()> + use<W, F>
    where
        W: Fn(Shift) -> F,
        F: Future<Output = ()>,
    {
        self.0.supervisor.keep(worker, work)
    }

    /// Ends all long polls: each returns what is there.
    pub fn end_waits(&self) {
        self.0.closing.send_replace(true);
    }

    /// Ends all waits, and stops the workers after they have written what they can within a short time. The caller must
    /// close the stores. Everything that was acknowledged is durable before and after.
    pub async fn stop(&self) {
        self.end_waits();
        self.0.supervisor.stop().await;
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        self.0.env.clock()
    }

    /// Returns the time at which the hub was started.
    pub fn started_at(&self) -> Timestamp {
        self.0.started_at
    }

    /// Returns true if e-mails are sent, and not written to files.
    pub fn sends_email(&self) -> bool {
        self.0.delivery.sends_email()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        self.0.env.config()
    }

    /// Returns the counters of the runs of designs since the start.
    pub fn design_counts(&self) -> DesignCounts {
        self.0.designs.counts()
    }
}

/// Authentication, rate limits and authorization.
impl Hub {
    /// Finds the caller. A credential that the operation does not accept counts as none.
    ///
    /// # Errors
    /// `Unauthenticated`: there is no valid credential of a kind that `accepts` names. `Busy`: the registry was needed
    /// and did not answer.
    pub fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials<'a>,
        accepts: Accepts,
    ) -> impl Future<Output = Result<Principal>> + Send + 'a {
        self.0.identity.authenticate(credentials, accepts)
    }

    /// Counts a call in the window (one minute) of its user, device, link or address; returns `None` if that limit is
    /// off.
    ///
    /// # Errors
    /// `RateLimited`, with the window, if it is used up.
    pub fn count_call(&self, principal: &Principal, address: IpAddr) -> Result<Option<RateWindow>> {
        self.0.identity.count_call(principal, address)
    }

    /// Counts a call with bad credentials; returns true if its address has sent so many that the connection should be
    /// closed.
    pub fn count_refused(&self, address: IpAddr) -> bool {
        self.0.identity.count_refused(address)
    }

    /// Checks that the caller's role is high enough for an action, before the resource is known.
    ///
    /// # Errors
    /// `Forbidden`: the role is too low.
    pub async fn allow(&self, caller: &Caller, action: Action) -> Result<()> {
        self.0.identity.allow(caller, action).await
    }

    /// Checks that a user or a device may perform an action on a device.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_device(&self, principal: &Principal, id: DeviceId, action: Action) -> Result<()> {
        self.0.identity.device_write(principal, id, action).await.map(|_| ())
    }

    /// Checks that the caller may perform an action on a project.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_project(&self, caller: &Caller, id: ProjectId, action: Action) -> Result<()> {
        match action {
            Action::ProjectRead => self.0.identity.project_read(caller, id).await.map(|_| ()),
            _ => self.0.identity.project_write(caller, id, action).await.map(|_| ()),
        }
    }

    /// Checks that the caller may perform an action on an organization.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_organization(&self, caller: &Caller, id: OrganizationId, action: Action) -> Result<()> {
        self.0.identity.organization_write(caller, id, action).await.map(|_| ())
    }

    /// Checks that the caller may perform an action on a user.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_user(&self, caller: &Caller, id: UserId, action: Action) -> Result<()> {
        self.0.identity.user_write(caller, id, action).await.map(|_| ())
    }

    /// Logs a user in by username or e-mail address, and opens a session. The session is durable when this returns.
    /// Takes tens of milliseconds for the hash, and waits for a slot among the hashes.
    ///
    /// # Errors
    /// `Unauthenticated`: an unknown account and a wrong password get the same answer. `Throttled` after too many
    /// failures.
    pub async fn session_login(&self, login: Login, address: IpAddr) -> Result<Tokens> {
        self.0.identity.session_login(login, address).await
    }

    /// Issues a new access token for a refresh token, whose own end does not change.
    ///
    /// # Errors
    /// `Unauthenticated`: no refresh token is valid.
    pub async fn session_refresh(&self, credentials: &Credentials<'_>) -> Result<Tokens> {
        self.0.identity.session_refresh(credentials).await
    }

    /// Checks that a refresh token is valid now.
    ///
    /// # Errors
    /// `Unauthenticated`: none is valid.
    pub async fn allow_refresh(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.0.identity.allow_refresh(credentials).await
    }

    /// Checks that a logout would end something.
    ///
    /// # Errors
    /// `Unauthenticated`: there is nothing to end.
    pub async fn allow_logout(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.0.identity.allow_logout(credentials).await
    }

    /// Revokes the tokens of the call, durably: the JWT at once, the refresh token for good.
    ///
    /// # Errors
    /// `Unauthenticated`: an invalid JWT fails the call, even with a valid refresh token.
    pub async fn session_logout(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.0.identity.session_logout(credentials).await
    }

    /// Verifies the e-mail address that a link was sent to, durably; returns the page to redirect to.
    ///
    /// # Errors
    /// `Missing`: the link is unknown, used up or too old.
    pub async fn user_verify(&self, nonce: &str) -> Result<String> {
        self.0.identity.user_verify(nonce).await
    }

    /// Returns the page that a verification link redirects to without using the link up, for HEAD requests.
    ///
    /// # Errors
    /// `Missing`: the link is unknown, used up or too old.
    pub async fn verification_look(&self, nonce: &str) -> Result<String> {
        self.0.identity.verification_look(nonce).await
    }

    /// Returns the page to redirect to if a verification link is not valid any more.
    pub fn unverified_place(&self) -> String {
        self.0.identity.unverified_place()
    }

    /// Sends another link to verify an account's address; the older one ends. The e-mail is durably queued when this
    /// returns. A verified address gets no link.
    ///
    /// # Errors
    /// `Missing`: there is no such account.
    pub async fn verification_send(&self, name: &str) -> Result<()> {
        self.0.identity.verification_send(name).await
    }

    /// Sends a link to set a new password; an older one ends. The e-mail is durably queued when this returns.
    ///
    /// # Errors
    /// `Missing`: there is no such account.
    pub async fn reset_send(&self, name: &str) -> Result<()> {
        self.0.identity.reset_send(name).await
    }

    /// Sets a new password with a link's token, durably. All sessions of the user end. Waits for a slot among the
    /// hashes.
    ///
    /// # Errors
    /// `Invalid`: the link is unknown, used up or too old.
    pub async fn password_reset(&self, input: ResetInput, address: IpAddr) -> Result<()> {
        self.0.identity.password_reset(input, address).await
    }
}

/// Events from devices.
impl Hub {
    /// Accepts an event of a device: its design has run when this returns, and the event is durable and in history,
    /// with all its effects, when [`Accepted::durable`] returns. A device posts its own events; a user needs the permit
    /// `DeviceEventCreate` (role and reach). Runs that may take long run in a pool of other threads.
    ///
    /// # Errors
    /// `Invalid`: all faults of the request, including an unknown device. `Busy`: too many runs of the project wait,
    /// the outbox is full, or the store accepts nothing; the event had no effect.
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

    /// Checks that the caller may post events at all.
    ///
    /// # Errors
    /// `Forbidden`: the role is too low.
    pub async fn allow_batch(&self, principal: &Principal) -> Result<()> {
        self.0.ingest.allow_batch(principal).await
    }

    /// Accepts many events, as [`Hub::event_accept`] accepts one: those of a device in their order, devices
    /// concurrently. Faults of single events are reported next to the results of the others; all accepted events are
    /// durable when this returns. The body counts, besides its own call, as one call for every further started hundred
    /// of its events.
    ///
    /// # Errors
    /// `Invalid`: the body is not a batch. `RateLimited`: the window has no room for the whole batch, which had no
    /// effect. `Busy`, or the defect: the tenant's batches use all the memory they may, or the stores accepted nothing
    /// at all.
    pub async fn events_accept(&self, principal: &Principal, body: Bytes) -> Result<BatchReport> {
        self.0.ingest.events_accept(principal, body).await
    }

    /// Reads a body of this size: a long one on a thread that may block, in a slot of its tenant.
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

    /// Finds the faults in the parameters of an event whose body is already known to be invalid.
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
