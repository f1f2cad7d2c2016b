//! Authenticates calls: finds the user or device that the credentials belong to, and checks if they are still valid.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isobar_model::access::{self, Caller, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{ApiKeyId, DeviceRef, OrganizationId};
use isobar_model::secret::Digest;

use super::Identity;
use super::board_links::LinkSession;
use super::tokens::Claims;
use crate::cache::entries::DeviceEntry;

/// The credentials of a call, as they are in its headers.
#[derive(Clone, Debug, Default)]
pub struct Credentials<'a> {
    /// Header `cloud`: a device token.
    pub cloud: Option<&'a [u8]>,
    /// Header `authorization`: `Bearer <jwt>`, `Wall <link>`, or an API key: without a scheme, as `Bearer <key>`, or as the
    /// password of `Basic`.
    pub authorization: Option<&'a [u8]>,
    /// Header `api_auth_token`: an API key.
    pub api_auth_token: Option<&'a [u8]>,
    /// Cookies `refreshToken`, in order: an outdated one, or one of another path, may precede the valid one.
    pub refresh_cookies: Vec<&'a [u8]>,
}

/// The credentials that an operation accepts (specification: Authentication; contract: Authentication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// No credentials are needed, and any that are sent are ignored.
    Nobody,
    /// jwt, apiKey and apiKeyAlt.
    User,
    /// Credentials of a user, or a device token for its own device.
    UserOrDevice,
    /// apiKey and apiKeyAlt.
    ApiKey,
    /// A link of a dashboard.
    Link,
}

/// The authenticated caller.
#[derive(Clone)]
pub enum Principal {
    /// An anonymous caller.
    Nobody,
    /// A user.
    User(Arc<Caller>),
    /// A device with its token.
    Device(DeviceSession),
    /// A screen with the link of a dashboard.
    Link(Arc<LinkSession>),
}

/// A device authenticated by its token.
#[derive(Clone)]
pub struct DeviceSession(pub(crate) Arc<DeviceEntry>);

impl DeviceSession {
    /// Returns the device.
    pub fn device(&self) -> DeviceRef {
        self.0.device
    }

    /// Returns the device's permit to read and write its own data.
    pub(crate) fn permit(&self) -> (CanWrite<DeviceRef>, Arc<DeviceEntry>) {
        (access::device(self.0.device).charged_to(&self.0.lineage), Arc::clone(&self.0))
    }
}

impl Principal {
    /// Returns the user, for operations that only users may call.
    pub fn user(&self) -> Result<&Caller> {
        match self {
            Principal::User(caller) => Ok(caller),
            Principal::Nobody | Principal::Device(_) | Principal::Link(_) => Err(Error::Unauthenticated),
        }
    }

    /// Returns the link, for operations that only links may call.
    pub fn link(&self) -> Result<&LinkSession> {
        match self {
            Principal::Link(session) => Ok(session),
            Principal::Nobody | Principal::User(_) | Principal::Device(_) => Err(Error::Unauthenticated),
        }
    }

    /// Returns the caller's tenant, the organization at the top of its tree; `None` for an anonymous caller.
    pub fn tenant(&self) -> Option<OrganizationId> {
        match self {
            Principal::Nobody => None,
            Principal::User(caller) => Some(caller.lineage.top()),
            Principal::Device(session) => Some(session.0.lineage.top()),
            Principal::Link(session) => Some(session.maker.lineage.top()),
        }
    }
}

