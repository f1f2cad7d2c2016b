//! E-mails over SMTP (RFC 5321), with TLS from the start or by STARTTLS (RFC 3207).

use std::time::Duration;

use isobar_model::time::Clock;
use lettre::transport::smtp::{AsyncSmtpTransportBuilder, PoolConfig};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use url::{Host, Url};

use super::{MailError, Result};

/// Timeout of one SMTP command.
const COMMAND_TIME: Duration = Duration::from_secs(20);
/// Timeout of one e-mail altogether.
const SEND_TIME: Duration = Duration::from_secs(60);
/// Most simultaneous connections to the server.
const CONNECTIONS_MAX: u32 = 4;

/// A pooled connection to the SMTP server.
pub(super) type Transport = AsyncSmtpTransport<Tokio1Executor>;

pub(super) fn transport(url: &str) -> Result<Transport> {
    let pool = PoolConfig::new().max_size(CONNECTIONS_MAX);
    Ok(builder(url)?.timeout(Some(COMMAND_TIME)).pool_config(pool).build())
}

pub(super) async fn send(transport: &Transport, message: Message) -> Result<()> {
    let sent = Clock::System.timeout(SEND_TIME, transport.send(message)).await.map_err(MailError::not_now)?;
    sent.map(|_| ()).map_err(MailError::not_now)
}

/// Returns a transport for the URL. Errors never quote the URL: it may contain a password.
pub(super) fn builder(url: &str) -> Result<AsyncSmtpTransportBuilder> {
    let bad = |why: &str| MailError::Setting(format!("is no address of an SMTP server: {why}"));
    let mut url = Url::parse(url).map_err(|error| bad(&error.to_string()))?;
    let asked = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
    let tls = match (url.scheme(), asked.as_deref()) {
        ("smtps", None) | ("smtp", Some("none")) => None,
        ("smtp", Some(known @ ("required" | "opportunistic"))) => Some(known.to_owned()),
        ("smtp", None) => tls_by_default(&url).map(str::to_owned),
        ("smtp" | "smtps", _) => return Err(bad("tls may be none, opportunistic or required, and only with smtp://")),
        _ => return Err(bad("it must begin with smtp:// or smtps://")),
    };
    // Without a port, 25 for a relay, or 587 for submission if there are credentials.
    if url.scheme() == "smtp" && url.port().is_none() {
        let port = if url.password().is_some() { 587 } else { 25 };
        url.set_port(Some(port)).map_err(|()| bad("it has no host"))?;
    }
    url.set_query(tls.map(|tls| format!("tls={tls}")).as_deref());
    Transport::from_url(url.as_str()).map_err(|error| bad(&error.to_string()))
}

/// Returns the TLS mode without `?tls`: required with credentials, opportunistic without, none on this machine.
fn tls_by_default(url: &Url) -> Option<&'static str> {
    let here = match url.host() {
        // The host of an address with an unknown scheme is always a domain.
        Some(Host::Domain(name)) => {
            let bare = name.trim_start_matches('[').trim_end_matches(']');
            name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match (here, url.password().is_some()) {
        (true, _) => None,
        (false, true) => Some("required"),
        (false, false) => Some("opportunistic"),
    }
}
