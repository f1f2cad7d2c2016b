//! Many device events in one request (contract: Beyond the specification).

use crate::check::{Input, body_items, or_faults};
use crate::error::{Fault, Result};
use crate::json::{Json, RawJson};

/// Most events of one batch.
pub const BATCH_EVENTS_MAX: usize = 1_000;
/// Events of a batch that count as one call; a batch counts one call for every started group.
pub const BATCH_EVENTS_A_CALL: usize = 100;

/// One event of a batch, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchEvent {
    /// The device, as it was given.
    pub device: Option<String>,
    /// The element.
    pub element: Option<String>,
    /// The payload: any JSON but null.
    pub payload: RawJson,
    /// The key that makes a repetition have no effect.
    pub idempotency_key: Option<String>,
}

/// An item of a batch, or its faults.
pub type BatchItem = std::result::Result<BatchEvent, Vec<Fault>>;

/// Reads the body of a batch: an array of `{elementName, payload, deviceId?, idempotencyKey?}`. Each item is checked
/// separately.
///
/// # Errors
/// `Invalid` if it is not an array, or holds more than [`BATCH_EVENTS_MAX`] items.
pub fn read_batch(tree: &Json<'_>) -> Result<Vec<BatchItem>> {
    body_items(tree, BATCH_EVENTS_MAX, "events")?.iter().map(|item| or_faults(read_item(item))).collect()
}

fn read_item(item: &Json<'_>) -> Result<BatchEvent> {
    let mut input = Input::body(item)?;
    let device = input.text("deviceId", 0, usize::MAX);
    let element = input.text("elementName", 0, usize::MAX);
    let idempotency_key = input.text("idempotencyKey", 0, usize::MAX);
    let payload = input.required_json("payload");
    input.unless_any(BatchEvent { device, element, payload, idempotency_key })
}

/// Returns the number of calls that a batch counts as: one for every started [`BATCH_EVENTS_A_CALL`], at least one.
pub fn calls_of(events: usize) -> u32 {
    u32::try_from(events.div_ceil(BATCH_EVENTS_A_CALL).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::json::parse;

    #[test]
    fn items_are_checked_separately() {
        let body = r#"[{"elementName":"e","payload":1.50,"deviceId":"d","idempotencyKey":"k"},{"payload":0},7,
            {"elementName":3,"payload":null,"deviceId":null,"idempotencyKey":[]},{"elementName":"e"}]"#;
        let items = read_batch(&parse(body).unwrap()).unwrap();
        let first = items[0].as_ref().unwrap();
        assert_eq!((first.device.as_deref(), first.payload.text()), (Some("d"), "1.50"));
        assert_eq!((first.element.as_deref(), first.idempotency_key.as_deref()), (Some("e"), Some("k")));
        let fields = |item: &BatchItem| -> Vec<String> {
            item.as_ref().unwrap_err().iter().map(|fault| fault.field.clone()).collect()
        };
        assert_eq!(items[1].as_ref().unwrap().element, None);
        assert_eq!(fields(&items[2]), ["body"]);
        assert_eq!(fields(&items[3]), ["deviceId", "elementName", "idempotencyKey", "payload"]);
        assert_eq!(fields(&items[4]), ["payload"]);
    }

    #[test]
    fn batch_must_be_an_array_of_bounded_length() {
        for bad in ["{}".to_owned(), "7".to_owned(), format!("[{}0]", "0,".repeat(BATCH_EVENTS_MAX))] {
            assert!(matches!(read_batch(&parse(&bad).unwrap()), Err(Error::Invalid(_))), "{bad}");
        }
        assert_eq!(read_batch(&parse("[]").unwrap()).unwrap(), []);
    }

    #[test]
    fn batch_counts_a_call_for_each_started_hundred() {
        for (events, calls) in [(0, 1), (1, 1), (100, 1), (101, 2), (200, 2), (999, 10), (1_000, 10)] {
            assert_eq!(calls_of(events), calls, "{events}");
        }
    }
}
