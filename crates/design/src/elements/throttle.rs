//! `throttle`: passes a value on, and then none for some minutes (contract: The project design).

use bytes::Bytes;

use super::context::{Passed, Run};
use super::graph::Link;
use super::{Ability, Element, Shape, properties::Properties};
use crate::value::{Computed, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "throttle",
    abilities: &[Ability { name: "pass", arguments: &[] }],
    triggers: &["passed", "dropped"],
    read: Throttle::read,
};

/// A throttle element. Its state is the time at which it last passed a value on: milliseconds, 8 bytes, little endian.
#[derive(Debug)]
pub(crate) struct Throttle {
    millis: i64,
}

impl Throttle {
    fn read(properties: &mut Properties<'_>) -> Element {
        Element::Throttle(Self { millis: properties.required_span("minutes") })
    }

    pub(crate) fn pass<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let now = run.now().millis();
        let before = run.state(link.target).and_then(|state| Some(i64::from_le_bytes(state.as_ref().try_into().ok()?)));
        // A time in the future counts as elapsed: the clock was set back.
        let dropped = before.is_some_and(|before| (0..self.millis).contains(&now.saturating_sub(before)));
        if !dropped {
            run.remember(link.target, Bytes::copy_from_slice(&now.to_le_bytes()))?;
        }
        Ok(Passed { trigger: usize::from(dropped), value: incoming.clone() })
    }
}
