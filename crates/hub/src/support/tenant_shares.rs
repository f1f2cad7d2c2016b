//! A resource that many hold at the same time, and of which each tenant has a share at most: one of a fixed size, or one that
//! is smaller the more others hold.

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::shared_amount::SharedAmount;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// So much of something: places, bytes.
#[derive(Debug)]
pub(crate) struct TenantShares {
    bound: ShareBound,
    held: Mutex<HeldShares>,
}

/// How much tenants may hold.
#[derive(Debug)]
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

#[derive(Debug, Default)]
struct HeldShares {
    of_all: usize,
    /// Of each tenant that holds any.
    of_each: FxHashMap<OrganizationId, usize>,
}

/// A part of it that a tenant holds, until this is dropped.
#[derive(Debug)]
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
        self.change(tenant, 0, amount)?;
        Ok(TenantShare { shares: Arc::clone(self), tenant, amount })
    }

    /// A tenant that held so much holds so much instead, if it may.
    fn change(&self, tenant: OrganizationId, before: usize, after: usize) -> Result<()> {
        let mut held = self.held.lock();
        let of_tenant = held.of_each.get(&tenant).copied().unwrap_or_default();
        let all = (held.of_all - before).saturating_add(after);
        let one = (of_tenant - before).saturating_add(after);
        if after > before && !self.bound.allows(one, all) {
            return Err(Error::Busy);
        }
        held.of_all = all;
        held.of_each.insert(tenant, one);
        Ok(())
    }
}

impl TenantShare {
    /// Is so much from here on; [`Error::Busy`] where the tenant may not hold that, and then it is what it was.
    pub(crate) fn resize(&mut self, amount: usize) -> Result<()> {
        self.shares.change(self.tenant, self.amount, amount)?;
        self.amount = amount;
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
    fn a_share_grows_as_far_as_its_tenant_may_hold_more_and_shrinks_at_any_time() {
        let shares = TenantShares::new(10, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let (mut first, second) = (take(1, 3).unwrap(), take(1, 2).unwrap());
        assert!(matches!(first.resize(5), Err(Error::Busy)));
        first.resize(4).unwrap();
        assert!(take(1, 1).is_err() && take(2, 5).is_err());
        first.resize(1).unwrap();
        let third = take(2, 6).unwrap();
        // More than there is: it is not less that is refused.
        first.resize(0).unwrap();
        drop((first, second, third));
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
