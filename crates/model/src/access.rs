//! Who may do what: the only maker of passes. A store hands out a tenant's rows only against a pass.
//!
//! The rules are the contract's section 2. The order of refusals is its section 1: what is out of reach
//! is hidden (404) before the role is looked at (403).

use std::fmt;

use crate::error::Error;
use crate::ids::{ApiKeyId, DeviceRef, OrganizationId, SessionId, UserId};
use crate::role::Role;

/// The organizations from the top of the tree down to the one that owns a thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lineage(Vec<OrganizationId>);

impl Lineage {
    /// A lineage from the top down. It is never empty: an empty list gives the lineage of `own`.
    pub fn new(ancestors: impl IntoIterator<Item = OrganizationId>, own: OrganizationId) -> Self {
        let mut ids: Vec<_> = ancestors.into_iter().collect();
        ids.push(own);
        Self(ids)
    }

    /// Reads the form that `Display` writes: `/<id>/<id>/`.
    pub fn parse(text: &str) -> Option<Self> {
        let ids: Option<Vec<_>> =
            text.split('/').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect();
        ids.filter(|ids| !ids.is_empty()).map(Self)
    }

    /// The organization at its end.
    pub fn own(&self) -> OrganizationId {
        self.0[self.0.len() - 1]
    }

    /// The organization at the top: the tenant as a whole.
    pub fn top(&self) -> OrganizationId {
        self.0[0]
    }

    /// The organization directly above the one at its end.
    pub fn parent(&self) -> Option<OrganizationId> {
        self.0.len().checked_sub(2).map(|index| self.0[index])
    }

    /// Whether the organization is on it: the owner itself or one above it.
    pub fn contains(&self, organization: OrganizationId) -> bool {
        self.0.contains(&organization)
    }

    /// From the top down.
    pub fn ids(&self) -> &[OrganizationId] {
        &self.0
    }

    /// How deep it is: 1 for a top-level organization.
    pub fn level(&self) -> usize {
        self.0.len()
    }

    /// The lineage of a child of this organization.
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

/// A user whose credentials were found good.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub user: UserId,
    /// With which role.
    pub role: Role,
    /// Where it belongs.
    pub lineage: Lineage,
    /// The session of its jwt; none for an API key.
    pub session: Option<SessionId>,
    /// The API key that it comes with, where that is less than its user.
    pub key: Option<RestrictedKey>,
}

/// An API key that has a role or an end of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestrictedKey {
    /// The key.
    pub id: ApiKeyId,
    /// Whether it has a role of its own.
    pub has_role: bool,
    /// Whether it has an end.
    pub has_end: bool,
}

impl Caller {
    /// The caller's own organization.
    pub fn organization(&self) -> OrganizationId {
        self.lineage.own()
    }

    /// Whether a thing of that lineage is in reach: the caller's organization and everything beneath it.
    pub fn reaches(&self, lineage: &Lineage) -> bool {
        self.role == Role::SystemAdmin || lineage.contains(self.organization())
    }
}

/// Who stands behind a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A user.
    User(UserId),
    /// A device with its own token.
    Device(crate::ids::DeviceId),
    /// Isobar itself, for the reason given.
    System(&'static str),
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $role:ident;)*) => {
        /// Everything a user can ask for, and the rank it needs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action { $($(#[$doc])* $name,)* }

        impl Action {
            /// Every action.
            pub const ALL: &'static [Action] = &[$(Action::$name),*];

            /// Its name: noun, then verb.
            pub const fn name(self) -> &'static str {
                match self { $(Action::$name => $word),* }
            }

            /// The lowest role that may do it.
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
    /// Tell every user something.
    SystemNotificationEmit = "system notification emit", SystemAdmin;
}

/// The right to see `T`. Only this module makes one.
#[derive(Clone, Debug)]
pub struct CanRead<T> {
    target: T,
    tenant: Option<OrganizationId>,
}

/// The right to change `T`, and who has it. Only this module makes one.
#[derive(Clone, Debug)]
pub struct CanWrite<T> {
    target: T,
    actor: Actor,
    tenant: Option<OrganizationId>,
}

impl<T> CanRead<T> {
    /// What may be seen.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// As [`CanWrite::tenant`].
    pub fn tenant(&self) -> Option<OrganizationId> {
        self.tenant
    }
}

impl<T> CanWrite<T> {
    /// What may be changed.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// Who may change it.
    pub fn actor(&self) -> Actor {
        self.actor
    }

    /// Whom the work is charged to: the organization at the top of what may be changed; none: Isobar itself.
    pub fn tenant(&self) -> Option<OrganizationId> {
        self.tenant
    }

    /// This permit, with the work charged to whom the thing belongs.
    #[must_use]
    pub fn charged_to(self, lineage: &Lineage) -> Self {
        Self { tenant: Some(lineage.top()), ..self }
    }

    /// Who may change a thing may see it.
    pub fn reading(&self) -> CanRead<T>
    where
        T: Clone,
    {
        CanRead { target: self.target.clone(), tenant: self.tenant }
    }
}

/// The right to list what lies in part of the organization tree. Only this module makes one.
#[derive(Clone, Debug)]
pub struct CanList {
    scope: Scope,
}

