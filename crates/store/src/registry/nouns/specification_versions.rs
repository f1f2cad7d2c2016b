//! Stores versions of designs: every specification that was written, up to a limit for each project (contract: Versions
//! of a design).

use isobar_model::access::{Actor, CanRead, CanWrite};
use isobar_model::ids::{ProjectId, UserId};
use isobar_model::json::RawJson;
use isobar_model::project::{Specification, SpecificationInput};
use isobar_model::time::Timestamp;
use isobar_model::version::{SpecificationVersion, VersionNumber, WholeVersion, element_count};

use super::packed_design::PackedDesign;
use super::specifications;
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Connection, Row, Sql, all, one, run};

/// Bounds the versions stored of a project.
pub const VERSIONS_MAX: u64 = 100;

/// Selects the columns of a version that a list shows.
const HEAD: &str = "SELECT number, name, element_count, created_at, created_by FROM specification_versions";

/// Specification to be written, with the values stored in its version.
#[derive(Clone, Debug)]
pub struct NewSpecification {
    pub(crate) input: SpecificationInput,
    element_count: u64,
    design: PackedDesign,
}

impl NewSpecification {
    /// Prepares a specification for writing. A large one takes long: never call it on a thread that serves calls.
    pub fn new(input: SpecificationInput) -> Self {
        let element_count = element_count(&input.planes.tree());
        Self::counted(input, element_count)
    }

    /// Prepares a specification whose elements are counted already; see [`NewSpecification::new`].
    pub fn counted(input: SpecificationInput, element_count: u64) -> Self {
        let design = PackedDesign::of(&input.meta, &input.planes);
        Self { input, element_count, design }
    }
}

/// Version as it is stored.
#[derive(Clone, Debug)]
pub struct StoredVersion {
    version: SpecificationVersion,
    create_version: String,
    description: String,
    design: PackedDesign,
}

impl StoredVersion {
    /// Returns the bytes of its unpacked design.
    ///
    /// # Errors
    /// [`StoreError::Damaged`](crate::error::StoreError::Damaged).
    pub fn unpacked_bytes(&self) -> Result<usize> {
        self.design.unpacked_bytes()
    }

    /// Unpacks the whole version. A large one takes milliseconds: never call it on a thread that serves calls.
    ///
    /// # Errors
    /// [`StoreError::Damaged`](crate::error::StoreError::Damaged).
    pub fn unpack(self) -> Result<WholeVersion> {
        let (meta, planes) = self.design.unpack()?;
        let Self { version, create_version, description, .. } = self;
        let content = SpecificationInput { name: version.name.clone(), create_version, description, meta, planes };
        Ok(WholeVersion { version, content })
    }
}

impl Registry {
    /// Lists all versions of a project, newest first: [`VERSIONS_MAX`] at most.
    pub async fn specification_versions(&self, permit: &CanRead<ProjectId>) -> Result<Vec<SpecificationVersion>> {
        let query = Sql::new(HEAD).text(" WHERE project_id = ? ORDER BY number DESC").bind(*permit.target());
        all(&self.db.read, query).await?.iter().map(version).collect()
    }

    /// Fetches the list entry of a version.
    pub async fn specification_version_head(
        &self,
        permit: &CanRead<ProjectId>,
        number: VersionNumber,
    ) -> Result<Option<SpecificationVersion>> {
        let query = Sql::new(HEAD).text(" WHERE project_id = ? AND number = ?");
        one(&self.db.read, query.bind(*permit.target()).bind(number.0)).await?.as_ref().map(version).transpose()
    }

    /// Fetches a version with its content.
    pub async fn specification_version(
        &self,
        permit: &CanRead<ProjectId>,
        number: VersionNumber,
    ) -> Result<Option<StoredVersion>> {
        let query = Sql::new(
            "SELECT number, name, element_count, created_at, created_by, create_version, description, design \
             FROM specification_versions WHERE project_id = ? AND number = ?",
        );
        let Some(row) = one(&self.db.read, query.bind(*permit.target()).bind(number.0)).await? else { return Ok(None) };
        Ok(Some(StoredVersion {
            version: version(&row)?,
            create_version: row.text("create_version")?,
            description: row.text("description")?,
            design: PackedDesign::stored(row.bytes("design")?),
        }))
    }
}

/// Returns the user of a permit to write.
pub(crate) fn writer<T>(permit: &CanWrite<T>) -> Option<UserId> {
    match permit.actor() {
        Actor::User(user) => Some(user),
        Actor::Device(_) | Actor::System(_) => None,
    }
}

/// Stores a written specification as a version, and removes the oldest beyond [`VERSIONS_MAX`].
pub(crate) async fn keep(
    tx: &impl Connection,
    project: ProjectId,
    number: VersionNumber,
    new: &NewSpecification,
    (created_by, created_at): (Option<UserId>, Timestamp),
) -> Result<SpecificationVersion> {
    let insert = Sql::new(
        "INSERT INTO specification_versions (project_id, number, name, element_count, created_at, created_by, \
         create_version, description, design) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(project)
    .bind(number.0)
    .bind(new.input.name.as_str())
    .bind(new.element_count)
    .bind(created_at)
    .bind(created_by)
    .bind(new.input.create_version.as_str())
    .bind(new.input.description.as_str())
    .bind(new.design.bytes().to_vec());
    run(tx, insert).await?;
    let oldest = Sql::new("DELETE FROM specification_versions WHERE project_id = ? AND number <= ?");
    run(tx, oldest.bind(project).bind(number.0.saturating_sub(VERSIONS_MAX))).await?;
    let (name, element_count) = (new.input.name.clone(), new.element_count);
    Ok(SpecificationVersion { number, created_at, created_by, name, element_count })
}

/// Stores designs from before versions existed as the first version of their project.
pub(crate) async fn begin_where_missing(tx: &impl Connection) -> Result<()> {
    let without = Sql::new(
        "SELECT s.project_id FROM specifications s WHERE NOT EXISTS \
         (SELECT 1 FROM specification_versions v WHERE v.project_id = s.project_id) ORDER BY s.project_id",
    );
    for row in all(tx, without).await? {
        let project: ProjectId = row.id("project_id")?;
        let Some(found) = specifications::read(tx, project).await? else { continue };
        let Specification { name, create_version, description, last_modified, version, meta, planes, .. } = found;
        let input = SpecificationInput { name, create_version, description, meta, planes };
        keep(tx, project, version, &NewSpecification::new(input), (None, last_modified)).await?;
    }
    Ok(())
}

/// Unpacks the metadata and the planes of a version.
pub(crate) fn design_of(column: &str, row: &Row) -> Result<(RawJson, RawJson)> {
    PackedDesign::stored(row.bytes(column)?).unpack()
}

fn version(row: &Row) -> Result<SpecificationVersion> {
    Ok(SpecificationVersion {
        number: VersionNumber(row.count("number")?),
        created_at: row.time("created_at")?,
        created_by: row.id_if("created_by")?,
        name: row.text("name")?,
        element_count: row.count("element_count")?,
    })
}
