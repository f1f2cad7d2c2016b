//! Registers, creates, lists and reads users, and creates the first administrator.

use std::net::IpAddr;

use isobar_model::access::{self, Action, Caller};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{OrganizationId, UserId};
use isobar_model::page::{ListRequest, Page};
use isobar_model::role::Role;
use isobar_model::user::{NewUser, User};
use isobar_store::registry::{NewOrganization, NewUserRow, Purpose};

use crate::error::{ORGANIZATION, naming};
use crate::identity::authentication::{Accepts, Credentials};
use crate::identity::hash_queue::HashedFor;
use crate::identity::operator::made_up;
use crate::{Hub, TreeQuery};

/// Username of the first administrator (contract: Authentication).
const FIRST_ADMINISTRATOR: &str = "admin";
/// Name of the first organization (contract: Authentication).
const FIRST_ORGANIZATION: &str = "Root";

/// Allows roles up to the caller's own rank (contract: Roles and reach).
pub(crate) fn may_give(rank: Role, role: Role) -> Result<()> {
    if role <= rank {
        return Ok(());
    }
    Err(Error::Forbidden(format!("a {} may not give the role {}", rank.name(), role.name())))
}

impl Hub {
    /// Creates the first administrator if there is no user yet; returns the password if it was generated.
    pub(crate) async fn found_first_administrator(&self) -> Result<Option<String>> {
        if !self.registry().is_empty().await? {
            return Ok(None);
        }
        let chosen = self.0.env.config().admin_password.clone();
        let made_up = chosen.is_none().then(|| made_up(self.0.env.chance()));
        let password = chosen.or_else(|| made_up.clone()).unwrap_or_default();
        let row = NewUserRow {
            id: UserId(self.0.env.new_id().0),
            username: FIRST_ADMINISTRATOR.to_owned(),
            email: "admin@localhost".to_owned(),
            role: Role::SystemAdmin,
            first_name: "System".to_owned(),
            last_name: "Administrator".to_owned(),
            company: FIRST_ORGANIZATION.to_owned(),
            password_hash: Some(self.0.identity.password_hash(password, HashedFor::System).await?),
            tos_hash: None,
            language: None,
            // There is no other user who could verify it.
            verified: true,
            welcome: None,
        };
        let permit = access::system(None, "the first start founds the first organization");
        let organization = self.new_organization(FIRST_ORGANIZATION.to_owned());
        match self.registry().account_found(&permit, organization, row, self.now()).await {
            Ok(_) => Ok(made_up),
            // Another process on the same registry was faster, and has shown its password.
            Err(isobar_store::error::StoreError::Taken { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn new_organization(&self, name: String) -> NewOrganization {
        NewOrganization {
            id: OrganizationId(self.0.env.new_id().0),
            name,
            description: None,
            children_inherit_dashboard: false,
            device_table: None,
        }
    }

    async fn user_row(&self, new: NewUser, who: HashedFor) -> Result<NewUserRow> {
        let password_hash = match new.password {
            Some(password) => Some(self.0.identity.password_hash(password, who).await?),
            None => None,
        };
        let id = UserId(self.0.env.new_id().0);
        let letter = self.0.env.new_id().to_string();
        let welcome = self.0.delivery.link_letter(letter, id, &new.email, Purpose::Verify);
        Ok(NewUserRow {
            id,
            username: new.username,
            email: new.email,
            role: new.role,
            first_name: new.first_name,
            last_name: new.last_name,
            company: new.company,
            password_hash,
            tos_hash: new.tos_hash,
            language: new.language,
            verified: false,
            welcome: Some(welcome),
        })
    }

    /// Checks that registration is open; with an organization, that the caller may create users of that role.
    ///
    /// # Errors
    /// `Unauthenticated`: registration is closed, or the caller may not create users. `Forbidden`: the role is above
    /// the caller's.
    pub async fn allow_registration(
        &self,
        credentials: &Credentials<'_>,
        with_organization: bool,
        role: Option<Role>,
    ) -> Result<()> {
        if !self.0.env.config().registration_open {
            return Err(Error::Unauthenticated);
        }
        if with_organization {
            let principal = self.0.identity.authenticate(credentials, Accepts::User).await?;
            self.allow_user_of(principal.user()?, role).await?;
        }
        Ok(())
    }

    /// Checks that the caller may create users, of this role if it is already known.
    ///
    /// # Errors
    /// `Forbidden`: the caller's role is too low.
    pub async fn allow_user_of(&self, caller: &Caller, role: Option<Role>) -> Result<()> {
        self.0.identity.allow(caller, Action::UserCreate).await?;
        role.map_or(Ok(()), |role| may_give(caller.role, role))
    }

    /// Registers a user. Without an organization it gets a new one, named after its company; with one, the caller must
    /// be a user who may create that user there.
    ///
    /// Needs no permit, or `UserCreate` on the named organization. Durable when this returns, together with the e-mail
    /// that verifies the address. Waits for a slot among the hashes.
    ///
    /// # Errors
    /// `Unauthenticated`: registration is closed. `Invalid`: all faults, including names that are taken.
    pub async fn user_register(&self, credentials: &Credentials<'_>, new: NewUser, address: IpAddr) -> Result<User> {
        if !self.0.env.config().registration_open {
            return Err(Error::Unauthenticated);
        }
        if new.organization.is_some() {
            let principal = self.0.identity.authenticate(credentials, Accepts::User).await?;
            return self.user_create(principal.user()?, new).await;
        }
        if new.role == Role::SystemAdmin {
            return Err(Error::invalid("role", "may not be asked for"));
        }
        let id = self.0.identity.founded_from(address);
        let organization = NewOrganization { id, ..self.new_organization(new.company.clone()) };
        let row = self.user_row(new, HashedFor::address(address)).await?;
        let permit = access::system(None, "registration founds the user's own organization");
        let made = self.registry().account_found(&permit, organization, row, self.now()).await?;
        self.0.delivery.wake_mail();
        Ok(made)
    }

    /// Fetches the caller itself.
    ///
    /// Each user reads itself.
    pub async fn user_current(&self, caller: &Caller) -> Result<User> {
        self.user_fetch(caller, caller.user).await
    }

    /// Creates a user within the caller's reach, up to the caller's own rank.
    ///
    /// Needs `UserCreate` on the organization. Durable when this returns, together with the e-mail that verifies the
    /// address. Waits for a slot among the hashes.
    ///
    /// # Errors
    /// `Forbidden`: the role is above the caller's. `Invalid`: all faults, including names that are taken.
    pub async fn user_create(&self, caller: &Caller, new: NewUser) -> Result<User> {
        self.allow_user_of(caller, Some(new.role)).await?;
        let (permit, _) = self.0.identity.owner_permit(caller, new.organization, Action::UserCreate).await?;
        let row = self.user_row(new, HashedFor::Tenant(caller.lineage.top())).await?;
        let made = self.registry().user_create(&permit, row, self.now()).await.map_err(naming(&[ORGANIZATION]))?;
        self.0.delivery.wake_mail();
        Ok(made)
    }

    /// Lists users.
    ///
    /// Needs `UserRead` on that part of the tree.
    pub async fn user_list(&self, caller: &Caller, tree: TreeQuery, list: ListRequest) -> Result<Page<User>> {
        let permit = self.0.identity.list_permit(caller, tree, Action::UserRead).await?;
        let page = self.registry().user_list(&permit, &list).await?;
        Ok(page.map(|user| self.as_last_seen(user)))
    }

    /// Fetches a user.
    ///
    /// Needs `UserRead`; each user reads itself.
    pub async fn user_fetch(&self, caller: &Caller, id: UserId) -> Result<User> {
        let permit = self.0.identity.user_write(caller, id, Action::UserRead).await?.reading();
        let found = self.registry().user_fetch(&permit).await?.ok_or(Error::Missing("user"))?;
        Ok(self.as_last_seen(found))
    }

    /// Adds the time of the last call to a user, if the registry does not know it yet.
    pub(crate) fn as_last_seen(&self, user: User) -> User {
        User { last_active: user.last_active.max(self.0.activity.of_user(user.id)), ..user }
    }
}
