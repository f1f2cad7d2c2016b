//! Heavy work: a few jobs at a time on threads that may block, and a bounded number of waiting ones, shared fairly by
//! tenants.

use isobar_model::access::Caller;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_quota::{Claim, FairQueue, Limit, NOBODY};
use isobar_threads::GivingThreads;
use tokio::runtime::Handle;

use crate::supervisor::guarded;

/// The jobs of one kind.
pub(crate) struct BoundedJobs {
    slots: FairQueue,
    /// Threads of these jobs alone; `None` if the jobs run on the server's threads that may block.
    threads: Option<GivingThreads>,
}

impl BoundedJobs {
    /// Makes a queue with this limit. None of its jobs can be interrupted and resumed. When all slots are taken, the tenant
    /// with most loses its youngest waiting job, which fails with [`Error::Busy`], to one that has fewer.
    pub(crate) fn shared(limit: &Limit) -> Self {
        Self { slots: FairQueue::new(limit), threads: None }
    }

    /// Makes such a queue on threads of this name that give way to all others, for jobs that use a processor for long.
    /// At normal priority a job would delay each thread that wakes by some milliseconds.
    pub(crate) fn giving_way(name: &str, limit: &Limit) -> Result<Self> {
        let threads = GivingThreads::new(name, limit.at_once).map_err(Error::internal)?;
        Ok(Self { threads: Some(threads), ..Self::shared(limit) })
    }

    /// Returns the numbers of running and of waiting jobs.
    #[cfg(test)]
    pub(crate) fn running_and_waiting(&self) -> (usize, usize) {
        self.slots.taken_and_waiting()
    }

    /// Runs a job in a slot of a tenant, or of the system. A job that has begun keeps its slot even if its caller stops
    /// waiting.
    pub(crate) async fn run_charged<T: Send + 'static>(
        &self,
        tenant: Option<OrganizationId>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.charged_to(tenant.unwrap_or(NOBODY), work).await
    }

    /// Runs a job in a slot of the caller's tenant: of everybody beneath the same top-level organization.
    pub(crate) async fn run_for<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.charged_to(caller.lineage.top(), work).await
    }

    /// Drives steps that wait for one another on a thread that may block, in a slot of the caller's tenant. On the
    /// threads that serve HTTP, each step would wait in the queue behind all that is under way there. The steps
    /// continue if the caller stops waiting.
    pub(crate) async fn drive_for<T: Send + 'static>(
        &self,
        caller: &Caller,
        name: &'static str,
        steps: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.drive(caller.lineage.top(), name, steps).await
    }

    /// Drives such steps in a slot of a tenant.
    pub(crate) async fn drive<T: Send + 'static>(
        &self,
        tenant: OrganizationId,
        name: &'static str,
        steps: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let runtime = Handle::current();
        let done = self.charged_to(tenant, move || runtime.block_on(guarded(name, steps))).await?;
        done.unwrap_or_else(|| Err(Error::internal(format!("{name} panicked"))))
    }

    async fn charged_to<T: Send + 'static>(
        &self,
        tenant: OrganizationId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let slot = self.slots.take(Claim::begin(tenant)).await?;
        let job = move || {
            let done = work();
            drop(slot);
            done
        };
        let done = match &self.threads {
            Some(threads) => threads.spawn(job),
            None => tokio::task::spawn_blocking(job),
        };
        done.await.map_err(Error::internal)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
mod tests {
    use futures::FutureExt as _;
    use std::sync::{Arc, mpsc};

    use isobar_model::access::Lineage;
    use isobar_model::ids::UserId;
    use isobar_model::role::Role;
    use isobar_quota::UNLIMITED;
    use parking_lot::Mutex;
    use uuid::Uuid;

    use super::*;

    fn caller(top: u128, own: u128) -> Caller {
        let organization = |number| OrganizationId(Uuid::from_u128(number));
        let lineage = Lineage::new([organization(top)], organization(own));
        Caller { user: UserId(Uuid::from_u128(own)), role: Role::Developer, lineage, session: None, key: None }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn job_of_an_idle_tenant_replaces_one_of_the_busiest() {
        let jobs = Arc::new(BoundedJobs::shared(&Limit { at_once: 1, of_all: 64, of_one: 24, ..UNLIMITED }));
        let (begin, begun) = mpsc::channel::<()>();
        let under_way = {
            let jobs = Arc::clone(&jobs);
            tokio::spawn(async move { jobs.run_for(&caller(1, 11), move || begun.recv().is_ok()).await })
        };
        while jobs.running_and_waiting() != (1, 0) {
            tokio::task::yield_now().await;
        }
        let callers: Vec<Caller> = (0..80).map(|number| caller(1 + number % 3, 100 + number)).collect();
        let mut crowd: Vec<_> = callers.iter().map(|caller| jobs.run_for(caller, || ()).boxed()).collect();
        let refused = crowd.iter_mut().filter_map(|job| job.now_or_never()).count();
        assert_eq!((jobs.running_and_waiting(), refused), ((1, 63), 80 - 63));
        let victim = caller(9, 9);
        let mut works = jobs.run_for(&victim, || ()).boxed();
        assert!((&mut works).now_or_never().is_none());
        assert_eq!(jobs.running_and_waiting(), (1, 63));
        drop(crowd);
        begin.send(()).unwrap();
        assert!(under_way.await.unwrap().unwrap() && works.await.is_ok());
        assert_eq!(jobs.running_and_waiting(), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_tenant_leaves_places_for_the_others() {
        let jobs = Arc::new(BoundedJobs::shared(&Limit { at_once: 1, of_all: 5, of_one: 2, ..UNLIMITED }));
        let (begin, begun) = mpsc::channel::<()>();
        let begun = Arc::new(Mutex::new(begun));
        let held = [caller(1, 11), caller(1, 12)].map(|caller| {
            let (jobs, begun) = (Arc::clone(&jobs), Arc::clone(&begun));
            tokio::spawn(async move { jobs.run_for(&caller, move || begun.lock().recv().is_ok()).await })
        });
        while jobs.running_and_waiting() != (1, 1) {
            tokio::task::yield_now().await;
        }
        // Users of the tenant in any of its organizations share its slots.
        assert!(matches!(jobs.run_for(&caller(1, 13), || ()).await, Err(Error::Busy)));
        let other = {
            let jobs = Arc::clone(&jobs);
            tokio::spawn(async move { jobs.run_for(&caller(2, 21), || ()).await })
        };
        begin.send(()).unwrap();
        begin.send(()).unwrap();
        assert!(other.await.unwrap().is_ok());
        for work in held {
            assert!(work.await.unwrap().unwrap());
        }
        assert_eq!(jobs.running_and_waiting(), (0, 0));
        assert!(jobs.run_for(&caller(1, 11), || ()).await.is_ok());
    }
}
