//! Limits the trust in the clock that decides retention. A clock that was set to next year by mistake must not end a
//! history of six months: removed data does not come back when the clock is right again.

use std::time::Duration;

use isobar_model::time::Timestamp;

/// Seconds that the clock may be ahead of the last moment seen by the store: a day.
const AHEAD_SECONDS_MAX: i64 = 86_400;

/// Returns the time as far as the clock is trusted: if it is ahead of the last moment seen plus the time since then,
/// returns that sum.
pub(crate) fn believed(seen: Timestamp, running: Duration, now: Timestamp) -> Timestamp {
    let running = i64::try_from(running.as_millis()).unwrap_or(i64::MAX);
    let expected = Timestamp::from_millis(seen.millis().saturating_add(running));
    if now <= expected.plus_seconds(AHEAD_SECONDS_MAX) {
        return now;
    }
    tracing::warn!(
        clock = %now,
        believed = %expected,
        "the clock is more than a day ahead of what the telemetry store has seen: nothing is removed for being old \
         that is not by the time since then. If the clock is right, isobar recover --clock says so"
    );
    expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::at;

    const DAY: i64 = 86_400_000;

    #[test]
    fn clock_is_trusted_up_to_a_day_ahead() {
        let hour = Duration::from_secs(3_600);
        for (running, now, expected) in [
            (hour, 3_600_000, 3_600_000),
            (hour, DAY + 3_600_000, DAY + 3_600_000),
            (hour, DAY + 3_600_001, 3_600_000),
            (Duration::ZERO, 400 * DAY, 0),
            (Duration::ZERO, -400 * DAY, -400 * DAY),
            (Duration::MAX, 400 * DAY, 400 * DAY),
        ] {
            assert_eq!(believed(at(0), running, at(now)), at(expected), "{running:?} {now}");
        }
    }
}
