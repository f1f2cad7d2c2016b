//! References into a value: a JSONPath to one place, the name of a member, or a dotted path.

use crate::value::budget::Budget;
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

/// Longest reference, in characters.
const CHARS_MAX: usize = 1_000;

/// A reference. One that begins with `$` is a JSONPath (RFC 9535) of names and indexes; any other is the name of a
/// member, or a dotted path of names and indexes, optionally with the prefix `payload`, the name of the value in
/// expressions.
#[derive(Debug)]
pub(crate) struct Reference {
    text: Box<str>,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
enum Step {
    Name(Box<str>),
    /// Counts from the end if negative.
    Index(i64),
    /// A number in a dotted path may be a name or an index.
    Either(Box<str>, usize),
}

impl HeldBytes for Step {
    fn held_bytes(&self) -> usize {
        match self {
            Step::Name(name) | Step::Either(name, _) => name.held_bytes(),
            Step::Index(_) => 0,
        }
    }
}

impl HeldBytes for Reference {
    fn held_bytes(&self) -> usize {
        self.text.held_bytes() + self.steps.held_bytes()
    }
}

impl Reference {
    /// Parses a reference; the error says what it must be.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.chars().count() > CHARS_MAX {
            return Err(format!("has 1 to {CHARS_MAX} characters"));
        }
        let steps = match text.strip_prefix('$') {
            Some(rest) => {
                json_path(rest).ok_or("must be a JSONPath to one place: names and indexes, as in $.data[0]['b']")?
            }
            None => text.split('.').map(dotted).collect(),
        };
        Ok(Self { text: text.into(), steps })
    }

    /// Returns the reference as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Finds the referenced part of a value.
    pub(crate) fn find<'e>(&self, value: &Value<'e>, budget: &Budget) -> Computed<Option<Value<'e>>> {
        if self.text.starts_with('$') {
            return follow(&self.steps, value, budget);
        }
        if let Some(found) = value.member(&self.text, budget)? {
            return Ok(Some(found));
        }
        match (follow(&self.steps, value, budget)?, self.steps.as_slice()) {
            (None, [Step::Name(first), rest @ ..]) if first.as_ref() == "payload" => follow(rest, value, budget),
            (found, _) => Ok(found),
        }
    }
}

fn follow<'e>(steps: &[Step], value: &Value<'e>, budget: &Budget) -> Computed<Option<Value<'e>>> {
    let mut found = value.clone();
    for step in steps {
        match step.of(&found, budget)? {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

impl Step {
    fn of<'e>(&self, value: &Value<'e>, budget: &Budget) -> Computed<Option<Value<'e>>> {
        let item = |at: usize| if value.is_list() { value.item(at) } else { None };
        let at_index = |at: i64| {
            let from_end = if at < 0 { i64::try_from(value.len()?).ok()? } else { 0 };
            item(usize::try_from(from_end + at).ok()?)
        };
        match self {
            Step::Name(name) => value.member(name, budget),
            Step::Index(at) => Ok(at_index(*at)),
            Step::Either(name, at) => match item(*at) {
                Some(found) => Ok(Some(found)),
                None => value.member(name, budget),
            },
        }
    }
}

fn dotted(segment: &str) -> Step {
    match segment.parse() {
        Ok(at) => Step::Either(segment.into(), at),
        Err(_) => Step::Name(segment.into()),
    }
}

/// Parses the steps after the `$`; `None` if they are malformed or may lead to several places.
fn json_path(mut rest: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, next) = match rest.strip_prefix('.') {
            Some(name) => {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (name, next) = name.split_at(end);
                let is_name = |c: char| c.is_alphanumeric() || c == '_' || !c.is_ascii();
                let sound = name.chars().all(is_name) && !name.starts_with(|c: char| c.is_ascii_digit());
                (sound && !name.is_empty()).then(|| (Step::Name(name.into()), next))?
            }
            None => bracketed(rest.strip_prefix('[')?.trim_start())?,
        };
        steps.push(step);
        rest = next;
    }
    Some(steps)
}

/// Parses the content of brackets: a quoted name or an index.
fn bracketed(text: &str) -> Option<(Step, &str)> {
    let Some(quote) = text.chars().next().filter(|c| ['\'', '"'].contains(c)) else {
        let (index, next) = text.split_once(']')?;
        let index = index.trim_end();
        let plain = index == "0" || !index.trim_start_matches('-').starts_with('0');
        return plain.then_some((Step::Index(index.parse().ok()?), next)).filter(|_| !index.starts_with('+'));
    };
    let mut name = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                let (_, escaped) = letters.next()?;
                ['\\', '/', '\'', '"'].contains(&escaped).then(|| name.push(escaped))?;
            }
            _ if letter == quote => {
                let next = text[at + 1..].trim_start().strip_prefix(']')?;
                return Some((Step::Name(name.into()), next));
            }
            _ => name.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use isobar_model::json::parse;
    use proptest::prelude::*;

    use super::*;

    fn found(reference: &str) -> Option<i64> {
        let json = parse(r#"{"a":{"b":[1,{"c d":2}],"0":3},"a.b":4,"x":{"y":5},"é":6,"payload":{"p":7}}"#).unwrap();
        let found = Reference::read(reference).unwrap().find(&Value::from(&json), &Budget::of_run());
        found.unwrap().and_then(|value| value.whole())
    }

    #[test]
    fn reference_leads_to_one_place() {
        for (reference, value) in [
            ("$.a.b[0]", Some(1)),
            ("$['a'][\"b\"][1]['c d']", Some(2)),
            ("$.a.b[-2]", Some(1)),
            ("$.é", Some(6)),
            ("$['a']['0']", Some(3)),
            ("$['a.b']", Some(4)),
            ("$.nothing.b", None),
            ("$.a.b[7]", None),
            ("a.b", Some(4)),
            ("a.b.0", Some(1)),
            ("a.0", Some(3)),
            ("x.y", Some(5)),
            ("payload.x.y", Some(5)),
            ("payload.p", Some(7)),
            ("x.z", None),
        ] {
            assert_eq!(found(reference), value, "{reference}");
        }
    }

    #[test]
    fn reference_to_several_places_is_refused() {
        for reference in [
            "", "$.", "$..a", "$.*", "$[*]", "$[0:1]", "$[?@.a]", "$[0,1]", "$['a'", "$[a]", "$a", "$.a b", "$[01]",
            "$[+1]",
        ] {
            assert!(Reference::read(reference).is_err(), "{reference}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_reference_or_a_fault(text in "[$.\\[\\]'\"a0-9\\\\ -]{0,12}") {
            if let Ok(reference) = Reference::read(&text) {
                let _ = reference.find(&Value::Null, &Budget::of_run());
            }
        }
    }
}
