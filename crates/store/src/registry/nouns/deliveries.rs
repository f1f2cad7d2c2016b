//! Stores deliveries: outgoing e-mails and calls, until they have been sent. They contain no tenant's rows, and so need
//! no permit.

use std::borrow::Borrow;

use isobar_model::time::Timestamp;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Column, Connection, Row, Sql, all, one, run};

/// Deliveries that one statement adds.
const DELIVERIES_INSERTED_AT_ONCE: usize = 100;
const SELECT_DELIVERIES: &str = "SELECT id, body, attempts, created_at FROM deliveries WHERE ";

/// Kind of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryKind {
    /// E-mail with a link.
    Link,
    /// E-mail about a notice.
    Mail,
    /// Notice of a device, which becomes notifications and e-mails.
    Notice,
    /// HTTP call of a design.
    Call,
}

impl DeliveryKind {
    /// Returns the name in the registry and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Mail => "mail",
            Self::Notice => "notice",
            Self::Call => "call",
        }
    }
}

/// Delivery to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// Identifier: storing the same one again changes nothing.
    pub id: String,
    /// Kind, which decides the worker that executes it.
    pub kind: DeliveryKind,
    /// Content, in JSON.
    pub body: String,
    /// Destination (column `destination`), for kinds that queue separately for each destination.
    pub destination: Option<String>,
}

/// Destination whose deliveries queue behind each other: a tenant's host for calls, a tenant for all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Name of the destination.
    pub name: String,
    /// Moment at which its first delivery is due.
    pub due_at: Timestamp,
}

/// Delivery in the queue.
#[derive(Clone, PartialEq, Eq)]
pub struct QueuedDelivery {
    /// Identifier.
    pub id: String,
    /// Content, in JSON.
    pub body: String,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Moment at which it was queued.
    pub created_at: Timestamp,
}

// Bodies may contain secrets, so no log shows them.
impl std::fmt::Debug for NewDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewDelivery").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for QueuedDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuedDelivery").field("id", &self.id).field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

