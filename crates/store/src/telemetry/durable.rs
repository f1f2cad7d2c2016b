//! Tracks applied commits until they are durable.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Result, StoreError};

/// Applied commit that may not be durable yet.
#[derive(Debug)]
#[must_use = "what is not durable must not be acknowledged"]
pub struct Durable(Progress);

#[derive(Debug)]
enum Progress {
    Awaited(oneshot::Receiver<()>),
    /// The store answers each commit by itself.
    Answered(Box<AwaitedAnswer>),
    Durable,
    /// Another commit was first.
    Conflict,
    /// The outcome is unknown for ever.
    Lost,
}

/// A commit that the store answers by itself.
#[derive(Debug)]
struct AwaitedAnswer {
    told: oneshot::Receiver<Result<()>>,
    settling: Arc<Mutex<Settling>>,
}

/// Work to do once the outcome is known, or the outcome: true if the commit is durable.
#[derive(Debug)]
enum Settling {
    Awaited(Option<Settle>),
    Settled(bool),
}

struct Settle(Box<dyn FnOnce(bool) + Send>);

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settle")
    }
}

/// The right to answer a commit. Dropped before that, the outcome is unknown for ever.
#[derive(Debug)]
pub(crate) struct CommitAnswer {
    tell: Option<oneshot::Sender<Result<()>>>,
    settling: Arc<Mutex<Settling>>,
}

impl CommitAnswer {
    /// Answers the commit.
    pub fn send(mut self, outcome: Result<()>) {
        self.settle(outcome.is_ok());
        if let Some(tell) = self.tell.take() {
            // The caller may be gone.
            let _ = tell.send(outcome);
        }
    }

    fn settle(&self, is_durable: bool) {
        let before = std::mem::replace(&mut *self.settling.lock(), Settling::Settled(is_durable));
        if let Settling::Awaited(Some(Settle(settle))) = before {
            settle(is_durable);
        }
    }
}

impl Drop for CommitAnswer {
    fn drop(&mut self) {
        if self.tell.is_some() {
            self.settle(false);
        }
    }
}

/// Error for commits whose outcome will never be known.
#[derive(Debug, thiserror::Error)]
#[error("the store has failed or is closing")]
struct StoreEnded;

impl Durable {
    /// Returns a handle for a commit that is answered by itself, and the right to answer it.
    pub(crate) fn answered() -> (Self, CommitAnswer) {
        let ((tell, told), settling) = (oneshot::channel(), Arc::new(Mutex::new(Settling::Awaited(None))));
        let durable = Self(Progress::Answered(Box::new(AwaitedAnswer { told, settling: Arc::clone(&settling) })));
        (durable, CommitAnswer { tell: Some(tell), settling })
    }

    /// Returns true if [`StoreError::Conflict`] may still be the outcome.
    pub fn may_conflict(&self) -> bool {
        matches!(self.0, Progress::Answered(_))
    }

    /// Calls `settle` with true once the commit is durable, or with false once it is known to have left nothing, or its
    /// outcome is unknown for ever: before [`Self::wait`] returns, and whether anybody waits or not. Does nothing for a
    /// commit that cannot conflict any more.
    pub fn settle_with(&self, settle: impl FnOnce(bool) + Send + 'static) {
        let Progress::Answered(answer) = &self.0 else { return };
        let outcome = {
            let mut settling = answer.settling.lock();
            match &mut *settling {
                Settling::Settled(is_durable) => *is_durable,
                Settling::Awaited(settles) => {
                    *settles = Some(Settle(Box::new(settle)));
                    return;
                }
            }
        };
        settle(outcome);
    }

    /// Returns when the commit is durable; later calls return at once.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another commit was first, in a store that learns it only now: nothing was done, and the
    /// run is repeated on a new turn. [`StoreError::Unavailable`] if the outcome will never be known.
    pub async fn wait(&mut self) -> Result<()> {
        match &mut self.0 {
            Progress::Awaited(told) => {
                self.0 = if told.await.is_ok() { Progress::Durable } else { Progress::Lost };
            }
            Progress::Answered(answer) => {
                self.0 = match (&mut answer.told).await {
                    Ok(Ok(())) => Progress::Durable,
                    Ok(Err(StoreError::Conflict)) => Progress::Conflict,
                    Ok(Err(error)) => {
                        self.0 = Progress::Lost;
                        return Err(error);
                    }
                    Err(_) => Progress::Lost,
                };
            }
            Progress::Durable | Progress::Conflict | Progress::Lost => {}
        }
        match self.0 {
            Progress::Durable => Ok(()),
            Progress::Conflict => Err(StoreError::Conflict),
            Progress::Awaited(_) | Progress::Answered(_) | Progress::Lost => Err(StoreError::unavailable(StoreEnded)),
        }
    }
}

/// Durability of commits, by tickets that increase; commits become durable in the order of their tickets. Each waiter
/// has its own channel: a shared value would wake all of them with every batch.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Newest durable ticket.
    durable: AtomicU64,
    line: Mutex<DurableLine>,
}

