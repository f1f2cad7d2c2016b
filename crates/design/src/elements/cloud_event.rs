//! `cloudEvent`: queues events for the device.

use std::sync::Arc;

use super::context::{Passed, Run};
use super::graph::Link;
use super::{Ability, Element, Shape, properties::Properties};
use crate::value::effect::Effect;
use crate::value::{Computed, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "cloudEvent",
    abilities: &[Ability { name: "send", arguments: &["value"] }],
    triggers: &["sent"],
    read: CloudEvent::read,
};

/// A cloudEvent element.
#[derive(Debug)]
pub(crate) struct CloudEvent {
    name: Arc<str>,
    ttl_minutes: Option<u32>,
}

impl CloudEvent {
    fn read(properties: &mut Properties<'_>) -> Element {
        let ttl_minutes = properties.minutes("ttlMinutes", u32::MAX);
        Element::CloudEvent(Self { name: properties.name.clone(), ttl_minutes })
    }

    pub(crate) fn send<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let (value, payload) = run.json_argument(link, 0, incoming)?;
        run.budget.emit(Effect::Send { element: self.name.clone(), payload, ttl_minutes: self.ttl_minutes })?;
        Ok(Passed { trigger: 0, value })
    }
}
