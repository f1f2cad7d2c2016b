//! Tells whether this node's clock is right. Nodes share moments, so what makes or reads one is refused where the clock is wrong.

use std::sync::atomic::{AtomicI64, Ordering};

use isobar_model::error::Fault;
use isobar_model::time::Clock;
use isobar_store::error::StoreError;

/// Difference of a clock from the registry's, in milliseconds, beyond which a node serves nothing.
pub const CLOCK_DIFFERS_MAX: i64 = 500;

/// Seconds of an hour.
const SECONDS_OF_HOUR: u64 = 3_600;

/// The difference of this node's clock from the registry's. It is known at any moment: between two comparisons the clock is
/// held against the time that passes.
pub(crate) struct ClockDifference {
    /// Milliseconds by which the clock was ahead of the registry's at the last comparison, and its lead then.
    ahead: AtomicI64,
    lead: AtomicI64,
}

impl ClockDifference {
    /// Assumes that the clock is right as it is.
    pub fn new(clock: &Clock) -> Self {
        Self { ahead: AtomicI64::new(0), lead: AtomicI64::new(clock.lead()) }
    }

    /// Notes by how many milliseconds the clock is ahead of the registry's.
    pub fn note(&self, clock: &Clock, ahead: i64) {
        self.lead.store(clock.lead(), Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Returns by how many milliseconds the clock is ahead of the registry's now.
    pub fn ahead(&self, clock: &Clock) -> i64 {
        let set_since = clock.lead().saturating_sub(self.lead.load(Ordering::Relaxed));
        self.ahead.load(Ordering::Relaxed).saturating_add(set_since)
    }

    /// Returns true if the clock is wrong.
    fn is_off(&self, clock: &Clock) -> bool {
        self.ahead(clock).unsigned_abs() > CLOCK_DIFFERS_MAX.unsigned_abs()
    }
}

impl super::Env {
    /// Returns the difference of this node's clock from the registry's.
    pub fn clock_difference(&self) -> &ClockDifference {
        &self.clock_difference
    }

    /// Fails on a node whose clock is wrong.
    ///
    /// # Errors
    /// `Busy`: other nodes would take its moments for true ones.
    pub fn must_have_clock(&self) -> Result<(), StoreError> {
        match self.config.has_other_nodes && self.clock_difference.is_off(&self.clock) {
            true => Err(StoreError::Busy),
            false => Ok(()),
        }
    }

    /// Returns a warning, under this name, while the clock has jumped ahead by days and is not followed.
    pub fn clock_warning(&self, name: &'static str) -> Option<Fault> {
        let hours = self.clock.distrusted().as_secs() / SECONDS_OF_HOUR;
        let why = || {
            format!("the clock has jumped ahead by {hours} hours: it is followed when it has been ahead for an hour")
        };
        (hours > 0).then(|| Fault::new(name, why()))
    }

    /// Returns the fault of a node whose clock is wrong, under this name.
    pub fn clock_matter(&self, name: &'static str) -> Option<Fault> {
        self.must_have_clock().err().map(|_| {
            let ahead = self.clock_difference.ahead(&self.clock);
            Fault::new(name, format!("the clock differs by {ahead} ms from the registry's"))
        })
    }
}
