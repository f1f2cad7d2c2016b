//! Links in e-mails: they verify an address, and let a user set a new password (contract: Authentication).

use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::secret::Digest;
use isobar_model::user_input::ResetInput;
use isobar_store::registry::{LoginRecord, Purpose};

use crate::Hub;
use crate::delivery::emails::Letter;
use crate::error::Told as _;
use crate::identity::account_notices::AccountNotice;

const VERIFICATION: &str = "verification link";

impl Hub {
    /// Verifies the e-mail address that a link was sent to; where its reader goes from here.
    pub async fn user_verify(&self, nonce: &str) -> Result<String> {
        let verified =
            self.0.registry.account_verify(&Digest::of(nonce.as_bytes()), self.0.clock.now()).await.told()?;
        verified.ok_or(Error::Missing(VERIFICATION))?;
        Ok(self.verified_place())
    }

    /// Where such a link leads, for one who looks and does not follow it: that is no use of it.
    pub async fn verification_look(&self, nonce: &str) -> Result<String> {
        let digest = Digest::of(nonce.as_bytes());
        let is_open = self.0.registry.nonce_is_open(Purpose::Verify, &digest, self.0.clock.now()).await.told()?;
        if is_open { Ok(self.verified_place()) } else { Err(Error::Missing(VERIFICATION)) }
    }

    fn verified_place(&self) -> String {
        format!("{}/?verified=1", self.0.settings.public_url)
    }

    /// Sends another link to verify an account's address; the older one ends. There is nothing to do where it is verified.
    pub async fn verification_send(&self, name: &str) -> Result<()> {
        let account = self.account_named(name).await?;
        if account.verified {
            return Ok(());
        }
        self.send_link(account, Purpose::Verify).await
    }

    /// Sends a link to set a new password; an older one ends.
    pub async fn reset_send(&self, name: &str) -> Result<()> {
        let account = self.account_named(name).await?;
        self.send_link(account, Purpose::Reset).await
    }

    /// Sets a new password by what a link carried. Every session of the user ends.
    pub async fn password_reset(&self, input: ResetInput) -> Result<()> {
        let (registry, digest) = (&self.0.registry, Digest::of(input.token.as_bytes()));
        let bad = || Error::invalid("token", "is unknown, used up or too old");
        // Looked at first: whoever makes tokens up costs no hash.
        if !registry.nonce_is_open(Purpose::Reset, &digest, self.0.clock.now()).await.told()? {
            return Err(bad());
        }
        let hash = self.0.passwords.hash(input.password, &self.0.chance).await?;
        let user = registry.password_reset(&digest, &hash, self.0.clock.now()).await.told()?.ok_or_else(bad)?;
        self.account_changed(user);
        self.account_notice(user, AccountNotice::PasswordChanged).await;
        Ok(())
    }

    async fn account_named(&self, name: &str) -> Result<LoginRecord> {
        self.0.registry.login_by_name(name).await.told()?.ok_or(Error::Missing("account"))
    }

    async fn send_link(&self, account: LoginRecord, purpose: Purpose) -> Result<()> {
        let (user, now) = (account.user, self.0.clock.now());
        // Who asks too often hears the same and gets no e-mail: the link of the last one is still good.
        if account.disabled || !self.0.link_quota.spend((user, purpose), now) {
            tracing::info!(%user, ?purpose, "no link is sent: the account is disabled, or was sent several just now");
            return Ok(());
        }
        let pass = access::system(user, "a link goes to the user's own address");
        let Some(found) = self.0.registry.user_fetch(&pass.reading()).await.told()? else {
            return Err(Error::Missing("account"));
        };
        let letter = match purpose {
            Purpose::Verify => Letter::Verification { user },
            Purpose::Reset => Letter::Reset { user },
        };
        let delivery = self.mail(self.new_id().to_string(), &found.email, letter);
        self.0.registry.nonce_ask(&pass, purpose, &delivery, now).await.told()?;
        self.0.deliveries.wake();
        Ok(())
    }
}
