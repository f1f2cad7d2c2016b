//! A compiled expression: a tree with resolved names and computed constants.

use isobar_model::json::Json;
use regex::Regex;

use super::functions::Function;
use super::operate::Operator;
use crate::value::held_bytes::{HeldBytes, block};

/// A node of a compiled expression.
#[derive(Debug)]
pub(crate) enum Node {
    /// A constant other than the ones below.
    Json(Json<'static>),
    Int(i64),
    Double(f64),
    /// Milliseconds since the epoch.
    Time(i64),
    /// Milliseconds.
    Duration(i64),
    Type(&'static str),
    /// Members of an event, the device or a variable of an enclosing macro.
    Path(Root, Vec<Box<str>>),
    Variable(Variable),
    /// A member of a computed value.
    Field(Box<Node>, Box<str>),
    /// `has(operand.field)`.
    Has(Box<Node>, Box<str>),
    /// `has(last.element)`: true if anything was stored.
    HasLast(u32),
    Index(Box<(Node, Node)>),
    Operator(Operator, Box<(Node, Node)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    If(Box<[Node; 3]>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Fold(Box<Fold>),
    Call(Function, Vec<Node>),
    Matches(Box<Node>, Box<Pattern>),
}

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    /// Most bytes that it may take compiled: one of a few size classes.
    pub(crate) size: usize,
    /// Units of matching one byte of a text: a larger pattern may track more states for each.
    pub(crate) units_per_byte: usize,
}

/// Bytes of a regular expression in addition to its size, for prefilters; and factor of its size: it is compiled
/// forwards and backwards, and has a cache of states.
const PATTERN_BYTES: usize = 144 << 10;
const PATTERN_SIZES: usize = 3;

impl Pattern {
    /// Returns the memory in bytes of a regular expression of this size class.
    pub(crate) const fn bytes_of(size: usize) -> usize {
        PATTERN_BYTES + PATTERN_SIZES * size
    }
}

impl HeldBytes for Pattern {
    fn held_bytes(&self) -> usize {
        Self::bytes_of(self.size)
    }
}

impl HeldBytes for Fold {
    fn held_bytes(&self) -> usize {
        self.range.held_bytes() + self.predicate.held_bytes() + self.transform.held_bytes()
    }
}

impl HeldBytes for Node {
    fn held_bytes(&self) -> usize {
        match self {
            Node::Int(_)
            | Node::Double(_)
            | Node::Time(_)
            | Node::Duration(_)
            | Node::Type(_)
            | Node::Variable(_)
            | Node::HasLast(_) => 0,
            Node::Json(json) => json.held_bytes(),
            Node::Path(_, keys) => keys.held_bytes(),
            Node::Field(operand, name) | Node::Has(operand, name) => operand.held_bytes() + name.held_bytes(),
            Node::Index(sides) | Node::Operator(_, sides) => sides.held_bytes(),
            Node::Not(operand) | Node::Negate(operand) => operand.held_bytes(),
            Node::And(items) | Node::Or(items) | Node::List(items) | Node::Call(_, items) => items.held_bytes(),
            Node::If(parts) => block(size_of_val(parts.as_ref())) + parts.as_slice().held_bytes(),
            Node::Map(entries) => entries.held_bytes(),
            Node::Fold(fold) => fold.held_bytes(),
            Node::Matches(text, pattern) => text.held_bytes() + pattern.held_bytes(),
        }
    }
}

/// Root of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The incoming value.
    Payload,
    /// Payload of the event.
    EventPayload,
    /// Metadata of the device.
    Meta,
    /// A setting, by its index in the plan.
    Setting(u32),
    /// Last values of a storage element, by its index in the plan.
    Last(u32),
    /// Variable of an enclosing macro, by its depth.
    Local(u32),
}

/// A variable that is not stored JSON, but built when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Event,
    EventId,
    EventElement,
    EventReceivedAt,
    Device,
    DeviceId,
    DeviceName,
    DeviceOrganization,
    DeviceStatus,
    Settings,
    Last,
}

/// A macro over the items of a list or the keys of a map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Node,
    /// Condition on an item; `None` for a `map` without one.
    pub(crate) predicate: Option<Node>,
    /// Expression by which `map` transforms an item.
    pub(crate) transform: Option<Node>,
}

/// The macros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}
