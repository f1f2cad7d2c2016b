//! API keys: a user's own, or of a user that a manager may change (contract: Authentication).

use isobar_model::access::{Action, Caller};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{ApiKeyId, UserId};
use isobar_model::page::{Page, PageRequest};
use isobar_model::secret::Secret;
use isobar_model::user::ApiKey;

use crate::Hub;
use crate::error::Told as _;

/// API keys of one user.
const API_KEYS_MAX: u64 = 1_000;

impl Hub {
    /// Makes an API key; the secret is shown this once.
    pub async fn api_key_create(&self, caller: &Caller, user: UserId, name: String) -> Result<(ApiKey, Secret)> {
        let pass = self.user_write(caller, user, Action::ApiKeyManage).await?;
        let secret = Secret::new(&self.0.chance);
        let created_at = self.0.clock.now();
        let key = ApiKey { id: ApiKeyId(self.new_id().0), user, name, created_at, last_used_at: None };
        let made = self.0.registry.api_key_create(&pass, &key, &secret.digest(), API_KEYS_MAX).await.told()?;
        let full = || Error::invalid("body", format!("the user has {API_KEYS_MAX} API keys already"));
        if made { Ok((key, secret)) } else { Err(full()) }
    }

    /// Lists a user's API keys.
    pub async fn api_key_list(&self, caller: &Caller, user: UserId, page: PageRequest) -> Result<Page<ApiKey>> {
        let pass = self.user_write(caller, user, Action::ApiKeyManage).await?;
        let page = self.0.registry.api_key_list(&pass, page).await.told()?;
        // A use that the registry does not know yet.
        let as_last_used =
            |key: ApiKey| ApiKey { last_used_at: key.last_used_at.max(self.0.activity.of_api_key(key.id)), ..key };
        Ok(page.map(as_last_used))
    }

    /// Deletes an API key: it is refused from the next call on.
    pub async fn api_key_delete(&self, caller: &Caller, user: UserId, key: ApiKeyId) -> Result<()> {
        let pass = self.user_write(caller, user, Action::ApiKeyManage).await?;
        let was_there = self.0.registry.api_key_delete(&pass, key).await.told()?;
        self.api_keys_changed();
        if was_there { Ok(()) } else { Err(Error::Missing("API key")) }
    }
}
