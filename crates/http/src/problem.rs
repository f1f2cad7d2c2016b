//! Refusals and their one response shape: `{"message", "errors": [{"field", "message"}]}`.

use std::error::Error as _;
use std::time::Duration;

use axum::http::header::{CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use isobar_model::error::{Error, Fault, RateWindow};
use isobar_model::quote::with_causes;
use isobar_model::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::response::{self, Response};

/// Value of `Retry-After` in seconds of a busy service.
const BUSY_RETRY_SECONDS: i64 = 1;
/// Challenge that asks for credentials (RFC 9110, 11.6.1).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"isobar\"");

/// Reason why a call fails: the hub's refusals, and those of HTTP.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The hub refused, or the input is invalid.
    Refused(Error),
    /// No operation has this path.
    NoSuchPath,
    /// The path has operations, but none with this method.
    WrongMethod,
    /// The body is over the limit.
    TooLarge {
        /// Most bytes of a body.
        limit: usize,
    },
    /// The body broke off; the connection is unusable.
    BodyCut,
    /// The body came too slowly; the connection is unusable.
    BodyLate {
        /// Time limit of the body.
        time: Duration,
    },
    /// Responses that the caller's tenant has not read yet fill their memory limit.
    AnswersUntaken {
        /// True if the call was carried out and only its response is lost.
        is_done: bool,
    },
    /// The stores that are not ready.
    NotReady(Vec<Fault>),
    /// A handler panicked.
    Panicked,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The error shape of every answer that is no success.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// A message in words: the cause of a refusal, or the outcome.
    pub message: String,
    /// The fields of the input that are wrong; may be empty.
    pub errors: Vec<Fault>,
}

impl Problem {
    /// Returns the window of the rate limit that was exceeded.
    pub fn rate_window(&self) -> Option<RateWindow> {
        match self {
            Problem::Refused(Error::RateLimited { window, .. }) => Some(*window),
            _ => None,
        }
    }

