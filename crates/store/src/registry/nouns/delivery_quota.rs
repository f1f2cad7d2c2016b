//! Limits how many deliveries of one source may be pending.

use std::collections::HashMap;

use isobar_model::time::Timestamp;
use serde_json::json;

use super::deliveries::{NewDelivery, put};
use crate::error::Result;
use crate::registry::sql::{Column, Connection, Dialect, Sql, all};

/// Delivery whose source is limited.
#[derive(Clone, Debug)]
pub struct LimitedDelivery {
    /// Delivery to be queued.
    pub delivery: NewDelivery,
    /// Source: prefix of the identifiers of all its deliveries.
    pub source: String,
    /// Bounds the pending deliveries of the source.
    pub most: usize,
}

/// Queues deliveries, as far as their sources have room. Returns the indexes of those left out: the last ones of a
/// source.
pub(crate) async fn put_within(tx: &impl Connection, asked: &[LimitedDelivery], now: Timestamp) -> Result<Vec<usize>> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let mut left = places_left(tx, asked).await?;
    let (mut admitted, mut left_out) = (Vec::with_capacity(asked.len()), Vec::new());
    for (index, LimitedDelivery { delivery, source, .. }) in asked.iter().enumerate() {
        match left.get_mut(source.as_str()).filter(|left| **left > 0) {
            Some(left) => {
                *left -= 1;
                admitted.push(delivery);
            }
            None => left_out.push(index),
        }
    }
    put(tx, &admitted, now).await?;
    Ok(left_out)
}

/// Returns how many more deliveries of each source may be queued.
async fn places_left<'a>(tx: &impl Connection, asked: &'a [LimitedDelivery]) -> Result<HashMap<&'a str, usize>> {
    let mut left: HashMap<_, _> = asked.iter().map(|asked| (asked.source.as_str(), asked.most)).collect();
    // No identifier has a character beyond this one.
    let sources = left.keys().map(|source| json!([source, format!("{source}\u{10ffff}")]));
    let count = Sql::new(
        "SELECT t.source, (SELECT count(*) FROM deliveries d WHERE d.id >= t.source AND d.id < t.beyond) AS count FROM ",
    )
    .relation(Dialect::of(tx), &[Column::Text("source"), Column::Text("beyond")], sources)
    .text(" AS t");
    for row in all(tx, count).await? {
        let waiting = usize::try_from(row.count("count")?).unwrap_or(usize::MAX);
        if let Some(left) = left.get_mut(row.text("source")?.as_str()) {
            *left = left.saturating_sub(waiting);
        }
    }
    Ok(left)
}
