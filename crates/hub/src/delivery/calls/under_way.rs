//! The calls that are under way, and their numbers by destination and by tenant.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use isobar_quota::{NOBODY, TenantShare, TenantShares, limits};
use tokio::task::{self, JoinSet};

use super::destinations::tenant_of;
use crate::supervisor::spawn_guarded_in;

/// Concurrent calls of one tenant to one host, which is one destination.
pub(super) const CALLS_OF_A_DESTINATION_MAX: usize = 4;

/// The calls that are under way.
pub(super) struct UnderWay {
    tasks: JoinSet<()>,
    /// The identifier and the destination of each, and its place among all.
    calls: HashMap<task::Id, (String, String, TenantShare)>,
    ids: HashSet<String>,
    destinations: HashMap<String, usize>,
    places: Arc<TenantShares>,
    /// The destination from which the next search begins.
    pub next_destination: String,
}

impl UnderWay {
    pub fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            calls: HashMap::new(),
            ids: HashSet::new(),
            destinations: HashMap::new(),
            places: TenantShares::new(&limits::OUTGOING_CALLS),
            next_destination: String::new(),
        }
    }

    /// Returns true if this call is under way.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Returns the identifiers of the calls that are under way.
    pub fn ids(&self) -> &HashSet<String> {
        &self.ids
    }

    /// Begins a call, or leaves it for later if its tenant has no place for it.
    pub fn begin(&mut self, id: String, destination: String, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(place) = self.places.take(organization(&destination), 1) else { return };
        let task = spawn_guarded_in(&mut self.tasks, "call", work).id();
        *self.destinations.entry(destination.clone()).or_default() += 1;
        self.ids.insert(id.clone());
        self.calls.insert(task, (id, destination, place));
    }

    pub fn is_full(&self) -> bool {
        self.ids.len() >= limits::OUTGOING_CALLS.of_all
    }

    /// Returns true if the tenant of a destination, with its site, has reached its share of calls.
    pub fn is_full_of(&self, destination: &str) -> bool {
        !self.places.has_room(organization(destination), 1)
    }

    /// Returns the number of calls to a destination that are under way.
    pub fn of_destination(&self, destination: &str) -> usize {
        self.destinations.get(destination).copied().unwrap_or_default()
    }

    /// Waits until one of the calls has ended; waits forever if there is none.
    pub async fn end_one(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let task = ended.map_or_else(|failed| failed.id(), |(id, ())| id);
        let Some((id, destination, _place)) = self.calls.remove(&task) else { return };
        self.ids.remove(&id);
        one_less(&mut self.destinations, &destination);
    }
}

/// Returns the organization of a destination.
fn organization(destination: &str) -> OrganizationId {
    tenant_of(destination).parse().unwrap_or(NOBODY)
}

fn one_less(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::destinations::destination_of;
    use super::*;

    #[tokio::test]
    async fn call_slots_are_shared_and_freed() {
        let destination = |tenant: u128, host: u32| {
            destination_of(Some(OrganizationId(uuid::Uuid::from_u128(tenant))), &format!("http://host{host}/"))
        };
        let mut under_way = UnderWay::new();
        let fills = |under_way: &mut UnderWay, tenant: u128| {
            let before = under_way.ids.len();
            for number in 0.. {
                let destination = destination(tenant, number);
                if under_way.is_full_of(&destination) {
                    break;
                }
                under_way.begin(format!("{destination}:{number}"), destination, std::future::ready(()));
            }
            under_way.ids.len() - before
        };
        let counts: Vec<usize> = (1..6).map(|tenant| fills(&mut under_way, tenant)).collect();
        assert_eq!(counts, [85, 28, 10, 3, 1]);
        assert_eq!(under_way.of_destination(&destination(1, 7)), 1);
        for _ in 0..127 {
            under_way.end_one().await;
        }
        assert!(under_way.ids.is_empty() && under_way.destinations.is_empty() && under_way.places.held() == 0);
        assert!(futures::poll!(std::pin::pin!(under_way.end_one())).is_pending());
    }
}
