//! Finds the values of a page in an order by payload, in bounded memory: each round over the range finds the next
//! positions behind those of the previous one.

use std::sync::Arc;

use super::SORTED_MAX;
use super::ready_query::ReadyQuery;
use super::scan::{First, RoundBudget, RowPosition, ScannedRow, Sort, SortedBytes};
use crate::error::{Result, StoreError};

/// Bounds the rounds over the range for one page: each collects what fits into its bytes, and long texts soon need too
/// many.
const ROUNDS_MAX: u32 = 16;

/// Progress towards a page.
pub(crate) struct SortedPage {
    first: First,
    /// Bytes that all sorts share.
    bytes: Arc<SortedBytes>,
    rounds: u32,
    /// True if other sorts left a round too little.
    was_refused: bool,
    /// Positions of the previous rounds.
    done: u64,
    seen: u64,
    /// Total that passes the filters; with filters the first round counts it.
    total: Option<u64>,
}

impl SortedPage {
    /// Creates a page that ends after this many positions, for which nothing was read.
    pub fn new(wanted: u64, total: Option<u64>, bytes: &Arc<SortedBytes>) -> Self {
        let first = First::new(wanted.min(SORTED_MAX) as usize, None, RoundBudget::new(bytes));
        Self { first, bytes: Arc::clone(bytes), rounds: 0, was_refused: false, done: 0, seen: 0, total }
    }

    /// Takes a value that passes the filters.
    pub fn take(&mut self, sort: &Sort, row: &ScannedRow<'_>) {
        self.seen += 1;
        self.first.offer(sort, sort.position(row));
    }

    /// Ends a round, in which all values of the range were taken, and adds the sequences that it found to the page.
    /// Returns the total that passes the filters when the page is complete, or `None` if it needs another round.
    pub fn end_round(&mut self, query: &ReadyQuery, sort: &Sort, page: &mut Vec<u64>) -> Result<Option<u64>> {
        let (offset, end) = (query.request.offset(), query.end_of_page());
        let total = *self.total.get_or_insert(self.seen);
        let positions = self.first.take_positions(sort);
        for position in &positions {
            if (offset..end).contains(&self.done) {
                page.push(position.sequence);
            }
            self.done += 1;
        }
        let after: Option<RowPosition<'static>> = positions.into_iter().next_back();
        if after.is_none() || self.done >= end.min(total) || offset >= total {
            return Ok(Some(total));
        }
        self.rounds += 1;
        self.was_refused |= self.first.budget.was_refused;
        if end > SORTED_MAX {
            return Err(StoreError::TooFar);
        }
        if self.rounds >= ROUNDS_MAX {
            // A round that got little because of others can come further later.
            return Err(if self.was_refused { StoreError::Busy } else { StoreError::TooFar });
        }
        self.first = First::new((end - self.done) as usize, after, RoundBudget::new(&self.bytes));
        Ok(None)
    }
}
