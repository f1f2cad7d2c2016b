//! The specifications (designs) of projects: one each, stored byte for byte.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::ProjectId;
use isobar_model::project::{Specification, SpecificationInput};
use isobar_model::retention::DesignRetention;
use isobar_model::time::Timestamp;
use sea_orm::ConnectionTrait;

use super::alarms::{self, ProjectAlarm};
use super::retention;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Sql, one, run};

impl Registry {
    /// The specification of a project.
    pub async fn specification_fetch(&self, permit: &CanRead<ProjectId>) -> Result<Option<Specification>> {
        read(&self.db.read, *permit.target()).await
    }

    /// Overwrites the specification of a project, and the alarms of its devices and what is kept of their values with it. Its
    /// `created` stays.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the project is gone; [`StoreError::Busy`] where its bounds were loosened too often since
    /// what they hid was last dropped.
    pub async fn specification_write(
        &self,
        permit: &CanWrite<ProjectId>,
        input: &SpecificationInput,
        alarms: &[ProjectAlarm],
        kept: &DesignRetention,
        now: Timestamp,
    ) -> Result<Specification> {
        let tx = self.db.begin().await?;
        write(&tx, *permit.target(), input, now).await?;
        alarms::replace(&tx, *permit.target(), alarms, now).await?;
        retention::replace(&tx, *permit.target(), kept, now).await?;
        let written = read(&tx, *permit.target()).await?.ok_or(StoreError::Gone("project"))?;
        tx.commit().await?;
        Ok(written)
    }
}

/// Keeps a specification in the place of the one that is there, if any.
pub(crate) async fn write(
    tx: &impl ConnectionTrait,
    project: ProjectId,
    input: &SpecificationInput,
    now: Timestamp,
) -> Result<()> {
    let upsert = Sql::new(
        "INSERT INTO specifications (project_id, name, create_version, description, created, last_modified, meta, \
         planes) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (project_id) DO UPDATE SET name = excluded.name, \
         create_version = excluded.create_version, description = excluded.description, \
         last_modified = excluded.last_modified, meta = excluded.meta, planes = excluded.planes",
    )
    .bind(project)
    .bind(input.name.as_str())
    .bind(input.create_version.as_str())
    .bind(input.description.as_str())
    .bind(now)
    .bind(now)
    .bind(input.meta.clone())
    .bind(input.planes.clone());
    match run(tx, upsert).await {
        Err(StoreError::Gone(_)) => Err(StoreError::Gone("project")),
        other => other.map(|_| ()),
    }
}

async fn read(connection: &impl ConnectionTrait, project: ProjectId) -> Result<Option<Specification>> {
    let query = Sql::new(
        "SELECT name, create_version, description, created, last_modified, meta, planes \
         FROM specifications WHERE project_id = ?",
    );
    let Some(row) = one(connection, query.bind(project)).await? else { return Ok(None) };
    Ok(Some(Specification {
        name: row.text("name")?,
        create_version: row.text("create_version")?,
        description: row.text("description")?,
        created: row.time("created")?,
        last_modified: row.time("last_modified")?,
        meta: row.json("meta")?,
        planes: row.json("planes")?,
    }))
}
