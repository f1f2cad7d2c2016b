use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::UNLIMITED;

const LIMITS: Limit = Limit { at_once: 2, of_all: 6, of_one: 4, slice: Duration::ZERO, ..UNLIMITED };

fn tenant(number: u128) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number))
}

/// A tenant of a site that has others.
fn tenant_of(number: u128, site: u32) -> OrganizationId {
    Site::of_tag(site).founds(Uuid::from_u128(number << 32))
}

impl State<OrganizationId> {
    fn is_forgotten(&self) -> bool {
        self.holders.is_empty() && self.tenants.is_empty() && self.sites.is_empty() && self.holds.is_nothing()
    }
}

/// Claims a slot for a tenant, and waits.
fn waiter(slots: &FairQueue, of: u128) -> BoxFuture<'_, Result<QueueSlot>> {
    let mut waits = slots.take(Claim::begin(tenant(of))).boxed();
    assert!((&mut waits).now_or_never().is_none());
    waits
}

/// Claims a slot for a tenant; the answer comes without a wait.
fn at_once(slots: &FairQueue, of: u128) -> Result<QueueSlot> {
    slots.take(Claim::begin(tenant(of))).now_or_never().unwrap()
}

#[test]
fn waiting_is_bounded_of_all_and_of_one() {
    let slots = FairQueue::new(&LIMITS);
    let taken = [at_once(&slots, 1).unwrap(), at_once(&slots, 2).unwrap()];
    let waiting = [waiter(&slots, 1), waiter(&slots, 1)];
    let others = [waiter(&slots, 2), waiter(&slots, 3)];
    // Who would have as many as the one that has most.
    assert!(matches!(at_once(&slots, 2), Err(Full { .. })));
    let mut fewer = waiter(&slots, 3);
    assert!(matches!(at_once(&slots, 3), Err(Full { .. })));
    // What was let in is not refused.
    let mut goes_on = slots.take(Claim::go_on(tenant(4))).boxed();
    assert!((&mut goes_on).now_or_never().is_none());
    assert_eq!(slots.taken_and_waiting(), (2, 5));
    // Who hangs up makes room.
    drop((waiting, others));
    assert_eq!(slots.taken_and_waiting(), (2, 2));
    drop(waiter(&slots, 1));
    let _own = [waiter(&slots, 5), waiter(&slots, 5), waiter(&slots, 5)];
    assert!(matches!(at_once(&slots, 5), Err(Full { .. })));
    drop((_own, taken));
    assert!((&mut goes_on).now_or_never().unwrap().is_ok() && (&mut fewer).now_or_never().unwrap().is_ok());
    assert_eq!(slots.taken_and_waiting(), (0, 0));
    assert!(slots.line.state.lock().is_forgotten());
}

#[test]
fn newcomer_evicts_the_heaviest_tenant_when_full() {
    let slots = FairQueue::new(&LIMITS);
    let taken = [1, 1].map(|of| at_once(&slots, of).unwrap());
    let mut many = [waiter(&slots, 1), waiter(&slots, 1)];
    let mut others = [waiter(&slots, 2), waiter(&slots, 3)];
    let mut victims = [waiter(&slots, 4)];
    assert!(matches!((&mut many[1]).now_or_never(), Some(Err(Full { .. }))));
    assert!((&mut many[0]).now_or_never().is_none());
    let mut next = waiter(&slots, 5);
    assert!(matches!((&mut many[0]).now_or_never(), Some(Err(Full { .. }))));
    // Nobody has two that wait, and what has a slot is let be.
    assert!(matches!(at_once(&slots, 6), Err(Full { .. })));
    assert_eq!(slots.taken_and_waiting(), (2, 4));
    let all = others.iter_mut().chain(&mut victims).chain([&mut next]);
    drop(taken);
    assert!(all.into_iter().all(|waits| waits.now_or_never().is_some_and(|slot| slot.is_ok())));
    drop((many, others, victims, next));
    assert!(slots.line.state.lock().is_forgotten());
}

