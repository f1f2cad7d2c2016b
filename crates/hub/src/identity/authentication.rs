//! Authentication: which user or device the credentials of a call belong to, and whether they still do.

use std::sync::Arc;

use isobar_model::access::{self, Caller, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{ApiKeyId, DeviceRef, OrganizationId};
use isobar_model::secret::Digest;

use super::Identity;
use super::board_links::LinkSession;
use super::tokens::Claims;
use crate::cache::entries::DeviceEntry;

/// The credentials that a call carries, as they stand in its headers.
#[derive(Clone, Debug, Default)]
pub struct Credentials<'a> {
    /// Header `cloud`: a device token.
    pub cloud: Option<&'a [u8]>,
    /// Header `authorization`: `Bearer <jwt>`, `Wall <link>`, or an API key without a scheme.
    pub authorization: Option<&'a [u8]>,
    /// Header `api_auth_token`: an API key.
    pub api_auth_token: Option<&'a [u8]>,
    /// Cookies `refreshToken`, in their order: an older one, or one of another path, may come beside the good one.
    pub refresh_cookies: Vec<&'a [u8]>,
}

/// Which credentials an operation accepts (specification: Authentication; contract: Authentication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// None are needed, and those that come are not looked at.
    Nobody,
    /// jwt, apiKey and apiKeyAlt.
    User,
    /// Those of a user, or a device token for its own device.
    UserOrDevice,
    /// apiKey and apiKeyAlt.
    ApiKey,
    /// A link of a dashboard.
    Link,
}

/// Who calls.
#[derive(Clone)]
pub enum Principal {
    /// Nobody that is known.
    Nobody,
    /// A user.
    User(Arc<Caller>),
    /// A device with its token.
    Device(DeviceSession),
    /// A screen with the link of a dashboard.
    Link(Arc<LinkSession>),
}

/// A device that has shown its token.
#[derive(Clone)]
pub struct DeviceSession(pub(crate) Arc<DeviceEntry>);

impl DeviceSession {
    /// The device.
    pub fn device(&self) -> DeviceRef {
        self.0.device
    }

    /// The permit to see and write its own things.
    pub(crate) fn permit(&self) -> (CanWrite<DeviceRef>, Arc<DeviceEntry>) {
        (access::device(self.0.device).charged_to(&self.0.lineage), Arc::clone(&self.0))
    }
}

impl Principal {
    /// The user, where an operation is a user's alone.
    pub fn user(&self) -> Result<&Caller> {
        match self {
            Principal::User(caller) => Ok(caller),
            Principal::Nobody | Principal::Device(_) | Principal::Link(_) => Err(Error::Unauthenticated),
        }
    }

    /// The link, where an operation is a link's alone.
    pub fn link(&self) -> Result<&LinkSession> {
        match self {
            Principal::Link(session) => Ok(session),
            Principal::Nobody | Principal::User(_) | Principal::Device(_) => Err(Error::Unauthenticated),
        }
    }

    /// The tenant that it belongs to: the organization at the top of its tree. None: nobody is known.
    pub fn tenant(&self) -> Option<OrganizationId> {
        match self {
            Principal::Nobody => None,
            Principal::User(caller) => Some(caller.lineage.top()),
            Principal::Device(session) => Some(session.0.lineage.top()),
            Principal::Link(session) => Some(session.maker.lineage.top()),
        }
    }
}