/// The credential that decides, in the order of precedence.
pub(crate) enum Credential<'a> {
    DeviceToken(&'a [u8]),
    Jwt(&'a str),
    ApiKey(Cow<'a, [u8]>),
    Link(&'a [u8]),
    Unknown,
    None,
}

impl<'a> Credentials<'a> {
    /// Returns the first credential that is present, which decides (contract: Authentication).
    pub(crate) fn first(&self) -> Credential<'a> {
        if let Some(token) = self.cloud {
            return Credential::DeviceToken(token);
        }
        let scheme = self.authorization.map(|value| match value.iter().position(|byte| *byte == b' ') {
            Some(at) => (&value[..at], value[at + 1..].trim_ascii()),
            None => (&[][..], value),
        });
        match (scheme, self.api_auth_token) {
            (Some((name, token)), _) if name.eq_ignore_ascii_case(b"bearer") => bearer_credential(token),
            (Some((name, link)), _) if name.eq_ignore_ascii_case(b"wall") => Credential::Link(link),
            (_, Some(key)) | (Some((b"", key)), None) => Credential::ApiKey(key.into()),
            (Some((name, pair)), None) if name.eq_ignore_ascii_case(b"basic") => {
                basic_password(pair).map_or(Credential::Unknown, |key| Credential::ApiKey(key.into()))
            }
            (Some(_), None) => Credential::Unknown,
            (None, None) => Credential::None,
        }
    }
}

/// Returns a JWT, which has dots between its parts, or else an API key, which has none.
fn bearer_credential(token: &[u8]) -> Credential<'_> {
    match std::str::from_utf8(token) {
        Ok(jwt) if jwt.contains('.') => Credential::Jwt(jwt),
        _ => Credential::ApiKey(token.into()),
    }
}

/// Returns the password of a Basic credential (RFC 7617), with any user name. `None` if it is no such credential.
fn basic_password(pair: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = STANDARD.decode(pair).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded.split_off(colon + 1))
}

/// The credential of an authenticated user, stored to be checked again during a long call.
#[derive(Clone)]
pub(crate) enum UserCredential {
    Jwt(Claims),
    ApiKey(Digest),
}

/// The credential of an authenticated user or device, stored to be checked again during a long call.
#[derive(Clone)]
pub(crate) enum HeldCredential {
    Device(Digest),
    User(UserCredential),
}

impl Identity {
    /// Finds the caller. A credential that the operation does not accept counts as none.
    ///
    /// # Errors
    /// Returns [`Error::Unauthenticated`] if there is no valid credential of a kind that `accepts` names, and [`Error::Busy`] on
    /// a node whose clock is wrong: nothing that it would do is without a moment.
    pub(crate) async fn authenticate(&self, credentials: &Credentials<'_>, accepts: Accepts) -> Result<Principal> {
        self.env.must_have_clock()?;
        let (devices, jwts) = match accepts {
            Accepts::Nobody => return Ok(Principal::Nobody),
            Accepts::User => (false, true),
            Accepts::UserOrDevice => (true, true),
            Accepts::ApiKey => (false, false),
            Accepts::Link => return self.link_session(credentials).await.map(Principal::Link),
        };
        match credentials.first() {
            Credential::DeviceToken(token) if devices => {
                Ok(Principal::Device(DeviceSession(self.caches.device_by_token(&Digest::of(token)).await?)))
            }
            Credential::Jwt(_) if !jwts => Err(Error::Unauthenticated),
            _ => {
                let (caller, key) = self.bearer(&self.user_credential(credentials)?).await?;
                let now = self.env.now();
                self.activity.user(caller.user, now);
                if let Some(key) = key {
                    self.activity.api_key(key, now);
                }
                Ok(Principal::User(caller))
            }
        }
    }

    /// Returns the credential of a user; a device token is refused.
    pub(crate) fn user_credential(&self, credentials: &Credentials<'_>) -> Result<UserCredential> {
        match credentials.first() {
            Credential::Jwt(jwt) => Ok(UserCredential::Jwt(self.tokens.read(jwt)?)),
            Credential::ApiKey(key) => Ok(UserCredential::ApiKey(Digest::of(&key))),
            Credential::DeviceToken(_) | Credential::Link(_) | Credential::Unknown | Credential::None => {
                Err(Error::Unauthenticated)
            }
        }
    }

