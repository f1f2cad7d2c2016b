//! Describes queries for stored values (specification: Data and last values; contract: Data).

use isobar_model::event::StoredValue;
use isobar_model::json::{self, Json};
use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::retention::Kept;

/// Bounds the values that an order by payload reaches: a page that ends behind them is refused, unless there are no
/// more values.
pub const SORTED_MAX: u64 = 100_000;

/// Bounds the bytes of the rows of one page: as many as ten thousand rows of six kilobytes.
pub const PAGE_BYTES_MAX: usize = 64 << 20;

/// Bounds the bytes of the rows of one page of a queue.
pub const QUEUE_PAGE_BYTES_MAX: usize = 16 << 20;

/// Query over one series.
#[derive(Clone, Debug, Default)]
pub struct ValueQuery {
    /// Page to return.
    pub page: PageRequest,
    /// Inclusive start and exclusive end of `createdAt`.
    pub range: TimeRange,
    /// Order; empty means newest first. Ties are broken by id, so pages never overlap.
    pub sort: Vec<ValueSort>,
    /// Filters, all of which a value must pass.
    pub filters: Vec<Filter>,
    /// Retention of the series.
    pub kept: Kept,
}

impl ValueQuery {
    /// Returns true if the order is by time with the newest first, false with the oldest first, or `None` if payloads
    /// decide.
    pub fn newest_first(&self) -> Option<bool> {
        let by_time = |key: &ValueSort| !matches!(key.field, FilterField::Payload(_));
        let Some(first) = self.sort.first() else { return Some(true) };
        // An id decides the order alone; a moment does if nothing follows it, or an id or moment in the same direction.
        let decides = by_time(first)
            && (first.field == FilterField::Id
                || self.sort.get(1).is_none_or(|next| by_time(next) && next.descending == first.descending));
        decides.then_some(first.descending)
    }
}

/// Cursor at which the read of a series continues, opaque to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueCursor {
    pub(crate) series: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Chunk of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueChunk {
    /// Values of this chunk that pass the filters; it may be empty, with more behind it.
    pub values: Vec<StoredValue>,
    /// Cursor of the next chunk, or `None` after the last one.
    pub next: Option<ValueCursor>,
}

/// Field that a filter or an order compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterField {
    /// Id of the value.
    Id,
    /// Moment at which it was stored.
    CreatedAt,
    /// Value at a path of keys in the payload; an empty path is the payload itself.
    Payload(Vec<String>),
}

/// Key of an order of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSort {
    /// Field to sort by.
    pub field: FilterField,
    /// True for largest first.
    pub descending: bool,
}

/// Comparison of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Equal.
    Eq,
    /// Not equal, or missing.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// Greater.
    Gt,
    /// Greater or equal.
    Gte,
    /// Equal to one of the operands.
    In,
    /// Equal to none of the operands, or missing.
    Nin,
}

/// Filter: `filter[<field>][<operator>]=<value>`; of stored values unless the type names another field.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter<F = FilterField> {
    /// Field to compare.
    pub field: F,
    /// Comparison.
    pub operator: Operator,
    /// Operands: one, or several for `in` and `nin`.
    pub operands: Vec<Operand>,
}

/// Operand, parsed as the contract says: JSON if it is a number, a boolean or null, else text; `createdAt` takes a
/// time.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number, as it was written.
    Number(String),
    /// Any other text.
    Text(String),
    /// A time, for `createdAt`.
    Time(isobar_model::time::Timestamp),
}

impl Operand {
    /// Parses JSON if it is a number, a boolean or null, and else a text.
    pub fn of_text(text: &str) -> Self {
        match json::parse(text) {
            Ok(Json::Null) => Self::Null,
            Ok(Json::Bool(value)) => Self::Bool(value),
            Ok(Json::Number(number)) => Self::Number(number.text().to_owned()),
            Ok(Json::Text(_) | Json::Array(_) | Json::Object(_)) | Err(_) => Self::Text(text.to_owned()),
        }
    }
}
