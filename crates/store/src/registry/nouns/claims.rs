//! Claims of work by one of the processes that serve a platform. A claim ends by itself, so that another process does the
//! work of one that is gone. Claims contain no tenant's rows, and so need no permit.

use std::collections::HashSet;

use isobar_model::time::Timestamp;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Sql, all, run};

/// Time in milliseconds by which the clocks of two processes may differ.
const CLOCKS_DIFFER: i64 = 600_000;

impl Registry {
    /// Claims deliveries that are due and that nobody works on, until a time; returns those that are the caller's now.
    pub async fn deliveries_claim(
        &self,
        ids: impl IntoIterator<Item = &str>,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<HashSet<String>> {
        let update =
            Sql::new("UPDATE deliveries SET claimed_until = ? WHERE id IN (SELECT id FROM deliveries WHERE id");
        let update = update.bind(until).among(self.db.dialect, ids).text(" AND due_at <= ? AND claimed_until <= ?");
        let update = update.bind(now).bind(now).text(self.db.dialect.hold_free()).text(") RETURNING id");
        let tx = self.db.begin().await?;
        let rows = all(&tx, update).await?;
        tx.commit().await?;
        rows.iter().map(|row| row.text("id")).collect()
    }

    /// Prolongs the claims of deliveries that the caller works on.
    pub async fn deliveries_keep(&self, ids: impl IntoIterator<Item = &str>, until: Timestamp) -> Result<()> {
        let update =
            Sql::new("UPDATE deliveries SET claimed_until = ? WHERE id IN (SELECT id FROM deliveries WHERE id");
        let update = update.bind(until).among(self.db.dialect, ids).text(self.db.dialect.hold_free()).text(")");
        self.db.write.run(update).await.map(drop)
    }

    /// Claims timers that are due and that nobody serves, until a time; returns those that are the caller's now.
    pub async fn timers_claim(&self, numbers: &[u64], now: Timestamp, until: Timestamp) -> Result<HashSet<u64>> {
        let numbers: Vec<i64> = numbers.iter().filter_map(|number| i64::try_from(*number).ok()).collect();
        let update =
            Sql::new("UPDATE device_timers SET claimed_until = ? WHERE id IN (SELECT id FROM device_timers WHERE id");
        let update = update.bind(until).among_numbers(self.db.dialect, &numbers);
        let update = update.text(" AND due_at <= ? AND claimed_until <= ?").bind(now).bind(now);
        let tx = self.db.begin().await?;
        let rows = all(&tx, update.text(self.db.dialect.hold_free()).text(") RETURNING id")).await?;
        tx.commit().await?;
        rows.iter().map(|row| row.count("id")).collect()
    }

    /// Claims a job that is done every `seconds` by one process; returns false if another has done it since, or does it.
    /// The clocks of processes may differ by minutes.
    pub async fn job_claim(&self, name: &'static str, now: Timestamp, seconds: i64) -> Result<bool> {
        let next = now.plus_seconds(seconds);
        let claim = Sql::new(
            "INSERT INTO jobs (name, due_at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at \
             WHERE jobs.due_at <= ? OR jobs.due_at > ?",
        );
        let claim = claim.bind(name).bind(next).bind(now);
        let claim = claim.bind(Timestamp::from_millis(next.millis().saturating_add(CLOCKS_DIFFER)));
        let tx = self.db.begin().await?;
        let claimed = run(&tx, claim).await?;
        tx.commit().await?;
        Ok(claimed > 0)
    }
}
