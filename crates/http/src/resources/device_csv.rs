//! The list of devices as CSV, streamed as it is read.

use bytes::Bytes;
use futures::StreamExt as _;
use isobar_hub::DeviceExport;
use isobar_model::device::Device;
use isobar_model::error::Error;
use isobar_model::json::{Step, find};

use super::devices::DeviceJson;
use super::export::{self, ValuesFormat, json_cell, text_cell};
use crate::request::device_fields::DeviceColumn;
use crate::response::Response;

/// A list on its way out: the client's reading sets its pace. What fails after the beginning breaks the connection off, so
/// that nobody takes a part for the whole.
pub(crate) fn streamed(export: DeviceExport, columns: Vec<DeviceColumn>) -> Response {
    let mut head = Vec::new();
    export::row(&mut head, columns.iter(), |column, out| text_cell(&column.name, out));
    let written = move |devices: Vec<Device>| {
        let mut out = Vec::new();
        for device in devices {
            let device = serde_json::to_string(&DeviceJson::from(device)).map_err(Error::internal)?;
            export::row(&mut out, columns.iter(), |column, out| cell(&device, &column.path, out));
        }
        Ok(Bytes::from(out))
    };
    let pieces = export.pieces().map(move |devices| devices.and_then(&written)).inspect(|piece| {
        if let Err(error) = piece {
            tracing::warn!(%error, "a list of devices broke off");
        }
    });
    export::as_file(head, pieces, ValuesFormat::Csv, "devices")
}

/// What a device has at a path: texts as they are, everything else as JSON, nothing where there is nothing.
fn cell(device: &str, path: &[Step], out: &mut Vec<u8>) {
    match find(device, path) {
        // A member without a value; a `null` within `meta` is one that somebody has put there.
        Some("null") if path.len() == 1 => {}
        found => found.into_iter().for_each(|found| json_cell(found, &[], out)),
    }
}
