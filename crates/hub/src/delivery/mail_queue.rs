//! Sends e-mails, each at least once. Each is stored in the registry before the call that caused it is answered, and
//! stays there until it was sent or has become too old (contract: The project design).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use isobar_store::error::StoreError;
use isobar_store::registry::{DeliveryKind, QueuedDelivery};
use isobar_traces::Span;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::turns::{Turns, claim_end};
use super::{Delivery, is_too_old};
use crate::supervisor::{Shift, guarded, spawn_guarded_in};
use crate::support::scope_guard::ScopeGuard;

/// E-mails sent at the same time, and how many of them may be notices, so that an e-mail with a link finds room.
const MAILS_AT_ONCE: usize = 8;
const NOTICE_MAILS_AT_ONCE: usize = 6;
/// Interval at which the registry is asked for due e-mails while some are pending.
const MAIL_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest pause after a failure of the registry.
const REGISTRY_PAUSE: Duration = Duration::from_secs(5);

const OUTCOMES: &str = "isobar_deliveries_total";

/// The failure of an attempt.
#[derive(Debug)]
pub(super) enum Undelivered {
    /// A retry may succeed.
    NotNow(String),
    /// No retry can succeed.
    Never(String),
}

impl From<StoreError> for Undelivered {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Gone(what) => Self::Never(format!("{what} is gone")),
            other => Self::NotNow(other.to_string()),
        }
    }
}

/// The worker's wake-up signal, and the attempts that are running.
pub(super) struct MailQueue {
    pub wake: Notify,
    /// The turns of tenants by kind, each with its limit on concurrent e-mails: links come first.
    turns: [(Turns, usize); 2],
    /// E-mails of running attempts, which are still in the registry.
    under_way: Mutex<HashSet<String>>,
}

impl Default for MailQueue {
    fn default() -> Self {
        let links = (Turns::new(DeliveryKind::Link), MAILS_AT_ONCE);
        let notices = (Turns::new(DeliveryKind::Mail), NOTICE_MAILS_AT_ONCE);
        Self { wake: Notify::new(), turns: [links, notices], under_way: Mutex::default() }
    }
}

impl Delivery {
    /// Sends e-mails as they become due, until the hub stops.
    pub(crate) async fn run_mail(self: Arc<Self>, mut shift: Shift) {
        let mut tries = JoinSet::new();
        loop {
            self.env.reaches("deliveries");
            let idle = match self.begin_tries(&mut tries).await {
                Ok(idle) => idle,
                Err(error) => {
                    tracing::warn!(%error, "e-mails wait for the registry");
                    if shift.pause(REGISTRY_PAUSE).await {
                        break;
                    }
                    continue;
                }
            };
            shift.well();
            tokio::select! {
                () = self.mail_queue.wake.notified() => {}
                Some(_) = tries.join_next() => {}
                () = self.env.clock().sleep(MAIL_LOOK_EVERY), if !idle || self.env.config().has_other_nodes => {}
                () = shift.end() => break,
            }
        }
        // An attempt that does not end now is repeated at the next start.
        tries.shutdown().await;
    }

    /// Starts sending due e-mails while there is room; returns true if nothing is pending that is not being sent.
    async fn begin_tries(self: &Arc<Self>, tries: &mut JoinSet<()>) -> std::result::Result<bool, StoreError> {
        while tries.try_join_next().is_some() {}
        let registry = self.env.registry();
        let mut is_idle = true;
        let under_way = self.mail_queue.under_way.lock().clone();
        self.keep_claims(&under_way).await?;
        for (turns, most) in &self.mail_queue.turns {
            let room = most.saturating_sub(tries.len());
            let under_way = self.mail_queue.under_way.lock().clone();
            for queued in turns.take(&self.env, room, &under_way).await? {
                self.begin_try(turns.kind(), queued, tries);
            }
            // A running attempt is still in the registry: until it is removed, the worker looks again.
            is_idle = is_idle && registry.deliveries_next(turns.kind()).await?.is_none();
        }
        Ok(is_idle || tries.len() >= MAILS_AT_ONCE)
    }

    /// Prolongs the claims of deliveries that are under way, where other processes make deliveries too.
    pub(super) async fn keep_claims(&self, under_way: &HashSet<String>) -> std::result::Result<(), StoreError> {
        let registry = self.env.registry();
        if !self.env.config().has_other_nodes || under_way.is_empty() {
            return Ok(());
        }
        registry.deliveries_keep(under_way.iter().map(String::as_str), claim_end(self.env.now())).await
    }

    fn begin_try(self: &Arc<Self>, kind: DeliveryKind, queued: QueuedDelivery, tries: &mut JoinSet<()>) {
        if !self.mail_queue.under_way.lock().insert(queued.id.clone()) {
            return;
        }
        let delivery = Arc::clone(self);
        let try_it = async move {
            let (owner, id, clock) = (Arc::clone(&delivery), queued.id.clone(), delivery.env.clock().clone());
            // Allows the next attempt however this one ends, by a panic or because the worker stops.
            let _under_way = ScopeGuard::new(move || {
                owner.mail_queue.under_way.lock().remove(&id);
            });
            if guarded("delivery", delivery.deliver_now(kind, queued)).await.is_none() {
                // Recording the outcome failed: the delivery is due again at once.
                clock.sleep(REGISTRY_PAUSE).await;
            }
        };
        spawn_guarded_in(tries, "delivery", try_it);
    }

    /// Sends one e-mail and records the outcome.
    async fn deliver_now(&self, kind: DeliveryKind, queued: QueuedDelivery) {
        let deliver = async {
            self.env.reaches("delivery");
            self.send_email(&queued).await
        };
        let panicked = || Err(Undelivered::NotNow("it panicked".to_owned()));
        let span = Span::of_delivery("send e-mail", kind.name(), None);
        let outcome = isobar_traces::work(span.as_ref(), guarded("delivery", deliver)).await.unwrap_or_else(panicked);
        if let (Some(span), Err(_)) = (&span, &outcome) {
            span.note_failure("not delivered");
        }
        drop(span);
        if let Err(error) = self.note_try(kind, &queued, outcome).await {
            tracing::warn!(%error, id = queued.id, "how a delivery went could not be noted: it will be made again");
        }
    }

    async fn note_try(
        &self,
        kind: DeliveryKind,
        queued: &QueuedDelivery,
        outcome: std::result::Result<(), Undelivered>,
    ) -> std::result::Result<(), StoreError> {
        let now = self.env.now();
        let count = |outcome: &'static str| {
            metrics::counter!(OUTCOMES, "kind" => kind.name(), "outcome" => outcome).increment(1);
        };
        match outcome {
            Ok(()) => count("made"),
            Err(Undelivered::NotNow(why)) if !is_too_old(queued, now) => {
                count("failed");
                let attempts = queued.attempts.saturating_add(1);
                let due_at = self.env.due_again(attempts, now);
                tracing::warn!(why, id = queued.id, kind = kind.name(), attempts, %due_at, "a delivery failed and is tried again");
                return self.env.registry().delivery_failed(&queued.id, attempts, due_at).await;
            }
            Err(Undelivered::NotNow(why) | Undelivered::Never(why)) => {
                count("given_up");
                tracing::error!(why, id = queued.id, kind = kind.name(), "a delivery is given up");
            }
        }
        self.env.registry().delivery_done(&queued.id).await
    }
}
