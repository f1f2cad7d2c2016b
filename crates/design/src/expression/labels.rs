//! Metadata of the device as a run changes it, and its size.

use std::collections::HashMap;
use std::rc::Rc;

use isobar_model::json::{RawJson, member_bytes};
use isobar_model::meta::MetaSize;

use crate::value::{Computed, Problem, Value};

/// Labels changed by a run, in the order of their first change. Tags may be chosen by a client, so they are hashed with
/// a random key.
#[derive(Default)]
pub(crate) struct Labels<'e> {
    changed: Vec<Label<'e>>,
    places: HashMap<Rc<str>, usize>,
    /// Size of the metadata with these changes; `None` before the first.
    size: Option<MetaSize>,
}

struct Label<'e> {
    tag: Rc<str>,
    value: Value<'e>,
}

impl<'e> Labels<'e> {
    /// Returns the number of changed labels.
    pub(crate) fn len(&self) -> usize {
        self.changed.len()
    }

    /// Returns the new value of a tag.
    pub(crate) fn get(&self, tag: &str) -> Option<&Value<'e>> {
        // Usually there is none.
        if self.changed.is_empty() {
            return None;
        }
        self.changed.get(*self.places.get(tag)?).map(|label| &label.value)
    }

    /// Returns all changed labels.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Rc<str>, &Value<'e>)> {
        self.changed.iter().map(|label| (&label.tag, &label.value))
    }

    /// Returns the size of the metadata with this value, or an error if it would be too large. `before` is its size
    /// before this run, `present` the current size of the tag.
    pub(crate) fn size_with(
        &self,
        tag: &str,
        value: &RawJson,
        before: MetaSize,
        present: Option<usize>,
    ) -> Computed<MetaSize> {
        let size = self.size.unwrap_or(before);
        let after = MetaSize {
            labels: size.labels + usize::from(present.is_none()),
            bytes: (size.bytes + member_bytes(tag, value)).saturating_sub(present.unwrap_or(0)),
        };
        match after.exceeds(size) {
            None => Ok(after),
            Some(most) => Err(Problem::new(format!("the metadata of a device holds {most}"))),
        }
    }

    /// Sets a tag to a value; `size` is the resulting size of the metadata.
    pub(crate) fn set(&mut self, tag: &str, value: Value<'e>, size: MetaSize) {
        self.size = Some(size);
        match self.places.get(tag).and_then(|at| self.changed.get_mut(*at)) {
            Some(label) => label.value = value,
            None => {
                let tag: Rc<str> = Rc::from(tag);
                self.places.insert(Rc::clone(&tag), self.changed.len());
                self.changed.push(Label { tag, value });
            }
        }
    }
}
