//! Decodes the body of an answer: unpacks it and converts it to UTF-8. Input is hostile, so each step is bounded.

use std::io::Read;

use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::calls::{BODY_BYTES_MAX, CallError, refused, too_large};

/// Most content codings of one answer.
const CODINGS_MAX: usize = 3;
/// Buffer of the brotli decoder, in bytes.
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

/// Unpacks a body by its `content-encoding` and converts it to UTF-8 from the charset of its byte order mark or its
/// `content-type`. Bytes that are invalid in that charset become U+FFFD.
pub(crate) fn plain_body(headers: &HeaderMap, body: Bytes) -> Result<Bytes, CallError> {
    in_utf8(headers, unpacked(headers, body)?)
}

fn unpacked(headers: &HeaderMap, mut body: Bytes) -> Result<Bytes, CallError> {
    let lines = headers.get_all(CONTENT_ENCODING).into_iter().map(|line| line.to_str().unwrap_or("?"));
    let codings = lines.flat_map(|line| line.split(',')).map(|coding| coding.trim().to_ascii_lowercase());
    let codings: Vec<String> = codings.filter(|coding| !matches!(coding.as_str(), "" | "identity")).collect();
    if codings.len() > CODINGS_MAX {
        return Err(refused(format!("the answer has more than {CODINGS_MAX} content-encodings")));
    }
    for coding in codings.iter().rev() {
        // The answer to HEAD, or one without a body, names the coding that a body would have.
        if body.is_empty() {
            break;
        }
        body = match coding.as_str() {
            "gzip" | "x-gzip" => read(MultiGzDecoder::new(&body[..]), coding),
            // `deflate` is zlib (RFC 9110, 8.4.1.2), but some servers send raw deflate.
            "deflate" if is_zlib(&body) => read(ZlibDecoder::new(&body[..]), coding),
            "deflate" => read(DeflateDecoder::new(&body[..]), coding),
            "br" => read(brotli::Decompressor::new(&body[..], BROTLI_BUFFER_BYTES), coding),
            _ => Err(refused(format!("the answer has a content-encoding that is not known: {}", excerpt(coding)))),
        }?;
    }
    Ok(body)
}

/// Returns true if bytes begin with a zlib header (RFC 1950, 2.2).
fn is_zlib(bytes: &[u8]) -> bool {
    matches!(bytes, [method, flags, ..] if method & 0xf == 8 && (256 * u32::from(*method) + u32::from(*flags)) % 31 == 0)
}

fn read(decoder: impl Read, coding: &str) -> Result<Bytes, CallError> {
    let mut out = Vec::new();
    let read = decoder.take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut out);
    read.map_err(|_| refused(format!("the answer's {coding} is damaged or not whole")))?;
    bounded(out.into())
}

fn bounded(body: Bytes) -> Result<Bytes, CallError> {
    if body.len() > BODY_BYTES_MAX { Err(too_large()) } else { Ok(body) }
}

fn in_utf8(headers: &HeaderMap, body: Bytes) -> Result<Bytes, CallError> {
    let (encoding, mark_bytes) = match Encoding::for_bom(&body) {
        Some(marked) => marked,
        None => (named_encoding(headers)?.unwrap_or(UTF_8), 0),
    };
    let body = body.slice(mark_bytes..);
    if encoding == UTF_8 {
        return Ok(body);
    }
    let (text, _) = encoding.decode_without_bom_handling(&body);
    bounded(text.into_owned().into_bytes().into())
}

/// Finds the encoding that the `charset` of a `content-type` names.
fn named_encoding(headers: &HeaderMap) -> Result<Option<&'static Encoding>, CallError> {
    let Some(content_type) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    let content_type = String::from_utf8_lossy(content_type.as_bytes());
    let mut parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let named = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let Some(label) = named.map(|(_, label)| label.trim().trim_matches(['"', '\''])) else { return Ok(None) };
    let encoding = Encoding::for_label_no_replacement(label.as_bytes());
    let unknown = || refused(format!("the answer is in a charset that is not known: {}", excerpt(label)));
    encoding.map(Some).ok_or_else(unknown)
}

