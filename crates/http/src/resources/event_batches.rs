//! Many device events in one call.

use axum::http::StatusCode;
use isobar_hub::BatchReport;
use isobar_model::event_batch::BATCH_EVENTS_MAX;
use isobar_model::ids::EventId;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{AnyJson, Id, ListOf};
use crate::problem::Problem;
use crate::request::{Call, after};
use crate::response::{self, Reply};

/// Accepts a batch. Answers 200 only after all accepted events and their effects are durable.
pub(crate) async fn device_events_create(call: &mut Call) -> Result<Reply, Problem> {
    let body = call.json_bytes().await;
    let body = after(call.hub().allow_batch(&call.principal), body).await?;
    let report = call.hub().events_accept(&call.principal, body).await?;
    call.state.meters.events_accepted.increment(report.accepted.len() as u64);
    let window = report.window;
    let response = response::json(StatusCode::OK, &BatchJson::from(report));
    Ok(match window {
        Some(window) => Reply::Counted(response, window),
        None => Reply::Ready(response),
    })
}

/// The outcome of a batch.
#[derive(Serialize, ToSchema)]
#[schema(as = EventBatch)]
pub(crate) struct BatchJson {
    /// The events that were accepted: all are durable.
    data: Vec<AcceptedJson>,
    /// The errors of the others.
    errors: Vec<RefusedJson>,
}

/// An event that was accepted.
#[derive(Serialize, ToSchema)]
#[schema(as = EventBatchItem)]
pub(crate) struct AcceptedJson {
    /// Its place in the batch, from 0.
    index: usize,
    id: Id,
}

/// An event that was not accepted.
#[derive(Serialize, ToSchema)]
#[schema(as = EventBatchError)]
pub(crate) struct RefusedJson {
    /// Its place in the batch, from 0.
    index: usize,
    /// The cause, in words.
    message: String,
}

impl From<BatchReport> for BatchJson {
    fn from(report: BatchReport) -> Self {
        let accepted = |(index, id): (usize, EventId)| AcceptedJson { index, id: Id(id.0) };
        let refused = |(index, message): (usize, String)| RefusedJson { index, message };
        Self {
            data: report.accepted.into_iter().map(accepted).collect(),
            errors: report.refused.into_iter().map(refused).collect(),
        }
    }
}

/// One event of a batch. What is wrong with it is an error of this event alone.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = BatchEvent)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct BatchEventInputJson {
    /// The device event element.
    #[schema(min_length = 1, max_length = 128)]
    element_name: String,
    /// The payload: any JSON but null.
    payload: AnyJson,
    /// The device. Needed with a user's credentials; a device may leave it out, and may name no other.
    #[schema(required = false)]
    device_id: String,
    /// A repetition for the same device within 24 hours does nothing, and is answered the first id.
    #[schema(required = false, min_length = 1, max_length = 64)]
    idempotency_key: String,
}

/// The events of a batch. Those of one device run in this order.
pub(crate) type BatchEventsJson = ListOf<BatchEventInputJson, BATCH_EVENTS_MAX>;
