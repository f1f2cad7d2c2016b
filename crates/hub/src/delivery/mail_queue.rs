//! Deliveries: what leaves the house, at least once. Each is kept in the registry before the call that caused it is
//! answered, and stays there until it was made or has become too old (contract: The project design).

use std::collections::HashSet;
use std::time::Duration;

use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::registry::Delivery;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::Hub;
use crate::supervisor::{Shift, guarded, spawn_guarded_in};
use crate::support::scope_guard::Otherwise;

/// E-mails.
pub(crate) const MAIL: &str = "mail";
/// Every kind, and the worker of its lane: each has one of its own, so that one whose other side is slow does not hold up the
/// others.
const KINDS: &[(&str, &str)] = &[(MAIL, "deliveries_mail")];

/// Deliveries of one kind that are tried at the same time.
const AT_ONCE: usize = 8;
/// How often a lane looks for what is due while something waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest pause after a failure of the registry.
const REGISTRY_PAUSE: Duration = Duration::from_secs(5);
/// First pause after a failed try, in seconds; it doubles up to [`RETRY_MAX_SECONDS`].
const RETRY_FIRST_SECONDS: i64 = 5;
/// Longest pause after a failed try, in seconds.
const RETRY_MAX_SECONDS: i64 = 3600;
/// A pause is longer or shorter than it should be by up to a fifth, so that what failed together does not return together.
const JITTER: f64 = 0.2;
/// After this many seconds a delivery that still fails is given up: three days.
const GIVE_UP_SECONDS: i64 = 3 * 24 * 3600;

const OUTCOMES: &str = "isobar_deliveries_total";

/// How a try ended that did not succeed.
#[derive(Debug)]
pub(crate) enum Undelivered {
    /// It may succeed another time.
    NotNow(String),
    /// It never will.
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

/// One lane for each kind.
pub(crate) struct Deliveries {
    lanes: Vec<Lane>,
}

struct Lane {
    kind: &'static str,
    worker: &'static str,
    wake: Notify,
    /// Those that are being tried: they are still in the registry.
    under_way: Mutex<HashSet<String>>,
}

impl Deliveries {
    pub(crate) fn new() -> Self {
        let lane = |(kind, worker): &(&'static str, &'static str)| Lane {
            kind,
            worker,
            wake: Notify::new(),
            under_way: Mutex::new(HashSet::new()),
        };
        Self { lanes: KINDS.iter().map(lane).collect() }
    }

    /// Something was put into the registry.
    pub(crate) fn wake(&self) {
        self.lanes.iter().for_each(|lane| lane.wake.notify_one());
    }
}

impl Hub {
    /// Starts the lanes.
    pub(crate) fn employ_deliveries(&self) {
        for (place, lane) in self.0.deliveries.lanes.iter().enumerate() {
            let hub = self.clone();
            self.employ(lane.worker, move |shift| hub.clone().run_lane(place, shift));
        }
    }

    async fn run_lane(self, place: usize, mut shift: Shift) {
        let lane = &self.0.deliveries.lanes[place];
        let mut tries = JoinSet::new();
        loop {
            self.reaches("deliveries");
            let idle = match self.begin_tries(place, &mut tries).await {
                Ok(idle) => idle,
                Err(error) => {
                    tracing::warn!(%error, kind = lane.kind, "deliveries wait for the registry");
                    if shift.pause(REGISTRY_PAUSE).await {
                        break;
                    }
                    continue;
                }
            };
            shift.well();
            tokio::select! {
                () = lane.wake.notified() => {}
                Some(_) = tries.join_next() => {}
                () = tokio::time::sleep(LOOK_EVERY), if !idle => {}
                () = shift.end() => break,
            }
        }
        // What is under way is tried again at the next start, should it not end now.
        tries.shutdown().await;
    }

