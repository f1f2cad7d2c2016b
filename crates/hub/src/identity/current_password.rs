//! Checks the current password of a user who sets a new one (contract: Authentication).

use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::user::User;

use super::Identity;
use super::hash_queue::HashedFor;

/// The member of the body with the current password.
const CURRENT_PASSWORD: &str = "currentPassword";

impl Identity {
    /// Refuses a wrong password, with the delays and limits of a login. Failures count for logins too.
    pub(crate) async fn check_current_password(
        &self,
        user: &User,
        password: String,
        who: HashedFor,
        address: IpAddr,
    ) -> Result<()> {
        self.attempts.check_account(user.id, address, self.env.now()).await?;
        let record = self.env.registry().login_by_name(&user.username).await?;
        let hash = record.filter(|record| record.user == user.id).and_then(|record| record.password_hash);
        let is_right = self.passwords.verify(password, hash, who).await?;
        // Other attempts may have failed while this one waited for a slot: many concurrent guesses are limited too.
        let now = self.env.now();
        self.attempts.check_account(user.id, address, now).await?;
        if is_right {
            return Ok(());
        }
        self.attempts.failed(&user.username, Some(user.id), address, now).await?;
        Err(Error::invalid(CURRENT_PASSWORD, "is not the password of this account"))
    }
}
