//! Finding a moment among dense sequences whose order strictly grows.

use std::ops::Range;

use super::keys::TimeOrder;
use super::load::{RowIterator, current};
use super::rows::trailing;
use crate::error::Result;

/// How rows are found and read: a series' or a timeline's.
pub struct Track<'a> {
    /// An iterator over its rows.
    pub rows: RowIterator<'a>,
    /// The key of a sequence.
    pub key: Box<dyn Fn(u64) -> [u8; 17] + 'a>,
    /// How many bytes of the key count.
    pub key_length: usize,
    /// The order of a row.
    pub order: fn(&[u8]) -> Result<TimeOrder>,
}

impl Track<'_> {
    /// Goes to a sequence, or to the next one that is still there.
    pub fn go(&mut self, sequence: u64) {
        self.rows.seek(&(self.key)(sequence)[..self.key_length]);
    }

    /// The order of the row at a sequence, or of the next one that is still there; none beyond the last.
    pub fn order_at(&mut self, sequence: u64) -> Result<Option<TimeOrder>> {
        self.go(sequence);
        current(&self.rows)?.map(|(_, value)| (self.order)(value)).transpose()
    }

    /// The sequence after that of the last row; 0 if there is none.
    pub fn end(&mut self) -> Result<u64> {
        self.rows.seek_to_last();
        let Some((key, _)) = current(&self.rows)? else { return Ok(0) };
        trailing(key).map(|last| last + 1)
    }

    /// The first sequence from here on that is still there.
    pub fn first_from(&mut self, sequence: u64) -> Result<Option<u64>> {
        self.go(sequence);
        Ok(current(&self.rows)?.and_then(|(key, _)| super::keys::trailing(key)))
    }

    /// The first of these sequences at or after a place in time; the end if there is none.
    /// Rows that are gone are passed over: they are older than all that are there.
    pub fn first_at(&mut self, within: Range<u64>, order: TimeOrder) -> Result<u64> {
        let (mut low, mut high) = (within.start, within.end.max(within.start));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.order_at(middle)?.is_some_and(|found| found < order) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Calls `each` with the values of these sequences, oldest first, until it answers false.
    pub fn read(&mut self, within: Range<u64>, mut each: impl FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        self.go(within.start);
        while let Some((key, value)) = current(&self.rows)? {
            let sequence = trailing(key)?;
            if sequence >= within.end || !each(sequence, value)? {
                break;
            }
            self.rows.next();
        }
        Ok(())
    }
}
