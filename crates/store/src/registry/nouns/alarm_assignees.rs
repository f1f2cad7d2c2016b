//! Takes alarms from assignees who can no longer see them: the user was deleted, disabled or moved away, or the device
//! was moved.

use std::collections::HashSet;

use isobar_model::alarm::{AlarmAct, AlarmEntry, remember};
use isobar_model::ids::{AlarmId, DeviceKey, UserId};
use isobar_model::role::Role;
use isobar_model::time::Timestamp;

use super::alarms::{stored, with_history, write};
use super::devices::hold_devices;
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, all};

/// Alarms that one transaction takes from their assignees.
const UNASSIGNED_AT_ONCE: usize = 200;
/// Condition that an alarm `a` of a device `d` is assigned to a user who cannot see it.
const UNSEEN: &str = "a.assignee_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM users u \
    JOIN organizations h ON h.id = u.organization_id JOIN organizations o ON o.id = d.organization_id \
    WHERE u.id = a.assignee_id AND u.disabled = 0 \
    AND (u.role = ? OR substr(o.lineage, 1, length(h.lineage)) = h.lineage))";

/// The alarms whose assignees are looked at.
#[derive(Clone, Copy, Debug)]
pub enum Assigned {
    /// Those that are assigned to a user.
    To(UserId),
    /// Those of a device.
    Of(DeviceKey),
    /// All.
    Anywhere,
}

impl Assigned {
    /// Returns the condition on an alarm `a` of a device `d` that its assignee cannot see it.
    fn unseen(self) -> Sql {
        let unseen = Sql::new(UNSEEN).bind(Role::SystemAdmin as i64);
        match self {
            Self::To(user) => unseen.text(" AND a.assignee_id = ?").bind(user),
            Self::Of(device) => unseen.text(" AND a.device_key = ?").bind(device),
            Self::Anywhere => unseen,
        }
    }
}

impl Registry {
    /// Takes alarms from assignees who cannot see them, and notes that in their histories. Returns these alarms. It serves
    /// the system.
    pub async fn alarms_unassign(&self, of: Assigned, now: Timestamp) -> Result<Vec<AlarmId>> {
        let mut unassigned = Vec::new();
        loop {
            let query =
                Sql::new("SELECT a.id, d.id AS device FROM alarms a JOIN devices d ON d.key = a.device_key WHERE ")
                    .then(of.unseen())
                    .text(" LIMIT ?")
                    .bind(UNASSIGNED_AT_ONCE as u64);
            let rows = all(&self.db.read, query).await?;
            if rows.is_empty() {
                return Ok(unassigned);
            }
            let ids = rows.iter().map(|row| row.id("id")).collect::<Result<Vec<AlarmId>>>()?;
            let tx = self.db.begin().await?;
            // Findings and changes by users lock the device too, before they read its alarms.
            hold_devices(&tx, rows.iter().map(|row| row.id("device")).collect::<Result<HashSet<_>>>()?).await?;
            unassigned.extend(unassign(&tx, of, &ids, now).await?);
            tx.commit().await?;
        }
    }
}

/// Takes those of the alarms of locked devices from their assignees that these still cannot see.
async fn unassign(tx: &impl Connection, of: Assigned, ids: &[AlarmId], now: Timestamp) -> Result<Vec<AlarmId>> {
    let query = with_history(Sql::new("alarms a")).then(of.unseen()).text(" AND a.id").among(Dialect::of(tx), ids);
    let mut alarms = all(tx, query).await?.iter().map(stored).collect::<Result<Vec<_>>>()?;
    for stored in &mut alarms {
        stored.alarm.assignee = None;
        stored.alarm.updated_at = now.max(stored.alarm.updated_at);
        remember(&mut stored.history, AlarmEntry::new(now, AlarmAct::Assigned, None));
    }
    write(tx, &alarms).await?;
    Ok(alarms.into_iter().map(|stored| stored.alarm.id).collect())
}
