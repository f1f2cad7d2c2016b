//! Stores projects.

use std::collections::BTreeMap;

use isobar_model::access::{CanList, CanRead, CanWrite, Lineage};
use isobar_model::ids::{OrganizationId, ProjectId, UserId};
use isobar_model::page::{ListRequest, Page};
use isobar_model::project::{PROJECT_TYPE, Project, SpecificationInput, empty_object};
use isobar_model::time::Timestamp;

use super::organizations::hold_organization;
use super::specification_versions::NewSpecification;
use super::specifications;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{PROJECTS, page_of, read_by_id, searched};
use crate::registry::sql::{Connection, Row, Sql, one, run};

const SELECT_PROJECTS: &str = "SELECT p.id, p.name, p.organization_id, o.lineage, o.name AS organization, p.created_by, \
    p.created_at, p.updated_at FROM projects p JOIN organizations o ON o.id = p.organization_id WHERE p.id";

/// Version of a specification that names no other (specification: Project specification).
const CREATE_VERSION: &str = "2";

/// Changes the stored number of devices of projects. Call it last in a transaction; it goes in the order of the
/// projects' ids, so that the holder of one row waits only for a later one.
pub(crate) async fn count_in_projects(
    tx: &impl Connection,
    changes: impl IntoIterator<Item = (ProjectId, i64)>,
) -> Result<()> {
    let mut sums = BTreeMap::<_, i64>::new();
    changes.into_iter().for_each(|(project, more)| *sums.entry(project).or_default() += more);
    for (project, more) in sums {
        let update = Sql::new("UPDATE projects SET device_count = device_count + ? WHERE id = ?");
        run(tx, update.bind(more).bind(project)).await?;
    }
    Ok(())
}

/// Project to be created.
#[derive(Clone, Debug)]
pub struct NewProject {
    /// Identifier.
    pub id: ProjectId,
    /// Name: 1 to 80 characters.
    pub name: String,
    /// User who creates it.
    pub created_by: Option<UserId>,
}

impl Registry {
    /// Returns the lineage of a project's organization; only for authorization.
    pub async fn project_placement(&self, id: ProjectId) -> Result<Option<Lineage>> {
        let query = Sql::new(
            "SELECT o.lineage FROM projects p JOIN organizations o ON o.id = p.organization_id WHERE p.id = ?",
        );
        one(&self.db.read, query.bind(id)).await?.map(|row| row.lineage("lineage")).transpose()
    }

    /// Creates a project in the permit's organization, with an empty specification.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn project_create(
        &self,
        permit: &CanWrite<OrganizationId>,
        new: NewProject,
        now: Timestamp,
    ) -> Result<Project> {
        let tx = self.db.begin().await?;
        hold_organization(&tx, *permit.target(), self.db.dialect.hold_in_place()).await?;
        let insert = Sql::new(
            "INSERT INTO projects (id, organization_id, name, kind, created_by, search, created_at, updated_at) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(new.id)
        .bind(*permit.target())
        .bind(new.name.as_str())
        .bind(PROJECT_TYPE)
        .bind(new.created_by)
        .bind(search_of(new.id, &new.name))
        .bind(now)
        .bind(now);
        run(&tx, insert).await?;
        let empty = SpecificationInput {
            name: new.name,
            create_version: CREATE_VERSION.to_owned(),
            description: String::new(),
            meta: empty_object(),
            planes: empty_object(),
        };
        specifications::begin(&tx, new.id, &NewSpecification::new(empty), (new.created_by, now)).await?;
        let made = read(&tx, &[new.id]).await?.pop().ok_or(StoreError::Gone("project"))?;
        tx.commit().await?;
        Ok(made)
    }

    /// Fetches a project.
    pub async fn project_fetch(&self, permit: &CanRead<ProjectId>) -> Result<Option<Project>> {
        Ok(read(&self.db.read, &[*permit.target()]).await?.pop())
    }

    /// Lists the projects of a part of the tree, of one type or of all.
    pub async fn project_list(
        &self,
        permit: &CanList,
        kind: Option<&str>,
        request: &ListRequest,
    ) -> Result<Page<Project>> {
        let condition = kind.map_or_else(|| Sql::new("1 = 1"), |kind| Sql::new("p.kind = ?").bind(kind));
        let tx = self.db.snapshot().await?;
        PROJECTS.allow_after(&tx, permit.scope(), request).await?;
        let (ids, total) = PROJECTS.page_within(&tx, permit.scope(), condition, request).await?;
        let projects = read(&tx, &ids).await?;
        Ok(page_of(request, (&ids, projects, total), |project| project.id))
    }

    /// Renames a project, and moves it to another organization if one is named.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the project or its new organization is gone.
    pub async fn project_update(
        &self,
        permit: &CanWrite<ProjectId>,
        name: &str,
        organization: Option<OrganizationId>,
        now: Timestamp,
    ) -> Result<Project> {
        let id = *permit.target();
        let tx = self.db.begin().await?;
        if let Some(organization) = organization {
            hold_organization(&tx, organization, self.db.dialect.hold_in_place()).await?;
        }
        let update = Sql::new(
            "UPDATE projects SET name = ?, organization_id = coalesce(?, organization_id), search = ?, \
             updated_at = ? WHERE id = ?",
        )
        .bind(name)
        .bind(organization)
        .bind(search_of(id, name))
        .bind(now)
        .bind(id);
        run(&tx, update).await?;
        let changed = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("project"))?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Removes a project that no device uses, with its specification and all its versions.
    ///
    /// # Errors
    /// [`StoreError::InUse`] where a device uses it; [`StoreError::Gone`] where it is gone.
    pub async fn project_delete(&self, permit: &CanWrite<ProjectId>) -> Result<()> {
        let tx = self.db.begin().await?;
        let in_use = Sql::new("SELECT id FROM devices WHERE project_id = ? LIMIT 1").bind(*permit.target());
        if one(&tx, in_use).await?.is_some() {
            return Err(StoreError::InUse("the project has devices"));
        }
        let deleted = match run(&tx, Sql::new("DELETE FROM projects WHERE id = ?").bind(*permit.target())).await {
            // A device created in between refers to it.
            Err(StoreError::Gone(_)) => return Err(StoreError::InUse("the project has devices")),
            other => other?,
        };
        if deleted == 0 {
            return Err(StoreError::Gone("project"));
        }
        tx.commit().await
    }
}

fn search_of(id: ProjectId, name: &str) -> String {
    searched([name, &id.to_string()])
}

async fn read(connection: &impl Connection, ids: &[ProjectId]) -> Result<Vec<Project>> {
    read_by_id(connection, SELECT_PROJECTS, ids, project).await
}

fn project(row: &Row) -> Result<Project> {
    Ok(Project {
        id: row.id("id")?,
        name: row.text("name")?,
        organization: row.id("organization_id")?,
        lineage: row.lineage("lineage")?,
        organization_name: row.text("organization")?,
        created_by: row.id_if("created_by")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
