//! Certificates by ACME: ordered before they expire, stored in the data folder, used without a restart.

mod client;
mod kept;
mod order;

use std::path::Path;
use std::time::Duration;

use isobar_http::{Tls, Validity};
use isobar_hub::Shift;
use isobar_model::time::{Clock, Timestamp};
use url::Url;

use self::kept::Kept;
use self::order::{OrderError, order};
use crate::Failure;
use crate::config::Acme;

/// Timeout of one order, waits for the server included.
const ORDER_TIME: Duration = Duration::from_secs(180);
/// Back-off after failures: doubled each time, from the first of these to the last.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_LAST: Duration = Duration::from_secs(6 * 3600);
/// Least wait after the server reported its rate limit.
const RETRY_LIMITED: Duration = Duration::from_secs(3600);
/// Longest sleep, after which the clock is read again.
const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(3600);

/// The worker that renews the certificate of one server.
#[derive(Clone)]
pub struct Renewal {
    acme: Acme,
    kept: Kept,
}

impl Renewal {
    /// Makes a worker by the settings.
    pub fn new(acme: &Acme, data: &Path) -> Result<Self, Failure> {
        let url = Url::parse(&acme.directory)?;
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let server = format!("{}{port}", url.host_str().unwrap_or_default());
        Ok(Self { acme: acme.clone(), kept: Kept::of(data, &server) })
    }

    /// Makes the TLS state of the listener, with the stored certificate if there is one.
    pub fn open(&self) -> Result<Tls, Failure> {
        let tls = Tls::handed_over()?;
        if self.take_up_kept(&tls).is_none() {
            let domains = self.acme.domains.join(", ");
            tracing::info!(domains, "no certificate yet: HTTPS is served as soon as one is issued");
        }
        Ok(tls)
    }

    /// Orders certificates when they are due, until the hub stops.
    pub async fn keep(self, tls: Tls, clock: Clock, mut shift: Shift) {
        let mut due = self.take_up_kept(&tls).map_or(Timestamp::default(), renewal);
        let mut failures = 0;
        loop {
            while let Some(wait) = until(due, clock.now()) {
                shift.well();
                if shift.pause(wait.min(CLOCK_LOOK_EVERY)).await {
                    return;
                }
            }
            let tried = tokio::select! {
                tried = self.try_order(&tls, &clock) => tried,
                () = shift.end() => return,
            };
            match tried {
                Ok(validity) => {
                    // Without a pause, a short-lived certificate or a wrong clock would cause endless orders.
                    due = renewal(validity).max(clock.now().plus_seconds(RETRY_FIRST.as_secs().cast_signed()));
                    failures = 0;
                    tracing::info!(until = %validity.until, "a certificate was issued and is used from now on");
                }
                Err(error) => {
                    let wait = retry_after(failures, &error);
                    failures += 1;
                    due = clock.now().plus_seconds(wait.as_secs().cast_signed());
                    let (cause, advice, seconds) = (error.to_string(), error.advice(), wait.as_secs());
                    tracing::warn!(
                        cause,
                        advice,
                        seconds,
                        "cannot get a certificate, will try again: the one before is still used"
                    );
                }
            }
        }
    }

    /// Loads the stored certificate and returns its validity if it is for these domains. One for others is used until
    /// there is a better one.
    fn take_up_kept(&self, tls: &Tls) -> Option<Validity> {
        let issued = match self.kept.certificate() {
            Ok(issued) => issued?,
            Err(error) => {
                tracing::warn!(%error, "cannot read the stored certificate: ordering another");
                return None;
            }
        };
        match tls.take_up(&issued.certificate, &issued.key) {
            Ok(validity) => (issued.domains == self.acme.domains).then_some(validity),
            Err(error) => {
                tracing::warn!(%error, "cannot use the stored certificate: ordering another");
                None
            }
        }
    }

    async fn try_order(&self, tls: &Tls, clock: &Clock) -> Result<Validity, OrderError> {
        let ordered = clock.timeout(ORDER_TIME, order(&self.acme, &self.kept, tls, clock)).await;
        tls.answer_challenges(Vec::new());
        let issued = ordered.map_err(|_| OrderError::Late)??;
        let validity = tls.take_up(&issued.certificate, &issued.key)?;
        if let Err(error) = self.kept.keep_certificate(&issued) {
            tracing::error!(%error, "cannot write the new certificate: it is used, and is lost when the server stops");
        }
        Ok(validity)
    }
}

/// Returns the time of renewal: after two thirds of the validity.
fn renewal(validity: Validity) -> Timestamp {
    let seconds = validity.until.seconds().saturating_sub(validity.from.seconds()).max(0);
    validity.from.plus_seconds(seconds / 3 * 2)
}

/// Returns the time from now to a moment; `None` if it has passed.
fn until(due: Timestamp, now: Timestamp) -> Option<Duration> {
    let millis = u64::try_from(due.millis().saturating_sub(now.millis())).ok()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

fn retry_after(failures: u32, error: &OrderError) -> Duration {
    let wait = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures)).min(RETRY_LAST);
    if error.is_rate_limit() { wait.max(RETRY_LIMITED) } else { wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_due_after_two_thirds() {
        let from = Timestamp::from_millis(0);
        let until = from.plus_seconds(90 * 86_400);
        assert_eq!(renewal(Validity { from, until }), from.plus_seconds(60 * 86_400));
        // One that ends before it begins is due at once.
        assert_eq!(renewal(Validity { from: until, until: from }), until);
    }

    #[test]
    fn retries_become_rare_and_never_end() {
        let waits = [0, 1, 5, 9, u32::MAX].map(|failures| retry_after(failures, &OrderError::Late).as_secs());
        assert_eq!(waits, [60, 120, 1_920, 21_600, 21_600]);
    }
}
