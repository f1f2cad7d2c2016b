//! The gate: who calls, how often, and what may be done. Passes come from `access`, asked here with the lineage of the thing.

use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::Arc;

use isobar_model::access::{self, Action, Caller, CanList, CanRead, CanWrite, Lineage};
use isobar_model::error::{Error, RateWindow, Result};
use isobar_model::ids::{ApiKeyId, DeviceId, DeviceKey, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::secret::Digest;
use rustc_hash::FxBuildHasher;

use crate::entries::DeviceEntry;
use crate::error::Told as _;
use crate::rate::{RateWindows, counted};
use crate::settings::RateLimits;
use crate::tokens::Claims;
use crate::{Hub, TreeQuery};

/// The credentials that a call carries, as they stand in its headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// Header `cloud`: a device token.
    pub cloud: Option<&'a [u8]>,
    /// Header `authorization`: `Bearer <jwt>`, or an API key without a scheme.
    pub authorization: Option<&'a [u8]>,
    /// Header `api_auth_token`: an API key.
    pub api_auth_token: Option<&'a [u8]>,
    /// Cookie `refreshToken`.
    pub refresh_cookie: Option<&'a str>,
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
}

/// A device that has shown its token.
#[derive(Clone)]
pub struct DeviceSession(pub(crate) Arc<DeviceEntry>);

impl DeviceSession {
    /// The device.
    pub fn device(&self) -> DeviceRef {
        self.0.device
    }

    /// The pass to see and write its own things.
    pub(crate) fn pass(&self) -> (CanWrite<DeviceRef>, Arc<DeviceEntry>) {
        (access::device(self.0.device).charged_to(&self.0.lineage), Arc::clone(&self.0))
    }
}

impl Principal {
    /// Where it belongs.
    pub fn lineage(&self) -> Option<&Lineage> {
        match self {
            Principal::Nobody => None,
            Principal::User(caller) => Some(&caller.lineage),
            Principal::Device(session) => Some(&session.0.lineage),
        }
    }

    /// The user, where an operation is a user's alone.
    pub fn user(&self) -> Result<&Caller> {
        match self {
            Principal::User(caller) => Ok(caller),
            Principal::Nobody | Principal::Device(_) => Err(Error::Unauthenticated),
        }
    }

    /// The tenant that it belongs to: the organization at the top of its tree. None: nobody is known.
    pub fn tenant(&self) -> Option<OrganizationId> {
        match self {
            Principal::Nobody => None,
            Principal::User(caller) => Some(caller.lineage.top()),
            Principal::Device(session) => Some(session.0.lineage.top()),
        }
    }
}

/// One of the credentials, in the order in which they are looked at.
pub(crate) enum Credential<'a> {
    DeviceToken(&'a [u8]),
    Jwt(&'a str),
    ApiKey(&'a [u8]),
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
            (_, Some(key)) => Credential::ApiKey(key),
            (Some((b"", key)), None) => Credential::ApiKey(key),
            (Some(_), None) => Credential::Unknown,
            (None, None) => Credential::None,
        }
    }
}

/// A credential by which a user was let in, kept to be held against what is known later too.
#[derive(Clone)]
pub(crate) enum Shown {
    Jwt(Claims),
    ApiKey(Digest),
}

/// The same of a user or a device.
#[derive(Clone)]
pub(crate) enum Held {
    Device(Digest),
    User(Shown),
}

/// The rate windows.
pub(crate) struct Rates {
    users: RateWindows<UserId, FxBuildHasher>,
    devices: RateWindows<DeviceKey, FxBuildHasher>,
    /// Clients choose their addresses: these are hashed with a key.
    addresses: RateWindows<IpAddr, RandomState>,
    /// Calls with bad credentials.
    refused: RateWindows<IpAddr, RandomState>,
}

/// So many times an address's limit may it call with bad credentials before its connections are closed (contract:
/// Conventions).
const REFUSED_TIMES: u32 = 10;
/// Users, and devices, that are counted in a minute.
const CALLERS_MAX: usize = 1 << 20;
/// Addresses that are counted in a minute. They cost who has many of them nothing, so these are fewer.
const ADDRESSES_MAX: usize = 1 << 18;

