//! What may be kept of a device in memory.

use isobar_model::json::LAST_BYTES_MAX;

/// Series that a device has at most: as many as the elements of two designs. A value that would begin another one is not
/// stored.
pub const SERIES_MAX: usize = 2_000;

/// Bytes that are kept of all payloads of a device to tell its last values.
pub const DEVICE_LAST_BYTES_MAX: usize = 16 << 20;

/// Bytes that a series has for its last values, however much the others have.
const LAST_BYTES_MIN: usize = 64;

/// Bytes that may be kept to tell the last values of a series: `own` are now, and `others` of its device's other series.
/// None are taken away.
pub fn last_room(own: usize, others: usize) -> usize {
    DEVICE_LAST_BYTES_MAX.saturating_sub(others).max(own).clamp(LAST_BYTES_MIN, LAST_BYTES_MAX)
}
