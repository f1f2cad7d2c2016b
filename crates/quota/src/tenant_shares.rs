//! Counters of a shared resource (bytes, places): a tenant may hold at most twice what is left for others (see
//! [`crate::SharedAmount`]), and no more than a fixed maximum if there is one. All callers without credentials are one
//! tenant.

use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use parking_lot::Mutex;

use crate::{Full, Limit, LimitMeter, NOBODY, SharedAmount, TenantAmounts};

type Result<T> = std::result::Result<T, Full>;

/// A shared resource and what tenants hold of it.
#[derive(Debug)]
pub struct TenantShares {
    /// The total.
    amount: SharedAmount,
    /// Fixed maximum of one tenant.
    of_one: usize,
    meter: LimitMeter,
    held: Mutex<TenantAmounts>,
}

/// A tenant's part of a shared resource; dropping it returns the part.
#[derive(Debug)]
pub struct TenantShare {
    shares: Arc<TenantShares>,
    tenant: OrganizationId,
    amount: usize,
}

impl TenantShares {
    /// Makes a resource with this total, of which one tenant may hold `of_one`.
    pub fn new(limit: &Limit) -> Arc<Self> {
        let (amount, meter) = (SharedAmount::of(limit.of_all), LimitMeter::new(limit));
        Arc::new(Self { amount, of_one: limit.of_one, meter, held: Mutex::default() })
    }

    /// Returns the part of `amount` to charge for work that must have room when nothing else is held, however large it
    /// is: at most the largest holding of a single tenant.
    pub fn capped(&self, amount: usize) -> usize {
        amount.min(self.amount.of_one()).min(self.of_one)
    }

    /// Returns true if a tenant may hold so much more.
    pub fn has_room(&self, tenant: OrganizationId, more: usize) -> bool {
        self.allows(&self.held.lock(), tenant, more)
    }

    fn allows(&self, held: &TenantAmounts, tenant: OrganizationId, more: usize) -> bool {
        let own = held.of(tenant).plus(more);
        self.amount.allows(own, held.all().saturating_add(more)) && own.of_tenant <= self.of_one
    }

    /// Returns the sum over all tenants.
    pub fn held(&self) -> usize {
        self.held.lock().all()
    }

    /// Makes an empty share of a tenant.
    pub fn share(self: &Arc<Self>, tenant: Option<OrganizationId>) -> TenantShare {
        TenantShare { shares: Arc::clone(self), tenant: tenant.unwrap_or(NOBODY), amount: 0 }
    }

    /// Takes `amount` for a tenant; [`Full`] if it may not hold so much more.
    pub fn take(self: &Arc<Self>, tenant: OrganizationId, amount: usize) -> Result<TenantShare> {
        let mut share = self.share(Some(tenant));
        share.resize(amount)?;
        Ok(share)
    }

    /// Replaces `before` by `after` in the holding of a tenant. A reduction is never refused.
    fn change(&self, tenant: OrganizationId, before: usize, after: usize) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let mut held = self.held.lock();
        if after > before && !self.allows(&held, tenant, after - before) {
            return Err(self.meter.refuse());
        }
        held.change(tenant, before, after);
        drop(held);
        self.meter.change(before, after);
        Ok(())
    }
}

impl TenantShare {
    /// Returns its size.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Grows by `more`, see [`Self::resize`].
    pub fn grow(&mut self, more: usize) -> Result<()> {
        self.resize(self.amount.saturating_add(more))
    }

    /// Changes the size to `amount`; [`Full`], without a change, if the tenant may not hold so much.
    pub fn resize(&mut self, amount: usize) -> Result<()> {
        self.shares.change(self.tenant, self.amount, amount)?;
        self.amount = amount;
        Ok(())
    }
}

impl Drop for TenantShare {
    fn drop(&mut self) {
        // A reduction is never refused.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::site::Site;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::UNLIMITED;

    fn shares(of_all: usize, of_one: usize) -> Arc<TenantShares> {
        TenantShares::new(&Limit { of_all, of_one, ..UNLIMITED })
    }

    fn fair(of_all: usize) -> Arc<TenantShares> {
        shares(of_all, usize::MAX)
    }

    #[test]
    fn tenant_cannot_exceed_its_share() {
        let shares = shares(20, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let first = take(1, 4).unwrap();
        assert!(matches!(take(1, 3), Err(Full { .. })));
        let (second, third) = (take(1, 2).unwrap(), take(2, 6).unwrap());
        assert!(matches!(take(2, 1), Err(Full { .. })));
        // A tenant that fills the rest leaves something for the next.
        let fourth = take(3, 5).unwrap();
        assert!(matches!(take(3, 1), Err(Full { .. })) && take(4, 2).is_ok());
        drop(first);
        let fifth = take(3, 1).unwrap();
        assert!(matches!(take(3, 1), Err(Full { .. })));
        drop((second, third, fourth, fifth));
        assert!(shares.held.lock().is_nothing());
    }

    #[test]
    fn tenants_of_one_site_share_one_part() {
        let (site, other) = (Site::of_tag(7), OrganizationId(Uuid::from_u128(1)));
        let crowd = |number: u128| site.founds(Uuid::from_u128(number << 32));
        for shares in [fair(100), shares(100, 6)] {
            let held: Vec<_> = (1..200).filter_map(|number| shares.take(crowd(number), 1).ok()).collect();
            assert_eq!(held.len(), 79);
            let share = shares.take(other, 6).unwrap();
            assert!(matches!(shares.take(crowd(200), 1), Err(Full { .. })));
            drop((held, share));
            assert!(shares.held.lock().is_nothing());
        }
    }

    #[test]
    fn share_grows_up_to_its_limit_and_shrinks_always() {
        let shares = shares(20, 6);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let (mut first, second) = (take(1, 3).unwrap(), take(1, 2).unwrap());
        assert!(matches!(first.resize(5), Err(Full { .. })));
        first.resize(4).unwrap();
        assert!(take(1, 1).is_err() && take(2, 7).is_err());
        first.resize(1).unwrap();
        let third = take(2, 6).unwrap();
        // A reduction is never refused.
        first.resize(0).unwrap();
        drop((first, second, third));
        assert!(shares.held.lock().is_nothing());
    }

    #[test]
    fn share_is_larger_when_others_hold_less() {
        let shares = fair(27);
        let take = |tenant: u128, amount| shares.take(OrganizationId(Uuid::from_u128(tenant)), amount);
        let first = take(1, 18).unwrap();
        assert!(matches!(take(1, 1), Err(Full { .. })));
        let second = take(2, 6).unwrap();
        assert!(matches!(take(2, 1), Err(Full { .. })));
        drop(first);
        let third = take(2, 12).unwrap();
        assert!(matches!(take(2, 1), Err(Full { .. })) && take(1, 6).is_ok());
        drop((second, third));
        assert!(shares.held.lock().is_nothing());
    }

    proptest! {
        #[test]
        fn sum_of_shares_never_exceeds_the_total(
            takes in prop::collection::vec((0..4_u128, 0..200_usize, any::<bool>()), 0..100),
        ) {
            let (shares, mut held) = (fair(500), Vec::new());
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
