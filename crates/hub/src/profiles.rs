//! Changes of users that are there: their profile, rank, place and password, and their end (contract: Roles and reach).

use isobar_model::access::{self, Action, Caller, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{OrganizationId, UserId};
use isobar_model::role::Role;
use isobar_model::user::User;
use isobar_model::user_input::UserInput;
use isobar_store::registry::{NewPassword, UserChange};

use crate::Hub;
use crate::account_notices::AccountNotice;
use crate::accounts::may_give;
use crate::error::{ORGANIZATION, Told as _};

impl Hub {
    /// Changes a user: oneself, or one of at most one's own rank.
    pub async fn user_update(&self, caller: &Caller, id: UserId, mut input: UserInput) -> Result<User> {
        let pass = self.user_write(caller, id, Action::UserUpdate).await?;
        let _turn = self.0.changes.turn(id.0).await;
        let present = self.0.registry.user_fetch(&pass.reading()).await.told()?.ok_or(Error::Missing("user"))?;
        let disables = input.disabled.is_some_and(|disabled| disabled != present.disabled);
        let moves = input.organization.filter(|organization| *organization != present.organization);
        if disables {
            self.user_write(caller, id, Action::UserDisable).await?;
        }
        if moves.is_some() {
            // Whoever may change its own profile may not choose its own place by that.
            self.allow(caller, Action::UserUpdate).await?;
        }
        // Whoever changes itself may have been changed since it was let in.
        let own = id == caller.user;
        if own && present.disabled {
            return Err(Error::Unauthenticated);
        }
        if input.role != present.role {
            may_give(if own { present.role } else { caller.role }, input.role)?;
        }
        let mut faults = Faults::new();
        for name in input.renamed(&present) {
            faults.add(name, "may not be changed");
        }
        if disables && id == caller.user {
            faults.add("disabled", "you may not disable yourself");
        }
        if let Some(organization) = moves {
            faults.gather(self.new_place(caller, organization).await)?;
        }
        faults.end()?;
        let password = match input.password.take() {
            None => None,
            Some(password) => {
                let hash = self.0.passwords.hash(password, &self.0.chance).await?;
                // Who sets its own password stays where it is.
                Some(NewPassword { hash, keeps: caller.session.filter(|_| id == caller.user) })
            }
        };
        self.user_change(&pass, present, input, moves, password).await
    }

    /// Whether the caller may change a user, and give it this role if it is known already.
    pub async fn allow_user_update(&self, caller: &Caller, id: UserId, role: Option<Role>) -> Result<()> {
        let pass = self.user_write(caller, id, Action::UserUpdate).await?;
        let present = self.0.registry.user_fetch(&pass.reading()).await.told()?.ok_or(Error::Missing("user"))?;
        role.filter(|role| *role != present.role).map_or(Ok(()), |role| may_give(caller.role, role))
    }

    /// A user goes only where the caller reaches.
    async fn new_place(&self, caller: &Caller, organization: OrganizationId) -> Result<()> {
        let unknown = || Error::invalid("organizationId", "no such organization");
        let lineage = self.lineage_of(organization).await?.ok_or_else(unknown)?;
        access::write(caller, Action::UserUpdate, organization, &lineage).map(|_| ()).map_err(|_| unknown())
    }

    /// Writes a change that was found to be in order, and lets everybody know whom it concerns.
    async fn user_change(
        &self,
        pass: &CanWrite<UserId>,
        present: User,
        input: UserInput,
        moves: Option<OrganizationId>,
        password: Option<NewPassword>,
    ) -> Result<User> {
        let (id, former_role, reason) = (present.id, present.role, input.reason.clone());
        let organization = moves.unwrap_or(present.organization);
        let new_password = password.is_some();
        let user = input.over(present);
        let change = UserChange {
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
        };
        let changed = self.0.registry.user_update(pass, &change, self.0.clock.now()).await;
        let changed = changed.told_naming(&[ORGANIZATION])?;
        self.account_changed(id);
        if new_password {
            self.account_notice(id, AccountNotice::PasswordChanged).await;
        }
        if changed.role != former_role {
            self.account_notice(id, AccountNotice::RoleChanged { role: changed.role }).await;
        }
        Ok(self.as_last_seen(changed))
    }

    /// Deletes a user, who is refused from the next call on.
    pub async fn user_delete(&self, caller: &Caller, id: UserId) -> Result<()> {
        let pass = self.user_write(caller, id, Action::UserDelete).await?;
        if id == caller.user {
            return Err(Error::invalid("id", "you may not delete yourself"));
        }
        self.0.registry.user_delete(&pass).await.told()?;
        self.account_changed(id);
        self.api_keys_changed();
        Ok(())
    }
}
