//! Creates, lists, reads, changes and deletes organizations.

use isobar_model::access::{self, Action, Caller, CanWrite, Lineage};
use isobar_model::check::Patch;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::organization::{LEVELS_MAX, Organization, OrganizationInput};
use isobar_model::page::{ListRequest, Page};
use isobar_model::role::Role;
use isobar_store::error::StoreError;
use isobar_store::registry::{Assigned, NewOrganization};

use crate::error::{PARENT, naming};
use crate::outbox::Shown;
use crate::{Hub, TreeQuery};

impl Hub {
    /// Creates an organization beneath the named one, or beneath the caller's own. `parentId: null` requests a
    /// top-level one, which only a system administrator creates.
    ///
    /// Needs `OrganizationCreate` on the parent, or `OrganizationCreateTop`. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: there is no such parent, or it is on the 32nd level.
    pub async fn organization_create(&self, caller: &Caller, input: OrganizationInput) -> Result<Organization> {
        self.0.identity.allow(caller, Action::OrganizationCreate).await?;
        let parent = match input.parent {
            Patch::Set(id) => Some(id),
            Patch::Clear if caller.role == Role::SystemAdmin => None,
            Patch::Clear | Patch::Keep => Some(caller.organization()),
        };
        let permit = match parent {
            None => access::write(caller, Action::OrganizationCreateTop, None, &caller.lineage),
            Some(id) => {
                let unknown = || Error::invalid("parentId", "no such organization");
                let found = self.0.caches.lineage_of(id).await?;
                let lineage = found.filter(|lineage| caller.reaches(lineage)).ok_or_else(unknown)?;
                if lineage.level() >= LEVELS_MAX {
                    return Err(Error::invalid("parentId", format!("the tree may be {LEVELS_MAX} levels deep")));
                }
                access::write(caller, Action::OrganizationCreate, Some(id), &lineage)
            }
        };
        let permit = permit.map_err(|refusal| refusal.into_error("organization"))?;
        let new = NewOrganization {
            id: OrganizationId(self.0.env.new_id().0),
            name: input.name,
            description: input.description.over(None),
            children_inherit_dashboard: input.children_inherit_dashboard.unwrap_or(false),
            device_table: input.device_table.over(None),
        };
        let made = self.registry().organization_create(&permit, new, self.now()).await.map_err(naming(&[PARENT]))?;
        Ok(as_seen_by(caller, made))
    }

    /// Lists organizations: those beneath `parentId`, or the caller's own and those beneath it.
    ///
    /// Needs `OrganizationRead` on that part of the tree. Waits up to a second for pending changes of designs.
    pub async fn organization_list(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        list: ListRequest,
    ) -> Result<Page<Organization>> {
        let base = self.0.identity.tree_base(caller, tree.organization).await?;
        // Level 1 of this list are the direct children (contract: Conventions), the second generation from the base.
        let levels = tree.depth.levels().map(|levels| levels.saturating_add(1));
        let permit = access::list(caller, Action::OrganizationRead, &base, levels);
        let permit = permit.map_err(|refusal| refusal.into_error("organization"))?;
        self.0.outbox.caught_up(base.top(), &[Shown::State]).await;
        let page = self.registry().organization_list(&permit, tree.organization.is_none(), &list).await?;
        Ok(page.map(|organization| as_seen_by(caller, organization)))
    }

