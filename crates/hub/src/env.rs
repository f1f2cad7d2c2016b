//! Provides the stores, the clock, random numbers and the configuration to all modules.

mod clock_difference;

use std::sync::Arc;
use std::time::Duration;

use isobar_model::chance::Chance;
use isobar_model::error::Result;
use isobar_model::ids::{EventId, IdMint};
use isobar_model::time::{Clock, Timestamp};
use isobar_store::registry::Registry;
use isobar_store::telemetry::Telemetry;
use rand::RngExt as _;

pub use self::clock_difference::CLOCK_DIFFERS_MAX;
use self::clock_difference::ClockDifference;
use crate::config::Config;
#[cfg(test)]
use crate::supervisor::faults::Faults;
use crate::support::body_reader::BodyReader;

/// First pause before failed work is retried, in seconds; it doubles up to [`RETRY_MAX_SECONDS`].
const RETRY_FIRST_SECONDS: i64 = 5;
/// Longest pause before failed work is retried, in seconds.
const RETRY_MAX_SECONDS: i64 = 3600;
/// Largest random change of a pause, as a fraction, so that work that failed together is not retried together.
const JITTER: f64 = 0.2;

/// The stores, the clock, random numbers and the configuration, which cannot be replaced later. It does not depend on
/// any other module of the hub's domain.
pub(crate) struct Env {
    registry: Registry,
    telemetry: Arc<dyn Telemetry>,
    clock: Clock,
    chance: Chance,
    config: Config,
    bodies: BodyReader,
    mint: IdMint,
    clock_difference: ClockDifference,
    #[cfg(test)]
    pub faults: Faults,
}

impl Env {
    pub fn new(
        registry: Registry,
        telemetry: Arc<dyn Telemetry>,
        clock: Clock,
        chance: Chance,
        config: Config,
    ) -> Result<Self> {
        Ok(Self {
            registry,
            telemetry,
            clock_difference: ClockDifference::new(&clock),
            clock,
            chance,
            config,
            bodies: BodyReader::new()?,
            mint: IdMint::new(),
            #[cfg(test)]
            faults: Faults::default(),
        })
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn telemetry(&self) -> &dyn Telemetry {
        &*self.telemetry
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the time of the clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn chance(&self) -> &Chance {
        &self.chance
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the reader of call bodies.
    pub fn bodies(&self) -> &BodyReader {
        &self.bodies
    }

    /// Continues the identifiers of earlier processes: the first new one is greater than all in the stores.
    pub async fn ids_go_on(&self) -> Result<()> {
        let stored = self.telemetry.newest_event();
        let newest = self.registry.newest_id().await?.map_or(stored, |registered| stored.max(registered));
        self.ids_go_on_behind(newest);
        let (clock, newest) = (self.now(), newest.minted_at());
        if newest > clock {
            tracing::warn!(%clock, %newest, "the clock is behind the newest identifier: until it has caught up, what comes bears that moment");
        }
        Ok(())
    }

    /// Makes new identifiers greater than this one, even if a clock that was ahead has made it.
    pub fn ids_go_on_behind(&self, newest: EventId) {
        self.mint.go_on_behind(newest.0);
    }

    /// Makes an identifier of the present time, or just after the newest one: identifiers always grow.
    pub fn new_id(&self) -> EventId {
        let now = self.clock.now();
        EventId(self.chance.with(|rng| self.mint.mint(now, rng)))
    }

    /// Returns the time of the next retry after `attempts` failures: later each time, up to an hour.
    pub fn due_again(&self, attempts: u32, now: Timestamp) -> Timestamp {
        let share = self.chance.with(|rng| rng.random_range(1.0 - JITTER..1.0 + JITTER));
        Timestamp::from_millis(now.millis().saturating_add(back_off_millis(attempts, share)))
    }

    /// Waits for a time by chance, up to `most`, so that two that have met do not meet again.
    pub async fn pause_by_chance(&self, most: Duration) {
        let share = self.chance.with(|rng| rng.random_range(0.0..1.0));
        self.clock.sleep(most.mul_f64(share)).await;
    }

    /// Does nothing; in tests of this crate it panics at requested points.
    #[cfg(not(test))]
    #[inline(always)]
    pub fn reaches(&self, _point: &'static str) {}

    /// Panics if a test has requested it for this point.
    #[cfg(test)]
    pub fn reaches(&self, point: &'static str) {
        self.faults.reached(point);
    }
}

/// Returns the pause in milliseconds after this many failures: `share` of a pause that doubles.
fn back_off_millis(attempts: u32, share: f64) -> i64 {
    let doubled = RETRY_FIRST_SECONDS.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    (doubled.min(RETRY_MAX_SECONDS) as f64 * 1000.0 * share) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_an_hour() {
        let pauses: Vec<i64> = [1, 2, 3, 10, 11, 1000, u32::MAX].map(|tries| back_off_millis(tries, 1.0)).to_vec();
        assert_eq!(pauses, [5_000, 10_000, 20_000, 2_560_000, 3_600_000, 3_600_000, 3_600_000]);
        assert_eq!(back_off_millis(1, 0.8), 4_000);
    }
}
