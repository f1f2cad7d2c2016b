//! Removes old data: history, notifications, ended alarms and former settings after six months, and sessions after
//! their end (specification: Limits).

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::registry::Assigned;

use super::Jobs;
use crate::supervisor::{Shift, guarded};

/// Interval between two removals of old data.
const RETENTION_LOOK_EVERY: Duration = Duration::from_secs(3600);
/// Six months: half of a mean Gregorian year, in seconds.
const HISTORY_SECONDS: i64 = 15_778_476;
/// Shortest time between two removals of expired values.
const VALUES_REST: Duration = Duration::from_secs(5);
/// Former settings, and alarms, removed in one transaction: other writers proceed in between.
const SETTINGS_SWEPT_AT_ONCE: u32 = 500;
const ALARMS_SWEPT_AT_ONCE: u32 = 500;

impl Jobs {
    /// Returns the beginning of the retained history.
    pub(crate) fn history_begins(&self) -> Timestamp {
        self.env.now().plus_seconds(-HISTORY_SECONDS)
    }

    /// Removes old data every hour. The telemetry store decides what time it is, because it does not trust a clock that
    /// jumps.
    pub(crate) async fn run_retention(self: Arc<Self>, mut shift: Shift) {
        let clock = self.env.clock();
        let mut last = clock.instant();
        loop {
            self.env.reaches("retention");
            let running = clock.elapsed(std::mem::replace(&mut last, clock.instant()));
            self.remove_what_is_old(running).await;
            shift.well();
            if self.drop_values_until_the_next_look(&mut shift).await {
                return;
            }
        }
    }

    /// Waits for the next removal, and meanwhile deletes values that changed designs hide. Returns true if the hub
    /// stops.
    async fn drop_values_until_the_next_look(&self, shift: &mut Shift) -> bool {
        let clock = self.env.clock();
        let next = clock.instant() + RETENTION_LOOK_EVERY;
        loop {
            if shift.pause(VALUES_REST).await {
                return true;
            }
            let left = next.saturating_duration_since(clock.instant());
            if left.is_zero() {
                return false;
            }
            tokio::select! {
                is_over = shift.pause(left) => return is_over,
                () = self.retention.changed.notified() => {}
            }
            if let Some(now) = self.believed_now() {
                removed("values", self.drop_values(now)).await;
            }
            shift.well();
        }
    }

    /// Removes old data once, `running` after the last time.
    pub(super) async fn remove_what_is_old(&self, running: Duration) {
        let is_ours = self.is_retention_ours().await;
        // Time passes once, however many processes serve.
        let running = if is_ours { running } else { Duration::ZERO };
        let retained = self.env.telemetry().retain(self.env.now(), running, HISTORY_SECONDS);
        let Some(now) = removed("history", retained).await else { return };
        self.retention.believe(now, self.env.clock());
        self.identity.forget_ended_tokens(now);
        if !is_ours {
            return;
        }
        let begins = now.plus_seconds(-HISTORY_SECONDS);
        // Each kind is removed by itself: a failure of one kind, even a panic, does not prevent the removal of the
        // others.
        removed("sessions", self.sweep_sessions(now)).await;
        removed("notifications", self.delivery.sweep_notices(begins)).await;
        removed("settings", self.sweep_settings(begins)).await;
        removed("alarms", self.sweep_alarms(begins)).await;
        removed("values", self.drop_values(now)).await;
        // Not by age, and mostly done already: a process may have ended between a change and this.
        removed("assignees of alarms", self.env.registry().alarms_unassign(Assigned::Anywhere, self.env.now())).await;
    }