    /// Fetches an organization.
    ///
    /// Needs `OrganizationRead`. Waits up to a second for pending changes of designs.
    pub async fn organization_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Organization> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        // The organization shows the status of its devices, changes of which may be pending.
        if let Some(lineage) = self.0.caches.lineage_of(id).await? {
            self.0.outbox.caught_up(lineage.top(), &[Shown::State]).await;
        }
        let found = self.registry().organization_fetch(&permit).await?.ok_or(Error::Missing("organization"))?;
        Ok(as_seen_by(caller, found))
    }

    /// Fetches an organization with the present usage of its subtree.
    ///
    /// Needs `OrganizationRead`. Sizes are bytes. First writes the pending figures of stored bytes.
    pub async fn usage_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Organization> {
        self.allow_organization(caller, id, Action::OrganizationRead).await?;
        self.0.usage.usage_settled().await?;
        self.organization_fetch(caller, id).await
    }

    /// Changes an organization: fields missing in the body keep their values. A new parent moves it, with everything
    /// beneath it.
    ///
    /// Needs `OrganizationUpdate`, on a new parent too; limits are set from an organization above. Durable when this
    /// returns; the next call of every user beneath it sees it.
    ///
    /// # Errors
    /// `Invalid`: the parent is unknown, beneath the organization itself, or a limit of it would be exceeded.
    pub async fn organization_update(
        &self,
        caller: &Caller,
        id: OrganizationId,
        input: OrganizationInput,
    ) -> Result<Organization> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        let old = self.registry().organization_fetch(&permit.reading()).await?;
        let old = old.ok_or(Error::Missing("organization"))?;
        let device_count_limit = new_limit(input.device_count_limit, old.device_count_limit);
        let data_usage_mb_limit = new_limit(input.data_usage_mb_limit, old.data_usage_mb_limit);
        let limits = device_count_limit.is_some() || data_usage_mb_limit.is_some();
        if limits && id == caller.organization() && caller.role < Role::SystemAdmin {
            return Err(Error::Forbidden("limits are set from an organization above".to_owned()));
        }
        let to = self.new_parent(caller, &old, &input.parent).await?;
        let change = OrganizationInput { device_count_limit, data_usage_mb_limit, ..input };
        let changed = self.registry().organization_update(&permit, &change, to.as_ref(), self.now()).await;
        let (changed, is_renamed) = changed.map_err(|error| match error {
            StoreError::Limit(why) => Error::invalid("parentId", why),
            other => other.into(),
        })?;
        if to.is_some() {
            self.0.caches.departures().note(old.lineage.top());
            self.alarms_unassign(Assigned::Anywhere).await;
        }
        // Devices show the name of their organization.
        if to.is_some() || is_renamed {
            self.0.caches.organization_changed(id);
        }
        if limits || to.is_some() {
            self.0.usage.unsettle();
            if let Err(error) = self.0.usage.usage_settled().await {
                tracing::warn!(%error, "new limits hold in a few seconds");
            }
        }
        Ok(as_seen_by(caller, changed))
    }

    /// Returns the permit to move an organization beneath the parent that a body names, or to the top; `None` if it
    /// does not move.
    async fn new_parent(
        &self,
        caller: &Caller,
        old: &Organization,
        named: &Patch<OrganizationId>,
    ) -> Result<Option<CanWrite<Option<OrganizationId>>>> {
        let own = old.lineage.own();
        let parent = match named {
            Patch::Keep => return Ok(None),
            Patch::Set(parent) => Some(*parent),
            // The organization's own users see no parent, and send back what they see.
            Patch::Clear if own == caller.organization() => return Ok(None),
            Patch::Clear => None,
        };
        if parent == old.lineage.parent() {
            return Ok(None);
        }
        if own == caller.organization() {
            return Err(Error::invalid("parentId", "nobody moves the own organization"));
        }
        let permit = match parent {
            None => access::write(caller, Action::OrganizationCreateTop, None, &old.lineage),
            Some(id) => {
                let found = self.0.caches.lineage_of(id).await?.filter(|lineage| caller.reaches(lineage));
                let lineage = found.ok_or_else(|| Error::invalid("parentId", "no such organization"))?;
                access::write(caller, Action::OrganizationUpdate, Some(id), &lineage)
            }
        };
        permit.map(Some).map_err(|refusal| refusal.into_error("organization"))
    }

    /// Deletes an organization that has nothing beneath it.
    ///
    /// Needs `OrganizationDelete`. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: something is still beneath it.
    pub async fn organization_delete(&self, caller: &Caller, id: OrganizationId) -> Result<()> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationDelete).await?;
        self.registry().organization_delete(&permit).await?;
        self.0.caches.organization_changed(id);
        self.0.usage.unsettle();
        Ok(())
    }
}

/// Returns a limit in a body if it differs from the present one: a value sent back unchanged needs no right to set
/// limits.
fn new_limit(named: Option<f64>, present: f64) -> Option<f64> {
    named.filter(|limit| *limit != present)
}

/// Cuts the path so that it begins at the caller's own organization: organizations above are hidden (contract:
/// Conventions).
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
