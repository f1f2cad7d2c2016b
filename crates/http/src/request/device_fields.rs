//! Fields by which devices can be filtered, and the columns of their CSV.

use isobar_hub::{DeviceField, Operand};
use isobar_model::alarm::AlarmSeverity;
use isobar_model::ids::ProjectId;
use isobar_model::json::Step;
use isobar_model::path::path_beneath;

use super::filter::{Filterable, time_operand};

/// Filters of devices.
pub(crate) const DEVICES: Filterable<DeviceField> =
    Filterable { field, operand, fields: || format!("{} or a path beneath meta", filter_names().join(", ")) };

/// Returns the names of the filterable fields of devices, without the paths beneath `meta`.
pub(crate) fn filter_names() -> Vec<&'static str> {
    DeviceField::names().collect()
}

fn field(name: &str) -> Option<DeviceField> {
    DeviceField::named(name).or_else(|| path_beneath("meta", name).map(DeviceField::Meta))
}

fn operand(field: &DeviceField, text: &str) -> Result<Operand, &'static str> {
    match field {
        DeviceField::Name if text.contains('\0') => Err("must be a text without U+0000"),
        DeviceField::Name => Ok(Operand::Text(text.to_owned())),
        DeviceField::Status => {
            let number = text.parse::<i64>().map_err(|_| "must be a whole number, as statusInt is")?;
            Ok(Operand::Number(number.to_string()))
        }
        DeviceField::Alarms(_) => {
            let number = text.parse::<i64>().map_err(|_| "must be a whole number: so many are active")?;
            Ok(Operand::Number(number.to_string()))
        }
        DeviceField::Project => {
            let id = text.parse::<ProjectId>().map_err(|_| "must be an identifier")?;
            Ok(Operand::Text(id.to_string()))
        }
        DeviceField::LastActive if text == "null" => Ok(Operand::Null),
        DeviceField::LastActive => time_operand(text).map_err(|_| "must be an RFC 3339 date-time, or null: never"),
        DeviceField::CreatedAt | DeviceField::UpdatedAt => time_operand(text),
        DeviceField::Meta(_) => Ok(Operand::of_text(text)),
    }
}

/// A column of a CSV of devices.
#[derive(Clone, Debug)]
pub(crate) struct DeviceColumn {
    /// Name as the client wrote it.
    pub name: String,
    pub source: DeviceSource,
}

/// Source of a column's cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeviceSource {
    Id,
    Name,
    Project,
    Version,
    Organization,
    OrganizationName,
    Description,
    Protocol,
    Protocols,
    StreetAddress,
    StatusInt,
    StatusText,
    LastActive,
    CreatedAt,
    UpdatedAt,
    CreatedBy,
    /// Number of active alarms of a severity.
    Alarms(AlarmSeverity),
    /// Path within the metadata; empty: all of it.
    Meta(Vec<Step>),
}

/// Columns of a CSV of devices by name, without the paths beneath `meta`.
const CSV_COLUMN_SOURCES: &[(&str, DeviceSource)] = &[
    ("id", DeviceSource::Id),
    ("uuid", DeviceSource::Id),
    ("name", DeviceSource::Name),
    ("projectUuid", DeviceSource::Project),
    ("versionUuid", DeviceSource::Version),
    ("organizationId", DeviceSource::Organization),
    ("organizationName", DeviceSource::OrganizationName),
    ("description", DeviceSource::Description),
    ("protocol", DeviceSource::Protocol),
    ("protocols", DeviceSource::Protocols),
    ("streetAddress", DeviceSource::StreetAddress),
    ("statusInt", DeviceSource::StatusInt),
    ("statusText", DeviceSource::StatusText),
    ("lastActive", DeviceSource::LastActive),
    ("createdAt", DeviceSource::CreatedAt),
    ("updatedAt", DeviceSource::UpdatedAt),
    ("createdBy", DeviceSource::CreatedBy),
    ("alarms.critical", DeviceSource::Alarms(AlarmSeverity::Critical)),
    ("alarms.warning", DeviceSource::Alarms(AlarmSeverity::Warning)),
    ("alarms.info", DeviceSource::Alarms(AlarmSeverity::Info)),
    ("meta", DeviceSource::Meta(Vec::new())),
];

/// Default columns of a CSV of devices.
pub(crate) const USUAL_COLUMNS: [&str; 8] =
    ["id", "name", "projectUuid", "organizationId", "statusText", "lastActive", "createdAt", "updatedAt"];

impl DeviceColumn {
    /// Returns the names of the columns that are not paths.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CSV_COLUMN_SOURCES.iter().map(|(name, _)| *name)
    }

    /// Finds a column by name; `None` if it does not exist.
    pub fn named(name: &str) -> Option<Self> {
        let source = match CSV_COLUMN_SOURCES.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => source.clone(),
            None => DeviceSource::Meta(path_beneath("meta", name)?.into_iter().map(Step::new).collect()),
        };
        Some(Self { name: name.to_owned(), source })
    }

    /// Returns the default columns.
    pub fn usual() -> Vec<Self> {
        USUAL_COLUMNS.into_iter().filter_map(Self::named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_takes_operands_of_its_own_kind() {
        for (name, good, bad) in [
            ("name", &["", "null", "1"][..], &["a\0b"][..]),
            ("statusInt", &["0", "-1", "9"], &["none", "1.0", "null", ""]),
            ("alarms.critical", &["0", "-1", "9"], &["none", "1.0", "null", ""]),
            ("projectUuid", &["01890a5d-ac96-774b-bcce-b302099a8057"], &["p", "null", ""]),
            ("createdAt", &["2026-01-01", "2026-01-01T00:00:00 02:00"], &["soon", "null"]),
            ("updatedAt", &["2026-01-01T00:00:00Z"], &["1", "null"]),
            ("lastActive", &["null", "2026-01-01T00:00:00Z"], &["never", ""]),
            ("meta.a.b", &["", "null", "1", "\0"], &[]),
        ] {
            let field = field(name).unwrap();
            for text in good {
                assert!(operand(&field, text).is_ok(), "{name} {text:?}");
            }
            for text in bad {
                assert!(operand(&field, text).is_err(), "{name} {text:?}");
            }
        }
        for none in
            ["alarms", "alarms.none", "meta", "meta.", "meta.a..b", "metax.a", "id", "organizationId", "payload.a", ""]
        {
            assert_eq!(field(none), None, "{none}");
        }
    }

    #[test]
    fn unknown_column_is_refused() {
        assert_eq!(DeviceColumn::usual().len(), USUAL_COLUMNS.len());
        let meta = DeviceColumn::named("meta.a.1").unwrap();
        assert_eq!(meta.source, DeviceSource::Meta(vec![Step::new("a".to_owned()), Step::new("1".to_owned())]));
        let quoted = DeviceColumn::named(r#"meta["a.b"]"#).unwrap();
        assert_eq!(quoted.source, DeviceSource::Meta(vec![Step::new("a.b".to_owned())]));
        assert_eq!(field(r#"meta["a.b"].c"#), Some(DeviceField::Meta(vec!["a.b".to_owned(), "c".to_owned()])));
        for none in ["meta.", r#"meta["a"#, "metadata", "lastValues", "token", "imageUrl", "Name"] {
            assert!(DeviceColumn::named(none).is_none(), "{none}");
        }
    }
}
