//! State shared by all calls, and the operator's settings of HTTP.

use std::sync::Arc;
use std::time::Duration;

use isobar_hub::{Hub, TenantShares, WaitPlaces, limits};
use isobar_model::time::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use crate::console::ConsoleFile;
use crate::meters::Meters;
use crate::request::{Network, TRANSFER_TIME};
use crate::response::RequestIds;

/// Quarters of all connections that long polls and streams may take: a new client still needs a connection to ask for a
/// place.
const LONG_WAITS_QUARTERS: usize = 3;

/// The operator's settings of HTTP.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Most bytes of a body, unless the operation has a limit of its own.
    pub max_body_bytes: usize,
    /// Origins whose pages may call the API; empty: CORS is off. `*` stands for any, without cookies.
    pub cors_origins: Vec<String>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Proxies that are trusted to name the client whose call they forward.
    pub trusted_proxies: Vec<Network>,
    /// True if health and metrics are served on a listener of their own only.
    pub has_operations_listener: bool,
    /// Commit that the program was built from, if known. Not set by operators.
    pub commit: Option<&'static str>,
    /// Files of the web console; empty in a program without it.
    pub console: &'static [ConsoleFile],
    /// Status of scheduled backups; `None` if there are none.
    pub backup: Option<watch::Receiver<BackupStanding>>,
    /// Time limit of each request body and response. Not set by operators; tests shorten it.
    pub transfer_time: Duration,
    /// Most bytes of request bodies in flight. Not set by operators.
    pub body_memory_bytes_max: usize,
    /// Most bytes of responses in flight. Not set by operators.
    pub response_memory_bytes_max: usize,
    /// Most bytes of responses by HTTP/2 that a tenant has not taken. Not set by operators.
    pub http2_answer_bytes_max: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            cors_origins: Vec::new(),
            max_connections: 20_000,
            trusted_proxies: Vec::new(),
            has_operations_listener: false,
            commit: None,
            console: &[],
            backup: None,
            transfer_time: TRANSFER_TIME,
            body_memory_bytes_max: limits::BODY_MEMORY.of_all,
            response_memory_bytes_max: limits::RESPONSE_MEMORY.of_all,
            http2_answer_bytes_max: limits::MULTIPLEXED_ANSWERS.of_one,
        }
    }
}

/// Status of scheduled backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupStanding {
    /// Time of the newest successful backup.
    pub last_good: Option<Timestamp>,
    /// True if the newest attempt failed.
    pub is_failing: bool,
}

/// State shared by all calls.
pub(crate) struct ServerState {
    pub hub: Hub,
    pub settings: HttpSettings,
    pub metrics: PrometheusHandle,
    pub meters: Meters,
    pub request_ids: RequestIds,
    /// Bytes of request bodies in flight.
    pub body_memory: Arc<TenantShares>,
    /// Bytes of responses in flight.
    pub response_memory: Arc<TenantShares>,
    /// Bytes of responses by HTTP/2 that are not taken.
    pub http2_answers: Arc<TenantShares>,
    /// Places of long polls and streams.
    pub long_waits: Arc<WaitPlaces>,
    /// Becomes true when the server stops, which ends streams.
    pub stopping: watch::Sender<bool>,
}

impl ServerState {
    pub fn new(hub: Hub, settings: HttpSettings, metrics: PrometheusHandle) -> Self {
        let http2_answers = limits::Limit { of_one: settings.http2_answer_bytes_max, ..limits::MULTIPLEXED_ANSWERS };
        let waits = settings.max_connections / 4 * LONG_WAITS_QUARTERS;
        Self {
            request_ids: RequestIds::new(hub.clock().now()),
            body_memory: TenantShares::new(&limits::BODY_MEMORY.with_total(settings.body_memory_bytes_max)),
            response_memory: TenantShares::new(&limits::RESPONSE_MEMORY.with_total(settings.response_memory_bytes_max)),
            http2_answers: TenantShares::new(&http2_answers),
            long_waits: WaitPlaces::new(&limits::LONG_WAITS.with_total(waits)),
            meters: Meters::new(),
            stopping: watch::Sender::new(false),
            hub,
            settings,
            metrics,
        }
    }
}
