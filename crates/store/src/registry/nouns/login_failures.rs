//! Counts failed log-ins, and links sent, for all processes that serve one platform. The rows name subjects by digests
//! and identifiers and contain no tenant's data, and so need no permit.

use isobar_model::time::Timestamp;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Column, Sql, all};

/// The count of one subject since a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    /// The subject, as the caller named it.
    pub subject: String,
    /// The moment of the first one.
    pub since: Timestamp,
    /// Their number.
    pub count: u64,
}

impl Registry {
    /// Returns what was counted for these subjects. Periods that begin in the future, by a clock that was ahead, begin
    /// now.
    pub async fn failures_of(&self, subjects: &[String], now: Timestamp) -> Result<Vec<FailureCount>> {
        let query = Sql::new("SELECT subject, since, count FROM login_failures WHERE subject");
        let rows = all(&self.db.read, query.among(self.db.dialect, subjects)).await?;
        let read = |row: &crate::registry::sql::Row| {
            Ok(FailureCount { subject: row.text("subject")?, since: row.time("since")?, count: row.count("count")? })
        };
        let mut found = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        let mut ahead: Vec<_> = found.iter_mut().filter(|seen| seen.since > now).collect();
        if !ahead.is_empty() {
            let update =
                Sql::new("UPDATE login_failures SET since = ? WHERE since > ? AND subject").bind(now).bind(now);
            self.db.write.run(update.among(self.db.dialect, ahead.iter().map(|seen| &seen.subject))).await?;
            ahead.iter_mut().for_each(|seen| seen.since = now);
        }
        Ok(found)
    }

    /// Counts one more for each of these subjects, in a new period where the last one has ended. Returns the highest
    /// count.
    pub async fn failures_add(&self, subjects: &[String], now: Timestamp, period_seconds: i64) -> Result<u64> {
        let ended = now.plus_seconds(-period_seconds);
        let rows = subjects.iter().map(|subject| serde_json::json!([subject]));
        // Sorted: of two that count the same subjects, one waits for the other.
        let add =
            Sql::new("INSERT INTO login_failures (subject, since, count) SELECT t.item, CAST(? AS BIGINT), 1 FROM ")
                .bind(now)
                .relation(self.db.dialect, &[Column::Text("item")], rows)
                .text(
                    " AS t WHERE 1 = 1 ORDER BY t.item ON CONFLICT (subject) DO UPDATE SET \
                 count = CASE WHEN login_failures.since <= ? THEN 1 ELSE login_failures.count + 1 END, \
                 since = CASE WHEN login_failures.since <= ? OR login_failures.since > excluded.since \
                 THEN excluded.since ELSE login_failures.since END RETURNING count",
                )
                .bind(ended)
                .bind(ended);
        let tx = self.db.begin().await?;
        let counts = all(&tx, add).await?;
        tx.commit().await?;
        counts.iter().try_fold(0, |most, row| Ok(row.count("count")?.max(most)))
    }

    /// Removes what was counted in periods that have ended.
    pub async fn failures_sweep(&self, now: Timestamp, period_seconds: i64) -> Result<u64> {
        let ended = now.plus_seconds(-period_seconds);
        self.db.write.run(Sql::new("DELETE FROM login_failures WHERE since <= ?").bind(ended)).await
    }
}
