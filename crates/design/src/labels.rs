//! The metadata of the device as a run changes it, and how large that becomes.

use std::collections::HashMap;
use std::rc::Rc;

use isobar_model::json::{RawJson, member_bytes};
use isobar_model::meta::MetaSize;

use crate::expression::{Computed, Problem, Value};

/// Labels that a run has changed, in the order in which it first did. Tags may be a client's choice: they are found by a
/// hash with a random key.
#[derive(Default)]
pub(crate) struct Labels<'e> {
    changed: Vec<Label<'e>>,
    places: HashMap<Rc<str>, usize>,
    /// How large the metadata is with these; none before the first.
    size: Option<MetaSize>,
}

struct Label<'e> {
    tag: Rc<str>,
    value: Value<'e>,
}

impl<'e> Labels<'e> {
    /// How many were changed.
    pub(crate) fn len(&self) -> usize {
        self.changed.len()
    }

    /// The new value of a tag.
    pub(crate) fn get(&self, tag: &str) -> Option<&Value<'e>> {
        // Mostly there is none.
        if self.changed.is_empty() {
            return None;
        }
        self.changed.get(*self.places.get(tag)?).map(|label| &label.value)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Rc<str>, &Value<'e>)> {
        self.changed.iter().map(|label| (&label.tag, &label.value))
    }

    /// How large the metadata becomes with this value; or it may not. `before` is how large it was before this run,
    /// `present` what the tag takes now.
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

    /// A tag gets a value, with which the metadata is as large as that.
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
