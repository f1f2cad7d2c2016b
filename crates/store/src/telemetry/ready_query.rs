//! Prepares queries of stored values: what each adapter looks for, and in which order.

use std::ops::Range;

use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;

use super::scan::{ScannedRow, Sort, Test};
use super::time_order::{TimeOrder, order_at};
use super::{Filter, FilterField, Operand, Operator, SORTED_MAX, ValueQuery, ValueSort};
use crate::error::{Result, StoreError};

/// Query prepared for a series.
pub(crate) struct ReadyQuery {
    pub request: PageRequest,
    /// Range of positions in time.
    pub range: Range<TimeOrder>,
    tests: Vec<Test>,
    /// Retention of the series.
    pub kept: Kept,
    pub listing: ValueOrder,
}

/// Order of a page.
pub(crate) enum ValueOrder {
    InTime { newest_first: bool },
    Sorted(Sort),
}

impl ReadyQuery {
    /// Prepares a read of all values of a range that pass filters, oldest first.
    pub fn of_all(range: TimeRange, filters: Vec<Filter>, kept: Kept) -> Self {
        let oldest_first = vec![ValueSort { field: FilterField::CreatedAt, descending: false }];
        Self::of(ValueQuery { range, filters, sort: oldest_first, page: PageRequest::default(), kept })
    }

    /// Prepares a query.
    pub fn of(query: ValueQuery) -> Self {
        let mut range = orders(query.range);
        let listing = ValueOrder::of(&query);
        let mut tests = Vec::new();
        for filter in query.filters {
            match moments(&filter) {
                Some(narrower) => {
                    range.start = range.start.max(narrower.start);
                    range.end = range.end.min(narrower.end);
                }
                None => tests.push(Test::of(filter)),
            }
        }
        Self { request: query.page, range, tests, kept: query.kept, listing }
    }

    /// Returns true if the newest come first, or `None` if a payload decides.
    pub fn newest_first(&self) -> Option<bool> {
        match self.listing {
            ValueOrder::InTime { newest_first } => Some(newest_first),
            ValueOrder::Sorted(_) => None,
        }
    }

    /// Returns true if every value of the range must be read.
    pub fn scans(&self) -> bool {
        !self.tests.is_empty() || matches!(self.listing, ValueOrder::Sorted(_))
    }

    /// Returns true if all values of the range pass.
    pub fn takes_all(&self) -> bool {
        self.tests.is_empty()
    }

    /// Returns the number of positions up to the end of the page.
    pub fn end_of_page(&self) -> u64 {
        self.request.offset().saturating_add(u64::from(self.request.limit))
    }

    /// Returns true if a page of an order by payload has values; if the total is known, nothing is read to decide.
    ///
    /// # Errors
    /// [`StoreError::TooFar`] if it has values, and no order reaches them.
    pub fn reaches(&self, total: Option<u64>) -> Result<bool> {
        match total {
            Some(total) if self.request.offset() >= total => Ok(false),
            Some(total) if self.end_of_page().min(total) > SORTED_MAX => Err(StoreError::TooFar),
            _ => Ok(true),
        }
    }

    /// Returns true if a value passes the filters.
    pub fn holds(&self, row: &ScannedRow<'_>) -> bool {
        self.tests.iter().all(|test| test.holds(row))
    }
}

impl ValueOrder {
    fn of(query: &ValueQuery) -> Self {
        match query.newest_first() {
            Some(newest_first) => ValueOrder::InTime { newest_first },
            None => ValueOrder::Sorted(Sort::of(query.sort.clone())),
        }
    }
}

/// Converts a range of time to positions in time.
pub(crate) fn orders(range: TimeRange) -> Range<TimeOrder> {
    range.from.map_or(0, order_at)..range.to.map_or(TimeOrder::MAX, order_at)
}

/// Returns the range for a filter on `createdAt`, if it is one.
fn moments(filter: &Filter) -> Option<Range<TimeOrder>> {
    let (FilterField::CreatedAt, [Operand::Time(moment)]) = (&filter.field, filter.operands.as_slice()) else {
        return None;
    };
    let next = Timestamp::from_millis(moment.millis().saturating_add(1));
    let (at, behind) = (order_at(*moment), order_at(next));
    // No value was stored before 1970.
    let before_all = moment.millis() < 0;
    match filter.operator {
        Operator::Eq | Operator::In if before_all => Some(0..0),
        Operator::Eq | Operator::In => Some(at..behind),
        Operator::Lt => Some(0..at),
        Operator::Lte if before_all => Some(0..0),
        Operator::Lte => Some(0..behind),
        Operator::Gt if before_all => Some(0..TimeOrder::MAX),
        Operator::Gt => Some(behind..TimeOrder::MAX),
        Operator::Gte => Some(at..TimeOrder::MAX),
        Operator::Ne | Operator::Nin => None,
    }
}

/// Returns the sequences of a page among dense ones.
pub(crate) fn slice(within: Range<u64>, request: PageRequest, newest_first: bool) -> Range<u64> {
    let skipped = request.offset().min(within.end - within.start);
    if newest_first {
        let end = within.end - skipped;
        within.start.max(end.saturating_sub(u64::from(request.limit)))..end
    } else {
        let start = within.start + skipped;
        start..within.end.min(start.saturating_add(u64::from(request.limit)))
    }
}