/// Returns the first 40 characters of a text, for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn plain(pairs: &[(HeaderName, &str)], body: &[u8]) -> Result<Vec<u8>, CallError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        plain_body(&headers, Bytes::copy_from_slice(body)).map(|body| body.to_vec())
    }

    fn packed(coding: &str, bytes: &[u8]) -> Vec<u8> {
        macro_rules! with {
            ($encoder:expr) => {{
                let mut encoder = $encoder;
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }};
        }
        match coding {
            "gzip" => with!(GzEncoder::new(Vec::new(), Compression::best())),
            "deflate" => with!(ZlibEncoder::new(Vec::new(), Compression::best())),
            "raw" => with!(DeflateEncoder::new(Vec::new(), Compression::best())),
            _ => {
                let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 5, 18);
                encoder.write_all(bytes).unwrap();
                encoder.into_inner()
            }
        }
    }

    // Holds: c11.http
    #[test]
    fn packed_body_is_unpacked() {
        for (named, coding) in [
            ("gzip", "gzip"),
            ("X-GZip", "gzip"),
            ("deflate", "deflate"),
            ("deflate", "raw"),
            ("br", "br"),
            ("identity, gzip", "gzip"),
        ] {
            assert_eq!(
                plain(&[(CONTENT_ENCODING, named)], &packed(coding, b"{\"a\":1}")).unwrap(),
                b"{\"a\":1}",
                "{named}"
            );
            assert_eq!(plain(&[(CONTENT_ENCODING, named)], b"").unwrap(), b"", "{named}");
            let damaged = plain(&[(CONTENT_ENCODING, named)], b"\xffno such thing");
            assert!(matches!(damaged, Err(CallError::Refused(_))), "{named}");
        }
        let twice = packed("br", &packed("gzip", b"x"));
        assert_eq!(plain(&[(CONTENT_ENCODING, "gzip"), (CONTENT_ENCODING, "br")], &twice).unwrap(), b"x");
        let two = [packed("gzip", b"x"), packed("gzip", b"y")].concat();
        assert_eq!(plain(&[(CONTENT_ENCODING, "gzip")], &two).unwrap(), b"xy");
        for coding in ["gzip", "deflate", "br"] {
            let whole = packed(coding, &[b'x'; 2_000]);
            let cut = plain(&[(CONTENT_ENCODING, coding)], &whole[..whole.len() - 4]);
            assert!(cut.is_err(), "{coding}");
        }
    }

    #[test]
    fn body_that_unpacks_to_much_is_refused() {
        for (named, coding) in [("gzip", "gzip"), ("deflate", "deflate"), ("deflate", "raw"), ("br", "br")] {
            let most = packed(coding, &vec![b' '; BODY_BYTES_MAX]);
            assert_eq!(plain(&[(CONTENT_ENCODING, named)], &most).unwrap().len(), BODY_BYTES_MAX);
            let bomb = packed(coding, &vec![b' '; 32 << 20]);
            let refused = plain(&[(CONTENT_ENCODING, named)], &bomb).unwrap_err();
            assert_eq!(refused.to_string(), "the answer is larger than 64 KiB", "{coding}");
        }
        let many = plain(&[(CONTENT_ENCODING, "gzip,gzip,gzip,gzip")], b"x").unwrap_err();
        assert_eq!(many.to_string(), "the answer has more than 3 content-encodings");
    }

    #[test]
    fn coding_that_is_not_known_is_refused() {
        for named in ["zstd", "gzip, sdch", "compress"] {
            let refused = plain(&[(CONTENT_ENCODING, named)], b"x").unwrap_err().to_string();
            assert!(refused.starts_with("the answer has a content-encoding that is not known: "), "{refused}");
        }
    }

    // Holds: c11.http
    #[test]
    fn text_is_read_in_the_charset_that_is_named() {
        for (content_type, body, text) in [
            ("text/plain", "é".as_bytes(), "é"),
            ("text/plain; charset=ISO-8859-1", b"\xe9", "é"),
            ("text/xml;Charset=\"windows-1252\"", b"\x80", "€"),
            ("application/json; charset=utf-16le", b"[\0]\0", "[]"),
            ("text/plain; charset=shift_jis; x=y", b"\x83\x65", "テ"),
            ("text/plain; charset=utf-8", b"\xef\xbb\xbfa", "a"),
            // A byte order mark takes precedence over the header.
            ("application/json; charset=latin1", b"\xef\xbb\xbf[]", "[]"),
            ("application/json", b"\xfe\xff\0[\0]", "[]"),
            ("charset", b"a", "a"),
        ] {
            assert_eq!(plain(&[(CONTENT_TYPE, content_type)], body).unwrap(), text.as_bytes(), "{content_type}");
        }
        for unknown in ["klingon", "", "utf-7", "replacement"] {
            let refused = plain(&[(CONTENT_TYPE, &format!("text/plain; charset={unknown}"))], b"a").unwrap_err();
            assert_eq!(refused.to_string(), format!("the answer is in a charset that is not known: {unknown}"));
        }
        let grows = plain(&[(CONTENT_TYPE, "text/plain; charset=windows-1252")], &vec![0x80; BODY_BYTES_MAX]);
        assert_eq!(grows.unwrap_err().to_string(), "the answer is larger than 64 KiB");
    }

    proptest! {
        #[test]
        fn rubbish_never_panics(
            coding in prop::sample::select(vec!["gzip", "deflate", "br"]),
            charset in prop::sample::select(vec!["utf-16", "gbk", "iso-2022-jp", "euc-kr"]),
            at in 0.0..1.0_f64,
            rubbish in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            let mut body = packed(coding, b"a text that is packed, and packed, and packed");
            let start = (at * (body.len() - 1) as f64) as usize;
            for (byte, rubbish) in body[start..].iter_mut().zip(&rubbish) {
                *byte = *rubbish;
            }
            let _ = plain(&[(CONTENT_ENCODING, coding)], &body);
            let _ = plain(&[(CONTENT_TYPE, &format!("text/plain; charset={charset}"))], &rubbish);
        }
    }
}
