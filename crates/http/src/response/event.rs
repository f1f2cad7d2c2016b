//! The response to an event, the most frequent one: its parts are kept separately until it is encoded.

use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use isobar_model::error::RateWindow;
use isobar_model::ids::EventId;

use super::request_id::{REQUEST_ID, RequestId};
use super::{Response, raw_json};

pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RATE_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(crate) const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Response to a posted event.
pub(crate) enum EventResponse {
    /// 201: the event is durable.
    Created(EventCreated),
    /// Usually a refusal.
    Other(Response),
}

/// 201 with the identifier of an event. The fast path encodes it directly; other paths convert it to a [`Response`].
pub(crate) struct EventCreated {
    pub id: EventId,
    pub request_id: RequestId,
    pub rate_window: Option<RateWindow>,
}

impl EventCreated {
    /// Length of its body in bytes.
    pub const BODY_BYTES: usize = 45;

    /// Returns its body.
    pub fn body(&self) -> [u8; Self::BODY_BYTES] {
        const BEFORE: usize = "{\"id\":\"".len();
        let mut body = *b"{\"id\":\"00000000-0000-0000-0000-000000000000\"}";
        self.id.0.as_hyphenated().encode_lower(&mut body[BEFORE..BEFORE + 36]);
        body
    }
}

impl From<EventCreated> for Response {
    fn from(created: EventCreated) -> Self {
        let mut response = raw_json(StatusCode::CREATED, created.body().to_vec());
        add_common_headers(response.headers_mut(), created.request_id, created.rate_window);
        response
    }
}

impl From<EventResponse> for Response {
    fn from(response: EventResponse) -> Self {
        match response {
            EventResponse::Created(created) => created.into(),
            EventResponse::Other(response) => response,
        }
    }
}

/// Adds the headers common to all responses.
pub(crate) fn add_common_headers(headers: &mut HeaderMap, request_id: RequestId, rate_window: Option<RateWindow>) {
    headers.insert(REQUEST_ID, request_id.into());
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    if let Some(window) = rate_window {
        headers.insert(RATE_LIMIT, window.limit.into());
        headers.insert(RATE_REMAINING, window.remaining.into());
        headers.insert(RATE_RESET, window.reset.seconds().into());
    }
}
