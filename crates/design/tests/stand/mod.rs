//! Fixture for tests in which only the design matters: a device and an event.

#![allow(dead_code, clippy::unwrap_used, reason = "each program uses a part of this, and fails where it fails")]

use std::time::Duration;

use bytes::Bytes;
use isobar_design::{DeviceView, EventView};
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::{Json, RawJson};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

pub fn raw(text: &str) -> RawJson {
    RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// Returns the processor time of this thread.
pub fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the time of receipt of all events.
pub fn received_at() -> Timestamp {
    "2026-03-04T05:06:07.089Z".parse().unwrap()
}

/// Returns a device without metadata and settings.
pub fn device() -> DeviceView {
    DeviceView {
        id: ID.parse::<DeviceId>().unwrap(),
        name: "Fridge 1".to_owned(),
        organization: ID.parse::<OrganizationId>().unwrap(),
        meta: raw("{}"),
        status: Status::Good,
        settings: Vec::new(),
        alarms: std::sync::Arc::default(),
    }
}

/// Makes an event at an element.
pub fn event<'e>(element: &'e str, payload: &'e RawJson, tree: &'e Json<'e>) -> EventView<'e> {
    let now = received_at();
    EventView { id: ID.parse::<EventId>().unwrap(), element, received_at: now, now, payload, tree }
}
