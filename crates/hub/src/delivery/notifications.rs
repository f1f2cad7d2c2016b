//! Delivers notifications. A notice is first stored durably, once; then it is spread to its recipients in parts, so
//! that one for ten thousand users does not block other writers of the registry. A notice left half-spread by a crash
//! is finished at the next start.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::access;
use isobar_model::error::Result;
use isobar_model::ids::{DeviceId, NotificationId, UserId};
pub(crate) use isobar_model::notification::{Audience, Notice};
use isobar_model::notification::{MESSAGE_MAX, NotificationKind};
use isobar_model::preferences::Preferences;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::registry::{SpreadStep, Spreading};
use metrics::Counter;
use tokio::sync::Notify;

use super::Delivery;
use super::emails::Email;
use crate::supervisor::{Shift, TRIES_MAX, Tries};

/// Recipients that one step spreads a notice to.
const SPREAD_AT_ONCE: u32 = 500;
/// Interval at which notices are looked for that another process has left half-spread.
const LEFT_NOTICES: Duration = Duration::from_secs(5);
/// Pause after a failure of the registry.
const RETRY: Duration = Duration::from_secs(1);
/// Notices removed at a time: more would block other writers of the registry.
const SWEPT_AT_ONCE: u32 = 50;
/// Notices of its own that a user keeps, at most; beyond this the oldest are removed.
const KEPT_MAX: u64 = 100_000;
/// Notices of one user removed at a time.
const TRIMMED_AT_ONCE: u32 = 5_000;

/// The worker's wake-up signal, its attempts, and a counter for each kind of notice.
pub(super) struct Notices {
    wake: Notify,
    tries: Tries<NotificationId>,
    told: [(NotificationKind, Counter); 3],
}

impl Notices {
    pub(super) fn new() -> Self {
        const TOLD: &str = "isobar_notices_total";
        let told = NotificationKind::ALL.map(|kind| (kind, metrics::counter!(TOLD, "kind" => kind.name())));
        Self { wake: Notify::new(), tries: Tries::new(), told }
    }

    fn count(&self, kind: NotificationKind) {
        self.told.iter().filter(|(told, _)| *told == kind).for_each(|(_, counter)| counter.increment(1));
    }
}

impl Delivery {
    /// Notifies users durably. The recipients and the channels that they prefer are settled now. A notice with the same
    /// identifier again creates nothing, but finishes spreading the first one.
    pub(crate) async fn notify(&self, mut notice: Notice) -> Result<()> {
        if let Some((end, _)) = notice.message.char_indices().nth(MESSAGE_MAX) {
            notice.message.truncate(end);
        }
        let (id, kind, to) = (notice.id, notice.kind, notice.to);
        let permit = access::system(notice, "a notice is kept for those whom it is for");
        if self.env.registry().notice_create(&permit).await? {
            self.notices.count(kind);
        }
        if to == Audience::Everybody {
            // The notice appears to all users at once; the loop over those who want an e-mail may take its time.
            self.notices.wake.notify_one();
            return Ok(());
        }
        let mut spreading = self.env.registry().notice_spreading(id).await?;
        while let Some(part) = spreading {
            spreading = self.spread(part).await?;
        }
        Ok(())
    }

    /// Spreads notices for all users, and those that an earlier process left unfinished.
    pub(crate) async fn run_notices(self: Arc<Self>, mut shift: Shift) {
        loop {
            self.env.reaches("notices");
            let next = self.spread_next().await;
            shift.well();
            match next {
                Ok(true) if shift.ends() => return,
                Ok(true) => {}
                Ok(false) => tokio::select! {
                    () = self.notices.wake.notified() => {}
                    // Another process may have left one.
                    () = self.env.clock().sleep(LEFT_NOTICES), if self.env.config().has_other_nodes => {}
                    () = shift.end() => return,
                },
                Err(error) => {
                    tracing::warn!(%error, "notices wait for the registry");
                    if shift.pause(RETRY).await {
                        return;
                    }
                }
            }
        }
    }

    /// Spreads the next part of a notice; returns false if there is none.
    pub(crate) async fn spread_next(&self) -> std::result::Result<bool, StoreError> {
        let (registry, tries) = (self.env.registry(), &self.notices.tries);
        let Some(part) = registry.notice_to_spread().await? else { return Ok(false) };
        let id = part.notice.id;
        let spread = if tries.begin(id) < TRIES_MAX {
            self.env.reaches("notice");
            self.spread(part).await
        } else {
            // Later notices wait for this one.
            tracing::error!(%id, "a notice panics whenever it is spread, and is spread no further");
            registry.notice_spread(part, &SpreadStep::default(), self.env.now()).await
        };
        tries.end();
        spread.map(|_| true)
    }

    /// Spreads a notice to its next recipients: a row for each, and e-mails for those who want one, all in one
    /// transaction. Returns the rest of the notice.
    async fn spread(&self, part: Spreading) -> std::result::Result<Option<Spreading>, StoreError> {
        let recipients = self.env.registry().notice_recipients(&part, SPREAD_AT_ONCE).await?;
        let whole = recipients.len() >= SPREAD_AT_ONCE as usize;
        let to = recipients.last().filter(|_| whole).map(|recipient| recipient.id);
        let mut step = SpreadStep { to, ..SpreadStep::default() };
        let (notice, device) = (&part.notice, self.device_name(part.notice.device).await);
        for recipient in &recipients {
            let preferences = Preferences::of(recipient.preferences.as_ref());
            // A notice for all users is visible without a row for each.
            if notice.to != Audience::Everybody && preferences.in_app(notice.kind) {
                step.in_app.push(recipient.id);
            }
            // An unverified address may be a stranger's: text that others wrote is not sent to it.
            if preferences.channels(notice.kind).email && recipient.verified && !recipient.disabled {
                let email = Email::of_notice(notice.kind, notice.message.clone(), device.clone());
                let id = email_id(notice.id, recipient.id);
                step.letters.push(self.notice_letter(id, recipient.id, &recipient.email, email));
            }
        }
        let left = self.env.registry().notice_spread(part, &step, self.env.now()).await?;
        if !step.letters.is_empty() {
            self.wake_mail();
        }
        Ok(left)
    }

    /// Returns the name of the device that a notice concerns, if it still exists.
    async fn device_name(&self, device: Option<DeviceId>) -> Option<String> {
        let entry = self.caches.device_entry(device?).await.ok().flatten()?;
        Some(self.caches.device_view(&entry).await.ok()?.name.clone())
    }

    /// Removes notifications older than the retained history, and a user's oldest beyond the maximum.
    pub(crate) async fn sweep_notices(&self, begins: Timestamp) -> std::result::Result<(), StoreError> {
        let registry = self.env.registry();
        while registry.notices_sweep(begins, SWEPT_AT_ONCE).await? >= u64::from(SWEPT_AT_ONCE) {}
        for user in registry.notices_hoarded(KEPT_MAX).await? {
            let permit = access::system(user, "a user keeps so many notices and no more");
            while registry.notices_trim(&permit, KEPT_MAX, TRIMMED_AT_ONCE).await? >= u64::from(TRIMMED_AT_ONCE) {}
        }
        Ok(())
    }
}

/// Returns the delivery identifier of a notice's e-mail to a user, which detects a repeated delivery.
fn email_id(notice: NotificationId, user: UserId) -> String {
    format!("notice-{notice}-{user}")
}