/// One of the credentials, in the order in which they are looked at.
pub(crate) enum Credential<'a> {
    DeviceToken(&'a [u8]),
    Jwt(&'a str),
    ApiKey(&'a [u8]),
    Link(&'a [u8]),
    Unknown,
    None,
}

impl<'a> Credentials<'a> {
    /// The first present one decides (contract: Authentication).
    pub(crate) fn first(&self) -> Credential<'a> {
        if let Some(token) = self.cloud {
            return Credential::DeviceToken(token);
        }
        let scheme = self.authorization.map(|value| match value.iter().position(|byte| *byte == b' ') {
            Some(at) => (&value[..at], value[at + 1..].trim_ascii()),
            None => (&[][..], value),
        });
        match (scheme, self.api_auth_token) {
            (Some((name, jwt)), _) if name.eq_ignore_ascii_case(b"bearer") => {
                std::str::from_utf8(jwt).map_or(Credential::Unknown, Credential::Jwt)
            }
            (Some((name, link)), _) if name.eq_ignore_ascii_case(b"wall") => Credential::Link(link),
            (_, Some(key)) => Credential::ApiKey(key),
            (Some((b"", key)), None) => Credential::ApiKey(key),
            (Some(_), None) => Credential::Unknown,
            (None, None) => Credential::None,
        }
    }
}

/// A credential by which a user was let in, kept to be held against what is known later too.
#[derive(Clone)]
pub(crate) enum UserCredential {
    Jwt(Claims),
    ApiKey(Digest),
}

/// A credential by which a user or a device was let in, kept to be held against what is known later too.
#[derive(Clone)]
pub(crate) enum HeldCredential {
    Device(Digest),
    User(UserCredential),
}

impl Identity {
    /// Finds out who calls. A credential that the operation does not accept is as good as none.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] where there is no good credential of a kind that `accepts` names.
    pub(crate) async fn authenticate(&self, credentials: &Credentials<'_>, accepts: Accepts) -> Result<Principal> {
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

    /// The credential of a user. A device token is none.
    pub(crate) fn user_credential(&self, credentials: &Credentials<'_>) -> Result<UserCredential> {
        match credentials.first() {
            Credential::Jwt(jwt) => Ok(UserCredential::Jwt(self.tokens.read(jwt)?)),
            Credential::ApiKey(key) => Ok(UserCredential::ApiKey(Digest::of(key))),
            Credential::DeviceToken(_) | Credential::Link(_) | Credential::Unknown | Credential::None => {
                Err(Error::Unauthenticated)
            }
        }
    }

    /// Whose credential this is, if it is good at this moment; and which API key it is.
    pub(crate) async fn bearer(&self, credential: &UserCredential) -> Result<(Arc<Caller>, Option<ApiKeyId>)> {
        let (caller, disabled, key) = match credential {
            UserCredential::Jwt(claims) => {
                self.tokens.check(claims, self.env.now())?;
                // It is none any more when its session was ended by a new password.
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

    /// The credential by which a caller was let in that may wait for long.
    pub(crate) fn held(&self, credentials: &Credentials<'_>) -> Result<HeldCredential> {
        match credentials.first() {
            Credential::DeviceToken(token) => Ok(HeldCredential::Device(Digest::of(token))),
            _ => self.user_credential(credentials).map(HeldCredential::User),
        }
    }

    /// Who calls with it, if it is good at this moment.
    pub(crate) async fn holder(&self, held: &HeldCredential) -> Result<Principal> {
        match held {
            HeldCredential::Device(token) => {
                Ok(Principal::Device(DeviceSession(self.caches.device_by_token(token).await?)))
            }
            HeldCredential::User(credential) => Ok(Principal::User(self.bearer(credential).await?.0)),
        }
    }

    /// Whether it is certain that the credential is still that of the principal. No: something has changed, and whoever calls
    /// must be authenticated again. A change that was acknowledged is known here.
    pub(crate) fn stands(&self, held: &HeldCredential, principal: &Principal) -> bool {
        match (held, principal) {
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

    #[test]
    fn the_first_credential_decides() {
        let all = Credentials {
            cloud: Some(b"device"),
            authorization: Some(b"Bearer jwt"),
            api_auth_token: Some(b"key"),
            refresh_cookies: Vec::new(),
        };
        assert!(matches!(all.first(), Credential::DeviceToken(b"device")));
        let bearer = Credentials { cloud: None, ..all };
        assert!(matches!(bearer.first(), Credential::Jwt("jwt")));
        let bare = Credentials { authorization: Some(b"other"), ..bearer };
        assert!(matches!(bare.first(), Credential::ApiKey(b"key")));
        let link = Credentials { authorization: Some(b"wall a.b"), ..bare.clone() };
        assert!(matches!(link.first(), Credential::Link(b"a.b")));
        assert!(matches!(Credentials { api_auth_token: None, ..bare }.first(), Credential::ApiKey(b"other")));
        let basic = Credentials { authorization: Some(b"Basic eA=="), ..Credentials::default() };
        assert!(matches!(basic.first(), Credential::Unknown));
        assert!(matches!(Credentials::default().first(), Credential::None));
    }
}