/// A part of the organization tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    Everything,
    /// From `base` down, at most `levels` generations deep (1: the base alone); none: the whole subtree.
    Beneath {
        /// The organization at its top.
        base: Lineage,
        /// How many generations, the base included.
        levels: Option<u32>,
    },
    /// The same, and every organization above `base`: whose shared things can be used there.
    UsableIn {
        /// The organization at the top of the part.
        base: Lineage,
        /// How many generations, the base included.
        levels: Option<u32>,
    },
}

impl CanList {
    /// The part of the tree.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

/// Why access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Out of reach: it must look as if it did not exist.
    Hidden,
    /// Within reach, but the role is too low.
    Role(Action),
    /// Within reach of the user, but not of the API key that it comes with; the reason, in words.
    Key(&'static str),
}

impl Refusal {
    /// The refusal as the caller hears it; `noun` is what it asked for.
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

/// May a caller, which sees a thing or not, do `action` with it?
fn decide(caller: &Caller, action: Action, is_seen: bool) -> Result<(), Refusal> {
    match is_seen {
        false => Err(Refusal::Hidden),
        true if caller.role < action.minimum_role() => Err(Refusal::Role(action)),
        true => Ok(()),
    }
}

/// May `caller` see `target`, which belongs to `lineage`?
pub fn read<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanRead<T>, Refusal> {
    decide(caller, action, caller.reaches(lineage))?;
    Ok(CanRead { target, tenant: Some(lineage.top()) })
}

/// May `caller` do `action`, which changes `target`, which belongs to `lineage`?
pub fn write<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanWrite<T>, Refusal> {
    decide(caller, action, caller.reaches(lineage))?;
    Ok(CanWrite { target, actor: Actor::User(caller.user), tenant: Some(lineage.top()) })
}

/// Projects are also readable from organizations beneath their own.
pub fn read_shared<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanRead<T>, Refusal> {
    decide(caller, action, caller.reaches(lineage) || caller.lineage.contains(lineage.own()))?;
    Ok(CanRead { target, tenant: Some(lineage.top()) })
}

/// As [`write`], for a thing that organizations beneath its own can see: from there it is 403, not 404.
pub fn write_shared<T>(caller: &Caller, action: Action, target: T, lineage: &Lineage) -> Result<CanWrite<T>, Refusal> {
    if !caller.reaches(lineage) {
        let visible = caller.lineage.contains(lineage.own());
        return Err(if visible { Refusal::Role(action) } else { Refusal::Hidden });
    }
    write(caller, action, target, lineage)
}

/// A user and its own profile, password, image, keys and notifications: no rank is needed.
pub fn own(caller: &Caller) -> CanWrite<UserId> {
    CanWrite { target: caller.user, actor: Actor::User(caller.user), tenant: Some(caller.lineage.top()) }
}

/// A change of who is let in, and as what.
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

/// May `caller`, whose rank allows it, change the account of `user`? An API key with a role of its own changes nobody's role or
/// password, makes no key, and ends none but itself; it leaves its user where it is. One with an end makes its user nothing
/// that would outlive it.
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

/// May `caller` list what belongs to `base` and `levels` generations from it?
pub fn list(caller: &Caller, action: Action, base: &Lineage, levels: Option<u32>) -> Result<CanList, Refusal> {
    decide(caller, action, caller.reaches(base))?;
    Ok(CanList { scope: Scope::Beneath { base: base.clone(), levels } })
}

/// May `caller` list what belongs to `base` and `levels` generations from it, and what organizations above `base` share with
/// it? Those between the caller and the base are in reach, those above the caller share with it too.
pub fn list_shared(caller: &Caller, action: Action, base: &Lineage, levels: Option<u32>) -> Result<CanList, Refusal> {
    decide(caller, action, caller.reaches(base))?;
    Ok(CanList { scope: Scope::UsableIn { base: base.clone(), levels } })
}

/// A device with its own token may see and write its own things.
pub fn device(device: DeviceRef) -> CanWrite<DeviceRef> {
    CanWrite { target: device, actor: Actor::Device(device.id), tenant: None }
}

/// What a user was allowed to do, and was told is done, is carried out in its name.
pub fn accepted<T>(user: UserId, target: T) -> CanWrite<T> {
    CanWrite { target, actor: Actor::User(user), tenant: None }
}

/// Isobar acts by itself; the reason can be found with grep.
pub fn system<T>(target: T, reason: &'static str) -> CanWrite<T> {
    CanWrite { target, actor: Actor::System(reason), tenant: None }
}

/// Isobar lists everything by itself, for the reason given.
pub fn system_list(_reason: &'static str) -> CanList {
    CanList { scope: Scope::Everything }
}

/// The table of roles and actions, as text for a snapshot.
pub fn table() -> String {
    let mut lines = vec![format!("{:32}{}", "", Role::ALL.map(|role| format!("{:>14}", role.name())).concat())];
    for action in Action::ALL {
        let marks = Role::ALL.map(|role| format!("{:>14}", if role >= action.minimum_role() { "yes" } else { "-" }));
        lines.push(format!("{:32}{}", action.name(), marks.concat()));
    }
    lines.join("\n")
}
