//! An event that has run and waits to be durable. It is small, for thousands wait at once: what the run was made of is
//! gone by then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use isobar_model::error::Result;
use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::Durable;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::ingest::device_event::Aftermath;

/// Done when the event is durable; then those who wait for what it caused are told. It must be driven to its end.
#[must_use = "what is not durable must not be acknowledged"]
pub struct Accepted {
    id: EventId,
    /// None: it was durable before.
    rest: Option<Rest>,
}

struct Rest {
    hub: Hub,
    entry: Arc<DeviceEntry>,
    now: Timestamp,
    after: Aftermath,
    durable: Durable,
}

impl Accepted {
    /// An event that was accepted by an earlier request with the same key.
    pub(crate) fn before(id: EventId) -> Self {
        Self { id, rest: None }
    }

    pub(crate) fn now(
        id: EventId,
        hub: &Hub,
        entry: &Arc<DeviceEntry>,
        now: Timestamp,
        after: Aftermath,
        durable: Durable,
    ) -> Self {
        Self { id, rest: Some(Rest { hub: hub.clone(), entry: Arc::clone(entry), now, after, durable }) }
    }
}

/// Whether an event that was accepted is not durable yet; then it tells the waker when it is.
pub(crate) fn waits_for_the_disk(accepted: &mut Result<Option<Accepted>>, cx: &mut Context<'_>) -> bool {
    let rest = accepted.as_mut().ok().and_then(Option::as_mut).and_then(|accepted| accepted.rest.as_mut());
    rest.is_some_and(|rest| Pin::new(&mut rest.durable).poll(cx).is_pending())
}

impl Future for Accepted {
    type Output = Result<EventId>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<EventId>> {
        if let Some(rest) = &mut self.rest {
            let durable = ready!(Pin::new(&mut rest.durable).poll(cx));
            if let Some(Rest { hub, entry, now, after, .. }) = self.rest.take() {
                durable.map_err(crate::error::from_store)?;
                hub.0.activity.device(&entry, now);
                hub.tell(&entry, &after);
            }
        }
        Poll::Ready(Ok(self.id))
    }
}
