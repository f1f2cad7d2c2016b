//! A resource that many hold at the same time, and of which each tenant has a share at most, which is smaller the more it and
//! others hold (see [`isobar_model::shared_amount`]), and no larger than a fixed size, if there is one. All callers without
//! credentials are one tenant here.

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::shared_amount::SharedAmount;
use isobar_model::site::TenantAmounts;
use parking_lot::Mutex;

use super::bounded_jobs::NOBODY;

/// So much of something: places, bytes.
#[derive(Debug)]
pub struct TenantShares {
    /// What tenants share.
    amount: SharedAmount,
    /// Most of one tenant.
    of_one: usize,
    held: Mutex<TenantAmounts>,
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
        Arc::new(Self { amount: SharedAmount::of(of_all), of_one, held: Mutex::default() })
    }

    /// So much of it, and of one tenant at most twice what is left for the others then.
    pub fn fair(of_all: usize) -> Arc<Self> {
        Self::new(of_all, usize::MAX)
    }

    /// How much is held by all.
    pub fn held(&self) -> usize {
        self.held.lock().all()
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
        if after > before {
            let (own, all) = (held.of(tenant).plus(after - before), held.all().saturating_add(after - before));
            if !self.amount.allows(own, all) || own.of_tenant > self.of_one {
                return Err(Error::Busy);
            }
        }
        held.change(tenant, before, after);
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
    use isobar_model::site::Site;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_tenant_has_its_share_and_no_more() {
        let shares = TenantShares::new(20, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let first = take(1, 4).unwrap();
        assert!(matches!(take(1, 3), Err(Error::Busy)));
        let (second, third) = (take(1, 2).unwrap(), take(2, 6).unwrap());
        assert!(matches!(take(2, 1), Err(Error::Busy)));
        // Who fills the rest leaves something for who comes then.
        let fourth = take(3, 5).unwrap();
        assert!(matches!(take(3, 1), Err(Error::Busy)) && take(4, 2).is_ok());
        drop(first);
        let fifth = take(3, 1).unwrap();
        assert!(matches!(take(3, 1), Err(Error::Busy)));
        drop((second, third, fourth, fifth));
        assert!(shares.held.lock().is_nothing());
    }

    #[test]
    fn tenants_of_one_site_have_a_share_together() {
        let (site, other) = (Site::of_tag(7), OrganizationId(Uuid::from_u128(1)));
        let crowd = |number: u128| site.founds(Uuid::from_u128(number << 32));
        for shares in [TenantShares::fair(100), TenantShares::new(100, 6)] {
            let held: Vec<_> = (1..200).filter_map(|number| shares.take(crowd(number), 1).ok()).collect();
            assert_eq!(held.len(), 79);
            let share = shares.take(other, 6).unwrap();
            assert!(matches!(shares.take(crowd(200), 1), Err(Error::Busy)));
            drop((held, share));
            assert!(shares.held.lock().is_nothing());
        }
    }

    #[test]
    fn a_share_grows_as_far_as_its_tenant_may_hold_more_and_shrinks_at_any_time() {
        let shares = TenantShares::new(20, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let (mut first, second) = (take(1, 3).unwrap(), take(1, 2).unwrap());
        assert!(matches!(first.resize(5), Err(Error::Busy)));
        first.resize(4).unwrap();
        assert!(take(1, 1).is_err() && take(2, 7).is_err());
        first.resize(1).unwrap();
        let third = take(2, 6).unwrap();
        // More than there is: it is not less that is refused.
        first.resize(0).unwrap();
        drop((first, second, third));
        assert!(shares.held.lock().is_nothing());
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
        assert!(shares.held.lock().is_nothing());
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
            prop_assert!(shares.held.lock().is_nothing());
        }
    }
}
