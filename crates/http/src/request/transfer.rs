//! Time limits of transfers: a request body to arrive, a response to be read. Each has a minute, and a large one more,
//! at a rate that any connection reaches.

use std::time::Duration;

/// Time that every body and every response has.
pub(crate) const TRANSFER_TIME: Duration = Duration::from_secs(60);
/// Lowest rate in bytes per second of a transfer that takes longer.
pub(crate) const TRANSFER_BYTES_A_SECOND_MIN: u64 = 16 << 10;

/// Returns the time limit of a transfer of `bytes` bytes: at least `time`.
pub(crate) fn time_for(bytes: usize, time: Duration) -> Duration {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    time.max(Duration::from_millis(bytes.saturating_mul(1_000) / TRANSFER_BYTES_A_SECOND_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_transfer_has_a_longer_time_limit() {
        assert_eq!(time_for(0, TRANSFER_TIME), TRANSFER_TIME);
        assert_eq!(time_for(960 << 10, TRANSFER_TIME), TRANSFER_TIME);
        assert_eq!(time_for(5 << 20, TRANSFER_TIME), Duration::from_secs(320));
        assert!(time_for(usize::MAX, TRANSFER_TIME) > TRANSFER_TIME);
    }
}
