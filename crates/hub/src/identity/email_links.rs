//! Links in e-mails: they verify an address, and let a user set a new password (contract: Authentication).

use std::net::IpAddr;

use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::secret::Digest;
use isobar_model::user_input::ResetInput;
use isobar_store::registry::{LoginRecord, Purpose};

use super::Identity;
use super::account_notices::AccountNotice;
use super::hash_line::HashedFor;

const VERIFICATION: &str = "verification link";

impl Identity {
    /// Verifies the e-mail address that a link was sent to; where its reader goes from here.
    pub(crate) async fn user_verify(&self, nonce: &str) -> Result<String> {
        let verified = self.env.registry().account_verify(&Digest::of(nonce.as_bytes()), self.env.now()).await?;
        verified.ok_or(Error::Missing(VERIFICATION))?;
        Ok(self.verified_place())
    }

    /// Where such a link leads, for one who looks and does not follow it: that is no use of it.
    pub(crate) async fn verification_look(&self, nonce: &str) -> Result<String> {
        let digest = Digest::of(nonce.as_bytes());
        let is_open = self.env.registry().nonce_is_open(Purpose::Verify, &digest, self.env.now()).await?;
        if is_open { Ok(self.verified_place()) } else { Err(Error::Missing(VERIFICATION)) }
    }

    /// Returns where somebody is led whose link holds no more.
    pub(crate) fn unverified_place(&self) -> String {
        format!("{}/?verified=0", self.env.config().public_url)
    }

    fn verified_place(&self) -> String {
        format!("{}/?verified=1", self.env.config().public_url)
    }

    /// Sends another link to verify an account's address; the older one ends. There is nothing to do where it is verified.
    pub(crate) async fn verification_send(&self, name: &str) -> Result<()> {
        let account = self.account_named(name).await?;
        if account.verified {
            return Ok(());
        }
        self.send_link(account, Purpose::Verify).await
    }

    /// Sends a link to set a new password; an older one ends.
    pub(crate) async fn reset_send(&self, name: &str) -> Result<()> {
        let account = self.account_named(name).await?;
        self.send_link(account, Purpose::Reset).await
    }

    /// Sets a new password by what a link carried. Every session of the user ends, and every API key if that is asked for.
    pub(crate) async fn password_reset(&self, input: ResetInput, address: IpAddr) -> Result<()> {
        let (registry, digest) = (self.env.registry(), Digest::of(input.token.as_bytes()));
        let bad = || Error::invalid("token", "is unknown, used up or too old");
        // Looked at first: whoever makes tokens up costs no hash.
        if !registry.nonce_is_open(Purpose::Reset, &digest, self.env.now()).await? {
            return Err(bad());
        }
        let hash = self.password_hash(input.password, HashedFor::Address(address)).await?;
        let reset = registry.password_reset(&digest, &hash, input.end_api_keys, self.env.now()).await?;
        let user = reset.ok_or_else(bad)?;
        self.caches.account_changed(user);
        if input.end_api_keys {
            self.caches.api_keys_changed();
        }
        self.account_notice(user, AccountNotice::PasswordChanged).await;
        Ok(())
    }

    async fn account_named(&self, name: &str) -> Result<LoginRecord> {
        self.env.registry().login_by_name(name).await?.ok_or(Error::Missing("account"))
    }

    async fn send_link(&self, account: LoginRecord, purpose: Purpose) -> Result<()> {
        let (user, now) = (account.user, self.env.now());
        // Who asks too often hears the same and gets no e-mail: the link of the last one is still good.
        if account.disabled || !self.link_allowance.spend((user, purpose), now) {
            tracing::info!(%user, ?purpose, "no link is sent: the account is disabled, or was sent several just now");
            return Ok(());
        }
        let permit = access::system(user, "a link goes to the user's own address");
        let Some(found) = self.env.registry().user_fetch(&permit.reading()).await? else {
            return Err(Error::Missing("account"));
        };
        let letter = self.delivery.link_letter(self.env.new_id().to_string(), user, &found.email, purpose);
        self.env.registry().nonce_ask(&permit, purpose, &letter, now).await?;
        self.delivery.wake_mail();
        Ok(())
    }
}
