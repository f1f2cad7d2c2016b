//! Reads alarms, and writes the changes that people make to them. Findings of designs about alarms are in
//! `alarm_findings`.

use std::collections::{HashMap, HashSet};

use isobar_model::access::{Actor, CanList, CanRead, CanWrite};
use isobar_model::alarm::{
    Alarm, AlarmAct, AlarmChange, AlarmCounts, AlarmEntry, AlarmSeverity, AlarmState, AlarmSummary,
};
use isobar_model::ids::{AlarmId, DeviceId, DeviceKey, DeviceRef, EventId, UserId};
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::devices::read_json;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{count, within};
use crate::registry::sql::{Column, Connection, Dialect, Row, Sql, all, one, run, without_nul};

/// Columns from which an alarm is read, of the tables `a` and `d`.
pub(crate) const ALARM_COLUMNS: &str = "a.id, a.device_key, d.id AS device, d.name AS device_name, d.organization_id, \
    d.project_id, a.element, a.key, a.title, a.severity, a.state, a.acknowledged, a.raised_at, a.cleared_at, \
    a.acknowledged_at, a.acknowledged_by, a.assignee_id, a.count, a.value, a.episode, a.episode_count, a.last_change, a.ended_at, \
    a.created_at, a.updated_at";
/// `FROM` the alarms `a` of organizations `o`, up to the condition on organizations. `CROSS JOIN` fixes this order of
/// the tables for SQLite; PostgreSQL treats it as any other join.
pub(crate) const OF_ORGANIZATIONS: &str =
    " FROM organizations o CROSS JOIN alarms a WHERE a.organization_id = o.id AND ";
/// Alarms that one statement writes.
const ROWS_AT_ONCE: usize = 200;

/// Alarm as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredAlarm {
    pub alarm: Alarm,
    pub device: DeviceKey,
    pub history: Vec<AlarmEntry>,
    /// Newest episode, numbered per device, and how often the alarm was raised in it.
    pub episode: (i64, u64),
    /// Newest change by a user.
    pub last_change: Option<EventId>,
    /// Moment at which the alarm ended, or `None` if it lives.
    pub ended_at: Option<Timestamp>,
}

impl StoredAlarm {
    /// Ends an alarm that is cleared and acknowledged.
    pub fn end_if_over(&mut self, at: Timestamp) {
        if self.alarm.state == AlarmState::Cleared && self.alarm.acknowledged && self.ended_at.is_none() {
            self.ended_at = Some(at);
        }
    }
}

/// Change of an alarm by a user.
#[derive(Clone, Debug)]
pub struct AlarmWrite {
    /// Alarm to change.
    pub id: AlarmId,
    /// New values.
    pub change: AlarmChange,
    /// Identifier of the change, with its moment. A change that is not newer than the alarm's newest change has no
    /// effect: it was written before.
    pub event: EventId,
}

impl Registry {
    /// Returns the device of an alarm, which decides who may read the alarm.
    pub async fn alarm_device(&self, id: AlarmId) -> Result<Option<DeviceId>> {
        let query = Sql::new("SELECT d.id FROM alarms a JOIN devices d ON d.key = a.device_key WHERE a.id = ?");
        one(&self.db.read, query.bind(id)).await?.map(|row| row.id("id")).transpose()
    }

    /// Fetches an alarm of a device with its history, the newest entry last.
    pub async fn alarm_fetch(
        &self,
        permit: &CanRead<DeviceRef>,
        id: AlarmId,
    ) -> Result<Option<(Alarm, Vec<AlarmEntry>)>> {
        let of =
            with_history(Sql::new("alarms a")).text("a.id = ? AND a.device_key = ?").bind(id).bind(permit.target().key);
        let row = one(&self.db.read, of).await?;
        row.map(|row| stored(&row)).transpose().map(|found| found.map(|stored| (stored.alarm, stored.history)))
    }

    /// Finds the newest alarm of a device, an element and a key, to which a notice refers. It serves the system.
    pub async fn alarm_of_notice(&self, device: DeviceId, (element, key): (&str, &str)) -> Result<Option<AlarmId>> {
        let query = Sql::new(
            "SELECT a.id FROM alarms a JOIN devices d ON d.key = a.device_key \
             WHERE d.id = ? AND a.element = ? AND a.key = ? ORDER BY a.episode DESC LIMIT 1",
        );
        let query = query.bind(device).bind(element).bind(key);
        one(&self.db.read, query).await?.map(|row| row.id("id")).transpose()
    }

