//! Creates, lists, reads, changes and deletes projects.

use std::collections::HashMap;

use isobar_model::access::{Action, Caller};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{ProjectId, UserId};
use isobar_model::page::{ListRequest, Page};
use isobar_model::project::{Project, ProjectInput};
use isobar_store::registry::NewProject;

use crate::error::{ORGANIZATION, naming};
use crate::{Hub, TreeQuery};

/// A project as a caller sees it. A project of an organization above shows only references within the caller's reach.
#[derive(Clone, Debug)]
pub struct ProjectView {
    /// The project.
    pub project: Project,
    /// True if its organization is within reach.
    pub shows_owner: bool,
    /// True if its creator is within reach.
    pub shows_creator: bool,
}

impl From<Project> for ProjectView {
    /// Makes the view of a caller whose reach includes the project's organization.
    fn from(project: Project) -> Self {
        Self { project, shows_owner: true, shows_creator: true }
    }
}

impl Hub {
    /// Creates a project with an empty design.
    ///
    /// Needs `ProjectCreate` on the organization. Durable when this returns.
    pub async fn project_create(&self, caller: &Caller, input: ProjectInput) -> Result<Project> {
        let (permit, _) = self.0.identity.owner_permit(caller, input.organization, Action::ProjectCreate).await?;
        let new = NewProject { id: ProjectId(self.0.env.new_id().0), name: input.name, created_by: Some(caller.user) };
        self.registry().project_create(&permit, new, self.now()).await.map_err(naming(&[ORGANIZATION]))
    }

    /// Lists projects, of one `kind` if it is named; with `usable` also those of organizations above that part of the
    /// tree, which devices in it can use.
    ///
    /// Needs `ProjectRead` on that part of the tree.
    pub async fn project_list(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        (kind, usable): (Option<&str>, bool),
        list: ListRequest,
    ) -> Result<Page<ProjectView>> {
        let permit = match usable {
            true => self.0.identity.shared_list_permit(caller, tree, Action::ProjectRead).await?,
            false => self.0.identity.list_permit(caller, tree, Action::ProjectRead).await?,
        };
        let Page { items, total, request, next } = self.registry().project_list(&permit, kind, &list).await?;
        let (mut views, mut creators) = (Vec::with_capacity(items.len()), HashMap::new());
        for project in items {
            views.push(self.project_view(caller, project, &mut creators).await?);
        }
        Ok(Page { items: views, total, request, next })
    }

    /// Fetches a project.
    ///
    /// Needs `ProjectRead`; projects of organizations above are shared.
    pub async fn project_fetch(&self, caller: &Caller, id: ProjectId) -> Result<ProjectView> {
        let permit = self.0.identity.project_read(caller, id).await?;
        let project = self.registry().project_fetch(&permit).await?.ok_or(Error::Missing("project"))?;
        self.project_view(caller, project, &mut HashMap::new()).await
    }

    /// Returns a project as the caller sees it. `creators` caches which users are within reach, for further projects.
    async fn project_view(
        &self,
        caller: &Caller,
        project: Project,
        creators: &mut HashMap<UserId, bool>,
    ) -> Result<ProjectView> {
        if caller.reaches(&project.lineage) {
            return Ok(project.into());
        }
        let shows_creator = match project.created_by {
            None => false,
            Some(user) => match creators.get(&user) {
                Some(is_in_reach) => *is_in_reach,
                None => {
                    let account = self.0.caches.account_entry(user).await?;
                    let is_in_reach = account.is_some_and(|account| caller.reaches(&account.caller.lineage));
                    *creators.entry(user).or_insert(is_in_reach)
                }
            },
        };
        Ok(ProjectView { project, shows_owner: false, shows_creator })
    }

    /// Renames a project, or moves it to another organization within reach.
    ///
    /// Needs `ProjectUpdate`, on another organization too. Durable when this returns.
    pub async fn project_update(&self, caller: &Caller, id: ProjectId, input: ProjectInput) -> Result<Project> {
        let permit = self.0.identity.project_write(caller, id, Action::ProjectUpdate).await?;
        if input.organization.is_some() {
            self.0.identity.owner_permit(caller, input.organization, Action::ProjectUpdate).await?;
        }
        let now = self.now();
        self.registry()
            .project_update(&permit, &input.name, input.organization, now)
            .await
            .map_err(naming(&[ORGANIZATION]))
    }

    /// Deletes a project that no device uses, with its specification.
    ///
    /// Needs `ProjectDelete`. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: devices use it.
    pub async fn project_delete(&self, caller: &Caller, id: ProjectId) -> Result<()> {
        let permit = self.0.identity.project_write(caller, id, Action::ProjectDelete).await?;
        self.registry().project_delete(&permit).await?;
        self.0.caches.design_changed(id);
        Ok(())
    }
}
