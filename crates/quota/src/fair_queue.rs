//! A queue for slots, which are the right to do long work: a few at a time, shared fairly between tenants.
//!
//! A free slot goes to the site that has the fewest (see [`isobar_model::site`]), and among equals to the one that had
//! its last slot the longest ago; within a site to its tenants, and within a tenant to its parts, by the same rule. Work that lasts longer than a slice of
//! time while others wait returns its slot and queues again, so that no work waits for the end of another.
//!
//! When the queue is full, the tenant that has begun most loses its youngest waiting work to a tenant that has begun
//! less ([`Holding::yields_to`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use isobar_model::ids::OrganizationId;
use isobar_model::site::Site;
use isobar_model::time::Clock;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{Full, Holding, Limit, LimitMeter};

type Result<T> = std::result::Result<T, Full>;

/// Rows and bytes of rows between two reads of the clock.
const ROWS_A_LOOK: u32 = 64;
const BYTES_A_LOOK: usize = 64 << 10;

/// A party that competes for slots, alone and together with its site.
pub trait Holder: Copy + Ord + Send + 'static {
    /// The tenant that the party belongs to, or the party itself.
    type Tenant: Copy + Ord + Send;
    /// The group of tenants that count together against others.
    type Site: Copy + Ord + Send;

    /// Returns the tenant of this party.
    fn tenant(&self) -> Self::Tenant;

    /// Returns the group of this party.
    fn site(&self) -> Self::Site;
}

impl Holder for OrganizationId {
    type Tenant = Self;
    type Site = Site;

    fn tenant(&self) -> Self {
        *self
    }

    fn site(&self) -> Site {
        Self::site(self)
    }
}

/// A request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<H = OrganizationId> {
    /// The party that the work is charged to, in most queues the top-level organization of the caller.
    pub holder: H,
    /// True for the continuation of admitted work, which waits but is never refused.
    pub goes_on: bool,
}

impl<H> Claim<H> {
    /// Claims a slot for new work of this holder.
    pub const fn begin(holder: H) -> Self {
        Self { holder, goes_on: false }
    }

    /// Claims a slot for the continuation of admitted work of this holder.
    pub const fn go_on(holder: H) -> Self {
        Self { holder, goes_on: true }
    }
}

/// The slots of one kind of work, and the line of those who wait for one.
pub struct FairQueue<H: Holder = OrganizationId> {
    line: Arc<Line<H>>,
}

/// A slot, until it is dropped.
pub struct QueueSlot<H: Holder = OrganizationId> {
    line: Arc<Line<H>>,
    holder: H,
    /// The number of the work's begin; none if the claim was a continuation.
    begun: Option<u64>,
}

struct Line<H: Holder> {
    limit: Limit,
    meter: LimitMeter,
    /// Length of the line, read without the lock.
    waiting: AtomicUsize,
    state: Mutex<State<H>>,
}

struct State<H: Holder> {
    meter: LimitMeter,
    /// Sum over all tenants.
    holds: Holds,
    /// Increments with each slot that is granted, each that is waited for, and all work that begins.
    number: u64,
    /// Holders that have a slot, wait for one or have begun something.
    holders: BTreeMap<H, HolderSlots<H>>,
    tenants: BTreeMap<H::Tenant, Holds>,
    sites: BTreeMap<H::Site, Holds>,
}

/// Counts of a tenant or a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holds {
    taken: usize,
    waiting: usize,
    begun: usize,
    /// Number of its last slot, or of its arrival.
    last: u64,
}

struct HolderSlots<H: Holder> {
    holds: Holds,
    line: VecDeque<Waiting<H>>,
}

/// Waiting work in the line of a tenant.
struct Waiting<H: Holder> {
    number: u64,
    begun: Option<u64>,
    give: oneshot::Sender<QueueSlot<H>>,
}

impl<H: Holder> FairQueue<H> {
    /// Makes a queue with all slots free.
    pub fn new(limit: &Limit) -> Self {
        let meter = LimitMeter::new(limit);
        let state = Mutex::new(State::new(meter.clone()));
        Self { line: Arc::new(Line { limit: *limit, meter, waiting: AtomicUsize::new(0), state }) }
    }

    /// Waits for a slot. Dropping the future leaves the line.
    ///
    /// # Errors
    /// [`Full`] at once if too much has begun (never for a continuation), or later if the place in the line is given to
    /// a tenant that has less.
    pub async fn take(&self, claim: Claim<H>) -> Result<QueueSlot<H>> {
        slot(self.line.enter(claim)?).await
    }

    /// Returns the number of slots that are taken, and the length of the line.
    pub fn taken_and_waiting(&self) -> (usize, usize) {
        let state = self.line.state.lock();
        (state.holds.taken, state.holds.waiting)
    }
}

