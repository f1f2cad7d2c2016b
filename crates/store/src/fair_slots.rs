//! Slots for what takes long: a few at a time, shared fairly between tenants.
//!
//! A slot that is free goes to the site that has the fewest (see [`isobar_model::site`]), and among those to the one that
//! had its last the longest ago; within a site to its tenants in the same way. Who works longer than a slice of time while
//! others wait gives its slot back and stands in line again, so that nobody waits for the end of anybody else's work.
//!
//! Where as much has begun as there may be, whoever has most of it gives up its youngest that waits, the one that is let go
//! first or stands in line again: who has fewer, or nothing, comes in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use isobar_model::ids::OrganizationId;
use isobar_model::site::{Holding, Site};
use isobar_model::time::Clock;
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
    /// Work that has begun and not ended: beyond, whoever begins more takes the place of somebody who waits and has more, or
    /// is refused. What goes on with what was let in before is not counted, and keeps its place.
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
    /// When the work began that is held to the bounds; none: it only goes on.
    begun: Option<u64>,
}

struct Line {
    bounds: Bounds,
    /// How many wait, to be looked at without the lock.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of all.
    holds: Holds,
    /// Grows with each slot that is given, each that is waited for, and all work that begins.
    number: u64,
    /// Those that have a slot, wait for one or have begun something.
    tenants: FxHashMap<OrganizationId, TenantSlots>,
    sites: FxHashMap<Site, Holds>,
}

/// How much a tenant, or a site, has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holds {
    taken: usize,
    waiting: usize,
    begun: usize,
    /// When it had a slot last, or came.
    last: u64,
}

#[derive(Default)]
struct TenantSlots {
    holds: Holds,
    line: VecDeque<Waiting>,
}

/// Names one who waits in the line.
struct Waiting {
    number: u64,
    begun: Option<u64>,
    give: oneshot::Sender<FairSlot>,
}

impl FairSlots {
    /// Nobody has one yet.
    pub fn new(bounds: Bounds) -> Self {
        Self { line: Arc::new(Line { bounds, waiting: AtomicUsize::new(0), state: Mutex::default() }) }
    }

    /// Waits for a slot. Who no longer waits has no place in the line.
    ///
    /// # Errors
    /// [`StoreError::Busy`], unless the claim is one that goes on: at once where too much has begun; later where the place is
    /// given to somebody who has less.
    pub async fn take(&self, claim: Claim) -> Result<FairSlot> {
        slot(self.line.enter(claim)?).await
    }

    /// How many have a slot, and how many wait for one.
    pub fn taken_and_waiting(&self) -> (usize, usize) {
        let state = self.line.state.lock();
        (state.holds.taken, state.holds.waiting)
    }
}

impl Line {
    /// Work of a tenant begins or goes on: a slot for it, or a place in the line, which may be that of somebody else.
    fn enter(self: &Arc<Self>, claim: Claim) -> Result<Entered> {
        let (tenant, mut state) = (claim.tenant, self.state.lock());
        let mut evicted = None;
        let begun = match claim.goes_on {
            true => None,
            false => {
                evicted = state.make_room(tenant, self.bounds)?;
                state.number += 1;
                state.change(tenant, |holds| holds.begun += 1);
                Some(state.number)
            }
        };
        let entered = self.join(&mut state, tenant, begun);
        drop(state);
        // It hears that nobody will give it a slot.
        drop(evicted);
        Ok(entered)
    }

    /// A slot for the tenant that was free, or else a place in the line.
    fn join(self: &Arc<Self>, state: &mut State, tenant: OrganizationId, begun: Option<u64>) -> Entered {
        state.number += 1;
        let number = state.number;
        let line = Arc::clone(self);
        if state.holds.taken < self.bounds.at_once {
            // While a slot is free nobody waits.
            state.change(tenant, |holds| (holds.taken, holds.last) = (holds.taken + 1, number));
            return Entered::Slot(FairSlot { line, tenant, begun });
        }
        let (give, given) = oneshot::channel();
        state.change(tenant, |holds| holds.waiting += 1);
        state.tenants.entry(tenant).or_default().line.push_back(Waiting { number, begun, give });
        self.note_waiting(state);
        Entered::Line(Waiter { line, tenant, number, given })
    }

    fn note_waiting(&self, state: &State) {
        self.waiting.store(state.holds.waiting, Ordering::Relaxed);
    }

    /// A slot of the tenant's is over, and work that has begun if it was that: whose it is next.
    fn pass_on(self: &Arc<Self>, tenant: OrganizationId, has_ended: bool) {
        let next = {
            let mut state = self.state.lock();
            state.number += 1;
            let (number, ended) = (state.number, usize::from(has_ended));
            state.change(tenant, |holds| {
                (holds.taken, holds.begun, holds.last) = (holds.taken - 1, holds.begun - ended, number);
            });
            self.next(&mut state)
        };
        if let Some((tenant, Waiting { begun, give, .. })) = next {
            // Who has gone meanwhile drops it, and so passes it on.
            drop(give.send(FairSlot { line: Arc::clone(self), tenant, begun }));
        }
    }