impl Rates {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        Self {
            users: RateWindows::new(limits.user, CALLERS_MAX),
            devices: RateWindows::new(limits.device, CALLERS_MAX),
            addresses: RateWindows::new(limits.address, ADDRESSES_MAX),
            refused: RateWindows::new(limits.address.saturating_mul(REFUSED_TIMES), ADDRESSES_MAX),
        }
    }
}

impl Hub {
    /// Finds out who calls. A credential that the operation does not accept is as good as none.
    pub async fn authenticate(&self, credentials: &Credentials<'_>, accepts: Accepts) -> Result<Principal> {
        let (devices, jwts) = match accepts {
            Accepts::Nobody => return Ok(Principal::Nobody),
            Accepts::User => (false, true),
            Accepts::UserOrDevice => (true, true),
            Accepts::ApiKey => (false, false),
        };
        match credentials.first() {
            Credential::DeviceToken(token) if devices => {
                Ok(Principal::Device(DeviceSession(self.device_by_token(&Digest::of(token)).await?)))
            }
            Credential::Jwt(_) if !jwts => Err(Error::Unauthenticated),
            _ => {
                let (caller, key) = self.bearer(&self.shown(credentials)?).await?;
                let now = self.0.clock.now();
                self.0.activity.user(caller.user, now);
                if let Some(key) = key {
                    self.0.activity.api_key(key, now);
                }
                Ok(Principal::User(caller))
            }
        }
    }

    /// What a user shows. A device token is nothing of a user's.
    pub(crate) fn shown(&self, credentials: &Credentials<'_>) -> Result<Shown> {
        match credentials.first() {
            Credential::Jwt(jwt) => Ok(Shown::Jwt(self.0.tokens.read(jwt)?)),
            Credential::ApiKey(key) => Ok(Shown::ApiKey(Digest::of(key))),
            Credential::DeviceToken(_) | Credential::Unknown | Credential::None => Err(Error::Unauthenticated),
        }
    }

    /// Whose credential this is, if it is good at this moment; and which API key it is.
    pub(crate) async fn bearer(&self, shown: &Shown) -> Result<(Arc<Caller>, Option<ApiKeyId>)> {
        let (caller, disabled, key) = match shown {
            Shown::Jwt(claims) => {
                self.0.tokens.check(claims, self.0.clock.now())?;
                // It is none any more when its session was ended by a new password.
                let session = self.session_entry(claims.sid, claims.sub).await?;
                (Arc::clone(&session.caller), session.account.disabled, None)
            }
            Shown::ApiKey(digest) => {
                let (id, user) = self.user_by_api_key(digest).await?;
                let account = self.account_entry(user).await?.ok_or(Error::Unauthenticated)?;
                (Arc::clone(&account.caller), account.disabled, Some(id))
            }
        };
        if disabled { Err(Error::Unauthenticated) } else { Ok((caller, key)) }
    }

    /// What a caller has shown who may wait for long, by which it was let in.
    pub(crate) fn held(&self, credentials: &Credentials<'_>) -> Result<Held> {
        match credentials.first() {
            Credential::DeviceToken(token) => Ok(Held::Device(Digest::of(token))),
            _ => self.shown(credentials).map(Held::User),
        }
    }

    /// Who calls with it, if it is good at this moment.
    pub(crate) async fn holder(&self, held: &Held) -> Result<Principal> {
        match held {
            Held::Device(token) => Ok(Principal::Device(DeviceSession(self.device_by_token(token).await?))),
            Held::User(shown) => Ok(Principal::User(self.bearer(shown).await?.0)),
        }
    }

