//! Authorizes callers: obtains permits from `access` for a resource and its lineage.

use std::sync::Arc;

use isobar_model::access::{self, AccountChange, Action, Caller, CanList, CanRead, CanWrite, Lineage};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::page::Depth;

use super::Identity;
use super::authentication::Principal;
use crate::cache::entries::DeviceEntry;

/// Selects the part of the organization tree that a list covers.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeQuery {
    /// The organization at its top; the caller's own if `None`.
    pub organization: Option<OrganizationId>,
    /// The number of levels below it.
    pub depth: Depth,
}

/// Refuses account changes that a restricted API key must not make.
pub(crate) fn change_account(caller: &Caller, user: UserId, change: AccountChange) -> Result<()> {
    access::change_account(caller, user, change).map_err(|refusal| refusal.into_error("user"))
}

impl Identity {
    /// Checks that the caller's role is high enough for an action, before the resource is known.
    pub(crate) async fn allow(&self, caller: &Caller, action: Action) -> Result<()> {
        access::read(caller, action, (), &caller.lineage).map(|_| ()).map_err(|refusal| refusal.into_error("resource"))
    }

    /// Returns the permit of a user or a device for an action on a device. A device token opens its own device only;
    /// any other device is reported as missing.
    pub(crate) async fn device_write(
        &self,
        principal: &Principal,
        id: DeviceId,
        action: Action,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        match principal {
            Principal::Device(session) if session.device().id == id => Ok(session.permit()),
            Principal::Device(_) => Err(Error::Missing("device")),
            Principal::Nobody | Principal::Link(_) => Err(Error::Unauthenticated),
            Principal::User(caller) => self.user_device_write(caller, id, action).await,
        }
    }

    /// Returns the permit of a user for an action on a device.
    pub(crate) async fn user_device_write(
        &self,
        caller: &Caller,
        id: DeviceId,
        action: Action,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        let entry = self.caches.device_entry(id).await?.ok_or(Error::Missing("device"))?;
        let permit = access::write(caller, action, entry.device, &entry.lineage);
        Ok((permit.map_err(|refusal| refusal.into_error("device"))?, entry))
    }

    /// Returns the permit of a user to read a device.
    pub(crate) async fn user_device_read(
        &self,
        caller: &Caller,
        id: DeviceId,
    ) -> Result<(CanRead<DeviceRef>, Arc<DeviceEntry>)> {
        let (permit, entry) = self.user_device_write(caller, id, Action::DeviceRead).await?;
        Ok((permit.reading(), entry))
    }

    /// Returns the permit of a user or a device to read a device.
    pub(crate) async fn device_read(
        &self,
        principal: &Principal,
        id: DeviceId,
    ) -> Result<(CanRead<DeviceRef>, Arc<DeviceEntry>)> {
        let (permit, entry) = self.device_write(principal, id, Action::DeviceRead).await?;
        Ok((permit.reading(), entry))
    }

    /// Returns the permit to read a project.
    pub(crate) async fn project_read(&self, caller: &Caller, id: ProjectId) -> Result<CanRead<ProjectId>> {
        let lineage = self.env.registry().project_placement(id).await?.ok_or(Error::Missing("project"))?;
        access::read_shared(caller, Action::ProjectRead, id, &lineage).map_err(|refusal| refusal.into_error("project"))
    }

    /// Returns the permit to change a project.
    pub(crate) async fn project_write(
        &self,
        caller: &Caller,
        id: ProjectId,
        action: Action,
    ) -> Result<CanWrite<ProjectId>> {
        let lineage = self.env.registry().project_placement(id).await?.ok_or(Error::Missing("project"))?;
        access::write_shared(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("project"))
    }

    /// Returns the permit for an action on an organization.
    pub(crate) async fn organization_write(
        &self,
        caller: &Caller,
        id: OrganizationId,
        action: Action,
    ) -> Result<CanWrite<OrganizationId>> {
        let lineage = self.caches.lineage_of(id).await?.ok_or(Error::Missing("organization"))?;
        access::write(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("organization"))
    }

    /// Returns the permit to create something in the organization that a body names, or in the caller's own. An
    /// organization out of reach is reported as an invalid field of the body.
    pub(crate) async fn owner_permit(
        &self,
        caller: &Caller,
        named: Option<OrganizationId>,
        action: Action,
    ) -> Result<(CanWrite<OrganizationId>, Lineage)> {
        // The role is checked before the body.
        self.allow(caller, action).await?;
        let lineage = match named {
            None => Some(caller.lineage.clone()),
            Some(id) => self.caches.lineage_of(id).await?,
        };
        let unknown = || Error::invalid("organizationId", "no such organization");
        let lineage = lineage.filter(|lineage| caller.reaches(lineage)).ok_or_else(unknown)?;
        let permit = access::write(caller, action, lineage.own(), &lineage);
        Ok((permit.map_err(|refusal| refusal.into_error("organization"))?, lineage))
    }

    /// Returns the permit for an action on a user. A user of a higher rank cannot be changed; each user may change
    /// itself.
    pub(crate) async fn user_write(&self, caller: &Caller, id: UserId, action: Action) -> Result<CanWrite<UserId>> {
        if id == caller.user && matches!(action, Action::UserRead | Action::UserUpdate | Action::ApiKeyManage) {
            return Ok(access::own(caller));
        }
        let (lineage, role) = self.env.registry().user_placement(id).await?.ok_or(Error::Missing("user"))?;
        let permit = access::write(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("user"))?;
        if role > caller.role && action != Action::UserRead {
            return Err(Error::Forbidden(format!("a {} may not change a {}", caller.role.name(), role.name())));
        }
        Ok(permit)
    }

    /// Returns the permit to list part of the tree; a base organization out of reach is 404.
    pub(crate) async fn list_permit(&self, caller: &Caller, tree: TreeQuery, action: Action) -> Result<CanList> {
        let base = self.tree_base(caller, tree.organization).await?;
        access::list(caller, action, &base, tree.depth.levels()).map_err(|refusal| refusal.into_error("organization"))
    }

    /// Returns the permit to list part of the tree and what organizations above share; a base organization out of reach
    /// is 404.
    pub(crate) async fn shared_list_permit(&self, caller: &Caller, tree: TreeQuery, action: Action) -> Result<CanList> {
        let base = self.tree_base(caller, tree.organization).await?;
        let permit = access::list_shared(caller, action, &base, tree.depth.levels());
        permit.map_err(|refusal| refusal.into_error("organization"))
    }

    /// Returns the lineage of the organization at which a list begins.
    pub(crate) async fn tree_base(&self, caller: &Caller, named: Option<OrganizationId>) -> Result<Lineage> {
        match named {
            None => Ok(caller.lineage.clone()),
            Some(id) => self.caches.lineage_of(id).await?.ok_or(Error::Missing("organization")),
        }
    }
}
