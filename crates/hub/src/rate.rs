//! Fixed rate windows of one minute (contract: Rate limits).

use std::hash::{BuildHasher, Hash};

use isobar_model::error::RateWindow;
use isobar_model::time::Timestamp;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// Length of a window.
const WINDOW_SECONDS: i64 = 60;
/// Locks among which the keys are spread.
const SHARDS: usize = 16;

/// Counts the calls of each `K` in the present window. What an earlier window counted is dropped whole,
/// so memory is bounded by the callers of one minute.
pub(crate) struct RateWindows<K> {
    limit: u32,
    shards: [Mutex<Shard<K>>; SHARDS],
}

struct Shard<K> {
    window: i64,
    counts: FxHashMap<K, u32>,
}

impl<K: Hash + Eq> RateWindows<K> {
    /// Windows of `limit` calls; 0: nothing is counted.
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, shards: std::array::from_fn(|_| Mutex::new(Shard { window: 0, counts: FxHashMap::default() })) }
    }

    /// Counts a call. `Err` when the window is spent; none when nothing is counted.
    pub(crate) fn count(&self, key: K, now: Timestamp) -> Result<Option<RateWindow>, RateWindow> {
        if self.limit == 0 {
            return Ok(None);
        }
        let window = now.seconds().div_euclid(WINDOW_SECONDS);
        let hash = FxBuildHasher.hash_one(&key);
        let mut shard = self.shards[(hash >> 57) as usize % SHARDS].lock();
        if shard.window != window {
            shard.window = window;
            shard.counts.clear();
        }
        let count = shard.counts.entry(key).or_insert(0);
        let spent = *count >= self.limit;
        *count += u32::from(!spent);
        let state = RateWindow {
            limit: self.limit,
            remaining: self.limit - *count,
            reset: Timestamp::from_millis((window + 1) * WINDOW_SECONDS * 1000),
        };
        if spent { Err(state) } else { Ok(Some(state)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn a_window_takes_its_limit_and_then_refuses_until_it_ends() {
        let windows = RateWindows::new(2);
        let first = windows.count("a", at(60)).unwrap().unwrap();
        assert_eq!((first.limit, first.remaining, first.reset), (2, 1, at(120)));
        assert_eq!(windows.count("a", at(119)).unwrap().unwrap().remaining, 0);
        assert_eq!(windows.count("a", at(119)).unwrap_err().remaining, 0);
        assert!(windows.count("b", at(119)).is_ok());
        assert!(windows.count("a", at(120)).is_ok());
    }

    #[test]
    fn a_limit_of_zero_counts_nothing() {
        assert_eq!(RateWindows::new(0).count("a", at(0)), Ok(None));
    }
}