#[test]
fn three_tenants_and_a_crowded_site_leave_room() {
    let limits = Limit { at_once: 4, of_all: 64, of_one: 24, slice: Duration::ZERO, ..UNLIMITED };
    let crowds: [&dyn Fn(u128) -> OrganizationId; 2] =
        [&|number| tenant(1 + number % 3), &|number| tenant_of(number, u32::MAX)];
    for crowd in crowds {
        let slots = FairQueue::new(&limits);
        let mut all: Vec<_> = (0..200).map(|number| slots.take(Claim::begin(crowd(number))).boxed()).collect();
        let _held: Vec<_> = all.iter_mut().filter_map(|asks| asks.now_or_never()).collect();
        assert_eq!(slots.taken_and_waiting(), (4, 60));
        let mut victims: Vec<_> = (10..30).map(|number| waiter(&slots, number)).collect();
        assert_eq!(slots.taken_and_waiting(), (4, 60));
        // Neither is one of them pushed out by who comes back.
        let again: Vec<_> =
            (0..200).filter(|number| slots.take(Claim::begin(crowd(*number))).now_or_never().is_none()).collect();
        assert!(again.is_empty(), "{again:?}");
        assert!(victims.iter_mut().all(|waits| waits.now_or_never().is_none()));
    }
}

#[test]
fn tenants_of_one_site_share_one_turn() {
    let slots = FairQueue::new(&Limit { at_once: 1, of_all: 20, of_one: 10, slice: Duration::ZERO, ..UNLIMITED });
    let mut slot = Some(at_once(&slots, 9).unwrap());
    let crowd = |number| slots.take(Claim::begin(tenant_of(number, 7))).boxed();
    let others = [(2, waiter(&slots, 2)), (2, waiter(&slots, 2))];
    let mut waits: Vec<_> = (10..14).map(|number| (7, crowd(number))).chain(others).collect();
    assert!(waits.iter_mut().all(|(_, waits)| waits.now_or_never().is_none()));
    let mut order = Vec::new();
    while slot.take().is_some() && !waits.is_empty() {
        let next = waits.iter_mut().position(|(_, waits)| {
            slot = waits.now_or_never().map(Result::unwrap);
            slot.is_some()
        });
        order.push(waits.remove(next.unwrap()).0);
    }
    assert_eq!(order, [2, 7, 2, 7, 7, 7]);
}

#[test]
fn newcomer_of_a_site_evicts_its_heaviest_tenant() {
    let slots = FairQueue::new(&Limit { at_once: 1, of_all: 5, of_one: 4, slice: Duration::ZERO, ..UNLIMITED });
    let _slot = at_once(&slots, 1).unwrap();
    let ask = |number| slots.take(Claim::begin(tenant_of(number, 7))).boxed();
    let mut many: Vec<_> = [10, 10, 10].into_iter().map(ask).collect();
    let _other = waiter(&slots, 1);
    assert!(many.iter_mut().all(|waits| waits.now_or_never().is_none()));
    let mut few = [ask(11)];
    assert!(few.iter_mut().all(|waits| waits.now_or_never().is_none()));
    assert!(matches!((&mut many[2]).now_or_never(), Some(Err(Full { .. }))));
    assert!(matches!(ask(11).now_or_never(), Some(Err(Full { .. }))));
}

#[test]
fn granted_slot_is_not_evicted_by_the_next_claim() {
    let slots = FairQueue::new(&Limit { at_once: 1, of_all: 3, of_one: 3, slice: Duration::ZERO, ..UNLIMITED });
    let slot = at_once(&slots, 1).unwrap();
    let mut waiting = [waiter(&slots, 1), waiter(&slots, 1)];
    // The slot is on its way to the first one, who has not looked yet.
    drop(slot);
    let mut others = vec![waiter(&slots, 2)];
    assert_eq!(slots.taken_and_waiting(), (1, 2));
    others.push(waiter(&slots, 3));
    assert!(matches!((&mut waiting[1]).now_or_never(), Some(Err(Full { .. }))));
    assert!(matches!(at_once(&slots, 4), Err(Full { .. })));
    // Who hangs up on it passes it on.
    drop(waiting);
    let next = (&mut others[0]).now_or_never().unwrap().unwrap();
    drop(next);
    assert!((&mut others[1]).now_or_never().unwrap().is_ok());
    drop(others);
    assert!(slots.line.state.lock().is_forgotten());
}

#[test]
fn paused_work_is_evicted_and_continued_work_is_not() {
    let slots = FairQueue::new(&Limit { at_once: 1, of_all: 2, of_one: 2, slice: Duration::ZERO, ..UNLIMITED });
    let slot = at_once(&slots, 1).unwrap();
    let mut second = waiter(&slots, 1);
    let mut goes_on = slots.take(Claim::go_on(tenant(1))).boxed();
    assert!((&mut goes_on).now_or_never().is_none());
    let mut first = slot.pass_on().boxed();
    assert!((&mut first).now_or_never().is_none());
    let held = (&mut second).now_or_never().unwrap().unwrap();
    // The second has the slot, so the first is the youngest that waits.
    let mut other = waiter(&slots, 2);
    assert!(matches!((&mut first).now_or_never(), Some(Err(Full { .. }))));
    drop(held);
    drop((&mut other).now_or_never().unwrap().unwrap());
    drop((&mut goes_on).now_or_never().unwrap().unwrap());
    drop((first, second, other, goes_on));
    assert!(slots.line.state.lock().is_forgotten());
}

