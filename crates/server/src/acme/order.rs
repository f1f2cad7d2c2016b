//! An order of one certificate, from the account to the chain.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
    RetryPolicy,
};
use isobar_http::{BadCertificate, Tls};
use isobar_model::quote::{quote, with_causes};
use isobar_model::time::Clock;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::client::Client;
use super::kept::{Issued, Kept};
use crate::config::Acme;

/// Interval between polls of a challenge.
const PROOF_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Timeout for issuing after all names are proven.
const ISSUE_TIME: Duration = Duration::from_secs(60);
/// Problem type of an account that the server does not have.
const ACCOUNT_MISSING: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The order took too long.
    #[error("the ACME server did not answer in time")]
    Late,
    /// A name was not proven.
    #[error("the ACME server does not accept that {domain} leads here: {detail}")]
    Unproven {
        /// The name.
        domain: String,
        /// The server's explanation.
        detail: String,
    },
    /// The server does not offer tls-alpn-01.
    #[error("the ACME server does not offer the challenge tls-alpn-01 for {0}")]
    NoChallenge(String),
    /// The server refused, is unreachable, or is not an ACME server.
    #[error("{}", quote(&with_causes(.0)))]
    Acme(#[from] instant_acme::Error),
    /// The issued certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
    /// The certificate of a challenge cannot be made.
    #[error("cannot make the answer to a challenge: {0}")]
    Answer(String),
    /// The folder cannot be read or written.
    #[error("cannot read or write what is kept of the ACME server: {0}")]
    Kept(#[from] std::io::Error),
}

impl OrderError {
    /// Returns advice for the operator.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Late => "let this machine reach the address of http.acme_directory by HTTPS",
            Self::Unproven { .. } => {
                "have the name's A and AAAA records and port 443 lead to this server, with nothing between that ends TLS"
            }
            Self::NoChallenge(_) => "name an ACME server in http.acme_directory that has tls-alpn-01",
            Self::Acme(error) if is_problem(error, RATE_LIMITED) => "wait: the ACME server limits how often it issues",
            Self::Acme(instant_acme::Error::Api(_)) => "correct http.acme_domains or http.acme_email as the cause says",
            Self::Acme(instant_acme::Error::Other(_)) => {
                "let this machine reach and trust the address of http.acme_directory"
            }
            Self::Acme(_) => "see whether http.acme_directory is the directory of an ACME server",
            Self::Certificate(_) => "ask whoever runs the ACME server: what it issues cannot be used",
            Self::Answer(_) => "report this to the makers of Isobar",
            Self::Kept(_) => "make the folder acme in the data folder writable, and have space on its disk",
        }
    }

    /// Returns true if the server reported its rate limit.
    pub fn is_rate_limit(&self) -> bool {
        matches!(self, Self::Acme(error) if is_problem(error, RATE_LIMITED))
    }
}

fn is_problem(error: &instant_acme::Error, kind: &str) -> bool {
    matches!(error, instant_acme::Error::Api(Problem { r#type: Some(of), .. }) if of == kind)
}

/// Orders a certificate for the domains.
pub async fn order(acme: &Acme, kept: &Kept, tls: &Tls, clock: &Clock) -> Result<Issued, OrderError> {
    let account = account(acme, kept).await?;
    let identifiers: Vec<_> = acme.domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = match account.new_order(&NewOrder::new(&identifiers)).await {
        Err(error) if is_problem(&error, ACCOUNT_MISSING) => {
            kept.forget_account()?;
            return Err(error.into());
        }
        made => made?,
    };
    prove(&mut order, tls, clock).await?;
    let patience = RetryPolicy::new().timeout(ISSUE_TIME);
    if order.poll_ready(&patience).await? != OrderStatus::Ready {
        return Err(instant_acme::Error::Str("the order became invalid").into());
    }
    let key = order.finalize().await?;
    let certificate = order.poll_certificate(&patience).await?;
    Ok(Issued { domains: acme.domains.clone(), certificate, key })
}

/// Returns the stored account, or a new one.
async fn account(acme: &Acme, kept: &Kept) -> Result<Account, OrderError> {
    let client = Client::new().map_err(|error| instant_acme::Error::Other(Box::new(error)))?;
    let builder = Account::builder_with_http(Box::new(client));
    if let Some(credentials) = kept.account()? {
        match serde_json::from_str(&credentials) {
            Ok(credentials) => return Ok(builder.from_credentials(credentials).await?),
            Err(error) => tracing::warn!(%error, "cannot read the stored ACME account: making a new one"),
        }
    }
    let contact = acme.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder.create(&new, acme.directory.clone(), None).await?;
    kept.keep_account(&serde_json::to_string(&credentials).map_err(instant_acme::Error::Json)?)?;
    Ok(account)
}

/// Proves control of the names: answers the server's handshakes, and waits for its verdict.
async fn prove(order: &mut Order, tls: &Tls, clock: &Clock) -> Result<(), OrderError> {
    let mut answers = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let domain = authorization.identifier().to_string();
        let missing = || OrderError::NoChallenge(domain.clone());
        let mut challenge = authorization.challenge(ChallengeType::TlsAlpn01).ok_or_else(missing)?;
        let answer = answer(&domain, challenge.key_authorization().digest().as_ref());
        answers.push((domain.clone(), answer.map_err(OrderError::Answer)?));
        tls.answer_challenges(answers.clone());
        challenge.set_ready().await?;
    }
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        loop {
            let state = authorization.refresh().await?;
            match state.status {
                AuthorizationStatus::Valid => break,
                AuthorizationStatus::Pending => clock.sleep(PROOF_LOOK_EVERY).await,
                _ => {
                    let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
                    let detail = problem.map_or_else(|| "it does not say why".to_owned(), |it| quote(&it.to_string()));
                    return Err(OrderError::Unproven { domain: state.identifier().to_string(), detail });
                }
            }
        }
    }
    Ok(())
}

/// Makes the certificate that answers a challenge (RFC 8737).
fn answer(domain: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    let make = || -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
        let mut params = CertificateParams::new([domain.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?, key))
    };
    let (certificate, key) = make().map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let key = ring::default_provider().key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    // Not checked against each other, as the check rejects the critical extension that is the answer.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}
