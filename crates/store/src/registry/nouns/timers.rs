//! Stores timers of devices: an interval of their design, or a check that they are not silent. The project sets the
//! minutes, and each device has its own due moment. Timers contain no tenant's data, and so need no permit.

use isobar_model::ids::{DeviceKey, DeviceRef, ProjectId};
use isobar_model::time::Timestamp;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, all, run};

/// Timer that every device of a project has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProjectTimer {
    /// Element of the timer; empty for the check that the device is not silent.
    pub element: String,
    /// Minutes after which it is due.
    pub minutes: u32,
}

/// Timer of a device that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTimer {
    /// Number of the timer.
    pub number: u64,
    /// Device of the timer.
    pub device: DeviceRef,
    /// Element of the timer; empty for the check that the device is not silent.
    pub element: String,
    /// Moment at which it was due.
    pub due_at: Timestamp,
    /// Moment of the device's last event, or else of its creation.
    pub heard_at: Timestamp,
}

impl Registry {
    /// Lists at most `limit` timers that are due and that no process serves, longest due first.
    pub async fn timers_due(&self, now: Timestamp, limit: usize) -> Result<Vec<DueTimer>> {
        let query = Sql::new(
            "SELECT l.id, l.device_key, d.id AS device, l.element, l.due_at, \
             CASE WHEN a.last_active > d.created_at THEN a.last_active ELSE d.created_at END AS heard_at \
             FROM device_timers l JOIN devices d ON d.key = l.device_key JOIN device_activity a ON a.key = l.device_key \
             WHERE l.due_at <= ? AND l.claimed_until <= ? ORDER BY l.due_at, l.id LIMIT ?",
        );
        let rows = all(&self.db.read, query.bind(now).bind(now).bind(limit as u64)).await?;
        rows.iter()
            .map(|row| {
                Ok(DueTimer {
                    number: row.count("id")?,
                    device: DeviceRef { id: row.id("device")?, key: row.key("device_key")? },
                    element: row.text("element")?,
                    due_at: row.time("due_at")?,
                    heard_at: row.time("heard_at")?,
                })
            })
            .collect()
    }

    /// Sets when timers are due next, and removes timers that their devices no longer have; all or none. Timers that
    /// were removed meanwhile stay removed.
    pub async fn timers_set(&self, due: &[(u64, Timestamp)], gone: &[u64]) -> Result<()> {
        if due.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let tx = self.db.begin().await?;
        if !due.is_empty() {
            let update = Sql::new("UPDATE device_timers SET due_at = t.moment, claimed_until = 0 FROM ")
                .moments(self.db.dialect, due.iter().map(|(number, at)| ((*number).into(), *at)))
                .text(" AS t WHERE device_timers.id = CAST(t.item AS BIGINT)");
            run(&tx, update).await?;
        }
        if !gone.is_empty() {
            let gone: Vec<i64> = gone.iter().filter_map(|number| i64::try_from(*number).ok()).collect();
            run(&tx, Sql::new("DELETE FROM device_timers WHERE id").among_numbers(self.db.dialect, &gone)).await?;
        }
        tx.commit().await
    }
}

/// Starts the timers of their projects for new devices.
pub(crate) async fn begin(tx: &impl Connection, devices: &[DeviceKey], now: Timestamp) -> Result<()> {
    let keys: Vec<i64> = devices.iter().map(|key| key.0 as i64).collect();
    // Join in this order: a project may have many devices.
    let insert = Sql::new(
        "INSERT INTO device_timers (device_key, element, due_at) \
         SELECT d.key, a.element, CAST(? AS BIGINT) + a.minutes * 60000 FROM devices d CROSS JOIN project_timers a \
         WHERE a.project_id = d.project_id AND d.key",
    );
    run(tx, insert.bind(now).among_numbers(Dialect::of(tx), &keys)).await.map(|_| ())
}

/// Removes a device's timers.
pub(crate) async fn end(tx: &impl Connection, device: DeviceKey) -> Result<()> {
    run(tx, Sql::new("DELETE FROM device_timers WHERE device_key = ?").bind(device)).await.map(|_| ())
}

/// Replaces the timers of a project and its devices. A timer with unchanged minutes keeps its moments; any other begins
/// now. The caller has locked the project exclusively: a device that is being created has the previous timers, and must
/// be visible before they are changed.
pub(crate) async fn replace(
    tx: &impl Connection,
    project: ProjectId,
    timers: &[ProjectTimer],
    now: Timestamp,
) -> Result<()> {
    let before = of_project(tx, project).await?;
    if before.len() == timers.len() && before.iter().all(|timer| timers.contains(timer)) {
        return Ok(());
    }
    for gone in before.iter().filter(|timer| !timers.iter().any(|new| new.element == timer.element)) {
        let delete = Sql::new(
            "DELETE FROM device_timers WHERE element = ? AND device_key IN (SELECT key FROM devices WHERE project_id = ?)",
        );
        run(tx, delete.bind(gone.element.as_str()).bind(project)).await?;
    }
    run(tx, Sql::new("DELETE FROM project_timers WHERE project_id = ?").bind(project)).await?;
    for timer in timers {
        let insert = Sql::new("INSERT INTO project_timers (project_id, element, minutes) VALUES (?, ?, ?)");
        run(tx, insert.bind(project).bind(timer.element.as_str()).bind(u64::from(timer.minutes))).await?;
    }
    for timer in timers.iter().filter(|timer| !before.contains(timer)) {
        let insert = Sql::new(
            "INSERT INTO device_timers (device_key, element, due_at) \
             SELECT key, CAST(? AS TEXT), CAST(? AS BIGINT) FROM devices WHERE project_id = ? \
             ON CONFLICT (device_key, element) DO UPDATE SET due_at = excluded.due_at",
        );
        let due = now.plus_seconds(i64::from(timer.minutes) * 60);
        run(tx, insert.bind(timer.element.as_str()).bind(due).bind(project)).await?;
    }
    Ok(())
}

async fn of_project(tx: &impl Connection, project: ProjectId) -> Result<Vec<ProjectTimer>> {
    let query = Sql::new("SELECT element, minutes FROM project_timers WHERE project_id = ?").bind(project);
    let rows = all(tx, query).await?;
    rows.iter()
        .map(|row| {
            let minutes = u32::try_from(row.count("minutes")?).unwrap_or(u32::MAX);
            Ok(ProjectTimer { element: row.text("element")?, minutes })
        })
        .collect()
}
