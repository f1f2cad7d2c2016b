//! How much waits to leave the house, and how some of it lets the rest go first.

use isobar_model::time::Timestamp;

use super::deliveries::{NewDelivery, put};
use super::sql::{Sql, one};
use super::{Registry, db};
use crate::error::Result;

impl Registry {
    /// Keeps deliveries, all or none, as far as there is room: of those whose identifiers begin with `source` at most
    /// `most` wait. How many were left out, the last ones.
    pub async fn deliveries_put_within(
        &self,
        deliveries: &[NewDelivery],
        source: &str,
        most: usize,
        now: Timestamp,
    ) -> Result<usize> {
        let tx = self.db.begin().await?;
        let count = Sql::new("SELECT count(*) AS count FROM deliveries WHERE id >= ? AND id < ?");
        // No identifier has a character beyond this one.
        let end = format!("{source}\u{10ffff}");
        let row = one(&tx, count.bind(source).bind(end)).await?;
        let waiting = row.map_or(Ok(0), |row| row.count("count"))?;
        let room = most.saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX)).min(deliveries.len());
        put(&tx, &deliveries[..room], now).await?;
        db::commit(tx).await?;
        Ok(deliveries.len() - room)
    }

    /// Lets deliveries wait until `due_at`; it is no attempt.
    pub async fn deliveries_postpone(&self, ids: &[String], due_at: Timestamp) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let update = Sql::new("UPDATE deliveries SET due_at = ? WHERE id").bind(due_at).among(self.db.dialect, ids);
        self.db.write.run(update).await.map(|_| ())
    }
}
