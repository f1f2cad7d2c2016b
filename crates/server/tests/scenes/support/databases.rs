//! Where a scene's telemetry is: in the server's folder, in a database of PostgreSQL, or spread over several.

use std::path::Path;
use std::sync::Arc;

use isobar_model::time::Timestamp;
use isobar_store::registry::Registry;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::postgres::{self, PostgresOptions};
use isobar_store::telemetry::spread::SpreadTelemetry;
use isobar_store::telemetry::{KnownStores, Upkeep};

use super::app::TestSettings;
use super::postgres::{OwnDatabase, Raw};
use super::road::Road;

/// The databases of telemetry; none if it is in a folder. Clones share them.
#[derive(Clone, Default)]
pub struct TelemetryDatabases(Vec<Arc<OwnDatabase>>);

impl TelemetryDatabases {
    /// Makes the databases that the environment's SCENES_TELEMETRY asks for: `postgres` for one, `spread` for two, which the
    /// registry must be in PostgreSQL for.
    pub async fn of_environment(is_registry_in_postgres: bool) -> Self {
        match std::env::var("SCENES_TELEMETRY").as_deref() {
            Ok("spread") if is_registry_in_postgres => Self::new(2).await,
            Ok("postgres" | "spread") => Self::new(1).await,
            _ => Self::default(),
        }
    }

    /// Makes databases for several servers: one, unless the environment asks for more.
    pub async fn of_nodes() -> Self {
        let is_spread = std::env::var("SCENES_TELEMETRY").is_ok_and(|telemetry| telemetry == "spread");
        Self::new(if is_spread { 2 } else { 1 }).await
    }

    /// Makes two databases, and returns the roads to them.
    pub async fn two_far_ones() -> (Self, [Road; 2]) {
        let (mut databases, mut roads) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let mut database = OwnDatabase::new().await;
            let (road, address) = Road::to(&database.address).await;
            database.address = address;
            databases.push(Arc::new(database));
            roads.push(road);
        }
        (Self(databases), roads.try_into().ok().unwrap())
    }

    async fn new(count: usize) -> Self {
        let mut databases = Vec::new();
        for _ in 0..count {
            databases.push(Arc::new(OwnDatabase::new().await));
        }
        Self(databases)
    }

    /// Opens the database with this number.
    pub async fn raw(&self, number: i64) -> Raw {
        for database in &self.0 {
            let raw = Raw::open(&database.address).await;
            if self.0.len() == 1 || raw.number("SELECT number::bigint FROM telemetry.membership").await == number {
                return raw;
            }
        }
        panic!("there is no database {number}")
    }

    /// Returns true if telemetry is in a folder.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Opens the store; a registry that is given places devices in it.
    pub async fn open(&self, settings: &TestSettings, folder: &Path, registry: Option<&Registry>) -> Arc<dyn Upkeep> {
        let options = PostgresOptions {
            queue_max_events: settings.queue_max_events,
            is_alone: !settings.hub.has_other_nodes,
            needs_syncs: false,
            ..PostgresOptions::default()
        };
        match self.0.as_slice() {
            [] => Arc::new(Embedded::open(&folder.join("telemetry"), embedded_options(settings)).unwrap()),
            databases => {
                let addresses: Vec<String> = databases.iter().map(|database| database.address.clone()).collect();
                let known = match registry {
                    Some(registry) => registry.known_stores().await.unwrap(),
                    None => KnownStores::default(),
                };
                // The order of streams is of no use without the platform's registry.
                let marks = match registry {
                    Some(registry) => registry.clone(),
                    None => Registry::open(&addresses[0]).await.unwrap(),
                };
                let spread = SpreadTelemetry::open(&addresses, options, &known, Arc::new(marks)).await.unwrap();
                let spread = Arc::new(spread);
                if let Some(registry) = registry {
                    let watched = Arc::clone(&spread);
                    registry.place_devices_in(&spread.numbers(), Some(Arc::new(move |number| watched.is_away(number))));
                }
                spread
            }
        }
    }

    /// Makes the store of a stopped server trust the clock.
    pub async fn believe(&self, settings: &TestSettings, folder: &Path, now: Timestamp) {
        if self.is_none() {
            Embedded::believe(&folder.join("telemetry"), &embedded_options(settings), now).unwrap();
        }
        for database in &self.0 {
            postgres::believe(&database.address, now).await.unwrap();
        }
    }

    /// Removes the databases, unless another server shares them.
    pub async fn remove(self) {
        for database in self.0.into_iter().filter_map(Arc::into_inner) {
            database.remove().await;
        }
    }
}

fn embedded_options(settings: &TestSettings) -> Options {
    Options {
        queue_max_events: settings.queue_max_events,
        cache_bytes: 4 << 20,
        memtable_bytes: 8 << 20,
        ..Options::default()
    }
}