    /// Counts the alarms of a part of the tree.
    pub async fn alarm_summary(&self, permit: &CanList) -> Result<AlarmSummary> {
        let tx = self.db.snapshot().await?;
        let active = Sql::new("SELECT a.severity, count(*) AS alarms")
            .text(OF_ORGANIZATIONS)
            .then(within(permit.scope()))
            .text(" AND a.state = 0 GROUP BY a.severity");
        let mut summary = AlarmSummary::default();
        for row in all(&tx, active).await? {
            summary.active.add(row.named("severity", AlarmSeverity::numbered)?, row.count("alarms")?);
        }
        let unseen = Sql::new(OF_ORGANIZATIONS).then(within(permit.scope()));
        summary.unacknowledged = count(&tx, unseen.text(" AND a.acknowledged = 0 AND a.ended_at IS NULL")).await?;
        Ok(summary)
    }

    /// Counts the active alarms of many devices; devices without any are left out.
    pub async fn alarm_counts(&self, permits: &[CanRead<DeviceRef>]) -> Result<HashMap<DeviceKey, AlarmCounts>> {
        let keys: Vec<i64> =
            permits.iter().map(|permit| i64::try_from(permit.target().key.0).unwrap_or(i64::MAX)).collect();
        let query =
            Sql::new("SELECT device_key, severity, count(*) AS alarms FROM alarms WHERE state = 0 AND device_key")
                .among_numbers(self.db.dialect, &keys)
                .text(" GROUP BY device_key, severity");
        let mut counts: HashMap<DeviceKey, AlarmCounts> = HashMap::new();
        for row in all(&self.db.read, query).await? {
            let severity = row.named("severity", AlarmSeverity::numbered)?;
            counts.entry(row.key("device_key")?).or_default().add(severity, row.count("alarms")?);
        }
        Ok(counts)
    }

    /// Removes alarms that ended before this moment, oldest end first, at most `most` of them. Returns how many were
    /// removed.
    pub async fn alarms_sweep(&self, before: Timestamp, most: u32) -> Result<u64> {
        let delete = Sql::new(
            "DELETE FROM alarms WHERE id IN (SELECT id FROM alarms WHERE ended_at < ? ORDER BY ended_at LIMIT ?)",
        );
        self.db.write.run(delete.bind(before).bind(i64::from(most))).await
    }
}

/// Selects alarms with their histories, from a relation that has the table `a`, up to the condition.
pub(crate) fn with_history(from: Sql) -> Sql {
    let select = Sql::new(format!("SELECT a.history, {ALARM_COLUMNS} FROM "));
    select.then(from).text(" JOIN devices d ON d.key = a.device_key WHERE ")
}

/// Changes alarms of locked devices, in this order. Skips alarms that were removed.
pub(crate) async fn change(
    tx: &impl Connection,
    there: &HashSet<DeviceRef>,
    writes: &[(CanWrite<DeviceRef>, AlarmWrite)],
) -> Result<()> {
    for (permit, AlarmWrite { id, change, event }) in writes {
        if !there.contains(permit.target()) {
            continue;
        }
        let of = with_history(Sql::new("alarms a")).text("a.id = ? AND a.device_key = ?");
        let Some(row) = one(tx, of.bind(*id).bind(permit.target().key)).await? else { continue };
        let mut stored = stored(&row)?;
        if stored.last_change.is_some_and(|last| *event <= last) {
            continue;
        }
        let by = match permit.actor() {
            Actor::User(user) => Some(user),
            Actor::Device(_) | Actor::System(_) => None,
        };
        // An ended alarm stays ended: another one may live by now.
        let taken_back = stored.ended_at.is_some() && change.acknowledged == Some(false);
        let change = AlarmChange { acknowledged: change.acknowledged.filter(|_| !taken_back), ..change.clone() };
        let at = event.minted_at();
        if change.over(&mut stored.alarm, &mut stored.history, by, at) {
            stored.last_change = Some(*event);
            stored.end_if_over(at);
            write(tx, std::slice::from_ref(&stored)).await?;
        }
    }
    Ok(())
}

