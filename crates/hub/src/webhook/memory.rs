//! Memory of deliveries, from the extraction of their bodies to their answers: limited for all together, and shared among
//! tenants.

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::json::RawJson;
use isobar_quota::{TenantShare, TenantShares, limits};
use isobar_store::registry::NewLabels;

use super::EventsAmount;
use super::task::{Block, Task};
use super::tasks::Extracted;

/// Bytes that a device of a delivery takes in addition to its name and payloads, and an event in addition to its payload.
const DEVICE_BYTES: usize = 1 << 10;
const EVENT_BYTES: usize = 512;
/// Labels of devices that are made together take so many bytes, or are those of one device.
const LABELS_BYTES_AT_ONCE: usize = 4 << 20;

const DELIVERIES_REFUSED: &str = "isobar_webhook_refused_total";

/// Takes so many bytes for a delivery of a tenant. A delivery of any size has room if nothing else is held.
///
/// # Errors
/// `NoRoom`: the tenant holds as much as it may.
pub(super) fn take(memory: &Arc<TenantShares>, tenant: OrganizationId, bytes: usize) -> Result<TenantShare> {
    memory.take(tenant, memory.capped(bytes)).map_err(|_| no_room())
}

/// Sets the bytes that a delivery holds. If they are not granted, the delivery keeps the bytes that it had.
///
/// # Errors
/// See [`take`].
pub(super) fn resize(memory: &TenantShares, held: &mut TenantShare, bytes: usize) -> Result<()> {
    held.resize(memory.capped(bytes)).map_err(|_| no_room())
}

/// Counts a delivery that has no room, and returns its error.
fn no_room() -> Error {
    metrics::counter!(DELIVERIES_REFUSED).increment(1);
    let most = limits::WEBHOOK_BYTES.of_all >> 20;
    Error::NoRoom(format!(
        "webhook deliveries under way hold at most {most} MiB, those of one tenant at most twice what is left of that"
    ))
}

/// Sizes of what a delivery makes of its body, in bytes.
pub(super) struct DeliverySize {
    body: usize,
    tasks: usize,
    /// All payloads, as they were taken out of the body.
    payloads: usize,
    /// The third party's names of devices, with the label that holds them, once for each.
    names: usize,
    /// The labels that a device gets.
    labels: usize,
    errors: usize,
}

impl DeliverySize {
    pub(super) fn of(extracted: &Extracted, tag: &str) -> Self {
        let Extracted { body, tasks, labels, errors, .. } = extracted;
        Self {
            body: body.bytes().len(),
            tasks: tasks.len(),
            payloads: tasks.iter().map(payload_bytes).sum(),
            names: tasks.iter().map(|task| tag.len() + task.tag_value.len()).sum(),
            labels: labels_bytes(labels),
            errors: errors.iter().map(String::len).sum(),
        }
    }

    /// Returns the bytes held before anything is done.
    pub(super) fn extracted(&self) -> usize {
        self.body + self.payloads + self.names + self.labels + self.errors + self.tasks * DEVICE_BYTES
    }

    /// Returns the bytes held from the runs of these events to the answer. An answer with `debug` refers to payloads that
    /// are held anyway.
    pub(super) fn run(&self, makes: EventsAmount) -> usize {
        self.extracted() + self.labels * self.devices_at_once(self.tasks) + makes.events * EVENT_BYTES
    }

    /// Returns the number of devices, at most `most`, that are created together, each with its copy of the labels.
    pub(super) fn devices_at_once(&self, most: usize) -> usize {
        (LABELS_BYTES_AT_ONCE / self.labels.max(1)).clamp(1, most.max(1))
    }
}

fn payload_bytes(task: &Task) -> usize {
    let texts =
        |block: &Block| block.key.as_ref().map_or(0, String::len) + block.refused.as_ref().map_or(0, String::len);
    let of_all: usize = task.blocks.iter().map(|block| block.payload.bytes().len() + texts(block)).sum();
    of_all + size_of_val(task.blocks.as_slice())
}

fn labels_bytes(labels: &NewLabels) -> usize {
    let bytes = |(name, value): &(String, RawJson)| name.len() + value.bytes().len();
    labels.missing.iter().chain(&labels.set).map(bytes).sum()
}
