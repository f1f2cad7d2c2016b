//! The list of devices as CSV, streamed as it is read from the store.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use isobar_hub::DeviceExport;
use isobar_model::device::Device;
use isobar_model::time::Timestamp;

use super::export::{self, ValuesFormat, json_cell, plain_or_quoted, text_cell};
use crate::request::device_fields::{DeviceColumn, DeviceSource};
use crate::response::Response;

/// Streams a list at its reader's pace. A failure after the beginning breaks the connection, so that nobody mistakes a
/// part for the whole.
pub(crate) fn streamed(export: DeviceExport, columns: Vec<DeviceColumn>) -> Response {
    let mut head = Vec::new();
    export::row(&mut head, columns.iter(), |column, out| text_cell(&column.name, out));
    let written = move |devices: Vec<Device>| {
        let mut out = Vec::new();
        for device in &devices {
            export::row(&mut out, columns.iter(), |column, out| cell(&column.source, device, out));
        }
        Bytes::from(out)
    };
    let pieces = export.pieces().map_ok(written).inspect(|piece| {
        if let Err(error) = piece {
            tracing::warn!(%error, "cannot finish a CSV of devices");
        }
    });
    export::as_file(head, pieces, ValuesFormat::Csv, "devices")
}

/// Writes a device's cell of a column: texts plain, everything else as JSON, empty if absent.
fn cell(source: &DeviceSource, device: &Device, out: &mut Vec<u8>) {
    let text = |text: &Option<String>, out: &mut Vec<u8>| text.iter().for_each(|text| text_cell(text, out));
    let id = |id: uuid::Uuid, out: &mut Vec<u8>| out.extend_from_slice(id.to_string().as_bytes());
    let time = |moment: Timestamp, out: &mut Vec<u8>| out.extend_from_slice(&moment.text());
    match source {
        DeviceSource::Id => id(device.id.0, out),
        DeviceSource::Name => text_cell(&device.name, out),
        DeviceSource::Project => id(device.project.0, out),
        DeviceSource::Version => text(&device.version, out),
        DeviceSource::Organization => id(device.organization.0, out),
        DeviceSource::OrganizationName => text_cell(&device.organization_name, out),
        DeviceSource::Description => text(&device.description, out),
        DeviceSource::Protocol => text(&device.protocol, out),
        DeviceSource::Protocols => as_json(&device.protocols, out),
        DeviceSource::StreetAddress => device.street_address.iter().for_each(|address| as_json(address, out)),
        DeviceSource::StatusInt => out.extend_from_slice(device.status.number().to_string().as_bytes()),
        DeviceSource::StatusText => text_cell(device.status.name(), out),
        DeviceSource::LastActive => device.last_active.into_iter().for_each(|moment| time(moment, out)),
        DeviceSource::CreatedAt => time(device.created_at, out),
        DeviceSource::UpdatedAt => time(device.updated_at, out),
        DeviceSource::CreatedBy => device.created_by.into_iter().for_each(|user| id(user.0, out)),
        DeviceSource::Alarms(severity) => out.extend_from_slice(device.alarms.of(*severity).to_string().as_bytes()),
        DeviceSource::Meta(path) => json_cell(device.meta.text(), path, out),
    }
}

fn as_json(value: &impl serde::Serialize, out: &mut Vec<u8>) {
    match serde_json::to_string(value) {
        Ok(json) => plain_or_quoted(&json, out),
        Err(error) => tracing::error!(%error, "cannot write a cell as JSON"),
    }
}
