//! Filters the list of devices: the fields of filters, and the SQL condition of a request.
//!
//! The database compares columns. Metadata is JSON, about which SQLite and PostgreSQL disagree (the range of numbers,
//! the characters of texts), so it is compared in this program, by the same test that filters stored values: the
//! devices that pass the other filters are read in batches, and from then on the condition is a set of their numbers.
//!
//! The caller may see newer state than the registry has: findings of runs that are not written yet. Filters apply to
//! the state that the caller sees. Devices with unwritten findings are excluded from the database's decision and
//! decided here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use isobar_model::access::Scope;
use isobar_model::alarm::AlarmSeverity;
use isobar_model::device::{Device, LABEL_CHARACTERS_MAX, LABEL_VALUE_CHARACTERS_MAX};
use isobar_model::ids::{DeviceId, DeviceKey};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

use super::devices::read_within;
use super::listings::{DEVICE_FIELDS, DEVICE_LAST_ACTIVE, DeviceListField};
use super::order::TableAlias;
use crate::error::Result;
use crate::registry::sql::{Connection, Dialect, Sql};
use crate::telemetry::FilterTest;
use crate::telemetry::{Filter, FilterField, Operand, Operator};

/// Field of a device that a filter compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceField {
    /// Name: a text.
    Name,
    /// Number of the status.
    Status,
    /// Project: the text of an identifier.
    Project,
    /// Moment of creation: a time.
    CreatedAt,
    /// Moment of the last change: a time.
    UpdatedAt,
    /// Moment of the last event: a time, or null if the device never sent one.
    LastActive,
    /// Number of active alarms of a severity.
    Alarms(AlarmSeverity),
    /// Value at a path of keys within the metadata: any JSON.
    Meta(Vec<String>),
}

/// Fields that count active alarms, by their API names.
const ALARM_COUNT_FIELDS: [(&str, AlarmSeverity); 3] = [
    ("alarms.critical", AlarmSeverity::Critical),
    ("alarms.warning", AlarmSeverity::Warning),
    ("alarms.info", AlarmSeverity::Info),
];

impl DeviceField {
    /// Returns the field with this API name, unless it is a path.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match ALARM_COUNT_FIELDS.iter().find(|(field, _)| *field == name) {
            Some((_, severity)) => Some(Self::Alarms(*severity)),
            None => DEVICE_FIELDS.iter().find(|field| field.name == name)?.filter.clone(),
        }
    }

    /// Returns the names of the fields that are not paths.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let columns = DEVICE_FIELDS.iter().filter(|field| field.filter.is_some()).map(|field| field.name);
        columns.chain(ALARM_COUNT_FIELDS.iter().map(|(name, _)| *name))
    }

    /// Returns true if a run of a design may change the field.
    fn is_found_out(&self) -> bool {
        matches!(self, Self::Status | Self::UpdatedAt | Self::Meta(_))
    }
}

/// Filter of devices; operands are texts, whole numbers and times, as the field demands.
pub type DeviceFilter = Filter<DeviceField>;

/// Devices with state that is not written to the registry yet, and that state.
pub struct UnwrittenDevices {
    /// Devices with unwritten state.
    pub devices: Vec<DeviceId>,
    /// Applies the unwritten state to a device read from the registry.
    pub apply: Box<dyn Fn(&mut Device) + Send + Sync>,
}

/// Selection of devices of a part of the tree, with the state that the registry does not have yet.
#[derive(Default)]
pub struct DeviceSelection {
    /// Filters, all of which a device must pass.
    pub filters: Vec<DeviceFilter>,
    /// Moments of last events that the registry may not have yet.
    pub heard: Vec<(DeviceKey, Timestamp)>,
    /// Devices of which findings of runs are not written yet.
    pub unwritten: Option<UnwrittenDevices>,
}

impl DeviceSelection {
    /// Returns true if any filter compares a field that a run of a design may change.
    pub fn looks_at_findings(&self) -> bool {
        self.filters.iter().any(|filter| filter.field.is_found_out())
    }

    /// Returns true if any filter compares the moment of the last event.
    pub fn looks_at_activity(&self) -> bool {
        self.filters.iter().any(|filter| filter.field == DeviceField::LastActive)
    }
}

