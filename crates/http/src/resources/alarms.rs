//! Alarms: those that designs have raised, and what users do about them.

use isobar_hub::AlarmView;
use isobar_model::access::Action;
use isobar_model::alarm::{Alarm, AlarmEntry, AlarmSummary, read_change};
use isobar_model::ids::AlarmId;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{AnyJson, Id, Raw, Time};
use super::words::{AlarmActText, SeverityText, StateText};
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) const ALARMS_SORTED_BY: &[&str] = isobar_hub::sortable::ALARMS;

pub(crate) async fn alarm_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.list_with_after(ALARMS_SORTED_BY), query.alarm_filters());
    let (tree, list, filters) = query.end(asked)?;
    let page = call.hub().alarm_list(call.caller()?, tree, list, filters).await?;
    call.page(page, alarm_bytes, AlarmJson::from).await
}

fn alarm_bytes(alarm: &Alarm) -> usize {
    alarm.title.len() + alarm.value.as_ref().map_or(0, |value| value.bytes().len())
}

pub(crate) async fn alarm_summary(call: &mut Call) -> Answer {
    let mut query = call.query();
    let tree = query.tree("organizationId");
    let tree = query.end(tree)?;
    response::ok(&AlarmSummaryJson::from(call.hub().alarm_summary(call.caller()?, tree).await?))
}

pub(crate) async fn alarm_fetch(call: &mut Call) -> Answer {
    let id: AlarmId = call.id("id", "alarm")?;
    response::ok(&AlarmDetailJson::from(call.hub().alarm_fetch(call.caller()?, id).await?))
}

pub(crate) async fn alarm_update(call: &mut Call) -> Answer {
    let id: AlarmId = call.id("id", "alarm")?;
    let body = call.json(read_change).await;
    let change = after(call.hub().allow_alarm(call.caller()?, id, Action::AlarmUpdate), body).await?;
    response::ok(&AlarmDetailJson::from(call.hub().alarm_update(call.caller()?, id, change).await?))
}

/// An alarm of a device: one for each element and key, as long as it lives.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Alarm)]
pub(crate) struct AlarmJson {
    id: Id,
    organization_id: Id,
    project_id: Id,
    device_id: Id,
    device_name: String,
    /// The element of the design that raised it.
    element_name: String,
    /// Tells alarms of one element and device apart; empty where there is one alone.
    key: String,
    title: String,
    #[schema(value_type = SeverityText)]
    severity: &'static str,
    #[schema(value_type = StateText)]
    state: &'static str,
    /// True if somebody has acknowledged it. An alarm that is cleared and acknowledged is over, and is kept for six
    /// months.
    acknowledged: bool,
    /// Since when it is active, or was.
    raised_at: Time,
    /// Until when it was; null while it is active.
    cleared_at: Option<Time>,
    acknowledged_at: Option<Time>,
    acknowledged_by: Option<Id>,
    /// The user who takes care of it.
    assignee_id: Option<Id>,
    /// The number of times it was raised.
    count: u64,
    /// The newest value that it was raised with.
    #[schema(value_type = AnyJson)]
    value: Option<Raw>,
    created_at: Time,
    updated_at: Time,
}

impl From<Alarm> for AlarmJson {
    fn from(alarm: Alarm) -> Self {
        Self {
            id: Id(alarm.id.0),
            organization_id: Id(alarm.organization.0),
            project_id: Id(alarm.project.0),
            device_id: Id(alarm.device.0),
            device_name: alarm.device_name,
            element_name: alarm.element,
            key: alarm.key,
            title: alarm.title,
            severity: alarm.severity.name(),
            state: alarm.state.name(),
            acknowledged: alarm.acknowledged,
            raised_at: Time(alarm.raised_at),
            cleared_at: alarm.cleared_at.map(Time),
            acknowledged_at: alarm.acknowledged_at.map(Time),
            acknowledged_by: alarm.acknowledged_by.map(|user| Id(user.0)),
            assignee_id: alarm.assignee.map(|user| Id(user.0)),
            count: alarm.count,
            value: alarm.value.map(Raw),
            created_at: Time(alarm.created_at),
            updated_at: Time(alarm.updated_at),
        }
    }
}

/// An alarm with what happened to it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AlarmDetail)]
pub(crate) struct AlarmDetailJson {
    #[serde(flatten)]
    alarm: AlarmJson,
    /// The newest last. Of more than 100 entries the first stays, and the oldest behind it go.
    history: Vec<AlarmEntryJson>,
}

impl From<AlarmView> for AlarmDetailJson {
    fn from(view: AlarmView) -> Self {
        let history = view.history.into_iter().map(AlarmEntryJson::from).collect();
        Self { alarm: view.alarm.into(), history }
    }
}

/// Something that happened to an alarm.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AlarmEntry)]
pub(crate) struct AlarmEntryJson {
    at: Time,
    #[schema(value_type = AlarmActText)]
    what: &'static str,
    /// The user who did it; null: the design.
    by: Option<Id>,
    /// The comment of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    comment: Option<String>,
    /// The value with which it was raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = AnyJson)]
    value: Option<Raw>,
    /// The new assignee; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Id)]
    assignee_id: Option<Id>,
}

impl From<AlarmEntry> for AlarmEntryJson {
    fn from(entry: AlarmEntry) -> Self {
        Self {
            at: Time(entry.at),
            what: entry.what.name(),
            by: entry.by.map(|user| Id(user.0)),
            comment: entry.comment,
            value: entry.value.map(Raw),
            assignee_id: entry.assignee.map(|user| Id(user.0)),
        }
    }
}

/// Counts of the active alarms in a part of the tree by severity, and of those that nobody has acknowledged.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AlarmSummary)]
pub(crate) struct AlarmSummaryJson {
    critical: u64,
    warning: u64,
    info: u64,
    /// Active or cleared.
    unacknowledged: u64,
}

impl From<AlarmSummary> for AlarmSummaryJson {
    fn from(summary: AlarmSummary) -> Self {
        let AlarmSummary { active, unacknowledged } = summary;
        Self { critical: active.critical, warning: active.warning, info: active.info, unacknowledged }
    }
}

/// Changes an alarm. What is left out stays as it is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = AlarmInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct AlarmInputJson {
    /// The first time it becomes true the design's trigger `acknowledged` fires. An alarm that is over stays acknowledged.
    #[schema(required = false)]
    acknowledged: bool,
    /// A comment for its history.
    #[schema(min_length = 1, max_length = 1000)]
    comment: Option<String>,
    /// A user who can see the alarm; null: nobody.
    assignee_id: Option<Id>,
    /// `cleared` ends an alarm that its design does not clear. Nobody makes one active.
    #[schema(required = false)]
    state: StateText,
}