    /// Whether all is known to be as it was when it was found out who calls. No: it may be otherwise, and must be found out
    /// again. A change that was acknowledged is known here.
    pub(crate) fn stands(&self, held: &Held, principal: &Principal) -> bool {
        match (held, principal) {
            (Held::Device(token), Principal::Device(session)) => self.token_stands(token, &session.0),
            (Held::User(Shown::Jwt(claims)), Principal::User(caller)) => {
                self.0.tokens.check(claims, self.0.clock.now()).is_ok() && self.session_stands(claims.sid, caller)
            }
            (Held::User(Shown::ApiKey(key)), Principal::User(caller)) => self.api_key_stands(key, caller),
            _ => false,
        }
    }

    /// Counts a call in the window of its user, its device, or its address. None: that limit is off.
    pub fn count_call(&self, principal: &Principal, address: IpAddr) -> Result<Option<RateWindow>> {
        let (now, rates) = (self.0.clock.now(), &self.0.rates);
        let (subject, counts) = match principal {
            Principal::User(caller) => ("user", rates.users.count(caller.user, now)),
            Principal::Device(session) => ("device", rates.devices.count(session.device().key, now)),
            Principal::Nobody => ("address", rates.addresses.count(counted(address), now)),
        };
        counts.map_err(|window| Error::RateLimited { subject, window })
    }

    /// Counts a call with bad credentials; true: there were so many from its address that its connection should end.
    pub fn count_refused(&self, address: IpAddr) -> bool {
        self.0.rates.refused.count(counted(address), self.0.clock.now()).is_err()
    }

    /// Whether the caller's role is high enough for an action that names no thing yet.
    pub async fn allow(&self, caller: &Caller, action: Action) -> Result<()> {
        access::read(caller, action, (), &caller.lineage).map(|_| ()).map_err(|refusal| refusal.into_error("resource"))
    }

    /// Whether the caller may do something with a device: 404 before 403.
    pub async fn allow_device(&self, principal: &Principal, id: DeviceId, action: Action) -> Result<()> {
        self.device_write(principal, id, action).await.map(|_| ())
    }

    /// Whether the caller may do something with a project.
    pub async fn allow_project(&self, caller: &Caller, id: ProjectId, action: Action) -> Result<()> {
        match action {
            Action::ProjectRead => self.project_read(caller, id).await.map(|_| ()),
            _ => self.project_write(caller, id, action).await.map(|_| ()),
        }
    }

    /// Whether the caller may do something with an organization.
    pub async fn allow_organization(&self, caller: &Caller, id: OrganizationId, action: Action) -> Result<()> {
        self.organization_write(caller, id, action).await.map(|_| ())
    }

    /// Whether the caller may do something with a user.
    pub async fn allow_user(&self, caller: &Caller, id: UserId, action: Action) -> Result<()> {
        self.user_write(caller, id, action).await.map(|_| ())
    }

    /// The pass to do something with a device. A device token opens its own device alone; any other is hidden from it.
    pub(crate) async fn device_write(
        &self,
        principal: &Principal,
        id: DeviceId,
        action: Action,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        match principal {
            Principal::Device(session) if session.device().id == id => Ok(session.pass()),
            Principal::Device(_) => Err(Error::Missing("device")),
            Principal::Nobody => Err(Error::Unauthenticated),
            Principal::User(caller) => {
                let entry = self.device_entry(id).await?.ok_or(Error::Missing("device"))?;
                let pass = access::write(caller, action, entry.device, &entry.lineage);
                Ok((pass.map_err(|refusal| refusal.into_error("device"))?, entry))
            }
        }
    }

    /// The pass to see a device.
    pub(crate) async fn device_read(
        &self,
        principal: &Principal,
        id: DeviceId,
    ) -> Result<(CanRead<DeviceRef>, Arc<DeviceEntry>)> {
        let (pass, entry) = self.device_write(principal, id, Action::DeviceRead).await?;
        Ok((pass.reading(), entry))
    }

    /// The pass to see a project.
    pub(crate) async fn project_read(&self, caller: &Caller, id: ProjectId) -> Result<CanRead<ProjectId>> {
        let lineage = self.0.registry.project_placement(id).await.told()?.ok_or(Error::Missing("project"))?;
        access::read_shared(caller, Action::ProjectRead, id, &lineage).map_err(|refusal| refusal.into_error("project"))
    }

