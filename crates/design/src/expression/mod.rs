//! Expressions in CEL (contract: The project design), compiled to a tree of their own and evaluated over borrowed JSON.
//!
//! The `cel` crate parses them; its interpreter is not used, as it copies the payload and does not mix integers and
//! doubles.

mod compile;
mod functions;
mod labels;
mod machine;
mod node;
mod operate;
mod parse;
mod text;
mod time;
mod world;
mod write;

#[cfg(test)]
pub(crate) mod official;
#[cfg(test)]
mod tests;

pub(crate) use compile::Names;
pub(crate) use machine::Machine;
pub(crate) use operate::equal;
pub(crate) use parse::on_a_large_stack;
pub(crate) use world::{Changes, Declarations, LastTexts, SettingsSize, World};
pub(crate) use write::{finite, to_raw};

use isobar_model::json::Json;
use node::{Node, Root};

use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression(Node);

impl HeldBytes for Expression {
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

impl Expression {
    /// Compiles a text; the error says what is wrong with it.
    pub(crate) fn compile(source: &str, names: &Names) -> Result<Self, String> {
        compile::compile(&parse::parse(source)?, names).map(Self)
    }

    /// Returns the expression of the incoming value.
    pub(crate) fn payload() -> Self {
        Self(Node::Path(Root::Payload, Vec::new()))
    }

    /// Returns the value that the expression names, if it does nothing else: a path beneath the incoming value, the event's
    /// payload, or the last values of a storage element, given by its index in the plan.
    pub(crate) fn named_value(&self) -> Option<(Option<u32>, Vec<String>)> {
        named_value(&self.0)
    }

    /// Evaluates the expression.
    pub(crate) fn value<'e>(&'e self, machine: &mut Machine<'_, 'e>) -> Computed<Value<'e>> {
        machine.value(&self.0)
    }

    /// Evaluates the expression, which must be a boolean.
    pub(crate) fn truth<'e>(&'e self, machine: &mut Machine<'_, 'e>) -> Computed<bool> {
        machine.truth(&self.0)
    }
}

fn named_value(node: &Node) -> Option<(Option<u32>, Vec<String>)> {
    match node {
        Node::Path(Root::Payload | Root::EventPayload, keys) => {
            Some((None, keys.iter().map(ToString::to_string).collect()))
        }
        Node::Path(Root::Last(storage), keys) => Some((Some(*storage), keys.iter().map(ToString::to_string).collect())),
        Node::Field(inner, key) => {
            let (storage, mut keys) = named_value(inner)?;
            keys.push(key.to_string());
            Some((storage, keys))
        }
        Node::Index(parts) => {
            let Node::Json(Json::Text(key)) = &parts.1 else { return None };
            let (storage, mut keys) = named_value(&parts.0)?;
            keys.push(key.to_string());
            Some((storage, keys))
        }
        _ => None,
    }
}