#[test]
fn continued_work_refuses_no_other() {
    let slots = FairQueue::new(&LIMITS);
    let taken = [1, 1].map(|of| at_once(&slots, of).unwrap());
    let mut streams: Vec<_> = (0..100).map(|_| slots.take(Claim::go_on(tenant(1))).boxed()).collect();
    assert!(streams.iter_mut().all(|waits| waits.now_or_never().is_none()));
    // Neither another tenant nor, for what it begins, their own.
    let (mut other, _own) = (waiter(&slots, 2), waiter(&slots, 1));
    drop(taken);
    // The other one has its slot before them.
    assert!((&mut other).now_or_never().unwrap().is_ok());
    drop((streams, other));
    assert_eq!(slots.taken_and_waiting().1, 0);
}

#[test]
fn work_that_queues_again_counts_once() {
    let slots = FairQueue::new(&Limit { at_once: 1, of_all: 2, of_one: 2, slice: Duration::ZERO, ..UNLIMITED });
    let slot = at_once(&slots, 1).unwrap();
    let mut other = waiter(&slots, 2);
    let mut again = slot.pass_on().boxed();
    assert!((&mut again).now_or_never().is_none());
    assert!(at_once(&slots, 3).is_err());
    drop((&mut other).now_or_never().unwrap());
    let _again = again.now_or_never().unwrap().unwrap();
    drop(waiter(&slots, 3));
}

#[test]
fn next_slot_goes_to_the_tenant_with_fewest() {
    let slots = FairQueue::new(&LIMITS);
    let taken = [at_once(&slots, 1).unwrap(), at_once(&slots, 1).unwrap()];
    let mut many = [waiter(&slots, 1), waiter(&slots, 1)];
    let mut other = waiter(&slots, 2);
    let [first, _second] = taken;
    drop(first);
    assert!(many.iter_mut().all(|waits| waits.now_or_never().is_none()));
    assert!((&mut other).now_or_never().unwrap().is_ok());
}

#[test]
fn equal_tenants_alternate() {
    let slots = FairQueue::new(&Limit { at_once: 1, of_all: 20, of_one: 10, slice: Duration::ZERO, ..UNLIMITED });
    let mut slot = Some(at_once(&slots, 1).unwrap());
    let mut waits: Vec<_> = [1, 1, 1, 1, 2, 2, 3].map(|of| (of, waiter(&slots, of))).into();
    let mut order = Vec::new();
    while slot.take().is_some() && !waits.is_empty() {
        let next = waits.iter_mut().position(|(_, waits)| {
            slot = waits.now_or_never().map(Result::unwrap);
            slot.is_some()
        });
        order.push(waits.remove(next.unwrap()).0);
    }
    assert_eq!(order, [2, 3, 1, 2, 1, 1, 1]);
}

#[test]
fn slice_ends_when_another_claim_waits() {
    let slots = FairQueue::new(&Limit { at_once: 1, ..LIMITS });
    let slot = at_once(&slots, 1).unwrap();
    assert!(slot.slice().goes_on());
    let mut other = waiter(&slots, 2);
    assert!(!slot.slice().goes_on());
    let mut again = slot.pass_on().boxed();
    assert!((&mut again).now_or_never().is_none());
    drop((&mut other).now_or_never().unwrap());
    assert!(again.now_or_never().unwrap().is_ok());
}

#[test]
fn large_or_many_rows_are_a_time_to_look() {
    let slots = FairQueue::new(&LIMITS);
    let slot = at_once(&slots, 1).unwrap();
    let mut slice = slot.slice();
    assert!(slice.is_time_to_look(1 << 20));
    let looks = (0..640).filter(|_| slice.is_time_to_look(10)).count();
    assert_eq!(looks, 10);
}

/// The expected slots and waiting claims.
#[derive(Default)]
struct Expected<'s> {
    taken: Vec<(Claim, QueueSlot)>,
    waiting: Vec<(Claim, BoxFuture<'s, Result<QueueSlot>>)>,
}

