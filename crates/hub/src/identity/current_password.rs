//! The password of today, beside which somebody sets a new one of its own (contract: Authentication).

use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::user::User;

use super::Identity;
use super::hash_line::HashedFor;

/// The member of a body that carries it.
const CURRENT_PASSWORD: &str = "currentPassword";

impl Identity {
    /// Refuses what is not the user's password, as slowly and as seldom as a login does. Failures count for logins too.
    pub(crate) async fn check_current_password(
        &self,
        user: &User,
        password: String,
        who: HashedFor,
        address: IpAddr,
    ) -> Result<()> {
        self.throttle.check_account(user.id, address, self.env.now())?;
        let record = self.env.registry().login_by_name(&user.username).await?;
        let hash = record.filter(|record| record.user == user.id).and_then(|record| record.password_hash);
        let is_right = self.passwords.verify(password, hash, who).await?;
        // Others may have failed while this one waited for a slot: whoever guesses many at once learns no more.
        let now = self.env.now();
        self.throttle.check_account(user.id, address, now)?;
        if is_right {
            return Ok(());
        }
        self.throttle.failed(&user.username, Some(user.id), address, now);
        Err(Error::invalid(CURRENT_PASSWORD, "is not the password of this account"))
    }
}
