//! `condition`: passes the incoming value on along `true` or `false`.

use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::{Computed, Expression, Value};
use crate::held_bytes::HeldBytes;
use crate::run::{Passed, Run};

pub(crate) const SHAPE: Shape = Shape {
    name: "condition",
    abilities: &[Ability { name: "evaluate", arguments: &[] }],
    triggers: &["true", "false"],
    read: Condition::read,
};

/// A condition element.
#[derive(Debug)]
pub(crate) struct Condition {
    expression: Expression,
}

impl HeldBytes for Condition {
    fn held_bytes(&self) -> usize {
        self.expression.held_bytes()
    }
}

impl Condition {
    fn read(properties: &mut Properties<'_>) -> Element {
        Element::Condition(Self { expression: properties.required_expression("expression") })
    }

    pub(crate) fn evaluate<'e>(&'e self, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let holds = run.holds(&self.expression, incoming)?;
        Ok(Passed { trigger: usize::from(!holds), value: incoming.clone() })
    }
}
