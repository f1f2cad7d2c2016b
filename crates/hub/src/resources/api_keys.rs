//! Manages API keys: a user's own, or those of a user that a manager may change (contract: Authentication).

use isobar_model::access::{AccountChange, Action, Caller, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{ApiKeyId, UserId};
use isobar_model::page::{Page, PageRequest};
use isobar_model::role::Role;
use isobar_model::secret::Secret;
use isobar_model::user::{ApiKey, ApiKeyInput};

use crate::Hub;
use crate::identity::authorization::change_account;
use crate::resources::users::may_give;

/// API keys of one user, at most.
const API_KEYS_MAX: u64 = 1_000;

impl Hub {
    /// Creates an API key; the secret is shown only this once.
    ///
    /// Needs what [`Hub::allow_api_key`] says. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: the role is above the user's, or the user has 1,000 keys already.
    pub async fn api_key_create(
        &self,
        caller: &Caller,
        user: UserId,
        ApiKeyInput { name, role, expires_at }: ApiKeyInput,
    ) -> Result<(ApiKey, Secret)> {
        let permit = self.key_permit(caller, user, role).await?;
        if let Some(role) = role {
            let placed = self.registry().user_placement(user).await?;
            let (_, rank) = placed.ok_or(Error::Missing("user"))?;
            if role > rank {
                return Err(Error::invalid("role", format!("must be at most that of the user, {}", rank.name())));
            }
        }
        let secret = Secret::new(self.0.env.chance());
        let created_at = self.now();
        let id = ApiKeyId(self.0.env.new_id().0);
        let key = ApiKey { id, user, name, created_at, role, expires_at, last_used_at: None };
        let made = self.registry().api_key_create(&permit, &key, &secret.digest(), API_KEYS_MAX).await?;
        let full = || Error::invalid("body", format!("the user has {API_KEYS_MAX} API keys already"));
        if made { Ok((key, secret)) } else { Err(full()) }
    }

    /// Checks that the caller may create a key for a user, with this role if one is named.
    ///
    /// Needs `ApiKeyManage` on the user. A key with a role of its own cannot create any; an expiring key cannot create
    /// one for its own user, which would outlive it.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_api_key(&self, caller: &Caller, user: UserId, role: Option<Role>) -> Result<()> {
        self.key_permit(caller, user, role).await.map(|_| ())
    }

    async fn key_permit(&self, caller: &Caller, user: UserId, role: Option<Role>) -> Result<CanWrite<UserId>> {
        let permit = self.0.identity.user_write(caller, user, Action::ApiKeyManage).await?;
        change_account(caller, user, AccountChange::KeyCreate)?;
        role.map_or(Ok(()), |role| may_give(caller.role, role))?;
        Ok(permit)
    }

    /// Lists a user's API keys.
    ///
    /// Needs `ApiKeyManage` on the user.
    pub async fn api_key_list(&self, caller: &Caller, user: UserId, page: PageRequest) -> Result<Page<ApiKey>> {
        let permit = self.0.identity.user_write(caller, user, Action::ApiKeyManage).await?;
        let page = self.registry().api_key_list(&permit, page).await?;
        // Includes a use that the registry does not know yet.
        let as_last_used =
            |key: ApiKey| ApiKey { last_used_at: key.last_used_at.max(self.0.activity.of_api_key(key.id)), ..key };
        Ok(page.map(as_last_used))
    }

    /// Deletes an API key: it is refused from the next call on.
    ///
    /// Needs `ApiKeyManage` on the user. Durable when this returns.
    ///
    /// # Errors
    /// `Forbidden`: a key with a role of its own may delete only itself. `Missing`: there is no such key.
    pub async fn api_key_delete(&self, caller: &Caller, user: UserId, key: ApiKeyId) -> Result<()> {
        let permit = self.0.identity.user_write(caller, user, Action::ApiKeyManage).await?;
        change_account(caller, user, AccountChange::KeyDelete(key))?;
        let was_there = self.registry().api_key_delete(&permit, key).await?;
        self.0.caches.api_keys_changed();
        if was_there { Ok(()) } else { Err(Error::Missing("API key")) }
    }
}
