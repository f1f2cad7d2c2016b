//! Authorization: what a caller may do. Permits come from `access`, asked here with the lineage of the thing.

use std::sync::Arc;

use isobar_model::access::{self, AccountChange, Action, Caller, CanList, CanRead, CanWrite, Lineage};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::page::Depth;

use super::Identity;
use super::authentication::Principal;
use crate::cache::entries::DeviceEntry;

/// Which part of the organization tree a list looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeQuery {
    /// The organization at its top; none: the caller's.
    pub organization: Option<OrganizationId>,
    /// How far down.
    pub depth: Depth,
}

/// Refuses a caller that comes with an API key that is less than its user what such a key may not do to an account.
pub(crate) fn change_account(caller: &Caller, user: UserId, change: AccountChange) -> Result<()> {
    access::change_account(caller, user, change).map_err(|refusal| refusal.into_error("user"))
}

impl Identity {
    /// Whether the caller's role is high enough for an action that names no thing yet.
    pub(crate) async fn allow(&self, caller: &Caller, action: Action) -> Result<()> {
        access::read(caller, action, (), &caller.lineage).map(|_| ()).map_err(|refusal| refusal.into_error("resource"))
    }

    /// The permit of a user or a device to do something with a device. A device token opens its own device alone; any other
    /// is hidden from it.
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

    /// The permit of a user to do something with a device.
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

    /// The permit of a user to see a device.
    pub(crate) async fn user_device_read(
        &self,
        caller: &Caller,
        id: DeviceId,
    ) -> Result<(CanRead<DeviceRef>, Arc<DeviceEntry>)> {
        let (permit, entry) = self.user_device_write(caller, id, Action::DeviceRead).await?;
        Ok((permit.reading(), entry))
    }

    /// The permit of a user or a device to see a device.
    pub(crate) async fn device_read(
        &self,
        principal: &Principal,
        id: DeviceId,
    ) -> Result<(CanRead<DeviceRef>, Arc<DeviceEntry>)> {
        let (permit, entry) = self.device_write(principal, id, Action::DeviceRead).await?;
        Ok((permit.reading(), entry))
    }

    /// The permit to see a project.
    pub(crate) async fn project_read(&self, caller: &Caller, id: ProjectId) -> Result<CanRead<ProjectId>> {
        let lineage = self.env.registry().project_placement(id).await?.ok_or(Error::Missing("project"))?;
        access::read_shared(caller, Action::ProjectRead, id, &lineage).map_err(|refusal| refusal.into_error("project"))
    }

    /// The permit to change a project.
    pub(crate) async fn project_write(
        &self,
        caller: &Caller,
        id: ProjectId,
        action: Action,
    ) -> Result<CanWrite<ProjectId>> {
        let lineage = self.env.registry().project_placement(id).await?.ok_or(Error::Missing("project"))?;
        access::write_shared(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("project"))
    }

    /// The permit to do something with an organization.
    pub(crate) async fn organization_write(
        &self,
        caller: &Caller,
        id: OrganizationId,
        action: Action,
    ) -> Result<CanWrite<OrganizationId>> {
        let lineage = self.caches.lineage_of(id).await?.ok_or(Error::Missing("organization"))?;
        access::write(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("organization"))
    }

    /// The permit to put something into the organization that a body names, or into the caller's own.
    /// One that is out of reach does not exist: a fault of the body.
    pub(crate) async fn owner_permit(
        &self,
        caller: &Caller,
        named: Option<OrganizationId>,
        action: Action,
    ) -> Result<(CanWrite<OrganizationId>, Lineage)> {
        // The role comes before the body.
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

    /// The permit to do something with a user. Nobody changes a user of a higher rank; everybody may change itself.
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

    /// The permit to list part of the tree; a base that is out of reach is 404, for it does not exist.
    pub(crate) async fn list_permit(&self, caller: &Caller, tree: TreeQuery, action: Action) -> Result<CanList> {
        let base = self.tree_base(caller, tree.organization).await?;
        access::list(caller, action, &base, tree.depth.levels()).map_err(|refusal| refusal.into_error("organization"))
    }

    /// The permit to list part of the tree with what organizations above it share; a base that is out of reach is 404.
    pub(crate) async fn shared_list_permit(&self, caller: &Caller, tree: TreeQuery, action: Action) -> Result<CanList> {
        let base = self.tree_base(caller, tree.organization).await?;
        let permit = access::list_shared(caller, action, &base, tree.depth.levels());
        permit.map_err(|refusal| refusal.into_error("organization"))
    }

    /// The lineage of the organization that a list begins at.
    pub(crate) async fn tree_base(&self, caller: &Caller, named: Option<OrganizationId>) -> Result<Lineage> {
        match named {
            None => Ok(caller.lineage.clone()),
            Some(id) => self.caches.lineage_of(id).await?.ok_or(Error::Missing("organization")),
        }
    }
}
