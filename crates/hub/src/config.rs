//! Configures the platform's behaviour.

use isobar_model::secret::Digest;
use isobar_store::registry::LetterBounds;

/// The configuration of the hub.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address that clients use, without a slash at its end.
    pub public_url: String,
    /// Requests a minute; 0 for no limit.
    pub rate_limit: RateLimits,
    /// True if strangers may register.
    pub registration_open: bool,
    /// True if a user must verify its e-mail address before it can log in.
    pub require_verified_email: bool,
    /// The first administrator's password, if the operator chose one.
    pub admin_password: Option<String>,
    /// E-mails that an account and a tenant may be sent in an hour.
    pub letters: LetterBounds,
    /// Internal addresses, networks and host names that designs may call nevertheless.
    pub outgoing_allow: Vec<String>,
    /// True if other processes may serve the same stores, both in PostgreSQL.
    pub has_other_nodes: bool,
    /// The name by which operators know this process among them.
    pub node_name: String,
}

impl Config {
    /// Returns a digest of what must be the same in all processes that serve one platform, with the numbers of its
    /// telemetry databases, in any order; and digests of these settings one by one, with their names.
    pub(crate) fn digests(&self, mut databases: Vec<u16>) -> (String, Vec<(String, String)>) {
        databases.sort_unstable();
        let settings = [
            ("public_url", self.public_url.clone()),
            ("mail", format!("{:?}", self.letters)),
            ("rate_limit", format!("{:?}", self.rate_limit)),
            ("registration", format!("{:?}", (self.registration_open, self.require_verified_email))),
            ("outgoing.allow", format!("{:?}", self.outgoing_allow)),
            ("stores.telemetry", format!("{databases:?}")),
        ];
        let all = digest(&format!("{settings:?}"));
        (all, settings.into_iter().map(|(name, value)| (name.to_owned(), digest(&value))).collect())
    }
}

/// Bytes of a digest of settings: enough to tell two apart.
const DIGEST_BYTES: usize = 6;

fn digest(text: &str) -> String {
    Digest::of(text.as_bytes()).0[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Requests a minute (contract: Rate limits); 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// For a user, whatever credentials it uses.
    pub user: u32,
    /// For a device with its token.
    pub device: u32,
    /// For an address without credentials.
    pub address: u32,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { user: 10_000, device: 6_000, address: 600 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            public_url: "http://127.0.0.1:8080".to_owned(),
            rate_limit: RateLimits::default(),
            registration_open: true,
            require_verified_email: false,
            admin_password: None,
            letters: LetterBounds { account_hour: 60, tenant_hour: 1_000 },
            outgoing_allow: Vec::new(),
            has_other_nodes: false,
            node_name: "isobar".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_other_ones_without_a_database() {
        let config = Config::default();
        assert_eq!(config.digests(vec![0, 1]), config.digests(vec![1, 0]));
        assert_ne!(config.digests(vec![0, 1]).0, config.digests(vec![0]).0);
    }
}