    /// Whose slot it is, if anybody waits and a slot is free.
    fn next(&self, state: &mut State) -> Option<(OrganizationId, Waiting)> {
        if state.holds.taken >= self.bounds.at_once {
            return None;
        }
        let waiting = state.tenants.iter().filter(|(_, of)| !of.line.is_empty());
        let turn = |holds: Holds| (holds.taken, holds.last);
        let (tenant, _) = waiting.min_by_key(|(id, of)| (turn(state.of_site(**id)), turn(of.holds)))?;
        let tenant = *tenant;
        let first = state.leave(tenant, 0)?;
        state.number += 1;
        let number = state.number;
        state.change(tenant, |holds| (holds.taken, holds.last) = (holds.taken + 1, number));
        self.note_waiting(state);
        Some((tenant, first))
    }
}

impl State {
    /// Changes what a tenant, its site and all have. Who just comes has had a slot last now; who has nothing is forgotten.
    fn change(&mut self, tenant: OrganizationId, change: impl Fn(&mut Holds)) {
        let last = self.number;
        let site = self.sites.entry(tenant.site()).or_insert(Holds { last, ..Holds::default() });
        let of = self
            .tenants
            .entry(tenant)
            .or_insert_with(|| TenantSlots { holds: Holds { last, ..Holds::default() }, line: VecDeque::new() });
        change(&mut self.holds);
        change(site);
        change(&mut of.holds);
        if site.is_nothing() {
            self.sites.remove(&tenant.site());
        }
        if of.holds.is_nothing() && of.line.is_empty() {
            self.tenants.remove(&tenant);
        }
    }

    fn of_site(&self, tenant: OrganizationId) -> Holds {
        self.sites.get(&tenant.site()).copied().unwrap_or_default()
    }

    /// How much a tenant has begun.
    fn begun(&self, tenant: OrganizationId) -> Holding {
        let of_tenant = self.tenants.get(&tenant).map_or(0, |of| of.holds.begun);
        Holding { of_site: self.of_site(tenant).begun, of_tenant }
    }

    /// Takes out of the line who waits at that place of it.
    fn leave(&mut self, tenant: OrganizationId, at: usize) -> Option<Waiting> {
        let left = self.tenants.get_mut(&tenant)?.line.remove(at)?;
        self.change(tenant, |holds| holds.waiting -= 1);
        Some(left)
    }

    /// Makes room for one more that begins. Where all is full, whoever has most gives up the youngest of its work that waits, if that
    /// leaves it no less than this tenant has then.
    fn make_room(&mut self, tenant: OrganizationId, bounds: Bounds) -> Result<Option<Waiting>> {
        let own = self.begun(tenant);
        if own.of_tenant >= bounds.of_one {
            return Err(StoreError::Busy);
        }
        if self.holds.begun < bounds.of_all {
            return Ok(None);
        }
        let youngest = |(id, of): (&OrganizationId, &TenantSlots)| {
            let (theirs, is_same_site) = (self.begun(*id), id.site() == tenant.site());
            if !theirs.yields_to(own, is_same_site) {
                return None;
            }
            let begun = of.line.iter().enumerate().filter_map(|(at, waiting)| Some((waiting.begun?, at)));
            begun.max().map(|(begun, at)| (theirs, begun, *id, at))
        };
        let (_, _, heaviest, at) = self.tenants.iter().filter_map(youngest).max().ok_or(StoreError::Busy)?;
        let evicted = self.leave(heaviest, at);
        self.change(heaviest, |holds| holds.begun -= 1);
        Ok(evicted)
    }
}

impl Holds {
    fn is_nothing(&self) -> bool {
        (self.taken, self.waiting, self.begun) == (0, 0, 0)
    }
}

/// Holds the slot, or the place in the line, of somebody who asked.
enum Entered {
    Slot(FairSlot),
    Line(Waiter),
}

/// A place in the line, until it is dropped.
struct Waiter {
    line: Arc<Line>,
    tenant: OrganizationId,
    number: u64,
    given: oneshot::Receiver<FairSlot>,
}

/// The slot, when it comes. [`StoreError::Busy`]: the place in the line was given to somebody else.
async fn slot(entered: Entered) -> Result<FairSlot> {
    match entered {
        Entered::Slot(slot) => Ok(slot),
        Entered::Line(mut waiter) => (&mut waiter.given).await.map_err(|_| StoreError::Busy),
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        let place =
            state.tenants.get(&self.tenant).and_then(|of| of.line.iter().position(|it| it.number == self.number));
        let Some(gone) = place.and_then(|at| state.leave(self.tenant, at)) else { return };
        if gone.begun.is_some() {
            state.change(self.tenant, |holds| holds.begun -= 1);
        }
        self.line.note_waiting(&state);
    }
}

impl FairSlot {
    /// Whether somebody waits for it.
    fn is_wanted(&self) -> bool {
        self.line.waiting.load(Ordering::Relaxed) > 0
    }

    /// Lets others go first, and waits for another one.
    ///
    /// # Errors
    /// [`StoreError::Busy`]: the place in the line was given to somebody who has less.
    pub async fn pass_on(mut self) -> Result<FairSlot> {
        // What has begun is counted where it waits.
        let begun = self.begun.take();
        let entered = self.line.join(&mut self.line.state.lock(), self.tenant, begun);
        drop(self);
        slot(entered).await
    }

    /// A slice of work begins.
    pub fn slice(&self) -> Slice<'_> {
        Slice { slot: self, begun: Clock::System.instant(), rows: 0, bytes: 0 }
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        self.line.pass_on(self.tenant, self.begun.is_some());
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
        !self.slot.is_wanted() || Clock::System.elapsed(self.begun) < self.slot.line.bounds.slice
    }
}

#[cfg(test)]
mod tests;
