//! `notification`: tells people something, in a text with expressions in it.

use std::sync::Arc;

use isobar_model::role::Role;

use super::{Ability, Element, Shape, properties::Properties};
use crate::Effect;
use crate::expression::{Computed, Expression, Names, Value, to_raw};
use crate::held_bytes::HeldBytes;
use crate::run::{Passed, Run};

pub(crate) const SHAPE: Shape = Shape {
    name: "notification",
    abilities: &[Ability { name: "notify", arguments: &[] }],
    triggers: &["sent"],
    read: Notification::read,
};

/// Longest message of a design, in characters.
const TEMPLATE_CHARS_MAX: usize = 10_000;
/// Most expressions in a message.
const EXPRESSIONS_MAX: usize = 100;
/// Ends that are tried for one expression: `}}` may also end two maps in it.
const ENDS_MAX: usize = 16;
/// Longest message that is sent, in characters; what is longer is cut.
const NOTIFICATION_CHARS_MAX: usize = 2_000;

/// A notification element.
#[derive(Debug)]
pub(crate) struct Notification {
    name: Arc<str>,
    message: Vec<MessagePart>,
    minimum_role: Role,
}

/// A piece of a message.
#[derive(Debug)]
enum MessagePart {
    Text(Box<str>),
    Computed(Expression),
}

impl HeldBytes for MessagePart {
    fn held_bytes(&self) -> usize {
        match self {
            MessagePart::Text(text) => text.held_bytes(),
            MessagePart::Computed(expression) => expression.held_bytes(),
        }
    }
}

impl HeldBytes for Notification {
    fn held_bytes(&self) -> usize {
        self.message.held_bytes()
    }
}

impl Notification {
    fn read(properties: &mut Properties<'_>) -> Element {
        let message = match properties.get("message").map(|message| message.as_text()) {
            Some(Some(message)) if !message.trim().is_empty() => read_message(message, properties.names),
            Some(_) => Err("must be a text that is not empty".to_owned()),
            None => Err("is required".to_owned()),
        };
        let message = message.unwrap_or_else(|fault| {
            properties.fault("message", fault);
            Vec::new()
        });
        let roles = Role::ALL.map(|role| (role.name(), role));
        let minimum_role = properties.word("minimumRole", &roles, Role::BasicUser);
        Element::Notification(Self { name: properties.name.clone(), message, minimum_role })
    }

    pub(crate) fn notify<'e>(&'e self, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        run.budget.may_send()?;
        let mut message = String::new();
        for part in &self.message {
            match part {
                MessagePart::Text(text) => add(text, &mut message, run)?,
                MessagePart::Computed(expression) => {
                    let value = run.compute(expression, incoming)?;
                    match value.as_text() {
                        Some(text) => add(shortened(text), &mut message, run)?,
                        None => add(shortened(to_raw(&value, &run.budget)?.text()), &mut message, run)?,
                    }
                }
            }
        }
        cut(&mut message);
        let minimum_role = self.minimum_role;
        run.budget.emit(Effect::Notify { element: self.name.clone(), message, minimum_role })?;
        Ok(Passed { trigger: 0, value: incoming.clone() })
    }
}

fn add(text: &str, message: &mut String, run: &Run<'_>) -> Computed<()> {
    run.budget.spend_bytes(text.len())?;
    message.push_str(text);
    Ok(())
}

/// As much of a text as may come to be read: one more character than is sent, so that it is seen that more is missing.
fn shortened(text: &str) -> &str {
    match text.char_indices().nth(NOTIFICATION_CHARS_MAX + 1) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// An alarm that is too long is better cut than lost.
fn cut(message: &mut String) {
    if let Some((at, _)) = message.char_indices().nth(NOTIFICATION_CHARS_MAX) {
        let last = message[..at].char_indices().next_back().map_or(0, |(at, _)| at);
        message.truncate(last);
        message.push('…');
    }
}

/// Reads a text with `{{ expression }}` in it.
fn read_message(message: &str, names: &Names) -> Result<Vec<MessagePart>, String> {
    if message.chars().count() > TEMPLATE_CHARS_MAX {
        return Err(format!("has at most {TEMPLATE_CHARS_MAX} characters"));
    }
    let mut parts = Vec::new();
    let mut rest = message;
    while let Some((text, after)) = rest.split_once("{{") {
        if parts.len() >= 2 * EXPRESSIONS_MAX {
            return Err(format!("has at most {EXPRESSIONS_MAX} expressions"));
        }
        let (expression, next) = read_expression(after, names)?;
        parts.push(MessagePart::Text(text.into()));
        parts.push(MessagePart::Computed(expression));
        rest = next;
    }
    parts.push(MessagePart::Text(rest.into()));
    Ok(parts)
}

/// The expression that a text begins with, and what comes after its `}}`.
fn read_expression<'m>(text: &'m str, names: &Names) -> Result<(Expression, &'m str), String> {
    let mut fault = None;
    for (end, _) in text.match_indices("}}").take(ENDS_MAX) {
        // In `{{ {'a': 1}}}` the first `}}` begins a brace too early.
        let end = if text[end..].starts_with("}}}") { end + 1 } else { end };
        match Expression::compile(text[..end].trim(), names) {
            Ok(expression) => return Ok((expression, &text[end + 2..])),
            Err(message) => fault = fault.or(Some(message)),
        }
    }
    Err(fault.unwrap_or_else(|| "an expression is not closed by '}}'".to_owned()))
}
