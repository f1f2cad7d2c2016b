//! Texts with `{{ expression }}` placeholders.

use std::sync::Arc;

use super::context::Run;
use super::meaning::{Meaning, Meanings};
use super::properties::{Properties, Scope};
use crate::expression::{Expression, Names, to_raw};
use crate::value::held_bytes::{HeldBytes, block};
use crate::value::{Computed, Num, Value};

/// Longest template, in characters.
const TEMPLATE_CHARS_MAX: usize = 10_000;
/// Most expressions in a template.
const EXPRESSIONS_MAX: usize = 100;
/// Ends that are tried for one expression: `}}` may also close two nested maps.
const ENDS_MAX: usize = 16;

/// A text with placeholders.
#[derive(Debug, Default)]
pub(crate) struct Template(Vec<TemplatePart>);

/// A part of a template.
#[derive(Debug)]
enum TemplatePart {
    Text(Box<str>),
    Computed(Quote),
}

/// A placeholder: a value to quote.
#[derive(Debug)]
struct Quote {
    expression: Expression,
    /// Description of the key that it names.
    meaning: Option<Arc<Meaning>>,
    /// True if it is alone in its line and so begins with the key's title.
    has_title: bool,
    /// True unless the text itself contains the unit.
    has_unit: bool,
}

impl HeldBytes for TemplatePart {
    fn held_bytes(&self) -> usize {
        match self {
            TemplatePart::Text(text) => text.held_bytes(),
            TemplatePart::Computed(quote) => {
                quote.expression.held_bytes()
                    + quote.meaning.as_ref().map_or(0, |meaning| block(size_of::<Meaning>()) + meaning.held_bytes())
            }
        }
    }
}

impl HeldBytes for Template {
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

impl Template {
    /// Reads a required property; after a fault, returns an empty template.
    pub(crate) fn required(properties: &mut Properties<'_>, property: &str) -> Self {
        let parts = match properties.get(property).map(|text| text.as_text()) {
            Some(Some(text)) if !text.trim().is_empty() => read_parts(text, properties.scope),
            Some(_) => Err("must be a text that is not empty".to_owned()),
            None => Err("is required".to_owned()),
        };
        Self(parts.unwrap_or_else(|fault| {
            properties.fault(property, fault);
            Vec::new()
        }))
    }

    /// Returns the text of a template without expressions.
    pub(crate) fn constant(&self) -> Option<&str> {
        match &*self.0 {
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Fills the template for an incoming value; longer results are cut to `chars_max` characters. What fails is left
    /// out, and recorded as a failure of `element`. A result without any text is the element's name.
    pub(crate) fn fill<'e>(
        &'e self,
        element: &str,
        incoming: &Value<'e>,
        run: &mut Run<'e>,
        chars_max: usize,
    ) -> String {
        let (mut filled, mut is_whole) = (String::new(), true);
        for part in &self.0 {
            if let Err(problem) = part.add(incoming, run, chars_max, &mut filled) {
                run.fail(element, &problem);
                is_whole = false;
            }
        }
        let text = filled.trim();
        if text.is_empty() {
            return element.to_owned();
        }
        if !is_whole {
            filled = text.to_owned();
        }
        cut(&mut filled, chars_max);
        filled
    }
}

impl TemplatePart {
    fn add<'e>(&'e self, incoming: &Value<'e>, run: &Run<'e>, chars_max: usize, filled: &mut String) -> Computed<()> {
        match self {
            TemplatePart::Text(text) => {
                // A text of the design is there even if the expressions before it took all units.
                filled.push_str(text);
                run.budget.spend_bytes(text.len())
            }
            TemplatePart::Computed(quote) => {
                let value = run.compute(&quote.expression, incoming)?;
                match value.as_text() {
                    Some(text) => quote.add(shortened(text, chars_max), None, filled, run),
                    None => {
                        let text = to_raw(&value, &run.budget)?;
                        quote.add(shortened(text.text(), chars_max), value.number(), filled, run)
                    }
                }
            }
        }
    }
}

impl Quote {
    /// Makes a placeholder from its expression and the text before and after it; `is_first`: it is the first in the
    /// template.
    fn new(expression: Expression, meanings: &Meanings, (before, after): (&str, &str), is_first: bool) -> Self {
        let meaning = meanings.of(&expression);
        let line_before = before.rsplit_once('\n').map(|(_, line)| line).or(is_first.then_some(before));
        let line_after = after.split_once('\n').map_or(after, |(line, _)| line);
        let unit = meaning.as_ref().map_or("", |meaning| &meaning.unit);
        let after_unit = after.trim_start().strip_prefix(unit);
        let has_unit = after_unit.is_none_or(|rest| rest.starts_with(char::is_alphanumeric));
        let has_title = line_before.is_some_and(|line| line.trim().is_empty()) && line_after.trim().is_empty();
        Self { expression, meaning, has_title, has_unit }
    }

    fn add(&self, text: &str, number: Option<Num>, filled: &mut String, run: &Run<'_>) -> Computed<()> {
        match &self.meaning {
            Some(meaning) => add(&meaning.told(text, number, self.has_title, self.has_unit), filled, run),
            None => add(text, filled, run),
        }
    }
}

fn add(text: &str, filled: &mut String, run: &Run<'_>) -> Computed<()> {
    run.budget.spend_bytes(text.len())?;
    filled.push_str(text);
    Ok(())
}

/// Shortens a text to one more character than may be kept, so that the cut is noticed.
fn shortened(text: &str, chars_max: usize) -> &str {
    match text.char_indices().nth(chars_max + 1) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Cuts a text that is too long, which is better than losing it.
fn cut(filled: &mut String, chars_max: usize) {
    if let Some((at, _)) = filled.char_indices().nth(chars_max) {
        let last = filled[..at].char_indices().next_back().map_or(0, |(at, _)| at);
        filled.truncate(last);
        filled.push('…');
    }
}

/// Splits a template into texts and placeholders.
fn read_parts(template: &str, scope: &Scope) -> Result<Vec<TemplatePart>, String> {
    if template.chars().count() > TEMPLATE_CHARS_MAX {
        return Err(format!("has at most {TEMPLATE_CHARS_MAX} characters"));
    }
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once("{{") {
        if parts.len() >= 2 * EXPRESSIONS_MAX {
            return Err(format!("has at most {EXPRESSIONS_MAX} expressions"));
        }
        let (expression, next) = read_expression(after, &scope.names)?;
        let quote = Quote::new(expression, &scope.meanings, (text, next), parts.is_empty());
        parts.push(TemplatePart::Text(text.into()));
        parts.push(TemplatePart::Computed(quote));
        rest = next;
    }
    parts.push(TemplatePart::Text(rest.into()));
    Ok(parts)
}

/// Reads the expression at the beginning of a text; returns it and the text after its `}}`.
fn read_expression<'m>(text: &'m str, names: &Names) -> Result<(Expression, &'m str), String> {
    let mut fault = None;
    for (end, _) in text.match_indices("}}").take(ENDS_MAX) {
        // In `{{ {'a': 1}}}` the first `}}` begins one brace too early.
        let end = if text[end..].starts_with("}}}") { end + 1 } else { end };
        match Expression::compile(text[..end].trim(), names) {
            Ok(expression) => return Ok((expression, &text[end + 2..])),
            Err(message) => fault = fault.or(Some(message)),
        }
    }
    Err(fault.unwrap_or_else(|| "an expression is not closed by '}}'".to_owned()))
}
