//! `changed`: tells whether a key differs from the one before; the first is a change (contract: The project design).

use isobar_model::json::{RawJson, equal};

use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::{Computed, Expression, Value};
use crate::plan::Link;
use crate::run::{Passed, Run};

pub(crate) const SHAPE: Shape = Shape {
    name: "changed",
    abilities: &[Ability { name: "evaluate", arguments: &[] }],
    triggers: &["changed", "unchanged"],
    read: Changed::read,
};

/// A changed element. Its state is the JSON of the newest key.
#[derive(Debug)]
pub(crate) struct Changed {
    key: Expression,
}

impl Changed {
    fn read(properties: &mut Properties<'_>) -> Element {
        Element::Changed(Self { key: properties.expression("expression").unwrap_or_else(Expression::payload) })
    }

    pub(crate) fn evaluate<'e>(
        &'e self,
        link: &'e Link,
        incoming: &Value<'e>,
        run: &mut Run<'e>,
    ) -> Computed<Passed<'e>> {
        let key = run.compute(&self.key, incoming)?;
        let key = run.json(&key)?;
        let before = run.state(link.target).map(RawJson::trusted);
        let same = before.is_some_and(|before| before.bytes() == key.bytes() || equal(&before.tree(), &key.tree()));
        if !same {
            run.remember(link.target, key.shared());
        }
        Ok(Passed { trigger: usize::from(same), value: incoming.clone() })
    }
}
