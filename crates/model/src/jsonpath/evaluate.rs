//! Evaluation of segments and selectors.

use super::{Exhausted, NODES_MAX, Segment, Selector, Steps};
use crate::json::Json;

/// Members of an object whose names are compared for one step.
pub(super) const NAMES_A_STEP: usize = 8;

type Result<T> = std::result::Result<T, Exhausted>;
pub(super) type Nodes<'v> = Vec<&'v Json<'v>>;

/// The evaluation of a path on a document.
pub(super) struct Evaluation<'v, 's> {
    pub root: &'v Json<'v>,
    pub steps: &'s mut Steps,
}

impl<'v> Evaluation<'v, '_> {
    /// Returns the nodes that segments select from a node on.
    pub fn nodes(&mut self, segments: &[Segment], from: &'v Json<'v>) -> Result<Nodes<'v>> {
        let mut nodes = vec![from];
        for segment in segments {
            let mut found = Vec::new();
            for node in nodes {
                match segment.descendant {
                    true => self.descend(segment, node, &mut found)?,
                    false => self.apply(segment, node, &mut found)?,
                }
            }
            nodes = found;
        }
        Ok(nodes)
    }

    /// Applies a segment to a node and all its descendants; a document is at most `json::DEPTH_MAX` deep.
    fn descend(&mut self, segment: &Segment, node: &'v Json<'v>, found: &mut Nodes<'v>) -> Result<()> {
        self.steps.take(1)?;
        self.apply(segment, node, found)?;
        match node {
            Json::Array(items) => items.iter().try_for_each(|item| self.descend(segment, item, found)),
            Json::Object(members) => members.iter().try_for_each(|(_, member)| self.descend(segment, member, found)),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, segment: &Segment, node: &'v Json<'v>, found: &mut Nodes<'v>) -> Result<()> {
        segment.selectors.iter().try_for_each(|selector| self.select(selector, node, found))
    }

    fn select(&mut self, selector: &Selector, node: &'v Json<'v>, found: &mut Nodes<'v>) -> Result<()> {
        self.steps.take(1)?;
        match (selector, node) {
            (Selector::Name(name), Json::Object(_)) => match self.member(node, name)? {
                Some(member) => self.keep(member, found),
                None => Ok(()),
            },
            (Selector::Index(index), Json::Array(items)) => match at(*index, items.len()) {
                Some(item) => self.keep(&items[item], found),
                None => Ok(()),
            },
            (Selector::Slice { start, end, step }, Json::Array(items)) => {
                slice(*start, *end, *step, items.len()).try_for_each(|item| self.keep(&items[item], found))
            }
            (Selector::Wildcard, _) => children(node).try_for_each(|child| self.keep(child, found)),
            (Selector::Filter(filter), _) => children(node).try_for_each(|child| {
                self.steps.take(1)?;
                if self.holds(filter, child)? { self.keep(child, found) } else { Ok(()) }
            }),
            _ => Ok(()),
        }
    }

    /// Returns the member of an object, and takes the steps of the search.
    pub fn member(&mut self, object: &'v Json<'v>, name: &str) -> Result<Option<&'v Json<'v>>> {
        let Json::Object(members) = object else { return Ok(None) };
        let place = members.iter().position(|(other, _)| other == name);
        self.steps.take(1 + place.unwrap_or(members.len()) / NAMES_A_STEP)?;
        Ok(place.map(|place| &members[place].1))
    }

    fn keep(&mut self, node: &'v Json<'v>, found: &mut Nodes<'v>) -> Result<()> {
        self.steps.take(1)?;
        if found.len() == NODES_MAX {
            return Err(Exhausted);
        }
        found.push(node);
        Ok(())
    }
}

fn children<'v>(node: &'v Json<'v>) -> impl Iterator<Item = &'v Json<'v>> {
    let (items, members): (&[Json<'v>], &[_]) = match node {
        Json::Array(items) => (items, &[]),
        Json::Object(members) => (&[], members),
        _ => (&[], &[]),
    };
    items.iter().chain(members.iter().map(|(_, member)| member))
}

/// Resolves an index, which counts from the end if it is negative.
fn at(index: i64, length: usize) -> Option<usize> {
    let index = if index < 0 { index + length as i64 } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

/// Iterates over the indices of a slice (RFC 9535, 2.3.4.2.2).
fn slice(start: Option<i64>, end: Option<i64>, step: i64, length: usize) -> impl Iterator<Item = usize> {
    let length = length as i64;
    let normal = |index: i64| if index < 0 { index + length } else { index };
    let (first, last) = match step {
        1.. => (normal(start.unwrap_or(0)).clamp(0, length), normal(end.unwrap_or(length)).clamp(0, length)),
        _ => {
            let (start, end) = (start.map_or(length - 1, normal), end.map_or(-1, normal));
            (start.clamp(-1, length - 1), end.clamp(-1, length - 1))
        }
    };
    let within = move |index: &i64| if step > 0 { *index < last } else { *index > last };
    let first = Some(first).filter(|first| step != 0 && within(first));
    let indices = std::iter::successors(first, move |index| Some(index + step).filter(within));
    indices.map(|index| index as usize)
}
