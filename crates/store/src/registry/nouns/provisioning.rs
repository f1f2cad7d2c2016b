//! Provisioning: devices that are made when they are first heard of, each once.

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

/// A device to be made unless one carries its tag; its metadata holds the tag.
#[derive(Clone, Debug)]
pub struct NewTagged {
    /// The value of the tag.
    pub value: String,
    /// The device.
    pub device: NewDevice,
}

/// What came of a device that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioned {
    /// It was made.
    Made(DeviceRef),
    /// Another one carries the tag.
    Known(DeviceRef),
    /// Several carry the tag in other cases: which of them is meant cannot be told.
    Ambiguous,
    /// The organization or one above it has all the devices that it may have.
    NoRoom,
    /// Its project is gone.
    NoProject,
}

impl Registry {
    /// Makes the devices that nobody in the organization's subtree carries the tag of, in one transaction; what came
    /// of each, in order. However many ask for the same one at once, it is made once: who provisions into an
    /// organization holds it until its devices can be seen.
    ///
    /// # Errors
    /// [`Gone`](crate::error::StoreError::Gone) where the organization is gone. What keeps a single device from being made is in the answer.
    pub async fn devices_provision(
        &self,
        permit: &CanWrite<OrganizationId>,
        tag: Tag<'_>,
        wanted: &[NewTagged],
        now: Timestamp,
    ) -> Result<Vec<Provisioned>> {
        let organization = *permit.target();
        let mut numbers = self.given.begin();
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
