//! Slots for runs that take what others wait for, a thread of their own or the disk: a few at the same time, shared fairly between
//! tenants. A project has one run at a time, so that those of one tenant are of different projects.

use std::time::Duration;

use isobar_model::error::Result;
use isobar_model::ids::OrganizationId;
use isobar_quota::{Claim, FairQueue, QueueLimits, QueueSlot};

/// Runs of each class that have a thread of their own; further ones wait, and so do their projects.
const ASIDE_AT_ONCE: usize = 8;
/// Runs that wait for a slot of their class; beyond, whoever has most gives up the place of its youngest that waits, or it is
/// 503. Of one tenant fewer have a slot or wait, so that there is room for the others.
const ASIDE_WAITING_MAX: usize = 64;
const ASIDE_OF_ONE_MAX: usize = 64;

/// The reason for which a run needs a slot. Each class has slots of its own, because it holds them for different times:
/// heavy code for seconds if others use the processors; large code for its 200 ms.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunClass {
    /// Its code wants much memory.
    Large,
    /// Its code has lately taken long, and gets what others leave of the processors.
    Heavy,
    /// Runs on a serving thread while a caller waits, as changes of settings do.
    OnRequest,
    /// Has no code, but may take long or leave a large commit, for which all others wait. As many slots as threads. Changes
    /// of settings are among them.
    Long,
}

/// The slots of all classes.
pub(super) struct RunSlots {
    large: FairQueue,
    heavy: FairQueue,
    on_request: FairQueue,
    long: FairQueue,
}

impl RunSlots {
    /// Makes the slots for this number of threads that run designs.
    pub fn new(threads: usize) -> Self {
        let bounded = || fair_slots(ASIDE_AT_ONCE, ASIDE_AT_ONCE + ASIDE_WAITING_MAX, ASIDE_OF_ONE_MAX);
        // What waits there is bounded by who calls: one call changes the settings of many devices, and a project has one run.
        let unbounded = |at_once| fair_slots(at_once, usize::MAX, usize::MAX);
        Self { large: bounded(), heavy: bounded(), on_request: unbounded(ASIDE_AT_ONCE), long: unbounded(threads) }
    }

    /// A slot of the class for a run of the tenant, when there is one for it.
    ///
    /// # Errors
    /// `Busy`: too many wait already.
    pub async fn take(&self, class: RunClass, tenant: OrganizationId) -> Result<QueueSlot> {
        Ok(self.of(class).take(Claim::begin(tenant)).await?)
    }

    /// Returns the numbers of long runs with a slot, and of those that wait for one.
    #[cfg(test)]
    pub fn long_runs(&self) -> (usize, usize) {
        self.long.taken_and_waiting()
    }

    fn of(&self, class: RunClass) -> &FairQueue {
        match class {
            RunClass::Large => &self.large,
            RunClass::Heavy => &self.heavy,
            RunClass::OnRequest => &self.on_request,
            RunClass::Long => &self.long,
        }
    }
}

fn fair_slots(at_once: usize, of_all: usize, of_one: usize) -> FairQueue {
    // A run cannot be left and taken up again.
    FairQueue::new(QueueLimits {
        at_once,
        of_all,
        of_one,
        of_site: usize::MAX,
        at_once_of_site: usize::MAX,
        slice: Duration::MAX,
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use isobar_model::error::Error;
    use tokio::task::JoinSet;
    use uuid::Uuid;

    use super::*;

    const THREADS: usize = 3;

    fn tenant(number: u128) -> OrganizationId {
        OrganizationId(Uuid::from_u128(number))
    }

    /// Slots of the class, all of which the tenant has, and more of its runs that wait. Who gets a slot keeps it until it is
    /// joined.
    async fn taken(class: RunClass, waiting: usize) -> (Arc<RunSlots>, Vec<QueueSlot>, JoinSet<Result<QueueSlot>>) {
        let slots = Arc::new(RunSlots::new(THREADS));
        let mut held = Vec::new();
        let at_once = if matches!(class, RunClass::Long) { THREADS } else { ASIDE_AT_ONCE };
        for _ in 0..at_once {
            held.push(slots.take(class, tenant(1)).await.unwrap());
        }
        let mut waiters = JoinSet::new();
        for _ in 0..waiting {
            let slots = Arc::clone(&slots);
            waiters.spawn(async move { slots.take(class, tenant(1)).await });
        }
        while slots.of(class).taken_and_waiting() != (at_once, waiting) {
            tokio::task::yield_now().await;
        }
        (slots, held, waiters)
    }

    #[tokio::test]
    async fn so_many_runs_have_a_slot_and_so_many_wait_for_one() {
        let (slots, held, mut waiting) = taken(RunClass::Heavy, ASIDE_OF_ONE_MAX - ASIDE_AT_ONCE).await;
        // Not by waiting: at once.
        let asks = |of| slots.take(RunClass::Heavy, tenant(of)).now_or_never();
        assert!(matches!(asks(1), Some(Err(Error::Busy))), "there is room for others");
        for number in 0..ASIDE_WAITING_MAX + ASIDE_AT_ONCE - ASIDE_OF_ONE_MAX {
            let slots = Arc::clone(&slots);
            waiting.spawn(async move { slots.take(RunClass::Heavy, tenant(2 + number as u128)).await });
        }
        while slots.heavy.taken_and_waiting().1 < ASIDE_WAITING_MAX {
            tokio::task::yield_now().await;
        }
        // Who has none has the place of the youngest run of who has most.
        let all = Arc::clone(&slots);
        let mut last = Box::pin(async move { all.take(RunClass::Heavy, tenant(99)).await });
        assert!((&mut last).now_or_never().is_none());
        assert!(matches!(waiting.join_next().await, Some(Ok(Err(Error::Busy)))));
        // Nobody of another class waits for these.
        assert!(slots.take(RunClass::Large, tenant(1)).await.is_ok());
        drop(held);
        waiting.spawn(last);
        // Each gives its slot back as it is joined, and so to the next.
        while let Some(joined) = waiting.join_next().await {
            assert!(joined.unwrap().is_ok());
        }
        assert_eq!(slots.heavy.taken_and_waiting(), (0, 0));
    }

    #[tokio::test]
    async fn a_tenant_with_many_runs_that_take_what_all_wait_for_holds_up_no_other() {
        for class in [RunClass::OnRequest, RunClass::Long] {
            let (slots, mut held, mut waiting) = taken(class, 200).await;
            let other = {
                let slots = Arc::clone(&slots);
                tokio::spawn(async move { slots.take(class, tenant(2)).await })
            };
            // All others have come before it.
            while slots.of(class).taken_and_waiting().1 < 201 {
                tokio::task::yield_now().await;
            }
            held.pop();
            tokio::select! {
                slot = other => assert!(slot.unwrap().is_ok()),
                _ = waiting.join_next() => panic!("the next slot is for who has none"),
            }
            drop(held);
            let mut had_a_slot = 0;
            while let Some(joined) = waiting.join_next().await {
                had_a_slot += usize::from(joined.unwrap().is_ok());
            }
            assert_eq!(had_a_slot, 200);
        }
    }
}
