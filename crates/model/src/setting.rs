//! Device settings (specification: Device setting; contract: Settings).

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::check::{Faults, body_items, read_objects};
use crate::error::Result;
use crate::ids::{DeviceId, SettingId};
use crate::json::{Json, RawJson};
use crate::time::Timestamp;

/// Longest name of a setting, in characters (specification: Field constraints).
const NAME_MAX: usize = 128;
/// Most items of a bulk operation.
pub const BULK_ITEMS_MAX: usize = 10_000;
/// Most bytes of all values that a device has set itself, as [`setting_bytes`] counts them.
pub const SETTINGS_BYTES_MAX: usize = 1 << 20;
/// Overhead of a value beside its name and its JSON, as it is a record.
const SETTING_BYTES_BESIDE: usize = 64;

/// Returns the size of a value that is set for a device, in bytes.
pub fn setting_bytes(name: &str, value: &RawJson) -> usize {
    name.len() + value.bytes().len() + SETTING_BYTES_BESIDE
}

/// Returns the fault of a value that grows a device's settings from `before` to `after` bytes; `None` if it fits.
/// Settings above the limit may stay, but not grow.
pub fn settings_exceed(before: usize, after: usize) -> Option<&'static str> {
    let is_too_much = after > SETTINGS_BYTES_MAX && after > before;
    is_too_much.then_some("has no room: the settings of a device take at most 1 MiB together")
}

/// A record of a device setting: its value now or in the past.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingRecord {
    /// The record's identifier.
    pub id: SettingId,
    /// The device.
    pub device: DeviceId,
    /// The setting's name: its element in the project's design.
    pub name: String,
    /// The value; `None` for the default of the design.
    pub value: Option<RawJson>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time at which it was replaced.
    pub changed_at: Option<Timestamp>,
    /// The record that replaced it.
    pub changed_to: Option<SettingId>,
    /// Author of its replacement: a user or the device itself.
    pub changed_by: Option<String>,
}

/// Derives the identifier of a setting that was never set and has no record from device and name. Its time is that of
/// the device.
pub fn unset_id(device: DeviceId, name: &str) -> SettingId {
    let digest = Sha256::new().chain_update(device.bytes()).chain_update(name).finalize();
    let mut bytes = *device.bytes();
    bytes[6..].copy_from_slice(&digest[..10]);
    // Version 7 and the variant of RFC 9562.
    bytes[6] = 0x70 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    SettingId(Uuid::from_bytes(bytes))
}

/// One item of a bulk change.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingItem {
    /// The device, as it was given.
    pub device: String,
    /// The setting.
    pub name: String,
    /// The value.
    pub value: RawJson,
}

impl SettingItem {
    /// Reads the body of a bulk change: an array of `{deviceId, name, value}`.
    pub fn read_all(tree: &Json<'_>) -> Result<Vec<SettingItem>> {
        read_objects(tree, BULK_ITEMS_MAX, |mut input| {
            let device = input.required_text("deviceId", 0, usize::MAX);
            let name = input.required_text("name", 1, NAME_MAX);
            input.require("value");
            let value = RawJson::from(input.member("value").unwrap_or(&Json::Null));
            input.unless_any(SettingItem { device, name, value })
        })
    }
}

/// Reads a body that is an array of device identifiers, which are resolved later, one by one.
pub fn read_device_ids(tree: &Json<'_>) -> Result<Vec<String>> {
    let mut faults = Faults::new();
    let mut ids = Vec::new();
    for (index, item) in body_items(tree, BULK_ITEMS_MAX, "items")?.iter().enumerate() {
        match item {
            Json::Text(id) => ids.push(id.clone().into_owned()),
            other => faults.add(format!("[{index}]"), format!("must be a string, not {}", other.kind())),
        }
    }
    faults.unless_any(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::json::parse;

    fn faults<T: std::fmt::Debug>(read: Result<T>) -> Vec<String> {
        match read {
            Err(Error::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("no faults but {other:?}"),
        }
    }

    #[test]
    fn invalid_items_are_named() {
        let body = r#"[{"deviceId": "d", "name": "n", "value": null}, {}, 7, {"deviceId": 1, "name": "", "value": 0}]"#;
        let fields = faults(SettingItem::read_all(&parse(body).unwrap()));
        assert_eq!(fields, ["[1].deviceId", "[1].name", "[1].value", "[2]", "[3].deviceId", "[3].name"]);
        assert_eq!(faults(SettingItem::read_all(&parse("{}").unwrap())), ["body"]);
        assert_eq!(faults(read_device_ids(&parse(r#"["d", 1, null]"#).unwrap())), ["[1]", "[2]"]);
        let long = format!("[{}0]", "0,".repeat(BULK_ITEMS_MAX));
        assert_eq!(faults(read_device_ids(&parse(&long).unwrap())), ["body"]);
    }

    #[test]
    fn setting_value_keeps_its_digits() {
        let body = r#"[{"deviceId": "d", "name": "n", "value": 12345678901234567890.10}]"#;
        let items = SettingItem::read_all(&parse(body).unwrap()).unwrap();
        assert_eq!(items[0].value.text(), "12345678901234567890.10");
    }

    #[test]
    fn settings_above_the_limit_may_stay_but_not_grow() {
        assert_eq!(settings_exceed(0, SETTINGS_BYTES_MAX), None);
        let told = settings_exceed(SETTINGS_BYTES_MAX, SETTINGS_BYTES_MAX + 1);
        assert_eq!(told, Some("has no room: the settings of a device take at most 1 MiB together"));
        let large = 3 * SETTINGS_BYTES_MAX;
        assert_eq!((settings_exceed(large, large), settings_exceed(large, large - 1)), (None, None));
        assert!(settings_exceed(large, large + 1).is_some());
        let value = RawJson::check("12".into()).unwrap();
        assert_eq!(setting_bytes("limit", &value), 7 + SETTING_BYTES_BESIDE);
    }

    #[test]
    fn setting_without_a_record_has_a_fixed_identifier() {
        let device: DeviceId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let id = unset_id(device, "limit");
        assert_eq!((id, id.minted_at()), (unset_id(device, "limit"), device.minted_at()));
        assert_eq!((id.0.get_version_num(), id.0.get_variant()), (7, uuid::Variant::RFC4122));
        assert_ne!(id, unset_id(device, "mode"));
    }
}
