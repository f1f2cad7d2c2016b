//! JSONPath (RFC 9535) over [`Json`]: parsed in linear time, evaluated within a budget.
//!
//! Ours, because what is published evaluates over trees that round numbers, and bounds neither the work of a path
//! like `$..*..*..*` nor that of its parser. Paths come from clients and so do the documents: both are hostile.

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
/// Most nodes that a path may have in hand at a time.
pub const NODES_MAX: usize = 1_000_000;

/// Why a text is no JSONPath.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct PathFault {
    /// What is wrong.
    pub what: String,
    /// Where, in bytes from the start.
    pub at: usize,
}

/// The budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes too much work over this document")]
pub struct Exhausted;

/// The work that paths may still do: about one for each node that is looked at.
#[derive(Clone, Debug)]
pub struct Steps {
    left: u64,
}

impl Steps {
    /// A budget of so many steps.
    pub fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Takes from the budget.
    pub fn take(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(steps as u64).ok_or(Exhausted)?;
        Ok(())
    }
}

/// A path that was checked: well-formed and well-typed.
#[derive(Debug)]
pub struct JsonPath {
    segments: Vec<Segment>,
}

impl JsonPath {
    /// Reads a path, from `$` to its end.
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        parse::path(text).map(|segments| Self { segments })
    }

    /// What the path finds in a document, in the order of RFC 9535; a node may come more than once.
    pub fn find<'v>(&self, root: &'v Json<'v>, steps: &mut Steps) -> Result<Vec<&'v Json<'v>>, Exhausted> {
        evaluate::Evaluation { root, steps }.nodes(&self.segments, root)
    }
}

/// One step of a path: applied to each node that the step before has found.
#[derive(Debug)]
struct Segment {
    /// To the node and everything beneath it, rather than to the node alone.
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
    /// Whether it finds one node at most.
    fn is_singular(&self) -> bool {
        !self.descendant && matches!(self.selectors[..], [Selector::Name(_) | Selector::Index(_)])
    }
}

/// What a filter asks of a node.
#[derive(Debug)]
enum Logical {
    Any(Vec<Logical>),
    All(Vec<Logical>),
    Not(Box<Logical>),
    /// The query finds something.
    Exists(Query),
    Compared(Comparable, Comparison, Comparable),
    /// A text matches a pattern, as a whole or somewhere.
    Matches(Comparable, Pattern),
}

/// A query within a filter.
#[derive(Debug)]
struct Query {
    /// From the document's root, rather than from the node at hand.
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

/// What has a value, or nothing for one.
#[derive(Debug)]
enum Comparable {
    Literal(Json<'static>),
    /// A query that finds one node at most.
    Query(Query),
    Length(Box<Comparable>),
    Count(Query),
    Value(Query),
}

#[cfg(test)]
mod tests;
