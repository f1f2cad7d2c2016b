//! Settings as a support bundle shows them. What is not named here as public is masked, so that a new setting cannot leak.

use std::fmt;

use toml::Value;

use super::layers::Layers;

/// Stands in place of a secret.
pub const MASK: &str = "***";
/// Settings whose values are shown as they are.
const PUBLIC: [&str; 30] = [
    "backup.encrypt_to",
    "backup.identity",
    "backup.keep",
    "backup.s3_region",
    "backup.schedule",
    "backup.target",
    "data",
    "http.acme_domains",
    "http.cors_origins",
    "http.max_body_bytes",
    "http.max_connections",
    "http.operations_listen",
    "http.threads",
    "http.tls_certificate",
    "http.tls_key",
    "http.trusted_proxies",
    "listen",
    "log",
    "mail.account_hour",
    "mail.from",
    "mail.tenant_hour",
    "observability.otlp_sample_ratio",
    "outgoing.allow",
    "queue.max_events",
    "rate_limit.address",
    "rate_limit.device",
    "rate_limit.user",
    "registration.mode",
    "registration.require_verified_email",
    "stores.needs_syncs",
];
/// Settings that are addresses, which are shown without user, password and query.
const ADDRESSES: [&str; 7] = [
    "backup.s3_endpoint",
    "http.acme_directory",
    "mail.smtp_url",
    "observability.otlp_endpoint",
    "public_url",
    "stores.registry",
    "stores.telemetry",
];
/// Shortest secret that is also looked for in other texts, in bytes. A shorter one would be found in any word.
const SECRET_BYTES_MIN: usize = 4;

/// All settings without their secrets, and the secrets.
#[derive(Clone, Default)]
pub struct ShownSettings {
    /// A line for each setting: name, value and source.
    pub text: String,
    /// Texts that must not occur anywhere else, the longest first.
    pub secrets: Vec<String>,
}

impl fmt::Debug for ShownSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownSettings").finish_non_exhaustive()
    }
}

impl ShownSettings {
    pub(super) fn of(layers: &Layers) -> Self {
        let mut shown = Self::default();
        for (name, value, place) in layers.values() {
            let value = shown.value(name, value);
            shown.text.push_str(&format!("{name} = {value} ({})\n", place.unwrap_or("default")));
        }
        shown.secrets.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        shown.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        shown.secrets.dedup();
        shown
    }

