//! The request id in logs and in the response: the client's own, or a generated one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use isobar_model::time::Timestamp;

use super::ascii_header;

/// Header of the request id, in requests and responses.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Most characters of a client's request id.
const REQUEST_ID_CHARACTERS_MAX: usize = 64;

/// Id of one request.
pub(crate) enum RequestId {
    /// Sent by the client.
    Sent(HeaderValue),
    /// Generated from this number.
    Made(u64),
}

impl RequestId {
    /// Appends it to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sent(id) => out.extend_from_slice(id.as_bytes()),
            Self::Made(id) => out.extend_from_slice(&digits(*id)),
        }
    }
}

impl From<RequestId> for HeaderValue {
    fn from(id: RequestId) -> Self {
        match id {
            RequestId::Sent(id) => id,
            RequestId::Made(id) => ascii_header(Bytes::copy_from_slice(&digits(id))),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(id) => f.write_str(id.to_str().unwrap_or_default()),
            Self::Made(id) => write!(f, "{id:016x}"),
        }
    }
}

/// Formats a number in 16 hexadecimal digits.
fn digits(number: u64) -> [u8; 16] {
    std::array::from_fn(|place| {
        let digit = (number >> (60 - 4 * place) & 15) as u8;
        if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
    })
}

/// Generates request ids: unique within a process, and very likely across processes. They are not secret.
pub(crate) struct RequestIds(AtomicU64);

impl RequestIds {
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new((start.millis() as u64) << 20))
    }

    /// Returns the id that the client sent, if it is valid, else a new one.
    pub fn of(&self, headers: &HeaderMap) -> RequestId {
        let sent = headers.get(REQUEST_ID).filter(|id| is_sane(id.as_bytes()));
        // Copied: the original is part of the request's buffer, which must not be kept until the event is durable.
        let copied = sent.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
        copied.map_or_else(|| RequestId::Made(mixed(self.0.fetch_add(1, Ordering::Relaxed))), RequestId::Sent)
    }
}

fn is_sane(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=REQUEST_ID_CHARACTERS_MAX).contains(&id.len()) && id.iter().all(plain)
}

/// Mixes the bits of a number, so that neighbours differ: the finalizer of SplitMix64, which is a bijection.
fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_request_ids_are_taken() {
        assert!(is_sane(b"a-Z_0.9") && is_sane(&[b'x'; 64]));
        assert!(!is_sane(b"") && !is_sane(&[b'x'; 65]) && !is_sane(b"a b") && !is_sane("é".as_bytes()));
    }

    #[test]
    fn a_request_id_is_the_same_text_everywhere() {
        let sent = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static("a-b.c"))]);
        for headers in [HeaderMap::new(), sent] {
            let (id, mut written) = (RequestIds::new(Timestamp::from_millis(1)).of(&headers), Vec::new());
            id.write_to(&mut written);
            assert_eq!(id.to_string().into_bytes(), written);
            assert_eq!(HeaderValue::from(id).as_bytes(), written);
        }
    }

    #[test]
    fn request_ids_differ() {
        let ids = RequestIds::new(Timestamp::from_millis(1));
        let next = || HeaderValue::from(ids.of(&HeaderMap::new()));
        let (first, second) = (next(), next());
        assert_ne!(first, second);
        assert!(is_sane(first.as_bytes()) && first.len() == 16);
    }
}