/// Waiters, in the order of their tickets.
#[derive(Debug, Default)]
struct DurableLine {
    has_ended: bool,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Tickets {
    /// Returns the newest durable ticket.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns a handle for the commit with this ticket; any number of handles may wait for one commit.
    pub fn wait(&self, ticket: u64) -> Durable {
        let mut line = self.line.lock();
        if self.durable() >= ticket {
            return Durable(Progress::Durable);
        }
        if line.has_ended {
            return Durable(Progress::Lost);
        }
        let (tell, told) = oneshot::channel();
        // The place is nearly always at the end.
        let place = line.waiting.iter().rposition(|(earlier, _)| *earlier <= ticket).map_or(0, |at| at + 1);
        line.waiting.insert(place, (ticket, tell));
        Durable(Progress::Awaited(told))
    }

    /// Wakes the waiters of all tickets up to this one, which are durable.
    pub fn reached(&self, ticket: u64) {
        let reached: Vec<_> = {
            let mut line = self.line.lock();
            // Store under the lock, so that a waiter that reads the previous ticket is in the line before it is
            // drained.
            self.durable.store(ticket, Ordering::Release);
            let count = line.waiting.partition_point(|(awaited, _)| *awaited <= ticket);
            line.waiting.drain(..count).collect()
        };
        for (_, tell) in reached {
            // The receiver may have been dropped.
            let _ = tell.send(());
        }
    }

    /// Fails all waiters: no further ticket will be known to become durable.
    pub fn end(&self) {
        let left = {
            let mut line = self.line.lock();
            line.has_ended = true;
            std::mem::take(&mut line.waiting)
        };
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;

    use super::*;

    /// Returns true if the commit is known to be durable by now.
    fn is_durable(durable: &mut Durable) -> bool {
        durable.wait().now_or_never().is_some_and(|outcome| outcome.is_ok())
    }

    #[test]
    fn waiter_is_woken_once_its_ticket_is_durable() {
        let tickets = Tickets::default();
        // Tickets are out of order, some have no waiter, and one has two.
        let mut waits = [9, 2, 5, 5].map(|ticket| tickets.wait(ticket));
        for (reached, durable) in
            [(1, [false; 4]), (4, [false, true, false, false]), (8, [false, true, true, true]), (9, [true; 4])]
        {
            tickets.reached(reached);
            assert_eq!(waits.each_mut().map(is_durable), durable, "{reached}");
            assert_eq!(tickets.durable(), reached);
        }
        // Later calls, and handles made later, get the same answer.
        assert_eq!(waits.each_mut().map(is_durable), [true; 4]);
        assert!(is_durable(&mut tickets.wait(9)) && tickets.line.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn all_waiters_of_a_ticket_are_woken() {
        for ends in [false, true] {
            let tickets = Tickets::default();
            let waiting = [1, 1, 1].map(|ticket| {
                let mut durable = tickets.wait(ticket);
                tokio::spawn(async move { durable.wait().await.is_ok() })
            });
            tokio::task::yield_now().await;
            if ends {
                tickets.end()
            } else {
                tickets.reached(1)
            }
            for outcome in waiting {
                assert_eq!(outcome.await.unwrap(), !ends);
            }
        }
    }

    #[tokio::test]
    async fn answered_commit_is_settled_once_however_it_ends() {
        for (outcome, expected) in [(Some(true), true), (Some(false), false), (None, false)] {
            for is_late in [false, true] {
                let (mut durable, answer) = Durable::answered();
                let settled = Arc::new(Mutex::new(Vec::new()));
                let settle = |durable: &Durable| {
                    let settled = Arc::clone(&settled);
                    durable.settle_with(move |is_durable| settled.lock().push(is_durable));
                };
                if !is_late {
                    settle(&durable);
                }
                match outcome {
                    Some(true) => answer.send(Ok(())),
                    Some(false) => answer.send(Err(StoreError::Conflict)),
                    None => drop(answer),
                }
                if is_late {
                    settle(&durable);
                }
                assert_eq!(*settled.lock(), [expected]);
                for _ in 0..2 {
                    let waited = durable.wait().await;
                    assert_eq!(waited.is_ok(), expected);
                    assert_eq!(matches!(waited, Err(StoreError::Conflict)), outcome == Some(false));
                }
                assert!(!durable.may_conflict());
            }
        }
    }

    #[tokio::test]
    async fn dropped_wait_can_be_repeated() {
        let tickets = Tickets::default();
        let mut durable = tickets.wait(1);
        {
            let mut first = pin!(durable.wait());
            assert!(futures::poll!(&mut first).is_pending());
        }
        tickets.reached(1);
        durable.wait().await.unwrap();
    }

    #[tokio::test]
    async fn end_acknowledges_no_commit_that_is_not_durable() {
        let tickets = Tickets::default();
        let (mut first, mut second) = (tickets.wait(1), tickets.wait(2));
        tickets.reached(1);
        tickets.end();
        assert!(first.wait().await.is_ok());
        assert!(second.wait().await.is_err() && second.wait().await.is_err());
        assert!(tickets.wait(3).wait().await.is_err() && tickets.wait(1).wait().await.is_ok());
    }
}
