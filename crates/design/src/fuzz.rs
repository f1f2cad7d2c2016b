//! Properties that hold for any expression. `fuzz/` searches for inputs that violate them; the tests below replay the
//! known ones. Built only for these two.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a property that does not hold is a panic")]

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use bytes::Bytes;
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::{Json, RawJson};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

use crate::expression::{
    Changes, Declarations, Expression, LastTexts, Machine, Names, World, on_a_large_stack, to_raw,
};
use crate::value::budget::Budget;
use crate::value::{Computed, TEXT_BYTES_MAX, Value};
use crate::{DeviceView, EmptyMemory, EventView};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
/// Payload for expressions that come without one.
const PAYLOAD: &str = r#"{"n":7,"d":8.10,"big":12345678901234567890,"s":"Grüße","on":true,"no":null,"l":[3,1,2],"m":{"a":{"b":"c"}},
    "at":"2026-03-04T05:06:07.089Z","x":"a,b"}"#;

/// Checks that an expression is compiled or refused with a message. A compiled one must return the same value for the
/// same cost each time, succeed with exactly that budget and fail with less, and return JSON of limited size. The input
/// is an expression, optionally followed by U+0000 and a payload. Returns true if it was compiled.
pub fn expression(input: &[u8]) -> bool {
    let Ok(input) = std::str::from_utf8(input) else { return false };
    let (source, payload) = input.split_once('\0').unwrap_or((input, PAYLOAD));
    let Ok(payload) = RawJson::check(Bytes::copy_from_slice(payload.as_bytes())) else { return false };
    match on_a_large_stack(|| Expression::compile(source, &Names::default())) {
        Some(Ok(expression)) => {
            keeps_to_its_budget(&expression, &payload);
            true
        }
        Some(Err(why)) => {
            assert!(!why.is_empty());
            false
        }
        None => panic!("the parser has failed"),
    }
}

fn keeps_to_its_budget(expression: &Expression, payload: &RawJson) {
    let tree = payload.tree();
    let plenty = Budget::of_run();
    let given = gives(expression, payload, &tree, &plenty);
    let spent = plenty.spent();
    if let Ok(value) = &given {
        // The limit is checked before each text, of which every character may be escaped by six.
        assert!(value.bytes().len() <= 8 * TEXT_BYTES_MAX, "{} bytes", value.bytes().len());
        assert_eq!(RawJson::check(value.shared()).as_ref(), Ok(value));
    }
    let enough = Budget::of_units(spent);
    assert_eq!(gives(expression, payload, &tree, &enough), given);
    let too_little = Budget::of_units(spent.saturating_sub(1));
    assert!(gives(expression, payload, &tree, &too_little).is_err(), "it cost {spent}");
}

/// Evaluates an expression to JSON.
fn gives(expression: &Expression, payload: &RawJson, tree: &Json<'_>, budget: &Budget) -> Computed<RawJson> {
    let id: DeviceId = ID.parse().unwrap();
    let device = DeviceView {
        id,
        name: "fridge".to_owned(),
        organization: OrganizationId(id.0),
        meta: RawJson::trusted(Bytes::from_static(b"{}")),
        status: Status::Good,
        settings: Vec::new(),
        alarms: std::sync::Arc::default(),
    };
    let received_at = Timestamp::from_millis(1_772_600_767_089);
    let event = EventView { id: EventId(id.0), element: "in", received_at, now: received_at, payload, tree };
    let (declarations, last_texts) = (Declarations::default(), LastTexts::default());
    let world = World::new(&declarations, &event, &device, &EmptyMemory, &last_texts);
    let changes = Changes::none(Status::Good);
    let incoming = Value::from(tree);
    let value = expression.value(&mut Machine::new(Some((&world, &changes)), &incoming, budget))?;
    to_raw(&value, budget)
}

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    // Holds: fuzz.expression
    #[test]
    fn expressions_keep_to_their_budget() {
        let official = crate::expression::official::cases();
        let compiled = replay("expression", official.into_iter().map(|case| case.expression.into_bytes()), expression);
        assert!(compiled > 250, "{compiled}");
    }
}
