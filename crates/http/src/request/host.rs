//! Checks the `Host` of a request (RFC 9112, 3.2). A missing, repeated or malformed one is refused first, because a
//! proxy in front of the server might read it differently.

use axum::http::header::HOST;
use axum::http::{Request, Version};
use isobar_model::error::Error;

use super::body::RequestBody;

const FIELD: &str = "header.Host";

/// Returns an error if the host of a request is invalid.
pub(crate) fn check(request: &Request<RequestBody>) -> Result<(), Error> {
    let refused = |message| Err(Error::invalid(FIELD, message));
    let mut hosts = request.headers().get_all(HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        // HTTP/2 has the host in the target, and may repeat it here (RFC 9113, 8.3.1).
        (None, _) if request.version() == Version::HTTP_2 && request.uri().authority().is_some() => {}
        (None, _) if request.version() >= Version::HTTP_11 => return refused("is required"),
        (None, _) => {}
        (Some(_), Some(_)) => return refused("must be there once"),
        (Some(host), None) if !is_valid(host.as_bytes()) => {
            return refused("must be a host, and a port if there is one");
        }
        (Some(_), None) => {}
    }
    // A target in absolute form contains a host too, by the same rules.
    match request.uri().authority() {
        Some(target) if !is_valid(target.as_str().as_bytes()) => {
            Err(Error::invalid("target", "must name a host, and a port if there is one"))
        }
        _ => Ok(()),
    }
}

/// Returns true for `uri-host [":" port]`, not empty.
pub(crate) fn is_valid(host: &[u8]) -> bool {
    // Nearly all hosts are names or IPv4 addresses, with or without a port.
    match host.iter().position(|byte| !is_of_name(*byte)) {
        None => !host.is_empty(),
        Some(0) if host[0] == b'[' => is_literal(&host[1..]),
        Some(at) if host[at] == b'%' => is_escaped(host),
        Some(at) => at > 0 && is_port(&host[at..]),
    }
}

/// Returns true for a host name with percent escapes and an optional port.
fn is_escaped(host: &[u8]) -> bool {
    let (name, port) = host.split_at(host.iter().position(|byte| *byte == b':').unwrap_or(host.len()));
    name.iter().all(|byte| *byte == b'%' || is_of_name(*byte)) && are_escapes_whole(name) && is_port(port)
}

/// Returns true for an address in brackets and an optional port, without the opening bracket.
fn is_literal(rest: &[u8]) -> bool {
    let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
    let (address, port) = (&rest[..end], &rest[end + 1..]);
    let Ok(text) = std::str::from_utf8(address) else { return false };
    let is_future = |version: &str| {
        let (digits, address) = version.split_once('.').unwrap_or_default();
        let hexadecimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let plain = |byte: u8| byte == b':' || is_of_name(byte);
        hexadecimal && !address.is_empty() && address.bytes().all(plain)
    };
    let is_address = match text.strip_prefix(['v', 'V']) {
        Some(version) => is_future(version),
        None => text.parse::<std::net::Ipv6Addr>().is_ok(),
    };
    is_address && is_port(port)
}

/// Returns true for an empty text, or a colon and a port, which may be empty (RFC 3986, 3.2.3).
fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None | Some((b':', [])) => true,
        Some((b':', digits)) => {
            let number = digits.iter().try_fold(0_u32, |sum, digit| {
                let digit = char::from(*digit).to_digit(10)?;
                Some((sum * 10 + digit).min(u32::from(u16::MAX) + 1))
            });
            number.is_some_and(|number| number <= u32::from(u16::MAX))
        }
        Some(_) => false,
    }
}

/// Returns true if a byte may occur in a registered name (RFC 3986, 3.2.2): unreserved, or a sub-delimiter.
const fn is_of_name(byte: u8) -> bool {
    const OF_NAME: [bool; 256] = {
        let (mut table, mut byte) = ([false; 256], 0);
        while byte < 256 {
            table[byte] = matches!(byte as u8,
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~'
                | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
            byte += 1;
        }
        table
    };
    OF_NAME[byte as usize]
}

/// Returns true if two hex digits follow each percent sign.
fn are_escapes_whole(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| *byte == b'%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_with_or_without_a_port() {
        for good in [
            "h",
            "isobar.example",
            "127.0.0.1:8080",
            "a-b_c.example:1",
            "h:",
            "[::1]",
            "[2001:db8::1]:443",
            "[v1.a:b]",
            "xn--bcher-kva.example",
            "b%C3%BCcher",
            "a.example.",
        ] {
            assert!(is_valid(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a,b:c",
            "u@h",
            "h/",
            "h:x",
            "h:65536",
            "h:-1",
            "[::1",
            "::1",
            "[::1]x",
            "[]",
            "[1.2.3.4]",
            "h\t",
            "b\u{fc}cher",
            "100%",
            "%zz",
            "a:1:2",
            "h?",
            "h#",
            "[v.a]",
            "[fe80::1%eth0]",
            "http://h",
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad}");
        }
    }

    fn asked(version: Version, target: &str, hosts: &[&str]) -> Result<(), Error> {
        let mut request = Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        check(&request.body(RequestBody::Whole(Bytes::new())).unwrap())
    }

    #[test]
    fn host_is_required_once_except_in_http_1_0() {
        let whole = "http://isobar.example/v2/spec";
        for target in ["/v2/spec", whole] {
            assert!(asked(Version::HTTP_11, target, &["h"]).is_ok());
            assert!(asked(Version::HTTP_10, target, &[]).is_ok());
            assert!(asked(Version::HTTP_11, target, &[]).is_err());
            for version in [Version::HTTP_10, Version::HTTP_11] {
                assert!(asked(version, target, &["h", "h"]).is_err());
                assert!(asked(version, target, &["a b"]).is_err());
            }
        }
        assert!(asked(Version::HTTP_11, "http://user@h/v2/spec", &["h"]).is_err());
    }
}