impl Registry {
    /// Queues deliveries, all or none, due at once.
    pub async fn deliveries_put(&self, deliveries: &[NewDelivery], now: Timestamp) -> Result<()> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let tx = self.db.begin().await?;
        put(&tx, deliveries, now).await?;
        tx.commit().await
    }

    /// Lists the next destinations of a kind, in order, from this name on. Reads an index only.
    pub async fn delivery_destinations(
        &self,
        kind: DeliveryKind,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Destination>> {
        // Skip through the index from destination to destination, not from row to row.
        let query = Sql::new(
            "WITH RECURSIVE known (destination) AS (SELECT min(destination) FROM deliveries WHERE kind = ? AND destination >= ? \
             UNION ALL SELECT (SELECT min(d.destination) FROM deliveries d WHERE d.kind = ? AND d.destination > known.destination) \
             FROM known WHERE known.destination IS NOT NULL) \
             SELECT destination, \
             (SELECT min(due_at) FROM deliveries d WHERE d.kind = ? AND d.destination = known.destination) AS due_at \
             FROM known WHERE destination IS NOT NULL LIMIT ?",
        );
        let query = query.bind(kind.name()).bind(from).bind(kind.name()).bind(kind.name()).bind(limit as u64);
        let rows = all(&self.db.read, query).await?;
        rows.iter().map(|row| Ok(Destination { name: row.text("destination")?, due_at: row.time("due_at")? })).collect()
    }

    /// Lists due deliveries of a destination that no process works on, longest due first.
    pub async fn deliveries_to(
        &self,
        kind: DeliveryKind,
        destination: &str,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>> {
        let rows = Sql::new(SELECT_DELIVERIES)
            .text("kind = ? AND destination = ? AND due_at <= ? AND claimed_until <= ? ORDER BY due_at, id LIMIT ?");
        let rows = rows.bind(kind.name()).bind(destination).bind(now).bind(now).bind(limit as u64);
        let rows = all(&self.db.read, rows).await?;
        rows.iter().map(delivery).collect()
    }

    /// Lists deliveries of a kind without a destination, which an earlier version has stored.
    pub async fn deliveries_without_destination(
        &self,
        kind: DeliveryKind,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>> {
        let query = Sql::new(SELECT_DELIVERIES).text("kind = ? AND destination IS NULL ORDER BY due_at, id LIMIT ?");
        let rows = all(&self.db.read, query.bind(kind.name()).bind(limit as u64)).await?;
        rows.iter().map(delivery).collect()
    }

    /// Sets the destinations of deliveries, by their identifiers, all or none.
    pub async fn delivery_destinations_set(&self, destinations: &[(String, String)]) -> Result<()> {
        if destinations.is_empty() {
            return Ok(());
        }
        let rows = destinations.iter().map(|(id, destination)| serde_json::json!([id, destination]));
        let update = Sql::new("UPDATE deliveries SET destination = t.destination FROM ")
            .relation(self.db.dialect, &[Column::Text("item"), Column::Text("destination")], rows)
            .text(" AS t WHERE deliveries.id = t.item");
        self.db.write.run(update).await.map(|_| ())
    }

    /// Replaces the content of a delivery by its remaining part, and resets its attempts.
    pub async fn delivery_replace(&self, id: &str, body: &str, due_at: Timestamp) -> Result<()> {
        let update =
            Sql::new("UPDATE deliveries SET body = ?, attempts = 0, due_at = ?, claimed_until = 0 WHERE id = ?");
        self.db.write.run(update.bind(body).bind(due_at).bind(id)).await.map(|_| ())
    }

    /// Returns when the next delivery of a kind is due, or `None` if the queue is empty.
    pub async fn deliveries_next(&self, kind: DeliveryKind) -> Result<Option<Timestamp>> {
        let query = Sql::new("SELECT min(due_at) AS due_at FROM deliveries WHERE kind = ?").bind(kind.name());
        Ok(one(&self.db.read, query).await?.map(|row| row.time_if("due_at")).transpose()?.flatten())
    }

    /// Removes a delivery that was sent, or never will be.
    pub async fn delivery_done(&self, id: &str) -> Result<()> {
        self.db.write.run(Sql::new("DELETE FROM deliveries WHERE id = ?").bind(id)).await.map(|_| ())
    }

    /// Records how often a delivery has failed, and when it is due again.
    pub async fn delivery_failed(&self, id: &str, attempts: u32, due_at: Timestamp) -> Result<()> {
        let update = Sql::new("UPDATE deliveries SET attempts = ?, due_at = ?, claimed_until = 0 WHERE id = ?")
            .bind(u64::from(attempts))
            .bind(due_at)
            .bind(id);
        self.db.write.run(update).await.map(|_| ())
    }
}

/// Queues deliveries in a transaction, due at once.
pub(crate) async fn put<D: Borrow<NewDelivery>>(tx: &impl Connection, deliveries: &[D], now: Timestamp) -> Result<()> {
    put_due(tx, deliveries.iter().map(|delivery| (delivery.borrow(), now)), now).await
}

/// Queues deliveries in a transaction, each with the moment at which it is due.
pub(crate) async fn put_due<'a>(
    tx: &impl Connection,
    deliveries: impl Iterator<Item = (&'a NewDelivery, Timestamp)>,
    now: Timestamp,
) -> Result<()> {
    let deliveries: Vec<_> = deliveries.collect();
    for deliveries in deliveries.chunks(DELIVERIES_INSERTED_AT_ONCE) {
        let mut insert = Sql::new("INSERT INTO deliveries (id, kind, body, destination, due_at, created_at)")
            .values(deliveries.len(), 6);
        for (delivery, due_at) in deliveries {
            insert = insert
                .bind(delivery.id.as_str())
                .bind(delivery.kind.name())
                .bind(delivery.body.as_str())
                .bind(delivery.destination.clone())
                .bind(*due_at)
                .bind(now);
        }
        run(tx, insert.text(" ON CONFLICT DO NOTHING")).await?;
    }
    Ok(())
}

fn delivery(row: &Row) -> Result<QueuedDelivery> {
    Ok(QueuedDelivery {
        id: row.text("id")?,
        body: row.text("body")?,
        attempts: u32::try_from(row.count("attempts")?).unwrap_or(u32::MAX),
        created_at: row.time("created_at")?,
    })
}
