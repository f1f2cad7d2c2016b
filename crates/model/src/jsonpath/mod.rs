//! JSONPath (RFC 9535) over [`Json`]: parsed in linear time, evaluated within a budget.
//!
//! A parser of our own, because published ones evaluate over trees that round numbers, and bound neither the work of a
//! path like `$..*..*..*` nor that of parsing. Clients send both paths and documents: both are hostile.

mod evaluate;
mod filter;
mod parse;
mod regexp;
#[cfg(any(test, fuzzing))]
mod write;

use crate::json::Json;
use regexp::Pattern;

/// Longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 2_048;
/// Deepest nesting of brackets, parentheses and function calls in a path.
pub const PATH_DEPTH_MAX: usize = 32;
/// Most nodes that an evaluation holds at a time.
pub const NODES_MAX: usize = 1_000_000;

/// The reason why a text is not a JSONPath.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct PathFault {
    /// The fault, in words.
    pub what: String,
    /// Its position, in bytes from the start.
    pub at: usize,
}

/// The error of an exhausted budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes too much work over this document")]
pub struct Exhausted;

/// A budget of work for paths: about one step for each visited node.
#[derive(Clone, Debug)]
pub struct Steps {
    left: u64,
}

impl Steps {
    /// Makes a budget.
    pub fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Takes steps from the budget, or fails if there are not enough.
    pub fn take(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(steps as u64).ok_or(Exhausted)?;
        Ok(())
    }
}

/// A checked path: well-formed and well-typed.
#[derive(Debug)]
pub struct JsonPath {
    segments: Vec<Segment>,
}

impl JsonPath {
    /// Parses a whole path, beginning with `$`.
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        parse::path(text).map(|segments| Self { segments })
    }

    /// Returns the nodes that the path selects, in the order of RFC 9535; a node may occur more than once.
    pub fn find<'v>(&self, root: &'v Json<'v>, steps: &mut Steps) -> Result<Vec<&'v Json<'v>>, Exhausted> {
        evaluate::Evaluation { root, steps }.nodes(&self.segments, root)
    }
}

/// A segment of a path, applied to each node of the one before.
#[derive(Debug)]
struct Segment {
    /// True if it applies to all descendants, too.
    descendant: bool,
    selectors: Vec<Selector>,
}

#[derive(Debug)]
enum Selector {
    Name(String),
    Wildcard,
    Index(i64),
    Slice { start: Option<i64>, end: Option<i64>, step: i64 },
    Filter(Logical),
}

impl Segment {
    /// Returns true if it selects one node at most.
    fn is_singular(&self) -> bool {
        !self.descendant && matches!(self.selectors[..], [Selector::Name(_) | Selector::Index(_)])
    }
}

/// A filter expression.
#[derive(Debug)]
enum Logical {
    Any(Vec<Logical>),
    All(Vec<Logical>),
    Not(Box<Logical>),
    /// The query selects a node.
    Exists(Query),
    Compared(Comparable, Comparison, Comparable),
    /// A text matches a pattern, as a whole or in part.
    Matches(Comparable, Pattern),
}

/// A query within a filter.
#[derive(Debug)]
struct Query {
    /// True if it starts at the document's root instead of the current node.
    absolute: bool,
    segments: Vec<Segment>,
}

impl Query {
    fn is_singular(&self) -> bool {
        self.segments.iter().all(Segment::is_singular)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operand of a comparison, with a value or nothing.
#[derive(Debug)]
enum Comparable {
    Literal(Json<'static>),
    /// A query that selects one node at most.
    Query(Query),
    Length(Box<Comparable>),
    Count(Query),
    Value(Query),
}

#[cfg(test)]
mod tests;
