//! Stores the retention of the values of a project's storage elements. It changes with the project's design, in the
//! same transaction.

use isobar_model::access::CanRead;
use isobar_model::ids::{DeviceKey, DeviceRef, ProjectId};
use isobar_model::retention::{DesignRetention, ProjectRetention};
use isobar_model::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, all, one, run};

impl Registry {
    /// Fetches the retention of the values of a project's devices.
    pub async fn retention_fetch(&self, permit: &CanRead<ProjectId>) -> Result<ProjectRetention> {
        let query = Sql::new("SELECT bounds FROM project_retention WHERE project_id = ?").bind(*permit.target());
        one(&self.db.read, query).await?.map_or(Ok(ProjectRetention::default()), |row| read(&row.text("bounds")?))
    }

    /// Lists at most `limit` projects with bounded retention, in the order of their ids.
    pub async fn retention_projects(&self, after: Option<ProjectId>, limit: u32) -> Result<Vec<ProjectId>> {
        let query =
            Sql::new("SELECT project_id FROM project_retention WHERE project_id > ? ORDER BY project_id LIMIT ?")
                .bind(after.map(|after| after.to_string()).unwrap_or_default())
                .bind(i64::from(limit));
        all(&self.db.read, query).await?.iter().map(|row| row.id("project_id")).collect()
    }

    /// Lists at most `limit` devices of a project, in the order of their keys.
    pub async fn retention_devices(
        &self,
        permit: &CanRead<ProjectId>,
        after: DeviceKey,
        limit: u32,
    ) -> Result<Vec<DeviceRef>> {
        let query = Sql::new("SELECT key, id FROM devices WHERE project_id = ? AND key > ? ORDER BY key LIMIT ?")
            .bind(*permit.target())
            .bind(after)
            .bind(i64::from(limit));
        let rows = all(&self.db.read, query).await?;
        rows.iter().map(|row| Ok(DeviceRef { id: row.id("id")?, key: row.key("key")? })).collect()
    }

    /// Records that values hidden by the former bounds of `seen` were dropped for all devices: the former bounds are
    /// forgotten, unless the bounds have changed meanwhile. Returns the bounds that apply from here on, or `None` if
    /// they have changed.
    pub async fn retention_settled(
        &self,
        permit: &CanRead<ProjectId>,
        seen: ProjectRetention,
    ) -> Result<Option<ProjectRetention>> {
        let Some(before) = written(&seen)? else { return Ok(None) };
        let settled = seen.settled();
        let change = match written(&settled)? {
            Some(after) => Sql::new("UPDATE project_retention SET bounds = ? WHERE").bind(after),
            None => Sql::new("DELETE FROM project_retention WHERE"),
        };
        let change = change.text(" project_id = ? AND bounds = ?").bind(*permit.target()).bind(before);
        Ok((self.db.write.run(change).await? > 0).then_some(settled))
    }
}

/// Replaces the bounds of a project whose design has changed, and whose row is locked.
///
/// # Errors
/// [`StoreError::Busy`] where more former bounds would have to be remembered than possible.
pub(crate) async fn replace(
    tx: &impl Connection,
    project: ProjectId,
    design: &DesignRetention,
    now: Timestamp,
) -> Result<()> {
    let query = Sql::new("SELECT bounds FROM project_retention WHERE project_id = ?").bind(project);
    let held = one(tx, query.text(Dialect::of(tx).hold_alone())).await?;
    let before = held.map_or(Ok(ProjectRetention::default()), |row| read(&row.text("bounds")?))?;
    let after = before.clone().replaced(design, now).map_err(|_| StoreError::Busy)?;
    if after == before {
        return Ok(());
    }
    let change = match written(&after)? {
        Some(bounds) => Sql::new(
            "INSERT INTO project_retention (project_id, bounds) VALUES (?, ?) \
             ON CONFLICT (project_id) DO UPDATE SET bounds = excluded.bounds",
        )
        .bind(project)
        .bind(bounds),
        None => Sql::new("DELETE FROM project_retention WHERE project_id = ?").bind(project),
    };
    run(tx, change).await.map(|_| ())
}

fn read(text: &str) -> Result<ProjectRetention> {
    ProjectRetention::read(text).map_err(|error| StoreError::Damaged(format!("what is kept of a project: {error}")))
}

fn written(bounds: &ProjectRetention) -> Result<Option<String>> {
    bounds.text().map_err(StoreError::unavailable)
}
