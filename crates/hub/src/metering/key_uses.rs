//! Records when API keys were last used: in memory at once, in the registry at most once a minute for each key.

use std::collections::HashMap;

use isobar_model::ids::ApiKeyId;
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

/// Shortest time between two writes of a key's use, in seconds.
const KEY_WRITE_SECONDS: i64 = 60;

/// The uses of keys that are not yet written, or were written in the last minute.
#[derive(Default)]
pub(crate) struct KeyUses(Mutex<HashMap<ApiKeyId, KeyUse>>);

struct KeyUse {
    /// Time of the last use.
    last: Timestamp,
    written: Option<Written>,
}

struct Written {
    /// The use that the registry knows.
    last: Timestamp,
    /// Time of the write.
    at: Timestamp,
}

impl KeyUse {
    fn has_news(&self) -> bool {
        self.written.as_ref().is_none_or(|written| written.last < self.last)
    }

    /// Returns true if the key may be written again. A clock that was set back does not delay it.
    fn may_be_written(&self, now: Timestamp) -> bool {
        let rests = |written: &Written| written.at <= now && now < written.at.plus_seconds(KEY_WRITE_SECONDS);
        !self.written.as_ref().is_some_and(rests)
    }
}

impl KeyUses {
    /// Records the use of a key.
    pub(crate) fn note(&self, key: ApiKeyId, now: Timestamp) {
        let mut uses = self.0.lock();
        let key_use = uses.entry(key).or_insert(KeyUse { last: now, written: None });
        key_use.last = key_use.last.max(now);
    }

    /// Returns the time of a key's last use, if it is in memory.
    pub(crate) fn last(&self, key: ApiKeyId) -> Option<Timestamp> {
        self.0.lock().get(&key).map(|key_use| key_use.last)
    }

    /// Returns the uses to be written now, at the end all of them. Keys without an unwritten use for a minute are
    /// removed.
    pub(crate) fn due(&self, now: Timestamp, is_end: bool) -> Vec<(ApiKeyId, Timestamp)> {
        let mut uses = self.0.lock();
        uses.retain(|_, key_use| key_use.has_news() || !key_use.may_be_written(now));
        let due = uses.iter().filter(|(_, key_use)| key_use.has_news() && (is_end || key_use.may_be_written(now)));
        due.map(|(key, key_use)| (*key, key_use.last)).collect()
    }

    /// Records that these uses were written.
    pub(crate) fn written(&self, uses: &[(ApiKeyId, Timestamp)], at: Timestamp) {
        let mut known = self.0.lock();
        for (key, last) in uses {
            if let Some(key_use) = known.get_mut(key) {
                key_use.written = Some(Written { last: *last, at });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(number: u128) -> ApiKeyId {
        ApiKeyId(Uuid::from_u128(number))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus_seconds(seconds)
    }

    /// Checks every five seconds, as the worker does, and writes the due uses; returns the seconds of the writes.
    fn writes(uses: &KeyUses, seconds: std::ops::Range<i64>, used: impl Fn(i64) -> bool) -> Vec<i64> {
        let mut wrote = Vec::new();
        for second in seconds {
            if used(second) {
                uses.note(key(1), at(second));
            }
            if second % 5 == 0 {
                let due = uses.due(at(second), false);
                uses.written(&due, at(second));
                wrote.extend(due.iter().map(|_| second));
            }
        }
        wrote
    }

    // Holds: c13.keyUse
    #[test]
    fn key_in_use_is_written_once_a_minute() {
        let uses = KeyUses::default();
        assert_eq!(writes(&uses, 0..200, |_| true), [0, 60, 120, 180]);
        assert_eq!(uses.last(key(1)), Some(at(199)));
        // The last use is written once the minute has passed, and the key is removed a minute later.
        assert_eq!(writes(&uses, 200..400, |_| false), [240]);
        assert_eq!(uses.last(key(1)), None);
        assert!(uses.0.lock().is_empty());
        // A single use is written by the next check.
        assert_eq!(writes(&uses, 400..500, |second| second == 402), [405]);
    }

    #[test]
    fn use_during_a_write_is_written_later() {
        let uses = KeyUses::default();
        uses.note(key(1), at(0));
        let due = uses.due(at(5), false);
        uses.note(key(1), at(6));
        uses.written(&due, at(5));
        assert_eq!(uses.due(at(64), false), []);
        assert_eq!(uses.due(at(65), false), [(key(1), at(6))]);
        // A use that could not be written stays due.
        assert_eq!(uses.due(at(70), false), [(key(1), at(6))]);
    }

    #[test]
    fn all_uses_are_written_at_the_end() {
        let uses = KeyUses::default();
        (1..=3).for_each(|number| uses.note(key(number), at(0)));
        let mut due = uses.due(at(1), false);
        uses.written(&due, at(1));
        uses.note(key(2), at(2));
        assert_eq!(uses.due(at(3), true), [(key(2), at(2))]);
        due.sort();
        assert_eq!(due, [1, 2, 3].map(|number| (key(number), at(0))));
    }

    #[test]
    fn clock_that_was_set_back_delays_no_write() {
        let uses = KeyUses::default();
        uses.note(key(1), at(1_000));
        uses.written(&uses.due(at(1_000), false), at(1_000));
        uses.note(key(1), at(0));
        assert_eq!(uses.last(key(1)), Some(at(1_000)));
        assert_eq!(uses.due(at(0), false), []);
        assert!(uses.0.lock().is_empty(), "nothing is to be written, and it does not rest");
    }
}