impl<H: Holder> Line<H> {
    /// Returns a slot or a place in the line, for which another tenant's work may be evicted.
    fn enter(self: &Arc<Self>, claim: Claim<H>) -> Result<Entered<H>> {
        let (holder, mut state) = (claim.holder, self.state.lock());
        let mut evicted = None;
        let begun = match claim.goes_on {
            true => None,
            false => {
                evicted = state.make_room(holder, &self.limit)?;
                state.number += 1;
                state.change(holder, |holds| holds.begun += 1);
                Some(state.number)
            }
        };
        let entered = self.join(&mut state, holder, begun);
        drop(state);
        // Its receiver fails.
        drop(evicted);
        Ok(entered)
    }

    /// Returns a free slot, or else a place in the line.
    fn join(self: &Arc<Self>, state: &mut State<H>, holder: H, begun: Option<u64>) -> Entered<H> {
        state.number += 1;
        let number = state.number;
        let line = Arc::clone(self);
        // While a slot is free, all that wait are of tenants that have as many as they may.
        if state.holds.taken < self.limit.at_once && self.may_take(state, holder) {
            state.change(holder, |holds| (holds.taken, holds.last) = (holds.taken + 1, number));
            return Entered::Slot(QueueSlot { line, holder, begun });
        }
        let (give, given) = oneshot::channel();
        state.change(holder, |holds| holds.waiting += 1);
        state.holders.entry(holder).or_default().line.push_back(Waiting { number, begun, give });
        self.note_waiting(state);
        Entered::Line(Waiter { line, holder, number, given })
    }

    /// Returns true if the holder's tenant may take another slot.
    fn may_take(&self, state: &State<H>, holder: H) -> bool {
        state.of_tenant(holder).taken < self.limit.at_once_of_tenant
    }

    fn note_waiting(&self, state: &State<H>) {
        self.waiting.store(state.holds.waiting, Ordering::Relaxed);
    }

    /// Returns a slot of the tenant, and ends its work if `has_ended`; the slot goes to the next in the line.
    fn pass_on(self: &Arc<Self>, holder: H, has_ended: bool) {
        let next = {
            let mut state = self.state.lock();
            state.number += 1;
            let (number, ended) = (state.number, usize::from(has_ended));
            state.change(holder, |holds| {
                (holds.taken, holds.begun, holds.last) = (holds.taken - 1, holds.begun - ended, number);
            });
            self.next(&mut state)
        };
        if let Some((holder, Waiting { begun, give, .. })) = next {
            // A waiter that has gone drops the slot, which passes it on.
            drop(give.send(QueueSlot { line: Arc::clone(self), holder, begun }));
        }
    }

    /// Takes the next out of the line if a slot is free.
    fn next(&self, state: &mut State<H>) -> Option<(H, Waiting<H>)> {
        if state.holds.taken >= self.limit.at_once {
            return None;
        }
        let waiting = state.holders.iter().filter(|(id, of)| !of.line.is_empty() && self.may_take(state, **id));
        let turn = |holds: Holds| (holds.taken, holds.last);
        let (holder, _) =
            waiting.min_by_key(|(id, of)| (turn(state.of_site(**id)), turn(state.of_tenant(**id)), turn(of.holds)))?;
        let holder = *holder;
        let first = state.leave(holder, 0)?;
        state.number += 1;
        let number = state.number;
        state.change(holder, |holds| (holds.taken, holds.last) = (holds.taken + 1, number));
        self.note_waiting(state);
        Some((holder, first))
    }
}

impl<H: Holder> State<H> {
    /// Changes the counts of a holder, its tenant, its site and all. One that arrives counts as if it had a slot just now; one
    /// that has nothing is removed.
    fn change(&mut self, holder: H, change: impl Fn(&mut Holds)) {
        let last = self.number;
        let of = self
            .holders
            .entry(holder)
            .or_insert_with(|| HolderSlots { holds: Holds { last, ..Holds::default() }, line: VecDeque::new() });
        let begun = self.holds.begun;
        change(&mut self.holds);
        self.meter.change(begun, self.holds.begun);
        change(&mut of.holds);
        change_in(&mut self.tenants, holder.tenant(), last, &change);
        change_in(&mut self.sites, holder.site(), last, &change);
        if of.holds.is_nothing() && of.line.is_empty() {
            self.holders.remove(&holder);
        }
    }

    fn of_tenant(&self, holder: H) -> Holds {
        self.tenants.get(&holder.tenant()).copied().unwrap_or_default()
    }

    fn of_site(&self, holder: H) -> Holds {
        self.sites.get(&holder.site()).copied().unwrap_or_default()
    }

    /// Returns the work that a tenant and its site have begun.
    fn begun(&self, holder: H) -> Holding {
        let of_tenant = self.holders.get(&holder).map_or(0, |of| of.holds.begun);
        Holding { of_site: self.of_site(holder).begun, of_tenant }
    }

    /// Takes the work at this place of a tenant's line out of it.
    fn leave(&mut self, holder: H, at: usize) -> Option<Waiting<H>> {
        let left = self.holders.get_mut(&holder)?.line.remove(at)?;
        self.change(holder, |holds| holds.waiting -= 1);
        Some(left)
    }