/// Reads an alarm without its history from a row.
pub(crate) fn alarm(row: &Row) -> Result<Alarm> {
    Ok(Alarm {
        id: row.id("id")?,
        organization: row.id("organization_id")?,
        project: row.id("project_id")?,
        device: row.id("device")?,
        device_name: row.text("device_name")?,
        element: row.text("element")?,
        key: row.text("key")?,
        title: row.text("title")?,
        severity: row.named("severity", AlarmSeverity::numbered)?,
        state: row.named("state", AlarmState::numbered)?,
        acknowledged: row.truth("acknowledged")?,
        raised_at: row.time("raised_at")?,
        cleared_at: row.time_if("cleared_at")?,
        acknowledged_at: row.time_if("acknowledged_at")?,
        acknowledged_by: row.id_if("acknowledged_by")?,
        assignee: row.id_if("assignee_id")?,
        count: row.count("count")?,
        value: row.json_if("value")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

/// Reads an alarm with its history from a row.
pub(crate) fn stored(row: &Row) -> Result<StoredAlarm> {
    Ok(StoredAlarm {
        alarm: alarm(row)?,
        device: row.key("device_key")?,
        history: history("history", row)?,
        episode: (row.number("episode")?, row.count("episode_count")?),
        last_change: row.id_if("last_change")?,
        ended_at: row.time_if("ended_at")?,
    })
}

/// Entry of a history as it is stored. JSON values are stored as text.
#[derive(Serialize, Deserialize)]
struct StoredEntry {
    at: i64,
    what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assignee: Option<UserId>,
}

/// Reads the history in a row.
pub(crate) fn history(column: &str, row: &Row) -> Result<Vec<AlarmEntry>> {
    let entries: Vec<StoredEntry> = read_json(column, &row.text(column)?)?;
    let read = |entry: StoredEntry| {
        let what = AlarmAct::named(&entry.what)
            .ok_or_else(|| StoreError::Damaged(format!("column {column}: {:?} is no act", entry.what)))?;
        Ok(AlarmEntry {
            at: Timestamp::from_millis(entry.at),
            what,
            by: entry.by,
            comment: entry.comment,
            value: entry.value.map(|text| RawJson::trusted(text.into())),
            assignee: entry.assignee,
        })
    };
    entries.into_iter().map(read).collect()
}

fn written_history(history: &[AlarmEntry]) -> Result<String> {
    let entries = history.iter().map(|entry| StoredEntry {
        at: entry.at.millis(),
        what: entry.what.name().to_owned(),
        by: entry.by,
        comment: entry.comment.clone().map(without_nul),
        value: entry.value.as_ref().map(|value| value.text().to_owned()),
        assignee: entry.assignee,
    });
    super::devices::written(&entries.collect::<Vec<_>>())
}

const COLUMNS: [Column; 22] = [
    Column::Text("id"),
    Column::Number("device_key"),
    Column::Text("element"),
    Column::Text("key"),
    Column::Text("title"),
    Column::Number("severity"),
    Column::Number("state"),
    Column::Number("acknowledged"),
    Column::Number("raised_at"),
    Column::Number("cleared_at"),
    Column::Number("acknowledged_at"),
    Column::Text("acknowledged_by"),
    Column::Text("assignee_id"),
    Column::Number("count"),
    Column::Text("value"),
    Column::Text("history"),
    Column::Number("episode"),
    Column::Number("episode_count"),
    Column::Text("last_change"),
    Column::Number("ended_at"),
    Column::Number("created_at"),
    Column::Number("updated_at"),
];

/// Writes alarms of locked devices, new ones and others.
pub(crate) async fn write(tx: &impl Connection, alarms: &[StoredAlarm]) -> Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|(Column::Text(name) | Column::Number(name))| *name).collect();
    let kept = ["id", "device_key", "element", "key", "created_at"];
    let changed: Vec<_> = names.iter().filter(|name| !kept.contains(name)).collect();
    let changed: Vec<_> = changed.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    let (names, changed) = (names.join(", "), changed.join(", "));
    for alarms in alarms.chunks(ROWS_AT_ONCE) {
        let rows = alarms.iter().map(row).collect::<Result<Vec<_>>>()?;
        // An alarm belongs to the organization of its device.
        let of_devices = "JOIN (SELECT key AS owner, organization_id FROM devices) d ON d.owner = t.device_key";
        let insert = format!("INSERT INTO alarms ({names}, organization_id) SELECT {names}, organization_id FROM ");
        let upsert = Sql::new(insert)
            .relation(Dialect::of(tx), &COLUMNS, rows)
            .text(&format!(" AS t {of_devices} WHERE 1 = 1 ON CONFLICT (id) DO UPDATE SET {changed}"));
        run(tx, upsert).await?;
    }
    Ok(())
}

fn row(stored: &StoredAlarm) -> Result<serde_json::Value> {
    let StoredAlarm { alarm, device, history, episode, last_change, ended_at } = stored;
    let millis = |moment: Option<Timestamp>| moment.map(Timestamp::millis);
    Ok(json!([
        alarm.id,
        device.0,
        without_nul(alarm.element.clone()),
        without_nul(alarm.key.clone()),
        without_nul(alarm.title.clone()),
        alarm.severity.number(),
        alarm.state.number(),
        i64::from(alarm.acknowledged),
        alarm.raised_at.millis(),
        millis(alarm.cleared_at),
        millis(alarm.acknowledged_at),
        alarm.acknowledged_by,
        alarm.assignee,
        alarm.count,
        alarm.value.as_ref().map(RawJson::text),
        written_history(history)?,
        episode.0,
        episode.1,
        last_change,
        millis(*ended_at),
        alarm.created_at.millis(),
        alarm.updated_at.millis(),
    ]))
}
