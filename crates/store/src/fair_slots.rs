//! Slots for what takes long: a few at a time, shared fairly between tenants.
//!
//! A slot that is free goes to the tenant that has the fewest, and among those to the one that had its last the longest
//! ago. Who works longer than a slice of time while others wait gives its slot back and stands in line again, so that nobody
//! waits for the end of anybody else's work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use isobar_model::ids::OrganizationId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::error::{Result, StoreError};

/// Rows, or bytes of them, between two looks at the time.
const ROWS_A_LOOK: u32 = 64;
const BYTES_A_LOOK: usize = 64 << 10;

/// How much of one kind of work there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Slots at the same time.
    pub at_once: usize,
    /// Work that has begun and not ended: beyond, whoever begins more is refused. What goes on with what was let in before
    /// is not counted.
    pub of_all: usize,
    /// Work of one tenant that has begun and not ended: beyond, the tenant is refused.
    pub of_one: usize,
    /// After so long a slot is given back if others wait.
    pub slice: Duration,
}

/// Who asks for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whom the work is charged to: the organization at the top of the caller's.
    pub tenant: OrganizationId,
    /// It goes on with what was let in before: it waits, but is not refused.
    pub goes_on: bool,
}

impl Claim {
    /// Work of this tenant begins.
    pub const fn begin(tenant: OrganizationId) -> Self {
        Self { tenant, goes_on: false }
    }

    /// Work of this tenant that was let in goes on.
    pub const fn go_on(tenant: OrganizationId) -> Self {
        Self { tenant, goes_on: true }
    }
}

/// The slots of one kind of work.
pub struct FairSlots {
    line: Arc<Line>,
}

/// A slot, until it is dropped.
pub struct FairSlot {
    line: Arc<Line>,
    tenant: OrganizationId,
    /// What is held to the bounds; none of what only goes on.
    begun: Option<BegunWork>,
}

/// Work that has begun, until it is dropped.
struct BegunWork {
    line: Arc<Line>,
    tenant: OrganizationId,
}

struct Line {
    bounds: Bounds,
    /// How many wait, to be looked at without the lock.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    waiting: usize,
    begun: usize,
    /// Grows with each slot that is given, and each that is waited for.
    number: u64,
    /// Those that have a slot, wait for one or have begun something.
    tenants: FxHashMap<OrganizationId, TenantSlots>,
}

#[derive(Default)]
struct TenantSlots {
    taken: usize,
    begun: usize,
    /// When it had a slot last, or came.
    last: u64,
    /// Who waits, each with its number.
    waiting: VecDeque<(u64, oneshot::Sender<FairSlot>)>,
}

impl FairSlots {
    /// Nobody has one yet.
    pub fn new(bounds: Bounds) -> Self {
        Self { line: Arc::new(Line { bounds, waiting: AtomicUsize::new(0), state: Mutex::default() }) }
    }

    /// A slot, when it comes; [`StoreError::Busy`] at once where too much has begun, unless the claim is one that goes on. Who no
    /// longer waits has no place in the line.
    pub async fn take(&self, claim: Claim) -> Result<FairSlot> {
        let begun = if claim.goes_on { None } else { Some(self.line.begin(claim.tenant)?) };
        slot(self.line.join(claim.tenant), begun).await
    }

    /// How many have a slot, and how many wait for one.
    pub fn taken_and_waiting(&self) -> (usize, usize) {
        let state = self.line.state.lock();
        (state.taken, state.waiting)
    }
}

impl Line {
    /// Work of the tenant's begins, if there is room for it.
    fn begin(self: &Arc<Self>, tenant: OrganizationId) -> Result<BegunWork> {
        let mut state = self.state.lock();
        let of_tenant = state.tenants.get(&tenant).map_or(0, |it| it.begun);
        if state.begun >= self.bounds.of_all || of_tenant >= self.bounds.of_one {
            return Err(StoreError::Busy);
        }
        (state.number, state.begun) = (state.number + 1, state.begun + 1);
        state.tenant(tenant).begun += 1;
        Ok(BegunWork { line: Arc::clone(self), tenant })
    }

    /// A slot for the tenant that was free, or else a place in the line.
    fn join(self: &Arc<Self>, tenant: OrganizationId) -> std::result::Result<FairSlot, Waiter> {
        let mut state = self.state.lock();
        state.number += 1;
        let number = state.number;
        let is_free = state.taken < self.bounds.at_once;
        let came = state.tenant(tenant);
        if is_free {
            // While a slot is free nobody waits.
            (came.taken, came.last) = (came.taken + 1, number);
            state.taken += 1;
            return Ok(FairSlot { line: Arc::clone(self), tenant, begun: None });
        }
        let (give, given) = oneshot::channel();
        came.waiting.push_back((number, give));
        self.count(&mut state, 1);
        drop(state);
        Err(Waiter { line: Arc::clone(self), tenant, number, given })
    }

    fn count(&self, state: &mut State, change: isize) {
        state.waiting = state.waiting.saturating_add_signed(change);
        self.waiting.store(state.waiting, Ordering::Relaxed);
    }

