//! Reads stored values, last values and storage elements.

use std::sync::Arc;

use isobar_model::access::{Action, Caller};
use isobar_model::error::{Error, Result};
use isobar_model::event::{LastValues, StoredValue};
use isobar_model::ids::DeviceId;
use isobar_model::json::RawJson;
use isobar_model::page::{ListRequest, Page, PageRequest};
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;
use isobar_quota::Claim;
use isobar_store::telemetry::ValueQuery;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::identity::authentication::Principal;

/// A storage element of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageElement {
    /// Its name.
    pub name: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// Time of its first value, or of the device's creation if the design declares it.
    pub created_at: Timestamp,
    /// Time of its newest value.
    pub updated_at: Timestamp,
    /// The design's description of the keys of its values, by path, if there is one.
    pub fields: Option<RawJson>,
}

/// A page of the storage elements of a device.
#[derive(Clone, Debug)]
pub struct StorageList {
    /// The page, by name.
    pub page: Page<StorageElement>,
    /// Bytes of all payloads that the device has stored.
    pub bytes_stored: u64,
}

pub(crate) const ELEMENT: &str = "storage element";

impl Hub {
    /// Reads a page of stored values. An element that the design declares exists even if it is empty.
    ///
    /// Needs `DeviceRead`. A query that needs more than a seek in the series waits for a slot among the long reads.
    ///
    /// # Errors
    /// `Missing`: there is no such device or element. `Invalid`: the page lies too far back in an order by payload.
    pub async fn values(
        &self,
        caller: &Caller,
        id: DeviceId,
        element: &str,
        query: ValueQuery,
    ) -> Result<Page<StoredValue>> {
        let (permit, entry) = self.0.identity.user_device_read(caller, id).await?;
        let (page, kept) = (query.page, self.kept(&entry, element).await?);
        let query = ValueQuery { kept, ..query };
        match self.telemetry().values(&permit, element, query, Claim::begin(caller.lineage.top())).await? {
            Some(values) => Ok(values),
            None if self.declares(&entry, element).await? => Ok(Page::new(Vec::new(), 0, page)),
            None => Err(Error::Missing(ELEMENT)),
        }
    }

    /// Returns the retention of a storage element at this moment, which filters every query of its values.
    pub(crate) async fn kept(&self, entry: &DeviceEntry, element: &str) -> Result<Kept> {
        Ok(self.0.caches.retention_of_device(entry).await?.kept(element, self.now()))
    }

    /// Returns true if the device's design declares a storage element.
    pub(crate) async fn declares(&self, entry: &DeviceEntry, element: &str) -> Result<bool> {
        let plan = self.0.caches.plan_of_device(entry).await?;
        Ok(plan.storage_elements().iter().any(|name| &**name == element))
    }

    /// Reads the last values of a storage element; `None` if it is empty.
    ///
    /// Needs `DeviceRead`; a device reads its own.
    ///
    /// # Errors
    /// `Missing`: there is no such device or element.
    pub async fn last_values(&self, principal: &Principal, id: DeviceId, element: &str) -> Result<Option<LastValues>> {
        let (permit, entry) = self.0.identity.device_read(principal, id).await?;
        match self.telemetry().last(&permit, element).await? {
            None if !self.declares(&entry, element).await? => Err(Error::Missing(ELEMENT)),
            last => Ok(last),
        }
    }

    /// Returns the design's description of the keys of a storage element, if there is one.
    ///
    /// Needs `DeviceRead`; a device reads its own.
    pub(crate) async fn storage_fields(
        &self,
        principal: &Principal,
        id: DeviceId,
        element: &str,
    ) -> Result<Option<RawJson>> {
        let (_, entry) = self.0.identity.device_read(principal, id).await?;
        Ok(self.0.caches.plan_of_device(&entry).await?.storage_fields(element).cloned())
    }

    /// Lists the storage elements of a device by name, ascending or descending: those with data and those that the
    /// design declares.
    ///
    /// Needs `DeviceRead`. Sizes are bytes of payloads.
    pub async fn storage_list(&self, caller: &Caller, id: DeviceId, request: ListRequest) -> Result<StorageList> {
        let (permit, entry) = self.0.identity.user_device_read(caller, id).await?;
        let series = self.telemetry().series(&permit).await?;
        let bounds = self.0.caches.retention_of_device(&entry).await?.all_kept(self.now());
        let bytes_stored = self.telemetry().visible_bytes(&permit, bounds).await?;
        let plan = self.0.caches.plan_of_device(&entry).await?;
        let held = series.into_iter().map(|series| StorageElement {
            fields: plan.storage_fields(&series.element).cloned(),
            name: series.element,
            device: id,
            created_at: series.created_at,
            updated_at: series.updated_at,
        });
        let mut elements: Vec<StorageElement> = held.collect();
        for name in plan.storage_elements() {
            if elements.iter().all(|element| element.name != *name) {
                elements.push(declared(&entry, name, plan.storage_fields(name).cloned()));
            }
        }
        elements.sort_by(|left, right| left.name.cmp(&right.name));
        // Names are unique, so the first sort key decides.
        if request.sort.first().is_some_and(|key| key.descending) {
            elements.reverse();
        }
        Ok(StorageList { page: Page::of(elements, request.page), bytes_stored })
    }

    /// Fetches a storage element.
    ///
    /// Needs `DeviceRead`.
    ///
    /// # Errors
    /// `Missing`: there is no such device or element.
    pub async fn storage_fetch(&self, caller: &Caller, id: DeviceId, element: &str) -> Result<StorageElement> {
        let all = PageRequest::new(1, u32::MAX);
        let list = self.storage_list(caller, id, ListRequest { page: all, ..ListRequest::default() }).await?;
        list.page.items.into_iter().find(|found| &*found.name == element).ok_or(Error::Missing(ELEMENT))
    }

    /// Deletes a storage element, or all of them if `element` is `None`, with its values.
    ///
    /// Needs `StorageDelete`. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`, of the element too, before `Forbidden`.
    pub async fn storage_delete(&self, caller: &Caller, id: DeviceId, element: Option<&str>) -> Result<()> {
        if let Some(name) = element {
            // Existence is checked before the role.
            self.storage_fetch(caller, id, name).await?;
        }
        let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::StorageDelete).await?;
        let was_there = self.telemetry().series_delete(&permit, element).await?;
        self.0.usage.touch(&entry);
        self.0.usage.usage_fell(&entry).await?;
        match element {
            Some(name) if !was_there && !self.declares(&entry, name).await? => Err(Error::Missing(ELEMENT)),
            _ => Ok(()),
        }
    }
}

fn declared(entry: &DeviceEntry, name: &Arc<str>, fields: Option<RawJson>) -> StorageElement {
    // Created from the design with the device, whose identifier contains the time.
    let since = entry.device.id.minted_at();
    StorageElement { name: Arc::clone(name), device: entry.device.id, created_at: since, updated_at: since, fields }
}
