//! Formats a path, so that tests can parse it again.

use std::fmt::{self, Display, Formatter, Write as _};

use super::{Comparable, Comparison, JsonPath, Logical, Query, Segment, Selector};
use crate::json::Json;

impl Display for JsonPath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('$')?;
        joined(f, &self.segments, "", |f, segment| segment.fmt(f))
    }
}

fn joined<T>(
    f: &mut Formatter<'_>,
    parts: &[T],
    between: &str,
    mut write: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        f.write_str(if index > 0 { between } else { "" })?;
        write(f, part)?;
    }
    Ok(())
}

fn literal(f: &mut Formatter<'_>, literal: &Json<'_>) -> fmt::Result {
    let mut text = Vec::new();
    literal.write(&mut text);
    f.write_str(&String::from_utf8_lossy(&text))
}

/// Returns true if a name needs no brackets.
fn is_plain(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

impl Display for Segment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let points = if self.descendant { ".." } else { "." };
        match &self.selectors[..] {
            [Selector::Name(name)] if is_plain(name) => write!(f, "{points}{name}"),
            [Selector::Wildcard] => write!(f, "{points}*"),
            selectors => {
                f.write_str(if self.descendant { "..[" } else { "[" })?;
                joined(f, selectors, ",", |f, selector| selector.fmt(f))?;
                f.write_char(']')
            }
        }
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Name(name) => literal(f, &Json::Text(name.into())),
            Selector::Wildcard => f.write_char('*'),
            Selector::Index(index) => index.fmt(f),
            Selector::Slice { start, end, step } => {
                let shown = |bound: &Option<i64>| bound.map_or(String::new(), |bound| bound.to_string());
                write!(f, "{}:{}:{step}", shown(start), shown(end))
            }
            Selector::Filter(filter) => write!(f, "?{filter}"),
        }
    }
}

impl Display for Logical {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Logical::Any(terms) => joined(f, terms, "||", |f, term| match term {
                Logical::Any(_) => write!(f, "({term})"),
                _ => term.fmt(f),
            }),
            Logical::All(terms) => joined(f, terms, "&&", |f, term| match term {
                Logical::Any(_) | Logical::All(_) => write!(f, "({term})"),
                _ => term.fmt(f),
            }),
            Logical::Not(term) => match **term {
                Logical::Exists(_) | Logical::Matches(..) => write!(f, "!{term}"),
                _ => write!(f, "!({term})"),
            },
            Logical::Exists(query) => query.fmt(f),
            Logical::Compared(left, comparison, right) => write!(f, "{left}{comparison}{right}"),
            Logical::Matches(text, pattern) => {
                let name = if pattern.whole { "match" } else { "search" };
                write!(f, "{name}({text},{})", pattern.comparable())
            }
        }
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Equal => "==",
            Comparison::Unequal => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

impl Display for Comparable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Comparable::Literal(value) => literal(f, value),
            Comparable::Query(query) => query.fmt(f),
            Comparable::Length(of) => write!(f, "length({of})"),
            Comparable::Count(query) => write!(f, "count({query})"),
            Comparable::Value(query) => write!(f, "value({query})"),
        }
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char(if self.absolute { '$' } else { '@' })?;
        joined(f, &self.segments, "", |f, segment| segment.fmt(f))
    }
}
