//! The list of alarms: what it may be filtered by, and its pages.

use isobar_model::access::CanList;
use isobar_model::alarm::Alarm;
use isobar_model::ids::AlarmId;
use isobar_model::page::{ListRequest, Page, SortKey};

use super::device_filters::{Bindable, all_of, bindable, compared};
use super::listings::ALARMS;
use super::page_bytes::ALARM_TEXTS;
use super::{in_order, read_by_id, within};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::nouns::alarms::{ALARM_COLUMNS, alarm};
use crate::registry::sql::{Dialect, Sql};
use crate::telemetry::{Filter, Operand};

/// What a filter of alarms looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmField {
    /// The number of its state.
    State,
    /// The number of its severity.
    Severity,
    /// Whether it was acknowledged: a boolean.
    Acknowledged,
    /// Its device: the text of an identifier.
    Device,
    /// The project of its device: the text of an identifier.
    Project,
    /// Its element: a text.
    Element,
    /// Its key: a text.
    Key,
    /// Who is to see to it: the text of an identifier, or null.
    Assignee,
    /// Since when it is active: a time.
    RaisedAt,
}

/// One filter of alarms; operands are texts, whole numbers, booleans and times as the field asks for them.
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
}

impl Registry {
    /// Alarms of a part of the tree that pass the filters: by default the active ones first, of these the most severe, of
    /// these the newest.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`](crate::error::StoreError::TooMuch) where their texts take more than
    /// [`crate::telemetry::PAGE_BYTES_MAX`].
    pub async fn alarm_list(
        &self,
        permit: &CanList,
        request: &ListRequest,
        filters: &[AlarmFilter],
    ) -> Result<Page<Alarm>> {
        let tx = self.db.snapshot().await?;
        let conditions = filters.iter().map(|filter| condition(self.db.dialect, filter)).collect();
        let condition = within(permit.scope()).text(" AND ").then(all_of(conditions));
        let request = in_default_order(request);
        let (ids, total) = ALARMS.page::<AlarmId>(&tx, condition, &request).await?;
        let select = format!("SELECT {ALARM_COLUMNS} FROM alarms a JOIN devices d ON d.key = a.device_key WHERE a.id");
        ALARM_TEXTS.are_a_page(&tx, &ids).await?;
        let alarms = read_by_id(&tx, &select, &ids, alarm).await?;
        Ok(Page::new(in_order(&ids, alarms, |alarm| alarm.id), total, request.page))
    }
}

fn in_default_order(request: &ListRequest) -> ListRequest {
    let mut request = request.clone();
    if request.sort.is_empty() {
        let key = |(field, descending): (&str, bool)| SortKey { field: field.to_owned(), descending };
        request.sort = [("state", false), ("severity", true), ("raisedAt", true)].map(key).to_vec();
    }
    request
}

fn condition(dialect: Dialect, filter: &AlarmFilter) -> Sql {
    let operand = |operand: &Operand| match operand {
        Operand::Bool(truth) => Some(Bindable::Number(i64::from(*truth))),
        Operand::Null => Some(Bindable::Text(String::new())),
        other => bindable(other),
    };
    let operands: Vec<Bindable> = filter.operands.iter().filter_map(operand).collect();
    compared(dialect, filter.field.column(), filter.operator, &operands)
}
