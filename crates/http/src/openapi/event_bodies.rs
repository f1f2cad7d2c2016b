//! Shapes of the bodies of event batches, for the OpenAPI document only: `isobar_model` reads and checks them.
#![expect(dead_code, reason = "shapes are described, never made")]

use isobar_model::event_batch::BATCH_EVENTS_MAX;
use utoipa::ToSchema;

use super::bodies::ListOf;
use crate::resources::values::AnyJson;

/// One event of a batch. What is wrong with it is an error of this event alone.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = BatchEvent)]
pub(crate) struct BatchEventInput {
    /// The device event element.
    #[schema(min_length = 1, max_length = 128)]
    element_name: String,
    /// What it carries: any JSON but null.
    payload: AnyJson,
    /// The device. Needed with a user's credentials; a device may leave it out, and may name no other.
    #[schema(required = false)]
    device_id: String,
    /// A repetition for the same device within 24 hours does nothing, and is answered the first id.
    #[schema(required = false, min_length = 1, max_length = 64)]
    idempotency_key: String,
}

/// The events of a batch. Those of one device run in this order.
pub(crate) type BatchEvents = ListOf<BatchEventInput, BATCH_EVENTS_MAX>;
