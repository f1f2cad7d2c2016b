//! Takes turns among tenants: pending deliveries are taken one by one of each tenant, however many one of them has.

use std::collections::HashSet;

use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeliveryKind, QueuedDelivery, Registry};
use parking_lot::Mutex;

use crate::env::Env;

/// Tenants read in one query, and tenants after which a search ends; the next search continues there.
const TENANTS_AT_ONCE: usize = 256;
const TENANTS_OF_A_LOOK: usize = 2_048;

/// Time in seconds for which a delivery is claimed: if its process is gone, another one makes it after that.
const DELIVERY_CLAIM_SECONDS: i64 = 10;

/// The turns of deliveries of one kind, whose destinations are tenants.
pub(super) struct Turns {
    kind: DeliveryKind,
    /// The position of the next turn: this tenant, or the first after it.
    next: Mutex<String>,
}

impl Turns {
    pub fn new(kind: DeliveryKind) -> Self {
        Self { kind, next: Mutex::default() }
    }

    pub fn kind(&self) -> DeliveryKind {
        self.kind
    }

    /// Returns at most `most` due deliveries: one of each tenant, then the next of each. Those in `under_way` are
    /// skipped.
    pub async fn take(
        &self,
        env: &Env,
        most: usize,
        under_way: &HashSet<String>,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let (registry, now, mut taken) = (env.registry(), env.now(), Vec::new());
        if most == 0 {
            return Ok(taken);
        }
        self.gather(registry, now, (most, under_way), &mut taken).await?;
        if !env.config().has_other_nodes || taken.is_empty() {
            return Ok(taken);
        }
        // Another process may work on some of them by now.
        env.must_have_clock()?;
        let claimed = registry.deliveries_claim(taken.iter().map(|it| &*it.id), now, claim_end(now)).await?;
        taken.retain(|delivery| claimed.contains(&delivery.id));
        Ok(taken)
    }

    async fn gather(
        &self,
        registry: &Registry,
        now: Timestamp,
        (most, under_way): (usize, &HashSet<String>),
        taken: &mut Vec<QueuedDelivery>,
    ) -> Result<(), StoreError> {
        let mut rests = Vec::new();
        let tenants = self.due_tenants(registry, now, most + under_way.len()).await?;
        for tenant in tenants {
            let due = registry.deliveries_to(self.kind, &tenant, now, most + under_way.len()).await?;
            let mut due = due.into_iter().filter(|delivery| !under_way.contains(&delivery.id));
            taken.extend(due.next());
            rests.push(due);
            *self.next.lock() = behind(&tenant);
            if taken.len() == most {
                return Ok(());
            }
        }
        while taken.len() < most && !rests.is_empty() {
            rests.retain_mut(|rest| match rest.next() {
                Some(delivery) => {
                    taken.push(delivery);
                    true
                }
                None => false,
            });
        }
        taken.truncate(most);
        Ok(())
    }

    /// Returns the next tenants with due deliveries, at most `most`, in the order of their turns.
    async fn due_tenants(&self, registry: &Registry, now: Timestamp, most: usize) -> Result<Vec<String>, StoreError> {
        let begins_at = self.next.lock().clone();
        let (mut from, mut is_second_round, mut looked_at) = (begins_at.clone(), begins_at.is_empty(), 0);
        let mut due = Vec::new();
        while looked_at < TENANTS_OF_A_LOOK {
            let tenants = registry.delivery_destinations(self.kind, &from, TENANTS_AT_ONCE).await?;
            let is_last = tenants.len() < TENANTS_AT_ONCE;
            looked_at += tenants.len().max(1);
            for tenant in tenants {
                let is_round_over = is_second_round && !begins_at.is_empty() && tenant.name >= begins_at;
                if is_round_over || due.len() == most {
                    return Ok(due);
                }
                from = behind(&tenant.name);
                if tenant.due_at <= now {
                    due.push(tenant.name);
                }
            }
            match (is_last, is_second_round) {
                (true, true) => return Ok(due),
                (true, false) => (from, is_second_round) = (String::new(), true),
                (false, _) => {}
            }
        }
        // Without a due delivery the next search begins after these tenants.
        if due.is_empty() {
            *self.next.lock() = from;
        }
        Ok(due)
    }
}

/// Returns the time until which a process that begins now is alone with a delivery; it prolongs that while it works.
pub(super) fn claim_end(now: Timestamp) -> Timestamp {
    now.plus_seconds(DELIVERY_CLAIM_SECONDS)
}

/// Returns a position after this tenant and before any other.
fn behind(tenant: &str) -> String {
    format!("{tenant}\u{1}")
}
