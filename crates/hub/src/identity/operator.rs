//! Implements commands that an operator runs while the platform is stopped (contract: The program).

use isobar_model::access;
use isobar_model::chance::Chance;
use isobar_model::error::Result;
use isobar_model::secret::Secret;
use isobar_model::time::Clock;
use isobar_store::registry::Registry;

use super::hash_queue::HashedFor;
use super::passwords::Passwords;

/// Sets a generated password for a user and ends all its sessions. Returns `None` if no user has that username or
/// e-mail address.
pub async fn reset_password(registry: &Registry, clock: &Clock, chance: &Chance, name: &str) -> Result<Option<String>> {
    let Some(account) = registry.login_by_name(name).await? else { return Ok(None) };
    let password = made_up(chance);
    let hash = Passwords::new()?.hash(password.clone(), HashedFor::System, chance).await?;
    let permit = access::system(account.user, "the operator resets the user's password");
    registry.password_set(&permit, &hash, clock.now()).await?;
    Ok(Some(password))
}

/// Generates a password to be shown once: 80 random bits, no longer than a password that a user may set.
pub(crate) fn made_up(chance: &Chance) -> String {
    Secret::new(chance).reveal()[..20].to_owned()
}