/// Indexes that may find the rows of a condition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup<'c> {
    /// Any index that the planner prefers.
    Any,
    /// Only an index that begins with this column: the rows are read in its order.
    Along(&'c str),
    /// Only the index of the column `order`, without the table: rows that pass the filters on other columns are found
    /// once, along the indexes of these columns, as sets of numbers in which `key` is looked up.
    InSets { order: &'c str, key: &'static str },
}

/// Selection prepared for a database.
pub(super) struct ReadyFilters<'s> {
    pub(super) dialect: Dialect,
    selection: &'s DeviceSelection,
    /// Filters on metadata.
    pub(super) meta: Arc<[FilterTest]>,
    /// Devices that pass all filters, once metadata was compared; `None` before that.
    pub(super) passing: Option<Vec<i64>>,
    /// Devices with a later event than the registry has: those that pass the filters on activity, and those that fail.
    heard: [Vec<i64>; 2],
    /// Devices that are decided in this program.
    pub(super) decided: Vec<DecidedDevice>,
}

/// Device with unwritten state.
pub(super) struct DecidedDevice {
    /// Status in the registry, and true if the device has a place there.
    pub(super) written: (Status, bool),
    /// Device with its unwritten state applied.
    pub(super) device: Device,
    /// True if the device passes all filters.
    pub(super) passes: bool,
}

impl<'s> ReadyFilters<'s> {
    /// Prepares a selection: reads the devices with unwritten state in this part of the tree, and decides if they pass.
    pub(super) async fn of(
        connection: &impl Connection,
        scope: &Scope,
        selection: &'s DeviceSelection,
    ) -> Result<Self> {
        let of_meta = selection.filters.iter().filter(|filter| matches!(filter.field, DeviceField::Meta(_)));
        Ok(Self {
            dialect: Dialect::of(connection),
            selection,
            meta: of_meta.map(test).collect(),
            passing: None,
            heard: heard(selection),
            decided: decided(connection, scope, selection).await?,
        })
    }

    /// Returns true if the condition needs the activity of devices, `a`.
    pub(super) fn needs_activity(&self) -> bool {
        self.passing.is_none() && self.selection.looks_at_activity()
    }

    /// Returns true if all filters compare activity only.
    pub(super) fn is_of_activity_alone(&self) -> bool {
        self.passing.is_none() && self.selection.filters.iter().all(|filter| filter.field == DeviceField::LastActive)
    }

    /// Returns the column of a device's number: that of its activity, if the condition needs the activity anyway.
    fn key(&self, lookup: Lookup<'_>) -> String {
        let key = match lookup {
            Lookup::InSets { key, .. } => key,
            _ if self.needs_activity() => "a.key",
            _ => "d.key",
        };
        self.column(key, lookup)
    }

    /// Builds the condition for a device `d`, with its activity `a` if needed.
    pub(super) fn condition(&self, lookup: Lookup<'_>) -> Sql {
        let (key, written) = (self.key(lookup), self.of_registry(lookup));
        if self.decided.is_empty() {
            return written;
        }
        let passing = self.decided.iter().filter(|decided| decided.passes);
        let chosen: Vec<i64> = passing.map(|decided| number(decided.device.key)).collect();
        self.known_better(written, &key, &self.keys_decided(), &chosen)
    }

    /// Builds the condition without the devices that are decided in this program; see [`ReadyFilters::condition`].
    pub(super) fn condition_of_written(&self, lookup: Lookup<'_>) -> Sql {
        let (key, written) = (self.key(lookup), self.of_registry(lookup));
        if self.decided.is_empty() {
            return written;
        }
        written.text(&format!(" AND NOT ({key}")).among_numbers(self.dialect, &self.keys_decided()).text(")")
    }

    /// Builds the condition on the state in the registry.
    fn of_registry(&self, lookup: Lookup<'_>) -> Sql {
        match &self.passing {
            Some(passing) => Sql::new(self.key(lookup)).among_numbers(self.dialect, passing),
            None => self.of_columns(lookup),
        }
    }

