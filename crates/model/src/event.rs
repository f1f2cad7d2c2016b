//! Events, stored values and last values (specification: Event, Stored value, Last values).

use std::sync::Arc;

use crate::ids::{DeviceId, EventId};
use crate::json::{RawJson, write_string};
use crate::time::Timestamp;

/// The direction of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Device to cloud.
    DeviceEvent,
    /// Cloud to device.
    CloudEvent,
}

impl EventType {
    /// Returns its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            EventType::DeviceEvent => "deviceEvent",
            EventType::CloudEvent => "cloudEvent",
        }
    }
}

/// Overhead of an element's state beside its name and value, in bytes, so that many small ones are counted too.
pub const STATE_BYTES_BESIDE: usize = 64;

/// An error while an event was processed; stored with the event.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct EventError {
    /// The element that failed; empty if none did.
    pub element: String,
    /// The error message.
    pub message: String,
}

/// A device event or a cloud event in history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its identifier.
    pub id: EventId,
    /// Time of receipt (of a cloud event: of queuing): that of its identifier, unless a former version received it
    /// while the clock was set back.
    pub received_at: Timestamp,
    /// Its direction.
    pub kind: EventType,
    /// The device.
    pub device: DeviceId,
    /// The element that it was posted to, or sent by.
    pub element: Arc<str>,
    /// Its payload, as it was sent.
    pub payload: RawJson,
    /// Errors while it was processed.
    pub errors: Vec<EventError>,
}

impl Event {
    /// Writes the event as the API shows it.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        write_display(&self.id, out);
        out.extend_from_slice(b",\"type\":");
        write_string(self.kind.name(), out);
        out.extend_from_slice(b",\"deviceId\":");
        write_display(&self.device, out);
        out.extend_from_slice(b",\"elementName\":");
        write_string(&self.element, out);
        out.extend_from_slice(b",\"payload\":");
        out.extend_from_slice(self.payload.bytes());
        out.extend_from_slice(b",\"receivedAt\":");
        write_time(self.received_at, out);
        if !self.errors.is_empty() {
            out.extend_from_slice(b",\"errors\":[");
            for (index, error) in self.errors.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(b"{\"element\":");
                write_string(&error.element, out);
                out.extend_from_slice(b",\"message\":");
                write_string(&error.message, out);
                out.push(b'}');
            }
            out.push(b']');
        }
        out.push(b'}');
    }
}

/// A value in a storage element.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    /// Its identifier.
    pub id: EventId,
    /// Time of receipt of its event: that of its identifier, unless a former version stored it while the clock was set
    /// back.
    pub created_at: Timestamp,
    /// The stored payload.
    pub payload: RawJson,
}

impl StoredValue {
    /// Writes the value as the API shows it.
    pub fn write_json(&self, device: DeviceId, element: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        write_display(&self.id, out);
        out.extend_from_slice(b",\"createdAt\":");
        write_time(self.created_at, out);
        out.extend_from_slice(b",\"deviceId\":");
        write_display(&device, out);
        out.extend_from_slice(b",\"elementName\":");
        write_string(element, out);
        out.extend_from_slice(b",\"payload\":");
        out.extend_from_slice(self.payload.bytes());
        out.push(b'}');
    }
}

/// The most recent value of every key (contract: Data).
#[derive(Clone, Debug, PartialEq)]
pub struct LastValues {
    /// Time of the newest value.
    pub updated_at: Timestamp,
    /// The merged object, or the newest payload if that is not an object.
    pub values: RawJson,
}

impl LastValues {
    /// Writes the last values of a storage element as the API shows them. `None` means that nothing is stored yet.
    pub fn write_json(last: Option<&LastValues>, device: DeviceId, element: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"updatedAt\":");
        match last {
            Some(last) => write_time(last.updated_at, out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"deviceId\":");
        write_display(&device, out);
        out.extend_from_slice(b",\"elementName\":");
        write_string(element, out);
        out.extend_from_slice(b",\"values\":");
        out.extend_from_slice(last.map_or(b"{}", |last| last.values.bytes()));
        out.push(b'}');
    }
}

fn write_display(value: &impl std::fmt::Display, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to a Vec cannot fail.
    let _ = write!(out, "\"{value}\"");
}

fn write_time(time: Timestamp, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(&time.text());
    out.push(b'"');
}
