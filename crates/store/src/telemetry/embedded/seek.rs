//! Finds a moment among dense sequences whose order strictly increases.

use std::ops::Range;

use super::keys::TimeOrder;
use super::load::{RowIterator, current};
use super::rows::trailing;
use crate::error::Result;

/// Reader of the rows of a series or a timeline.
pub struct Track<'a> {
    /// Iterator over the rows.
    pub rows: RowIterator<'a>,
    /// Function that builds the key of a sequence.
    pub key: Box<dyn Fn(u64) -> [u8; 17] + 'a>,
    /// Number of bytes of the key that are used.
    pub key_length: usize,
    /// Function that reads the order of a row.
    pub order: fn(&[u8]) -> Result<TimeOrder>,
}

impl Track<'_> {
    /// Seeks a sequence, or the next one that exists.
    pub fn go(&mut self, sequence: u64) {
        self.rows.seek(&(self.key)(sequence)[..self.key_length]);
    }

    /// Returns the order of the row at a sequence, or of the next one that exists; `None` beyond the last.
    pub fn order_at(&mut self, sequence: u64) -> Result<Option<TimeOrder>> {
        self.go(sequence);
        current(&self.rows)?.map(|(_, value)| (self.order)(value)).transpose()
    }

    /// Returns the sequence after that of the last row; 0 without rows.
    pub fn end(&mut self) -> Result<u64> {
        self.rows.seek_to_last();
        let Some((key, _)) = current(&self.rows)? else { return Ok(0) };
        trailing(key).map(|last| last + 1)
    }

    /// Returns the first sequence from here on that exists.
    pub fn first_from(&mut self, sequence: u64) -> Result<Option<u64>> {
        self.go(sequence);
        Ok(current(&self.rows)?.and_then(|(key, _)| super::keys::trailing(key)))
    }

    /// Returns the first of these sequences at or after a position in time, or the end. Skips missing rows: they are
    /// older than all existing ones.
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

    /// Calls `each` with the values of these sequences, oldest first, until it returns false.
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
