//! A resource that many hold at the same time, and of which each tenant has a share at most: one of a fixed size, or one that
//! is smaller the more others hold. All callers without credentials are one tenant here.

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::shared_amount::SharedAmount;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::bounded_jobs::NOBODY;

/// So much of something: places, bytes.
#[derive(Debug)]
pub struct TenantShares {
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
pub struct TenantShare {
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
    pub fn fair(of_all: usize) -> Arc<Self> {
        Self::bounded(ShareBound::Fair(SharedAmount::of(of_all)))
    }

    /// How much is held by all.
    pub fn held(&self) -> usize {
        self.held.lock().of_all
    }

    fn bounded(bound: ShareBound) -> Arc<Self> {
        Arc::new(Self { bound, held: Mutex::default() })
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>, tenant: Option<OrganizationId>) -> TenantShare {
        TenantShare { shares: Arc::clone(self), tenant: tenant.unwrap_or(NOBODY), amount: 0 }
    }

    /// So much of it for a tenant; [`Error::Busy`] where that is more than is left.
    pub(crate) fn take(self: &Arc<Self>, tenant: OrganizationId, amount: usize) -> Result<TenantShare> {
        let mut share = self.share(Some(tenant));
        share.resize(amount)?;
        Ok(share)
    }

    /// A tenant that held so much holds so much instead, if it may: less it always may.
    fn change(&self, tenant: OrganizationId, before: usize, after: usize) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let mut held = self.held.lock();
        let of_tenant = held.of_each.get(&tenant).copied().unwrap_or_default();
        let all = (held.of_all - before).saturating_add(after);
        let one = (of_tenant - before).saturating_add(after);
        if after > before && !self.bound.allows(one, all) {
            return Err(Error::Busy);
        }
        held.of_all = all;
        match one {
            0 => held.of_each.remove(&tenant),
            _ => held.of_each.insert(tenant, one),
        };
        Ok(())
    }
}

impl TenantShare {
    /// How much it is.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Is so much more from here on, as [`Self::resize`] says.
    pub fn grow(&mut self, more: usize) -> Result<()> {
        self.resize(self.amount.saturating_add(more))
    }

    /// Is so much from here on; [`Error::Busy`] where the tenant may not hold that, and then it is what it was.
    pub fn resize(&mut self, amount: usize) -> Result<()> {
        self.shares.change(self.tenant, self.amount, amount)?;
        self.amount = amount;
        Ok(())
    }
}

impl Drop for TenantShare {
    fn drop(&mut self) {
        // What is given back is not refused.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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

    proptest! {
        #[test]
        fn what_is_held_is_never_more_than_there_is(
            takes in prop::collection::vec((0..4_u128, 0..200_usize, any::<bool>()), 0..100),
        ) {
            let (shares, mut held) = (TenantShares::fair(500), Vec::new());
            for (tenant, amount, gives_back) in takes {
                let mut share = shares.share((tenant > 0).then(|| OrganizationId(Uuid::from_u128(tenant))));
                let before = shares.held();
                let is_taken = share.grow(amount).is_ok();
                prop_assert_eq!(share.amount(), if is_taken { amount } else { 0 });
                prop_assert_eq!(shares.held(), before + share.amount());
                prop_assert!(shares.held() <= 500);
                held.push(share);
                if gives_back {
                    held.remove(0);
                }
            }
            drop(held);
            let held = shares.held.lock();
            prop_assert!(held.of_all == 0 && held.of_each.is_empty());
        }
    }
}
