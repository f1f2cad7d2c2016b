//! Stores how many calls each process has counted in a minute, for the limits of all. The rows name callers, contain no
//! tenant's data, and so need no permit.

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Sql, all};

/// Callers whose counts one process reads at a time, at most: those with the most calls.
const SHARES_READ_MAX: i64 = 10_000;

impl Registry {
    /// Notes how many calls of these callers a process has counted in a minute.
    ///
    /// # Errors
    /// [`crate::error::StoreError::Unavailable`] if the registry is on SQLite, here and in the other functions.
    pub async fn rate_shares_write(&self, node: &str, minute: i64, counts: &[(String, u32)]) -> Result<()> {
        let counts = counts.iter().map(|(subject, count)| (subject.as_str().into(), u64::from(*count)));
        let upsert = Sql::new("INSERT INTO rate_shares (minute, node, subject, count) ")
            .text("SELECT CAST(? AS BIGINT), ?, t.item, t.amount FROM ")
            .bind(minute)
            .bind(node)
            .amounts(self.db.dialect, counts)
            .text(" AS t ON CONFLICT (minute, node, subject) DO UPDATE SET count = excluded.count ")
            .text("WHERE rate_shares.count <> excluded.count");
        self.db.write.run(upsert).await.map(drop)
    }

    /// Returns how many calls of each caller other processes have counted in a minute.
    pub async fn rate_shares_of_others(&self, node: &str, minute: i64) -> Result<Vec<(String, u64)>> {
        let query = Sql::new(
            "SELECT subject, CAST(sum(count) AS BIGINT) AS calls FROM rate_shares WHERE minute = ? AND node <> ? \
             GROUP BY subject ORDER BY calls DESC LIMIT ?",
        );
        let rows = all(&self.db.read, query.bind(minute).bind(node).bind(SHARES_READ_MAX)).await?;
        rows.iter().map(|row| Ok((row.text("subject")?, row.count("calls")?))).collect()
    }

    /// Removes the counts of earlier minutes.
    pub async fn rate_shares_sweep(&self, minute: i64) -> Result<u64> {
        self.db.write.run(Sql::new("DELETE FROM rate_shares WHERE minute < ?").bind(minute)).await
    }
}