    /// A slot of the tenant's is over: whose it is next.
    fn pass_on(self: &Arc<Self>, tenant: OrganizationId) {
        let next = {
            let mut state = self.state.lock();
            state.taken = state.taken.saturating_sub(1);
            state.number += 1;
            let number = state.number;
            if let Some(had) = state.tenants.get_mut(&tenant) {
                (had.taken, had.last) = (had.taken.saturating_sub(1), number);
            }
            state.forget_if_gone(tenant);
            self.next(&mut state)
        };
        if let Some((tenant, give)) = next {
            // Who has gone meanwhile drops it, and so passes it on.
            drop(give.send(FairSlot { line: Arc::clone(self), tenant, begun: None }));
        }
    }

    /// Whose slot it is, if anybody waits and a slot is free.
    fn next(&self, state: &mut State) -> Option<(OrganizationId, oneshot::Sender<FairSlot>)> {
        if state.taken >= self.bounds.at_once {
            return None;
        }
        let waiting = state.tenants.iter().filter(|(_, it)| !it.waiting.is_empty());
        let (tenant, _) = waiting.min_by_key(|(_, it)| (it.taken, it.last))?;
        let tenant = *tenant;
        state.number += 1;
        let number = state.number;
        let chosen = state.tenants.get_mut(&tenant)?;
        let (_, give) = chosen.waiting.pop_front()?;
        (chosen.taken, chosen.last) = (chosen.taken + 1, number);
        state.taken += 1;
        self.count(state, -1);
        Some((tenant, give))
    }
}

impl State {
    /// A tenant, who may just have come.
    fn tenant(&mut self, tenant: OrganizationId) -> &mut TenantSlots {
        let last = self.number;
        self.tenants.entry(tenant).or_insert_with(|| TenantSlots { last, ..TenantSlots::default() })
    }

    fn forget_if_gone(&mut self, tenant: OrganizationId) {
        if self.tenants.get(&tenant).is_some_and(|it| it.taken == 0 && it.begun == 0 && it.waiting.is_empty()) {
            self.tenants.remove(&tenant);
        }
    }
}

/// A place in the line, until it is dropped.
struct Waiter {
    line: Arc<Line>,
    tenant: OrganizationId,
    number: u64,
    given: oneshot::Receiver<FairSlot>,
}

/// The slot, when it comes, for what has begun, or else for what goes on.
async fn slot(joined: std::result::Result<FairSlot, Waiter>, begun: Option<BegunWork>) -> Result<FairSlot> {
    let mut slot = match joined {
        Ok(slot) => slot,
        Err(mut waiter) => (&mut waiter.given).await.map_err(StoreError::unavailable)?,
    };
    slot.begun = begun;
    Ok(slot)
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        let Some(tenant) = state.tenants.get_mut(&self.tenant) else { return };
        let before = tenant.waiting.len();
        tenant.waiting.retain(|(number, _)| *number != self.number);
        if tenant.waiting.len() < before {
            self.line.count(&mut state, -1);
            state.forget_if_gone(self.tenant);
        }
    }
}

impl FairSlot {
    /// Whether somebody waits for it.
    fn is_wanted(&self) -> bool {
        self.line.waiting.load(Ordering::Relaxed) > 0
    }

    /// Lets others go first, and waits for another one.
    pub async fn pass_on(mut self) -> Result<FairSlot> {
        let (line, tenant, begun) = (Arc::clone(&self.line), self.tenant, self.begun.take());
        let joined = line.join(tenant);
        drop(self);
        slot(joined, begun).await
    }

    /// A slice of work begins.
    pub fn slice(&self) -> Slice<'_> {
        Slice { slot: self, begun: Instant::now(), rows: 0, bytes: 0 }
    }
}

impl Drop for BegunWork {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.begun = state.begun.saturating_sub(1);
        if let Some(tenant) = state.tenants.get_mut(&self.tenant) {
            tenant.begun = tenant.begun.saturating_sub(1);
        }
        state.forget_if_gone(self.tenant);
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        self.line.pass_on(self.tenant);
    }
}

/// Work within one slot, which ends when it has lasted and others wait.
pub struct Slice<'a> {
    slot: &'a FairSlot,
    begun: Instant,
    rows: u32,
    bytes: usize,
}

