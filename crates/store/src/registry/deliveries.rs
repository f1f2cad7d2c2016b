//! Deliveries: what is to leave the house, kept until it has left. They carry no tenant's rows, and so need no pass.

use std::borrow::Borrow;

use isobar_model::time::Timestamp;
use sea_orm::ConnectionTrait;

use super::sql::{Sql, all, one, run};
use super::{Registry, db};
use crate::error::Result;

/// Deliveries that one statement adds.
const INSERTED_AT_ONCE: usize = 100;

/// A delivery to be made.
#[derive(Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// Its identifier: the same one again changes nothing.
    pub id: String,
    /// What it is, and so who carries it out.
    pub kind: &'static str,
    /// What is to be done, in JSON.
    pub body: String,
}

/// A delivery that waits.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its identifier.
    pub id: String,
    /// What is to be done, in JSON.
    pub body: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was asked for.
    pub created_at: Timestamp,
}

// Bodies may hold what is not for a log.
impl std::fmt::Debug for NewDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewDelivery").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("id", &self.id).field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

impl Registry {
    /// Keeps deliveries, all or none, due at once.
    pub async fn deliveries_put(&self, deliveries: &[NewDelivery], now: Timestamp) -> Result<()> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let tx = self.db.begin().await?;
        put(&tx, deliveries, now).await?;
        db::commit(tx).await
    }

    /// Deliveries of a kind that are due, the longest due first.
    pub async fn deliveries_due(&self, kind: &str, now: Timestamp, limit: usize) -> Result<Vec<Delivery>> {
        let query = Sql::new(
            "SELECT id, body, attempts, created_at FROM deliveries WHERE kind = ? AND due_at <= ? \
             ORDER BY due_at, id LIMIT ?",
        );
        let rows = all(&self.db.read, query.bind(kind).bind(now).bind(limit as u64)).await?;
        rows.iter()
            .map(|row| {
                Ok(Delivery {
                    id: row.text("id")?,
                    body: row.text("body")?,
                    attempts: u32::try_from(row.count("attempts")?).unwrap_or(u32::MAX),
                    created_at: row.time("created_at")?,
                })
            })
            .collect()
    }

    /// When the next delivery of a kind is due; none: there is none.
    pub async fn deliveries_next(&self, kind: &str) -> Result<Option<Timestamp>> {
        let query = Sql::new("SELECT min(due_at) AS due_at FROM deliveries WHERE kind = ?").bind(kind);
        Ok(one(&self.db.read, query).await?.map(|row| row.time_if("due_at")).transpose()?.flatten())
    }

    /// Forgets a delivery: it was made, or never will be.
    pub async fn delivery_done(&self, id: &str) -> Result<()> {
        self.db.write.run(Sql::new("DELETE FROM deliveries WHERE id = ?").bind(id)).await.map(|_| ())
    }

    /// Notes that a delivery has failed so often, and when it is due again.
    pub async fn delivery_failed(&self, id: &str, attempts: u32, due_at: Timestamp) -> Result<()> {
        let update = Sql::new("UPDATE deliveries SET attempts = ?, due_at = ? WHERE id = ?")
            .bind(u64::from(attempts))
            .bind(due_at)
            .bind(id);
        self.db.write.run(update).await.map(|_| ())
    }
}

/// Keeps deliveries together with whatever else the transaction does.
pub(super) async fn put<D: Borrow<NewDelivery>>(
    tx: &impl ConnectionTrait,
    deliveries: &[D],
    now: Timestamp,
) -> Result<()> {
    for deliveries in deliveries.chunks(INSERTED_AT_ONCE) {
        let mut insert =
            Sql::new("INSERT INTO deliveries (id, kind, body, due_at, created_at)").values(deliveries.len(), 5);
        for delivery in deliveries.iter().map(Borrow::borrow) {
            insert =
                insert.bind(delivery.id.as_str()).bind(delivery.kind).bind(delivery.body.as_str()).bind(now).bind(now);
        }
        run(tx, insert.text(" ON CONFLICT DO NOTHING")).await?;
    }
    Ok(())
}
