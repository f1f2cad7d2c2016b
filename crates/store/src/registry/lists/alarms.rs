//! Lists alarms: the filters of the list, and its pages.

use isobar_model::access::{CanList, Scope};
use isobar_model::alarm::Alarm;
use isobar_model::ids::AlarmId;
use isobar_model::page::{ListRequest, Page, SortKey};

use super::device_filters::{Bindable, all_of, bindable, compared};
use super::listings::ALARMS;
use super::order::{Order, TableAlias};
use super::page_bytes::ALARM_TEXTS;
use super::page_window::PageWindow;
use super::{count, page_of, read_by_id, within};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::nouns::alarms::{ALARM_COLUMNS, alarm};
use crate::registry::sql::{Connection, Dialect, Sql};
use crate::telemetry::{Filter, Operand, Operator};

/// Default order, which an index has: active alarms first, then the most severe, then the newest.
const DEFAULT_ORDER: [(&str, bool); 3] = [("state", false), ("severity", true), ("raisedAt", true)];
/// Column with the number of an alarm's device.
const DEVICE_KEY: &str = "a.device_key";
/// Column with the name of an alarm's device.
const DEVICE_NAME: &str = "d.name";

/// Field of an alarm that a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmField {
    /// Number of the state.
    State,
    /// Number of the severity.
    Severity,
    /// True if the alarm was acknowledged: a boolean.
    Acknowledged,
    /// Device of the alarm: the text of an identifier.
    Device,
    /// Project of the device: the text of an identifier.
    Project,
    /// Element that raised the alarm: a text.
    Element,
    /// Key of the alarm: a text.
    Key,
    /// User to whom the alarm is assigned: the text of an identifier, or null.
    Assignee,
    /// Moment since which the alarm is active: a time.
    RaisedAt,
}

/// Filter of alarms; operands are texts, whole numbers, booleans and times, as the field demands.
pub type AlarmFilter = Filter<AlarmField>;

impl AlarmField {
    fn column(self) -> &'static str {
        match self {
            Self::State => "a.state",
            Self::Severity => "a.severity",
            Self::Acknowledged => "a.acknowledged",
            Self::Device => "d.id",
            Self::Project => "d.project_id",
            Self::Element => "a.element",
            Self::Key => "a.key",
            Self::Assignee => "coalesce(a.assignee_id, '')",
            Self::RaisedAt => "a.raised_at",
        }
    }

    fn is_of_device(self) -> bool {
        matches!(self, Self::Device | Self::Project)
    }
}

/// Way to find alarms. Conditions on other columns are tested on the rows found.
#[derive(Clone, Copy)]
pub(super) enum AlarmWay<'w> {
    /// Along an index in this order.
    Along(&'w Order),
    /// From the organizations of the part of the tree.
    Organizations,
    /// From the devices that a filter names.
    Devices,
}

impl AlarmWay<'_> {
    /// Chooses the way to all alarms that pass the filters.
    pub(super) fn to(filters: &[AlarmFilter]) -> Self {
        let names = |filter: &AlarmFilter| {
            filter.field == AlarmField::Device && matches!(filter.operator, Operator::Eq | Operator::In)
        };
        if filters.iter().any(names) { Self::Devices } else { Self::Organizations }
    }

    fn column(self, dialect: Dialect, column: &str) -> String {
        let finds = match self {
            Self::Along(order) => order.has(column),
            Self::Organizations => column != DEVICE_KEY,
            Self::Devices => column == DEVICE_KEY,
        };
        if finds { column.to_owned() } else { dialect.unindexed(column) }
    }

    pub(super) fn condition(self, dialect: Dialect, filters: &[AlarmFilter]) -> Sql {
        let conditions = filters.iter().map(|filter| {
            let operands: Vec<Bindable> = filter.operands.iter().filter_map(operand).collect();
            if filter.field.is_of_device() {
                let device = self.column(dialect, DEVICE_KEY);
                return Sql::new(format!("{device} IN (SELECT d.key FROM devices d WHERE "))
                    .then(compared(dialect, filter.field.column(), filter.operator, &operands))
                    .text(")");
            }
            compared(dialect, &self.column(dialect, filter.field.column()), filter.operator, &operands)
        });
        all_of(conditions.collect())
    }
}

