//! Adds the calls that other nodes have counted to the rate windows of this one.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::ids::{BoardLinkId, DeviceKey, UserId};
use isobar_store::error::StoreError;

use super::Identity;
use super::rate_limit::window_at;
use crate::supervisor::Shift;

/// Name of the worker.
pub(crate) const RATE_SHARES_WORKER: &str = "rate_shares";
/// Interval between two exchanges.
const SHARED_EVERY: Duration = Duration::from_secs(1);
/// Callers whose calls a node tells at a time, at most: those with the most calls.
const SHARES_TOLD_MAX: usize = 1_000;

/// A caller whose calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateSubject {
    User(UserId),
    Device(DeviceKey),
    Link(BoardLinkId),
    Address(IpAddr),
}

impl RateSubject {
    /// Returns its name in the registry.
    fn name(self) -> String {
        match self {
            Self::User(id) => format!("user {id}"),
            Self::Device(key) => format!("device {}", key.0),
            Self::Link(id) => format!("link {id}"),
            Self::Address(address) => format!("address {address}"),
        }
    }

    fn named(name: &str) -> Option<Self> {
        let (kind, id) = name.split_once(' ')?;
        match kind {
            "user" => id.parse().ok().map(Self::User),
            "device" => id.parse().ok().map(|key| Self::Device(DeviceKey(key))),
            "link" => id.parse().ok().map(Self::Link),
            "address" => id.parse().ok().map(Self::Address),
            _ => None,
        }
    }
}

impl Identity {
    /// Tells other nodes of callers that make many calls, and counts what they tell, every second until the hub stops.
    pub(crate) async fn run_rate_shares(self: Arc<Self>, mut shift: Shift) {
        let node = self.env.new_id().to_string();
        let mut swept = i64::MIN;
        loop {
            self.env.reaches(RATE_SHARES_WORKER);
            if let Err(error) = self.share_rates(&node, &mut swept).await {
                tracing::warn!(%error, "the calls of this minute are counted by each node for itself, will retry");
            }
            shift.well();
            if shift.pause(SHARED_EVERY).await {
                return;
            }
        }
    }

    async fn share_rates(&self, node: &str, swept: &mut i64) -> Result<(), StoreError> {
        let (registry, minute) = (self.env.registry(), window_at(self.env.now()));
        let mut told = self.rates.many_calls(minute);
        if !told.is_empty() {
            told.sort_by_key(|(_, calls)| Reverse(*calls));
            told.truncate(SHARES_TOLD_MAX);
            let told: Vec<_> = told.into_iter().map(|(subject, calls)| (subject.name(), calls)).collect();
            registry.rate_shares_write(node, minute, &told).await?;
        }
        for (name, calls) in registry.rate_shares_of_others(node, minute).await? {
            if let Some(subject) = RateSubject::named(&name) {
                self.rates.count_elsewhere(subject, u32::try_from(calls).unwrap_or(u32::MAX), minute);
            }
        }
        if *swept != minute {
            // The clock of another node may be a little behind.
            registry.rate_shares_sweep(minute - 1).await?;
            *swept = minute;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn subjects_are_found_by_their_names() {
        let subjects = [
            RateSubject::User(UserId(Uuid::from_u128(1))),
            RateSubject::Device(DeviceKey(7)),
            RateSubject::Link(BoardLinkId(Uuid::from_u128(2))),
            RateSubject::Address("2001:db8:1:2::".parse().unwrap()),
        ];
        assert_eq!(subjects.map(|subject| RateSubject::named(&subject.name())), subjects.map(Some));
        assert_eq!(["user x", "host 1", ""].map(RateSubject::named), [None; 3]);
    }
}
