//! Encodes responses as HTTP/1.1, where hyper does not.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::CONNECTION;
use axum::http::response::Parts;
use bytes::Bytes;
use httpdate::HttpDate;
use isobar_model::error::RateWindow;
use isobar_model::time::Timestamp;

use crate::response::EventCreated;

/// Initial capacity of an encoded response in bytes: that to an event has some 450.
const RESPONSE_BYTES: usize = 640;

/// Encodes a response. `is_last` announces that the connection closes.
pub(super) fn encoded(head: Parts, body: Bytes, is_last: bool, now: Timestamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(RESPONSE_BYTES);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let reason = head.status.canonical_reason().unwrap_or_default();
    put(&[b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
    for (name, value) in &head.headers {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    if is_last && !head.headers.contains_key(CONNECTION) {
        put(&[b"connection: close\r\n"]);
    }
    put(&[b"content-length: ", body.len().to_string().as_bytes(), b"\r\ndate: ", &date(now), b"\r\n\r\n", &body]);
    out
}

/// Encodes the response to a durable event as [`encoded`] would, but without building a header map, which would cost
/// 9 % of the instructions of an event.
pub(super) fn encoded_created(created: &EventCreated, is_last: bool, now: Timestamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(RESPONSE_BYTES);
    out.extend_from_slice(b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nx-request-id: ");
    created.request_id.write_to(&mut out);
    out.extend_from_slice(b"\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n");
    // Writing into a `Vec` cannot fail.
    if let Some(RateWindow { limit, remaining, reset }) = created.rate_window {
        let _ = write!(out, "x-ratelimit-limit: {limit}\r\nx-ratelimit-remaining: {remaining}\r\n");
        let _ = write!(out, "x-ratelimit-reset: {}\r\n", reset.seconds());
    }
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    let _ = write!(out, "content-length: {}\r\ndate: ", EventCreated::BODY_BYTES);
    out.extend_from_slice(&date(now));
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(&created.body());
    out
}

/// Formats a time as a header date (RFC 9110, 5.6.7); cached for a second on each thread.
fn date(now: Timestamp) -> [u8; 29] {
    thread_local! {
        static NEWEST: Cell<(u64, [u8; 29])> = const { Cell::new((0, *b"Thu, 01 Jan 1970 00:00:00 GMT")) };
    }
    let second = now.seconds().max(0) as u64;
    let (known, text) = NEWEST.get();
    if known == second {
        return text;
    }
    let text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
    let text = text.as_bytes().try_into().unwrap_or(NEWEST.get().1);
    NEWEST.set((second, text));
    text
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, StatusCode};
    use isobar_model::ids::EventId;
    use proptest::prelude::*;

    use super::*;
    use crate::response::{REQUEST_ID, RequestIds, Response, ResponseBody};

    proptest! {
        #[test]
        fn created_event_is_encoded_like_its_response(
            id: u128,
            sent in prop::option::of("[a-z0-9.-]{1,64}"),
            window in prop::option::of((any::<u32>(), any::<u32>(), 0..4_102_444_800_000i64)),
            is_last: bool,
        ) {
            let now = Timestamp::from_millis(784_111_777_999);
            let sent = sent.and_then(|id| HeaderValue::from_str(&id).ok()).map(|id| (REQUEST_ID, id));
            let headers = HeaderMap::from_iter(sent);
            let created = || EventCreated {
                id: EventId(uuid::Uuid::from_u128(id)),
                request_id: RequestIds::new(now).of(&headers),
                rate_window: window.map(|(limit, remaining, reset)| RateWindow {
                    limit,
                    remaining,
                    reset: Timestamp::from_millis(reset),
                }),
            };
            let (head, body) = Response::from(created()).into_parts();
            let ResponseBody::Whole(body) = body else { return Err(TestCaseError::fail("not whole")) };
            prop_assert_eq!(encoded_created(&created(), is_last, now), encoded(head, body, is_last, now));
        }
    }

    #[test]
    fn a_response_has_its_length_and_the_date() {
        let mut response = crate::response::raw_json(StatusCode::CREATED, "{}");
        response.headers_mut().insert("x", HeaderValue::from_static("y"));
        let (head, _) = response.into_parts();
        let (body, now) = (Bytes::from("{}"), Timestamp::from_millis(784_111_777_999));
        let common = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nx: y\r\n";
        let rest = "content-length: 2\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{}";
        assert_eq!(encoded(head.clone(), body.clone(), false, now), format!("{common}{rest}").into_bytes());
        assert_eq!(encoded(head, body, true, now), format!("{common}connection: close\r\n{rest}").into_bytes());
    }
}
