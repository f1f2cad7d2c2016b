//! Projects and their specifications.

use isobar_model::access::{Action, Caller};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::ProjectId;
use isobar_model::page::{ListRequest, Page};
use isobar_model::project::{Project, ProjectInput, Specification, SpecificationInput};
use isobar_store::registry::NewProject;

use crate::error::{ORGANIZATION, Told as _};
use crate::jobs::scheduler::alarms_of;
use crate::{Hub, TreeQuery};

/// A project as a caller sees it. Of one of an organization above, only what is in the caller's reach is told.
#[derive(Clone, Debug)]
pub struct ProjectView {
    /// The project.
    pub project: Project,
    /// Whether its organization is in reach.
    pub shows_owner: bool,
    /// Whether its creator is.
    pub shows_creator: bool,
}

impl From<Project> for ProjectView {
    /// As those see it who reach its organization.
    fn from(project: Project) -> Self {
        Self { project, shows_owner: true, shows_creator: true }
    }
}

impl Hub {
    /// Creates a project with an empty design.
    pub async fn project_create(&self, caller: &Caller, input: ProjectInput) -> Result<Project> {
        let (pass, _) = self.owner_pass(caller, input.organization, Action::ProjectCreate).await?;
        let new = NewProject { id: ProjectId(self.new_id().0), name: input.name, created_by: Some(caller.user) };
        self.0.registry.project_create(&pass, new, self.0.clock.now()).await.told_naming(&[ORGANIZATION])
    }

    /// Lists projects, of one `kind` if it is named.
    pub async fn project_list(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        kind: Option<&str>,
        list: ListRequest,
    ) -> Result<Page<Project>> {
        let pass = self.list_pass(caller, tree, Action::ProjectRead).await?;
        self.0.registry.project_list(&pass, kind, &list).await.told()
    }

    /// Fetches a project.
    pub async fn project_fetch(&self, caller: &Caller, id: ProjectId) -> Result<ProjectView> {
        let pass = self.project_read(caller, id).await?;
        let project = self.0.registry.project_fetch(&pass).await.told()?.ok_or(Error::Missing("project"))?;
        if caller.reaches(&project.lineage) {
            return Ok(project.into());
        }
        let creator = match project.created_by {
            Some(user) => self.account_entry(user).await?,
            None => None,
        };
        let shows_creator = creator.is_some_and(|account| caller.reaches(&account.caller.lineage));
        Ok(ProjectView { project, shows_owner: false, shows_creator })
    }

    /// Renames a project, or hands it to another organization in reach.
    pub async fn project_update(&self, caller: &Caller, id: ProjectId, input: ProjectInput) -> Result<Project> {
        let pass = self.project_write(caller, id, Action::ProjectUpdate).await?;
        if input.organization.is_some() {
            self.owner_pass(caller, input.organization, Action::ProjectUpdate).await?;
        }
        let now = self.0.clock.now();
        self.0.registry.project_update(&pass, &input.name, input.organization, now).await.told_naming(&[ORGANIZATION])
    }

    /// Removes a project that no device uses, with its specification.
    pub async fn project_delete(&self, caller: &Caller, id: ProjectId) -> Result<()> {
        let pass = self.project_write(caller, id, Action::ProjectDelete).await?;
        self.0.registry.project_delete(&pass).await.told()?;
        self.design_changed(id);
        Ok(())
    }

    /// Fetches a project's specification.
    pub async fn specification_fetch(&self, caller: &Caller, id: ProjectId) -> Result<Specification> {
        let pass = self.project_read(caller, id).await?;
        self.0.registry.specification_fetch(&pass).await.told()?.ok_or(Error::Missing("project"))
    }

    /// Overwrites a project's specification, if its design can be executed; else the old one stays in force, and the
    /// design's faults are told together with those that the body was found to have.
    pub async fn specification_write(
        &self,
        caller: &Caller,
        id: ProjectId,
        (input, mut faults): (SpecificationInput, Faults),
    ) -> Result<Specification> {
        let pass = self.project_write(caller, id, Action::ProjectUpdate).await?;
        let plan = faults.gather(self.compiled(caller, input.planes.clone()).await?.map_err(Error::Invalid))?;
        let plan = faults.unless_any(plan)?.ok_or(Error::Busy)?;
        let (alarms, now) = (alarms_of(&plan), self.0.clock.now());
        let written = self.0.registry.specification_write(&pass, &input, &alarms, now).await.told()?;
        self.design_changed(id);
        Ok(written)
    }
}
