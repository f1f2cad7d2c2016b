//! Handles links in e-mails: they verify an address, and let a user set a new password (contract: Authentication).

use std::net::IpAddr;

use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::secret::Digest;
use isobar_model::user_input::ResetInput;
use isobar_store::registry::{LoginRecord, Purpose};

use super::Identity;
use super::account_notices::AccountNotice;
use super::hash_queue::HashedFor;

const VERIFICATION: &str = "verification link";

impl Identity {
    /// Verifies the e-mail address that a link was sent to, and returns the page to redirect to.
    pub(crate) async fn user_verify(&self, nonce: &str) -> Result<String> {
        let verified = self.env.registry().account_verify(&Digest::of(nonce.as_bytes()), self.env.now()).await?;
        verified.ok_or(Error::Missing(VERIFICATION))?;
        Ok(self.verified_place())
    }

    /// Returns the page that a verification link redirects to without using the link up, for HEAD requests.
    pub(crate) async fn verification_look(&self, nonce: &str) -> Result<String> {
        let digest = Digest::of(nonce.as_bytes());
        let is_open = self.env.registry().nonce_is_open(Purpose::Verify, &digest, self.env.now()).await?;
        if is_open { Ok(self.verified_place()) } else { Err(Error::Missing(VERIFICATION)) }
    }

    /// Returns the page to redirect to if a link is not valid any more.
    pub(crate) fn unverified_place(&self) -> String {
        format!("{}/?verified=0", self.env.config().public_url)
    }

    fn verified_place(&self) -> String {
        format!("{}/?verified=1", self.env.config().public_url)
    }

    /// Sends another link to verify an account's address; the older one ends. A verified address gets no link.
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

    /// Sets a new password with a link's token. All sessions of the user end, and what else the input
    /// lets end.
    pub(crate) async fn password_reset(&self, input: ResetInput, address: IpAddr) -> Result<()> {
        let (registry, digest) = (self.env.registry(), Digest::of(input.token.as_bytes()));
        let bad = || Error::invalid("token", "is unknown, used up or too old");
        // Checked first, so that a made-up token costs no password hash.
        if !registry.nonce_is_open(Purpose::Reset, &digest, self.env.now()).await? {
            return Err(bad());
        }
        let hash = self.password_hash(input.password, HashedFor::address(address)).await?;
        let reset = registry.password_reset(&digest, &hash, input.ends, self.env.now()).await?;
        let user = reset.ok_or_else(bad)?;
        self.caches.account_changed(user);
        if input.ends.api_keys {
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
        // A caller beyond the limit gets the same answer and no e-mail: the last link is still valid.
        if account.disabled || !self.attempts.spend_link(user, purpose, now).await? {
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