    /// Returns true if this process removes old data now: where several serve, one does it in each hour.
    async fn is_retention_ours(&self) -> bool {
        let registry = self.env.registry();
        if !self.env.config().has_other_nodes {
            return true;
        }
        if self.env.must_have_clock().is_err() {
            return false;
        }
        let claimed = registry.job_claim("retention", self.env.now(), RETENTION_LOOK_EVERY.as_secs() as i64);
        claimed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot agree with other processes on who removes old data, will retry");
            false
        })
    }

    async fn sweep_alarms(&self, begins: Timestamp) -> Result<(), StoreError> {
        let (registry, most) = (self.env.registry(), ALARMS_SWEPT_AT_ONCE);
        while registry.alarms_sweep(begins, most).await? >= u64::from(most) {}
        Ok(())
    }

    async fn sweep_settings(&self, begins: Timestamp) -> Result<(), StoreError> {
        let (registry, most) = (self.env.registry(), SETTINGS_SWEPT_AT_ONCE);
        while registry.setting_history_sweep(begins, most).await? >= u64::from(most) {}
        Ok(())
    }

    async fn sweep_sessions(&self, now: Timestamp) -> Result<(), StoreError> {
        self.env.registry().sessions_sweep(now).await?;
        self.env.registry().letter_hours_sweep(now).await?;
        self.env.registry().changes_sweep().await?;
        self.identity.sweep_attempts(now).await?;
        Ok(())
    }
}

/// Logs a failed removal. The next removal finds the rest again.
async fn removed<T>(things: &'static str, removal: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
    match guarded("retention", removal).await? {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::warn!(%error, things, "removing what is older than the retention time failed");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::access::system;
    use isobar_model::ids::SettingId;
    use isobar_model::page::{ListRequest, PageRequest};
    use isobar_store::registry::{Findings, SettingWrite};

    use super::*;
    use crate::stage::Stage;

    const DAY: i64 = 86_400;
    const DESIGN: &str = r#"{
        "reading": {"type": "deviceEvent"},
        "limit": {"type": "deviceSetting", "properties": {"title": "Limit", "inputType": "number", "defaultValue": 1}}
    }"#;

    #[tokio::test]
    async fn former_settings_end_after_six_months_but_not_by_a_clock_jump() {
        let stage = Stage::set().await;
        let device = stage.device(DESIGN).await;
        let permit = || system(device.reference(), "a test looks at its past");
        let begun = stage.clock.now();
        let write = |after: i64| {
            let (id, at) = (SettingId(stage.hub.0.env.new_id().0), begun.plus_seconds(after));
            (permit(), SettingWrite { id, name: "limit".to_owned(), value: None, at })
        };
        let settings = vec![write(0), write(1), write(100 * DAY)];
        let findings = Findings { settings, ..Findings::default() };
        stage.hub.0.env.registry().findings_write(&findings, begun).await.unwrap();
        let request = ListRequest { page: PageRequest::new(1, 10), ..ListRequest::default() };
        let kept = async || {
            stage.hub.0.env.registry().setting_history(&permit().reading(), begun, &request).await.unwrap().total
        };
        let hour = Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        // A clock set to next year by mistake hides the settings, but deletes none.
        stage.clock.advance_seconds(365 * DAY);
        for _ in 0..3 {
            stage.hub.0.jobs.remove_what_is_old(hour).await;
        }
        let shown = stage.hub.setting_history(&stage.admin, device.id, request.clone()).await.unwrap();
        assert_eq!((shown.total, kept().await), (0, 2));
        stage.clock.advance_seconds(-365 * DAY);
        let shown = stage.hub.setting_history(&stage.admin, device.id, request.clone()).await.unwrap();
        assert_eq!(shown.total, 2);
        // Once the time has really passed, the settings are deleted in the order in which they were replaced.
        for (days, left) in [(190, 1), (300, 0)] {
            stage.clock.advance_seconds(days * DAY - (stage.clock.now().millis() - begun.millis()) / 1_000);
            let running = Duration::from_secs(190 * DAY as u64);
            stage.hub.0.jobs.remove_what_is_old(running).await;
            assert_eq!(kept().await, left, "{days}");
        }
        assert_eq!(stage.hub.0.env.registry().settings_of(&permit().reading()).await.unwrap().len(), 1);
        stage.over().await;
    }
}
