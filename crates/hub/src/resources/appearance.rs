//! How organizations show themselves: branding, dashboard, device table.

use std::sync::Arc;

use isobar_model::access::{Action, Caller};
use isobar_model::appearance::{Branding, BrandingInput, Dashboard, DashboardInput, DeviceTable, DeviceTableInput};
use isobar_model::check::Patch;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;

use crate::Hub;
use crate::error::Told as _;
use crate::identity::authorization::Principal;

impl Hub {
    /// Fetches an organization's branding.
    pub async fn branding_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Branding> {
        let pass = self.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        self.0.registry.branding_fetch(&pass).await.told()
    }

    /// Changes an organization's branding: what the body leaves out keeps its value.
    pub async fn branding_update(&self, caller: &Caller, id: OrganizationId, input: BrandingInput) -> Result<Branding> {
        let pass = self.organization_write(caller, id, Action::OrganizationUpdate).await?;
        self.0.registry.branding_update(&pass, input).await.told()
    }

    /// Fetches the dashboard that an organization shows, its own or one that is lent from above; an empty one when there
    /// is neither.
    pub async fn dashboard_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Dashboard> {
        let pass = self.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        Ok(self.0.registry.dashboard_fetch(&pass).await.told()?.unwrap_or_default())
    }

    /// Changes an organization's own dashboard.
    pub async fn dashboard_update(
        &self,
        caller: &Caller,
        id: OrganizationId,
        input: DashboardInput,
    ) -> Result<Dashboard> {
        let pass = self.organization_write(caller, id, Action::OrganizationUpdate).await?;
        self.0.registry.dashboard_update(&pass, input).await.told()
    }

    /// Fetches an organization's device table; one without columns when it was never set.
    pub async fn device_table_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<DeviceTable> {
        let pass = self.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        let stored = self.0.registry.device_table_fetch(&pass).await.told()?;
        Ok(stored.as_ref().map(DeviceTable::of).unwrap_or_default())
    }

    /// Changes an organization's device table.
    pub async fn device_table_update(
        &self,
        caller: &Caller,
        id: OrganizationId,
        input: DeviceTableInput,
    ) -> Result<DeviceTable> {
        let pass = self.organization_write(caller, id, Action::OrganizationUpdate).await?;
        if let Patch::Set(device) = input.device {
            match self.device_read(&Principal::User(Arc::new(caller.clone())), device).await {
                Ok(_) => {}
                Err(Error::Missing(_)) => return Err(Error::invalid("deviceId", "no such device")),
                Err(error) => return Err(error),
            }
        }
        let stored = self.0.registry.device_table_update(&pass, Some(&input), self.0.clock.now()).await.told()?;
        Ok(stored.as_ref().map(DeviceTable::of).unwrap_or_default())
    }

    /// Clears an organization's device table.
    pub async fn device_table_delete(&self, caller: &Caller, id: OrganizationId) -> Result<()> {
        let pass = self.organization_write(caller, id, Action::OrganizationUpdate).await?;
        self.0.registry.device_table_update(&pass, None, self.0.clock.now()).await.told().map(|_| ())
    }
}
