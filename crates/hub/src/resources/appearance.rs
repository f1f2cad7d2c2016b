//! Manages the appearance of organizations: branding and device table.

use isobar_model::access::{Action, Caller};
use isobar_model::appearance::{Branding, BrandingInput, DeviceTable, DeviceTableInput};
use isobar_model::check::Patch;
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;

use crate::Hub;
use crate::error::if_there;

impl Hub {
    /// Fetches an organization's branding.
    ///
    /// Needs `OrganizationRead`.
    pub async fn branding_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Branding> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        Ok(self.registry().branding_fetch(&permit).await?)
    }

    /// Changes an organization's branding: fields missing in the body keep their values.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    pub async fn branding_update(&self, caller: &Caller, id: OrganizationId, input: BrandingInput) -> Result<Branding> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        Ok(self.registry().branding_update(&permit, input).await?)
    }

    /// Fetches an organization's device table; it has no columns if it was never set.
    ///
    /// Needs `OrganizationRead`.
    pub async fn device_table_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<DeviceTable> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        let stored = self.registry().device_table_fetch(&permit).await?;
        Ok(stored.as_ref().map(DeviceTable::of).unwrap_or_default())
    }

    /// Changes an organization's device table.
    ///
    /// Needs `OrganizationUpdate`, and `DeviceRead` on the device that is named. Durable when this returns.
    pub async fn device_table_update(
        &self,
        caller: &Caller,
        id: OrganizationId,
        input: DeviceTableInput,
    ) -> Result<DeviceTable> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        if let Patch::Set(device) = input.device
            && if_there(self.0.identity.user_device_read(caller, device).await)?.is_none()
        {
            return Err(Error::invalid("deviceId", "no such device"));
        }
        let stored = self.registry().device_table_update(&permit, Some(&input), self.now()).await?;
        Ok(stored.as_ref().map(DeviceTable::of).unwrap_or_default())
    }

    /// Clears an organization's device table.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    pub async fn device_table_delete(&self, caller: &Caller, id: OrganizationId) -> Result<()> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        self.registry().device_table_update(&permit, None, self.now()).await?;
        Ok(())
    }
}
