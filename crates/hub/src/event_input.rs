//! What a posted event says of itself: its device, its element, its key, its payload. Faults are gathered, not told one by one.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::access::{Action, CanWrite, Lineage};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceRef;
use isobar_model::json::{Json, RawJson};

use crate::Hub;
use crate::entries::DeviceEntry;
use crate::gate::Principal;
use crate::turns::Turns;

/// Longest element name, in characters.
pub(crate) const ELEMENT_NAME_MAX: usize = 128;
/// What is wrong with a name that is no text, or holds U+0000.
pub const NO_NAME: &str = "must be text in UTF-8, without the character U+0000";
/// Longest idempotency key, in characters (contract: Events).
const IDEMPOTENCY_KEY_MAX: usize = 64;

/// Most bytes of a body that is read on the thread that serves calls. Of names of a few letters, that takes up to a
/// millisecond.
pub(crate) const READ_HERE_BYTES_MAX: usize = 32 << 10;
/// Longer bodies that are read at the same time, and those that are or wait, of all tenants and of one; beyond, 503.
const READ_AT_ONCE: usize = 2;
const READING_MAX: usize = 4_096;
const READING_OF_ONE_MAX: usize = 1_024;

/// The turns of those whose bodies are long.
pub(crate) fn reading() -> Turns {
    Turns::shared(READ_AT_ONCE, READING_MAX, READING_OF_ONE_MAX)
}

impl Hub {
    /// Reads a body of so many bytes: a long one on a thread that may block, when it is the turn of the tenant that it comes
    /// from. [`Error::Busy`] when too many wait for theirs.
    pub async fn body_read<T: Send + 'static>(
        &self,
        tenant: Option<&Lineage>,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if bytes <= READ_HERE_BYTES_MAX {
            return Ok(read());
        }
        match tenant {
            Some(lineage) => self.0.reading.take_of(lineage, read).await,
            None => self.0.reading.take(read).await,
        }
    }

    /// Reads a payload: any JSON but null. Its tree comes with it, unless it is a long one.
    pub(crate) async fn payload_read<'a>(
        &self,
        tenant: Option<&Lineage>,
        body: &'a Bytes,
        faults: &mut Faults,
    ) -> Result<Option<(RawJson, Option<Json<'a>>)>> {
        let read = if body.len() <= READ_HERE_BYTES_MAX {
            payload_of(body).map(|(payload, tree)| (payload, Some(tree)))
        } else {
            let kept = body.clone();
            let read = move || payload_of(&kept).map(|(payload, _)| payload);
            Box::pin(self.body_read(tenant, body.len(), read)).await?.map(|payload| (payload, None))
        };
        Ok(read.map_err(|fault| faults.add("body", fault)).ok())
    }

    /// What is wrong with the parameters of an event whose body was found wrong already.
    pub async fn event_parameters(
        &self,
        principal: &Principal,
        device: Option<&str>,
        element: Option<&str>,
    ) -> Result<()> {
        let mut faults = Faults::new();
        let target = self.event_device(principal, device, &mut faults).await?;
        let element = element_name(element, &mut faults);
        if let (Some((_, entry)), Some(element)) = (target, element) {
            accepted_name(&entry, element, &mut faults);
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
            return Ok(Some(session.pass()));
        }
        Box::pin(self.event_device_of_user(principal, device, faults)).await
    }

    async fn event_device_of_user(
        &self,
        principal: &Principal,
        device: Option<&str>,
        faults: &mut Faults,
    ) -> Result<Option<(CanWrite<DeviceRef>, Arc<DeviceEntry>)>> {
        self.allow(principal.user()?, Action::DeviceEventCreate).await?;
        let Some(text) = device else {
            faults.add("query.deviceId", "is required");
            return Ok(None);
        };
        let found = match text.parse() {
            Ok(id) => self.device_write(principal, id, Action::DeviceEventCreate).await,
            Err(_) => Err(Error::Missing("device")),
        };
        match found {
            Err(Error::Missing(_)) => {
                faults.add("query.deviceId", "no such device");
                Ok(None)
            }
            found => found.map(Some),
        }
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

/// The name under which the device's design takes events of that element.
pub(crate) fn accepted_name(entry: &DeviceEntry, element: &str, faults: &mut Faults) -> Option<Arc<str>> {
    let name = entry.plan.plan.event_name(element);
    if name.is_none() {
        faults.add("query.elementName", "is no deviceEvent element of the project's design");
    }
    name
}

/// Checks an idempotency key.
pub(crate) fn check_idempotency_key(key: Option<&str>, faults: &mut Faults) {
    faults.length_if("header.Idempotency-Key", key, 1, IDEMPOTENCY_KEY_MAX);
}

/// A payload and its tree, or what is wrong with it.
fn payload_of(body: &Bytes) -> std::result::Result<(RawJson, Json<'_>), String> {
    match RawJson::read(body) {
        Ok((_, Json::Null)) => Err("must not be null".to_owned()),
        Ok(read) => Ok(read),
        Err(fault) => Err(format!("is not valid JSON: {fault}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;

    #[tokio::test]
    async fn a_long_body_is_read_on_another_thread() {
        let stage = Stage::set().await;
        let here = std::thread::current().id();
        for (bytes, is_here) in [(1, true), (READ_HERE_BYTES_MAX, true), (READ_HERE_BYTES_MAX + 1, false)] {
            let read = stage.hub.body_read(None, bytes, || std::thread::current().id()).await.unwrap();
            assert_eq!(read == here, is_here, "{bytes}");
        }
        stage.over().await;
    }

    #[tokio::test]
    async fn a_payload_is_judged_alike_wherever_it_is_read() {
        let stage = Stage::set().await;
        for filling in [1, READ_HERE_BYTES_MAX] {
            let text = "x".repeat(filling);
            let good = Bytes::from(format!(r#"{{"a":"{text}"}}"#));
            let mut faults = Faults::new();
            let (payload, tree) = stage.hub.payload_read(None, &good, &mut faults).await.unwrap().unwrap();
            assert_eq!((payload.bytes(), tree.is_some()), (&*good, filling == 1));
            for (bad, told) in
                [(format!(r#"{{"a":1,"a":"{text}"}}"#), "JSON"), (format!("null{}", " ".repeat(filling)), "null")]
            {
                let mut faults = Faults::new();
                assert!(stage.hub.payload_read(None, &bad.into(), &mut faults).await.unwrap().is_none());
                let fault = faults.end().unwrap_err();
                assert!(fault.to_string().contains(told) || format!("{fault:?}").contains(told), "{fault:?}");
            }
        }
        stage.over().await;
    }
}
