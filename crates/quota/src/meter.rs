//! Metrics of a limit: its total, what is used of it, and its refusals. The handles are made once for each instance, and
//! record where the recorder is that was installed then.

use metrics::{Counter, Gauge};

use crate::{Full, Limit};

const LIMIT: &str = "isobar_limit";
const LIMIT_USED: &str = "isobar_limit_used";
const LIMIT_REFUSED: &str = "isobar_limit_refused_total";

/// Records what an instance of a rule does with its limit. Instances of one limit add up in what they use.
#[derive(Clone, Debug)]
pub struct LimitMeter {
    limit: &'static str,
    used: Gauge,
    refused: Counter,
}

impl LimitMeter {
    /// Makes the meter of a new instance, and publishes its total if it has one.
    pub fn new(limit: &Limit) -> Self {
        let Limit { name, of_all, .. } = *limit;
        if of_all != usize::MAX {
            metrics::gauge!(LIMIT, "limit" => name).set(of_all as f64);
        }
        let meter = Self {
            limit: name,
            used: metrics::gauge!(LIMIT_USED, "limit" => name),
            refused: metrics::counter!(LIMIT_REFUSED, "limit" => name),
        };
        // Prometheus misses the increase of a counter that appears with its first count.
        meter.used.increment(0.0);
        meter.refused.increment(0);
        meter
    }

    /// Replaces what all instances use, for an amount that is measured from time to time.
    pub fn set_used(&self, amount: usize) {
        self.used.set(amount as f64);
    }

    /// Replaces a part of what is used.
    pub(crate) fn change(&self, before: usize, after: usize) {
        match after >= before {
            true => self.used.increment((after - before) as f64),
            false => self.used.decrement((before - after) as f64),
        }
    }

    /// Counts a refusal, and returns it.
    #[must_use]
    pub fn refuse(&self) -> Full {
        self.refused.increment(1);
        tracing::debug!(limit = self.limit, "a limit is reached");
        Full { limit: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use isobar_model::ids::OrganizationId;
    use metrics_exporter_prometheus::PrometheusBuilder;
    use uuid::Uuid;

    use super::*;
    use crate::{Claim, FairQueue, TenantShares, UNLIMITED, WaitPlaces};

    /// A limit that lets one tenant have 4 of a shared amount, and all together 5 of a queue.
    const FEW: Limit = Limit { name: "few", of_all: 6, of_one: 5, at_once: 1, ..UNLIMITED };

    fn tenant(number: u128) -> OrganizationId {
        OrganizationId(Uuid::from_u128(number))
    }

    /// Plays a scene with a recorder; the scene gets a function that returns the total, what is used, and the refusals.
    fn recorded(scene: impl FnOnce(&dyn Fn() -> [u64; 3])) {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let shown = || {
            let page = handle.render();
            [LIMIT, LIMIT_USED, LIMIT_REFUSED].map(|name| {
                let start = format!("{name}{{limit=\"few\"}} ");
                page.lines().find_map(|line| line.strip_prefix(&*start)?.parse().ok()).unwrap()
            })
        };
        metrics::with_local_recorder(&recorder, || scene(&shown));
    }

    #[test]
    fn shares_record_what_is_held_and_refused() {
        recorded(|shown| {
            let shares = TenantShares::new(&FEW);
            assert_eq!(shown(), [6, 0, 0]);
            let mut share = shares.take(tenant(1), 3).unwrap();
            share.grow(1).unwrap();
            assert_eq!(share.grow(1), Err(Full { limit: "few" }));
            assert!(!shares.has_room(tenant(1), 1) && shares.has_room(tenant(2), 1) && shares.capped(9) == 4);
            assert_eq!(shown(), [6, 4, 1]);
            // Instances of one limit add up.
            let (others, second) = (TenantShares::new(&FEW), tenant(2));
            let other = others.take(second, 2).unwrap();
            assert_eq!(shown(), [6, 6, 1]);
            share.resize(1).unwrap();
            assert_eq!(shown(), [6, 3, 1]);
            drop((share, other));
            assert_eq!(shown(), [6, 0, 1]);
        });
    }

    #[test]
    fn queue_records_what_has_begun_and_is_refused() {
        recorded(|shown| {
            let queue = FairQueue::new(&FEW);
            let take = |of| queue.take(Claim::begin(tenant(of))).boxed();
            let slot = take(1).now_or_never().unwrap().unwrap();
            let mut waiting: Vec<_> = (0..4).map(|_| take(1)).collect();
            assert!(waiting.iter_mut().all(|waits| waits.now_or_never().is_none()));
            assert_eq!(shown(), [6, 5, 0]);
            assert!(matches!(take(1).now_or_never(), Some(Err(Full { limit: "few" }))));
            // A continuation waits, but does not count.
            let mut goes_on = queue.take(Claim::go_on(tenant(3))).boxed();
            assert!((&mut goes_on).now_or_never().is_none());
            let mut others: Vec<_> = (0..2).map(|_| take(2)).collect();
            assert!(others.iter_mut().all(|waits| waits.now_or_never().is_none()));
            // The youngest of the first tenant lost its place to the second one of the other.
            assert!(matches!(waiting.pop().unwrap().now_or_never(), Some(Err(Full { limit: "few" }))));
            assert_eq!(shown(), [6, 6, 2]);
            drop((waiting, others, goes_on));
            assert_eq!(shown(), [6, 1, 2]);
            drop(slot);
            assert_eq!(shown(), [6, 0, 2]);
        });
    }

    #[test]
    fn wait_places_record_what_is_taken_and_refused() {
        recorded(|shown| {
            let places = WaitPlaces::new(&FEW);
            let mut first: Vec<_> = (0..4).map(|_| places.take(Some(tenant(1))).unwrap()).collect();
            assert!(matches!(places.take(Some(tenant(1))), Err(Full { limit: "few" })));
            let second = places.take(Some(tenant(2))).unwrap();
            assert_eq!(shown(), [6, 5, 1]);
            // An evicted wait ends; it is not refused.
            let third = places.take(Some(tenant(3))).unwrap();
            assert_eq!(shown(), [6, 5, 1]);
            drop(first.pop());
            assert_eq!(shown(), [6, 5, 1]);
            drop((first, second, third));
            assert_eq!(shown(), [6, 0, 1]);
        });
    }

    #[test]
    fn refusal_names_its_limit() {
        let refused = TenantShares::new(&FEW).take(tenant(1), 7).unwrap_err();
        assert_eq!(refused.to_string(), "the limit few is reached");
    }
}
