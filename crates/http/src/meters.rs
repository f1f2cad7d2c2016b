//! Metrics. Handles are made once for each route, so that a request looks up no counter.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

/// Every metric of every crate and its help text (promtool's rules: each has a HELP, counters end in `_total`, times
/// are in seconds). `docs/operations.md` has the same list.
const ALL: &[(MetricKind, &str, &str)] = &[
    (MetricKind::Counter, EVENTS_ACCEPTED, "Device events accepted, durably"),
    (MetricKind::Counter, REQUESTS, "HTTP requests by route and status"),
    (MetricKind::Histogram, SECONDS, "Duration of HTTP requests by route"),
    (MetricKind::Gauge, CONNECTIONS, "Open HTTP connections"),
    (MetricKind::Gauge, CONNECTIONS_MAX, "HTTP connections that may be open at a time"),
    (MetricKind::Counter, CONNECTIONS_ENDED, "Idle HTTP connections that were closed to make room for others"),
    (MetricKind::Counter, ACCEPT_FAILURES, "HTTP connections that could not be accepted for want of files or memory"),
    (
        MetricKind::Gauge,
        "isobar_telemetry_waiting_commits",
        "Commits that the writer found waiting when it last looked",
    ),
    (MetricKind::Histogram, "isobar_telemetry_batch_commits", "Commits in one batch"),
    (MetricKind::Histogram, "isobar_telemetry_sync_seconds", "Duration of a sync of the write-ahead log"),
    (MetricKind::Counter, "isobar_telemetry_stalls_total", "Batches that took long to apply"),
    (MetricKind::Counter, "isobar_telemetry_refused_total", "Commits refused because too many were waiting"),
    (MetricKind::Counter, "isobar_cloud_events_dropped_total", "Cloud events that a full queue dropped"),
    (MetricKind::Gauge, "isobar_outbox_entries", "Findings of designs that the registry has not been told of"),
    (MetricKind::Gauge, "isobar_outbox_entries_max", "Most of them, of all tenants together"),
    (MetricKind::Gauge, "isobar_outbox_bytes", "Their bytes in memory"),
    (MetricKind::Gauge, "isobar_outbox_bytes_max", "Most bytes of them, of all tenants together"),
    (MetricKind::Gauge, "isobar_outbox_oldest_seconds", "Age of the oldest of them"),
    (
        MetricKind::Gauge,
        "isobar_outbox_parked",
        "Those that the registry refuses for their own sake, as isobar check shows them",
    ),
    (MetricKind::Counter, "isobar_outbox_parked_total", "Findings of designs that were parked"),
    (
        MetricKind::Counter,
        "isobar_outbox_refused_total",
        "Runs refused with 503 because too much waits for the registry",
    ),
    (
        MetricKind::Gauge,
        "isobar_device_cache_bytes",
        "What is cached of devices: metadata, settings, what they cost beside",
    ),
    (MetricKind::Gauge, "isobar_device_cache_bytes_max", "Most of it, of all tenants together"),
    (MetricKind::Gauge, "isobar_plan_cache_bytes", "Bytes of projects' compiled designs that are cached"),
    (MetricKind::Gauge, "isobar_plan_cache_bytes_max", "Most of it, of all tenants together"),
    (MetricKind::Gauge, "isobar_changes_age_seconds", "Age of the last read of what other nodes have changed"),
    (MetricKind::Gauge, "isobar_nodes", "Nodes that serve over the same stores"),
    (MetricKind::Gauge, "isobar_clock_ahead_seconds", "By how much the clock is ahead of the registry's"),
    (MetricKind::Counter, "isobar_deliveries_total", "Tries to deliver something outside, by kind and outcome"),
    (MetricKind::Counter, "isobar_notices_total", "Notices given out, by kind"),
    (
        MetricKind::Counter,
        "isobar_calls_dropped_total",
        "Calls of designs that were dropped: too large, or too many waiting",
    ),
    (MetricKind::Counter, "isobar_call_answers_total", "Answers of calls that their design could not take, by outcome"),
    (MetricKind::Counter, "isobar_device_notices_dropped_total", "Notices of designs dropped because too many waited"),
    (MetricKind::Counter, "isobar_code_runs_total", "Events whose design has code"),
    (MetricKind::Counter, "isobar_code_engines_total", "Engines made for code"),
    (MetricKind::Counter, "isobar_telemetry_reclaim_failures_total", "Tries to give back space that failed"),
    (MetricKind::Counter, "isobar_worker_restarts_total", "Workers that were started again after a panic, by worker"),
    (MetricKind::Counter, "isobar_task_panics_total", "Pieces of work that ended with a panic, by kind of work"),
    (MetricKind::Counter, "isobar_long_runs_total", "Runs of designs in the pool for long ones"),
    (
        MetricKind::Counter,
        "isobar_code_refused_total",
        "Runs of code refused with 503: too many waited, or what waited held too much",
    ),
    (
        MetricKind::Counter,
        "isobar_settings_refused_total",
        "Changes of settings refused with 503: runs that waited held too much",
    ),
    (MetricKind::Counter, "isobar_webhook_refused_total", "Deliveries refused with 503: those under way held too much"),
    (MetricKind::Gauge, "isobar_limit", "Total of a limit that tenants share, by limit"),
    (MetricKind::Gauge, "isobar_limit_used", "What is held, runs or waits under that limit, by limit"),
    (MetricKind::Counter, "isobar_limit_refused_total", "Times that a limit refused something, by limit"),
    (MetricKind::Counter, "isobar_spans_sent_total", "Spans of traces that the collector has taken"),
    (MetricKind::Counter, "isobar_spans_dropped_total", "Spans for which there was no room among those that wait"),
    (MetricKind::Counter, "isobar_spans_failed_total", "Spans that the collector did not take"),
    (MetricKind::Gauge, CERTIFICATE_EXPIRES, "When the certificate of HTTPS ends, in Unix seconds"),
    (MetricKind::Gauge, "isobar_database_ready", "1 if that database answers and takes changes, else 0"),
    (MetricKind::Gauge, "isobar_ready", "1 if that part is ready, else 0: a store, or all workers"),
    (MetricKind::Counter, "isobar_backup_failures_total", "Backups that failed"),
    (MetricKind::Gauge, "isobar_backup_age_seconds", "Age of the newest backup that counts, where they are scheduled"),
    (MetricKind::Gauge, "isobar_backup_missed", "Scheduled moments since the newest backup that counts"),
    (MetricKind::Gauge, "isobar_disk_bytes", "Size of the file system that holds the data folder"),
    (MetricKind::Gauge, "isobar_disk_free_bytes", "What is free of it for the process"),
    (MetricKind::Gauge, "process_start_time_seconds", "When the process started, in Unix seconds"),
    (MetricKind::Gauge, "process_resident_memory_bytes", "Memory of the process that is in use"),
    (MetricKind::Counter, "process_cpu_seconds_total", "Whole seconds of processor time that the process has had"),
];

