//! What all who call have in common: bytes of bodies that are under way, places of calls that wait.
//!
//! Nobody has a share of a fixed size, and nobody can take all: what one holds may be at most twice what is left for the
//! others then. Who is alone has two thirds, the next two thirds of the rest, and so on: there is some left for many more.

use std::collections::HashMap;
use std::sync::Arc;

use isobar_hub::Principal;
use isobar_model::error::Error;
use isobar_model::ids::OrganizationId;
use parking_lot::Mutex;

/// What one holds is at most so many times what is left.
const TIMES_WHAT_IS_LEFT: usize = 2;

/// Who holds a share: the tenant of whoever calls; all who show no credentials are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder(Option<OrganizationId>);

#[cfg(test)]
impl Holder {
    /// Those who show no credentials.
    pub const NOBODY: Self = Self(None);
}

impl From<&Principal> for Holder {
    fn from(principal: &Principal) -> Self {
        Self(principal.tenant())
    }
}

/// So much for all.
pub(crate) struct Shares {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    each: HashMap<Holder, usize>,
}

impl Shares {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Whether nobody holds anything.
    #[cfg(test)]
    pub fn is_untouched(&self) -> bool {
        let held = self.held.lock();
        held.all == 0 && held.each.is_empty()
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>, holder: Holder) -> Share {
        Share { shares: Arc::clone(self), holder, amount: 0 }
    }
}

/// A part of it, until it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    holder: Holder,
    amount: usize,
}

impl Share {
    /// How much it is.
    #[cfg(test)]
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes more, or is refused: then nothing has changed.
    pub fn take(&mut self, more: usize) -> Result<(), Error> {
        let mut held = self.shares.held.lock();
        let left = self.shares.most.checked_sub(held.all.saturating_add(more)).ok_or(Error::Busy)?;
        let own = held.each.get(&self.holder).copied().unwrap_or_default() + more;
        if own > left.saturating_mul(TIMES_WHAT_IS_LEFT) {
            return Err(Error::Busy);
        }
        held.all += more;
        held.each.insert(self.holder, own);
        self.amount += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut held = self.shares.held.lock();
        held.all -= self.amount;
        if let Some(own) = held.each.get_mut(&self.holder) {
            *own -= self.amount;
            if *own == 0 {
                held.each.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> Holder {
        Holder(Some(OrganizationId(Uuid::from_u128(number))))
    }

    /// Takes all that it can get, one by one.
    fn greedy(shares: &Arc<Shares>, holder: Holder) -> Share {
        let mut share = shares.share(holder);
        while share.take(1).is_ok() {}
        share
    }

    #[test]
    fn who_is_alone_has_two_thirds_and_there_is_some_left_for_the_next() {
        let shares = Shares::new(30_000);
        let mut held = Vec::new();
        for (number, amount) in [20_000, 6_666, 2_222, 741, 247].into_iter().enumerate() {
            held.push(greedy(&shares, tenant(number as u128)));
            assert!(held[number].amount.abs_diff(amount) <= 1, "{} for {amount}", held[number].amount);
        }
        // All who show nothing are one.
        let nobody = greedy(&shares, Holder::NOBODY);
        assert!(shares.share(Holder::NOBODY).take(1).is_err());
        drop((nobody, held));
        assert!(shares.is_untouched());
    }

    proptest! {
        #[test]
        fn what_is_held_is_never_more_than_there_is(
            takes in prop::collection::vec((0..4_u128, 0..200_usize, any::<bool>()), 0..100),
        ) {
            let (shares, mut held) = (Shares::new(500), Vec::new());
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
