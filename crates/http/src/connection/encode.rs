//! Writes a response as HTTP/1.1, for responses that hyper does not write.

use std::cell::Cell;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::CONNECTION;
use axum::http::response::Parts;
use bytes::Bytes;
use httpdate::HttpDate;
use isobar_model::time::Timestamp;

/// Capacity for a response as it goes out: that to an event has some 450 bytes.
const RESPONSE_BYTES: usize = 640;

/// A response as it goes out. With `is_last` it says that the connection ends.
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

/// The moment as headers have it (RFC 9110, 5.6.7); written once a second on each thread.
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
    use axum::http::{HeaderValue, StatusCode};

    use super::*;

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
