//! What was applied, on its way to the disk.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::error::{Result, StoreError};

/// A commit that was applied: done when it is durable, an error when nobody can say any more whether it ever will be.
/// It may be asked again after it has answered.
#[derive(Debug)]
#[must_use = "what is not durable must not be acknowledged"]
pub struct Durable {
    tickets: Arc<Tickets>,
    ticket: u64,
    /// The commit is somebody else's, who waits for it too.
    is_anothers: bool,
}

/// Nobody is left who could tell.
#[derive(Debug, thiserror::Error)]
#[error("the store has failed or is closing")]
struct StoreEnded;

/// Commits have tickets that grow, and become durable in their order: one number tells of all of them, and who waits for
/// a ticket stands in a line with the others, without anything of its own being made for each commit.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// The newest durable ticket.
    durable: AtomicU64,
    ended: AtomicBool,
    line: Mutex<Waiters>,
}

/// Who waits, in the order of their tickets.
#[derive(Debug, Default)]
struct Waiters {
    /// The ticket of the first place.
    first: u64,
    places: VecDeque<Option<Waker>>,
    /// Who waits for a commit of somebody else, and for which: few, in no order.
    beside: Vec<(u64, Waker)>,
}

impl Tickets {
    /// The newest durable ticket.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Done when that ticket is durable; for the one whose it is.
    pub fn wait(self: &Arc<Self>, ticket: u64) -> Durable {
        Durable { tickets: Arc::clone(self), ticket, is_anothers: false }
    }

    /// Done when that ticket is durable; for anybody else.
    pub fn wait_beside(self: &Arc<Self>, ticket: u64) -> Durable {
        Durable { tickets: Arc::clone(self), ticket, is_anothers: true }
    }

    /// All up to that ticket are durable.
    pub fn reached(&self, ticket: u64) {
        let wakers: Vec<Waker> = {
            let mut line = self.line.lock();
            // Under the lock, so that whoever finds it too early has a place in the line when it is gone through.
            self.durable.store(ticket, Ordering::Release);
            let count = (ticket + 1).saturating_sub(line.first).min(line.places.len() as u64);
            line.first = ticket + 1;
            let beside = line.beside.extract_if(.., |(awaited, _)| *awaited <= ticket).map(|(_, waker)| waker);
            let beside: Vec<Waker> = beside.collect();
            line.places.drain(..count as usize).flatten().chain(beside).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// No ticket becomes durable any more, or nobody would know.
    pub fn end(&self) {
        let wakers: Vec<Waker> = {
            let mut line = self.line.lock();
            self.ended.store(true, Ordering::Release);
            let beside: Vec<Waker> = line.beside.drain(..).map(|(_, waker)| waker).collect();
            line.places.drain(..).flatten().chain(beside).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn outcome(&self, ticket: u64) -> Option<Result<()>> {
        if self.durable() >= ticket {
            return Some(Ok(()));
        }
        self.ended.load(Ordering::Acquire).then(|| Err(StoreError::unavailable(StoreEnded)))
    }
}

impl Waiters {
    /// Waits beside the one whose ticket it is.
    fn stand_beside(&mut self, ticket: u64, waker: &Waker) {
        if !self.beside.iter().any(|(awaited, present)| *awaited == ticket && present.will_wake(waker)) {
            self.beside.push((ticket, waker.clone()));
        }
    }

    /// Takes the place of a ticket.
    fn take(&mut self, ticket: u64, waker: &Waker) {
        let at = ticket.saturating_sub(self.first) as usize;
        if self.places.len() <= at {
            self.places.resize_with(at + 1, || None);
        }
        match &mut self.places[at] {
            Some(present) => present.clone_from(waker),
            place => *place = Some(waker.clone()),
        }
    }
}

impl Future for Durable {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(outcome) = self.tickets.outcome(self.ticket) {
            return Poll::Ready(outcome);
        }
        let mut line = self.tickets.line.lock();
        if let Some(outcome) = self.tickets.outcome(self.ticket) {
            return Poll::Ready(outcome);
        }
        if self.is_anothers {
            line.stand_beside(self.ticket, cx.waker());
        } else {
            line.take(self.ticket, cx.waker());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn each_is_told_when_its_ticket_is_durable_and_not_before() {
        let tickets = Arc::new(Tickets::default());
        // Out of order, and not all of them wait.
        let mut waits = [9, 2, 5].map(|ticket| tickets.wait(ticket));
        for wait in &mut waits {
            assert!(poll!(wait).is_pending());
        }
        tickets.reached(4);
        let [ninth, second, fifth] = waits;
        second.await.unwrap();
        let mut fifth = fifth;
        assert!(poll!(&mut fifth).is_pending());
        let outcome = tokio::spawn(async move { tokio::try_join!(fifth, ninth) });
        tokio::task::yield_now().await;
        tickets.reached(9);
        outcome.await.unwrap().unwrap();
        tickets.wait(9).await.unwrap();
        assert_eq!(tickets.durable(), 9);
    }

    #[tokio::test]
    async fn who_waits_for_anothers_commit_takes_nobodys_place() {
        for ends in [false, true] {
            let tickets = Arc::new(Tickets::default());
            let (mut own, mut beside, mut more) = (tickets.wait(1), tickets.wait_beside(1), tickets.wait_beside(1));
            assert!(poll!(&mut own).is_pending() && poll!(&mut beside).is_pending() && poll!(&mut more).is_pending());
            let outcome = tokio::spawn(async move { (own.await.is_ok(), beside.await.is_ok(), more.await.is_ok()) });
            tokio::task::yield_now().await;
            if ends {
                tickets.end()
            } else {
                tickets.reached(1)
            }
            let outcome = tokio::time::timeout(std::time::Duration::from_secs(60), outcome).await;
            assert_eq!(outcome.unwrap().unwrap(), (!ends, !ends, !ends));
            assert!(tickets.line.lock().beside.is_empty());
        }
    }

    #[tokio::test]
    async fn each_who_waits_is_woken_by_a_waker_of_its_own() {
        let tickets = Arc::new(Tickets::default());
        let waits = [tickets.wait(1), tickets.wait_beside(1), tickets.wait_beside(1)];
        let waiting = waits.map(|wait| tokio::spawn(wait));
        tokio::task::yield_now().await;
        tickets.reached(1);
        for wait in waiting {
            let outcome = tokio::time::timeout(std::time::Duration::from_secs(60), wait).await;
            outcome.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn at_the_end_nothing_is_acknowledged_that_was_not_durable() {
        let tickets = Arc::new(Tickets::default());
        let (mut first, mut second) = (tickets.wait(1), tickets.wait(2));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        tickets.reached(1);
        tickets.end();
        assert!(first.await.is_ok());
        assert!(second.await.is_err());
        assert!(tickets.wait(3).await.is_err());
    }

    #[test]
    fn whoever_asks_again_is_told_by_the_newest_waker_once() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let counts = [0, 0].map(|count| Arc::new(Count(AtomicUsize::new(count))));
        let tickets = Arc::new(Tickets::default());
        let mut wait = tickets.wait(1);
        for count in &counts {
            let waker = Waker::from(Arc::clone(count));
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        tickets.reached(1);
        assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