    /// Makes room for new work of a tenant. When all is full, the tenant with most loses its youngest waiting work, if that
    /// leaves it no less than this tenant then has.
    fn make_room(&mut self, holder: H, limit: &Limit) -> Result<Option<Waiting<H>>> {
        let own = self.begun(holder);
        if own.of_tenant >= limit.of_one || own.of_site >= limit.of_site {
            return Err(self.meter.refuse());
        }
        if self.holds.begun < limit.of_all {
            return Ok(None);
        }
        let youngest = |(id, of): (&H, &HolderSlots<H>)| {
            let (theirs, is_same_site) = (self.begun(*id), id.site() == holder.site());
            if !theirs.yields_to(own, is_same_site) {
                return None;
            }
            let begun = of.line.iter().enumerate().filter_map(|(at, waiting)| Some((waiting.begun?, at)));
            begun.max().map(|(begun, at)| (theirs, begun, *id, at))
        };
        let (_, _, heaviest, at) = self.holders.iter().filter_map(youngest).max().ok_or_else(|| self.meter.refuse())?;
        let evicted = self.leave(heaviest, at);
        self.change(heaviest, |holds| holds.begun -= 1);
        Ok(evicted)
    }
}

/// Changes the counts of a key, which is removed when it has nothing. A key that arrives counts as if it had a slot at
/// `last`.
fn change_in<K: Copy + Ord>(counts: &mut BTreeMap<K, Holds>, key: K, last: u64, change: impl Fn(&mut Holds)) {
    let holds = counts.entry(key).or_insert(Holds { last, ..Holds::default() });
    change(holds);
    if holds.is_nothing() {
        counts.remove(&key);
    }
}

impl<H: Holder> State<H> {
    fn new(meter: LimitMeter) -> Self {
        Self {
            meter,
            holds: Holds::default(),
            number: 0,
            holders: BTreeMap::new(),
            tenants: BTreeMap::new(),
            sites: BTreeMap::new(),
        }
    }
}

impl<H: Holder> Default for HolderSlots<H> {
    fn default() -> Self {
        Self { holds: Holds::default(), line: VecDeque::new() }
    }
}

impl Holds {
    fn is_nothing(&self) -> bool {
        (self.taken, self.waiting, self.begun) == (0, 0, 0)
    }
}

/// The result of a claim: a slot or a place in the line.
enum Entered<H: Holder> {
    Slot(QueueSlot<H>),
    Line(Waiter<H>),
}

/// A place in the line, until it is dropped.
struct Waiter<H: Holder> {
    line: Arc<Line<H>>,
    holder: H,
    number: u64,
    given: oneshot::Receiver<QueueSlot<H>>,
}

/// Waits for the slot; [`Full`] if the place in the line was given to another tenant.
async fn slot<H: Holder>(entered: Entered<H>) -> Result<QueueSlot<H>> {
    match entered {
        Entered::Slot(slot) => Ok(slot),
        Entered::Line(mut waiter) => (&mut waiter.given).await.map_err(|_| waiter.line.meter.refuse()),
    }
}

impl<H: Holder> Drop for Waiter<H> {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        let place =
            state.holders.get(&self.holder).and_then(|of| of.line.iter().position(|it| it.number == self.number));
        let Some(gone) = place.and_then(|at| state.leave(self.holder, at)) else { return };
        if gone.begun.is_some() {
            state.change(self.holder, |holds| holds.begun -= 1);
        }
        self.line.note_waiting(&state);
    }
}

impl<H: Holder> QueueSlot<H> {
    /// Returns true if another claim waits for a slot.
    fn is_wanted(&self) -> bool {
        self.line.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns the slot to the line and waits for the next one.
    ///
    /// # Errors
    /// [`Full`] if the place in the line was given to a tenant that has less.
    pub async fn pass_on(mut self) -> Result<QueueSlot<H>> {
        // The work's begin moves to the place in the line.
        let begun = self.begun.take();
        let entered = self.line.join(&mut self.line.state.lock(), self.holder, begun);
        drop(self);
        slot(entered).await
    }

    /// Begins a slice of work.
    pub fn slice(&self) -> Slice<'_, H> {
        Slice { slot: self, begun: Clock::System.instant(), rows: 0, bytes: 0 }
    }
}

impl<H: Holder> Drop for QueueSlot<H> {
    fn drop(&mut self) {
        self.line.pass_on(self.holder, self.begun.is_some());
    }
}

/// A slice of work within one slot.
pub struct Slice<'a, H: Holder = OrganizationId> {
    slot: &'a QueueSlot<H>,
    begun: Instant,
    rows: u32,
    bytes: usize,
}

impl<H: Holder> Slice<'_, H> {
    /// Counts a row of `bytes`; returns true if it is time to ask [`Self::goes_on`].
    pub fn is_time_to_look(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.rows < ROWS_A_LOOK && self.bytes < BYTES_A_LOOK {
            return false;
        }
        (self.rows, self.bytes) = (0, 0);
        true
    }

    /// Returns true if the work may keep its slot: nothing waits, or the slice is not over.
    pub fn goes_on(&self) -> bool {
        !self.slot.is_wanted() || Clock::System.elapsed(self.begun) < self.slot.line.limit.slice
    }
}

#[cfg(test)]
mod tests;