    /// Returns what is shown of a value, and remembers what is not.
    fn value(&mut self, name: &str, value: &Value) -> String {
        match value {
            _ if PUBLIC.contains(&name) => value.to_string(),
            Value::String(text) if text.is_empty() => value.to_string(),
            Value::String(text) if ADDRESSES.contains(&name) => {
                // The environment separates the addresses of a list by commas.
                let parts = text.split(',').map(|part| self.address(part.trim())).collect::<Vec<_>>();
                format!("{:?}", parts.join(","))
            }
            Value::String(text) => {
                self.remember(text);
                format!("{MASK:?}")
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.value(name, item)).collect::<Vec<_>>();
                format!("[{}]", items.join(", "))
            }
            _ => format!("{MASK:?}"),
        }
    }

    /// Remembers a secret, and its parts: `authorization=Bearer TOKEN`.
    fn remember(&mut self, text: &str) {
        let value = text.split_once('=').map_or(text, |(_, value)| value);
        let last = value.rsplit(' ').next().unwrap_or(value);
        self.secrets.extend([text, value, last].map(str::to_owned));
    }

    /// Returns an address without user, password and query. What cannot be told apart is masked as a whole.
    fn address(&mut self, text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text.split_once(':') {
                Some(("sqlite" | "rocksdb", path)) if !path.contains(['?', '@']) => text.to_owned(),
                _ => self.masked(text),
            };
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
        // A password with an unescaped sign of these ends the authority early.
        if path.contains('@') || !is_scheme {
            return self.masked(text);
        }
        let host = authority.rsplit_once('@').map_or_else(
            || authority.to_owned(),
            |(user, host)| {
                self.remember_password(user);
                format!("{MASK}@{host}")
            },
        );
        match path.split_once(['?', '#']) {
            None => format!("{scheme}://{host}{path}"),
            Some((path, query)) => {
                query.split('&').for_each(|pair| self.remember(pair));
                format!("{scheme}://{host}{path}?{MASK}")
            }
        }
    }

    fn masked(&mut self, text: &str) -> String {
        self.remember(text);
        MASK.to_owned()
    }

    /// Remembers the password of `USER:PASSWORD`, as it is written and as it is meant.
    fn remember_password(&mut self, user: &str) {
        let password = user.split_once(':').map_or(user, |(_, password)| password);
        let encoded = format!("={}", password.replace('+', "%2B").replace('&', "%26"));
        let meant = url::form_urlencoded::parse(encoded.as_bytes()).map(|(_, value)| value.into_owned());
        self.secrets.extend(meant.chain([password.to_owned(), user.to_owned()]));
    }
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::super::DEFAULT_FILE;
    use super::*;

    #[test]
    fn address_is_shown_without_what_is_secret() {
        for (address, expected) in [
            ("postgres://db.example/isobar", "postgres://db.example/isobar"),
            ("postgres://isobar:p%40ss@db.example:5432/isobar", "postgres://***@db.example:5432/isobar"),
            ("postgres://isobar:p@ss@db.example/isobar", "postgres://***@db.example/isobar"),
            ("postgres://isobar:pa/ss@db.example/isobar", "***"),
            ("postgres://isobar:12?ss@db.example/isobar", "***"),
            ("postgres://db.example/isobar?password=pass", "postgres://db.example/isobar?***"),
            ("postgres://db.example/isobar#pass", "postgres://db.example/isobar?***"),
            ("smtps://token:token@mail.example:465", "smtps://***@mail.example:465"),
            ("sqlite:/var/lib/isobar/registry.db", "sqlite:/var/lib/isobar/registry.db"),
            ("rocksdb:telemetry", "rocksdb:telemetry"),
            ("isobar:pass@db.example", "***"),
            ("pass", "***"),
        ] {
            assert_eq!(ShownSettings::default().address(address), expected, "{address}");
        }
    }

    #[test]
    fn setting_that_nobody_declared_public_is_masked() {
        let defaults: Table = format!("new = ''\n{DEFAULT_FILE}").parse().unwrap();
        let mut layers = Layers::over(&defaults);
        let names: Vec<String> = layers.values().map(|(name, ..)| name.to_owned()).collect();
        let variable = |name: &String| format!("ISOBAR_{}", name.to_uppercase().replace('.', "__"));
        layers.environment(names.iter().map(|name| (variable(name), "telltale".to_owned())));
        let shown = ShownSettings::of(&layers);
        for line in shown.text.lines() {
            let (name, value) = line.split_once(" = ").unwrap();
            assert_eq!(value.contains("telltale"), PUBLIC.contains(&name), "{line}");
        }
        let is_setting = |name: &&str| names.iter().any(|setting| setting == name);
        assert!(PUBLIC.iter().chain(&ADDRESSES).all(is_setting), "{names:?}");
        assert!(shown.text.contains("new = \"***\"") && !format!("{shown:?}").contains("telltale"));
    }

    #[test]
    fn parts_of_a_secret_are_secrets() {
        let mut shown = ShownSettings::default();
        shown.address("postgres://isobar:p%40ss%2Fword@db.example/isobar?sslpassword=another");
        shown.value("observability.otlp_headers", &Value::String("authorization=Bearer TOKEN".to_owned()));
        for secret in ["p%40ss%2Fword", "p@ss/word", "another", "Bearer TOKEN", "TOKEN"] {
            assert!(shown.secrets.iter().any(|known| known == secret), "{secret} in {:?}", shown.secrets);
        }
    }
}
