//! An amount shared by tenants: memory, slots, connections. There are no fixed shares, and no tenant can take
//! everything: a tenant may hold at most twice what is then left for others. A single tenant gets two thirds, the next
//! two thirds of the rest, and so on, so that something is left for many more.
//!
//! Tenants of one site count together against others (see [`isobar_model::site`]): the holdings of a tenant and of its whole
//! site together are at most four times what is left. So a site with any number of tenants leaves a fifth to others,
//! and each of its tenants leaves something to the next.

use crate::Holding;

/// Largest holding of a tenant that is alone in its site, as a multiple of what is left.
const HELD_PER_LEFT_MAX: usize = 2;

/// The total of a shared amount. Callers count what is held.
#[derive(Clone, Copy, Debug)]
pub struct SharedAmount(usize);

impl SharedAmount {
    /// Makes a shared amount of `total`.
    pub const fn of(total: usize) -> Self {
        Self(total)
    }

    /// Returns true if a tenant and its site may hold `own`, when all holdings, this one included, sum up to `all`.
    pub const fn allows(self, own: Holding, all: usize) -> bool {
        match self.0.checked_sub(all) {
            Some(left) => own.of_tenant.saturating_add(own.of_site) <= left.saturating_mul(2 * HELD_PER_LEFT_MAX),
            None => false,
        }
    }

    /// Returns true if nothing is left when all together hold `all`.
    pub const fn is_spent(self, all: usize) -> bool {
        all >= self.0
    }

    /// Returns the largest holding of a single tenant. While all together hold no more than this, no tenant can exceed
    /// its share, and holdings need not be checked.
    pub const fn of_one(self) -> usize {
        self.0 / (HELD_PER_LEFT_MAX + 1) * HELD_PER_LEFT_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TENANTS: usize = 4;

    /// Returns the holding of a tenant that is alone in its site.
    fn alone(own: usize) -> Holding {
        Holding { of_site: own, of_tenant: own }
    }

    /// Holdings of tenants under the rule.
    struct Held {
        amount: SharedAmount,
        each: [usize; TENANTS],
    }

    impl Held {
        fn all(&self) -> usize {
            self.each.iter().sum()
        }

        /// Takes an amount if the tenant may; returns whether it did.
        fn take(&mut self, tenant: usize, more: usize) -> bool {
            let is_allowed = self.amount.allows(alone(self.each[tenant] + more), self.all() + more);
            self.each[tenant] += if is_allowed { more } else { 0 };
            is_allowed
        }
    }

    #[test]
    fn single_tenant_gets_two_thirds_and_the_next_of_the_rest() {
        let mut held = Held { amount: SharedAmount::of(81), each: [0; TENANTS] };
        for (tenant, most) in [54, 18, 6, 2].into_iter().enumerate() {
            while held.take(tenant, 1) {}
            assert_eq!(held.each[tenant], most);
        }
        assert!(!held.amount.allows(alone(usize::MAX), usize::MAX) && SharedAmount::of(usize::MAX).allows(alone(1), 1));
        assert_eq!(held.amount.of_one(), 54);
    }

    #[test]
    fn site_of_many_tenants_leaves_a_fifth_to_others() {
        let amount = SharedAmount::of(1_000);
        let (mut all, mut each) = (0, Vec::new());
        for _ in 0..4 {
            let mut own = Holding { of_site: all, of_tenant: 0 };
            while amount.allows(own.plus(1), own.of_site + 1) {
                own = own.plus(1);
            }
            (all, _) = (own.of_site, each.push(own.of_tenant));
        }
        assert_eq!(each, [666, 111, 19, 3]);
        let crowd = (1..).take_while(|all| amount.allows(Holding { of_site: *all, of_tenant: 1 }, *all)).count();
        assert_eq!(crowd, 799);
    }

    proptest! {
        #[test]
        fn shared_amount_leaves_room_for_another_tenant(
            total in 0..10_000_usize,
            turns in prop::collection::vec((0..TENANTS, 0..10_000_usize, any::<bool>()), 0..100),
        ) {
            let mut held = Held { amount: SharedAmount::of(total), each: [0; TENANTS] };
            for (tenant, amount, gives_back) in turns {
                if gives_back {
                    held.each[tenant] -= amount.min(held.each[tenant]);
                } else {
                    held.take(tenant, amount);
                }
                let all = held.all();
                prop_assert!(all <= total);
                prop_assert!(held.each.iter().all(|own| own * 3 <= total * 2));
                // Each tenant leaves a third of what it found, which the next may share.
                let left = total - all;
                prop_assert!(left * 3_usize.pow(TENANTS as u32) >= total);
                prop_assert!(held.amount.allows(alone(left * 2 / 3), all + left * 2 / 3));
                prop_assert!(all > held.amount.of_one() || held.each.iter().all(|own| held.amount.allows(alone(*own), all)));
            }
        }

        #[test]
        fn single_tenant_gets_the_documented_share(total in 0..10_000_usize) {
            let amount = SharedAmount::of(total);
            prop_assert!(amount.allows(alone(amount.of_one()), amount.of_one()));
            prop_assert!(!amount.allows(alone(amount.of_one() + 2), amount.of_one() + 2));
        }
    }
}
