//! Delivers the effects of a commit: changes found by designs go into the registry, people are notified, servers are
//! called.
//!
//! Deliveries wait in the registry, so that each is made at least once, even after a crash.

pub(crate) mod alarm_changes;
pub(crate) mod calls;
mod device_lines;
pub(crate) mod device_notices;
pub(crate) mod emails;
mod left_work;
mod mail_queue;
pub(crate) mod notifications;
mod registry_writer;
pub(crate) mod settled_devices;
mod turns;

pub(crate) use self::device_lines::FirstInLine;

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::Calls;
use isobar_outlets::mail::Mailer;
use isobar_store::registry::QueuedDelivery;
use tokio::sync::Notify;

use self::alarm_changes::AlarmChanges;
use self::device_lines::DeviceLines;
use self::device_notices::DeviceNotices;
use self::emails::Templates;
use self::mail_queue::MailQueue;
use self::notifications::Notices;
use crate::cache::Caches;
use crate::env::Env;
use crate::outbox::Outbox;

/// Age in seconds at which a failing delivery is dropped: three days.
const GIVE_UP_SECONDS: i64 = 3 * 24 * 3600;

/// Delivers the effects of calls and designs. The supervisor runs its workers.
pub(crate) struct Delivery {
    env: Arc<Env>,
    outbox: Arc<Outbox>,
    caches: Arc<Caches>,
    mailer: Mailer,
    templates: Templates,
    mail_queue: MailQueue,
    notices: Notices,
    device_notices: DeviceNotices,
    alarm_changes: AlarmChanges,
    /// Makes HTTP calls.
    calls: Calls,
    /// Wakes the worker after calls were put into the registry.
    calls_wake: Notify,
    /// Ensures that only one task at a time writes the outbox into the registry.
    registry_writing: tokio::sync::Mutex<()>,
    /// Lines of those who change a device's row next, or run it by a new entry.
    lines: DeviceLines,
    /// Locked for writing while entries of the outbox are being removed from the store, and for reading while some are taken over.
    removing: tokio::sync::RwLock<()>,
}

impl Delivery {
    pub(crate) fn new(env: Arc<Env>, outbox: Arc<Outbox>, caches: Arc<Caches>, mailer: Mailer) -> Result<Self> {
        let calls = Calls::new(&env.config().outgoing_allow).map_err(Error::internal)?;
        Ok(Self {
            env,
            outbox,
            caches,
            mailer,
            templates: Templates::new()?,
            mail_queue: MailQueue::default(),
            notices: Notices::new(),
            device_notices: DeviceNotices::default(),
            alarm_changes: AlarmChanges::new(),
            calls,
            calls_wake: Notify::new(),
            registry_writing: tokio::sync::Mutex::new(()),
            lines: DeviceLines::default(),
            removing: tokio::sync::RwLock::new(()),
        })
    }

    /// Returns the broadcast of changed alarms.
    pub(crate) fn alarm_changes(&self) -> &AlarmChanges {
        &self.alarm_changes
    }

    /// Returns true if the operator has configured a server for outgoing e-mails.
    pub(crate) fn sends_email(&self) -> bool {
        self.mailer.reaches_people()
    }

    /// Wakes the worker after e-mails were put into the registry.
    pub(crate) fn wake_mail(&self) {
        self.mail_queue.wake.notify_one();
    }
}

/// Returns true if a failing delivery is too old to be retried.
fn is_too_old(delivery: &QueuedDelivery, now: Timestamp) -> bool {
    now >= delivery.created_at.plus_seconds(GIVE_UP_SECONDS)
}
