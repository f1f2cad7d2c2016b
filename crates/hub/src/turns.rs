//! Heavy work that takes its turn: a few at a time on threads that may block, a bounded number that waits.

use std::sync::Arc;

use isobar_model::access::Caller;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

/// The turns of one kind of work.
pub(crate) struct Turns {
    at_once: Arc<Semaphore>,
    waiting: Semaphore,
    /// Most places of one tenant.
    of_one: usize,
    /// How many each tenant has that has any.
    held: Mutex<FxHashMap<OrganizationId, usize>>,
}

impl Turns {
    /// So many at the same time, and so many that are under way or wait before the next is refused.
    pub(crate) fn new(at_once: usize, waiting: usize) -> Self {
        Self::shared(at_once, waiting, waiting)
    }

    /// The same for what tenants bring: each has so many of the places at most, so that there is room for the others.
    pub(crate) fn shared(at_once: usize, waiting: usize, of_one: usize) -> Self {
        Self {
            at_once: Arc::new(Semaphore::new(at_once)),
            waiting: Semaphore::new(waiting),
            of_one,
            held: Mutex::default(),
        }
    }

    /// Does work when its turn comes. Work that has begun keeps its turn even when nobody waits for it any more.
    pub(crate) async fn take<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let _place = self.waiting.try_acquire().map_err(|_| Error::Busy)?;
        let permit = Arc::clone(&self.at_once).acquire_owned().await.map_err(Error::internal)?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
        .map_err(Error::internal)
    }

    /// Does work in one of the places of the caller's tenant: of everybody beneath the same top-level organization.
    pub(crate) async fn take_of<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let _share = Share::of(self, caller.lineage.top())?;
        self.take(work).await
    }
}

/// A place that a tenant has, until it is dropped.
struct Share<'a> {
    turns: &'a Turns,
    tenant: OrganizationId,
}

impl<'a> Share<'a> {
    fn of(turns: &'a Turns, tenant: OrganizationId) -> Result<Self> {
        let mut held = turns.held.lock();
        let count = held.entry(tenant).or_default();
        if *count >= turns.of_one {
            return Err(Error::Busy);
        }
        *count += 1;
        Ok(Self { turns, tenant })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut held = self.turns.held.lock();
        if let Some(count) = held.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
mod tests {
    use std::sync::mpsc;

    use isobar_model::access::Lineage;
    use isobar_model::ids::UserId;
    use isobar_model::role::Role;
    use uuid::Uuid;

    use super::*;

    fn caller(top: u128, own: u128) -> Caller {
        let organization = |number| OrganizationId(Uuid::from_u128(number));
        let lineage = Lineage::new([organization(top)], organization(own));
        Caller { user: UserId(Uuid::from_u128(own)), role: Role::Developer, lineage, session: None }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_tenant_leaves_places_for_the_others() {
        let turns = Arc::new(Turns::shared(1, 5, 2));
        let (begin, begun) = mpsc::channel::<()>();
        let begun = Arc::new(Mutex::new(begun));
        let held = [caller(1, 11), caller(1, 12)].map(|caller| {
            let (turns, begun) = (Arc::clone(&turns), Arc::clone(&begun));
            tokio::spawn(async move { turns.take_of(&caller, move || begun.lock().recv().is_ok()).await })
        });
        while turns.held.lock().values().sum::<usize>() < 2 {
            tokio::task::yield_now().await;
        }
        // Whoever it is of the tenant, and wherever beneath it.
        assert!(matches!(turns.take_of(&caller(1, 13), || ()).await, Err(Error::Busy)));
        let other = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take_of(&caller(2, 21), || ()).await })
        };
        begin.send(()).unwrap();
        begin.send(()).unwrap();
        assert!(other.await.unwrap().is_ok());
        for work in held {
            assert!(work.await.unwrap().unwrap());
        }
        assert!(turns.held.lock().is_empty());
        assert!(turns.take_of(&caller(1, 11), || ()).await.is_ok());
    }
}
