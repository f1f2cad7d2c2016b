//! An event on its way: as it came in, and the signal that it has run.

use std::borrow::Cow;
use std::sync::Arc;

use isobar_model::ids::EventId;
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::Idempotency;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Lifetime of an idempotency key in seconds (contract: Events).
const IDEMPOTENCY_SECONDS: i64 = 24 * 3600;

/// An event as it came in.
pub(super) struct Incoming<'a> {
    pub element: Arc<str>,
    pub payload: RawJson,
    pub idempotency_key: Option<Cow<'a, str>>,
    pub now: Timestamp,
    /// The reason for storing it in history only, without a run.
    pub refused: Option<Cow<'a, str>>,
    /// Told when the event has run, before it is durable: its device's next one may run.
    pub ran: Option<RunSignal>,
}

impl Incoming<'_> {
    /// Returns a copy that owns its texts. The payload is shared.
    pub fn to_owned(&self) -> Incoming<'static> {
        let owned = |text: &Option<Cow<'_, str>>| text.as_deref().map(|text| Cow::Owned(text.to_owned()));
        Incoming {
            element: Arc::clone(&self.element),
            payload: self.payload.clone(),
            idempotency_key: owned(&self.idempotency_key),
            now: self.now,
            refused: owned(&self.refused),
            ran: self.ran.clone(),
        }
    }
}

/// Tells once that an event has run; when it is dropped before, that it never will.
pub(crate) type RunSignal = Arc<Mutex<Option<oneshot::Sender<()>>>>;

/// Signals that the event has run.
pub(super) fn tell(ran: &RunSignal) {
    if let Some(ran) = ran.lock().take() {
        // Nobody waits for the last one.
        let _ = ran.send(());
    }
}

/// An idempotency key, and the answer that it stands for.
pub(super) fn remembered(key: &str, answer: EventId, now: Timestamp) -> Idempotency {
    Idempotency { key: key.to_owned(), answer, expires_at: now.plus_seconds(IDEMPOTENCY_SECONDS) }
}
