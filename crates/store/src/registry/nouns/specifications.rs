//! Stores the specifications (designs) of projects: one each, byte for byte. Each written specification is also stored
//! as a version.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::{ProjectId, UserId};
use isobar_model::project::Specification;
use isobar_model::retention::DesignRetention;
use isobar_model::time::Timestamp;
use isobar_model::version::{IfMatch, SpecificationTag, SpecificationVersion, VersionNumber};

use super::retention;
use super::specification_versions::{NewSpecification, keep, writer};
use super::timers::{self, ProjectTimer};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Row, Sql, one, run};

impl Registry {
    /// Fetches the specification of a project.
    pub async fn specification_fetch(&self, permit: &CanRead<ProjectId>) -> Result<Option<Specification>> {
        read(&self.db.read, *permit.target()).await
    }

    /// Returns the entity tag of a project's specification, without reading the specification.
    pub async fn specification_tag(&self, permit: &CanRead<ProjectId>) -> Result<Option<SpecificationTag>> {
        tag(&self.db.read, *permit.target()).await
    }

    /// Overwrites the specification of a project, if its entity tag matches `required`, together with the timers of its
    /// devices and the retention of their values. It becomes the project's newest version, and the oldest is removed
    /// beyond [`VERSIONS_MAX`](super::specification_versions::VERSIONS_MAX). Its `created` stays.
    ///
    /// One of several concurrent writers that require the same tag succeeds.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the project is gone; [`StoreError::Outdated`] where its specification has another tag;
    /// [`StoreError::Busy`] where its bounds were loosened too often since the values that they hid were last dropped.
    pub async fn specification_write(
        &self,
        permit: &CanWrite<ProjectId>,
        new: &NewSpecification,
        required: Option<&IfMatch>,
        timers: &[ProjectTimer],
        kept: &DesignRetention,
        now: Timestamp,
    ) -> Result<(Specification, SpecificationVersion)> {
        let (tx, project) = (self.db.begin().await?, *permit.target());
        // The lock makes others wait: writers of a specification, and creators of devices that would begin its timers.
        // A weaker lock at first would deadlock with creators, which wait to be counted. Lock the project first and
        // read afterwards: values read by the same statement might be older than the wait.
        let hold = Sql::new("SELECT id FROM projects WHERE id = ?").bind(project);
        one(&tx, hold.text(self.db.dialect.hold_alone())).await?.ok_or(StoreError::Gone("project"))?;
        let present = tag(&tx, project).await?.ok_or(StoreError::Gone("project"))?;
        if required.is_some_and(|required| !required.holds(present)) {
            return Err(StoreError::Outdated("the specification"));
        }
        let number = present.version.next();
        overwrite(&tx, project, number, new, now).await?;
        let version = keep(&tx, project, number, new, (writer(permit), now)).await?;
        timers::replace(&tx, project, timers, now).await?;
        retention::replace(&tx, project, kept, now).await?;
        let written = read(&tx, project).await?.ok_or(StoreError::Gone("project"))?;
        tx.commit().await?;
        Ok((written, version))
    }
}

/// Stores the first specification of a new project.
pub(crate) async fn begin(
    tx: &impl Connection,
    project: ProjectId,
    new: &NewSpecification,
    (created_by, now): (Option<UserId>, Timestamp),
) -> Result<()> {
    let insert = Sql::new(
        "INSERT INTO specifications (project_id, name, create_version, description, created, last_modified, meta, \
         planes, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(project)
    .bind(new.input.name.as_str())
    .bind(new.input.create_version.as_str())
    .bind(new.input.description.as_str())
    .bind(now)
    .bind(now)
    .bind(new.input.meta.clone())
    .bind(new.input.planes.clone())
    .bind(VersionNumber::FIRST.0);
    run(tx, insert).await?;
    keep(tx, project, VersionNumber::FIRST, new, (created_by, now)).await.map(|_| ())
}

async fn overwrite(
    tx: &impl Connection,
    project: ProjectId,
    number: VersionNumber,
    new: &NewSpecification,
    now: Timestamp,
) -> Result<()> {
    let update = Sql::new(
        "UPDATE specifications SET name = ?, create_version = ?, description = ?, last_modified = ?, meta = ?, \
         planes = ?, version = ? WHERE project_id = ?",
    )
    .bind(new.input.name.as_str())
    .bind(new.input.create_version.as_str())
    .bind(new.input.description.as_str())
    .bind(now)
    .bind(new.input.meta.clone())
    .bind(new.input.planes.clone())
    .bind(number.0)
    .bind(project);
    run(tx, update).await.map(|_| ())
}

async fn tag(connection: &impl Connection, project: ProjectId) -> Result<Option<SpecificationTag>> {
    let query = Sql::new("SELECT version, last_modified FROM specifications WHERE project_id = ?").bind(project);
    let tag = |row: Row| {
        Ok(SpecificationTag { version: VersionNumber(row.count("version")?), written: row.time("last_modified")? })
    };
    one(connection, query).await?.map(tag).transpose()
}

pub(crate) async fn read(connection: &impl Connection, project: ProjectId) -> Result<Option<Specification>> {
    let query = Sql::new(
        "SELECT name, create_version, description, created, last_modified, meta, planes, version \
         FROM specifications WHERE project_id = ?",
    );
    let Some(row) = one(connection, query.bind(project)).await? else { return Ok(None) };
    Ok(Some(Specification {
        name: row.text("name")?,
        create_version: row.text("create_version")?,
        description: row.text("description")?,
        created: row.time("created")?,
        last_modified: row.time("last_modified")?,
        version: VersionNumber(row.count("version")?),
        meta: row.json("meta")?,
        planes: row.json("planes")?,
    }))
}
