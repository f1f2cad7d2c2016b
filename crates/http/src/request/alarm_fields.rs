//! Fields by which alarms can be filtered.

use std::str::FromStr;

use isobar_hub::{AlarmField, Operand};
use isobar_model::alarm::{AlarmSeverity, AlarmState};
use isobar_model::ids::{DeviceId, ProjectId, UserId};

use super::filter::{Filterable, time_operand};

/// Filters of alarms.
pub(crate) const ALARMS: Filterable<AlarmField> =
    Filterable { field, operand, fields: || filter_names().collect::<Vec<_>>().join(", ") };

/// Filterable fields of alarms, by name.
const ALARM_FILTERS: [(&str, AlarmField); 9] = [
    ("state", AlarmField::State),
    ("severity", AlarmField::Severity),
    ("acknowledged", AlarmField::Acknowledged),
    ("deviceId", AlarmField::Device),
    ("projectId", AlarmField::Project),
    ("elementName", AlarmField::Element),
    ("key", AlarmField::Key),
    ("assigneeId", AlarmField::Assignee),
    ("raisedAt", AlarmField::RaisedAt),
];

/// Returns the names of the filterable fields of alarms.
pub(crate) fn filter_names() -> impl Iterator<Item = &'static str> {
    ALARM_FILTERS.iter().map(|(name, _)| *name)
}

fn field(name: &str) -> Option<AlarmField> {
    ALARM_FILTERS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
}

fn operand(field: &AlarmField, text: &str) -> Result<Operand, &'static str> {
    let number = |number: u8| Operand::Number(number.to_string());
    match field {
        AlarmField::State => {
            AlarmState::named(text).map(|state| number(state.number())).ok_or("must be active or cleared")
        }
        AlarmField::Severity => AlarmSeverity::named(text)
            .map(|severity| number(severity.number()))
            .ok_or("must be info, warning or critical"),
        AlarmField::Acknowledged => text.parse().map(Operand::Bool).map_err(|_| "must be true or false"),
        AlarmField::Device => id::<DeviceId>(text).ok_or("must be an identifier"),
        AlarmField::Project => id::<ProjectId>(text).ok_or("must be an identifier"),
        AlarmField::Assignee if text == "null" => Ok(Operand::Null),
        AlarmField::Assignee => id::<UserId>(text).ok_or("must be an identifier, or null: nobody"),
        AlarmField::Element | AlarmField::Key if text.contains('\0') => Err("must be a text without U+0000"),
        AlarmField::Element | AlarmField::Key => Ok(Operand::Text(text.to_owned())),
        AlarmField::RaisedAt => time_operand(text),
    }
}

/// Reads an identifier as a text operand.
fn id<T: FromStr + ToString>(text: &str) -> Option<Operand> {
    text.parse::<T>().ok().map(|id| Operand::Text(id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_filters_take_operands_of_their_own_kind() {
        const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
        for (name, good, bad) in [
            ("state", &["active", "cleared"][..], &["over", "", "null"][..]),
            ("severity", &["info", "warning", "critical"], &["3", "high", ""]),
            ("acknowledged", &["true", "false"], &["1", "null", ""]),
            ("deviceId", &[ID], &["d", "null", ""]),
            ("projectId", &[ID], &["p", "null", ""]),
            ("assigneeId", &[ID, "null"], &["me", ""]),
            ("elementName", &["warm", ""], &["a\0b"]),
            ("key", &["door", ""], &["a\0b"]),
            ("raisedAt", &["2026-01-01", "2026-01-01T00:00:00 02:00"], &["soon", "null"]),
        ] {
            let field = field(name).unwrap();
            for text in good {
                assert!(operand(&field, text).is_ok(), "{name} {text:?}");
            }
            for text in bad {
                assert!(operand(&field, text).is_err(), "{name} {text:?}");
            }
        }
        for none in ["id", "count", "value", "payload.a", ""] {
            assert_eq!(field(none), None, "{none}");
        }
    }
}
