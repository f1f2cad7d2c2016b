//! Checks that the platform can work: its databases, its workers, and its clock.

use isobar_model::error::{Error, Fault};
use isobar_model::time::Clock;
use isobar_store::error::StoreError;

use crate::Hub;
use crate::jobs::changes::CHANGES_WORKER;
use crate::jobs::nodes::NODES_WORKER;

/// Longest time that a database may take to answer a readiness check, because its callers have short timeouts.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
/// The stores, as readiness names them. All other names are workers.
const STORES: [&str; 2] = ["registry", "telemetry"];
/// Gauge of the readiness of each store, and of all workers together.
const READY: &str = "isobar_ready";
/// Gauge of the readiness of each database.
const DATABASE_READY: &str = "isobar_database_ready";

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
            self.databases_of(telemetry),
        );
        std::iter::once(registry).chain(telemetry).collect()
    }

    /// Checks the databases of telemetry: with several, each has its number in its name.
    async fn databases_of(&self, telemetry: &str) -> Vec<DatabaseState> {
        let (clock, store, databases) = (self.clock(), self.telemetry(), self.telemetry().databases());
        if databases.len() < 2 {
            let place = databases.first().map(|(_, place)| place.to_string());
            return vec![DatabaseState::check(clock, (telemetry, place), store.healthy()).await];
        }
        let checks = databases.into_iter().map(|(number, place)| async move {
            let name = format!("{telemetry} {number}");
            DatabaseState::check(clock, (&name, Some(place.to_string())), store.database_healthy(number)).await
        });
        futures::future::join_all(checks).await
    }

    /// Checks that the databases answer within two seconds each (of several for telemetry: any), that no worker keeps
    /// panicking, that what other nodes change is known, and that the clock is the one of the registry. Returns the
    /// databases.
    ///
    /// # Errors
    /// Returns the fault of each database and worker that fails the check.
    pub async fn ready(&self) -> std::result::Result<Vec<DatabaseState>, Vec<Fault>> {
        let databases = self.databases().await;
        let faults = self.faults(&databases);
        if faults.is_empty() { Ok(databases) } else { Err(faults) }
    }

    /// Returns what somebody has to look at although this process is ready: what it is about, and a text.
    pub fn warnings(&self) -> Vec<Fault> {
        let stalled = self.telemetry().stalled_streams().into_iter().map(|(number, time)| {
            let why =
                "for a transaction of their database that does not end: see pg_prepared_xacts and pg_stat_activity";
            Fault::new(
                "streams",
                format!("events of database {number} have been waiting for {} s {why}", time.as_secs()),
            )
        });
        self.0.env.clock_warning("clock").into_iter().chain(stalled).collect()
    }

    /// Returns what keeps this process from being ready.
    fn faults(&self, databases: &[DatabaseState]) -> Vec<Fault> {
        let (registry, telemetry) = databases.split_at(1);
        let some_serve = telemetry.iter().any(|database| database.fault.is_none());
        let telemetry = if some_serve { &[] } else { telemetry };
        let away = registry.iter().chain(telemetry).filter_map(|database| database.fault.clone());
        let others = self.0.env.clock_matter(NODES_WORKER).into_iter();
        let stale = self.0.caches.freshness().matter(CHANGES_WORKER);
        away.chain(others).chain(stale).chain(self.0.supervisor.matters()).collect()
    }

    /// Updates the gauges that are measured on demand; to be called before metrics are shown. It checks the databases, and
    /// waits for them as long as [`Hub::ready`].
    pub async fn measure(&self) {
        self.0.outbox.measure(self.0.env.clock());
        self.0.caches.measure();
        let databases = self.databases().await;
        for database in &databases {
            metrics::gauge!(DATABASE_READY, "database" => database.name.clone())
                .set(f64::from(database.fault.is_none()));
        }
        let faults = self.faults(&databases);
        let is_of = |fault: &Fault, store: &str| fault.field.starts_with(store);
        for store in STORES {
            let works = !faults.iter().any(|fault| is_of(fault, store));
            metrics::gauge!(READY, "part" => store).set(f64::from(works));
        }
        let all_work = faults.iter().all(|fault| STORES.iter().any(|store| is_of(fault, store)));
        metrics::gauge!(READY, "part" => "workers").set(f64::from(all_work));
    }
}
