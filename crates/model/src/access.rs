//! Access rules, and the only module that makes permits. A store returns a tenant's rows only for a permit.
//!
//! The rules are the contract's section 2. The order of refusals is its section 1: what is out of reach is hidden (404)
//! before the role is checked (403).

use std::fmt;

use crate::error::Error;
use crate::ids::{ApiKeyId, DeviceRef, OrganizationId, SessionId, UserId};
use crate::role::Role;

/// The organizations from the top of the tree down to the one that owns a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lineage(Vec<OrganizationId>);

impl Lineage {
    /// Makes a lineage from the top down, which is never empty: without ancestors it is `own` alone.
    pub fn new(ancestors: impl IntoIterator<Item = OrganizationId>, own: OrganizationId) -> Self {
        let mut ids: Vec<_> = ancestors.into_iter().collect();
        ids.push(own);
        Self(ids)
    }

    /// Parses the form that `Display` writes: `/<id>/<id>/`.
    pub fn parse(text: &str) -> Option<Self> {
        let ids: Option<Vec<_>> =
            text.split('/').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect();
        ids.filter(|ids| !ids.is_empty()).map(Self)
    }

    /// Returns the last organization, the owner.
    pub fn own(&self) -> OrganizationId {
        self.0[self.0.len() - 1]
    }

    /// Returns the top organization, the tenant.
    pub fn top(&self) -> OrganizationId {
        self.0[0]
    }

    /// Returns the organization directly above the owner.
    pub fn parent(&self) -> Option<OrganizationId> {
        self.0.len().checked_sub(2).map(|index| self.0[index])
    }

    /// Returns true if the organization is the owner or above it.
    pub fn contains(&self, organization: OrganizationId) -> bool {
        self.0.contains(&organization)
    }

    /// Returns the organizations from the top down.
    pub fn ids(&self) -> &[OrganizationId] {
        &self.0
    }

    /// Returns the depth: 1 for a top-level organization.
    pub fn level(&self) -> usize {
        self.0.len()
    }

    /// Returns the lineage of a child of this organization.
    pub fn child(&self, id: OrganizationId) -> Self {
        Self::new(self.0.iter().copied(), id)
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|id| write!(f, "/{id}"))?;
        f.write_str("/")
    }
}

/// An authenticated user.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user.
    pub user: UserId,
    /// The user's role, or that of the API key.
    pub role: Role,
    /// The lineage of the user's organization.
    pub lineage: Lineage,
    /// The session of its JWT; `None` for an API key.
    pub session: Option<SessionId>,
    /// The API key in use, if it has fewer rights than its user.
    pub key: Option<RestrictedKey>,
}

/// An API key with a role or an expiry of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestrictedKey {
    /// The key.
    pub id: ApiKeyId,
    /// True if it has a role of its own.
    pub has_role: bool,
    /// True if it expires.
    pub has_end: bool,
}

impl Caller {
    /// Returns the caller's own organization.
    pub fn organization(&self) -> OrganizationId {
        self.lineage.own()
    }

    /// Returns true if a resource of that lineage is in the caller's organization or beneath it.
    pub fn reaches(&self, lineage: &Lineage) -> bool {
        self.role == Role::SystemAdmin || lineage.contains(self.organization())
    }
}

/// The author of what a permit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A user.
    User(UserId),
    /// A device with its own token.
    Device(crate::ids::DeviceId),
    /// Isobar itself, with the reason.
    System(&'static str),
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $role:ident;)*) => {
        /// Everything that a user can ask for, and the rank that it needs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action { $($(#[$doc])* $name,)* }

        impl Action {
            /// Every action.
            pub const ALL: &'static [Action] = &[$(Action::$name),*];

            /// Returns its name: noun, then verb.
            pub const fn name(self) -> &'static str {
                match self { $(Action::$name => $word),* }
            }

            /// Returns the lowest role that is allowed to do it.
            pub const fn minimum_role(self) -> Role {
                match self { $(Action::$name => Role::$role),* }
            }
        }
    };
}

