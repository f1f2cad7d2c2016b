//! Settings of ACME: names, contact and issuer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::layers::Layers;

/// Most names of one certificate, the limit of Let's Encrypt.
const DOMAINS_MAX: usize = 100;
/// Longest name, in bytes.
const DOMAIN_BYTES_MAX: usize = 253;
/// Longest label of a name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// `[http] acme_domains, acme_email, acme_directory`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Names in the certificate: at least one.
    pub domains: Vec<String>,
    /// Contact address for the issuer.
    pub email: Option<String>,
    /// URL of the issuer's directory.
    pub directory: String,
}

impl Acme {
    /// Reads the settings; `None` without a domain.
    pub fn read(layers: &mut Layers, has_files: bool) -> Option<Self> {
        let domains = layers.list_of("http.acme_domains", domain);
        let email = layers.parsed("http.acme_email", email).flatten();
        let directory = layers.parsed("http.acme_directory", directory).unwrap_or_default();
        if domains.is_empty() {
            if email.is_some() {
                layers.fault_of("http.acme_email", "needs http.acme_domains, the names that certificates are for");
            }
            return None;
        }
        if has_files {
            let both = "cannot be set together with http.tls_certificate: the certificate comes from one of them";
            layers.fault_of("http.acme_domains", both);
        }
        if domains.len() > DOMAINS_MAX {
            layers
                .fault_of("http.acme_domains", format!("must have at most {DOMAINS_MAX} names, not {}", domains.len()));
        }
        if domains.iter().collect::<BTreeSet<_>>().len() < domains.len() {
            layers.fault_of("http.acme_domains", "names one of them twice");
        }
        Some(Self { domains, email, directory })
    }
}

fn domain(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() || text.starts_with('[') {
        return Err(format!("{text:?} is an IP address: certificates are issued for names"));
    }
    if text.contains('*') {
        return Err(format!("{text:?} is a wildcard, which this way of proof does not allow: name each domain"));
    }
    let is_label = |label: &str| {
        let sound = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && sound && !label.starts_with('-') && !label.ends_with('-')
    };
    let sound = text.len() <= DOMAIN_BYTES_MAX && text.contains('.') && text.split('.').all(is_label);
    sound.then(|| text.to_ascii_lowercase()).ok_or_else(|| {
        format!("{text:?} is no domain like iot.example.com (names with other letters are written as xn--…)")
    })
}

fn email(text: &str) -> Result<Option<String>, String> {
    let sound = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    match text {
        "" => Ok(None),
        _ if sound && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, ',' | '?' | '<' | '>')) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(format!("must be an e-mail address, not {text:?}")),
    }
}

fn directory(text: &str) -> Result<String, String> {
    let is_sound = |url: url::Url| url.scheme() == "https" && url.has_host() && url.username().is_empty();
    if url::Url::parse(text).is_ok_and(is_sound) {
        Ok(text.to_owned())
    } else {
        Err(format!("must be an https:// address, not {text:?}"))
    }
}
