//! What designs have to say to people. A notice waits in the registry until it was given out, and is given out once.

use std::time::Duration;

use futures::StreamExt as _;
use isobar_model::error::Result;
use isobar_model::ids::{DeviceId, DeviceRef, EventId, NotificationId, OrganizationId};
use isobar_model::notification::NotificationKind;
use isobar_model::role::Role;
use isobar_store::error::StoreError;
use isobar_store::registry::{Delivery, LimitedDelivery, NewDelivery};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::error::Told as _;
use crate::notifications::{Audience, Notice};
use crate::supervisor::{Shift, guarded};
use crate::{Hub, deliveries};

/// What notices are among the deliveries.
const KIND: &str = "notice";
/// How often it is looked for notices that could not be given out.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Notices taken at a time, and those given out at the same time.
const BATCH: usize = 64;
const AT_ONCE: usize = 4;
/// Notices of one device that wait; beyond, the newest are dropped, and counted in /metrics.
const WAITING_MAX: usize = 100;
/// A notice that could not be given out is tried again after so many seconds.
const RETRY_SECONDS: i64 = 5;
const DROPPED: &str = "isobar_device_notices_dropped_total";

/// A notice that a run asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NoticeWork {
    pub event: EventId,
    pub element: String,
    pub message: String,
    pub minimum_role: Role,
    pub organization: OrganizationId,
}

/// A notice that waits.
#[derive(Serialize, Deserialize)]
struct Waiting {
    id: NotificationId,
    device: DeviceId,
    notice: NoticeWork,
}

/// Tells the worker.
#[derive(Default)]
pub(crate) struct DeviceNotices {
    wake: Notify,
}

impl NoticeWork {
    /// The delivery that it becomes, by its place among those of its run.
    pub(crate) fn asked(&self, device: DeviceRef, ordinal: usize) -> Option<LimitedDelivery> {
        let source = format!("{KIND}:{}:", device.id);
        let (event, ordinal) = (self.event.to_string(), ordinal.to_string());
        let id = NotificationId::derived(self.event.minted_at(), &[&event, &self.element, &ordinal]);
        let body = serde_json::to_string(&Waiting { id, device: device.id, notice: self.clone() }).ok()?;
        let delivery = NewDelivery { id: format!("{source}{event}:{ordinal}"), kind: KIND, body, lane: None };
        Some(LimitedDelivery { delivery, source, most: WAITING_MAX })
    }
}

impl Hub {
    /// Notices wait in the registry, but for those that were dropped because too many of their device wait.
    pub(crate) fn notices_were_put(&self, dropped: usize) {
        if dropped > 0 {
            metrics::counter!(DROPPED).increment(dropped as u64);
            tracing::warn!(dropped, "notices of designs are dropped: too many wait");
        }
        self.0.device_notices.wake.notify_one();
    }

    /// Gives notices out as they come.
    pub(crate) async fn run_device_notices(self, mut shift: Shift) {
        loop {
            self.reaches("device_notices");
            let more = self.give_notices_out().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "notices of designs wait for the registry");
                false
            });
            shift.well();
            if more && !shift.ends() {
                continue;
            }
            tokio::select! {
                () = shift.end() => return,
                () = self.0.device_notices.wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Gives out what is due; whether there may be more.
    async fn give_notices_out(&self) -> Result<bool> {
        let due = self.0.registry.deliveries_due(KIND, self.0.clock.now(), BATCH).await.told()?;
        let more = due.len() == BATCH;
        let give_out = |waiting: Delivery| async move {
            match guarded("device_notice", self.give_notice_out(&waiting)).await {
                Some(given) => given,
                None => self.notice_panicked(&waiting).await.told(),
            }
        };
        let mut given = futures::stream::iter(due).map(give_out).buffer_unordered(AT_ONCE);
        while let Some(given) = given.next().await {
            given?;
        }
        Ok(more)
    }

    /// It is tried again, later each time, and given up when it has become too old.
    async fn notice_panicked(&self, delivery: &Delivery) -> std::result::Result<(), StoreError> {
        let (registry, now) = (&self.0.registry, self.0.clock.now());
        if deliveries::is_too_old(delivery, now) {
            tracing::error!(id = delivery.id, "a notice of a device is given up");
            return registry.delivery_done(&delivery.id).await;
        }
        let attempts = delivery.attempts.saturating_add(1);
        registry.delivery_failed(&delivery.id, attempts, self.due_again(attempts, now)).await
    }

    async fn give_notice_out(&self, delivery: &Delivery) -> Result<()> {
        self.reaches("device_notice");
        let registry = &self.0.registry;
        let Ok(Waiting { id, device, notice }) = serde_json::from_str(&delivery.body) else {
            tracing::error!(id = delivery.id, "a notice cannot be read and is dropped");
            return registry.delivery_done(&delivery.id).await.told();
        };
        let to = Audience::Organization { id: notice.organization, minimum_role: notice.minimum_role };
        let (kind, at) = (NotificationKind::Device, notice.event.minted_at());
        match self.notify(Notice { id, kind, to, message: notice.message, device: Some(device), at }).await {
            // An organization that is gone has nobody who could be told.
            Ok(()) | Err(isobar_model::error::Error::Missing(_)) => registry.delivery_done(&delivery.id).await.told(),
            Err(error) => {
                tracing::warn!(%error, %device, "a notice of a device is given out later");
                let due_at = self.0.clock.now().plus_seconds(RETRY_SECONDS);
                registry.delivery_failed(&delivery.id, delivery.attempts.saturating_add(1), due_at).await.told()
            }
        }
    }
}
