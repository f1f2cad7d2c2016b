//! Passwords: Argon2id, on a few threads of their own so that a flood of logins slows only logins.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use isobar_model::chance::Chance;
use isobar_model::error::{Error, Result};

use crate::support::bounded_jobs::BoundedJobs;

/// Hashes computed at the same time: each takes about 19 MiB and tens of milliseconds.
const HASHES_AT_ONCE: usize = 2;
/// Requests that may wait for a hash before the next is refused.
const HASHES_WAITING_MAX: usize = 256;

/// What is checked when there is no account, so that its absence does not show in the time: a hash of the usual
/// parameters that no password has.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Makes and checks password hashes.
pub(crate) struct Passwords {
    jobs: BoundedJobs,
}

impl Passwords {
    pub(crate) fn new() -> Self {
        Self { jobs: BoundedJobs::new(HASHES_AT_ONCE, HASHES_WAITING_MAX) }
    }

    /// The hash of a new password.
    pub(crate) async fn hash(&self, password: String, chance: &Chance) -> Result<String> {
        let salt = chance.bits_256();
        self.jobs.run(move || hash(password.as_bytes(), &salt)).await?
    }

    /// Whether the password is the one that was hashed; takes as long when there is no hash.
    pub(crate) async fn verify(&self, password: String, known: Option<String>) -> Result<bool> {
        let exists = known.is_some();
        let expected = known.unwrap_or_else(|| DECOY.to_owned());
        let same = self
            .jobs
            .run(move || Argon2::default().verify_password(password.as_bytes(), expected.as_str()).is_ok())
            .await?;
        Ok(same && exists)
    }
}

fn hash(password: &[u8], salt: &[u8]) -> Result<String> {
    let hash = Argon2::default().hash_password_with_salt(password, &salt[..16]);
    hash.map(|hash| hash.to_string()).map_err(|error| Error::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_again_and_no_other() {
        let (passwords, chance) = (Passwords::new(), Chance::from_seed(1));
        let hash = passwords.hash("correct horse".to_owned(), &chance).await.unwrap();
        assert!(passwords.verify("correct horse".to_owned(), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify("battery staple".to_owned(), Some(hash)).await.unwrap());
        assert!(!passwords.verify("correct horse".to_owned(), None).await.unwrap());
    }

    #[tokio::test]
    async fn the_decoy_costs_what_a_real_hash_costs() {
        let real = Passwords::new().hash("x".to_owned(), &Chance::from_seed(1)).await.unwrap();
        let parameters = |hash: &str| hash.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parameters(DECOY), parameters(&real));
        assert_eq!(DECOY.len(), real.len());
    }
}
