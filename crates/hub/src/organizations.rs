//! Organizations.

use isobar_model::access::{self, Action, Caller, Lineage};
use isobar_model::check::Patch;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::organization::{LEVELS_MAX, Organization, OrganizationInput};
use isobar_model::page::{ListRequest, Page};
use isobar_model::role::Role;
use isobar_store::registry::NewOrganization;

use crate::error::Told as _;
use crate::{Hub, TreeQuery};

impl Hub {
    /// Creates an organization beneath the one named, or beneath the caller's own. `parentId: null` asks for a
    /// top-level one, which only a system administrator founds.
    pub async fn organization_create(&self, caller: &Caller, input: OrganizationInput) -> Result<Organization> {
        self.allow(caller, Action::OrganizationCreate).await?;
        let parent = match input.parent {
            Patch::Set(id) => Some(id),
            Patch::Clear if caller.role == Role::SystemAdmin => None,
            Patch::Clear | Patch::Keep => Some(caller.organization()),
        };
        let pass = match parent {
            None => access::write(caller, Action::OrganizationCreateTop, None, &caller.lineage),
            Some(id) => {
                let unknown = || Error::invalid("parentId", "no such organization");
                let found = self.lineage_of(id).await?;
                let lineage = found.filter(|lineage| caller.reaches(lineage)).ok_or_else(unknown)?;
                if lineage.level() >= LEVELS_MAX {
                    return Err(Error::invalid("parentId", format!("the tree may be {LEVELS_MAX} levels deep")));
                }
                access::write(caller, Action::OrganizationCreate, Some(id), &lineage)
            }
        };
        let pass = pass.map_err(|refusal| refusal.into_error("organization"))?;
        let new = NewOrganization {
            id: OrganizationId(self.new_id().0),
            name: input.name,
            description: input.description.over(None),
            children_inherit_dashboard: input.children_inherit_dashboard.unwrap_or(false),
            device_table: input.device_table.over(None),
        };
        let made = self.0.registry.organization_create(&pass, new, self.0.clock.now()).await.told()?;
        Ok(as_seen_by(caller, made))
    }

    /// Lists organizations: those beneath `parentId`, or the caller's own and those beneath it.
    pub async fn organization_list(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        list: ListRequest,
    ) -> Result<Page<Organization>> {
        let base = self.tree_base(caller, tree.organization).await?;
        // Level 1 of this list is the direct children (contract: Conventions), the second generation from the base.
        let levels = tree.depth.levels().map(|levels| levels.saturating_add(1));
        let pass = access::list(caller, Action::OrganizationRead, &base, levels);
        let pass = pass.map_err(|refusal| refusal.into_error("organization"))?;
        let page = self.0.registry.organization_list(&pass, tree.organization.is_none(), &list).await.told()?;
        Ok(page.map(|organization| as_seen_by(caller, organization)))
    }

    /// Fetches an organization.
    pub async fn organization_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Organization> {
        let pass = self.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        let found = self.0.registry.organization_fetch(&pass).await.told()?.ok_or(Error::Missing("organization"))?;
        Ok(as_seen_by(caller, found))
    }
}

/// The path begins at the caller's own organization: what lies above it is not told (contract: Conventions).
fn as_seen_by(caller: &Caller, mut organization: Organization) -> Organization {
    if caller.role == Role::SystemAdmin {
        return organization;
    }
    let ids = organization.lineage.ids();
    if let Some(start) = ids.iter().position(|id| *id == caller.organization()) {
        let own = organization.lineage.own();
        organization.lineage = Lineage::new(ids[start..ids.len() - 1].iter().copied(), own);
        organization.names.drain(..start.min(organization.names.len()));
    }
    organization
}