    /// Builds a condition that ignores devices whose newer state is known here: of these only the chosen pass.
    fn known_better(&self, condition: Sql, key: &str, known: &[i64], chosen: &[i64]) -> Sql {
        Sql::new("((")
            .then(condition)
            .text(&format!(") AND NOT ({key}"))
            .among_numbers(self.dialect, known)
            .text(&format!(") OR {key}"))
            .among_numbers(self.dialect, chosen)
            .text(")")
    }

    /// Builds the condition on columns, and that part of the filters on metadata which the index of labels can answer.
    fn of_columns(&self, lookup: Lookup<'_>) -> Sql {
        let (mut conditions, key) = (Vec::new(), self.key(lookup));
        for &DeviceListField { column, relation: TableAlias { table, alias }, filter: ref field, .. } in DEVICE_FIELDS {
            let of_field = |filter: &&DeviceFilter| field.as_ref() == Some(&filter.field);
            let filters: Vec<_> = self.selection.filters.iter().filter(of_field).collect();
            if filters.is_empty() {
                continue;
            }
            let written = match lookup {
                // An index of the column finds the numbers of the devices that meet the condition.
                Lookup::InSets { order, .. } if order != column => {
                    Sql::new(format!("{key} IN (SELECT {alias}.key FROM {table} {alias} WHERE "))
                        .then(of_column(self.dialect, column, &filters))
                        .text(")")
                }
                _ => of_column(self.dialect, &self.column(column, lookup), &filters),
            };
            let is_of_activity = column == DEVICE_LAST_ACTIVE;
            conditions.push(if is_of_activity { self.over_heard(written, &key) } else { written });
        }
        conditions.extend(self.selection.filters.iter().filter_map(|filter| of_alarms(self.dialect, &key, filter)));
        conditions.extend(self.selection.filters.iter().filter_map(|filter| of_labels(self.dialect, &key, filter)));
        all_of(conditions)
    }

    /// Builds the condition on activity, including events that the registry does not have yet.
    fn over_heard(&self, condition: Sql, key: &str) -> Sql {
        let [passing, failing] = &self.heard;
        if passing.is_empty() && failing.is_empty() {
            return condition;
        }
        self.known_better(condition, key, failing, passing)
    }

    fn keys_decided(&self) -> Vec<i64> {
        self.decided.iter().map(|decided| number(decided.device.key)).collect()
    }

    fn column(&self, column: &str, lookup: Lookup<'_>) -> String {
        match lookup {
            Lookup::Any => column.to_owned(),
            Lookup::Along(order) | Lookup::InSets { order, .. } if order == column => column.to_owned(),
            Lookup::Along(_) | Lookup::InSets { .. } => self.dialect.unindexed(column),
        }
    }
}

/// Sorts the devices with a later event than the registry may have: those that pass the filters on activity, and those
/// that fail.
fn heard(selection: &DeviceSelection) -> [Vec<i64>; 2] {
    let (mut passing, mut failing) = (Vec::new(), Vec::new());
    let filters = selection.filters.iter().filter(|filter| filter.field == DeviceField::LastActive);
    let tests: Vec<FilterTest> = filters.map(test).collect();
    for (key, at) in selection.heard.iter().filter(|_| !tests.is_empty()) {
        let at = at.millis().to_string();
        let passes = tests.iter().all(|test| test.holds_for_json(&at));
        if passes { &mut passing } else { &mut failing }.push(number(*key));
    }
    [passing, failing]
}

/// Decides the devices with unwritten state.
async fn decided(
    connection: &impl Connection,
    scope: &Scope,
    selection: &DeviceSelection,
) -> Result<Vec<DecidedDevice>> {
    let Some(unwritten) = selection.unwritten.as_ref().filter(|unwritten| !unwritten.devices.is_empty()) else {
        return Ok(Vec::new());
    };
    let tests: Vec<_> = selection.filters.iter().map(|filter| (&filter.field, test(filter))).collect();
    let heard: HashMap<_, _> = selection.heard.iter().copied().collect();
    let decide = |mut device: Device| {
        let written = (device.status, device.coordinates().is_some());
        (unwritten.apply)(&mut device);
        device.last_active = device.last_active.max(heard.get(&device.key).copied());
        let passes = tests.iter().all(|(field, test)| test.holds_for_json(&shown(field, &device)));
        DecidedDevice { written, device, passes }
    };
    Ok(read_within(connection, scope, &unwritten.devices).await?.into_iter().map(decide).collect())
}

