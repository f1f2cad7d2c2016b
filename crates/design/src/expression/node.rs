//! An expression, compiled: a tree whose names are resolved and whose constants are computed.

use isobar_model::json::Json;
use regex::Regex;

use super::functions::Function;
use super::operate::Operator;

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
    /// Members of what an event, the device or an enclosing macro offers.
    Path(Root, Vec<Box<str>>),
    Variable(Variable),
    /// A member of something computed.
    Field(Box<Node>, Box<str>),
    /// `has(operand.field)`.
    Has(Box<Node>, Box<str>),
    /// `has(last.element)`: whether anything was stored.
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
    /// What matching a byte of text costs: the larger the pattern, the more states it may keep for each.
    pub(crate) units_per_byte: usize,
}

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The incoming value.
    Payload,
    /// What the device sent.
    EventPayload,
    /// The metadata of the device.
    Meta,
    /// A setting, by its index in the plan.
    Setting(u32),
    /// The last values of a storage element, by its index in the plan.
    Last(u32),
    /// The variable of an enclosing macro, by its depth.
    Local(u32),
}

/// What is not JSON at rest, but put together when it is asked for.
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
    /// The condition of an item; none for a `map` without one.
    pub(crate) predicate: Option<Node>,
    /// What `map` makes of an item.
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
