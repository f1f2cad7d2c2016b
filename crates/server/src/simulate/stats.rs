//! Counts and latencies of a run.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::{CreationError, Histogram};
use serde_json::{Value, json};

/// Longest recorded latency: one minute, in microseconds.
const LATENCY_MAX_MICROS: u64 = 60_000_000;
/// Significant digits of latencies.
const LATENCY_DIGITS: u8 = 3;

/// Counts of a run, shared by all connections and the view.
pub struct Stats(Mutex<Tally>);

struct Tally {
    events: u64,
    latency: Histogram<u64>,
    /// Latencies since the last look of the view.
    recent: Histogram<u64>,
    errors: BTreeMap<String, u64>,
    spent: u64,
}

/// Latencies of answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 90th percentile.
    pub p90: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: Duration::from_micros(histogram.max()) }
    }
}

/// The counts at one moment.
#[derive(Clone, Debug, Default)]
pub struct StatsSnapshot {
    /// Events that the server acknowledged.
    pub events: u64,
    /// Latencies of the whole run, or since the last look.
    pub latency: Latency,
    /// Errors by kind.
    pub errors: BTreeMap<String, u64>,
    /// Number of times a device exhausted its rate limit and waited for the next minute.
    pub spent: u64,
}

impl StatsSnapshot {
    /// Returns the number of errors.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl Stats {
    /// Makes empty counts.
    pub fn new() -> Result<Self, CreationError> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX_MICROS, LATENCY_DIGITS);
        Ok(Self(Mutex::new(Tally {
            events: 0,
            latency: histogram()?,
            recent: histogram()?,
            errors: BTreeMap::new(),
            spent: 0,
        })))
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an acknowledged event.
    pub fn event(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut tally = self.tally();
        tally.events += 1;
        tally.latency.saturating_record(micros);
        tally.recent.saturating_record(micros);
    }

    /// Counts an error.
    pub fn error(&self, kind: String) {
        *self.tally().errors.entry(kind).or_default() += 1;
    }

    /// Counts a device that exhausted its rate limit.
    pub fn spent(&self) {
        self.tally().spent += 1;
    }

    /// Returns the counts of the whole run so far.
    pub fn whole(&self) -> StatsSnapshot {
        let tally = self.tally();
        tally.with(Latency::of(&tally.latency))
    }

    /// Returns the same counts, with the latencies since the last look.
    pub fn look(&self) -> StatsSnapshot {
        let mut tally = self.tally();
        let latency = Latency::of(&tally.recent);
        tally.recent.reset();
        tally.with(latency)
    }
}

impl Tally {
    fn with(&self, latency: Latency) -> StatsSnapshot {
        StatsSnapshot { events: self.events, latency, errors: self.errors.clone(), spent: self.spent }
    }
}

/// The result of a run.
pub struct Summary {
    /// The name of the profile.
    pub profile: &'static str,
    /// Devices that posted.
    pub devices: usize,
    /// Duration of the load.
    pub elapsed: Duration,
    /// The counts.
    pub counts: StatsSnapshot,
}

impl Summary {
    fn rate(&self) -> f64 {
        self.counts.events as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    /// Formats it for programs.
    pub fn json(&self) -> Value {
        let latency = &self.counts.latency;
        json!({
            "profile": self.profile,
            "devices": self.devices,
            "seconds": round(self.elapsed.as_secs_f64()),
            "events": self.counts.events,
            "eventsPerSecond": round(self.rate()),
            "latencyMs": {
                "p50": millis(latency.p50), "p90": millis(latency.p90), "p99": millis(latency.p99), "max": millis(latency.max),
            },
            "errors": self.counts.errors,
            "rateLimitSpent": self.counts.spent,
        })
    }

    /// Formats it for people.
    pub fn text(&self) -> String {
        let latency = &self.counts.latency;
        let mut text = format!(
            "{} events from {} devices in {:.1} s: {:.0} events/s\nlatency: p50 {} ms, p90 {} ms, p99 {} ms, max {} ms\n",
            self.counts.events,
            self.devices,
            self.elapsed.as_secs_f64(),
            self.rate(),
            millis(latency.p50),
            millis(latency.p90),
            millis(latency.p99),
            millis(latency.max),
        );
        if self.counts.errors.is_empty() {
            text.push_str("no errors\n");
        }
        for (kind, count) in &self.counts.errors {
            text.push_str(&format!("errors: {count} x {kind}\n"));
        }
        if self.counts.spent > 0 {
            let spent = self.counts.spent;
            text.push_str(&format!(
                "rate limit: spent {spent} times; each time the device waited for the next minute\n"
            ));
        }
        text
    }
}

/// Returns milliseconds with two decimals.
pub fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1_000.0)
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
