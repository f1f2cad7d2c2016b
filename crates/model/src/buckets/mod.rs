//! Buckets: aggregates of a series over equal intervals (contract: Beyond the specification).

mod grid;
mod tally;
mod width;
mod zone;

pub use grid::{Grid, Stretch};
pub use tally::{Function, Functions, Tally, Told};
pub use width::{NotAWidth, Span, Unit, Width};
pub use zone::{NoSuchZone, Zone};

/// Most buckets of an answer.
pub const BUCKETS_MAX: usize = 10_000;
