//! Corrects moments that a fast clock has left in the registry: finds the newest identifier, after which new ones
//! continue, and resets moments later than a correct clock allows. It reads no tenant's data, and needs no permit.

use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Sql, one};

/// Tables whose identifiers increase.
const WITH_IDS: [&str; 8] =
    ["organizations", "users", "sessions", "api_keys", "notifications", "projects", "devices", "settings"];
/// Rows that are changed in one transaction: others write in between.
const SET_BACK_AT_ONCE: u64 = 5_000;

impl Registry {
    /// Returns the newest identifier of all tables, or `None` if they are empty. Reads the ends of a few indexes only.
    pub async fn newest_id(&self) -> Result<Option<EventId>> {
        let newest = WITH_IDS.map(|table| format!("SELECT max(id) AS id FROM {table}")).join(" UNION ALL ");
        let query = Sql::new(format!("SELECT max(id) AS id FROM ({newest}) AS newest"));
        one(&self.db.read, query).await?.map_or(Ok(None), |row| row.id_if("id"))
    }

    /// Corrects moments after the clock was ahead of `now`. Activity and deliveries later than `now` are set to `now`;
    /// an interval is due within its period from now on, in its rhythm; checks for silent devices are due now; and no
    /// failed delivery waits beyond `latest`. Repeating all of it at any time is safe.
    pub async fn clock_set_back(&self, now: Timestamp, latest: Timestamp) -> Result<()> {
        for (table, column) in [("users", "last_active"), ("api_keys", "last_used_at")] {
            let update = Sql::new(format!("UPDATE {table} SET {column} = ? WHERE {column} > ?"));
            self.db.write.run(update.bind(now).bind(now)).await?;
        }
        let shift = "UPDATE deliveries SET due_at = CAST(? AS BIGINT) + due_at - created_at, created_at = ? \
                     WHERE created_at > ?";
        self.db.write.run(Sql::new(shift).bind(now).bind(now).bind(now)).await?;
        let retry = Sql::new("UPDATE deliveries SET due_at = ? WHERE attempts > 0 AND due_at > ?");
        self.db.write.run(retry.bind(now).bind(latest)).await?;
        loop {
            let some = "SELECT key FROM device_activity WHERE last_active > ? LIMIT ?";
            let update = Sql::new(format!("UPDATE device_activity SET last_active = ? WHERE key IN ({some})"));
            if self.db.write.run(update.bind(now).bind(now).bind(SET_BACK_AT_ONCE)).await? < SET_BACK_AT_ONCE {
                return self.timers_set_back(now).await;
            }
        }
    }

    async fn timers_set_back(&self, now: Timestamp) -> Result<()> {
        let last = one(&self.db.read, Sql::new("SELECT max(id) AS id FROM device_timers")).await?;
        let last = last.map_or(Ok(None), |row| row.number_if("id"))?.unwrap_or(0);
        for from in (0..=last).step_by(SET_BACK_AT_ONCE as usize) {
            let update = Sql::new(
                "UPDATE device_timers SET due_at = CASE WHEN device_timers.element = '' THEN CAST(? AS BIGINT) ELSE \
                 device_timers.due_at \
                 - (device_timers.due_at - CAST(? AS BIGINT) - 1) / (p.minutes * 60000) * (p.minutes * 60000) END \
                 FROM devices d, project_timers p \
                 WHERE d.key = device_timers.device_key AND p.project_id = d.project_id AND p.element = device_timers.element \
                 AND device_timers.id >= ? AND device_timers.id < ? \
                 AND device_timers.due_at > CAST(? AS BIGINT) + p.minutes * 60000",
            );
            let (from, to) = (from.unsigned_abs(), from.unsigned_abs() + SET_BACK_AT_ONCE);
            self.db.write.run(update.bind(now).bind(now).bind(from).bind(to).bind(now)).await?;
        }
        Ok(())
    }
}