/// Counters that have labels. They appear with their first count, those of limits with their limit; all others appear at
/// the start, at zero.
const LABELLED: [&str; 7] = [
    REQUESTS,
    "isobar_deliveries_total",
    "isobar_notices_total",
    "isobar_call_answers_total",
    "isobar_worker_restarts_total",
    "isobar_task_panics_total",
    "isobar_limit_refused_total",
];

/// Type of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Describes each metric to the recorder, and registers counters at zero: Prometheus misses the increase of a counter
/// that appears with its first count.
fn describe() {
    for (kind, name, help) in ALL.iter().copied() {
        match kind {
            MetricKind::Counter => {
                metrics::describe_counter!(name, help);
                if !LABELLED.contains(&name) {
                    metrics::counter!(name).increment(0);
                }
            }
            MetricKind::Gauge => metrics::describe_gauge!(name, help),
            MetricKind::Histogram => metrics::describe_histogram!(name, help),
        }
    }
}

const REQUESTS: &str = "isobar_http_requests_total";
const SECONDS: &str = "isobar_http_request_duration_seconds";
const CONNECTIONS: &str = "isobar_http_connections";
const CONNECTIONS_MAX: &str = "isobar_http_connections_max";
const CONNECTIONS_ENDED: &str = "isobar_http_connections_ended_total";
const ACCEPT_FAILURES: &str = "isobar_http_accept_failures_total";
/// Gauge of the time at which the certificate of HTTPS expires.
pub(crate) const CERTIFICATE_EXPIRES: &str = "isobar_certificate_expires_seconds";
const EVENTS_ACCEPTED: &str = "isobar_events_accepted_total";

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 12] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Statuses that are counted separately; any other is counted as `other`.
const STATUSES: [u16; 14] = [200, 201, 204, 302, 400, 401, 403, 404, 405, 408, 413, 429, 500, 503];

/// Returns the builder of a Prometheus recorder with Isobar's buckets. Install the recorder before calling
/// [`crate::app()`], which makes the handles; a recorder that is not installed counts nothing.
///
/// # Errors
/// Fails if the buckets are refused; they are valid constants, so this does not happen.
pub fn prometheus() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets_for_metric(Matcher::Full(SECONDS.to_owned()), &BUCKETS)
}

