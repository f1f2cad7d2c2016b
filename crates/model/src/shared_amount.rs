//! An amount that tenants share: memory, places, connections. No tenant has a part of a fixed size, and none can take
//! everything: what one tenant holds is at most twice what is left for the others then. A tenant that is alone has two thirds,
//! the next has two thirds of the rest, and so on, so that something is left for many more.

/// What a tenant holds is at most so many times what is left.
const HELD_PER_LEFT_MAX: usize = 2;

/// So much of something. Who shares it keeps the count of what is held.
#[derive(Clone, Copy, Debug)]
pub struct SharedAmount(usize);

impl SharedAmount {
    /// So much of it.
    pub const fn of(total: usize) -> Self {
        Self(total)
    }

    /// Whether a tenant may hold `own` of it, where all together, this tenant among them, then hold `all`.
    pub const fn allows(self, own: usize, all: usize) -> bool {
        match self.0.checked_sub(all) {
            Some(left) => own <= left.saturating_mul(HELD_PER_LEFT_MAX),
            None => false,
        }
    }

    /// As long as all together hold no more than this, no tenant can hold more than it may: nobody need look at who holds
    /// what. A tenant that is alone may hold no more.
    pub const fn of_one(self) -> usize {
        self.0 / (HELD_PER_LEFT_MAX + 1) * HELD_PER_LEFT_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TENANTS: usize = 4;

    /// How much tenants hold, and the rule that they go by.
    struct Held {
        amount: SharedAmount,
        each: [usize; TENANTS],
    }

    impl Held {
        fn all(&self) -> usize {
            self.each.iter().sum()
        }

        /// Takes so much, if the tenant may.
        fn take(&mut self, tenant: usize, more: usize) -> bool {
            let is_allowed = self.amount.allows(self.each[tenant] + more, self.all() + more);
            self.each[tenant] += if is_allowed { more } else { 0 };
            is_allowed
        }
    }

    #[test]
    fn who_is_alone_has_two_thirds_and_the_next_two_thirds_of_the_rest() {
        let mut held = Held { amount: SharedAmount::of(81), each: [0; TENANTS] };
        for (tenant, most) in [54, 18, 6, 2].into_iter().enumerate() {
            while held.take(tenant, 1) {}
            assert_eq!(held.each[tenant], most);
        }
        assert!(!held.amount.allows(usize::MAX, usize::MAX) && SharedAmount::of(usize::MAX).allows(1, 1));
        assert_eq!(held.amount.of_one(), 54);
    }

    proptest! {
        #[test]
        fn nobody_has_all_of_it_and_another_one_always_finds_room(
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
                // Each tenant that has come leaves a third of what it found, and whoever comes next may have the rest of that.
                let left = total - all;
                prop_assert!(left * 3_usize.pow(TENANTS as u32) >= total);
                prop_assert!(held.amount.allows(left * 2 / 3, all + left * 2 / 3));
                prop_assert!(all > held.amount.of_one() || held.each.iter().all(|own| held.amount.allows(*own, all)));
            }
        }

        #[test]
        fn who_is_alone_has_what_is_said_of_one(total in 0..10_000_usize) {
            let amount = SharedAmount::of(total);
            prop_assert!(amount.allows(amount.of_one(), amount.of_one()));
            prop_assert!(!amount.allows(amount.of_one() + 2, amount.of_one() + 2));
        }
    }
}