    /// Begins to try what is due, as far as there is room; true: nothing waits that is not under way.
    async fn begin_tries(&self, place: usize, tries: &mut JoinSet<()>) -> std::result::Result<bool, StoreError> {
        let lane = &self.0.deliveries.lanes[place];
        let now = self.0.clock.now();
        while tries.try_join_next().is_some() {}
        let due = self.0.registry.deliveries_due(lane.kind, now, 2 * AT_ONCE).await?;
        for delivery in due {
            if tries.len() >= AT_ONCE {
                return Ok(true);
            }
            if lane.under_way.lock().insert(delivery.id.clone()) {
                let hub = self.clone();
                let try_it = async move {
                    let (lanes, id) = (hub.clone(), delivery.id.clone());
                    // However the try ends, by a panic or because its lane ends: the next one may begin.
                    let _under_way = Otherwise::new(move || {
                        lanes.0.deliveries.lanes[place].under_way.lock().remove(&id);
                    });
                    if guarded("delivery", hub.deliver_now(place, delivery)).await.is_none() {
                        // It was the noting that failed: the delivery is due again at once.
                        tokio::time::sleep(REGISTRY_PAUSE).await;
                    }
                };
                spawn_guarded_in(tries, "delivery", try_it);
            }
        }
        // What is being tried is still in the registry: as long as it is, the lane looks again.
        Ok(self.0.registry.deliveries_next(lane.kind).await?.is_none())
    }

    /// Tries one delivery and notes how it went.
    async fn deliver_now(&self, place: usize, delivery: Delivery) {
        let lane = &self.0.deliveries.lanes[place];
        let deliver = async {
            self.reaches("delivery");
            match lane.kind {
                MAIL => self.send_letter(&delivery).await,
                other => Err(Undelivered::Never(format!("nobody knows what a {other} is"))),
            }
        };
        let panicked = || Err(Undelivered::NotNow("it panicked".to_owned()));
        let outcome = guarded("delivery", deliver).await.unwrap_or_else(panicked);
        let noted = self.note(lane.kind, &delivery, outcome).await;
        if let Err(error) = noted {
            tracing::warn!(%error, id = delivery.id, "how a delivery went could not be noted: it will be made again");
        }
    }

    async fn note(
        &self,
        kind: &'static str,
        delivery: &Delivery,
        outcome: std::result::Result<(), Undelivered>,
    ) -> std::result::Result<(), StoreError> {
        let now = self.0.clock.now();
        let count = |outcome: &'static str| {
            metrics::counter!(OUTCOMES, "kind" => kind, "outcome" => outcome).increment(1);
        };
        let too_old = is_too_old(delivery, now);
        match outcome {
            Ok(()) => count("made"),
            Err(Undelivered::NotNow(why)) if !too_old => {
                count("failed");
                let attempts = delivery.attempts.saturating_add(1);
                let due_at = self.due_again(attempts, now);
                tracing::warn!(why, id = delivery.id, kind, attempts, %due_at, "a delivery failed and is tried again");
                return self.0.registry.delivery_failed(&delivery.id, attempts, due_at).await;
            }
            Err(Undelivered::NotNow(why) | Undelivered::Never(why)) => {
                count("given_up");
                tracing::error!(why, id = delivery.id, kind, "a delivery is given up");
            }
        }
        self.0.registry.delivery_done(&delivery.id).await
    }

    /// When what has failed so often is tried again.
    pub(crate) fn due_again(&self, attempts: u32, now: Timestamp) -> Timestamp {
        let share = self.0.chance.with(|rng| rng.random_range(1.0 - JITTER..1.0 + JITTER));
        Timestamp::from_millis(now.millis().saturating_add(back_off_millis(attempts, share)))
    }
}

/// Whether a delivery that still fails is given up.
pub(crate) fn is_too_old(delivery: &Delivery, now: Timestamp) -> bool {
    now >= delivery.created_at.plus_seconds(GIVE_UP_SECONDS)
}

/// How long to wait after so many failed tries: `share` of a pause that doubles.
fn back_off_millis(attempts: u32, share: f64) -> i64 {
    let doubled = RETRY_FIRST_SECONDS.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    (doubled.min(RETRY_MAX_SECONDS) as f64 * 1000.0 * share) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let pauses: Vec<i64> = [1, 2, 3, 10, 11, 1000, u32::MAX].map(|tries| back_off_millis(tries, 1.0)).to_vec();
        assert_eq!(pauses, [5_000, 10_000, 20_000, 2_560_000, 3_600_000, 3_600_000, 3_600_000]);
        assert_eq!(back_off_millis(1, 0.8), 4_000);
    }
}
