//! Schedules threads that work on items gathered since their last round.

use crate::come_soon;
use crate::policy::{self, Policy};

/// Number of items at a time from which waiting for more is worthwhile.
const MANY: usize = 8;
/// Number of items at a time up to which waiting is not worthwhile.
const FEW: usize = 2;

/// Scheduling of a thread that works on gathered items. With many items its wake-up preempts no other thread, because
/// the thread that woke it would only have gathered more. With few items it runs as soon as possible: next to threads
/// that never block, callers would otherwise wait until those must release their processor, some milliseconds each
/// time.
#[derive(Debug, Default)]
pub struct Gathering {
    /// True with many items, false with few, or `None` before the first round.
    much: Option<bool>,
}

impl Gathering {
    /// Records the number of items that this thread works on now.
    pub fn works_on(&mut self, count: usize) {
        let much = self.is_much(count);
        if self.much != Some(much) {
            self.much = Some(much);
            if much { policy::follow(Policy::Batch, None) } else { come_soon() }
        }
    }

    /// Returns true if this number counts as many. In between the previous answer stays: a change costs about a
    /// microsecond.
    fn is_much(&self, count: usize) -> bool {
        match count {
            ..=FEW => false,
            MANY.. => true,
            _ => self.much.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_between_few_and_many_stays_what_it_was() {
        let mut gathering = Gathering::default();
        let counts = [(5, false), (8, true), (3, true), (2, false), (7, false), (1_000, true), (0, false)];
        for (count, is_much) in counts {
            gathering.works_on(count);
            assert_eq!(gathering.much, Some(is_much), "{count}");
        }
    }
}
