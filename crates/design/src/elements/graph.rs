//! The elements of a design, with their links.

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::json::{Json, RawJson};

use super::{Element, Shape};
use crate::expression::Expression;
use crate::value::held_bytes::{BLOCK_BYTES, HeldBytes};

/// Most elements of a cloud plane.
pub(crate) const ELEMENTS_MAX: usize = 1_000;

/// The elements of a cloud plane.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) elements: Vec<Installed>,
    /// Index of each element by name: ordered, because clients choose the names.
    pub(crate) by_name: BTreeMap<Arc<str>, u32>,
    /// Indexes of the alarm elements.
    pub(crate) alarms: Box<[u32]>,
}

impl Graph {
    /// Returns the index of an element.
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Returns an element by name.
    pub(crate) fn element(&self, name: &str) -> Option<&Installed> {
        self.index(name).and_then(|at| self.elements.get(at as usize))
    }
}

/// An element with its links.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) name: Arc<str>,
    pub(crate) shape: &'static Shape,
    pub(crate) element: Element,
    /// Links by trigger, in the order of the element type's triggers.
    pub(crate) triggers: Vec<Vec<Link>>,
    /// Most steps of a run that begins here.
    pub(crate) steps: u64,
}

/// A link to an ability of another element.
#[derive(Debug)]
pub(crate) struct Link {
    /// Index of the element in the plan.
    pub(crate) target: u32,
    /// Index of the ability among those of the element type.
    pub(crate) ability: usize,
    /// Arguments of the ability, one for each.
    pub(crate) arguments: Vec<Argument>,
}

/// Argument of an ability.
#[derive(Debug)]
pub(crate) enum Argument {
    /// The incoming value.
    Incoming,
    /// A constant JSON value: its tree and its text.
    Constant(Json<'static>, RawJson),
    /// The result of an expression.
    Computed(Expression),
}

impl HeldBytes for Graph {
    fn held_bytes(&self) -> usize {
        // A node of the map is at least half full.
        let by_name = 2 * self.by_name.len() * (size_of::<Arc<str>>() + size_of::<u64>() + BLOCK_BYTES);
        self.elements.held_bytes() + by_name
    }
}

impl HeldBytes for Argument {
    fn held_bytes(&self) -> usize {
        match self {
            Argument::Incoming => 0,
            Argument::Constant(tree, text) => tree.held_bytes() + text.held_bytes(),
            Argument::Computed(expression) => expression.held_bytes(),
        }
    }
}

impl HeldBytes for Link {
    fn held_bytes(&self) -> usize {
        self.arguments.held_bytes()
    }
}

impl HeldBytes for Installed {
    fn held_bytes(&self) -> usize {
        self.name.held_bytes() + self.element.held_bytes() + self.triggers.held_bytes()
    }
}
