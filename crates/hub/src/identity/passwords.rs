//! Hashes passwords with Argon2id on a few low-priority threads, so that a flood of logins slows only logins, and among
//! these only those from the flood's own origin ([`hash_queue`]).

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use isobar_model::chance::Chance;
use isobar_model::error::{Error, Result};
use isobar_threads::GivingThreads;

use super::hash_queue::{HashedFor, hash_queue};
use isobar_quota::{Claim, FairQueue, limits};

/// Name of the hashing threads.
const HASH_THREAD: &str = "isobar-password";

/// Hash to verify if there is no account, so that the time does not reveal its absence: a hash with the usual
/// parameters that matches no password.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Makes and checks password hashes.
pub(crate) struct Passwords {
    queue: FairQueue<HashedFor>,
    threads: GivingThreads,
}

impl Passwords {
    pub(crate) fn new() -> Result<Self> {
        let threads = GivingThreads::new(HASH_THREAD, limits::PASSWORD_HASHES.at_once).map_err(Error::internal)?;
        Ok(Self { queue: hash_queue(), threads })
    }

    /// Hashes a new password.
    pub(crate) async fn hash(&self, password: String, who: HashedFor, chance: &Chance) -> Result<String> {
        let salt = chance.bits_256();
        self.in_slot(who, move || hash(password.as_bytes(), &salt)).await?
    }

    /// Returns true if the password matches the hash; takes as long if there is no hash.
    pub(crate) async fn verify(&self, password: String, known: Option<String>, who: HashedFor) -> Result<bool> {
        let exists = known.is_some();
        let expected = known.unwrap_or_else(|| DECOY.to_owned());
        let verify = move || Argon2::default().verify_password(password.as_bytes(), expected.as_str()).is_ok();
        Ok(self.in_slot(who, verify).await? && exists)
    }

    /// Runs work in a slot of its own. Started work occupies its slot even if its caller is gone.
    async fn in_slot<T: Send + 'static>(&self, who: HashedFor, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let slot = self.queue.take(Claim::begin(who)).await?;
        let work = move || {
            let _turn = slot;
            work()
        };
        self.threads.spawn(work).await.map_err(Error::internal)
    }
}

fn hash(password: &[u8], salt: &[u8]) -> Result<String> {
    let hash = Argon2::default().hash_password_with_salt(password, &salt[..16]);
    hash.map(|hash| hash.to_string()).map_err(|error| Error::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Holds: c3.passwords
    #[tokio::test]
    async fn hash_matches_its_own_password_only() {
        let (passwords, chance) = (Passwords::new().unwrap(), Chance::from_seed(1));
        let hash = passwords.hash("correct horse".to_owned(), HashedFor::System, &chance).await.unwrap();
        let verify = async |password: &str, hash| passwords.verify(password.to_owned(), hash, HashedFor::System).await;
        assert!(verify("correct horse", Some(hash.clone())).await.unwrap());
        assert!(!verify("battery staple", Some(hash)).await.unwrap());
        assert!(!verify("correct horse", None).await.unwrap());
    }

    // Holds: c3.alike
    #[tokio::test]
    async fn decoy_costs_as_much_as_a_real_hash() {
        let passwords = Passwords::new().unwrap();
        let real = passwords.hash("x".to_owned(), HashedFor::System, &Chance::from_seed(1)).await.unwrap();
        let parameters = |hash: &str| hash.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parameters(DECOY), parameters(&real));
        assert_eq!(DECOY.len(), real.len());
    }
}
