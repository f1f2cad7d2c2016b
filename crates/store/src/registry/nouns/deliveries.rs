//! Deliveries: e-mails and calls that are to go out, stored until they have. They carry no tenant's rows, and so need
//! no permit.

use std::borrow::Borrow;

use isobar_model::time::Timestamp;
use sea_orm::ConnectionTrait;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Column, Row, Sql, all, one, run};

/// Deliveries that one statement adds.
const INSERTED_AT_ONCE: usize = 100;
const SELECT: &str = "SELECT id, body, attempts, created_at FROM deliveries WHERE ";

/// A delivery to be made.
#[derive(Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// Its identifier: the same one again changes nothing.
    pub id: String,
    /// What it is, and so who carries it out.
    pub kind: &'static str,
    /// What is to be done, in JSON.
    pub body: String,
    /// Where it goes, if that is a host outside.
    pub host: Option<String>,
}

/// What is known of a delivery that is due without reading what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    /// Its identifier.
    pub id: String,
    /// Where it goes, if that is a host outside.
    pub host: Option<String>,
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
        tx.commit().await
    }

    /// Deliveries of a kind that are due, the longest due first.
    pub async fn deliveries_due(&self, kind: &str, now: Timestamp, limit: usize) -> Result<Vec<Delivery>> {
        let query = Sql::new(SELECT).text("kind = ? AND due_at <= ? ORDER BY due_at, id LIMIT ?");
        let rows = all(&self.db.read, query.bind(kind).bind(now).bind(limit as u64)).await?;
        rows.iter().map(delivery).collect()
    }

    /// Deliveries of a kind that are due, the longest due first, without their bodies: an index has the answer, however large
    /// those are.
    pub async fn deliveries_waiting(&self, kind: &str, now: Timestamp, limit: usize) -> Result<Vec<DueDelivery>> {
        let query =
            Sql::new("SELECT id, host FROM deliveries WHERE kind = ? AND due_at <= ? ORDER BY due_at, id LIMIT ?");
        let rows = all(&self.db.read, query.bind(kind).bind(now).bind(limit as u64)).await?;
        rows.iter().map(|row| Ok(DueDelivery { id: row.text("id")?, host: row.text_if("host")? })).collect()
    }

    /// These deliveries, in no order; those that are gone are left out.
    pub async fn deliveries_fetch(&self, ids: &[String]) -> Result<Vec<Delivery>> {
        let rows = all(&self.db.read, Sql::new(SELECT).text("id").among(self.db.dialect, ids)).await?;
        rows.iter().map(delivery).collect()
    }

    /// Deliveries of a kind of which it is not noted where they go: an earlier version has put them there.
    pub async fn deliveries_without_host(&self, kind: &str, limit: usize) -> Result<Vec<Delivery>> {
        let query = Sql::new(SELECT).text("kind = ? AND host IS NULL ORDER BY due_at, id LIMIT ?");
        let rows = all(&self.db.read, query.bind(kind).bind(limit as u64)).await?;
        rows.iter().map(delivery).collect()
    }

    /// Notes where deliveries go, all or none of it.
    pub async fn deliveries_host_set(&self, hosts: &[(String, String)]) -> Result<()> {
        if hosts.is_empty() {
            return Ok(());
        }
        let rows = hosts.iter().map(|(id, host)| serde_json::json!([id, host]));
        let update = Sql::new("UPDATE deliveries SET host = t.host FROM ")
            .relation(self.db.dialect, &[Column::Text("item"), Column::Text("host")], rows)
            .text(" AS t WHERE deliveries.id = t.item");
        self.db.write.run(update).await.map(|_| ())
    }

    /// Puts what is left to do in the place of what was to be done: from here on it is that which is tried.
    pub async fn delivery_replace(&self, id: &str, body: &str, due_at: Timestamp) -> Result<()> {
        let update =
            Sql::new("UPDATE deliveries SET body = ?, attempts = 0, due_at = ? WHERE id = ?").bind(body).bind(due_at);
        self.db.write.run(update.bind(id)).await.map(|_| ())
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
pub(crate) async fn put<D: Borrow<NewDelivery>>(
    tx: &impl ConnectionTrait,
    deliveries: &[D],
    now: Timestamp,
) -> Result<()> {
    for deliveries in deliveries.chunks(INSERTED_AT_ONCE) {
        let mut insert =
            Sql::new("INSERT INTO deliveries (id, kind, body, host, due_at, created_at)").values(deliveries.len(), 6);
        for delivery in deliveries.iter().map(Borrow::borrow) {
            insert = insert
                .bind(delivery.id.as_str())
                .bind(delivery.kind)
                .bind(delivery.body.as_str())
                .bind(delivery.host.clone())
                .bind(now)
                .bind(now);
        }
        run(tx, insert.text(" ON CONFLICT DO NOTHING")).await?;
    }
    Ok(())
}

fn delivery(row: &Row) -> Result<Delivery> {
    Ok(Delivery {
        id: row.text("id")?,
        body: row.text("body")?,
        attempts: u32::try_from(row.count("attempts")?).unwrap_or(u32::MAX),
        created_at: row.time("created_at")?,
    })
}
