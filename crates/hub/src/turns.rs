//! Heavy work that takes its turn: a few at a time on threads that may block, a bounded number that waits, tenants alike.

use isobar_model::access::Lineage;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_store::turns::{Bounds, Claim, Turns as Line};
use uuid::Uuid;

use crate::error::Told as _;

/// Work that is charged to nobody.
const NOBODY: OrganizationId = OrganizationId(Uuid::nil());

/// The turns of one kind of work.
pub(crate) struct Turns(Line);

impl Turns {
    /// So many at the same time, and so many that are under way or wait before the next is refused.
    pub(crate) fn new(at_once: usize, waiting: usize) -> Self {
        Self::shared(at_once, waiting, waiting)
    }

    /// The same for what tenants bring: each has so many of the places at most, so that there is room for the others.
    pub(crate) fn shared(at_once: usize, waiting: usize, of_one: usize) -> Self {
        // None of this work can be left and taken up again.
        let slice = std::time::Duration::MAX;
        Self(Line::new(Bounds { at_once, of_all: waiting, of_one, slice }))
    }

    /// Does work when its turn comes. Work that has begun keeps its turn even when nobody waits for it any more.
    pub(crate) async fn take<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.charged_to(NOBODY, work).await
    }

    /// Does work in a turn of a tenant: of everybody beneath the same top-level organization.
    pub(crate) async fn take_of<T: Send + 'static>(
        &self,
        lineage: &Lineage,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.charged_to(lineage.top(), work).await
    }

    async fn charged_to<T: Send + 'static>(
        &self,
        tenant: OrganizationId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let turn = self.0.take(Claim::begin(tenant)).await.told()?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        })
        .await
        .map_err(Error::internal)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
mod tests {
    use std::sync::{Arc, mpsc};

    use parking_lot::Mutex;

    use super::*;

    fn lineage(top: u128, own: u128) -> Lineage {
        let organization = |number| OrganizationId(Uuid::from_u128(number));
        Lineage::new([organization(top)], organization(own))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_tenant_leaves_places_for_the_others() {
        let turns = Arc::new(Turns::shared(1, 5, 2));
        let (begin, begun) = mpsc::channel::<()>();
        let begun = Arc::new(Mutex::new(begun));
        let held = [lineage(1, 11), lineage(1, 12)].map(|lineage| {
            let (turns, begun) = (Arc::clone(&turns), Arc::clone(&begun));
            tokio::spawn(async move { turns.take_of(&lineage, move || begun.lock().recv().is_ok()).await })
        });
        while turns.0.taken_and_waiting() != (1, 1) {
            tokio::task::yield_now().await;
        }
        // Whoever it is of the tenant, and wherever beneath it.
        assert!(matches!(turns.take_of(&lineage(1, 13), || ()).await, Err(Error::Busy)));
        let other = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take_of(&lineage(2, 21), || ()).await })
        };
        begin.send(()).unwrap();
        begin.send(()).unwrap();
        assert!(other.await.unwrap().is_ok());
        for work in held {
            assert!(work.await.unwrap().unwrap());
        }
        assert_eq!(turns.0.taken_and_waiting(), (0, 0));
        assert!(turns.take_of(&lineage(1, 11), || ()).await.is_ok());
    }
}
