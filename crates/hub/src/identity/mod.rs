//! Who calls, how often, and what it may do: credentials, sessions, API keys, passwords, rate limits, permits.

pub(crate) mod account_notices;
pub(crate) mod api_keys;
pub(crate) mod authorization;
pub(crate) mod email_links;
pub(crate) mod operator;
pub(crate) mod passwords;
pub(crate) mod rate_limit;
pub(crate) mod sessions;
pub(crate) mod throttle;
pub(crate) mod tokens;
