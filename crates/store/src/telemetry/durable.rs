//! What was applied, on its way to the disk.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Result, StoreError};

/// A commit that was applied, until it is known to be durable.
#[derive(Debug)]
#[must_use = "what is not durable must not be acknowledged"]
pub struct Durable(Progress);

#[derive(Debug)]
enum Progress {
    Awaited(oneshot::Receiver<()>),
    Durable,
    /// Nobody can say any more whether it ever will be.
    Lost,
}

/// Nobody is left who could tell.
#[derive(Debug, thiserror::Error)]
#[error("the store has failed or is closing")]
struct StoreEnded;

impl Durable {
    /// Returns when the commit is durable, again and at once when it has before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: nobody can say any more whether it ever will be.
    pub async fn wait(&mut self) -> Result<()> {
        if let Progress::Awaited(told) = &mut self.0 {
            self.0 = if told.await.is_ok() { Progress::Durable } else { Progress::Lost };
        }
        match self.0 {
            Progress::Durable => Ok(()),
            Progress::Awaited(_) | Progress::Lost => Err(StoreError::unavailable(StoreEnded)),
        }
    }
}

/// Commits have tickets that grow, and become durable in their order. Each is told by itself: a value that all watch would wake
/// all who wait with every batch.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// The newest durable ticket.
    durable: AtomicU64,
    line: Mutex<DurableLine>,
}

/// Who waits, in the order of their tickets.
#[derive(Debug, Default)]
struct DurableLine {
    has_ended: bool,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Tickets {
    /// The newest durable ticket.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// A commit with that ticket; any number may wait for one.
    pub fn wait(&self, ticket: u64) -> Durable {
        let mut line = self.line.lock();
        if self.durable() >= ticket {
            return Durable(Progress::Durable);
        }
        if line.has_ended {
            return Durable(Progress::Lost);
        }
        let (tell, told) = oneshot::channel();
        // Nearly always at the end.
        let place = line.waiting.iter().rposition(|(earlier, _)| *earlier <= ticket).map_or(0, |at| at + 1);
        line.waiting.insert(place, (ticket, tell));
        Durable(Progress::Awaited(told))
    }

    /// All up to that ticket are durable.
    pub fn reached(&self, ticket: u64) {
        let reached: Vec<_> = {
            let mut line = self.line.lock();
            // Under the lock, so that whoever finds it too early stands in the line when it is gone through.
            self.durable.store(ticket, Ordering::Release);
            let count = line.waiting.partition_point(|(awaited, _)| *awaited <= ticket);
            line.waiting.drain(..count).collect()
        };
        for (_, tell) in reached {
            // Who no longer waits need not know.
            let _ = tell.send(());
        }
    }

    /// No ticket becomes durable any more, or nobody would know.
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

    /// Whether it is known to be durable by now.
    fn is_durable(durable: &mut Durable) -> bool {
        durable.wait().now_or_never().is_some_and(|outcome| outcome.is_ok())
    }

    #[test]
    fn each_is_told_when_its_ticket_is_durable_and_not_before() {
        let tickets = Tickets::default();
        // Out of order, not all of them wait, and of one two do.
        let mut waits = [9, 2, 5, 5].map(|ticket| tickets.wait(ticket));
        for (reached, durable) in
            [(1, [false; 4]), (4, [false, true, false, false]), (8, [false, true, true, true]), (9, [true; 4])]
        {
            tickets.reached(reached);
            assert_eq!(waits.each_mut().map(is_durable), durable, "{reached}");
            assert_eq!(tickets.durable(), reached);
        }
        // Whoever asks again, and whoever asks late, is told the same.
        assert_eq!(waits.each_mut().map(is_durable), [true; 4]);
        assert!(is_durable(&mut tickets.wait(9)) && tickets.line.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn all_who_wait_for_a_ticket_are_woken() {
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
    async fn a_wait_that_is_given_up_is_taken_up_again() {
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
    async fn at_the_end_nothing_is_acknowledged_that_was_not_durable() {
        let tickets = Tickets::default();
        let (mut first, mut second) = (tickets.wait(1), tickets.wait(2));
        tickets.reached(1);
        tickets.end();
        assert!(first.wait().await.is_ok());
        assert!(second.wait().await.is_err() && second.wait().await.is_err());
        assert!(tickets.wait(3).wait().await.is_err() && tickets.wait(1).wait().await.is_ok());
    }
}