impl<'s> Expected<'s> {
    fn asks(&mut self, slots: &'s FairQueue, claim: Claim) -> std::result::Result<(), TestCaseError> {
        let own = self.begun(claim.holder);
        let begun = self.claims().filter(|claim| !claim.goes_on).count();
        let yields = |it: &Claim| self.begun(it.holder).yields_to(own, it.holder.site() == claim.holder.site());
        let can_yield = self.waiting.iter().any(|(it, _)| !it.goes_on && yields(it));
        let mut asks = slots.take(claim).boxed();
        match (&mut asks).now_or_never() {
            Some(Ok(slot)) => self.taken.push((claim, slot)),
            None => self.waiting.push((claim, asks)),
            Some(Err(_)) => {
                prop_assert!(!claim.goes_on && (own.of_tenant == LIMITS.of_one || begun == LIMITS.of_all));
                prop_assert!(own.of_tenant == LIMITS.of_one || !can_yield);
            }
        }
        self.hear(usize::from(can_yield && begun == LIMITS.of_all))
    }

    /// Collects the answers of waiting claims: slots, and at most so many evictions.
    fn hear(&mut self, evicted_max: usize) -> std::result::Result<(), TestCaseError> {
        let mut evicted = 0;
        for (claim, mut waits) in std::mem::take(&mut self.waiting) {
            match (&mut waits).now_or_never() {
                Some(Ok(slot)) => self.taken.push((claim, slot)),
                Some(Err(_)) => {
                    prop_assert!(!claim.goes_on);
                    evicted += 1;
                }
                None => self.waiting.push((claim, waits)),
            }
        }
        prop_assert!(evicted <= evicted_max);
        Ok(())
    }

    fn claims(&self) -> impl Iterator<Item = Claim> {
        self.taken.iter().map(|(claim, _)| *claim).chain(self.waiting.iter().map(|(claim, _)| *claim))
    }

    fn begun(&self, tenant: OrganizationId) -> Holding {
        let count = |is_own: &dyn Fn(OrganizationId) -> bool| {
            self.claims().filter(|claim| !claim.goes_on && is_own(claim.holder)).count()
        };
        Holding { of_site: count(&|it| it.site() == tenant.site()), of_tenant: count(&|it| it == tenant) }
    }
}

proptest! {
    /// Checks for any order of claims, ends, cancellations and pauses: no slot is lost or granted twice, no claim waits for a
    /// free one, and a refused holder has as many as those who wait.
    #[test]
    fn no_slot_is_lost(steps in prop::collection::vec((0_u8..5, 0_usize..8, 0_u128..6), 0..200)) {
        let slots = FairQueue::new(&LIMITS);
        let mut expected = Expected::default();
        for (step, at, of) in steps {
            match step {
                0 | 1 => {
                    let tenant = tenant_of(of + 1, of as u32 / 2);
                    expected.asks(&slots, Claim { holder: tenant, goes_on: step == 1 })?;
                }
                2 if !expected.taken.is_empty() => drop(expected.taken.remove(at % expected.taken.len())),
                3 if !expected.waiting.is_empty() => drop(expected.waiting.remove(at % expected.waiting.len())),
                4 if !expected.taken.is_empty() => {
                    let (claim, slot) = expected.taken.remove(at % expected.taken.len());
                    let mut again = slot.pass_on().boxed();
                    match (&mut again).now_or_never() {
                        Some(slot) => expected.taken.push((claim, slot.unwrap())),
                        None => expected.waiting.push((claim, again)),
                    }
                }
                _ => {}
            }
            expected.hear(0)?;
            let (taken, waiting) = (expected.taken.len(), expected.waiting.len());
            prop_assert_eq!(slots.taken_and_waiting(), (taken, waiting));
            prop_assert!(taken <= LIMITS.at_once && (waiting == 0 || taken == LIMITS.at_once));
            prop_assert!(expected.claims().filter(|claim| !claim.goes_on).count() <= LIMITS.of_all);
        }
        drop(expected);
        prop_assert!(slots.line.state.lock().is_forgotten());
    }
}

#[test]
fn tenant_with_its_part_of_the_slots_waits_although_one_is_free() {
    let slots = FairQueue::new(&Limit { at_once: 3, at_once_of_tenant: 2, ..UNLIMITED });
    let mut own = vec![at_once(&slots, 1).unwrap(), at_once(&slots, 1).unwrap()];
    let mut waits = waiter(&slots, 1);
    let other = at_once(&slots, 2).unwrap();
    drop(other);
    assert!((&mut waits).now_or_never().is_none(), "a slot of another tenant is none of its part");
    own.pop();
    assert!(waits.now_or_never().unwrap().is_ok());
    drop(own);
    assert!(slots.line.state.lock().is_forgotten());
}