actions! {
    /// See an organization.
    OrganizationRead = "organization read", BasicUser;
    /// Found an organization beneath one in reach.
    OrganizationCreate = "organization create", Administrator;
    /// Found an organization with no parent.
    OrganizationCreateTop = "organization create at the top", SystemAdmin;
    /// Change an organization.
    OrganizationUpdate = "organization update", Administrator;
    /// Remove an empty organization.
    OrganizationDelete = "organization delete", Administrator;
    /// See a user.
    UserRead = "user read", BasicUser;
    /// Create a user up to one's own rank.
    UserCreate = "user create", Manager;
    /// Change a user up to one's own rank.
    UserUpdate = "user update", Manager;
    /// Disable a user.
    UserDisable = "user disable", Administrator;
    /// Delete a user.
    UserDelete = "user delete", Administrator;
    /// List, make and delete the API keys of another user.
    ApiKeyManage = "API keys of another user", Manager;
    /// See a project and its specification.
    ProjectRead = "project read", BasicUser;
    /// Create a project.
    ProjectCreate = "project create", Administrator;
    /// Change a project or its specification.
    ProjectUpdate = "project update", Administrator;
    /// Remove a project without devices.
    ProjectDelete = "project delete", Administrator;
    /// Try a specification out.
    ProjectDryRun = "project dry run", Developer;
    /// See a device, its data, history and settings.
    DeviceRead = "device read", BasicUser;
    /// Create a device.
    DeviceCreate = "device create", Technician;
    /// Change a device or its image.
    DeviceUpdate = "device update", Technician;
    /// Delete a device.
    DeviceDelete = "device delete", Manager;
    /// End a device's token and make a new one.
    DeviceTokenRotate = "device token rotate", Manager;
    /// Delete stored data.
    StorageDelete = "storage delete", Manager;
    /// Change a setting.
    SettingUpdate = "setting update", Technician;
    /// See an alarm of a device.
    AlarmRead = "alarm read", BasicUser;
    /// Acknowledge an alarm, or assign it.
    AlarmUpdate = "alarm update", Technician;
    /// Post a device event in a device's name.
    DeviceEventCreate = "device event create", Technician;
    /// Read a device's cloud-event queue in its name.
    CloudEventRead = "cloud event read", Technician;
    /// Queue a cloud event.
    CloudEventCreate = "cloud event create", Technician;
    /// Hand a third party's payload to the integration webhook.
    WebhookReceive = "webhook receive", Manager;
    /// See the nodes and the databases of the platform.
    PlatformRead = "platform read", SystemAdmin;
    /// Tell every user something.
    SystemNotificationEmit = "system notification emit", SystemAdmin;
}

/// A permit to read `T`. Only this module makes one.
#[derive(Clone, Debug)]
pub struct CanRead<T> {
    target: T,
    tenant: Option<OrganizationId>,
}

/// A permit to change `T`, with its author. Only this module makes one.
#[derive(Clone, Debug)]
pub struct CanWrite<T> {
    target: T,
    actor: Actor,
    tenant: Option<OrganizationId>,
}

impl<T> CanRead<T> {
    /// Returns what may be read.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// Returns the tenant, as [`CanWrite::tenant`].
    pub fn tenant(&self) -> Option<OrganizationId> {
        self.tenant
    }
}

impl<T> CanWrite<T> {
    /// Returns what may be changed.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// Returns the author of the change.
    pub fn actor(&self) -> Actor {
        self.actor
    }

    /// Returns the tenant that the work is charged to, a top-level organization; `None` for Isobar itself.
    pub fn tenant(&self) -> Option<OrganizationId> {
        self.tenant
    }

    /// Returns this permit with the work charged to the tenant of a lineage.
    #[must_use]
    pub fn charged_to(self, lineage: &Lineage) -> Self {
        Self { tenant: Some(lineage.top()), ..self }
    }

    /// Returns a permit to read the same resource.
    pub fn reading(&self) -> CanRead<T>
    where
        T: Clone,
    {
        CanRead { target: self.target.clone(), tenant: self.tenant }
    }
}

/// A permit to list part of the organization tree. Only this module makes one.
#[derive(Clone, Debug)]
pub struct CanList {
    scope: Scope,
}

/// A part of the organization tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole tree.
    Everything,
    /// The tree from `base` down, at most `levels` generations deep (1: the base alone); `None`: the whole subtree.
    Beneath {
        /// The organization at its top.
        base: Lineage,
        /// Number of generations, the base included.
        levels: Option<u32>,
    },
    /// The same and every organization above `base`, whose shared resources are usable there.
    UsableIn {
        /// The organization at the top of the part.
        base: Lineage,
        /// Number of generations, the base included.
        levels: Option<u32>,
    },
}

