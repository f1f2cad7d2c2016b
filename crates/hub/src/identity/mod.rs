//! Identifies callers, limits their rate, and decides what they may do: credentials, sessions, passwords, permits.

pub(crate) mod account_notices;
mod attempts;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod board_links;
pub(crate) mod current_password;
mod email_links;
pub(crate) mod hash_queue;
pub(crate) mod operator;
pub(crate) mod passwords;
mod rate_limit;
pub(crate) mod rate_shares;
pub(crate) mod resume_ids;
pub(crate) mod sessions;
mod sites;
mod throttle;
mod tokens;

use std::net::IpAddr;
use std::sync::Arc;

use isobar_model::error::{RateWindow, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;

use self::attempts::Attempts;
use self::authentication::Principal;
use self::hash_queue::HashedFor;
use self::passwords::Passwords;
use self::rate_limit::CallRates;
use self::resume_ids::ResumeIds;
use self::sites::Sites;
use self::tokens::Jwts;
use crate::cache::Caches;
use crate::delivery::Delivery;
use crate::env::Env;
use crate::metering::activity::Activity;

/// Links of one purpose sent to one account within 15 minutes, at most.
const LINKS_MAX: u32 = 5;

/// Authenticates and authorizes callers.
pub(crate) struct Identity {
    env: Arc<Env>,
    caches: Arc<Caches>,
    delivery: Arc<Delivery>,
    activity: Arc<Activity>,
    passwords: Passwords,
    tokens: Jwts,
    attempts: Attempts,
    rates: CallRates,
    sites: Sites,
    resume_ids: ResumeIds,
}

impl Identity {
    pub(crate) async fn new(
        env: Arc<Env>,
        caches: Arc<Caches>,
        delivery: Arc<Delivery>,
        activity: Arc<Activity>,
    ) -> Result<Self> {
        let signing_key = env.registry().signing_key(env.chance().bits_256()).await?;
        let now = env.now();
        let revoked = env.registry().jwts_revoked(now).await?;
        Ok(Self {
            passwords: Passwords::new()?,
            tokens: Jwts::new(&signing_key, revoked, now),
            attempts: Attempts::new(env.clone(), LINKS_MAX),
            rates: CallRates::new(&env.config().rate_limit, env.config().has_other_nodes),
            sites: Sites::new(&signing_key)?,
            resume_ids: ResumeIds::new(&signing_key)?,
            env,
            caches,
            delivery,
            activity,
        })
    }

    /// Makes the identifier of an organization founded by a registration from that address.
    pub(crate) fn founded_from(&self, address: IpAddr) -> OrganizationId {
        self.sites.of(address).founds(self.env.new_id().0)
    }

    /// Returns what makes and reads the identifiers of places in streams.
    pub(crate) fn resume_ids(&self) -> &ResumeIds {
        &self.resume_ids
    }

    /// Hashes a new password. Waits for a slot among the hashes.
    pub(crate) async fn password_hash(&self, password: String, who: HashedFor) -> Result<String> {
        self.passwords.hash(password, who, self.env.chance()).await
    }

    /// Counts a call in the window of its user, device, link or address; returns `None` if that limit is off.
    pub(crate) fn count_call(&self, principal: &Principal, address: IpAddr) -> Result<Option<RateWindow>> {
        self.rates.count_call(principal, address, self.env.now())
    }

    /// Counts further calls that one call of the caller is worth, all or none of them.
    pub(crate) fn count_further(&self, principal: &Principal, calls: u32) -> Result<Option<RateWindow>> {
        self.rates.count_further(principal, calls, self.env.now())
    }

    /// Counts a call with bad credentials; returns true if its address has sent so many that the connection should be
    /// closed.
    pub(crate) fn count_refused(&self, address: IpAddr) -> bool {
        self.rates.count_refused(address, self.env.now())
    }

    /// Refuses a token that another node has revoked, by its `jti`.
    pub(crate) fn token_revoked(&self, jti: String) {
        self.tokens.revoked_elsewhere(jti, self.env.now());
    }

    /// Removes failed log-ins, and links sent, that count no more.
    pub(crate) async fn sweep_attempts(&self, now: Timestamp) -> std::result::Result<(), StoreError> {
        self.attempts.sweep(now).await
    }

    /// Removes the revocations of expired tokens.
    pub(crate) fn forget_ended_tokens(&self, now: Timestamp) {
        self.tokens.forget_ended(now);
    }
}
