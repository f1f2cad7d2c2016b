//! Records from where users have signed in, so that a new address is noticed.

use isobar_model::ids::UserId;
use isobar_model::time::Timestamp;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Sql, one, run};

/// Bounds the addresses remembered of a user; beyond it, the one that was not seen for longest is forgotten.
pub const ADDRESSES_MAX: u32 = 100;

impl Registry {
    /// Records that a user has signed in from an address. Returns true if the user had signed in before, but never from
    /// there.
    ///
    /// # Errors
    /// [`StoreError::Gone`](crate::error::StoreError::Gone) where the user is gone.
    pub async fn sign_in_note(&self, user: UserId, address: &str, now: Timestamp) -> Result<bool> {
        let tx = self.db.begin().await?;
        let update = Sql::new("UPDATE sign_in_addresses SET last_seen = ? WHERE user_id = ? AND address = ?");
        let known = run(&tx, update.bind(now).bind(user).bind(address)).await? > 0;
        let mut others = false;
        if !known {
            let query = Sql::new("SELECT address FROM sign_in_addresses WHERE user_id = ? LIMIT 1").bind(user);
            others = one(&tx, query).await?.is_some();
            let insert = Sql::new(
                "INSERT INTO sign_in_addresses (user_id, address, last_seen) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            );
            run(&tx, insert.bind(user).bind(address).bind(now)).await.map_err(|error| error.of("user"))?;
            let forget = Sql::new(
                "DELETE FROM sign_in_addresses WHERE user_id = ? AND address NOT IN (SELECT address FROM \
                 sign_in_addresses WHERE user_id = ? ORDER BY last_seen DESC, address LIMIT ?)",
            );
            run(&tx, forget.bind(user).bind(user).bind(u64::from(ADDRESSES_MAX))).await?;
        }
        tx.commit().await?;
        Ok(others)
    }
}
