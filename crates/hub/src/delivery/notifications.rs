//! Notifications. A notice is kept first, durably and once; then it is spread to those whom it is for, a part at a time,
//! so that one for ten thousand users holds the registry's writer from nobody. What a crash leaves half-spread is
//! finished at the next start.

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

/// Recipients that a notice is spread to at a time.
const SPREAD_AT_ONCE: u32 = 500;
/// Pause after a failure of the registry.
const RETRY: Duration = Duration::from_secs(1);
/// Notices removed at a time: more would hold the registry's writer from others.
const SWEPT_AT_ONCE: u32 = 50;
/// Most notices of its own that a user keeps; beyond, the oldest go.
const KEPT_MAX: u64 = 100_000;
/// Notices of one user removed at a time.
const TRIMMED_AT_ONCE: u32 = 5_000;

/// What the worker is told, and what it has tried.
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
    /// Tells users something, durably. Whom it is for, and by what their preferences let it come, is settled now.
    /// The same identifier again changes nothing, but finishes what was begun.
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
            // It appears at once, to all; the walk through those who want an e-mail may take its time.
            self.notices.wake.notify_one();
            return Ok(());
        }
        let mut spreading = self.env.registry().notice_spreading(id).await?;
        while let Some(part) = spreading {
            spreading = self.spread(part).await?;
        }
        Ok(())
    }

    /// Spreads notices that are for everybody, and what an earlier process left.
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

    /// Spreads the next part of a notice; false: there is none.
    pub(crate) async fn spread_next(&self) -> std::result::Result<bool, StoreError> {
        let (registry, tries) = (self.env.registry(), &self.notices.tries);
        let Some(part) = registry.notice_to_spread().await? else { return Ok(false) };
        let id = part.notice.id;
        let spread = if tries.begin(id) < TRIES_MAX {
            self.env.reaches("notice");
            self.spread(part).await
        } else {
            // The others wait behind it.
            tracing::error!(%id, "a notice panics whenever it is spread, and is spread no further");
            registry.notice_spread(part, &SpreadStep::default(), self.env.now()).await
        };
        tries.end();
        spread.map(|_| true)
    }

    /// Spreads a notice to its next recipients: a row for each of them, and e-mails for those who want one, all or none.
    /// What is left of it then.
    async fn spread(&self, part: Spreading) -> std::result::Result<Option<Spreading>, StoreError> {
        let recipients = self.env.registry().notice_recipients(&part, SPREAD_AT_ONCE).await?;
        let whole = recipients.len() >= SPREAD_AT_ONCE as usize;
        let to = recipients.last().filter(|_| whole).map(|recipient| recipient.id);
        let mut step = SpreadStep { to, ..SpreadStep::default() };
        let (notice, device) = (&part.notice, self.device_name(part.notice.device).await);
        for recipient in &recipients {
            let preferences = Preferences::of(recipient.preferences.as_ref());
            // Everybody has it already, without a row for each.
            if notice.to != Audience::Everybody && preferences.in_app(notice.kind) {
                step.in_app.push(recipient.id);
            }
            // To an address that nobody has verified goes nothing that others have written: it may be a stranger's.
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

    /// The name of the device that a notice is about, as long as there is one.
    async fn device_name(&self, device: Option<DeviceId>) -> Option<String> {
        let entry = self.caches.device_entry(device?).await.ok().flatten()?;
        Some(self.caches.device_view(&entry).await.ok()?.name.clone())
    }

    /// Removes notifications of before history begins, and a user's oldest beyond what it may keep.
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

/// The delivery of a notice to a user by e-mail: the same one again is known.
fn email_id(notice: NotificationId, user: UserId) -> String {
    format!("notice-{notice}-{user}")
}
