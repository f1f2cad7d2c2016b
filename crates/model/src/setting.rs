//! Device settings (specification: Device setting; contract: Settings).

use crate::ids::{DeviceId, SettingId};
use crate::json::RawJson;
use crate::time::Timestamp;

/// One record of a device setting: a value that the device had, or has.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingRecord {
    /// The record's identifier.
    pub id: SettingId,
    /// The device.
    pub device: DeviceId,
    /// The setting's name: its element in the project's design.
    pub name: String,
    /// The value; none: the default of the design.
    pub value: Option<RawJson>,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When it was replaced.
    pub changed_at: Option<Timestamp>,
    /// The record that replaced it.
    pub changed_to: Option<SettingId>,
    /// Who replaced it: a user or the device itself.
    pub changed_by: Option<String>,
}
