//! Checks that the platform can work: its databases, its workers, and its clock.

use isobar_model::error::{Error, Fault};
use isobar_model::time::Clock;
use isobar_store::error::StoreError;

use crate::Hub;
use crate::jobs::changes::CHANGES_WORKER;

/// Longest time that a database may take to answer a readiness check, because its callers have short timeouts.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
/// The stores, as readiness names them. All other names are workers.
const STORES: [&str; 2] = ["registry", "telemetry"];
/// Gauge of the readiness of each store, and of all workers together.
const READY: &str = "isobar_ready";

/// A database that the platform uses.
#[derive(Clone, Debug)]
pub struct DatabaseState {
    /// The name by which readiness tells it: that of its store.
    pub name: String,
    /// Host, port and database of its server; `None` for files beside the program.
    pub place: Option<String>,
    /// Why it cannot be used, if it cannot.
    pub fault: Option<Fault>,
}

impl DatabaseState {
    /// Checks a database.
    async fn check(
        clock: &Clock,
        (name, place): (&str, Option<String>),
        asked: impl Future<Output = std::result::Result<(), StoreError>>,
    ) -> DatabaseState {
        let why = match clock.timeout(READY_WITHIN, asked).await {
            Ok(answer) => answer.map_err(Error::from).err().map(|_| "does not work: the log tells why".to_owned()),
            Err(_) => Some(format!("did not answer within {} s", READY_WITHIN.as_secs())),
        };
        Self { name: name.to_owned(), place, fault: why.map(|why| Fault::new(name, why)) }
    }
}

/// Readiness.
impl Hub {
    /// Checks each database, and waits two seconds for it: first the registry's, then those of telemetry.
    pub async fn databases(&self) -> Vec<DatabaseState> {
        let clock = self.clock();
        let [registry, telemetry] = STORES;
        let (registry, telemetry) = tokio::join!(
            DatabaseState::check(clock, (registry, self.registry().place()), self.registry().healthy()),
            DatabaseState::check(clock, (telemetry, None), self.telemetry().healthy()),
        );
        vec![registry, telemetry]
    }

    /// Checks that the databases answer within two seconds each, that no worker keeps panicking, that what other nodes
    /// change is known, and that the clock is the one of the registry. Returns the databases.
    ///
    /// # Errors
    /// Returns the fault of each database and worker that fails the check.
    pub async fn ready(&self) -> std::result::Result<Vec<DatabaseState>, Vec<Fault>> {
        let databases = self.databases().await;
        let faults: Vec<Fault> = databases.iter().filter_map(|database| database.fault.clone()).collect();
        let stale = self.0.caches.freshness().matter(CHANGES_WORKER);
        let others = self.0.jobs.clock_difference.matter().into_iter().chain(stale);
        let faults: Vec<Fault> = faults.into_iter().chain(others).chain(self.0.supervisor.matters()).collect();
        if faults.is_empty() { Ok(databases) } else { Err(faults) }
    }

    /// Updates the gauges that are measured on demand; to be called before metrics are shown. It checks both stores,
    /// and waits for them as long as [`Hub::ready`].
    pub async fn measure(&self) {
        self.0.outbox.measure(self.0.env.clock());
        self.0.caches.measure();
        let faults = self.ready().await.err().unwrap_or_default();
        for store in STORES {
            let works = faults.iter().all(|fault| fault.field != store);
            metrics::gauge!(READY, "part" => store).set(f64::from(works));
        }
        let all_work = faults.iter().all(|fault| STORES.contains(&fault.field.as_str()));
        metrics::gauge!(READY, "part" => "workers").set(f64::from(all_work));
    }
}
