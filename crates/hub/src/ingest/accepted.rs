//! An event that has run and waits to be durable. It is small, for thousands wait at once: what the run was made of is
//! gone by then.

use std::sync::Arc;

use isobar_design::SHORT_RUN_BYTES_MAX;
use isobar_model::error::Result;
use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;

use super::Ingest;
use super::revisions::LinePlace;
use super::run_commit::PendingTurn;
use crate::cache::entries::DeviceEntry;

/// An event that has run. What it has caused is acknowledged and published by [`Accepted::durable`].
#[must_use = "what is not durable must not be acknowledged"]
pub struct Accepted {
    id: EventId,
    /// None: it was durable before.
    pending: Option<PendingEvent>,
}

struct PendingEvent {
    ingest: Arc<Ingest>,
    entry: Arc<DeviceEntry>,
    now: Timestamp,
    turn: PendingTurn,
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
        turn: PendingTurn,
    ) -> Self {
        let (ingest, entry) = (Arc::clone(ingest), Arc::clone(entry));
        Self { id, pending: Some(PendingEvent { ingest, entry, now, turn }) }
    }

    /// Returns true if so many of its bytes must be written that the next run of its project must wait for them: every
    /// commit that arrives meanwhile waits for as much.
    pub(super) fn leaves_much(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.turn.bytes > SHORT_RUN_BYTES_MAX)
    }

    /// Keeps the place of its run until the event is done.
    ///
    /// # Errors
    /// `Busy` as for [`Accepted::durable`].
    pub(super) async fn in_line(self, place: LinePlace) -> Result<Self> {
        match place.is_taken() {
            true => self.durable().await.map(Self::before),
            false => Ok(self),
        }
    }

    /// Waits until its commit cannot conflict any more: not at all, in a store that nobody else writes to. The payload is kept
    /// until then, as the event may have to run again.
    pub(super) async fn settled(&mut self) -> std::result::Result<(), StoreError> {
        match &mut self.pending {
            Some(pending) if pending.turn.durable.may_conflict() => pending.turn.durable.wait().await,
            _ => Ok(()),
        }
    }

    /// Waits until it is written, however that ends: [`Accepted::durable`] tells.
    pub(super) async fn written(&mut self) {
        if let Some(pending) = &mut self.pending {
            let _ = pending.turn.durable.wait().await;
        }
    }

    /// Waits until the event is durable, and publishes it. It must be driven to its end.
    ///
    /// # Errors
    /// [`isobar_model::error::Error::Busy`] when the store could not make it durable.
    #[expect(
        clippy::manual_async_fn,
        reason = "an argument of an `async fn` is kept twice: as it came, and as it is used"
    )]
    pub fn durable(mut self) -> impl Future<Output = Result<EventId>> + Send {
        async move {
            if let Some(PendingEvent { ingest, entry, now, turn }) = &mut self.pending {
                turn.durable.wait().await?;
                ingest.activity.device(entry, *now);
                ingest.committer.publish(entry, turn.queued);
                if turn.reports {
                    Box::pin(ingest.committer.reported(entry, turn)).await?;
                }
            }
            Ok(self.id)
        }
    }
}