    /// Returns the status: the only table from refusals to statuses.
    pub fn status(&self) -> StatusCode {
        match self {
            Problem::Refused(error) => match error {
                Error::Unauthenticated => StatusCode::UNAUTHORIZED,
                Error::RateLimited { .. } | Error::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
                Error::Missing(_) => StatusCode::NOT_FOUND,
                Error::Forbidden(_) => StatusCode::FORBIDDEN,
                Error::Invalid(_) => StatusCode::BAD_REQUEST,
                Error::Outdated(_) => StatusCode::PRECONDITION_FAILED,
                Error::Busy | Error::NoRoom(_) => StatusCode::SERVICE_UNAVAILABLE,
                Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Problem::NoSuchPath => StatusCode::NOT_FOUND,
            Problem::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Problem::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::BodyCut => StatusCode::BAD_REQUEST,
            Problem::BodyLate { .. } => StatusCode::REQUEST_TIMEOUT,
            Problem::AnswersUntaken { .. } | Problem::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns true if credentials were missing or bad.
    pub fn is_of_bad_credentials(&self) -> bool {
        matches!(self, Problem::Refused(Error::Unauthenticated))
    }

    /// Returns true if the connection must close, as the rest of the body is unusable.
    pub fn ends_connection(&self) -> bool {
        matches!(self, Problem::BodyCut | Problem::BodyLate { .. })
    }

    /// Returns the internal cause, which goes to the log only.
    pub fn cause(&self) -> Option<String> {
        match self {
            Problem::Refused(error @ Error::Internal(_)) => error.source().map(with_causes),
            _ => None,
        }
    }

    /// Builds the response. `Retry-After` counts from `now`.
    pub fn answer(self, now: Timestamp) -> Response {
        let (status, retry, cut) = (self.status(), self.retry_seconds(now), self.ends_connection());
        let mut response = response::json(status, &self.body());
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        if let Some(seconds) = retry {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if cut {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn retry_seconds(&self, now: Timestamp) -> Option<i64> {
        let until = |moment: Timestamp| (moment.millis() - now.millis()).div_euclid(1000).saturating_add(1).max(1);
        match self {
            Problem::Refused(Error::RateLimited { window, .. }) => Some(until(window.reset)),
            Problem::Refused(Error::Throttled { until: moment }) => Some(until(*moment)),
            Problem::Refused(Error::Busy | Error::NoRoom(_))
            | Problem::AnswersUntaken { .. }
            | Problem::NotReady(_) => Some(BUSY_RETRY_SECONDS),
            _ => None,
        }
    }

    fn body(self) -> ErrorBody {
        let of_body = |message: String| vec![Fault::new("body", message)];
        let (message, errors) = match self {
            Problem::Refused(error) => {
                let message = error.to_string();
                (message, if let Error::Invalid(faults) = error { faults } else { Vec::new() })
            }
            Problem::NoSuchPath => ("no such path".to_owned(), Vec::new()),
            Problem::WrongMethod => ("the path does not take this method".to_owned(), Vec::new()),
            Problem::TooLarge { limit } => {
                ("the body is too large".to_owned(), of_body(format!("must be at most {limit} bytes")))
            }
            Problem::BodyCut => ("the body did not come".to_owned(), of_body("broke off".to_owned())),
            Problem::BodyLate { time } => {
                let seconds = time.as_secs_f64();
                let message = format!("must come within {seconds} seconds, or at 16 KiB a second if that takes longer");
                ("the body did not come in time".to_owned(), of_body(message))
            }
            Problem::AnswersUntaken { is_done } => (untaken(is_done), Vec::new()),
            Problem::NotReady(stores) => ("the service is not ready".to_owned(), stores),
            Problem::Panicked => (Error::internal("").to_string(), Vec::new()),
        };
        ErrorBody { message, errors }
    }
}

/// Returns the message about the memory limit of responses, which says if the call was carried out.
fn untaken(is_done: bool) -> String {
    let bound = "answers that your organizations' clients have not taken yet hold as much memory as they may";
    let outcome = if is_done { "what was asked for is done, its answer is lost" } else { "nothing was done" };
    format!("{bound}: {outcome}")
}

#[cfg(test)]
mod tests {

    use super::*;

    fn answer(problem: impl Into<Problem>) -> Response {
        problem.into().answer(Timestamp::from_millis(10_500))
    }

    // Holds: c1.errors, c1.408, c1.503
    #[test]
    fn each_refusal_has_its_status() {
        let window = RateWindow { limit: 5, remaining: 0, reset: Timestamp::from_millis(60_000) };
        for (problem, status) in [
            (Error::Unauthenticated.into(), 401),
            (Error::RateLimited { subject: "user", window }.into(), 429),
            (Error::Throttled { until: Timestamp::from_millis(0) }.into(), 429),
            (Error::Missing("device").into(), 404),
            (Error::Forbidden("no".into()).into(), 403),
            (Error::invalid("body", "is bad").into(), 400),
            (Error::Outdated("the specification").into(), 412),
            (Error::Busy.into(), 503),
            (Error::NoRoom("deliveries hold at most 1 MiB".into()).into(), 503),
            (Error::internal("broken").into(), 500),
            (Problem::NoSuchPath, 404),
            (Problem::WrongMethod, 405),
            (Problem::TooLarge { limit: 1 }, 413),
            (Problem::BodyCut, 400),
            (Problem::BodyLate { time: Duration::from_secs(60) }, 408),
            (Problem::NotReady(Vec::new()), 503),
            (Problem::AnswersUntaken { is_done: false }, 503),
            (Problem::Panicked, 500),
        ] {
            assert_eq!(answer(problem).status(), status);
        }
    }

    // Holds: c1.503
    #[test]
    fn retry_after_is_sent_and_never_zero() {
        let window = RateWindow { limit: 5, remaining: 0, reset: Timestamp::from_millis(60_000) };
        let limited = answer(Error::RateLimited { subject: "user", window });
        assert_eq!(limited.headers()[RETRY_AFTER], "50");
        let over = answer(Error::Throttled { until: Timestamp::from_millis(0) });
        assert_eq!(over.headers()[RETRY_AFTER], "1");
        assert_eq!(answer(Error::Busy).headers()[RETRY_AFTER], "1");
        assert_eq!(answer(Problem::AnswersUntaken { is_done: false }).headers()[RETRY_AFTER], "1");
        assert_eq!(answer(Error::NoRoom(String::new())).headers()[RETRY_AFTER], "1");
        assert!(answer(Error::Unauthenticated).headers().contains_key(WWW_AUTHENTICATE));
    }

    #[test]
    fn internal_cause_is_not_sent_to_the_client() {
        let problem = Problem::from(Error::internal("the disk is on fire"));
        assert_eq!(problem.cause().as_deref(), Some("the disk is on fire"));
        assert!(!problem.body().message.contains("fire"));
    }

    #[test]
    fn refusal_lists_all_faults() {
        let faults = vec![Fault::new("name", "is required"), Fault::new("meta", "must be an object")];
        let body = Problem::from(Error::Invalid(faults.clone())).body();
        assert_eq!(body.message, "the request has 2 invalid field(s)");
        assert_eq!(body.errors, faults);
    }
}
