//! `notification`: notifies users with a text that may contain expressions.

use std::sync::Arc;

use isobar_model::role::Role;

use super::context::{Passed, Run};
use super::template::Template;
use super::{Ability, Element, Shape, properties::Properties};
use crate::value::effect::Effect;
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "notification",
    abilities: &[Ability { name: "notify", arguments: &[] }],
    triggers: &["sent"],
    read: Notification::read,
};

/// Longest message, in characters; longer ones are cut.
const NOTIFICATION_CHARS_MAX: usize = 2_000;

/// A notification element.
#[derive(Debug)]
pub(crate) struct Notification {
    name: Arc<str>,
    message: Template,
    minimum_role: Role,
}

impl HeldBytes for Notification {
    fn held_bytes(&self) -> usize {
        self.message.held_bytes()
    }
}

impl Notification {
    fn read(properties: &mut Properties<'_>) -> Element {
        let message = Template::required(properties, "message");
        let minimum_role = minimum_role(properties);
        Element::Notification(Self { name: properties.name.clone(), message, minimum_role })
    }

    pub(crate) fn notify<'e>(&'e self, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        run.budget.may_send()?;
        let message = self.message.fill(&self.name, incoming, run, NOTIFICATION_CHARS_MAX);
        let minimum_role = self.minimum_role;
        run.budget.emit(Effect::Notify { element: self.name.clone(), message, minimum_role, alarm: None })?;
        Ok(Passed { trigger: 0, value: incoming.clone() })
    }
}

/// Reads the lowest role that is notified.
pub(super) fn minimum_role(properties: &mut Properties<'_>) -> Role {
    let roles = Role::ALL.map(|role| (role.name(), role));
    properties.word("minimumRole", &roles, Role::BasicUser)
}
