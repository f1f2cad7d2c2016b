//! Exports a whole series, chunk by chunk. A chunk reads from a cursor and returns the next one: between two chunks no
//! resource is held, for readers of any speed, and values stored meanwhile are beyond the end that the first chunk has
//! fixed.

use rocksdb::{DB, ReadOptions};

use super::load;
use super::rows::{read_value, text, trailing};
use super::seek::Track;
use super::values::{OpenSeries, stored};
use crate::error::{Result, StoreError};
use crate::telemetry::ready_query::ReadyQuery;
use crate::telemetry::scan::ScannedRow;
use crate::telemetry::{ValueChunk, ValueCursor};

/// Bounds the values that one chunk reads; the next constant is the number of bytes after which it reads no more.
const LOOKED_AT_MAX: u64 = 8_192;
const LOOKED_AT_BYTES: usize = 4 << 20;
/// Payload bytes after which a chunk is full.
const FULL_BYTES: usize = 256 << 10;
/// Error if the series is deleted during the export.
const GONE: StoreError = StoreError::Gone("storage element");
/// Bytes that a chunk reads ahead.
const EXPORT_READAHEAD_BYTES: usize = 256 << 10;

/// Reads the chunk at a cursor, or the first one; returns `None` if there is no such series.
pub fn chunk(
    db: &DB,
    device: u64,
    element: &str,
    query: &ReadyQuery,
    cursor: Option<ValueCursor>,
) -> Result<Option<ValueChunk>> {
    let newest_first =
        query.newest_first().ok_or_else(|| StoreError::unavailable("an export is in an order of time"))?;
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_readahead_size(EXPORT_READAHEAD_BYTES);
    let (series, cursor) = match (OpenSeries::of(db, device, element, options)?, cursor) {
        (None, None) => return Ok(None),
        (Some(mut series), None) => {
            let within = series.within(query)?;
            let cursor = ValueCursor { series: series.number, from: within.start, to: within.end };
            (series, cursor)
        }
        // Values past retention are left out, even if they were not when the export began.
        (Some(series), Some(cursor)) if series.number == cursor.series => {
            let (from, to) = (cursor.from.max(series.floor), cursor.to.max(series.floor));
            (series, ValueCursor { from, to, ..cursor })
        }
        // The series was deleted in between, and perhaps created again: the rest is not the requested series.
        _ => return Err(GONE),
    };
    read(series.track, query, cursor, newest_first).map(Some)
}

fn read(mut track: Track<'_>, query: &ReadyQuery, cursor: ValueCursor, newest_first: bool) -> Result<ValueChunk> {
    let (mut left, mut values, mut bytes) = (cursor.from..cursor.to, Vec::new(), 0);
    let (mut looked_at, mut bytes_looked_at) = (0, 0);
    if !left.is_empty() {
        track.go(if newest_first { left.end - 1 } else { left.start });
    }
    while !left.is_empty() && looked_at < LOOKED_AT_MAX && bytes < FULL_BYTES && bytes_looked_at < LOOKED_AT_BYTES {
        // Sequences are dense: a missing one means that the series was deleted after it was looked up. That is no
        // regular end.
        let Some((key, value)) = load::current(&track.rows)? else { return Err(GONE) };
        let sequence = trailing(key)?;
        if sequence != (if newest_first { left.end - 1 } else { left.start }) {
            return Err(GONE);
        }
        let (id, order, payload) = read_value(value)?;
        if query.holds(&ScannedRow { sequence, id, order, payload: text(payload)? }) {
            bytes += payload.len();
            values.push(stored(value)?);
        }
        looked_at += 1;
        bytes_looked_at += payload.len();
        if newest_first {
            left.end = sequence;
            track.rows.prev();
        } else {
            left.start = sequence + 1;
            track.rows.next();
        }
    }
    let next = (!left.is_empty()).then_some(ValueCursor { from: left.start, to: left.end, ..cursor });
    Ok(ValueChunk { values, next })
}

#[cfg(test)]
mod tests {
    use super::super::values::track;
    use super::super::{Embedded, Options};
    use super::*;
    use crate::telemetry::ValueQuery;

    #[test]
    fn missing_rows_of_an_export_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let (query, cursor) = (ReadyQuery::of(ValueQuery::default()), ValueCursor { series: 7, from: 0, to: 10 });
        for newest_first in [true, false] {
            let rows = track(&store.core.db, cursor.series, ReadOptions::default()).unwrap();
            let piece = read(rows, &query, cursor, newest_first);
            assert!(matches!(piece, Err(StoreError::Gone(_))), "{piece:?}");
        }
    }
}
