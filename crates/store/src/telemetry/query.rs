//! What a list of stored values is asked for (specification: Data and last values; contract: Data).

use isobar_model::event::StoredValue;
use isobar_model::json::{self, Json};
use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::retention::Kept;

/// So many values an order by payload reaches: a page that ends behind them is refused, unless there are no more values.
pub const SORTED_MAX: u64 = 100_000;

/// Bytes that the rows of one page take at most: as many as ten thousand rows of six kilobytes.
pub const PAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes that the rows of one page of a queue take at most.
pub const QUEUE_PAGE_BYTES_MAX: usize = 16 << 20;

/// A query over one series.
#[derive(Clone, Debug, Default)]
pub struct ValueQuery {
    /// Which page.
    pub page: PageRequest,
    /// Inclusive start and exclusive end of `createdAt`.
    pub range: TimeRange,
    /// The order; empty: newest first. Ties are broken by id, so pages never overlap.
    pub sort: Vec<ValueSort>,
    /// All must hold.
    pub filters: Vec<Filter>,
    /// What is shown of the series at all.
    pub kept: Kept,
}

impl ValueQuery {
    /// Whether it asks for an order of time, and if so whether the newest come first; none: it takes a payload to decide.
    pub fn newest_first(&self) -> Option<bool> {
        let by_time = |key: &ValueSort| !matches!(key.field, FilterField::Payload(_));
        let Some(first) = self.sort.first() else { return Some(true) };
        // An id decides for good; a moment does when ids go the same way behind it, or nothing does.
        let decides = by_time(first)
            && (first.field == FilterField::Id
                || self.sort.get(1).is_none_or(|next| by_time(next) && next.descending == first.descending));
        decides.then_some(first.descending)
    }
}

/// Where a series is read on; only the store that made it knows what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueCursor {
    pub(crate) series: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A piece of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueChunk {
    /// The values of this piece that pass the filters; there may be none, and more behind them.
    pub values: Vec<StoredValue>,
    /// Where to go on; none: it was the last piece.
    pub next: Option<ValueCursor>,
}

/// What a filter or an order looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterField {
    /// The value's id.
    Id,
    /// When it was stored.
    CreatedAt,
    /// What lies at a path of keys beneath the payload; an empty path is the payload.
    Payload(Vec<String>),
}

/// One key of an order of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSort {
    /// What to sort by.
    pub field: FilterField,
    /// Largest first.
    pub descending: bool,
}

/// How a filter compares.
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

/// One filter: `filter[<field>][<operator>]=<value>`; of stored values unless it says of what else.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter<F = FilterField> {
    /// What it looks at.
    pub field: F,
    /// How it compares.
    pub operator: Operator,
    /// What with: one operand, or several for `in` and `nin`.
    pub operands: Vec<Operand>,
}

/// An operand, read as the contract says: JSON if it is a number, a boolean or null, else text; `createdAt` takes a time.
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
    /// Reads JSON if it is a number, a boolean or null, and else a text.
    pub fn of_text(text: &str) -> Self {
        match json::parse(text) {
            Ok(Json::Null) => Self::Null,
            Ok(Json::Bool(value)) => Self::Bool(value),
            Ok(Json::Number(number)) => Self::Number(number.text().to_owned()),
            Ok(Json::Text(_) | Json::Array(_) | Json::Object(_)) | Err(_) => Self::Text(text.to_owned()),
        }
    }
}
