//! `changed`: detects that a key differs from the previous one; the first key is a change (contract: The project
//! design).

use bytes::{BufMut, Bytes, BytesMut};
use isobar_model::json::{FINGERPRINT_BYTES, RawJson, equal, fingerprint};

use super::context::{Passed, Run};
use super::graph::Link;
use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::Expression;
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "changed",
    abilities: &[Ability { name: "evaluate", arguments: &[] }],
    triggers: &["changed", "unchanged"],
    read: Changed::read,
};

/// Longest key, in bytes of JSON, that is stored as it is; of a longer one, its fingerprint.
const KEY_BYTES_MAX: usize = 1_024;
/// First byte of a state that is a fingerprint; no JSON text begins with it.
const FINGERPRINT: u8 = 1;

/// A changed element. Its state is the JSON of the newest key, or its fingerprint.
#[derive(Debug)]
pub(crate) struct Changed {
    key: Expression,
}

impl HeldBytes for Changed {
    fn held_bytes(&self) -> usize {
        self.key.held_bytes()
    }
}

impl Changed {
    fn read(properties: &mut Properties<'_>) -> Element {
        Element::Changed(Self { key: properties.expression("expression").unwrap_or_else(Expression::payload) })
    }

    pub(crate) fn evaluate<'e>(
        &'e self,
        link: &'e Link,
        incoming: &Value<'e>,
        run: &mut Run<'e>,
    ) -> Computed<Passed<'e>> {
        let key = run.compute(&self.key, incoming)?;
        let key = run.json(&key)?;
        let before = run.state(link.target);
        let now = if key.bytes().len() <= KEY_BYTES_MAX { key.shared() } else { fingerprint_of(&key, run)? };
        let same = match &before {
            None => false,
            Some(before) => *before == now || is_same(before, &key, &now, run)?,
        };
        // An oversized state was written before fingerprints existed.
        if !same || before.is_some_and(|before| before.len() > KEY_BYTES_MAX) {
            run.remember(link.target, now)?;
        }
        Ok(Passed { trigger: usize::from(same), value: incoming.clone() })
    }
}

/// Returns true if a state with other bytes stands for the same key. `now` is the new state of the key.
fn is_same(before: &Bytes, key: &RawJson, now: &Bytes, run: &Run<'_>) -> Computed<bool> {
    if before.first() == Some(&FINGERPRINT) {
        return Ok(*before == fingerprint_of(key, run)?);
    }
    let before = RawJson::trusted(before.clone());
    if now.first() == Some(&FINGERPRINT) {
        return Ok(*now == fingerprint_of(&before, run)?);
    }
    run.budget.spend_reading(before.bytes().len() + key.bytes().len())?;
    Ok(equal(&before.tree(), &key.tree()))
}

fn fingerprint_of(key: &RawJson, run: &Run<'_>) -> Computed<Bytes> {
    // Hashing visits every value, with members sorted by name.
    run.budget.spend_reading(2 * key.bytes().len())?;
    let fingerprint = match run.tree_of(key) {
        Some(tree) => fingerprint(tree),
        None => {
            run.budget.spend_reading(key.bytes().len())?;
            fingerprint(&key.tree())
        }
    };
    let mut state = BytesMut::with_capacity(1 + FINGERPRINT_BYTES);
    state.put_u8(FINGERPRINT);
    state.put_slice(&fingerprint);
    Ok(state.freeze())
}
