//! What is measured. Handles are made once for each route: a request touches counters, it looks none up.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

const REQUESTS: &str = "isobar_http_requests_total";
const SECONDS: &str = "isobar_http_request_duration_seconds";
const CONNECTIONS: &str = "isobar_http_connections";
const EVENTS_ACCEPTED: &str = "isobar_events_accepted_total";

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 12] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Statuses that are told apart; any other is counted as `other`.
const STATUSES: [(u16, &str); 13] = [
    (200, "200"),
    (201, "201"),
    (204, "204"),
    (302, "302"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (413, "413"),
    (429, "429"),
    (500, "500"),
    (503, "503"),
];

/// A Prometheus recorder with Isobar's buckets. Install it before [`crate::app`] is called, which makes the handles.
pub fn prometheus() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets_for_metric(Matcher::Full(SECONDS.to_owned()), &BUCKETS)
}

/// What the whole room measures.
pub(crate) struct Meters {
    /// Connections that are open.
    pub connections: Gauge,
    /// Device events that were answered with 201.
    pub events_accepted: Counter,
}

impl Meters {
    pub fn new() -> Self {
        metrics::describe_counter!(REQUESTS, "HTTP requests by route and status");
        metrics::describe_histogram!(SECONDS, Unit::Seconds, "Duration of HTTP requests by route");
        metrics::describe_gauge!(CONNECTIONS, "Open HTTP connections");
        metrics::describe_counter!(EVENTS_ACCEPTED, "Device events accepted, durably");
        Self { connections: metrics::gauge!(CONNECTIONS), events_accepted: metrics::counter!(EVENTS_ACCEPTED) }
    }
}

/// What is measured of one route.
pub(crate) struct RouteMeter {
    pub method: &'static str,
    pub path: &'static str,
    /// Made when a status is first seen: a route that never fails shows no failures, and one that is never called
    /// shows nothing.
    requests: [OnceLock<Counter>; STATUSES.len() + 1],
    seconds: OnceLock<Histogram>,
}

impl RouteMeter {
    pub fn new(method: &'static str, path: &'static str) -> Self {
        Self { method, path, requests: Default::default(), seconds: OnceLock::new() }
    }

    /// Notes a request that was answered.
    pub fn note(&self, status: u16, took: Duration) {
        let known = STATUSES.iter().position(|(number, _)| *number == status);
        let name = known.map_or("other", |index| STATUSES[index].1);
        let counter = self.requests[known.unwrap_or(STATUSES.len())].get_or_init(
            || metrics::counter!(REQUESTS, "method" => self.method, "route" => self.path, "status" => name),
        );
        counter.increment(1);
        let seconds =
            self.seconds.get_or_init(|| metrics::histogram!(SECONDS, "method" => self.method, "route" => self.path));
        seconds.record(took.as_secs_f64());
    }
}

/// Counts a connection for as long as it lives.
pub(crate) struct OpenConnection(Gauge);

impl OpenConnection {
    pub fn new(connections: &Gauge) -> Self {
        connections.increment(1.0);
        Self(connections.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
