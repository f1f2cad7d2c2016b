//! Finds the caller of a token, a key or a name. It needs no permit, because permits are made from its answers.

use isobar_model::access::{CanWrite, Lineage};
use isobar_model::ids::{ApiKeyId, DeviceId, UserId};
use isobar_model::role::Role;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;
use isobar_model::user_input::CredentialEnds;

use super::nonces::{self, Purpose};
use super::sessions;
use super::users::{role, role_if};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::folded;
use crate::registry::sql::{Connection, Sql, one, run, thirty_two};

/// Account from which a caller is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Identifier of the user.
    pub user: UserId,
    /// Role of the user.
    pub role: Role,
    /// Lineage of the user's organization.
    pub lineage: Lineage,
    /// True if every credential of the user is refused.
    pub disabled: bool,
    /// True if the e-mail address was verified.
    pub verified: bool,
}

/// API key that a call is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Identifier of the key.
    pub id: ApiKeyId,
    /// Owner of the key.
    pub user: UserId,
    /// Highest role that the key gives, or `None`: the role of its user.
    pub role: Option<Role>,
    /// Moment from which the key is refused, or `None`: it never expires.
    pub expires_at: Option<Timestamp>,
}

/// Account that a login is checked against.
#[derive(Clone)]
pub struct LoginRecord {
    /// Identifier of the user.
    pub user: UserId,
    /// Hash of the password, or `None`: the user cannot log in by password yet.
    pub password_hash: Option<String>,
    /// True if every credential of the user is refused.
    pub disabled: bool,
    /// True if the e-mail address was verified.
    pub verified: bool,
}

impl std::fmt::Debug for LoginRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRecord").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Registry {
    /// Finds the device with this token.
    pub async fn device_by_token(&self, token: &Digest) -> Result<Option<DeviceId>> {
        let row = one(&self.db.read, Sql::new("SELECT id FROM devices WHERE token = ?").bind(*token)).await?;
        row.map(|row| row.id("id")).transpose()
    }

    /// Finds the API key with this digest, even if it has expired.
    pub async fn api_key_by_digest(&self, key: &Digest) -> Result<Option<KeyRecord>> {
        let query = Sql::new("SELECT id, user_id, role, expires_at FROM api_keys WHERE digest = ?").bind(*key);
        let Some(row) = one(&self.db.read, query).await? else { return Ok(None) };
        Ok(Some(KeyRecord {
            id: row.id("id")?,
            user: row.id("user_id")?,
            role: role_if(&row, "role")?,
            expires_at: row.time_if("expires_at")?,
        }))
    }

    /// Fetches the account of a user.
    pub async fn account(&self, id: UserId) -> Result<Option<Account>> {
        let query = Sql::new(
            "SELECT u.id, u.role, u.disabled, u.verified, o.lineage \
             FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.id = ?",
        );
        let Some(row) = one(&self.db.read, query.bind(id)).await? else { return Ok(None) };
        Ok(Some(Account {
            user: row.id("id")?,
            role: role(&row)?,
            lineage: row.lineage("lineage")?,
            disabled: row.truth("disabled")?,
            verified: row.truth("verified")?,
        }))
    }

    /// Finds the user with this username or e-mail address, regardless of case.
    pub async fn login_by_name(&self, name: &str) -> Result<Option<LoginRecord>> {
        let query = Sql::new(
            "SELECT u.id, u.password_hash, u.disabled, u.verified \
             FROM login_names n JOIN users u ON u.id = n.user_id WHERE n.name = ?",
        );
        let Some(row) = one(&self.db.read, query.bind(folded(name))).await? else { return Ok(None) };
        Ok(Some(LoginRecord {
            user: row.id("id")?,
            password_hash: row.text_if("password_hash")?,
            disabled: row.truth("disabled")?,
            verified: row.truth("verified")?,
        }))
    }

    /// Gives a user a new password and ends all its sessions.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where there is no such user.
    pub async fn password_set(&self, permit: &CanWrite<UserId>, hash: &str, now: Timestamp) -> Result<()> {
        let tx = self.db.begin().await?;
        set_password(&tx, *permit.target(), hash, now).await?;
        sessions::end(&tx, *permit.target(), None).await?;
        tx.commit().await
    }

    /// Returns the key that signs JWTs: `proposed` the first time, and the same ever after.
    pub async fn signing_key(&self, proposed: [u8; 32]) -> Result<[u8; 32]> {
        let insert = Sql::new("INSERT INTO secrets (name, secret) VALUES ('jwt', ?) ON CONFLICT DO NOTHING");
        self.db.write.run(insert.bind(proposed.to_vec())).await?;
        let row = one(&self.db.read, Sql::new("SELECT secret FROM secrets WHERE name = 'jwt'")).await?;
        let row = row.ok_or_else(|| StoreError::Damaged("the signing key is gone".to_owned()))?;
        thirty_two("secret", row.bytes("secret")?)
    }
}

/// Ends API keys and links of dashboards that a user made, as far as the user wants it.
pub(crate) async fn end(tx: &impl Connection, user: UserId, ends: CredentialEnds) -> Result<()> {
    if ends.api_keys {
        run(tx, Sql::new("DELETE FROM api_keys WHERE user_id = ?").bind(user)).await?;
    }
    if ends.links {
        run(tx, Sql::new("DELETE FROM dashboard_links WHERE user_id = ?").bind(user)).await?;
    }
    Ok(())
}

/// Sets a user's password. The nonce of a pending reset link ends.
pub(crate) async fn set_password(tx: &impl Connection, user: UserId, hash: &str, now: Timestamp) -> Result<()> {
    let update = Sql::new("UPDATE users SET password_hash = ?, updated_at = ? WHERE id = ?");
    match run(tx, update.bind(hash).bind(now).bind(user)).await? {
        0 => Err(StoreError::Gone("user")),
        _ => nonces::end(tx, user, Purpose::Reset).await,
    }
}
