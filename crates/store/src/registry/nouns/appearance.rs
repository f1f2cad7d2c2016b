//! Stores the appearance of organizations: branding and device table, at most one of each.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::appearance::{Branding, BrandingInput, DeviceTableInput};
use isobar_model::ids::OrganizationId;
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;

use super::organizations::hold_organization;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Sql, one, run};

impl Registry {
    /// Fetches an organization's branding; values that were never set are `None`.
    pub async fn branding_fetch(&self, permit: &CanRead<OrganizationId>) -> Result<Branding> {
        branding(&self.db.read, *permit.target()).await
    }

    /// Changes an organization's branding.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn branding_update(&self, permit: &CanWrite<OrganizationId>, input: BrandingInput) -> Result<Branding> {
        let id = *permit.target();
        let tx = self.db.begin().await?;
        hold_organization(&tx, id, self.db.dialect.hold_for_change()).await?;
        let changed = input.over(branding(&tx, id).await?);
        let upsert = Sql::new(
            "INSERT INTO organization_brandings (organization_id, company_name, address_line_1, address_line_2, domain, \
             domain_http_file_overrides, domain_public_configuration, email, email_sender_name) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (organization_id) DO UPDATE SET \
             company_name = excluded.company_name, address_line_1 = excluded.address_line_1, \
             address_line_2 = excluded.address_line_2, domain = excluded.domain, \
             domain_http_file_overrides = excluded.domain_http_file_overrides, \
             domain_public_configuration = excluded.domain_public_configuration, email = excluded.email, \
             email_sender_name = excluded.email_sender_name",
        )
        .bind(id)
        .bind(changed.company_name)
        .bind(changed.address_line_1)
        .bind(changed.address_line_2)
        .bind(changed.domain)
        .bind(changed.domain_http_file_overrides)
        .bind(changed.domain_public_configuration)
        .bind(changed.email)
        .bind(changed.email_sender_name);
        run(&tx, upsert).await?;
        let changed = branding(&tx, id).await?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Fetches an organization's `deviceTable`, if it has one.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn device_table_fetch(&self, permit: &CanRead<OrganizationId>) -> Result<Option<RawJson>> {
        device_table(&self.db.read, *permit.target()).await
    }

    /// Changes an organization's `deviceTable`, or clears it without an input. Returns the new value.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn device_table_update(
        &self,
        permit: &CanWrite<OrganizationId>,
        input: Option<&DeviceTableInput>,
        now: Timestamp,
    ) -> Result<Option<RawJson>> {
        let id = *permit.target();
        let tx = self.db.begin().await?;
        hold_organization(&tx, id, self.db.dialect.hold_for_change()).await?;
        let present = device_table(&tx, id).await?;
        let changed = input.map(|input| input.over(present.as_ref()));
        let update = Sql::new("UPDATE organizations SET device_table = ?, updated_at = ? WHERE id = ?");
        run(&tx, update.bind(changed).bind(now).bind(id)).await?;
        let changed = device_table(&tx, id).await?;
        tx.commit().await?;
        Ok(changed)
    }
}

async fn branding(connection: &impl Connection, id: OrganizationId) -> Result<Branding> {
    let query = Sql::new(
        "SELECT company_name, address_line_1, address_line_2, domain, domain_http_file_overrides, \
         domain_public_configuration, email, email_sender_name FROM organization_brandings WHERE organization_id = ?",
    );
    let Some(row) = one(connection, query.bind(id)).await? else { return Ok(Branding::default()) };
    Ok(Branding {
        company_name: row.text_if("company_name")?,
        address_line_1: row.text_if("address_line_1")?,
        address_line_2: row.text_if("address_line_2")?,
        domain: row.text_if("domain")?,
        domain_http_file_overrides: row.json_if("domain_http_file_overrides")?,
        domain_public_configuration: row.json_if("domain_public_configuration")?,
        email: row.text_if("email")?,
        email_sender_name: row.text_if("email_sender_name")?,
    })
}

async fn device_table(connection: &impl Connection, id: OrganizationId) -> Result<Option<RawJson>> {
    let query = Sql::new("SELECT device_table FROM organizations WHERE id = ?").bind(id);
    one(connection, query).await?.ok_or(StoreError::Gone("organization"))?.json_if("device_table")
}
