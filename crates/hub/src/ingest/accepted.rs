//! An event that has run and waits to be durable. It is small, for thousands wait at once: what the run was made of is
//! gone by then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use isobar_design::SHORT_RUN_BYTES_MAX;
use isobar_model::error::Result;
use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::Durable;

use super::Ingest;
use super::run_commit::RunReport;
use crate::cache::entries::DeviceEntry;

/// Done when the event is durable; then it is published. It must be driven to its end.
///
/// # Errors
/// [`isobar_model::error::Error::Busy`] when the store could not make it durable.
#[must_use = "what is not durable must not be acknowledged"]
pub struct Accepted {
    id: EventId,
    /// None: it was durable before.
    pending: Option<PendingCommit>,
}

struct PendingCommit {
    ingest: Arc<Ingest>,
    entry: Arc<DeviceEntry>,
    now: Timestamp,
    report: RunReport,
    durable: Durable,
}

impl Accepted {
    /// An event that was accepted by an earlier request with the same key.
    pub(super) fn before(id: EventId) -> Self {
        Self { id, pending: None }
    }

    pub(super) fn now(
        id: EventId,
        ingest: &Arc<Ingest>,
        entry: &Arc<DeviceEntry>,
        now: Timestamp,
        report: RunReport,
        durable: Durable,
    ) -> Self {
        let (ingest, entry) = (Arc::clone(ingest), Arc::clone(entry));
        Self { id, pending: Some(PendingCommit { ingest, entry, now, report, durable }) }
    }
}

/// Whether an event that was accepted is not durable yet; then it wakes the waker when it is.
pub(super) fn still_pending(accepted: &mut Result<Option<Accepted>>, cx: &mut Context<'_>) -> bool {
    let pending = accepted.as_mut().ok().and_then(Option::as_mut).and_then(|accepted| accepted.pending.as_mut());
    pending.is_some_and(|pending| Pin::new(&mut pending.durable).poll(cx).is_pending())
}

/// Whether an event that was accepted has more to be written than may stand in the log beside the next of its project: all who
/// come in meanwhile wait for as much.
pub(super) fn leaves_much(accepted: &Result<Option<Accepted>>) -> bool {
    let pending = accepted.as_ref().ok().and_then(Option::as_ref).and_then(|accepted| accepted.pending.as_ref());
    pending.is_some_and(|pending| pending.report.bytes > SHORT_RUN_BYTES_MAX)
}

impl Future for Accepted {
    type Output = Result<EventId>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<EventId>> {
        if let Some(pending) = &mut self.pending {
            let durable = ready!(Pin::new(&mut pending.durable).poll(cx));
            if let Some(PendingCommit { ingest, entry, now, report, .. }) = self.pending.take() {
                durable.map_err(crate::error::from_store)?;
                ingest.activity.device(&entry, now);
                ingest.publish(&entry, &report);
            }
        }
        Poll::Ready(Ok(self.id))
    }
}