impl Slice<'_> {
    /// A row of so many bytes was worked on; whether it is time to look around.
    pub fn is_time_to_look(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.rows < ROWS_A_LOOK && self.bytes < BYTES_A_LOOK {
            return false;
        }
        (self.rows, self.bytes) = (0, 0);
        true
    }

    /// Whether the work goes on in this slot.
    pub fn goes_on(&self) -> bool {
        !self.slot.is_wanted() || self.begun.elapsed() < self.slot.line.bounds.slice
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const BOUNDS: Bounds = Bounds { at_once: 2, of_all: 6, of_one: 4, slice: Duration::ZERO };

    fn tenant(number: u128) -> OrganizationId {
        OrganizationId(Uuid::from_u128(number))
    }

    /// Somebody of the tenant who waits.
    fn waiter(slots: &FairSlots, of: u128) -> BoxFuture<'_, Result<FairSlot>> {
        let mut waits = slots.take(Claim::begin(tenant(of))).boxed();
        assert!((&mut waits).now_or_never().is_none());
        waits
    }

    /// What somebody of the tenant hears who does not have to wait.
    fn at_once(slots: &FairSlots, of: u128) -> Result<FairSlot> {
        slots.take(Claim::begin(tenant(of))).now_or_never().unwrap()
    }

    #[test]
    fn who_waits_is_bounded_of_all_and_of_one() {
        let slots = FairSlots::new(BOUNDS);
        let taken = [at_once(&slots, 1).unwrap(), at_once(&slots, 1).unwrap()];
        let waiting = [waiter(&slots, 1), waiter(&slots, 1)];
        assert!(matches!(at_once(&slots, 1), Err(StoreError::Busy)));
        let others = [waiter(&slots, 2), waiter(&slots, 3)];
        assert!(matches!(at_once(&slots, 4), Err(StoreError::Busy)));
        // What was let in is not refused.
        let mut goes_on = slots.take(Claim::go_on(tenant(4))).boxed();
        assert!((&mut goes_on).now_or_never().is_none());
        assert_eq!(slots.taken_and_waiting(), (2, 5));
        // Who hangs up makes room.
        drop((waiting, others));
        assert_eq!(slots.taken_and_waiting(), (2, 1));
        drop(taken);
        assert!((&mut goes_on).now_or_never().unwrap().is_ok());
        assert_eq!(slots.taken_and_waiting(), (0, 0));
        assert!(slots.line.state.lock().tenants.is_empty());
    }

    #[test]
    fn what_goes_on_keeps_nobody_out() {
        let slots = FairSlots::new(BOUNDS);
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
    fn who_lets_others_go_first_has_begun_once() {
        let slots = FairSlots::new(Bounds { at_once: 1, of_all: 2, of_one: 2, slice: Duration::ZERO });
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
    fn a_tenant_with_many_leaves_the_next_turn_to_one_with_few() {
        let slots = FairSlots::new(BOUNDS);
        let taken = [at_once(&slots, 1).unwrap(), at_once(&slots, 1).unwrap()];
        let mut many = [waiter(&slots, 1), waiter(&slots, 1)];
        let mut other = waiter(&slots, 2);
        let [first, _second] = taken;
        drop(first);
        assert!(many.iter_mut().all(|waits| waits.now_or_never().is_none()));
        assert!((&mut other).now_or_never().unwrap().is_ok());
    }

    #[test]
    fn tenants_with_as_many_have_their_turn_one_after_the_other() {
        let slots = FairSlots::new(Bounds { at_once: 1, of_all: 20, of_one: 10, slice: Duration::ZERO });
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
    fn a_slice_ends_when_somebody_waits() {
        let slots = FairSlots::new(Bounds { at_once: 1, ..BOUNDS });
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
    fn large_rows_and_many_rows_are_a_reason_to_look() {
        let slots = FairSlots::new(BOUNDS);
        let slot = at_once(&slots, 1).unwrap();
        let mut slice = slot.slice();
        assert!(slice.is_time_to_look(1 << 20));
        let looks = (0..640).filter(|_| slice.is_time_to_look(10)).count();
        assert_eq!(looks, 10);
    }

    proptest! {
        /// Whatever is asked for, given up and hung up on: no slot is lost, none is given twice, nobody waits for a free one.
        #[test]
        fn no_turn_is_lost(steps in prop::collection::vec((0_u8..4, 0_usize..8, 0_u128..4), 0..200)) {
            let slots = FairSlots::new(BOUNDS);
            let (mut taken, mut waiting): (Vec<FairSlot>, Vec<BoxFuture<'_, Result<FairSlot>>>) = (Vec::new(), Vec::new());
            for (step, at, of) in steps {
                match step {
                    0 | 1 => {
                        let mut asks = slots.take(Claim { tenant: tenant(of), goes_on: step == 1 }).boxed();
                        match (&mut asks).now_or_never() {
                            Some(Ok(slot)) => taken.push(slot),
                            Some(Err(_)) => {}
                            None => waiting.push(asks),
                        }
                    }
                    2 if !taken.is_empty() => drop(taken.remove(at % taken.len())),
                    3 if !waiting.is_empty() => drop(waiting.remove(at % waiting.len())),
                    _ => {}
                }
                let mut left = Vec::new();
                for mut waits in waiting {
                    match (&mut waits).now_or_never() {
                        Some(slot) => taken.push(slot.unwrap()),
                        None => left.push(waits),
                    }
                }
                waiting = left;
                prop_assert_eq!(slots.taken_and_waiting(), (taken.len(), waiting.len()));
                prop_assert!(taken.len() <= BOUNDS.at_once && (waiting.is_empty() || taken.len() == BOUNDS.at_once));
            }
            drop((taken, waiting));
            prop_assert!(slots.line.state.lock().tenants.is_empty());
        }
    }
}
