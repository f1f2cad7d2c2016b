//! What happens after a commit: what designs found out goes into the registry, people are told, servers are called.
//!
//! What is to be delivered waits in the registry, so that it is made at least once, whatever crashes when.

pub(crate) mod alarm_changes;
pub(crate) mod calls;
pub(crate) mod device_notices;
pub(crate) mod emails;
mod mail_queue;
pub(crate) mod notifications;
mod registry_writer;
mod turns;

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::Calls;
use isobar_outlets::mail::Mailer;
use isobar_store::registry::QueuedDelivery;
use tokio::sync::Notify;

use self::alarm_changes::AlarmChanges;
use self::device_notices::DeviceNotices;
use self::emails::Templates;
use self::mail_queue::MailQueue;
use self::notifications::Notices;
use crate::cache::Caches;
use crate::env::Env;
use crate::outbox::Outbox;

/// After this many seconds a delivery that still fails is given up: three days.
const GIVE_UP_SECONDS: i64 = 3 * 24 * 3600;

/// Delivers what calls and designs have caused. Its workers are the supervisor's to run.
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
    /// Tells the worker that calls were put into the registry.
    calls_wake: Notify,
    /// Only one task at a time writes what the outbox holds.
    registry_writing: tokio::sync::Mutex<()>,
    /// Held while entries of the outbox are on their way out of the store.
    removing: tokio::sync::Mutex<()>,
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
            removing: tokio::sync::Mutex::new(()),
        })
    }

    /// Alarms as they change.
    pub(crate) fn alarm_changes(&self) -> &AlarmChanges {
        &self.alarm_changes
    }

    /// Returns true if the operator has set a server that e-mails go out by.
    pub(crate) fn sends_email(&self) -> bool {
        self.mailer.reaches_people()
    }

    /// E-mails were put into the registry: the worker looks for them now.
    pub(crate) fn wake_mail(&self) {
        self.mail_queue.wake.notify_one();
    }
}

/// Whether a delivery that still fails is given up.
fn is_too_old(delivery: &QueuedDelivery, now: Timestamp) -> bool {
    now >= delivery.created_at.plus_seconds(GIVE_UP_SECONDS)
}
