//! Provisions devices: creates them at their first message, each once.

use std::collections::HashMap;

use isobar_model::access::{CanWrite, Scope};
use isobar_model::ids::{DeviceRef, OrganizationId};
use isobar_model::time::Timestamp;

use super::device_creation::{hold_projects, put};
use super::devices::NewDevice;
use super::labels::{self, Tag, TagCarrier};
use super::organizations::{devices_left, hold_organization};
use super::projects::count_in_projects;
use crate::error::Result;
use crate::registry::Registry;

/// Device to be created unless one has its tag; its metadata contains the tag.
#[derive(Clone, Debug)]
pub struct NewTagged {
    /// Value of the tag.
    pub value: String,
    /// Device to create.
    pub device: NewDevice,
}

/// Outcome for a device that was to be provisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioned {
    /// The device was created.
    Made(DeviceRef),
    /// Another device has the tag.
    Known(DeviceRef),
    /// Several devices have the tag in other cases: none can be chosen.
    Ambiguous,
    /// The organization or one above it has reached its device limit.
    NoRoom,
    /// The project is gone.
    NoProject,
}

impl Registry {
    /// Creates the devices whose tag no device in the organization's subtree has, in one transaction; returns the
    /// outcome of each, in order. Concurrent requests for the same one create it once: provisioning locks the
    /// organization until its devices are visible.
    ///
    /// # Errors
    /// [`Gone`](crate::error::StoreError::Gone) where the organization is gone. Reasons that concern a single device
    /// are in the answer.
    pub async fn devices_provision(
        &self,
        permit: &CanWrite<OrganizationId>,
        tag: Tag<'_>,
        wanted: &[NewTagged],
        now: Timestamp,
    ) -> Result<Vec<Provisioned>> {
        let organization = *permit.target();
        self.count_places().await?;
        let mut numbers = self.given.begin(&self.places);
        let tx = self.db.begin().await?;
        let lineage = hold_organization(&tx, organization, self.db.dialect.hold_in_place()).await?;
        let mut left = devices_left(&tx, &lineage, &[], &[organization]).await?;
        let projects = hold_projects(&tx, wanted.iter().map(|new| new.device.project)).await?;
        let values: Vec<&str> = wanted.iter().map(|new| new.value.as_str()).collect();
        let scope = Scope::Beneath { base: lineage, levels: None };
        let known = labels::find(&tx, &scope, tag, &values).await?;
        let mut missing = Vec::new();
        for new in wanted.iter().filter(|new| !known.contains_key(&new.value)) {
            if projects.contains(&new.device.project) && left > 0 {
                left -= 1;
                missing.push(&new.device);
            }
        }
        let keys = put(&tx, organization, &missing, &mut numbers, now).await?;
        count_in_projects(&tx, missing.iter().map(|device| (device.project, 1))).await?;
        tx.commit().await?;
        self.given.end(&numbers);
        let made: HashMap<_, _> = missing.iter().map(|device| device.id).zip(keys).collect();
        let outcome = |new: &NewTagged| match (known.get(&new.value), made.get(&new.device.id)) {
            (Some(TagCarrier::Device(known, _)), _) => Provisioned::Known(*known),
            (Some(TagCarrier::Ambiguous), _) => Provisioned::Ambiguous,
            (None, Some(key)) => Provisioned::Made(DeviceRef { id: new.device.id, key: *key }),
            (None, None) if projects.contains(&new.device.project) => Provisioned::NoRoom,
            (None, None) => Provisioned::NoProject,
        };
        Ok(wanted.iter().map(outcome).collect())
    }
}
