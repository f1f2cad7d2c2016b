//! Follows what other nodes over the same registry change, and forgets it here as if it had been changed here. The own
//! changes come back too, and cause one more load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::ids::AlarmId;
use isobar_store::error::{Result, StoreError};
use isobar_store::registry::RegistryChange;

use super::Jobs;
use crate::supervisor::Shift;

/// Name of the worker.
pub(crate) const CHANGES_WORKER: &str = "changes";
/// Interval between two reads.
const READ_EVERY: Duration = Duration::from_millis(200);
/// Time after which a read is given up, with its connection.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// Time between two reads after which changes may be missing: the registry keeps each for an hour.
const MISSED_AFTER: Duration = Duration::from_secs(1_800);

impl Jobs {
    /// Reads what other nodes change, on one connection after the other.
    pub(crate) async fn run_changes(self: Arc<Self>, mut shift: Shift) {
        let mut is_told = false;
        loop {
            let Err(error) = self.follow_changes(&mut shift, &mut is_told).await else { return };
            if !std::mem::replace(&mut is_told, true) {
                tracing::error!(%error, "cannot read what other nodes have changed, calls are refused until it can");
            }
            if shift.pause(READ_EVERY).await {
                return;
            }
        }
    }

    /// Reads what other nodes change until that fails, or the hub stops. A connection begins with empty caches: the database behind it may
    /// be another one than before, which numbers transactions anew.
    async fn follow_changes(&self, shift: &mut Shift, is_told: &mut bool) -> Result<()> {
        let clock = self.env.clock();
        let mut asked = clock.instant();
        let mut reader = self.in_time(self.env.registry().changes()).await?;
        self.forget_everything().await?;
        loop {
            self.caches.freshness().note_read(asked);
            shift.well();
            if std::mem::take(is_told) {
                tracing::info!("reads again what other nodes have changed");
            }
            if shift.pause(READ_EVERY).await {
                return Ok(());
            }
            self.env.reaches(CHANGES_WORKER);
            let before = std::mem::replace(&mut asked, clock.instant());
            match self.in_time(reader.next()).await? {
                Some(changes) if !may_have_missed(before, asked) => {
                    let mut alarms = BTreeSet::new();
                    for change in changes {
                        match change {
                            RegistryChange::Alarm(id) => drop(alarms.insert(id)),
                            other => self.follow(other),
                        }
                    }
                    let alarms: Vec<AlarmId> = alarms.into_iter().collect();
                    if let Err(error) = self.delivery.tell_of_changed_alarms(&alarms).await {
                        // Followers list the alarms again from time to time.
                        tracing::warn!(%error, "streams are not told of alarms that have changed");
                    }
                }
                _ => self.forget_everything().await?,
            }
        }
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T>>) -> Result<T> {
        self.env.clock().timeout(READ_WITHIN, asked).await.unwrap_or(Err(StoreError::Busy))
    }

    /// Forgets what has changed.
    fn follow(&self, change: RegistryChange) {
        match change {
            RegistryChange::Account(user) => self.caches.account_changed(user),
            RegistryChange::ApiKey => self.caches.api_keys_changed(),
            RegistryChange::Jwt(jti) => self.identity.token_revoked(jti),
            RegistryChange::Device { id, key, tenant } => {
                self.caches.device_changed(id);
                self.caches.departures().note(tenant);
                self.ingest.ring(key);
            }
            RegistryChange::Design(project) => self.caches.design_changed(project),
            RegistryChange::Organization { id, tenant } => {
                self.caches.organization_changed(id);
                self.caches.departures().note(tenant);
                self.usage.unsettle();
            }
            RegistryChange::Limits => self.usage.unsettle(),
            // Told to streams, and cached nowhere.
            RegistryChange::Alarm(_) => {}
        }
    }

    /// Forgets everything that another node may have changed.
    async fn forget_everything(&self) -> Result<()> {
        self.caches.forget_everything();
        self.usage.unsettle();
        let revoked = self.in_time(self.env.registry().jwts_revoked(self.env.now())).await?;
        revoked.into_iter().for_each(|jti| self.identity.token_revoked(jti));
        Ok(())
    }
}

/// Returns true if changes may have been deleted between two reads.
fn may_have_missed(before: Instant, asked: Instant) -> bool {
    asked.saturating_duration_since(before) > MISSED_AFTER
}
