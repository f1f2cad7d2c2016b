//! Stores API keys, only by their digests.

use isobar_model::access::CanWrite;
use isobar_model::ids::{ApiKeyId, UserId};
use isobar_model::page::{Page, PageRequest};
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;
use isobar_model::user::ApiKey;

use super::users::{latest, role_if};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{API_KEYS, in_order, read_by_id, request_of};
use crate::registry::sql::{Row, Sql, one, run};

impl Registry {
    /// Stores a new key of the permit's user; returns false if the user has `most` keys already.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the user is gone.
    pub async fn api_key_create(
        &self,
        permit: &CanWrite<UserId>,
        key: &ApiKey,
        digest: &Digest,
        most: u64,
    ) -> Result<bool> {
        let (tx, user) = (self.db.begin().await?, *permit.target());
        // The lock on the user keeps two keys from taking the same last place.
        let hold = Sql::new("SELECT id FROM users WHERE id = ?").bind(user).text(self.db.dialect.hold_for_change());
        one(&tx, hold).await?.ok_or(StoreError::Gone("user"))?;
        let count = Sql::new("SELECT count(*) AS keys FROM api_keys WHERE user_id = ?").bind(user);
        let has = one(&tx, count).await?.map_or(Ok(0), |row| row.count("keys"))?;
        if has >= most {
            return Ok(false);
        }
        let insert = Sql::new(
            "INSERT INTO api_keys (id, user_id, name, digest, created_at, role, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(key.id)
        .bind(user)
        .bind(key.name.as_str())
        .bind(*digest)
        .bind(key.created_at)
        .bind(key.role.map(|role| role as i64))
        .bind(key.expires_at);
        run(&tx, insert).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Lists a user's keys, oldest first.
    pub async fn api_key_list(&self, permit: &CanWrite<UserId>, page: PageRequest) -> Result<Page<ApiKey>> {
        let tx = self.db.snapshot().await?;
        let condition = Sql::new("k.user_id = ?").bind(*permit.target());
        let (ids, total) = API_KEYS.page::<ApiKeyId>(&tx, condition, &request_of(page)).await?;
        let select = "SELECT id, user_id, name, created_at, role, expires_at, last_used_at FROM api_keys WHERE id";
        let keys = read_by_id(&tx, select, &ids, api_key).await?;
        Ok(Page::new(in_order(&ids, keys, |key| key.id), total, page))
    }

    /// Removes one of a user's keys; returns false if the user has no such key.
    pub async fn api_key_delete(&self, permit: &CanWrite<UserId>, id: ApiKeyId) -> Result<bool> {
        let delete = Sql::new("DELETE FROM api_keys WHERE id = ? AND user_id = ?").bind(id).bind(*permit.target());
        Ok(self.db.write.run(delete).await? > 0)
    }

    /// Records when keys were last used. A moment never moves backwards.
    pub async fn api_keys_touch(&self, touched: &[(ApiKeyId, Timestamp)]) -> Result<()> {
        if touched.is_empty() {
            return Ok(());
        }
        let update = Sql::new("UPDATE api_keys SET last_used_at = t.moment FROM ")
            .moments(self.db.dialect, latest(touched).map(|(id, at)| (id.to_string().into(), at)))
            .text(" AS t WHERE api_keys.id = t.item AND coalesce(api_keys.last_used_at, 0) < t.moment");
        self.db.write.run(update).await.map(|_| ())
    }
}

fn api_key(row: &Row) -> Result<ApiKey> {
    Ok(ApiKey {
        id: row.id("id")?,
        user: row.id("user_id")?,
        name: row.text("name")?,
        created_at: row.time("created_at")?,
        role: role_if(row, "role")?,
        expires_at: row.time_if("expires_at")?,
        last_used_at: row.time_if("last_used_at")?,
    })
}
