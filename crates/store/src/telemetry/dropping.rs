//! Decides which values past retention are dropped.

/// Number of values below which dropping is not worthwhile, unless nothing is left of the series, or exactness is
/// requested.
const STRETCH_VALUES_MIN: u64 = 256;
/// Fraction (one in this many) of the remaining values from which dropping is worthwhile.
const STRETCH_PART: u64 = 16;

/// Returns true if it is worthwhile to drop so many of the values that a series has left.
pub(crate) fn is_worth_dropping(dropped: u64, of: u64) -> bool {
    let left = of.saturating_sub(dropped);
    left == 0 || dropped >= STRETCH_VALUES_MIN.max(left / STRETCH_PART)
}

/// Estimates the bytes of dropped values by their share of the series: they are not read one by one.
pub(crate) fn share_of_bytes(of_series: u64, dropped: u64, of: u64) -> u64 {
    let share = u128::from(of_series) * u128::from(dropped) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(of_series).min(of_series)
}
