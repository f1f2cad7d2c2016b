//! Opens, refreshes and ends sessions: login, refresh, logout (specification: Auth).

use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::ids::{SessionId, UserId};
use isobar_model::secret::{Digest, Secret};
use isobar_model::session::{REFRESH_SECONDS, Session};
use isobar_model::time::Timestamp;
use isobar_model::user::Login;
use isobar_store::registry::LoginRecord;

use super::Identity;
use super::authentication::{Credential, Credentials, UserCredential};
use super::hash_queue::HashedFor;
use super::tokens::Claims;

/// Sessions of one user, at most; one more ends the oldest.
const SESSIONS_MAX: u64 = 100;

/// The tokens that a login or a refresh returns.
#[derive(Debug)]
pub struct Tokens {
    /// The access token.
    pub jwt: String,
    /// The end of the access token.
    pub jwt_expiry: Timestamp,
    /// On login, the refresh token and its end.
    pub refresh: Option<(Secret, Timestamp)>,
}

impl Identity {
    /// Logs a user in by username or e-mail address. An unknown account and a wrong password get the same answer.
    pub(crate) async fn session_login(&self, login: Login, address: IpAddr) -> Result<Tokens> {
        let now = self.env.now();
        self.attempts.check(&login.name, address, now).await?;
        let record = self.env.registry().login_by_name(&login.name).await?;
        let hash = record.as_ref().and_then(|record| record.password_hash.clone());
        let right = self.passwords.verify(login.password, hash, HashedFor::address(address)).await?;
        // Other attempts may have failed while this one waited for a slot: many concurrent guesses are limited too.
        let account = record.as_ref().map(|record| record.user);
        let is_closed = self.attempts.check_both(&login.name, account, address, self.env.now()).await?;
        let is_usable =
            |record: &LoginRecord| !record.disabled && (record.verified || !self.env.config().require_verified_email);
        let Some(record) = record.filter(|record| right && !is_closed && is_usable(record)) else {
            self.attempts.failed(&login.name, account, address, now).await?;
            return Err(Error::Unauthenticated);
        };
        let tokens = self.open_session(record.user, now).await?;
        self.note_sign_in(record.user, address).await;
        Ok(tokens)
    }

    async fn open_session(&self, user: UserId, now: Timestamp) -> Result<Tokens> {
        let refresh = Secret::new(self.env.chance());
        let session = Session {
            id: SessionId(self.env.new_id().0),
            user,
            refresh: Some(refresh.digest()),
            created_at: now,
            expires_at: now.plus_seconds(REFRESH_SECONDS),
        };
        if self.env.registry().session_open(&session, SESSIONS_MAX).await? {
            self.caches.account_changed(user);
        }
        let (jwt, jwt_expiry) = self.tokens.issue(user, session.id, self.env.new_id(), now)?;
        Ok(Tokens { jwt, jwt_expiry, refresh: Some((refresh, session.expires_at)) })
    }

    /// Issues a new access token for a refresh token, whose own end does not change.
    pub(crate) async fn session_refresh(&self, credentials: &Credentials<'_>) -> Result<Tokens> {
        let session = self.sessions_of(credentials).await?.into_iter().next().ok_or(Error::Unauthenticated)?;
        let (jwt, jwt_expiry) = self.tokens.issue(session.user, session.id, self.env.new_id(), self.env.now())?;
        Ok(Tokens { jwt, jwt_expiry, refresh: None })
    }

    /// Checks that a refresh token is valid now.
    pub(crate) async fn allow_refresh(&self, credentials: &Credentials<'_>) -> Result<()> {
        if self.sessions_of(credentials).await?.is_empty() { Err(Error::Unauthenticated) } else { Ok(()) }
    }

    /// Checks that a logout would end something.
    pub(crate) async fn allow_logout(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.leaving(credentials).await.map(|_| ())
    }

    /// Returns the sessions of the refresh cookies that are valid now, in the order of the cookies.
    async fn sessions_of(&self, credentials: &Credentials<'_>) -> Result<Vec<Session>> {
        let digests: Vec<_> = credentials.refresh_cookies.iter().map(|cookie| Digest::of(cookie)).collect();
        let mut found = self.env.registry().sessions_by_refresh(&digests).await?;
        found.sort_by_key(|session| digests.iter().position(|digest| session.refresh == Some(*digest)));
        let (mut good, now) = (Vec::with_capacity(found.len()), self.env.now());
        for session in found {
            let account = self.caches.account_entry(session.user).await?;
            if now < session.expires_at && account.is_some_and(|account| !account.disabled) {
                good.push(session);
            }
        }
        Ok(good)
    }

    /// Revokes the tokens of the call: the JWT at once, the refresh token for good.
    pub(crate) async fn session_logout(&self, credentials: &Credentials<'_>) -> Result<()> {
        let now = self.env.now();
        let (jwt, sessions) = self.leaving(credentials).await?;
        if let Some(claims) = jwt {
            let ends = Timestamp::from_millis(claims.exp * 1000);
            self.env.registry().jwt_revoke(&claims.jti.to_string(), ends).await?;
            self.tokens.revoke(&claims, now);
        }
        for session in sessions {
            self.env.registry().session_refresh_end(session.id).await?;
        }
        Ok(())
    }

    /// Returns the tokens that a logout ends. One invalid JWT fails the call; an expired refresh token is ignored.
    async fn leaving(&self, credentials: &Credentials<'_>) -> Result<(Option<Claims>, Vec<Session>)> {
        let jwt = match credentials.first() {
            Credential::Jwt(jwt) => {
                let claims = self.tokens.read(jwt)?;
                self.bearer(&UserCredential::Jwt(claims.clone())).await?;
                Some(claims)
            }
            Credential::None => None,
            Credential::DeviceToken(_) | Credential::ApiKey(_) | Credential::Link(_) | Credential::Unknown => {
                return Err(Error::Unauthenticated);
            }
        };
        let sessions = self.sessions_of(credentials).await?;
        if jwt.is_none() && sessions.is_empty() {
            return Err(Error::Unauthenticated);
        }
        Ok((jwt, sessions))
    }
}
