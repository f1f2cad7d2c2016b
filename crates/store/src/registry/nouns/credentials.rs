//! Credentials: what turns a token, a key or a name into a caller. They need no permit, because permits are made from
//! what they answer.

use isobar_model::access::{CanWrite, Lineage};
use isobar_model::ids::{ApiKeyId, DeviceId, UserId};
use isobar_model::role::Role;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;

use super::nonces::{self, Purpose};
use super::sessions;
use super::users::{role, role_if};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::folded;
use crate::registry::sql::{Connection, Sql, one, run, thirty_two};

/// What a caller is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Who.
    pub user: UserId,
    /// With which role.
    pub role: Role,
    /// Where it belongs.
    pub lineage: Lineage,
    /// Refused with every credential it holds.
    pub disabled: bool,
    /// Whether its e-mail address was verified.
    pub verified: bool,
}

/// What a call with an API key is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key.
    pub id: ApiKeyId,
    /// Whose it is.
    pub user: UserId,
    /// The highest role that it gives; none: that of its user.
    pub role: Option<Role>,
    /// When it is refused from; none: it has no end.
    pub expires_at: Option<Timestamp>,
}

/// What a login is checked against.
#[derive(Clone)]
pub struct LoginRecord {
    /// Who.
    pub user: UserId,
    /// The hash of its password; none: it cannot log in by password yet.
    pub password_hash: Option<String>,
    /// Refused with every credential it holds.
    pub disabled: bool,
    /// Whether its e-mail address was verified.
    pub verified: bool,
}

impl std::fmt::Debug for LoginRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRecord").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Registry {
    /// The device that has this token.
    pub async fn device_by_token(&self, token: &Digest) -> Result<Option<DeviceId>> {
        let row = one(&self.db.read, Sql::new("SELECT id FROM devices WHERE token = ?").bind(*token)).await?;
        row.map(|row| row.id("id")).transpose()
    }

    /// The API key of this digest, also one that has ended.
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

    /// What a caller is made from.
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

    /// The user of this username or e-mail address, without regard to case.
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

    /// The key that jwts are signed with: `proposed` the first time, and the same ever after.
    pub async fn signing_key(&self, proposed: [u8; 32]) -> Result<[u8; 32]> {
        let insert = Sql::new("INSERT INTO secrets (name, secret) VALUES ('jwt', ?) ON CONFLICT DO NOTHING");
        self.db.write.run(insert.bind(proposed.to_vec())).await?;
        let row = one(&self.db.read, Sql::new("SELECT secret FROM secrets WHERE name = 'jwt'")).await?;
        let row = row.ok_or_else(|| StoreError::Damaged("the signing key is gone".to_owned()))?;
        thirty_two("secret", row.bytes("secret")?)
    }
}

/// Gives a user a new password. The nonce of a link that would set another ends.
pub(crate) async fn set_password(tx: &impl Connection, user: UserId, hash: &str, now: Timestamp) -> Result<()> {
    let update = Sql::new("UPDATE users SET password_hash = ?, updated_at = ? WHERE id = ?");
    match run(tx, update.bind(hash).bind(now).bind(user)).await? {
        0 => Err(StoreError::Gone("user")),
        _ => nonces::end(tx, user, Purpose::Reset).await,
    }
}
