//! Limits the trust in a clock that jumps ahead while a process runs. What a false moment leaves behind stays when the clock
//! is right again: identifiers of days to come, keys that have expired.

use std::sync::atomic::{AtomicI64, Ordering};

/// Milliseconds by which a clock may jump ahead of the time that has passed.
const JUMP_MILLIS_MAX: i64 = 86_400_000;
/// Milliseconds for which a clock has to stay ahead until it is followed.
const FOLLOWED_AFTER_MILLIS: i64 = 3_600_000;
/// Milliseconds by which the lead of a clock has to change before that is noted.
const NOTED_MILLIS_MIN: i64 = 1_000;
/// Stands for the moment of a jump if there was none.
const NEVER: i64 = i64::MIN;

/// Follows a clock, but not where it jumps ahead by more than a day: until it is back, or has been ahead for an hour, moments
/// go on by the time that has passed.
#[derive(Debug)]
pub struct JumpGuard {
    /// Lead of the clock over the time that has passed, as it was trusted last.
    lead: AtomicI64,
    /// The passed time at which the clock was first found too far ahead, or [`NEVER`].
    jumped_at: AtomicI64,
}

impl JumpGuard {
    /// Trusts a clock that shows `clock` when so much time has `passed`, since a moment that does not matter.
    pub fn new(clock: i64, passed: i64) -> Self {
        Self { lead: AtomicI64::new(clock.saturating_sub(passed)), jumped_at: AtomicI64::new(NEVER) }
    }

    /// Returns the moment as far as the clock is trusted. All numbers are milliseconds.
    pub fn trusted(&self, clock: i64, passed: i64) -> i64 {
        let (lead, trusted) = (clock.saturating_sub(passed), self.lead.load(Ordering::Relaxed));
        if lead > trusted.saturating_add(JUMP_MILLIS_MAX) {
            let jumped_at = match self.jumped_at.compare_exchange(NEVER, passed, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => passed,
                Err(before) => before,
            };
            if passed.saturating_sub(jumped_at) < FOLLOWED_AFTER_MILLIS {
                return passed.saturating_add(trusted);
            }
        }
        // Mostly nothing has changed: a read does not invalidate the cache line of other threads.
        if lead.abs_diff(trusted) >= NOTED_MILLIS_MIN.unsigned_abs() {
            self.lead.store(lead, Ordering::Relaxed);
        }
        if self.jumped_at.load(Ordering::Relaxed) != NEVER {
            self.jumped_at.store(NEVER, Ordering::Relaxed);
        }
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    /// Time that the clock shows at the start, when `PASSED` has passed.
    const START: i64 = 20_000 * DAY;
    const PASSED: i64 = 7 * HOUR;

    /// Returns what is trusted after so much time by a clock with this error.
    fn trusted(guard: &JumpGuard, after: i64, error: i64) -> i64 {
        guard.trusted(START + after + error, PASSED + after) - START
    }

    #[test]
    fn jump_of_days_is_not_followed_and_leaves_nothing() {
        let guard = JumpGuard::new(START, PASSED);
        assert_eq!(trusted(&guard, 1_000, 0), 1_000);
        for after in [2_000, HOUR / 2, HOUR] {
            assert_eq!(trusted(&guard, after, 3 * DAY), after);
        }
        assert_eq!(trusted(&guard, HOUR + 1_000, 0), HOUR + 1_000);
        // Another one has an hour of its own.
        assert_eq!(trusted(&guard, 2 * HOUR, 400 * DAY), 2 * HOUR);
        assert_eq!(trusted(&guard, 3 * HOUR - 1, 400 * DAY), 3 * HOUR - 1);
    }

    #[test]
    fn jump_that_stays_for_an_hour_is_followed() {
        let guard = JumpGuard::new(START, PASSED);
        assert_eq!(trusted(&guard, 0, 3 * DAY), 0);
        assert_eq!(trusted(&guard, HOUR, 3 * DAY), HOUR + 3 * DAY);
        assert_eq!(trusted(&guard, HOUR + 1, 3 * DAY), HOUR + 1 + 3 * DAY);
    }

    #[test]
    fn clock_is_followed_back_and_up_to_a_day_ahead() {
        let guard = JumpGuard::new(START, PASSED);
        for (after, error) in [(0, DAY), (1_000, 2 * DAY), (2_000, -400 * DAY), (3_000, -400 * DAY + 5)] {
            assert_eq!(trusted(&guard, after, error), after + error);
        }
    }
}
