//! Bounds the memory of devices, and of a device's last values.

use isobar_model::json::{LAST_BYTES_MAX, LastKept, RawJson};
use isobar_quota::LruLimits;

/// Bounds the devices that are evicted from memory each time one is added or grows.
const LEAVING_MAX: usize = 256;

/// Bounds the series of a device: as many as the elements of two designs. A value that would begin another series is
/// not stored.
pub const SERIES_MAX: usize = 2_000;

/// Bounds the payload bytes that all last values of a device take.
pub const DEVICE_LAST_BYTES_MAX: usize = 16 << 20;

/// Payload bytes that each series may use for its last values, regardless of the others.
const LAST_BYTES_MIN: usize = 64;

/// Returns the limits of a cache of devices' states that take about this many bytes.
pub(crate) fn device_cache(bytes: usize) -> LruLimits {
    LruLimits { entries: usize::MAX, bytes, evictions: LEAVING_MAX, spares_small_shares: true }
}

/// Returns how many bytes a series may use for its last values: `own` are in use now, and `others` by the device's
/// other series. Bytes in use are never revoked.
pub fn last_room(own: usize, others: usize) -> usize {
    DEVICE_LAST_BYTES_MAX.saturating_sub(others).max(own).clamp(LAST_BYTES_MIN, LAST_BYTES_MAX)
}

/// Merges payloads into the last values of a series, oldest first. `others` are the bytes of the last values of the
/// device's other series.
pub(crate) fn last_after<'p>(
    before: &[u8],
    payloads: impl IntoIterator<Item = &'p RawJson>,
    others: usize,
) -> LastKept {
    let older = std::str::from_utf8(before).ok().filter(|text| !text.is_empty());
    let payloads = payloads.into_iter().map(|payload| -> &RawJson { payload });
    LastKept::after_all_within(last_room(before.len(), others), older, payloads).0
}
