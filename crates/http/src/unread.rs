//! The refusal of a head that cannot be read. hyper gives it by itself, before anybody of us is asked, and without a body;
//! on its way to the socket it gets the body that every refusal has.

use isobar_hub::NO_NAME;
use isobar_model::error::Fault;

use crate::problem::ErrorBody;
use crate::query::shown;

/// How hyper's refusals begin, and what is said in the body.
const REFUSALS: [(&[u8], &str); 3] = [
    (b"HTTP/1.1 400 Bad Request\r\n", "the request cannot be read as HTTP/1.1"),
    (b"HTTP/1.1 414 URI Too Long\r\n", "the path and its parameters are too long"),
    (b"HTTP/1.1 431 Request Header Fields Too Large\r\n", "the request's head is too large or has too many lines"),
];
const NO_BODY: &[u8] = b"\r\ncontent-length: 0\r\n";
const END: &[u8] = b"\r\n\r\n";

/// What of a request line is no text, or holds U+0000, if that is the reason why it cannot be read.
pub(crate) fn odd_part(head: &[u8]) -> Option<Fault> {
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
    Some(Fault::new(format!("query.{}", shown(&String::from_utf8_lossy(name))), NO_NAME))
}

fn is_odd(text: &[u8]) -> bool {
    text.contains(&0) || std::str::from_utf8(text).is_err()
}

/// The refusal with a body, if `written` is one of hyper's and nothing else. Answers of our own have a request id.
pub(crate) fn with_body(written: &[u8], odd: Option<&Fault>) -> Option<Vec<u8>> {
    let (_, message) = REFUSALS.iter().find(|(start, _)| written.starts_with(start))?;
    let (before, after) = split(written, NO_BODY)?;
    if !after.ends_with(END) || split(written, END).is_none_or(|(_, body)| !body.is_empty()) {
        return None;
    }
    let body = ErrorBody { message: (*message).to_owned(), errors: odd.into_iter().cloned().collect() };
    let body = serde_json::to_string(&body).ok()?;
    let head = format!("\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    Some([before, head.as_bytes(), after, body.as_bytes()].concat())
}

/// What stands before and behind the first `mark`.
fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|window| window == mark)?;
    Some((&text[..at], &text[at + mark.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_refusal_gets_the_body_of_all_refusals() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
            date: Sat, 21 Nov 2026 10:54:56 GMT\r\n\r\n";
        assert_eq!(
            String::from_utf8(with_body(bare, None).unwrap()).unwrap(),
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: 79\r\ndate: Sat, 21 Nov 2026 10:54:56 GMT\r\n\r\n\
             {\"message\":\"the request's head is too large or has too many lines\",\"errors\":[]}"
        );
    }

    #[test]
    fn what_is_no_text_is_named() {
        let field = |line: &[u8]| odd_part(&[line, b" HTTP/1.1\r\nx: \xff\r\n\r\n"].concat()).map(|fault| fault.field);
        assert_eq!(field(b"GET /a?b=c&d=\xff&e").as_deref(), Some("query.d"));
        assert_eq!(field(b"GET /a?b=\0").as_deref(), Some("query.b"));
        assert_eq!(field(b"GET /\xff?b=\xff").as_deref(), Some("path"));
        for plain in [&b"GET /a?b=c"[..], b"GET /\xc3\xa9?b=\xc3\xa9", b"", b"\xff"] {
            assert_eq!(field(plain), None, "{plain:?}");
        }
        let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: today\r\n\r\n";
        let told = with_body(bare, Some(&Fault::new("query.d", "is odd"))).unwrap();
        assert!(told.ends_with(br#""errors":[{"field":"query.d","message":"is odd"}]}"#));
    }

    #[test]
    fn everything_else_goes_as_it_is() {
        for other in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            b"xHTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(with_body(other, None), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