    /// Returns the user of a credential that is valid now, and the API key if it is one.
    pub(crate) async fn bearer(&self, credential: &UserCredential) -> Result<(Arc<Caller>, Option<ApiKeyId>)> {
        let (caller, disabled, key) = match credential {
            UserCredential::Jwt(claims) => {
                // Another node may have revoked it.
                self.caches.freshness().fresh().await?;
                self.tokens.check(claims, self.env.now())?;
                // A new password ends the user's sessions, and with them this token.
                let session = self.caches.session_entry(claims.sid, claims.sub).await?;
                (Arc::clone(&session.caller), session.account.disabled, None)
            }
            UserCredential::ApiKey(digest) => {
                let key = self.caches.api_key_entry(digest).await?;
                if key.has_ended(self.env.now()) {
                    return Err(Error::Unauthenticated);
                }
                (Arc::clone(&key.caller), key.account.disabled, Some(key.id))
            }
        };
        if disabled { Err(Error::Unauthenticated) } else { Ok((caller, key)) }
    }

    /// Returns the credential of a caller whose call may wait for a long time.
    pub(crate) fn held(&self, credentials: &Credentials<'_>) -> Result<HeldCredential> {
        match credentials.first() {
            Credential::DeviceToken(token) => Ok(HeldCredential::Device(Digest::of(token))),
            _ => self.user_credential(credentials).map(HeldCredential::User),
        }
    }

    /// Returns the caller of a stored credential, if it is valid now.
    pub(crate) async fn holder(&self, held: &HeldCredential) -> Result<Principal> {
        self.env.must_have_clock()?;
        match held {
            HeldCredential::Device(token) => {
                Ok(Principal::Device(DeviceSession(self.caches.device_by_token(token).await?)))
            }
            HeldCredential::User(credential) => Ok(Principal::User(self.bearer(credential).await?.0)),
        }
    }

    /// Returns true if the credential certainly still belongs to the principal. False means that something has changed
    /// and the caller must be authenticated again. A change that was acknowledged is visible here.
    pub(crate) fn stands(&self, held: &HeldCredential, principal: &Principal) -> bool {
        match (held, principal) {
            _ if self.env.must_have_clock().is_err() => false,
            (HeldCredential::Device(token), Principal::Device(session)) => self.caches.token_stands(token, &session.0),
            (HeldCredential::User(UserCredential::Jwt(claims)), Principal::User(caller)) => {
                self.tokens.check(claims, self.env.now()).is_ok() && self.caches.session_stands(claims.sid, caller)
            }
            (HeldCredential::User(UserCredential::ApiKey(key)), Principal::User(caller)) => {
                self.caches.api_key_stands(key, caller, self.env.now())
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Holds: c3.order
    #[test]
    fn first_credential_decides() {
        let all = Credentials {
            cloud: Some(b"device"),
            authorization: Some(b"Bearer j.w.t"),
            api_auth_token: Some(b"key"),
            refresh_cookies: Vec::new(),
        };
        assert!(matches!(all.first(), Credential::DeviceToken(b"device")));
        let bearer = Credentials { cloud: None, ..all };
        assert!(matches!(bearer.first(), Credential::Jwt("j.w.t")));
        let bare = Credentials { authorization: Some(b"other"), ..bearer };
        assert_eq!(api_key(&bare), b"key");
        let link = Credentials { authorization: Some(b"wall a.b"), ..bare.clone() };
        assert!(matches!(link.first(), Credential::Link(b"a.b")));
        assert_eq!(api_key(&Credentials { api_auth_token: None, ..bare }), b"other");
        let alone = |value| Credentials { authorization: Some(value), ..Credentials::default() };
        assert_eq!(api_key(&alone(b"bearer key")), b"key");
        assert_eq!(api_key(&alone(b"basic YTprOmV5")), b"k:ey", "the user name ends at the first colon");
        for malformed in [&b"Basic eA=="[..], b"Basic YTpr*", b"Basic ", b"Digest YTpr"] {
            assert!(matches!(alone(malformed).first(), Credential::Unknown), "{malformed:?}");
        }
        assert!(matches!(Credentials::default().first(), Credential::None));
    }
    fn api_key(credentials: &Credentials<'_>) -> Vec<u8> {
        match credentials.first() {
            Credential::ApiKey(key) => key.into_owned(),
            _ => panic!("another credential decides"),
        }
    }
}
