//! What every call shares, and what the operator set for HTTP.

use std::sync::Arc;
use std::time::Duration;

use isobar_hub::{Hub, TenantShares, WaitPlaces};
use isobar_model::time::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use crate::console::ConsoleFile;
use crate::meters::Meters;
use crate::request::{Network, TRANSFER_TIME};
use crate::response::RequestIds;

/// Quarters of all connections that long polls and streams may take: whoever has none must find a connection to ask for a place.
const LONG_WAITS_QUARTERS: usize = 3;

/// Most bytes of bodies that are under way: several of the largest that a setting allows.
const BODY_MEMORY_BYTES_MAX: usize = 256 << 20;
/// Most bytes of stored payloads that are on their way to readers, who may read slowly.
const RESPONSE_MEMORY_BYTES_MAX: usize = 512 << 20;

/// What the operator set for HTTP.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Most bytes of a body, where the operation has no limit of its own.
    pub max_body_bytes: usize,
    /// Origins whose pages may call the API; none: CORS is off. `*` stands for any, without cookies.
    pub cors_origins: Vec<String>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Proxies that are believed when they name the client whose call they pass on.
    pub trusted_proxies: Vec<Network>,
    /// Whether health and metrics have a listener of their own, and only that.
    pub has_operations_listener: bool,
    /// The commit that the program was built from, if the build knew it. Operators do not set it.
    pub commit: Option<&'static str>,
    /// The files of the web console; none in a program without it.
    pub console: &'static [ConsoleFile],
    /// How scheduled backups stand; none: there are none.
    pub backup: Option<watch::Receiver<BackupStanding>>,
    /// How long every body has to come, and every response to be taken. Operators do not set it; tests do not wait so long.
    pub transfer_time: Duration,
    /// Most bytes of bodies that are under way. Operators do not set it either.
    pub body_memory_bytes_max: usize,
    /// Most bytes of stored payloads that are on their way to readers. Operators do not set it either.
    pub response_memory_bytes_max: usize,
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
            body_memory_bytes_max: BODY_MEMORY_BYTES_MAX,
            response_memory_bytes_max: RESPONSE_MEMORY_BYTES_MAX,
        }
    }
}

/// How scheduled backups stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupStanding {
    /// The moment of the newest one that counts.
    pub last_good: Option<Timestamp>,
    /// Whether the newest try failed.
    pub is_failing: bool,
}

/// What every call shares.
pub(crate) struct ServerState {
    pub hub: Hub,
    pub settings: HttpSettings,
    pub metrics: PrometheusHandle,
    pub meters: Meters,
    pub request_ids: RequestIds,
    /// Bytes of bodies that are under way.
    pub body_memory: Arc<TenantShares>,
    /// Bytes of stored payloads that are on their way out, in pages that take long to read.
    pub response_memory: Arc<TenantShares>,
    /// Long polls and streams.
    pub long_waits: Arc<WaitPlaces>,
    /// Becomes true when the server stops: streams without an end then end.
    pub stopping: watch::Sender<bool>,
}

impl ServerState {
    pub fn new(hub: Hub, settings: HttpSettings, metrics: PrometheusHandle) -> Self {
        Self {
            request_ids: RequestIds::new(hub.clock().now()),
            body_memory: TenantShares::fair(settings.body_memory_bytes_max),
            response_memory: TenantShares::fair(settings.response_memory_bytes_max),
            long_waits: WaitPlaces::new(settings.max_connections / 4 * LONG_WAITS_QUARTERS),
            meters: Meters::new(),
            stopping: watch::Sender::new(false),
            hub,
            settings,
            metrics,
        }
    }
}
