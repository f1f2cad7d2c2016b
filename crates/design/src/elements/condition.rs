//! `condition`: passes the incoming value on along `true` or `false`.

use super::context::{Passed, Run};
use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::Expression;
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

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
