//! `transform`: passes on the result of its expression.

use super::context::{Passed, Run};
use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::{Expression, finite};
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "transform",
    abilities: &[Ability { name: "evaluate", arguments: &[] }],
    triggers: &["result"],
    read: Transform::read,
};

/// A transform element.
#[derive(Debug)]
pub(crate) struct Transform {
    expression: Expression,
}

impl HeldBytes for Transform {
    fn held_bytes(&self) -> usize {
        self.expression.held_bytes()
    }
}

impl Transform {
    fn read(properties: &mut Properties<'_>) -> Element {
        Element::Transform(Self { expression: properties.required_expression("expression") })
    }

    pub(crate) fn evaluate<'e>(&'e self, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let value = run.compute(&self.expression, incoming)?;
        finite(&value)?;
        Ok(Passed { trigger: 0, value })
    }
}