impl Registry {
    /// Lists alarms of a part of the tree that pass the filters. Default order: active alarms first, then the most
    /// severe, then the newest.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`](crate::error::StoreError::TooMuch) if their texts take more than
    /// [`crate::telemetry::PAGE_BYTES_MAX`].
    pub async fn alarm_list(
        &self,
        permit: &CanList,
        request: &ListRequest,
        filters: &[AlarmFilter],
    ) -> Result<Page<Alarm>> {
        let tx = self.db.snapshot().await?;
        ALARMS.allow_after(&tx, permit.scope(), request).await?;
        let (ids, total) = page(&tx, permit.scope(), request, filters).await?;
        let select = format!("SELECT {ALARM_COLUMNS} FROM alarms a JOIN devices d ON d.key = a.device_key WHERE a.id");
        ALARM_TEXTS.are_a_page(&tx, &ids).await?;
        let alarms = read_by_id(&tx, &select, &ids, alarm).await?;
        Ok(page_of(request, (&ids, alarms, total), |alarm| alarm.id))
    }
}

/// Finds the ids of a page and counts the alarms that pass, by the cheaper of two ways: along an index in the order,
/// skipping alarms outside the part of the tree, or by collecting all that pass and sorting them.
async fn page(
    tx: &impl Connection,
    scope: &Scope,
    request: &ListRequest,
    filters: &[AlarmFilter],
) -> Result<(Vec<AlarmId>, u64)> {
    let (dialect, request) = (Dialect::of(tx), in_default_order(request));
    let order = ALARMS.order(&request)?;
    let narrowed = ALARMS.narrowed(dialect, &request);
    let way = AlarmWay::to(filters);
    let passing = gathered(dialect, scope, filters, None).then(narrowed.clone());
    let index = indexed_in(&request, &order).filter(|_| matches!(way, AlarmWay::Organizations));
    let sorted = gathered(dialect, scope, filters, Some(&order)).then(narrowed.clone());
    let Some(index) = index else {
        let total = count(tx, passing).await?;
        let Some(window) = PageWindow::of(request.page, total) else { return Ok((Vec::new(), total)) };
        return Ok((window.ids(tx, ALARMS.relation, sorted, &order.sorted_at_the_end()).await?, total));
    };
    let extent = ALARMS.extent(tx, passing).await?;
    let Some(window) = PageWindow::of(request.page, extent.within) else { return Ok((Vec::new(), extent.within)) };
    let ids = if extent.index_is_cheaper(&window) {
        let along = ALARMS.along(dialect, index, &extent, scope).text(" AND ");
        let along = along.then(AlarmWay::Along(&order).condition(dialect, filters)).then(narrowed);
        window.ids(tx, index, along, &order).await?
    } else {
        window.ids(tx, ALARMS.relation, sorted, &order.sorted_at_the_end()).await?
    };
    Ok((ids, extent.within))
}

/// Selects all alarms that pass, to be sorted at the end (`None`: only counted). `CROSS JOIN` fixes the order of the
/// tables for SQLite; PostgreSQL treats it as any other join.
pub(super) fn gathered(dialect: Dialect, scope: &Scope, filters: &[AlarmFilter], order: Option<&Order>) -> Sql {
    let way = AlarmWay::to(filters);
    let from = match way {
        AlarmWay::Devices => " FROM alarms a CROSS JOIN organizations o",
        AlarmWay::Organizations | AlarmWay::Along(_) => " FROM organizations o CROSS JOIN alarms a",
    };
    let (joined, on) = match order {
        Some(order) if order.has(DEVICE_NAME) => (" CROSS JOIN devices d", " AND d.key = a.device_key"),
        _ => ("", ""),
    };
    Sql::new(format!("{from}{joined} WHERE a.organization_id = o.id{on} AND "))
        .then(within(scope))
        .text(" AND ")
        .then(way.condition(dialect, filters))
}

/// Returns the table that has an index in the requested order.
pub(super) fn indexed_in(request: &ListRequest, order: &Order) -> Option<TableAlias> {
    let is_default = request.sort.iter().map(|key| (&*key.field, key.descending)).eq(DEFAULT_ORDER);
    if is_default { Some(ALARMS.relation) } else { order.indexed_in() }
}

pub(super) fn in_default_order(request: &ListRequest) -> ListRequest {
    let mut request = request.clone();
    if request.sort.is_empty() {
        let key = |(field, descending): (&str, bool)| SortKey { field: field.to_owned(), descending };
        request.sort = DEFAULT_ORDER.map(key).to_vec();
    }
    request
}

fn operand(operand: &Operand) -> Option<Bindable> {
    match operand {
        Operand::Bool(truth) => Some(Bindable::Number(i64::from(*truth))),
        Operand::Null => Some(Bindable::Text(String::new())),
        other => bindable(other),
    }
}