/// Converts a device's number to one that can be bound.
pub(super) fn number(key: DeviceKey) -> i64 {
    i64::try_from(key.0).unwrap_or(i64::MAX)
}

/// Joins conditions by `AND`; without any, returns a condition that is always true.
pub(super) fn all_of(conditions: Vec<Sql>) -> Sql {
    let mut conditions = conditions.into_iter();
    let first = conditions.next().unwrap_or_else(|| Sql::new("1 = 1"));
    conditions.fold(first, |all, next| all.text(" AND ").then(next))
}

/// Converts a filter to a test of JSON: of a field's text, or of the metadata.
fn test(filter: &DeviceFilter) -> FilterTest {
    let path = match &filter.field {
        DeviceField::Meta(path) => path.clone(),
        _ => Vec::new(),
    };
    let operand = |operand: &Operand| match operand {
        Operand::Time(moment) => Operand::Number(moment.millis().to_string()),
        other => other.clone(),
    };
    let operands = filter.operands.iter().map(operand).collect();
    FilterTest::of(Filter { field: FilterField::Payload(path), operator: filter.operator, operands })
}

/// Returns the value of a device's field as JSON; times in milliseconds.
fn shown(field: &DeviceField, device: &Device) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match field {
        DeviceField::Name => quoted(&device.name),
        DeviceField::Status => device.status.number().to_string(),
        DeviceField::Project => quoted(&device.project.to_string()),
        DeviceField::CreatedAt => device.created_at.millis().to_string(),
        DeviceField::UpdatedAt => device.updated_at.millis().to_string(),
        DeviceField::LastActive => {
            device.last_active.map_or_else(|| "null".to_owned(), |moment| moment.millis().to_string())
        }
        DeviceField::Alarms(severity) => device.alarms.of(*severity).to_string(),
        DeviceField::Meta(_) => device.meta.text().to_owned(),
    }
}

/// Operand that a column can hold.
pub(super) enum Bindable {
    Text(String),
    Number(i64),
}

pub(super) fn bindable(operand: &Operand) -> Option<Bindable> {
    match operand {
        // No column holds U+0000, and binding would remove it.
        Operand::Text(text) => (!text.contains('\0')).then(|| Bindable::Text(text.clone())),
        Operand::Number(text) => text.parse().ok().map(Bindable::Number),
        Operand::Time(moment) => Some(Bindable::Number(moment.millis())),
        Operand::Null | Operand::Bool(_) => None,
    }
}

/// Builds the condition that a column, which is never null, passes these filters of one field.
fn of_column(dialect: Dialect, column: &str, filters: &[&DeviceFilter]) -> Sql {
    let conditions = filters.iter().map(|filter| match filter.field {
        DeviceField::LastActive => of_activity(dialect, column, filter),
        _ => {
            let operands: Vec<Bindable> = filter.operands.iter().filter_map(bindable).collect();
            compared(dialect, column, filter.operator, &operands)
        }
    });
    all_of(conditions.collect())
}

pub(super) fn compared(dialect: Dialect, column: &str, operator: Operator, operands: &[Bindable]) -> Sql {
    let order = match operator {
        Operator::Eq | Operator::In => return equal_to_any(dialect, column, operands),
        Operator::Ne | Operator::Nin => {
            return Sql::new("NOT (").then(equal_to_any(dialect, column, operands)).text(")");
        }
        Operator::Lt => "<",
        Operator::Lte => "<=",
        Operator::Gt => ">",
        Operator::Gte => ">=",
    };
    let sql = Sql::new(format!("{column} {order} ?"));
    match operands {
        [Bindable::Text(text)] => sql.bind(text.as_str()),
        [Bindable::Number(number)] => sql.bind(*number),
        _ => Sql::new("1 = 0"),
    }
}

