//! Reads what other processes have changed of what each process caches. Triggers write the rows, on PostgreSQL alone. No
//! row tells a tenant's data, and no permit is needed.

use isobar_model::ids::{AlarmId, DeviceId, DeviceKey, OrganizationId, ProjectId, UserId};

use crate::error::{Result, StoreError};
use crate::postgres::STANDBY;
use crate::registry::Registry;
use crate::registry::sql::{Dialect, OwnConnection, Row, Sql, all};

/// Changes that are read at a time, at most. If there are more, the reader answers that anything may have changed.
pub const CHANGES_AT_ONCE: usize = 10_000;
/// Columns of each read: its snapshot, and whether a standby answers, to which the address leads while PostgreSQL changes
/// places.
const STATE: &str =
    "CAST(pg_current_snapshot() AS TEXT) AS snapshot, CAST(pg_is_in_recovery() AS INT)::BIGINT AS is_standby";
/// Time after which a change is deleted, as PostgreSQL spells it. Every process has read it long before.
const KEPT: &str = "1 hour";

/// Change of something that processes cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryChange {
    /// A user's role, place or password, or one of the user's sessions has ended.
    Account(UserId),
    /// An API key was deleted.
    ApiKey,
    /// A JWT with this identifier was revoked.
    Jwt(String),
    /// A device has another token, name or place, or was deleted.
    Device {
        /// Its identifier.
        id: DeviceId,
        /// Its key in telemetry.
        key: DeviceKey,
        /// The top of the tree that it was in.
        tenant: OrganizationId,
    },
    /// A project has another design, other retention or another place, or was deleted.
    Design(ProjectId),
    /// An organization was moved, renamed or deleted.
    Organization {
        /// Its identifier.
        id: OrganizationId,
        /// The top of the tree that it was in.
        tenant: OrganizationId,
    },
    /// An organization has other limits.
    Limits,
    /// An alarm was raised or changed.
    Alarm(AlarmId),
}

/// Reader of changes, on a connection of its own.
#[derive(Debug)]
pub struct ChangeReader {
    connection: OwnConnection,
    /// The snapshot of the last read: what it showed has been read.
    seen: String,
}

impl Registry {
    /// Begins to read the changes that are committed from now on: whatever is loaded afterwards shows the earlier ones.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the registry is on SQLite.
    pub async fn changes(&self) -> Result<ChangeReader> {
        let connection = self.db.own_connection().await?;
        let rows = all(&connection, Sql::new(format!("SELECT {STATE}"))).await?;
        Ok(ChangeReader { seen: snapshot(&rows)?, connection })
    }

    /// Deletes the changes that every process has read.
    pub async fn changes_sweep(&self) -> Result<()> {
        if self.db.dialect == Dialect::Sqlite {
            return Ok(());
        }
        let delete = format!("DELETE FROM changes WHERE made < now() - interval '{KEPT}'");
        self.db.write.run(Sql::new(delete)).await.map(|_| ())
    }
}

impl ChangeReader {
    /// Returns the changes that were committed since the last read, in no order; `None` if there are too many. A change
    /// is returned as soon as it is visible, whatever other transactions are running, and only once.
    ///
    /// # Errors
    /// The connection is of no more use after any error: changes may be missing.
    pub async fn next(&mut self) -> Result<Option<Vec<RegistryChange>>> {
        // A join from one row, so that the snapshot comes without changes too.
        let query = Sql::new(format!(
            "SELECT {STATE}, c.kind, c.id, c.tenant, c.device_key \
             FROM (VALUES (CAST(CAST(? AS TEXT) AS pg_snapshot))) AS last (seen) LEFT JOIN changes c \
             ON c.xact >= pg_snapshot_xmin(last.seen) AND NOT pg_visible_in_snapshot(c.xact, last.seen) LIMIT ?",
        ));
        let query = query.bind(self.seen.as_str()).bind(CHANGES_AT_ONCE as u64 + 1);
        let rows = all(&self.connection, query).await?;
        self.seen = snapshot(&rows)?;
        if rows.len() > CHANGES_AT_ONCE {
            return Ok(None);
        }
        rows.iter().filter_map(|row| change(row).transpose()).collect::<Result<_>>().map(Some)
    }
}

/// Returns the snapshot of a read. Fails if a standby has answered: it may not have yet what was committed.
fn snapshot(rows: &[Row]) -> Result<String> {
    let row = rows.first().ok_or_else(|| StoreError::Damaged("PostgreSQL has no snapshot".to_owned()))?;
    if row.truth("is_standby")? { Err(StoreError::unavailable(STANDBY)) } else { row.text("snapshot") }
}

/// Reads a change, if the row has one.
fn change(row: &Row) -> Result<Option<RegistryChange>> {
    let Some(kind) = row.text_if("kind")? else { return Ok(None) };
    Ok(Some(match kind.as_str() {
        "account" => RegistryChange::Account(row.id("id")?),
        "api_key" => RegistryChange::ApiKey,
        "jwt" => RegistryChange::Jwt(row.text("id")?),
        "device" => {
            RegistryChange::Device { id: row.id("id")?, key: row.key("device_key")?, tenant: row.id("tenant")? }
        }
        "design" => RegistryChange::Design(row.id("id")?),
        "organization" => RegistryChange::Organization { id: row.id("id")?, tenant: row.id("tenant")? },
        "limits" => RegistryChange::Limits,
        "alarm" => RegistryChange::Alarm(row.id("id")?),
        // Of a newer version, which runs beside this one during an upgrade.
        _ => return Ok(None),
    }))
}
