//! Quotas that all tenants share, as [`SharedAmount`] says: the memory of bodies that are under way and of answers that are not
//! taken yet, and the number of long waits.

use std::collections::HashMap;
use std::sync::Arc;

use isobar_hub::Principal;
use isobar_model::error::Error;
use isobar_model::ids::OrganizationId;
use isobar_model::shared_amount::SharedAmount;
use parking_lot::Mutex;

/// Who holds a share: the tenant of the caller. All callers without credentials are one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuotaHolder(Option<OrganizationId>);

impl QuotaHolder {
    /// Those who show no credentials.
    pub const NOBODY: Self = Self(None);
}

impl From<&Principal> for QuotaHolder {
    fn from(principal: &Principal) -> Self {
        Self(principal.tenant())
    }
}

/// An amount that tenants share.
pub(crate) struct FairQuota {
    total: SharedAmount,
    held: Mutex<HeldAmounts>,
}

#[derive(Default)]
struct HeldAmounts {
    all: usize,
    each: HashMap<QuotaHolder, usize>,
}

impl FairQuota {
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total: SharedAmount::of(total), held: Mutex::default() })
    }

    /// Whether nobody holds anything.
    #[cfg(test)]
    pub fn is_untouched(&self) -> bool {
        let held = self.held.lock();
        held.all == 0 && held.each.is_empty()
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>, holder: QuotaHolder) -> QuotaShare {
        QuotaShare { quota: Arc::clone(self), holder, amount: 0 }
    }
}

/// What one call holds of a quota; it is given back when this is dropped.
pub(crate) struct QuotaShare {
    quota: Arc<FairQuota>,
    holder: QuotaHolder,
    amount: usize,
}

impl QuotaShare {
    /// Whether it is anything.
    pub fn is_any(&self) -> bool {
        self.amount > 0
    }

    /// How much it is.
    #[cfg(test)]
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Holds so much from here on, less or more than before; or is refused: then nothing has changed.
    pub fn hold(&mut self, amount: usize) -> Result<(), Error> {
        if amount > self.amount {
            return self.take(amount - self.amount);
        }
        self.give_back(self.amount - amount);
        Ok(())
    }

    /// Takes more, or is refused: then nothing has changed.
    pub fn take(&mut self, more: usize) -> Result<(), Error> {
        let mut held = self.quota.held.lock();
        let own = held.each.get(&self.holder).copied().unwrap_or_default().saturating_add(more);
        let all = held.all.saturating_add(more);
        if !self.quota.total.allows(own, all) {
            return Err(Error::Busy);
        }
        held.all = all;
        held.each.insert(self.holder, own);
        self.amount += more;
        Ok(())
    }
}

impl QuotaShare {
    fn give_back(&mut self, less: usize) {
        if less == 0 {
            return;
        }
        self.amount -= less;
        let mut held = self.quota.held.lock();
        held.all -= less;
        if let Some(own) = held.each.get_mut(&self.holder) {
            *own -= less;
            if *own == 0 {
                held.each.remove(&self.holder);
            }
        }
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> QuotaHolder {
        QuotaHolder(Some(OrganizationId(Uuid::from_u128(number))))
    }

    /// More than there is of anything here.
    const TRIES: usize = 100_000;

    /// Takes all that it can get, one by one.
    fn greedy(shares: &Arc<FairQuota>, holder: QuotaHolder) -> QuotaShare {
        let mut share = shares.share(holder);
        let _refused = (0..TRIES).find(|_| share.take(1).is_err());
        share
    }

    #[test]
    fn who_is_alone_has_two_thirds_and_there_is_some_left_for_the_next() {
        let shares = FairQuota::new(30_000);
        let mut held = Vec::new();
        for (number, amount) in [20_000, 6_666, 2_222, 741, 247].into_iter().enumerate() {
            held.push(greedy(&shares, tenant(number as u128)));
            assert!(held[number].amount.abs_diff(amount) <= 1, "{} for {amount}", held[number].amount);
        }
        // All who show nothing are one.
        let nobody = greedy(&shares, QuotaHolder::NOBODY);
        assert!(shares.share(QuotaHolder::NOBODY).take(1).is_err());
        drop((nobody, held));
        assert!(shares.is_untouched());
    }

    proptest! {
        #[test]
        fn what_is_held_is_never_more_than_there_is(
            takes in prop::collection::vec((0..4_u128, 0..200_usize, any::<bool>()), 0..100),
        ) {
            let (shares, mut held) = (FairQuota::new(500), Vec::new());
            for (holder, amount, gives_back) in takes {
                let mut share = shares.share(tenant(holder));
                let before = shares.held.lock().all;
                let taken = share.take(amount).is_ok();
                prop_assert_eq!(share.amount, if taken { amount } else { 0 });
                prop_assert_eq!(shares.held.lock().all, before + share.amount);
                prop_assert!(shares.held.lock().all <= 500);
                held.push(share);
                if gives_back {
                    held.remove(0);
                }
            }
            drop(held);
            prop_assert_eq!(shares.held.lock().all, 0);
        }
    }
}
