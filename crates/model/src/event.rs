//! Events, stored values and last values (specification: Event, Stored value, Last values).

use std::sync::Arc;

use crate::ids::{DeviceId, EventId};
use crate::json::{RawJson, write_string};
use crate::time::Timestamp;

/// Which way an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Device to cloud.
    DeviceEvent,
    /// Cloud to device.
    CloudEvent,
}

impl EventType {
    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            EventType::DeviceEvent => "deviceEvent",
            EventType::CloudEvent => "cloudEvent",
        }
    }
}

/// What the state of an element costs beside its name and its bytes, in bytes: a device may have left many small ones.
pub const STATE_BYTES_BESIDE: usize = 64;

/// Something that went wrong while an event was processed: kept on the event.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EventError {
    /// The element that failed; empty when it was none of them.
    pub element: String,
    /// What failed.
    pub message: String,
}

/// A device event or a cloud event, as history keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its identifier.
    pub id: EventId,
    /// When it was received (a cloud event: when it was queued): what the first bits of its identifier say, unless a former
    /// version has received it by a clock that was set back.
    pub received_at: Timestamp,
    /// Which way it went.
    pub kind: EventType,
    /// The device.
    pub device: DeviceId,
    /// The element it was posted to, or sent by.
    pub element: Arc<str>,
    /// What it carried, as it was sent.
    pub payload: RawJson,
    /// What went wrong while it was processed.
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
    /// When its event was received: what the first bits of its identifier say, unless a former version has stored it by a
    /// clock that was set back.
    pub created_at: Timestamp,
    /// What was stored.
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

/// The most recent value of every key received so far (contract: Data).
#[derive(Clone, Debug, PartialEq)]
pub struct LastValues {
    /// When the newest value was stored.
    pub updated_at: Timestamp,
    /// The merged object, or the newest payload when that is no object.
    pub values: RawJson,
}

impl LastValues {
    /// Writes the last values of a storage element as the API shows them. `updated_at` of `None`: nothing stored yet.
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
