//! Delivers the notices that designs send to people. A notice waits in the registry until it is delivered, exactly
//! once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use isobar_model::error::Result;
use isobar_model::ids::{DeviceId, DeviceRef, NotificationId, OrganizationId};
use isobar_model::notification::NotificationKind;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeliveryKind, LimitedDelivery, NewDelivery, QueuedDelivery};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::notifications::{Audience, Notice};
use super::turns::Turns;
use super::{Delivery, is_too_old};
use crate::outbox::work::NoticeWork;
use crate::supervisor::{Shift, guarded};

/// Interval at which the registry is asked for notices that could not be delivered.
const NOTICE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Notices taken in one batch, and notices delivered at the same time.
const NOTICES_BATCH: usize = 64;
const NOTICES_AT_ONCE: usize = 4;
/// Pending notices of one device; beyond this the newest are dropped, and counted in /metrics.
const NOTICES_OF_A_DEVICE_MAX: usize = 100;
/// Delay in seconds before a failed notice is retried.
const RETRY_SECONDS: i64 = 5;
const NOTICES_DROPPED: &str = "isobar_device_notices_dropped_total";

/// The worker's wake-up signal, and the turns of the tenants.
pub(super) struct DeviceNotices {
    wake: Notify,
    turns: Turns,
}

impl Default for DeviceNotices {
    fn default() -> Self {
        Self { wake: Notify::new(), turns: Turns::new(DeliveryKind::Notice) }
    }
}

/// A pending notice as it is stored in the registry.
#[derive(Serialize, Deserialize)]
struct QueuedNotice {
    id: NotificationId,
    device: DeviceId,
    notice: NoticeWork,
}

/// Returns the delivery of a notice; `ordinal` is its place among the notices of its run.
pub(super) fn delivery_of(
    notice: &NoticeWork,
    device: DeviceRef,
    tenant: Option<OrganizationId>,
    ordinal: usize,
) -> Option<LimitedDelivery> {
    let source = format!("notice:{}:", device.id);
    let (event, ordinal) = (notice.event.to_string(), ordinal.to_string());
    let id = NotificationId::derived(notice.event.minted_at(), &[&event, &notice.element, &ordinal]);
    let body = serde_json::to_string(&QueuedNotice { id, device: device.id, notice: notice.clone() }).ok()?;
    let destination = Some(tenant.map(|id| id.to_string()).unwrap_or_default());
    let delivery =
        NewDelivery { id: format!("{source}{event}:{ordinal}"), kind: DeliveryKind::Notice, body, destination };
    Some(LimitedDelivery { delivery, source, most: NOTICES_OF_A_DEVICE_MAX })
}

impl Delivery {
    /// Wakes the worker after notices were put into the registry, and counts those dropped because their device has too
    /// many.
    pub(super) fn notices_were_put(&self, dropped: usize) {
        if dropped > 0 {
            metrics::counter!(NOTICES_DROPPED).increment(dropped as u64);
            tracing::warn!(dropped, "notices of designs are dropped: too many wait");
        }
        self.device_notices.wake.notify_one();
    }

    /// Delivers notices as they become due, until the hub stops.
    pub(crate) async fn run_device_notices(self: Arc<Self>, mut shift: Shift) {
        loop {
            self.env.reaches("device_notices");
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
                () = self.device_notices.wake.notified() => {}
                () = self.env.clock().sleep(NOTICE_LOOK_EVERY) => {}
            }
        }
    }

    /// Delivers the notices that are due, and returns true if there may be more.
    async fn give_notices_out(&self) -> Result<bool> {
        let due = self.device_notices.turns.take(&self.env, NOTICES_BATCH, &HashSet::new()).await?;
        let more = due.len() == NOTICES_BATCH;
        let give_out = |waiting: QueuedDelivery| async move {
            match guarded("device_notice", self.give_notice_out(&waiting)).await {
                Some(given) => given,
                None => Ok(self.notice_panicked(&waiting).await?),
            }
        };
        let mut given = futures::stream::iter(due).map(give_out).buffer_unordered(NOTICES_AT_ONCE);
        while let Some(given) = given.next().await {
            given?;
        }
        Ok(more)
    }

    /// Retries a notice whose delivery panicked, later each time, and drops it once it is too old.
    async fn notice_panicked(&self, delivery: &QueuedDelivery) -> std::result::Result<(), StoreError> {
        let (registry, now) = (self.env.registry(), self.env.now());
        if is_too_old(delivery, now) {
            tracing::error!(id = delivery.id, "a notice of a device is given up");
            return registry.delivery_done(&delivery.id).await;
        }
        let attempts = delivery.attempts.saturating_add(1);
        registry.delivery_failed(&delivery.id, attempts, self.env.due_again(attempts, now)).await
    }

    async fn give_notice_out(&self, delivery: &QueuedDelivery) -> Result<()> {
        self.env.reaches("device_notice");
        let registry = self.env.registry();
        let Ok(QueuedNotice { id, device, notice }) = serde_json::from_str(&delivery.body) else {
            tracing::error!(id = delivery.id, "a notice cannot be read and is dropped");
            return Ok(registry.delivery_done(&delivery.id).await?);
        };
        let to = Audience::Organization { id: notice.organization, minimum_role: notice.minimum_role };
        let (kind, at) = (NotificationKind::Device, notice.event.minted_at());
        let alarm = match &notice.alarm {
            // The alarm is written before the notice about it, or in the same transaction.
            Some(key) => registry.alarm_of_notice(device, (&notice.element, key)).await?,
            None => None,
        };
        match self.notify(Notice { id, kind, to, message: notice.message, device: Some(device), alarm, at }).await {
            // A deleted organization has no members to notify.
            Ok(()) | Err(isobar_model::error::Error::Missing(_)) => Ok(registry.delivery_done(&delivery.id).await?),
            Err(error) => {
                tracing::warn!(%error, %device, "a notice of a device is given out later");
                let due_at = self.env.now().plus_seconds(RETRY_SECONDS);
                Ok(registry.delivery_failed(&delivery.id, delivery.attempts.saturating_add(1), due_at).await?)
            }
        }
    }
}
