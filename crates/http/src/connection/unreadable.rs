//! Refusal of a request with an unreadable head. hyper refuses such a head before any handler, without a body.
//! [`super::time_limits`] withholds that response, and this one is sent instead, with the body of all refusals.

use axum::http::StatusCode;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use isobar_hub::NO_NAME;
use isobar_model::error::Fault;
use isobar_model::time::Timestamp;

use super::encode::encoded;
use crate::problem::ErrorBody;
use crate::request::query::excerpt;
use crate::response::{self, NOSNIFF, REQUEST_ID, RequestId, ResponseBody};

/// Finds the part of a request line that is not text or contains U+0000, which makes the head unreadable.
pub(super) fn odd_part(head: &[u8]) -> Option<Fault> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if !is_odd(line) {
        return None;
    }
    let target = line.split(|byte| *byte == b' ').nth(1)?;
    let (path, query) = target.split_at(target.iter().position(|byte| *byte == b'?').unwrap_or(target.len()));
    if is_odd(path) {
        return Some(Fault::new("path", NO_NAME));
    }
    let pair = query.get(1..)?.split(|byte| *byte == b'&').find(|pair| is_odd(pair))?;
    let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    Some(Fault::new(format!("query.{}", excerpt(&String::from_utf8_lossy(name))), NO_NAME))
}

fn is_odd(text: &[u8]) -> bool {
    text.contains(&0) || std::str::from_utf8(text).is_err()
}

/// Encodes the refusal of a head that is too large, or that is not valid HTTP/1.1.
pub(super) fn refusal(id: RequestId, is_too_large: bool, odd: Option<Fault>, now: Timestamp) -> Vec<u8> {
    let (status, message) = if is_too_large {
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large or has too many lines")
    } else {
        (StatusCode::BAD_REQUEST, "the request cannot be read as HTTP/1.1")
    };
    let body = ErrorBody { message: message.to_owned(), errors: odd.into_iter().collect() };
    let (mut head, body) = response::json(status, &body).into_parts();
    head.headers.insert(REQUEST_ID, id.into());
    head.headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let ResponseBody::Whole(body) = body else { return Vec::new() };
    encoded(head, body, true, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_head_is_refused_with_the_usual_body() {
        let now = Timestamp::from_millis(784_111_777_999);
        let id = || RequestId::Made(10);
        assert_eq!(
            String::from_utf8(refusal(id(), true, None, now)).unwrap(),
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n\
             x-request-id: 000000000000000a\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\
             content-length: 79\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n\
             {\"message\":\"the request's head is too large or has too many lines\",\"errors\":[]}"
        );
        let unreadable = refusal(id(), false, Some(Fault::new("query.d", "is odd")), now);
        assert!(unreadable.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
        assert!(unreadable.ends_with(br#""errors":[{"field":"query.d","message":"is odd"}]}"#));
    }

    #[test]
    fn unreadable_part_of_a_request_line_is_named() {
        let field = |line: &[u8]| odd_part(&[line, b" HTTP/1.1\r\nx: \xff\r\n\r\n"].concat()).map(|fault| fault.field);
        assert_eq!(field(b"GET /a?b=c&d=\xff&e").as_deref(), Some("query.d"));
        assert_eq!(field(b"GET /a?b=\0").as_deref(), Some("query.b"));
        assert_eq!(field(b"GET /\xff?b=\xff").as_deref(), Some("path"));
        for plain in [&b"GET /a?b=c"[..], b"GET /\xc3\xa9?b=\xc3\xa9", b"", b"\xff"] {
            assert_eq!(field(plain), None, "{plain:?}");
        }
    }
}
