//! Stores nonces: the secrets in links of e-mails, each for one use (contract: Authentication). Only digests are
//! stored. A nonce authenticates its bearer, so its use needs no permit.

use isobar_model::access::CanWrite;
use isobar_model::ids::UserId;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;
use isobar_model::user_input::CredentialEnds;

use super::letters::{self, NewLetter};
use super::{credentials, sessions};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Connection, Sql, one, run};

/// Purpose of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Verifies that an e-mail address belongs to its user.
    Verify,
    /// Sets a new password.
    Reset,
}

impl Purpose {
    /// All purposes.
    pub(crate) const ALL: [Purpose; 2] = [Purpose::Verify, Purpose::Reset];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Purpose::Verify => "verify",
            Purpose::Reset => "reset",
        }
    }
}

impl Registry {
    /// Ends the user's open nonce of a purpose and queues the letter with a new one, both or neither.
    pub async fn nonce_ask(
        &self,
        permit: &CanWrite<UserId>,
        purpose: Purpose,
        letter: &NewLetter,
        now: Timestamp,
    ) -> Result<()> {
        let tx = self.db.begin().await?;
        end(&tx, *permit.target(), purpose).await?;
        letters::put(&tx, std::slice::from_ref(letter), now).await?;
        tx.commit().await
    }

    /// Stores a nonce; the user's earlier one of that purpose ends.
    ///
    /// # Errors
    /// [`StoreError::Gone`](crate::error::StoreError::Gone) where the user is gone.
    pub async fn nonce_put(
        &self,
        permit: &CanWrite<UserId>,
        purpose: Purpose,
        digest: &Digest,
        expires_at: Timestamp,
    ) -> Result<()> {
        let insert = Sql::new(
            "INSERT INTO nonces (digest, user_id, purpose, expires_at) VALUES (?, ?, ?, ?) \
             ON CONFLICT (user_id, purpose) DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at",
        )
        .bind(*digest)
        .bind(*permit.target())
        .bind(purpose.name())
        .bind(expires_at);
        self.db.write.run(insert).await.map(|_| ()).map_err(|error| error.of("user"))
    }

    /// Returns true if there is such a nonce, without using it.
    pub async fn nonce_is_open(&self, purpose: Purpose, digest: &Digest, now: Timestamp) -> Result<bool> {
        let query = Sql::new("SELECT user_id FROM nonces WHERE digest = ? AND purpose = ? AND expires_at > ?")
            .bind(*digest)
            .bind(purpose.name())
            .bind(now);
        Ok(one(&self.db.read, query).await?.is_some())
    }

    /// Uses a nonce to verify its user's e-mail address; returns `None` if there is no such nonce.
    pub async fn account_verify(&self, digest: &Digest, now: Timestamp) -> Result<Option<UserId>> {
        let tx = self.db.begin().await?;
        let Some(user) = take(&tx, Purpose::Verify, digest, now).await? else { return Ok(None) };
        let update = Sql::new("UPDATE users SET verified = 1, updated_at = ? WHERE id = ?").bind(now).bind(user);
        run(&tx, update).await?;
        tx.commit().await?;
        Ok(Some(user))
    }

    /// Uses a nonce to set its user's password, and ends all sessions of the user, and what else is to end;
    /// returns `None` if there is no such nonce. The nonce came by e-mail, so the address counts as verified too.
    pub async fn password_reset(
        &self,
        digest: &Digest,
        hash: &str,
        ends: CredentialEnds,
        now: Timestamp,
    ) -> Result<Option<UserId>> {
        let tx = self.db.begin().await?;
        let Some(user) = take(&tx, Purpose::Reset, digest, now).await? else { return Ok(None) };
        credentials::set_password(&tx, user, hash, now).await?;
        run(&tx, Sql::new("UPDATE users SET verified = 1 WHERE id = ?").bind(user)).await?;
        sessions::end(&tx, user, None).await?;
        credentials::end(&tx, user, ends).await?;
        tx.commit().await?;
        Ok(Some(user))
    }
}

/// Ends the user's open nonce of a purpose.
pub(crate) async fn end(tx: &impl Connection, user: UserId, purpose: Purpose) -> Result<()> {
    let delete = Sql::new("DELETE FROM nonces WHERE user_id = ? AND purpose = ?").bind(user).bind(purpose.name());
    run(tx, delete).await.map(|_| ())
}

/// Uses a nonce. Only one of two concurrent transactions deletes it.
async fn take(tx: &impl Connection, purpose: Purpose, digest: &Digest, now: Timestamp) -> Result<Option<UserId>> {
    let delete = Sql::new("DELETE FROM nonces WHERE digest = ? AND purpose = ? AND expires_at > ? RETURNING user_id")
        .bind(*digest)
        .bind(purpose.name())
        .bind(now);
    one(tx, delete).await?.map(|row| row.id("user_id")).transpose()
}
