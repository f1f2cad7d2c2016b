//! Changes existing users: profile, role, organization and password, and deletes them (contract: Roles and reach).

use std::net::IpAddr;

use isobar_model::access::{self, AccountChange, Action, Caller, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{OrganizationId, UserId};
use isobar_model::role::Role;
use isobar_model::user::User;
use isobar_model::user_input::{CredentialEnds, UserInput};
use isobar_store::registry::{Assigned, NewPassword, UserChange};

use crate::Hub;
use crate::error::{ORGANIZATION, naming};
use crate::identity::account_notices::AccountNotice;
use crate::identity::authorization::change_account;
use crate::identity::hash_queue::HashedFor;
use crate::resources::users::may_give;

impl Hub {
    /// Changes a user: the caller itself, or one of at most the caller's rank. Fields missing in the body keep their
    /// values. The change is authorized before anything costly is done, and again while the user's row is locked.
    ///
    /// Needs `UserUpdate`, and `UserDisable` to disable. Durable when this returns; the next call of the user sees it.
    /// A new password waits for a slot among the hashes. A user who changes its own password and sends the current one
    /// must send the right one.
    ///
    /// # Errors
    /// `Forbidden`: the role is above the caller's. `Invalid`: all faults of the input. `Throttled`: too many passwords
    /// were wrong.
    pub async fn user_update(
        &self,
        caller: &Caller,
        id: UserId,
        mut input: UserInput,
        address: IpAddr,
    ) -> Result<User> {
        let permit = self.0.identity.user_write(caller, id, Action::UserUpdate).await?;
        let present = self.present_user(&permit).await?;
        self.permits(caller, id, &input).await.decide(caller, &input, &present)?;
        let password = match input.password.take() {
            None => None,
            Some(password) => {
                let (identity, who) = (&self.0.identity, HashedFor::Tenant(caller.lineage.top()));
                if id == caller.user
                    && let Some(current) = input.current_password.take()
                {
                    identity.check_current_password(&present, current, who, address).await?;
                }
                let hash = identity.password_hash(password, who).await?;
                let is_own = id == caller.user;
                let ends = if is_own { input.ends } else { CredentialEnds::default() };
                // A user who sets its own password stays signed in here.
                Some(NewPassword { hash, keeps: caller.session.filter(|_| is_own), ends })
            }
        };
        let permits = self.permits(caller, id, &input).await;
        let (has_password, ends_keys) = (password.is_some(), password.as_ref().is_some_and(|new| new.ends.api_keys));
        let mut former_role = present.role;
        let decide = |present: User| {
            permits.decide(caller, &input, &present)?;
            former_role = present.role;
            Ok::<_, Error>(change(input, present, password))
        };
        let changed =
            self.registry().user_update(&permit, decide, self.now()).await.map_err(naming(&[ORGANIZATION]))??;
        self.0.caches.account_changed(id);
        self.alarms_unassign(Assigned::To(id)).await;
        if ends_keys {
            self.0.caches.api_keys_changed();
        }
        if has_password {
            self.0.identity.account_notice(id, AccountNotice::PasswordChanged).await;
        }
        if changed.role != former_role {
            self.0.identity.account_notice(id, AccountNotice::RoleChanged { role: changed.role }).await;
        }
        Ok(self.as_last_seen(changed))
    }

    /// Returns the user as it is before a change.
    async fn present_user(&self, permit: &CanWrite<UserId>) -> Result<User> {
        let present = self.registry().user_fetch(&permit.reading()).await?;
        present.ok_or(Error::Missing("user"))
    }

    /// Evaluates the caller's rights to the changes that a body may request.
    async fn permits(&self, caller: &Caller, id: UserId, input: &UserInput) -> Permits {
        let disable = match input.disabled {
            Some(_) => self.0.identity.user_write(caller, id, Action::UserDisable).await.map(|_| ()),
            None => Ok(()),
        };
        // The right to change one's own profile does not include choosing one's own organization.
        let (move_at_all, place) = match input.organization {
            Some(organization) => {
                (self.0.identity.allow(caller, Action::UserUpdate).await, self.new_place(caller, organization).await)
            }
            None => (Ok(()), Ok(())),
        };
        Permits { disable, move_at_all, place, sets_password: input.password.is_some() }
    }

    /// Checks that the caller may change a user, and give it this role if it is already known.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_user_update(&self, caller: &Caller, id: UserId, role: Option<Role>) -> Result<()> {
        let permit = self.0.identity.user_write(caller, id, Action::UserUpdate).await?;
        let present = self.present_user(&permit).await?;
        let Some(role) = role.filter(|role| *role != present.role) else { return Ok(()) };
        change_account(caller, id, AccountChange::Role)?;
        may_give(caller.role, role)
    }

    /// Checks that the caller reaches a user's new organization.
    async fn new_place(&self, caller: &Caller, organization: OrganizationId) -> Result<()> {
        let unknown = || Error::invalid("organizationId", "no such organization");
        let lineage = self.0.caches.lineage_of(organization).await?.ok_or_else(unknown)?;
        access::write(caller, Action::UserUpdate, organization, &lineage).map(|_| ()).map_err(|_| unknown())
    }

    /// Deletes a user, who is refused from the next call on.
    ///
    /// Needs `UserDelete`. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: the caller is the user itself, or it is the last administrator.
    pub async fn user_delete(&self, caller: &Caller, id: UserId) -> Result<()> {
        let permit = self.0.identity.user_write(caller, id, Action::UserDelete).await?;
        if id == caller.user {
            return Err(Error::invalid("id", "you may not delete yourself"));
        }
        self.registry().user_delete(&permit).await?;
        self.0.caches.account_changed(id);
        self.0.caches.api_keys_changed();
        self.alarms_unassign(Assigned::To(id)).await;
        Ok(())
    }
}

