//! Threads that work on what has gathered since they did so last.

use crate::come_soon;
use crate::policy::{self, Policy};

/// From so many at a time on it is worth while to let more gather.
const MANY: usize = 8;
/// So few at a time are not worth waiting for.
const FEW: usize = 2;

/// A thread that works on what has gathered. While that is much it pushes nobody aside when it is woken, for the thread that
/// woke it would only have gathered more; while it is little, it is there as soon as it can be: beside threads that go on and
/// on whoever waits for it would wait until they have to give up their processor, some milliseconds each time.
#[derive(Debug, Default)]
pub struct Gathering {
    /// None: as it was started.
    much: Option<bool>,
}

impl Gathering {
    /// This thread works on so many things now.
    pub fn works_on(&mut self, count: usize) {
        let much = self.is_much(count);
        if self.much != Some(much) {
            self.much = Some(much);
            if much { policy::follow(Policy::Batch, None) } else { come_soon() }
        }
    }

    /// Whether so many are much. In between it stays as it was: a change costs about a microsecond.
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
