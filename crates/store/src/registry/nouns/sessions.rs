//! Stores sessions, and the JWTs that were revoked before they expired.

use isobar_model::ids::{SessionId, UserId};
use isobar_model::secret::Digest;
use isobar_model::session::Session;
use isobar_model::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Row, Sql, all, one, run};

const SELECT_SESSIONS: &str = "SELECT id, user_id, refresh, created_at, expires_at FROM sessions WHERE ";

impl Registry {
    /// Stores a new session of a user, and ends the oldest sessions beyond `most`. Returns true if some ended.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the user is gone.
    pub async fn session_open(&self, session: &Session, most: u64) -> Result<bool> {
        let (tx, user) = (self.db.begin().await?, session.user);
        // The lock on the user keeps two sessions from taking the same last place.
        let hold = Sql::new("SELECT id FROM users WHERE id = ?").bind(user).text(self.db.dialect.hold_for_change());
        one(&tx, hold).await?.ok_or(StoreError::Gone("user"))?;
        // Identifiers increase, even after the clock was set back.
        let end = Sql::new(
            "DELETE FROM sessions WHERE user_id = ? AND id NOT IN \
             (SELECT id FROM sessions WHERE user_id = ? ORDER BY id DESC LIMIT ?)",
        );
        let ended = run(&tx, end.bind(user).bind(user).bind(most.saturating_sub(1))).await?;
        let insert =
            Sql::new("INSERT INTO sessions (id, user_id, refresh, created_at, expires_at) VALUES (?, ?, ?, ?, ?)")
                .bind(session.id)
                .bind(user)
                .bind(session.refresh)
                .bind(session.created_at)
                .bind(session.expires_at);
        run(&tx, insert).await?;
        tx.commit().await?;
        Ok(ended > 0)
    }

    /// Fetches a session.
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        let row = one(&self.db.read, Sql::new(SELECT_SESSIONS).text("id = ?").bind(id)).await?;
        row.as_ref().map(session).transpose()
    }

    /// Returns the sessions of these refresh tokens, unordered.
    pub async fn sessions_by_refresh(&self, refresh: &[Digest]) -> Result<Vec<Session>> {
        if refresh.is_empty() {
            return Ok(Vec::new());
        }
        let places = vec!["?"; refresh.len()].join(", ");
        let query = Sql::new(SELECT_SESSIONS).text("refresh IN (").text(&places).text(")");
        let query = refresh.iter().fold(query, |query, digest| query.bind(*digest));
        all(&self.db.read, query).await?.iter().map(session).collect()
    }

    /// Ends a session's refresh token; its JWTs stay valid until they expire or are revoked.
    pub async fn session_refresh_end(&self, id: SessionId) -> Result<()> {
        self.db.write.run(Sql::new("UPDATE sessions SET refresh = NULL WHERE id = ?").bind(id)).await.map(|_| ())
    }

    /// Ends a user's sessions, all but one.
    pub async fn sessions_end(&self, user: UserId, except: Option<SessionId>) -> Result<()> {
        self.db.write.run(ending(user, except)).await.map(|_| ())
    }

    /// Records that a JWT was revoked, until it would have expired.
    pub async fn jwt_revoke(&self, jti: &str, expires_at: Timestamp) -> Result<()> {
        let insert = Sql::new("INSERT INTO revoked_jwts (jti, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING");
        self.db.write.run(insert.bind(jti).bind(expires_at)).await.map(|_| ())
    }

    /// Lists the revoked JWTs that have not expired.
    pub async fn jwts_revoked(&self, now: Timestamp) -> Result<Vec<String>> {
        let query = Sql::new("SELECT jti FROM revoked_jwts WHERE expires_at > ? ORDER BY jti").bind(now);
        all(&self.db.read, query).await?.iter().map(|row| row.text("jti")).collect()
    }

    /// Removes expired sessions, revocations and nonces.
    pub async fn sessions_sweep(&self, now: Timestamp) -> Result<()> {
        for table in ["sessions", "revoked_jwts", "nonces"] {
            self.db.write.run(Sql::new(format!("DELETE FROM {table} WHERE expires_at <= ?")).bind(now)).await?;
        }
        Ok(())
    }
}

/// Ends a user's sessions, all but one.
pub(crate) async fn end(connection: &impl Connection, user: UserId, except: Option<SessionId>) -> Result<()> {
    run(connection, ending(user, except)).await.map(|_| ())
}

fn ending(user: UserId, except: Option<SessionId>) -> Sql {
    let delete = Sql::new("DELETE FROM sessions WHERE user_id = ?").bind(user);
    match except {
        Some(kept) => delete.text(" AND id <> ?").bind(kept),
        None => delete,
    }
}

fn session(row: &Row) -> Result<Session> {
    Ok(Session {
        id: row.id("id")?,
        user: row.id("user_id")?,
        refresh: row.digest_if("refresh")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
    })
}