/// The caller's rights to change a user, as far as they do not depend on the user's row.
struct Permits {
    disable: Result<()>,
    move_at_all: Result<()>,
    place: Result<()>,
    sets_password: bool,
}

impl Permits {
    /// Decides if a body may change the user as it is.
    fn decide(self, caller: &Caller, input: &UserInput, present: &User) -> Result<()> {
        let disables = input.disabled.is_some_and(|disabled| disabled != present.disabled);
        let moves = input.organization.is_some_and(|organization| organization != present.organization);
        if disables {
            self.disable?;
        }
        if moves {
            self.move_at_all?;
        }
        // A caller who changes itself may have changed since it was authenticated.
        let own = present.id == caller.user;
        let changes = [
            (self.sets_password, AccountChange::Password),
            (input.role != present.role, AccountChange::Role),
            (moves, AccountChange::Place),
        ];
        for (_, change) in changes.into_iter().filter(|(is_asked, _)| *is_asked) {
            change_account(caller, present.id, change)?;
        }
        if own && present.disabled {
            return Err(Error::Unauthenticated);
        }
        if input.role != present.role {
            may_give(if own { present.role } else { caller.role }, input.role)?;
        }
        let mut faults = Faults::new();
        for name in input.renamed(present) {
            faults.add(name, "may not be changed");
        }
        if disables && own {
            faults.add("disabled", "you may not disable yourself");
        }
        if moves {
            faults.gather(self.place)?;
        }
        faults.end()
    }
}

/// Returns the values of a user after a change.
fn change(input: UserInput, present: User, password: Option<NewPassword>) -> UserChange {
    let organization = input.organization.unwrap_or(present.organization);
    let reason = input.reason.clone();
    let user = input.over(present);
    UserChange {
        role: user.role,
        organization,
        tos_hash: user.tos_hash,
        first_name: user.first_name,
        last_name: user.last_name,
        company: user.company,
        job_title: user.job_title,
        language: user.language,
        preferences: user.preferences,
        disabled: user.disabled,
        reason,
        password,
    }
}