    /// The pass to change a project.
    pub(crate) async fn project_write(
        &self,
        caller: &Caller,
        id: ProjectId,
        action: Action,
    ) -> Result<CanWrite<ProjectId>> {
        let lineage = self.0.registry.project_placement(id).await.told()?.ok_or(Error::Missing("project"))?;
        access::write_shared(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("project"))
    }

    /// The pass to do something with an organization.
    pub(crate) async fn organization_write(
        &self,
        caller: &Caller,
        id: OrganizationId,
        action: Action,
    ) -> Result<CanWrite<OrganizationId>> {
        let lineage = self.lineage_of(id).await?.ok_or(Error::Missing("organization"))?;
        access::write(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("organization"))
    }

    /// The pass to put something into the organization that a body names, or into the caller's own.
    /// One that is out of reach does not exist: a fault of the body.
    pub(crate) async fn owner_pass(
        &self,
        caller: &Caller,
        named: Option<OrganizationId>,
        action: Action,
    ) -> Result<(CanWrite<OrganizationId>, Lineage)> {
        // The role comes before the body.
        self.allow(caller, action).await?;
        let lineage = match named {
            None => Some(caller.lineage.clone()),
            Some(id) => self.lineage_of(id).await?,
        };
        let unknown = || Error::invalid("organizationId", "no such organization");
        let lineage = lineage.filter(|lineage| caller.reaches(lineage)).ok_or_else(unknown)?;
        let pass = access::write(caller, action, lineage.own(), &lineage);
        Ok((pass.map_err(|refusal| refusal.into_error("organization"))?, lineage))
    }

    /// The pass to do something with a user. Nobody changes a user of a higher rank; everybody may change itself.
    pub(crate) async fn user_write(&self, caller: &Caller, id: UserId, action: Action) -> Result<CanWrite<UserId>> {
        if id == caller.user && matches!(action, Action::UserRead | Action::UserUpdate | Action::ApiKeyManage) {
            return Ok(access::own(caller));
        }
        let (lineage, role) = self.0.registry.user_placement(id).await.told()?.ok_or(Error::Missing("user"))?;
        let pass = access::write(caller, action, id, &lineage).map_err(|refusal| refusal.into_error("user"))?;
        if role > caller.role && action != Action::UserRead {
            return Err(Error::Forbidden(format!("a {} may not change a {}", caller.role.name(), role.name())));
        }
        Ok(pass)
    }

    /// The pass to list part of the tree; a base that is out of reach is 404, for it does not exist.
    pub(crate) async fn list_pass(&self, caller: &Caller, tree: TreeQuery, action: Action) -> Result<CanList> {
        let base = self.tree_base(caller, tree.organization).await?;
        access::list(caller, action, &base, tree.depth.levels()).map_err(|refusal| refusal.into_error("organization"))
    }

    /// The lineage of the organization that a list begins at.
    pub(crate) async fn tree_base(&self, caller: &Caller, named: Option<OrganizationId>) -> Result<Lineage> {
        match named {
            None => Ok(caller.lineage.clone()),
            Some(id) => self.lineage_of(id).await?.ok_or(Error::Missing("organization")),
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
            refresh_cookie: None,
        };
        assert!(matches!(all.first(), Credential::DeviceToken(b"device")));
        assert!(matches!(Credentials { cloud: None, ..all }.first(), Credential::Jwt("jwt")));
        let bare = Credentials { cloud: None, authorization: Some(b"other"), ..all };
        assert!(matches!(bare.first(), Credential::ApiKey(b"key")));
        assert!(matches!(Credentials { api_auth_token: None, ..bare }.first(), Credential::ApiKey(b"other")));
        let basic = Credentials { authorization: Some(b"Basic eA=="), ..Credentials::default() };
        assert!(matches!(basic.first(), Credential::Unknown));
        assert!(matches!(Credentials::default().first(), Credential::None));
    }
}
