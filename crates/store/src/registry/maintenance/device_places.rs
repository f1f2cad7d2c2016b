//! Places new devices in the telemetry databases: each goes to the one with the fewest devices.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::ids::{DATABASES_MAX, DeviceKey};
use isobar_model::time::Clock;
use parking_lot::Mutex;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Dialect, Sql, all};

/// Time for which counts are used; meanwhile they grow with what this process places.
const COUNTS_LAST: Duration = Duration::from_secs(10);

/// Tells that a database is away: then it gets new devices only if all are.
pub type IsAway = Arc<dyn Fn(u16) -> bool + Send + Sync>;

/// Databases in which new devices are placed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DevicePlaces(Arc<Mutex<PlacedDevices>>);

#[derive(Default)]
struct PlacedDevices {
    databases: Vec<PlacedDatabase>,
    is_away: Option<IsAway>,
    counted: Option<Instant>,
}

struct PlacedDatabase {
    number: u16,
    devices: u64,
}

impl fmt::Debug for PlacedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.databases.iter().map(|database| (database.number, database.devices))).finish()
    }
}

impl DevicePlaces {
    /// Returns the databases of new devices, in their order; `None` if all are in the first one.
    pub(crate) fn next(&self, devices: usize) -> Option<Vec<u16>> {
        let mut placed = self.0.lock();
        if placed.databases.iter().all(|database| database.number == 0) {
            return None;
        }
        let away: Vec<u16> = match &placed.is_away {
            Some(is_away) => placed.databases.iter().map(|it| it.number).filter(|number| is_away(*number)).collect(),
            None => Vec::new(),
        };
        let is_any_here = away.len() < placed.databases.len();
        let next = (0..devices).map_while(|_| {
            let here = placed.databases.iter_mut().filter(|it| !is_any_here || !away.contains(&it.number));
            let fewest = here.min_by_key(|database| database.devices)?;
            fewest.devices += 1;
            Some(fewest.number)
        });
        Some(next.collect())
    }

    /// Returns the databases to be counted, if there are several and their counts are old; nobody else counts meanwhile.
    fn to_count(&self) -> bool {
        let mut placed = self.0.lock();
        let is_due =
            placed.databases.len() > 1 && placed.counted.is_none_or(|at| Clock::System.elapsed(at) >= COUNTS_LAST);
        if is_due {
            placed.counted = Some(Clock::System.instant());
        }
        is_due
    }

    fn counted(&self, counts: &[(u16, u64)]) {
        let mut placed = self.0.lock();
        for database in &mut placed.databases {
            let found = counts.iter().find(|(number, _)| *number == database.number);
            database.devices = found.map_or(0, |(_, devices)| *devices);
        }
    }
}

impl Registry {
    /// Places new devices in these telemetry databases from now on, each in the one with the fewest devices of those that are
    /// not away.
    pub fn place_devices_in(&self, databases: &[u16], is_away: Option<IsAway>) {
        let databases = databases.iter().map(|number| PlacedDatabase { number: *number, devices: 0 }).collect();
        *self.places.0.lock() = PlacedDevices { databases, is_away, counted: None };
    }

    /// Counts the devices of each telemetry database, unless that was done a moment ago, or there is only one.
    pub(crate) async fn count_places(&self) -> Result<()> {
        if self.places.to_count() {
            match self.devices_by_database().await {
                Ok(counts) => self.places.counted(&counts),
                Err(error) => {
                    self.places.0.lock().counted = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the numbers of the telemetry databases that have devices, with their numbers of devices.
    pub async fn devices_by_database(&self) -> Result<Vec<(u16, u64)>> {
        self.of_databases("(SELECT count(*) FROM devices d WHERE d.key >= p.low AND d.key < p.high)").await
    }

    /// Returns the numbers of the telemetry databases that have devices, in order. Reads one entry of an index for each.
    pub async fn device_databases(&self) -> Result<Vec<u16>> {
        let any = "CAST(EXISTS (SELECT 1 FROM devices d WHERE d.key >= p.low AND d.key < p.high) AS INTEGER)";
        Ok(self.of_databases(any).await?.into_iter().map(|(number, _)| number).collect())
    }

    /// Returns a figure of each range of numbers that belongs to a database, unless it is 0.
    async fn of_databases(&self, figure: &str) -> Result<Vec<(u16, u64)>> {
        let ranges = ranges(self.db.dialect);
        let query = format!(
            "SELECT f.number, f.figure FROM (SELECT p.number, CAST({figure} AS BIGINT) AS figure FROM {ranges} p) f \
             WHERE f.figure > 0 ORDER BY f.number"
        );
        let rows = all(&self.db.read, Sql::new(query)).await?;
        rows.iter()
            .map(|row| Ok((u16::try_from(row.count("number")?).unwrap_or(u16::MAX), row.count("figure")?)))
            .collect()
    }
}

/// SQL expression for the range of numbers of each database: `number`, `low` and `high`.
pub(super) fn ranges(dialect: Dialect) -> String {
    let high = DeviceKey::new(1, 0).0;
    match dialect {
        // Its devices are all in the first one.
        Dialect::Sqlite => format!("(SELECT 0 AS number, 0 AS low, {high} AS high)"),
        Dialect::Postgres => format!(
            "(SELECT n::bigint AS number, n * {high}::bigint AS low, (n + 1) * {high}::bigint AS high \
             FROM generate_series(0::bigint, {}) AS n)",
            DATABASES_MAX - 1
        ),
    }
}
