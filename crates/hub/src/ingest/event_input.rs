//! The input of a posted event: device, element, idempotency key, payload. All faults are reported together.

use std::sync::Arc;

use isobar_design::Plan;
use isobar_model::access::{Action, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceRef;

use super::Ingest;
use crate::cache::entries::DeviceEntry;
use crate::error::if_there;
use crate::identity::authentication::Principal;

/// Longest element name, in characters.
pub(crate) const ELEMENT_NAME_MAX: usize = 128;
/// The fault of a name that is not text, or contains U+0000.
pub const NO_NAME: &str = "must be text in UTF-8, without the character U+0000";
/// Longest idempotency key, in characters (contract: Events).
pub(crate) const IDEMPOTENCY_KEY_MAX: usize = 64;

impl Ingest {
    /// Finds the faults of the parameters of an event with a faulty body.
    pub(crate) async fn event_parameters(
        &self,
        principal: &Principal,
        device: Option<&str>,
        element: Option<&str>,
    ) -> Result<()> {
        let mut faults = Faults::new();
        let target = self.event_device(principal, device, &mut faults).await?;
        let element = element_name(element, &mut faults);
        if let (Some((_, entry)), Some(element)) = (target, element) {
            accepted_name(&*self.caches.plan_of_device(&entry).await?, element, &mut faults);
        }
        faults.end()
    }

    /// The device of a posted event. One that is unknown or out of reach is a fault here, not a 404 (contract: Conventions).
    pub(crate) async fn event_device(
        &self,
        principal: &Principal,
        device: Option<&str>,
        faults: &mut Faults,
    ) -> Result<Option<(CanWrite<DeviceRef>, Arc<DeviceEntry>)>> {
        if let Principal::Device(session) = principal {
            return Ok(Some(session.permit()));
        }
        Box::pin(self.event_device_of_user(principal, device, faults)).await
    }

    async fn event_device_of_user(
        &self,
        principal: &Principal,
        device: Option<&str>,
        faults: &mut Faults,
    ) -> Result<Option<(CanWrite<DeviceRef>, Arc<DeviceEntry>)>> {
        self.identity.allow(principal.user()?, Action::DeviceEventCreate).await?;
        let Some(text) = device else {
            faults.add("query.deviceId", "is required");
            return Ok(None);
        };
        let found = match text.parse() {
            Ok(id) => self.identity.device_write(principal, id, Action::DeviceEventCreate).await,
            Err(_) => Err(Error::Missing("device")),
        };
        let found = if_there(found)?;
        if found.is_none() {
            faults.add("query.deviceId", "no such device");
        }
        Ok(found)
    }
}

/// Checks an element name of a query.
pub(crate) fn element_name<'a>(element: Option<&'a str>, faults: &mut Faults) -> Option<&'a str> {
    match element {
        None => faults.add("query.elementName", "is required"),
        Some(name) if name.as_bytes().contains(&0) => faults.add("query.elementName", NO_NAME),
        Some(name) => faults.length("query.elementName", name, 1, ELEMENT_NAME_MAX),
    }
    element
}

/// The name under which a design takes events of that element.
pub(crate) fn accepted_name(plan: &Plan, element: &str, faults: &mut Faults) -> Option<Arc<str>> {
    let name = plan.event_name(element);
    if name.is_none() {
        faults.add("query.elementName", "is no deviceEvent element of the project's design");
    }
    name
}

/// Checks an idempotency key.
pub(crate) fn check_idempotency_key(key: Option<&str>, faults: &mut Faults) {
    faults.length_if("header.Idempotency-Key", key, 1, IDEMPOTENCY_KEY_MAX);
}