/// Metrics of all routes together.
pub(crate) struct Meters {
    /// Device events answered with 201.
    pub events_accepted: Counter,
}

impl Meters {
    pub fn new() -> Self {
        describe();
        Self { events_accepted: metrics::counter!(EVENTS_ACCEPTED) }
    }
}

/// Metrics of connections.
pub(crate) struct ConnectionMeters {
    /// Open connections.
    pub open: Gauge,
    /// Most connections.
    pub most: Gauge,
    /// Idle connections that were closed to make room.
    pub ended: Counter,
    /// Connections that could not be accepted.
    pub failed: Counter,
}

impl ConnectionMeters {
    pub fn new() -> Self {
        Self {
            open: metrics::gauge!(CONNECTIONS),
            most: metrics::gauge!(CONNECTIONS_MAX),
            ended: metrics::counter!(CONNECTIONS_ENDED),
            failed: metrics::counter!(ACCEPT_FAILURES),
        }
    }

    /// Returns meters that count nothing.
    pub fn none() -> Self {
        Self { open: Gauge::noop(), most: Gauge::noop(), ended: Counter::noop(), failed: Counter::noop() }
    }
}

/// Metrics of one route.
pub(crate) struct RouteMeter {
    pub method: &'static str,
    pub path: &'static str,
    /// Created when a status first occurs: a route that never fails shows no failures, and one that is never called
    /// shows nothing.
    requests: [OnceLock<Counter>; STATUSES.len() + 1],
    seconds: OnceLock<Histogram>,
}

impl RouteMeter {
    pub fn new(method: &'static str, path: &'static str) -> Self {
        Self { method, path, requests: Default::default(), seconds: OnceLock::new() }
    }

    /// Counts an answered request and records its duration.
    pub fn note(&self, status: u16, took: Duration) {
        let known = STATUSES.iter().position(|known| *known == status);
        let counter = self.requests[known.unwrap_or(STATUSES.len())].get_or_init(|| {
            let name = known.map_or_else(|| "other".to_owned(), |_| status.to_string());
            metrics::counter!(REQUESTS, "method" => self.method, "route" => self.path, "status" => name)
        });
        counter.increment(1);
        let seconds =
            self.seconds.get_or_init(|| metrics::histogram!(SECONDS, "method" => self.method, "route" => self.path));
        seconds.record(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the string literals of Rust source that look like names of metrics; names of crates look the same.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        let literals = text.split('"').skip(1).step_by(2);
        let is_metric = |text: &&str| {
            let word = text.strip_prefix("isobar_").unwrap_or_default();
            let crates = ["model", "design", "store", "threads", "outlets", "hub", "http", "server"];
            !word.is_empty() && !crates.contains(&word) && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        literals.filter(is_metric)
    }

    fn sources(folder: &std::path::Path, each: &mut impl FnMut(&std::path::Path, &str)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, each);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                each(&path, &std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn every_metric_is_described_here_and_in_the_manual() {
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let manual = std::fs::read_to_string(here.join("../../docs/operations.md")).unwrap();
        for (_, name, help) in ALL {
            assert!(manual.contains(&format!("`{name}")), "docs/operations.md does not tell of {name}");
            assert!(!help.is_empty() && help.len() <= 80, "{name}");
        }
        for folder in std::fs::read_dir(here.join("..")).unwrap() {
            sources(&folder.unwrap().path().join("src"), &mut |path, text| {
                // Names made up by tests do not count.
                let text = text.split("#[cfg(test)]").next().unwrap();
                for name in named(text) {
                    assert!(
                        ALL.iter().any(|(_, known, _)| *known == name),
                        "{}: {name} is not described",
                        path.display()
                    );
                }
                let describes = text.contains(concat!("metrics::", "describe_"));
                assert!(!describes || path.ends_with("http/src/meters.rs"), "{} describes a metric", path.display());
            });
        }
    }

    #[test]
    fn names_keep_to_the_rules_of_prometheus() {
        for (kind, name, _) in ALL.iter().copied() {
            // Exporters name metrics of their process `process_…`.
            assert!(name.starts_with("isobar_") || name.starts_with("process_"), "{name}");
            assert!(!name.contains("__"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == MetricKind::Counter, "{name}");
            let last = name.rsplit('_').next().unwrap();
            let odd =
                ["count", "sum", "bucket", "info", "counter", "gauge", "histogram", "milliseconds", "ms", "kb", "mb"];
            assert!(!odd.contains(&last), "{name}");
        }
    }
}