fn equal_to_any(dialect: Dialect, column: &str, operands: &[Bindable]) -> Sql {
    match operands {
        [] => Sql::new("1 = 0"),
        [Bindable::Text(text)] => Sql::new(format!("{column} = ?")).bind(text.as_str()),
        [Bindable::Number(number)] => Sql::new(format!("{column} = ?")).bind(*number),
        [Bindable::Text(_), ..] => {
            let texts = operands.iter().filter_map(|operand| match operand {
                Bindable::Text(text) => Some(text),
                Bindable::Number(_) => None,
            });
            Sql::new(column).among(dialect, texts)
        }
        [Bindable::Number(_), ..] => {
            let numbers = operands.iter().filter_map(|operand| match operand {
                Bindable::Number(number) => Some(*number),
                Bindable::Text(_) => None,
            });
            Sql::new(column).among_numbers(dialect, &numbers.collect::<Vec<_>>())
        }
    }
}

/// Builds the condition on the moment of the last event; the column holds 0 for a device without events, which is shown
/// as null.
fn of_activity(dialect: Dialect, column: &str, filter: &DeviceFilter) -> Sql {
    let moment = |operand: &Operand| match operand {
        Operand::Null => Some(Bindable::Number(0)),
        // No event is older than the epoch.
        Operand::Time(moment) if moment.millis() > 0 => Some(Bindable::Number(moment.millis())),
        _ => None,
    };
    let operands: Vec<Bindable> = filter.operands.iter().filter_map(moment).collect();
    match (filter.operator, filter.operands.as_slice()) {
        (Operator::Lt | Operator::Lte, [Operand::Time(_)]) => {
            let before = compared(dialect, column, filter.operator, &operands);
            before.text(&format!(" AND {column} > 0"))
        }
        (Operator::Gt | Operator::Gte, [Operand::Time(_)]) if operands.is_empty() => Sql::new(format!("{column} > 0")),
        (Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte, _) if filter.operands == [Operand::Null] => {
            Sql::new("1 = 0")
        }
        (operator, _) => compared(dialect, column, operator, &operands),
    }
}

/// Builds the condition on the number of active alarms. Devices without alarms are in no index: if they pass, the query
/// finds the devices that fail instead.
fn of_alarms(dialect: Dialect, key: &str, filter: &DeviceFilter) -> Option<Sql> {
    let DeviceField::Alarms(severity) = filter.field else { return None };
    let none_passes = test(filter).holds_for_json("0");
    let operands: Vec<Bindable> = filter.operands.iter().filter_map(bindable).collect();
    let counted = format!(
        "{key} {} (SELECT l.device_key FROM alarms l WHERE l.state = 0 AND l.severity = ? GROUP BY l.device_key HAVING {} (",
        if none_passes { "NOT IN" } else { "IN" },
        if none_passes { "NOT" } else { "" },
    );
    let counted = Sql::new(counted).bind(i64::from(severity.number()));
    Some(counted.then(compared(dialect, "count(*)", filter.operator, &operands)).text("))"))
}

/// Builds the condition that the index of labels can answer for a filter on metadata: it finds the devices that have
/// one of these texts or booleans at the top level of the metadata. Returns `None` if the index cannot answer.
fn of_labels(dialect: Dialect, key: &str, filter: &DeviceFilter) -> Option<Sql> {
    let DeviceField::Meta(path) = &filter.field else { return None };
    let [label] = path.as_slice() else { return None };
    let is_indexed = |text: &str, most: usize| !text.contains('\0') && text.chars().count() <= most;
    if !matches!(filter.operator, Operator::Eq | Operator::In) || !is_indexed(label, LABEL_CHARACTERS_MAX) {
        return None;
    }
    let value = |operand: &Operand| match operand {
        Operand::Text(text) => is_indexed(text, LABEL_VALUE_CHARACTERS_MAX).then(|| text.clone()),
        Operand::Bool(truth) => Some(truth.to_string()),
        // A number has many spellings, and null has no label.
        _ => None,
    };
    let values: HashSet<String> = filter.operands.iter().map(value).collect::<Option<_>>()?;
    let found = format!("{key} IN (SELECT l.device_key FROM device_labels l WHERE l.label = ? AND l.value");
    let found = Sql::new(found);
    Some(found.bind(label.as_str()).among(dialect, values).text(")"))
}
