//! A resource that many hold at the same time, and of which each tenant has a share at most: one of a fixed size, or one that
//! is smaller the more others hold.

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::shared_amount::SharedAmount;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// So much of something: places, bytes.
pub(crate) struct TenantShares {
    bound: ShareBound,
    held: Mutex<HeldShares>,
}

/// How much tenants may hold.
enum ShareBound {
    /// So much together, and so much each.
    Fixed { of_all: usize, of_one: usize },
    /// So much together, and each according to what is left for the others.
    Fair(SharedAmount),
}

impl ShareBound {
    fn allows(&self, own: usize, all: usize) -> bool {
        match self {
            Self::Fixed { of_all, of_one } => all <= *of_all && own <= *of_one,
            Self::Fair(amount) => amount.allows(own, all),
        }
    }
}

#[derive(Default)]
struct HeldShares {
    of_all: usize,
    /// Of each tenant that holds any.
    of_each: FxHashMap<OrganizationId, usize>,
}

/// A part of it that a tenant holds, until this is dropped.
pub(crate) struct TenantShare {
    shares: Arc<TenantShares>,
    tenant: OrganizationId,
    amount: usize,
}

impl TenantShares {
    /// So much of it, and so much of one tenant.
    pub(crate) fn new(of_all: usize, of_one: usize) -> Arc<Self> {
        Self::bounded(ShareBound::Fixed { of_all, of_one })
    }

    /// So much of it, and of one tenant at most twice what is left for the others then.
    pub(crate) fn fair(of_all: usize) -> Arc<Self> {
        Self::bounded(ShareBound::Fair(SharedAmount::of(of_all)))
    }

    /// How much is held by all.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.lock().of_all
    }

    fn bounded(bound: ShareBound) -> Arc<Self> {
        Arc::new(Self { bound, held: Mutex::default() })
    }

    /// So much of it for a tenant; [`Error::Busy`] where that is more than is left.
    pub(crate) fn take(self: &Arc<Self>, tenant: OrganizationId, amount: usize) -> Result<TenantShare> {
        let mut held = self.held.lock();
        let of_tenant = held.of_each.get(&tenant).copied().unwrap_or_default();
        let (all, one) = (held.of_all.saturating_add(amount), of_tenant.saturating_add(amount));
        if !self.bound.allows(one, all) {
            return Err(Error::Busy);
        }
        held.of_all = all;
        held.of_each.insert(tenant, one);
        Ok(TenantShare { shares: Arc::clone(self), tenant, amount })
    }
}

impl TenantShare {
    /// So much is held from here on; [`Error::Busy`] where it is more than before and more than is left: then nothing changes.
    pub(crate) fn resize(&mut self, amount: usize) -> Result<()> {
        match amount.checked_sub(self.amount) {
            Some(more) => {
                let mut more = self.shares.take(self.tenant, more)?;
                self.amount += std::mem::take(&mut more.amount);
            }
            None => {
                let mut held = self.shares.held.lock();
                held.give_back(self.tenant, self.amount - amount);
                self.amount = amount;
            }
        }
        Ok(())
    }
}

impl HeldShares {
    fn give_back(&mut self, tenant: OrganizationId, amount: usize) {
        self.of_all -= amount;
        let Some(of_tenant) = self.of_each.get_mut(&tenant) else { return };
        *of_tenant -= amount;
        if *of_tenant == 0 {
            self.of_each.remove(&tenant);
        }
    }
}

impl Drop for TenantShare {
    fn drop(&mut self) {
        self.shares.held.lock().give_back(self.tenant, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_tenant_has_its_share_and_no_more() {
        let shares = TenantShares::new(10, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let first = take(1, 4).unwrap();
        assert!(matches!(take(1, 3), Err(Error::Busy)));
        let (second, third) = (take(1, 2).unwrap(), take(2, 4).unwrap());
        assert!(matches!(take(2, 1), Err(Error::Busy)));
        drop(first);
        let fourth = take(2, 2).unwrap();
        assert!(matches!(take(2, 1), Err(Error::Busy)));
        drop((second, third, fourth));
        let held = shares.held.lock();
        assert!(held.of_all == 0 && held.of_each.is_empty());
    }

    #[test]
    fn a_share_grows_and_shrinks_within_what_is_left() {
        let shares = TenantShares::new(10, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let mut share = take(1, 2).unwrap();
        share.resize(6).unwrap();
        assert!(matches!(share.resize(7), Err(Error::Busy)) && matches!(take(2, 5), Err(Error::Busy)));
        share.resize(1).unwrap();
        let others = take(2, 6).unwrap();
        assert!(share.resize(5).is_err() && share.resize(4).is_ok());
        share.resize(0).unwrap();
        drop((share, others));
        let held = shares.held.lock();
        assert!(held.of_all == 0 && held.of_each.is_empty());
    }

    #[test]
    fn a_tenant_has_the_more_the_less_others_hold() {
        let shares = TenantShares::fair(27);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let first = take(1, 18).unwrap();
        assert!(matches!(take(1, 1), Err(Error::Busy)));
        let second = take(2, 6).unwrap();
        assert!(matches!(take(2, 1), Err(Error::Busy)));
        drop(first);
        let third = take(2, 12).unwrap();
        assert!(matches!(take(2, 1), Err(Error::Busy)) && take(1, 6).is_ok());
        drop((second, third));
        let held = shares.held.lock();
        assert!(held.of_all == 0 && held.of_each.is_empty());
    }
}
