//! Passwords: Argon2id, on a few threads of their own so that a flood of logins slows only logins.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use isobar_model::chance::Chance;
use isobar_model::error::{Error, Result};
use tokio::sync::Semaphore;

/// Hashes computed at the same time: each takes about 19 MiB and tens of milliseconds.
const AT_ONCE: usize = 2;
/// Requests that may wait for a hash before the next is refused.
const WAITING_MAX: usize = 256;

/// Makes and checks password hashes.
pub(crate) struct Passwords {
    at_once: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// What is checked when there is no account, so that its absence does not show in the time.
    decoy: String,
}

impl Passwords {
    pub(crate) fn new(chance: &Chance) -> Result<Self> {
        Ok(Self {
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            decoy: hash(b"decoy", &chance.bits_256())?,
        })
    }

    /// The hash of a new password.
    pub(crate) async fn hash(&self, password: String, chance: &Chance) -> Result<String> {
        let salt = chance.bits_256();
        self.compute(move || hash(password.as_bytes(), &salt)).await?
    }

    /// Whether the password is the one that was hashed; takes as long when there is no hash.
    pub(crate) async fn verify(&self, password: String, known: Option<String>) -> Result<bool> {
        let exists = known.is_some();
        let expected = known.unwrap_or_else(|| self.decoy.clone());
        let same = self
            .compute(move || Argon2::default().verify_password(password.as_bytes(), expected.as_str()).is_ok())
            .await?;
        Ok(same && exists)
    }

    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let _place = self.waiting.try_acquire().map_err(|_| Error::Busy)?;
        let permit = Arc::clone(&self.at_once).acquire_owned().await.map_err(Error::internal)?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
        .map_err(Error::internal)
    }
}

fn hash(password: &[u8], salt: &[u8]) -> Result<String> {
    let hash = Argon2::default().hash_password_with_salt(password, &salt[..16]);
    hash.map(|hash| hash.to_string()).map_err(|error| Error::internal(error.to_string()))
}
