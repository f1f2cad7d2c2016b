//! Maintains a registry as a whole, for operators: backup and checks. Tenants do not notice.

mod device_numbers;
mod device_places;
mod readable;

use std::path::Path;

pub use device_numbers::DeviceNumbers;
pub(crate) use device_numbers::{DrawnNumbers, GivenNumbers, SEQUENCE};
pub(crate) use device_places::DevicePlaces;
pub use device_places::IsAway;

use super::sql::connections::Connections;
use super::sql::{Connection, Dialect, Sql, all, one, run, sqlite_file};
use super::{Registry, migrations, moving};
use crate::error::{Result, StoreError};

/// Bounds the faults that SQLite reports of a damaged file.
const SQLITE_FAULTS_MAX: u32 = 50;

/// Stored figures that derive from other rows, each with a query that counts the wrong ones.
const KEPT_FIGURES: &[(&str, &str)] = &[
    (
        "organizations count other devices than they have",
        "SELECT count(*) AS found FROM organizations o \
         WHERE o.device_count <> (SELECT count(*) FROM devices d WHERE d.organization_id = o.id)",
    ),
    (
        "projects count other devices than they have",
        "SELECT count(*) AS found FROM projects p \
         WHERE p.device_count <> (SELECT count(*) FROM devices d WHERE d.project_id = p.id)",
    ),
    (
        "devices lack the row of their activity",
        "SELECT count(*) AS found FROM devices d LEFT JOIN device_activity a \
         ON a.key = d.key AND a.id = d.id AND a.organization_id = d.organization_id WHERE a.key IS NULL",
    ),
    (
        "devices lack the row that they are searched by",
        "SELECT count(*) AS found FROM devices d LEFT JOIN device_search s \
         ON s.key = d.key AND s.organization_id = d.organization_id WHERE s.key IS NULL",
    ),
    (
        "alarms belong elsewhere than their devices",
        "SELECT count(*) AS found FROM alarms a JOIN devices d ON d.key = a.device_key \
         WHERE a.organization_id <> d.organization_id",
    ),
    (
        "organizations hang elsewhere than their lineage says",
        "SELECT count(*) AS found FROM organizations o LEFT JOIN organizations p ON p.id = o.parent_id \
         WHERE o.lineage <> coalesce(p.lineage, '/') || o.id || '/'",
    ),
    (
        "projects lack the version of their design that is in force",
        "SELECT count(*) AS found FROM specifications s LEFT JOIN specification_versions v \
         ON v.project_id = s.project_id AND v.number = s.version AND v.created_at = s.last_modified AND v.name = s.name \
         WHERE v.number IS NULL",
    ),
    (
        "users cannot log in by any name",
        "SELECT count(*) AS found FROM users u WHERE NOT EXISTS (SELECT 1 FROM login_names n WHERE n.user_id = u.id)",
    ),
];

impl Registry {
    /// Opens a registry with its present schema, only to copy or check it. Refuses a newer schema, and a registry that
    /// does not exist.
    pub async fn open_as_it_is(address: &str) -> Result<Self> {
        let db = Connections::open_existing(address).await?;
        moving::must_be_moved(&db.read).await?;
        migrations::version(&db.read).await?;
        Ok(Self::of(db))
    }

    /// Returns how many steps of the schema were applied, and how many this program knows.
    pub async fn steps(&self) -> Result<(u64, u64)> {
        Ok((migrations::version(&self.db.read).await?, migrations::known()))
    }

    /// Copies the registry as it is at this moment into a file that must not exist. Returns false on PostgreSQL, which
    /// has backup tools of its own.
    pub async fn backup(&self, to: &Path) -> Result<bool> {
        if self.db.dialect == Dialect::Postgres {
            return Ok(false);
        }
        let to = to.to_str().ok_or_else(|| StoreError::unavailable("SQLite needs a path in UTF-8"))?;
        // Readers and the writer continue during the copy.
        run(&self.db.read, Sql::new("VACUUM INTO ?").bind(to)).await?;
        Ok(true)
    }

    /// Lists the faults of the registry; none if it is sound: rows that the server could not read, and rows that
    /// contradict each other. On SQLite pages are checked too; PostgreSQL checks its own.
    pub async fn check(&self) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        if self.db.dialect == Dialect::Sqlite {
            // Damage may end a check itself; the others run all the same.
            for looked in [self.pages_check().await, self.references_check().await] {
                match looked {
                    Ok(found) => faults.extend(found),
                    Err(error) => faults.push(readable::cause(&error)),
                }
            }
        }
        match self.steps().await {
            // Rows of an older version are checked as the first start of this version would migrate them; the migration
            // is rolled back.
            Ok((taken, known)) if taken < known => {
                let tx = self.db.begin().await?;
                match migrations::migrate(&tx).await {
                    Ok(()) => faults.extend(rows_check(&tx).await),
                    Err(error) => {
                        faults.push(format!("cannot be brought to this version: {}", readable::cause(&error)))
                    }
                }
            }
            _ => faults.extend(rows_check(&self.db.read).await),
        }
        if self.db.dialect == Dialect::Sqlite {
            // Pages that fail their checksum are known by name now.
            for row in all(&self.db.read, Sql::new("PRAGMA database_list")).await? {
                faults.extend(sqlite_file::damage_met(&row.text("file")?));
            }
        }
        Ok(faults)
    }

    async fn pages_check(&self) -> Result<Vec<String>> {
        let answers = all(&self.db.read, Sql::new(format!("PRAGMA integrity_check({SQLITE_FAULTS_MAX})"))).await?;
        let answers = answers.iter().map(|row| row.text("integrity_check")).collect::<Result<Vec<_>>>()?;
        Ok(answers.into_iter().filter(|fault| fault != "ok").collect())
    }

    async fn references_check(&self) -> Result<Vec<String>> {
        let dangling = "SELECT \"table\" AS rows_of, parent, count(*) AS found FROM pragma_foreign_key_check() \
                        GROUP BY \"table\", parent";
        let mut faults = Vec::new();
        for row in all(&self.db.read, Sql::new(dangling)).await? {
            let (rows, parent) = (row.text("rows_of")?, row.text("parent")?);
            let found = row.count("found")?;
            faults.push(format!("{found} rows of {rows} refer to rows of {parent} that are not there"));
        }
        Ok(faults)
    }
}

/// Lists rows that the server could not read, and rows that contradict each other.
async fn rows_check(connection: &impl Connection) -> Vec<String> {
    let mut faults = readable::unreadable(connection).await;
    for (fault, question) in KEPT_FIGURES {
        match one(connection, Sql::new(*question)).await.and_then(|row| row.map_or(Ok(0), |row| row.count("found"))) {
            Ok(0) => {}
            Ok(found) => faults.push(format!("{found} {fault}")),
            Err(error) => faults.push(format!("whether {fault}, cannot be read: {}", readable::cause(&error))),
        }
    }
    faults
}
