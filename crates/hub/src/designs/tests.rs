//! Tests of the places for long runs, and the pool.

use std::sync::mpsc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use isobar_quota::NOBODY;
use tokio::sync::watch;
use uuid::Uuid;

use super::*;

const MIB: usize = 1 << 20;

impl Designs {
    /// Takes all places that a project gets without waiting.
    pub(crate) fn all_places(&self, project: ProjectRuns) -> Vec<RunPlace> {
        let place = || self.place(project, Admission::Part, None).now_or_never();
        std::iter::from_fn(place).map(Result::unwrap).collect()
    }

    /// Claims places for a project until one is refused; returns those that wait.
    pub(crate) fn fill(&self, project: ProjectRuns) -> Vec<BoxFuture<'_, Result<RunPlace>>> {
        let mut waiting = Vec::new();
        loop {
            let mut place = self.place(project, Admission::New, None).boxed();
            match (&mut place).now_or_never() {
                Some(Err(_)) => return waiting,
                Some(Ok(_)) => panic!("a place is free"),
                None => waiting.push(place),
            }
        }
    }
}

fn project(tenant: u128, project: u128) -> ProjectRuns {
    ProjectRuns { tenant: OrganizationId(Uuid::from_u128(tenant)), project: ProjectId(Uuid::from_u128(project)) }
}

fn held(tenant: u128, bytes: usize) -> HeldByRun {
    HeldByRun { tenant: project(tenant, 0).tenant, bytes }
}

#[test]
fn hub_can_be_dropped_in_a_task() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let designs = Designs::start().unwrap();
        let place = designs.place(project(1, 1), Admission::New, None).await.unwrap();
        assert_eq!(designs.in_pool(&place, || 7).await.unwrap(), 7);
        drop(designs);
    });
}

#[tokio::test]
async fn tenant_occupies_a_part_of_the_pool_and_another_finds_a_place() {
    let designs = Designs::start().unwrap();
    let places = designs.all_places(project(1, 1));
    assert_eq!(places.len(), threads() / TENANT_PART);
    assert_eq!(designs.all_places(project(1, 2)).len(), 0, "its other projects count too");
    let (go, gone) = mpsc::channel::<()>();
    let endless = designs.in_pool(&places[0], move || gone.recv().is_ok());
    tokio::pin!(endless);
    assert!(futures::poll!(&mut endless).is_pending());
    let other = designs.place(project(2, 1), Admission::New, None).await.unwrap();
    assert_eq!(designs.in_pool(&other, || 7).await.unwrap(), 7);
    go.send(()).unwrap();
    assert!(endless.await.unwrap());
}

#[tokio::test]
async fn long_runs_of_a_project_are_bounded_and_parts_of_calls_wait() {
    let designs = Designs::start().unwrap();
    let mut places = Vec::new();
    for _ in 0..threads() / TENANT_PART {
        places.push(designs.place(project(1, 1), Admission::New, None).await.unwrap());
    }
    let waiting = designs.fill(project(1, 1));
    assert_eq!(places.len() + waiting.len(), limits::LONG_RUNS.of_one);
    let part = designs.place(project(1, 1), Admission::Part, None);
    tokio::pin!(part);
    assert!(futures::poll!(&mut part).is_pending());
    let mut other = designs.place(project(1, 2), Admission::New, None).boxed();
    assert!(futures::poll!(&mut other).is_pending());
    // The project without a place comes before those that wait longer.
    places.pop();
    assert!(other.await.is_ok());
    drop((places, waiting));
    assert!(part.await.is_ok());
    assert_eq!(designs.long_runs(), (0, 0));
}

#[tokio::test]
async fn place_is_taken_until_abandoned_work_ends() {
    let designs = Designs::start().unwrap();
    let mut places = designs.all_places(project(1, 1));
    let ((go, gone), (begins, mut begun)) = (mpsc::channel::<()>(), watch::channel(false));
    let mut abandoned = Box::pin(designs.in_pool(&places[0], move || {
        begins.send_replace(true);
        gone.recv().is_ok()
    }));
    assert!(futures::poll!(&mut abandoned).is_pending());
    begun.wait_for(|begun| *begun).await.unwrap();
    drop(abandoned);
    places.remove(0);
    let mut next = designs.place(project(1, 1), Admission::New, None).boxed();
    assert!(futures::poll!(&mut next).is_pending());
    go.send(()).unwrap();
    next.await.unwrap();
}

#[tokio::test]
async fn panic_in_a_run_is_an_error_of_its_caller_only() {
    let designs = Designs::start().unwrap();
    let place = designs.place(project(1, 1), Admission::New, None).await.unwrap();
    let failed = designs.in_pool(&place, || assert_eq!(1, 2)).await;
    assert!(matches!(failed, Err(Error::Internal(_))), "{failed:?}");
    assert_eq!(designs.in_pool(&place, || 7).await.unwrap(), 7);
}

#[tokio::test]
async fn memory_of_long_runs_is_shared_between_tenants() {
    let designs = Designs::start().unwrap();
    let fill = |tenant| std::iter::from_fn(|| designs.hold(held(tenant, MIB)).ok()).collect::<Vec<_>>();
    let (first, second, third) = (fill(1), fill(2), fill(3));
    assert_eq!(first.len(), 128, "two thirds");
    assert!(second.len() > 40 && third.len() > 12, "{} {}", second.len(), third.len());
    let refused = designs.place(project(1, 1), Admission::New, Some(held(1, MIB))).await;
    assert!(matches!(refused, Err(Error::Busy)));
    drop((first, second, third));
    // A run that holds more than any share has room if nothing else is held.
    assert!(designs.place(project(1, 1), Admission::New, Some(held(1, usize::MAX))).await.is_ok());
    assert!(designs.hold(HeldByRun { tenant: NOBODY, bytes: 1 }).is_ok());
}