impl CanList {
    /// Returns the part of the tree.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

/// The reason why access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Out of reach: answered as if it did not exist.
    Hidden,
    /// Within reach, but the role is too low.
    Role(Action),
    /// In reach of the user, but not of its API key; the reason, in words.
    Key(&'static str),
}

impl Refusal {
    /// Converts the refusal into an error for the caller; `noun` is what was asked for.
    pub fn into_error(self, noun: &'static str) -> Error {
        match self {
            Refusal::Hidden => Error::Missing(noun),
            Refusal::Role(action) => {
                Error::Forbidden(format!("{} needs at least the role {}", action.name(), action.minimum_role().name()))
            }
            Refusal::Key(why) => Error::Forbidden(why.to_owned()),
        }
    }
}

/// Decides on an action: hidden if the caller does not see the resource, forbidden if its role is too low.
fn decide(caller: &Caller, action: Action, is_seen: bool) -> Result<(), Refusal> {
    match is_seen {
        false => Err(Refusal::Hidden),
        true if caller.role < action.minimum_role() => Err(Refusal::Role(action)),
        true => Ok(()),
    }
}

/// Permits `caller` to read `target`, which belongs to `lineage`, or refuses.
pub fn read<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanRead<T>, Refusal> {
    decide(caller, action, caller.reaches(lineage))?;
    Ok(CanRead { target, tenant: Some(lineage.top()) })
}

/// Permits `caller` to do `action`, which changes `target` of `lineage`, or refuses.
pub fn write<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanWrite<T>, Refusal> {
    decide(caller, action, caller.reaches(lineage))?;
    Ok(CanWrite { target, actor: Actor::User(caller.user), tenant: Some(lineage.top()) })
}

/// Permits reading like [`read`], and from organizations beneath the owner's too, as projects are shared with them.
pub fn read_shared<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanRead<T>, Refusal> {
    decide(caller, action, caller.reaches(lineage) || caller.lineage.contains(lineage.own()))?;
    Ok(CanRead { target, tenant: Some(lineage.top()) })
}

/// Permits writing like [`write`]. Organizations beneath the owner's, which see the resource, get 403 instead of 404.
pub fn write_shared<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanWrite<T>, Refusal> {
    if !caller.reaches(lineage) {
        let visible = caller.lineage.contains(lineage.own());
        return Err(if visible { Refusal::Role(action) } else { Refusal::Hidden });
    }
    write(caller, action, target, lineage)
}

/// Permits a user to change its own profile, password, image, keys and notifications: no rank is needed.
pub fn own(caller: &Caller) -> CanWrite<UserId> {
    CanWrite { target: caller.user, actor: Actor::User(caller.user), tenant: Some(caller.lineage.top()) }
}

/// A change of an account's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountChange {
    /// Another role.
    Role,
    /// Another password.
    Password,
    /// Another organization.
    Place,
    /// A new API key.
    KeyCreate,
    /// The end of an API key.
    KeyDelete(ApiKeyId),
}

/// Checks whether the caller's API key allows a change of the account of `user`; the rank was checked before. A key
/// with a role changes no role or password, makes no key, deletes only itself, and does not move its user. A key with
/// an expiry makes its own user nothing that would outlive it.
pub fn change_account(caller: &Caller, user: UserId, change: AccountChange) -> Result<(), Refusal> {
    let Some(RestrictedKey { id, has_role, has_end }) = caller.key else { return Ok(()) };
    let is_own = user == caller.user;
    let is_refused = match change {
        AccountChange::Role => has_role,
        AccountChange::KeyDelete(deleted) => has_role && deleted != id,
        AccountChange::Place => has_role && is_own,
        AccountChange::Password | AccountChange::KeyCreate => has_role || (has_end && is_own),
    };
    match (is_refused, has_role) {
        (false, _) => Ok(()),
        (true, true) => Err(Refusal::Key("an API key with a role of its own changes no role, password or other key")),
        (true, false) => {
            Err(Refusal::Key("an API key with an end sets no password of its user and makes no other key"))
        }
    }
}

/// Permits `caller` to list what belongs to `base` and `levels` generations from it, or refuses.
pub fn list(caller: &Caller, action: Action, base: &Lineage, levels: Option<u32>) -> Result<CanList, Refusal> {
    decide(caller, action, caller.reaches(base))?;
    Ok(CanList { scope: Scope::Beneath { base: base.clone(), levels } })
}

/// Permits listing like [`list`], with what organizations above `base` share with it. Those between the caller and the
/// base are in reach, those above the caller share with it too.
pub fn list_shared(caller: &Caller, action: Action, base: &Lineage, levels: Option<u32>) -> Result<CanList, Refusal> {
    decide(caller, action, caller.reaches(base))?;
    Ok(CanList { scope: Scope::UsableIn { base: base.clone(), levels } })
}

/// Permits a device with its own token to read and write its own data.
pub fn device(device: DeviceRef) -> CanWrite<DeviceRef> {
    CanWrite { target: device, actor: Actor::Device(device.id), tenant: None }
}

/// Permits carrying out what a user was allowed to do and was acknowledged.
pub fn accepted<T>(user: UserId, target: T) -> CanWrite<T> {
    CanWrite { target, actor: Actor::User(user), tenant: None }
}

/// Permits an act of Isobar itself; the reason is for searches in the code.
pub fn system<T>(target: T, reason: &'static str) -> CanWrite<T> {
    CanWrite { target, actor: Actor::System(reason), tenant: None }
}

/// Permits Isobar itself to list everything, with the reason.
pub fn system_list(_reason: &'static str) -> CanList {
    CanList { scope: Scope::Everything }
}

/// Renders the table of roles and actions, as text for a snapshot.
pub fn table() -> String {
    let mut lines = vec![format!("{:32}{}", "", Role::ALL.map(|role| format!("{:>14}", role.name())).concat())];
    for action in Action::ALL {
        let marks = Role::ALL.map(|role| format!("{:>14}", if role >= action.minimum_role() { "yes" } else { "-" }));
        lines.push(format!("{:32}{}", action.name(), marks.concat()));
    }
    lines.join("\n")
}
