//! The sequences of a device's queue that are in use, as ranges, because most queues are dense.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranges of live sequences, oldest first: `from` inclusive, `to` exclusive; none empty, none touching.
#[derive(Clone, Debug)]
pub struct Live {
    /// A number that no other queue has had since the process began: sequences start again when an empty queue is
    /// loaded again.
    generation: u64,
    ranges: VecDeque<(u64, u64)>,
    count: u64,
    next: u64,
}

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

impl Default for Live {
    fn default() -> Self {
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { generation, ranges: VecDeque::new(), count: 0, next: 0 }
    }
}

impl Live {
    /// Returns a number that distinguishes the queue from all others, and from itself before it was loaded again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if this sequence is in use.
    pub fn contains(&self, sequence: u64) -> bool {
        let at = self.ranges.partition_point(|(_, to)| *to <= sequence);
        self.ranges.get(at).is_some_and(|(from, _)| *from <= sequence)
    }

    /// Makes a queue of these sequences, in increasing order.
    pub fn of(sequences: impl IntoIterator<Item = u64>) -> Self {
        let mut live = Self::default();
        for sequence in sequences {
            live.next = sequence;
            live.push();
        }
        live
    }

    /// Returns the number of sequences.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the range from the oldest live sequence to just after the newest.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.ranges.front()?.0, self.ranges.back()?.1))
    }

    /// Adds a sequence at the end, and returns it.
    pub fn push(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.count += 1;
        match self.ranges.back_mut() {
            Some((_, to)) if *to == sequence => *to += 1,
            _ => self.ranges.push_back((sequence, sequence + 1)),
        }
        sequence
    }

    /// Removes the oldest.
    pub fn pop(&mut self) -> Option<u64> {
        let oldest = self.ranges.front()?.0;
        self.remove(oldest);
        Some(oldest)
    }

    /// Removes a sequence. Returns false if it was not in use.
    pub fn remove(&mut self, sequence: u64) -> bool {
        let at = self.ranges.partition_point(|(_, to)| *to <= sequence);
        let Some((from, to)) = self.ranges.get(at).copied().filter(|(from, _)| *from <= sequence) else {
            return false;
        };
        self.count -= 1;
        match (from == sequence, sequence + 1 == to) {
            (true, true) => {
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at].0 += 1,
            (false, true) => self.ranges[at].1 -= 1,
            (false, false) => {
                self.ranges[at].1 = sequence;
                self.ranges.insert(at + 1, (sequence + 1, to));
            }
        }
        true
    }

    /// Returns the bytes that it uses in addition to its own.
    pub fn weight(&self) -> usize {
        self.ranges.capacity() * 16
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn live_equals_a_set_of_sequences(steps in prop::collection::vec((0_u8..4, 0_u64..40), 0..200)) {
            let (mut live, mut model, mut next) = (Live::default(), BTreeSet::new(), 0);
            for (step, sequence) in steps {
                match step {
                    0 | 1 => {
                        prop_assert_eq!(live.push(), next);
                        model.insert(next);
                        next += 1;
                    }
                    2 => prop_assert_eq!(live.remove(sequence), model.remove(&sequence)),
                    _ => prop_assert_eq!(live.pop(), model.pop_first()),
                }
                prop_assert!((0..next + 2).all(|sequence| live.contains(sequence) == model.contains(&sequence)));
                prop_assert_eq!(live.len(), model.len() as u64);
                prop_assert_eq!(live.span(), model.first().zip(model.last()).map(|(first, last)| (*first, last + 1)));
                prop_assert_eq!(live.ranges.clone(), Live::of(model.iter().copied()).ranges);
            }
        }
    }
}
