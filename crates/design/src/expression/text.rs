//! Functions of texts. Positions and lengths count code points.

use super::functions::{Function, no_overload};
use super::operate::{bounded_text, join_texts};
use crate::value::budget::Budget;
use crate::value::{Computed, Problem, Value};

/// Calls a function of texts.
pub(crate) fn call<'e>(function: Function, arguments: &[Value<'e>], budget: &Budget) -> Computed<Value<'e>> {
    let misfit = || no_overload(function, arguments);
    if function == Function::Join {
        return join(arguments, budget);
    }
    let text = arguments.first().and_then(Value::as_text).ok_or_else(misfit)?;
    let text_at = |at: usize| arguments.get(at).and_then(Value::as_text).ok_or_else(misfit);
    // The searched text is scanned too.
    for argument in arguments {
        budget.spend_bytes(argument.as_text().map_or(0, str::len))?;
    }
    Ok(match function {
        Function::Contains => Value::Bool(text.contains(text_at(1)?)),
        Function::StartsWith => Value::Bool(text.starts_with(text_at(1)?)),
        Function::EndsWith => Value::Bool(text.ends_with(text_at(1)?)),
        Function::LowerAscii => Value::text(text.to_ascii_lowercase()),
        Function::UpperAscii => Value::text(text.to_ascii_uppercase()),
        Function::Trim => Value::text(text.trim()),
        Function::Split => split(text, text_at(1)?, limit(arguments.get(2), misfit)?, budget)?,
        Function::Replace => replace(text, text_at(1)?, text_at(2)?, limit(arguments.get(3), misfit)?, budget)?,
        Function::Substring => {
            let from = place(arguments.get(1), misfit)?;
            let to = arguments.get(2).map(|to| place(Some(to), misfit)).transpose()?;
            Value::text(substring(text, from, to)?)
        }
        Function::IndexOf => {
            let from = arguments.get(2).map(|from| place(Some(from), misfit)).transpose()?.unwrap_or(0);
            index_of(text, text_at(1)?, from)?
        }
        Function::LastIndexOf => {
            let to = arguments.get(2).map(|to| place(Some(to), misfit)).transpose()?;
            last_index_of(text, text_at(1)?, to)?
        }
        _ => char_at(text, place(arguments.get(1), misfit)?)?,
    })
}

fn out_of_range(at: usize) -> Problem {
    Problem::new(format!("index {at} is out of range"))
}

/// Reads a position in a text.
fn place(value: Option<&Value<'_>>, misfit: impl Fn() -> Problem) -> Computed<usize> {
    let at = value.and_then(Value::whole).ok_or_else(misfit)?;
    usize::try_from(at).map_err(|_| Problem::new(format!("index {at} is out of range")))
}

/// Reads a limit of repetitions; a negative number, or none, means no limit.
fn limit(value: Option<&Value<'_>>, misfit: impl Fn() -> Problem) -> Computed<usize> {
    match value {
        None => Ok(usize::MAX),
        Some(value) => Ok(usize::try_from(value.whole().ok_or_else(misfit)?).unwrap_or(usize::MAX)),
    }
}

/// Returns the byte offset of a code point; the end of the text is valid too.
fn byte_at(text: &str, at: usize) -> Computed<usize> {
    let mut places = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
    places.nth(at).ok_or_else(|| out_of_range(at))
}

fn substring(text: &str, from: usize, to: Option<usize>) -> Computed<&str> {
    if to.is_some_and(|to| to < from) {
        return Err(Problem::new("a substring ends before it begins"));
    }
    let rest = &text[byte_at(text, from)?..];
    match to {
        Some(to) => Ok(&rest[..byte_at(rest, to - from).map_err(|_| out_of_range(to))?]),
        None => Ok(rest),
    }
}

fn index_of<'e>(text: &str, sought: &str, from: usize) -> Computed<Value<'e>> {
    let skipped = byte_at(text, from)?;
    let found = text[skipped..].find(sought).map(|at| text[..skipped + at].chars().count() as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

/// Finds the last occurrence, optionally at or before the position `to`.
fn last_index_of<'e>(text: &str, sought: &str, to: Option<usize>) -> Computed<Value<'e>> {
    let last = to.map_or(Ok(text.len()), |to| byte_at(text, to))?;
    let end = text.floor_char_boundary(last.saturating_add(sought.len()));
    let found = text[..end].rfind(sought).map(|at| text[..at].chars().count() as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn char_at<'e>(text: &str, at: usize) -> Computed<Value<'e>> {
    let rest = &text[byte_at(text, at)?..];
    let mut buffer = [0; 4];
    Ok(Value::text(rest.chars().next().map_or("", |found| found.encode_utf8(&mut buffer))))
}

fn split<'e>(text: &str, separator: &str, limit: usize, budget: &Budget) -> Computed<Value<'e>> {
    // A piece may be one byte long and takes an entry of its own.
    budget.spend(2 * text.len())?;
    if limit == 0 {
        return Value::list(Vec::new());
    }
    if separator.is_empty() {
        let mut places = text.char_indices().skip(1).map(|(byte, _)| byte).take(limit - 1).collect::<Vec<_>>();
        places.push(text.len());
        let starts = std::iter::once(0).chain(places.iter().copied());
        let pieces = starts.zip(places.iter()).map(|(from, to)| Value::text(&text[from..*to])).collect();
        return Value::list(if text.is_empty() { Vec::new() } else { pieces });
    }
    Value::list(text.splitn(limit, separator).map(Value::text).collect())
}

fn replace<'e>(text: &str, old: &str, new: &str, limit: usize, budget: &Budget) -> Computed<Value<'e>> {
    budget.spend_reading(text.len())?;
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() }.min(limit);
    let length = text.len().saturating_add(found.saturating_mul(new.len()));
    bounded_text(length)?;
    budget.spend(found)?;
    budget.spend_bytes(length)?;
    Ok(Value::text(text.replacen(old, new, found)))
}

fn join<'e>(arguments: &[Value<'e>], budget: &Budget) -> Computed<Value<'e>> {
    let misfit = || no_overload(Function::Join, arguments);
    let list = arguments.first().filter(|list| list.is_list()).ok_or_else(misfit)?;
    let separator = arguments.get(1).map_or(Some(""), Value::as_text).ok_or_else(misfit)?;
    let count = list.len().unwrap_or(0);
    budget.spend(count)?;
    let items: Vec<_> = list.items().collect();
    let mut parts = Vec::with_capacity(2 * count);
    for item in &items {
        if !parts.is_empty() {
            parts.push(separator);
        }
        parts.push(item.as_text().ok_or_else(misfit)?);
    }
    join_texts(&parts, budget)
}
