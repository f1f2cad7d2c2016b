//! Finds the address of a client behind proxies (contract: Behind a proxy, and without one).
//!
//! Headers of proxies are used only if the operator trusts the proxy, and are read from the right: each proxy appends
//! the address of its peer to a list that may hold anything. The first hop that is not trusted is the client. If a hop
//! cannot be read (no address, a hidden one, a malformed entry), the client is the last hop that a trusted proxy named.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::header::FORWARDED;
use axum::http::{HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Most hops that are followed; real chains of proxies are shorter.
const HOPS_MAX: usize = 32;

/// A range of addresses with a common prefix (RFC 4632): `10.1.0.0/16`, `2001:db8::/32`; or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// First address.
    address: IpAddr,
    /// Length of the prefix in bits.
    bits: u32,
}

/// Reason why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// Malformed.
    #[error("is no IP address, nor a network like 10.1.0.0/16")]
    Form,
    /// An address within a network: either may be meant.
    #[error("is an address within {0}: write the network, or the address without a prefix")]
    Within(Network),
    /// A network of all addresses.
    #[error("is every address there is: whoever connects could say that it is anybody")]
    Everything,
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| BadNetwork::Form)?;
        let is_plain = |bits: &&str| !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match prefix {
            None => width(address),
            Some(bits) => Some(bits).filter(is_plain).and_then(|bits| bits.parse().ok()).ok_or(BadNetwork::Form)?,
        };
        if bits > width(address) {
            return Err(BadNetwork::Form);
        }
        // An IPv4-mapped IPv6 network is stored as IPv4.
        let (address, bits) = match (address.to_canonical(), width(address) - bits) {
            (plain, free) if free <= width(plain) => (plain, width(plain) - free),
            _ => (address, bits),
        };
        if bits == 0 {
            return Err(BadNetwork::Everything);
        }
        let network = Self { address: beginning(address, bits), bits };
        if network.address == address { Ok(network) } else { Err(BadNetwork::Within(network)) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Returns true if the network contains the address, which must not be IPv4-mapped.
    fn holds(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && beginning(address, self.bits) == self.address
    }
}

/// Returns the length of an address in bits.
fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { u32::BITS } else { u128::BITS }
}

/// Clears all bits of an address behind the prefix.
fn beginning(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(u32::BITS - bits).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(u128::BITS - bits).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// Returns true if the operator trusts the address, which must not be IPv4-mapped.
pub(crate) fn is_trusted(trusted: &[Network], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.holds(address))
}

/// Finds the client of a call through a trusted proxy. If both headers are present and disagree, one is the client's
/// own, let through by a proxy that sets the other: then neither is used.
pub(crate) fn client_behind(trusted: &[Network], proxy: IpAddr, headers: &HeaderMap) -> IpAddr {
    let follow = |hops: &mut dyn Iterator<Item = Option<IpAddr>>| followed(trusted, proxy, hops);
    let old = headers.contains_key(X_FORWARDED_FOR).then(|| follow(&mut addresses(headers)));
    let new = headers.contains_key(FORWARDED).then(|| follow(&mut elements(headers)));
    match (old, new) {
        (Some(one), Some(other)) if one != other => proxy,
        (Some(client), _) | (None, Some(client)) => client,
        (None, None) => proxy,
    }
}

/// Returns the first hop, from the proxy outwards, that is not trusted, or the last one that was named.
fn followed(trusted: &[Network], proxy: IpAddr, hops: &mut dyn Iterator<Item = Option<IpAddr>>) -> IpAddr {
    let mut last = proxy;
    for hop in hops.take(HOPS_MAX) {
        let Some(address) = hop else { break };
        last = address;
        if !is_trusted(trusted, address) {
            break;
        }
    }
    last
}

/// Reads the hops of `X-Forwarded-For`, nearest first; `None` for an invalid address. Several header lines form one
/// list.
fn addresses(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(X_FORWARDED_FOR).into_iter().rev();
    lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',').map(node))
}

/// Reads the hops of `Forwarded`, nearest first; `None` for a hop without an address and for a malformed line.
fn elements(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(FORWARDED).into_iter().rev();
    lines.flat_map(|line| {
        let mut hops = forwarded(line.as_bytes()).unwrap_or_else(|| vec![None]);
        hops.reverse();
        hops
    })
}

/// Reads the hops of one line of `Forwarded` (RFC 7239, 4), in order; `None` if it is malformed. An unterminated quoted
/// string may hide what the proxy appended, so that the whole line is rejected.
fn forwarded(line: &[u8]) -> Option<Vec<Option<IpAddr>>> {
    let (mut hops, mut rest) = (Vec::new(), line);
    loop {
        let (mut node_of, mut is_named) = (None, false);
        loop {
            rest = rest.trim_ascii_start();
            // Elements and pairs may be empty.
            if !matches!(rest.first(), None | Some(b',' | b';')) {
                let (name, value, behind) = pair(rest)?;
                if name.eq_ignore_ascii_case(b"for") {
                    if is_named {
                        return None;
                    }
                    (node_of, is_named) = (node(&value), true);
                }
                rest = behind.trim_ascii_start();
            }
            match rest.split_first() {
                Some((b';', behind)) => rest = behind,
                Some((b',', behind)) => {
                    rest = behind;
                    break;
                }
                Some(_) => return None,
                None => {
                    hops.push(node_of);
                    return Some(hops);
                }
            }
        }
        hops.push(node_of);
    }
}

/// Splits off a pair: name, value and the rest. Accepts values without the required quotes, as many proxies omit them.
fn pair(text: &[u8]) -> Option<(&[u8], Vec<u8>, &[u8])> {
    let equals = text.iter().position(|byte| matches!(byte, b'=' | b',' | b';' | b'"'))?;
    let (name, rest) = (&text[..equals], text[equals..].strip_prefix(b"=")?);
    if name.is_empty() || name.contains(&b' ') || name.contains(&b'\t') {
        return None;
    }
    let Some(quoted) = rest.strip_prefix(b"\"") else {
        let end = rest.iter().position(|byte| matches!(byte, b',' | b';' | b'"')).unwrap_or(rest.len());
        return Some((name, rest[..end].trim_ascii_end().to_vec(), &rest[end..]));
    };
    let (mut value, mut bytes) = (Vec::new(), quoted.iter().enumerate());
    loop {
        match bytes.next()? {
            (at, b'"') => return Some((name, value, &quoted[at + 1..])),
            (_, b'\\') => value.push(*bytes.next()?.1),
            (_, byte) => value.push(*byte),
        }
    }
}

/// Parses a node (RFC 7239, 6): an address with or without a port, IPv6 with or without brackets. `None` if it is
/// hidden, unknown or malformed.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(with_port) = text.parse::<SocketAddr>() {
        return Some(with_port.ip().to_canonical());
    }
    // In brackets without a port, or with an obfuscated one.
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':')?),
    };
    if !port.is_empty() && !port.starts_with(":_") {
        return None;
    }
    let address: IpAddr = address.parse().ok()?;
    (address.is_ipv6() == text.starts_with('[')).then(|| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const PROXY: &str = "10.0.0.1";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn trusted() -> Vec<Network> {
        ["10.0.0.0/8", "fd00::/8", "192.0.2.7"].map(|text| text.parse().unwrap()).to_vec()
    }

    /// Returns the client for these header lines, through a trusted proxy.
    fn client_of(lines: &[(&str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        client_behind(&trusted(), address(PROXY), &headers).to_string()
    }

    fn by_old(value: &str) -> String {
        client_of(&[("x-forwarded-for", value)])
    }

    fn by_new(value: &str) -> String {
        client_of(&[("forwarded", value)])
    }

    #[test]
    fn networks_are_read_and_faults_are_named() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("::/1", "::/1"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), written);
        }
        for bad in
            ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "::/129", "a.example", "10.0.0.0/8/8", "/8"]
        {
            assert_eq!(bad.parse::<Network>(), Err(BadNetwork::Form), "{bad}");
        }
        for everything in ["0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
            assert_eq!(everything.parse::<Network>(), Err(BadNetwork::Everything), "{everything}");
        }
        let within = "10.1.2.3/8".parse::<Network>().unwrap_err();
        assert_eq!(
            within.to_string(),
            "is an address within 10.0.0.0/8: write the network, or the address without a prefix"
        );
    }

    #[test]
    fn an_address_is_in_its_network_and_in_no_other() {
        let holds = |network: &str, text: &str| network.parse::<Network>().unwrap().holds(address(text));
        assert!(holds("10.0.0.0/8", "10.255.0.1") && !holds("10.0.0.0/8", "11.0.0.0"));
        assert!(holds("10.0.0.1", "10.0.0.1") && !holds("10.0.0.1", "10.0.0.2"));
        assert!(holds("2001:db8::/33", "2001:db8:7fff::1") && !holds("2001:db8::/33", "2001:db8:8000::1"));
        assert!(!holds("::/8", "0.0.0.1") && !holds("10.0.0.0/8", "a00::"));
    }

    #[test]
    fn client_is_the_rightmost_untrusted_hop() {
        for (value, client) in [
            ("203.0.113.9", "203.0.113.9"),
            ("1.1.1.1, 203.0.113.9", "203.0.113.9"),
            ("1.1.1.1, 203.0.113.9, 10.9.9.9,192.0.2.7", "203.0.113.9"),
            // All are trusted: the farthest is the client.
            ("10.1.1.1, 10.2.2.2", "10.1.1.1"),
            (" 203.0.113.9:4711 ", "203.0.113.9"),
            ("2001:db8::9", "2001:db8::9"),
            ("[2001:db8::9]", "2001:db8::9"),
            ("[2001:db8::9]:4711, fd00::1", "2001:db8::9"),
            ("::ffff:203.0.113.9, ::ffff:10.1.1.1", "203.0.113.9"),
        ] {
            assert_eq!(by_old(value), client, "{value}");
        }
        assert_eq!(client_of(&[]), PROXY);
        // Header lines form one list, in order.
        let lines = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.9, 10.3.3.3")];
        assert_eq!(client_of(&lines), "203.0.113.9");
        let lines = [("x-forwarded-for", "1.1.1.1, 203.0.113.9"), ("x-forwarded-for", "10.3.3.3")];
        assert_eq!(client_of(&lines), "203.0.113.9");
    }

    #[test]
    fn forwarded_header_is_read_by_its_rfc() {
        for (value, client) in [
            ("for=203.0.113.9", "203.0.113.9"),
            ("For=\"203.0.113.9:4711\";proto=https;by=10.0.0.1", "203.0.113.9"),
            ("proto=http;FOR=203.0.113.9;host=\"a, b;c\"", "203.0.113.9"),
            ("for=1.1.1.1, for=203.0.113.9;by=_x, for=10.9.9.9", "203.0.113.9"),
            ("for=\"[2001:db8::9]\"", "2001:db8::9"),
            ("for=\"[2001:db8::9]:4711\"", "2001:db8::9"),
            ("for=\"[2001:db8::9]:_hidden\"", "2001:db8::9"),
            ("for=\"203.0.113.9:_hidden\"", "203.0.113.9"),
            ("for=[2001:db8::9]", "2001:db8::9"),
            ("for=\"2\\03.0.113.9\"", "203.0.113.9"),
            ("for=203.0.113.9;", "203.0.113.9"),
            ("for=1.1.1.1,,for=203.0.113.9", "203.0.113.9"),
        ] {
            assert_eq!(by_new(value), client, "{value}");
        }
        let lines = [("forwarded", "for=\"evil"), ("forwarded", "for=203.0.113.9")];
        assert_eq!(client_of(&lines), "203.0.113.9");
    }

    // Holds: c14.proxies
    #[test]
    fn unreadable_hop_ends_the_chain_at_the_last_known_one() {
        for value in
            ["", " ", ",", "1.1.1.1,", "1.1.1.1, unknown", "a.example", "1.1.1.1, 203.0.113.9x", "1.1.1.1, _hidden"]
        {
            assert_eq!(by_old(value), PROXY, "{value}");
            assert_eq!(by_old(&format!("{value}, 10.5.5.5")), "10.5.5.5", "{value}");
        }
        for bad in [
            "203.0.113.9:",
            "203.0.113.9:99999",
            "203.0.113.9:x",
            "[203.0.113.9]",
            "[::1",
            "fe80::1%eth0",
            "\u{e9}",
            "1.2.3",
        ] {
            assert_eq!(by_old(bad), PROXY, "{bad}");
        }
        for value in [
            "",
            "for=unknown",
            "for=_gazonk",
            "for=\"_gazonk:_x\"",
            "for=\"\"",
            "for=",
            "proto=https",
            "for=1.1.1.1, proto=https",
            "for=1.1.1.1,",
            "for=1.1.1.1;for=203.0.113.9",
            "for = 203.0.113.9",
            "203.0.113.9",
            "=203.0.113.9",
            // Unbalanced quotes may contain what the proxy appended.
            "for=\"1.1.1.1, for=203.0.113.9",
            "for=\"1.1.1.1\\\", for=203.0.113.9",
            "for=6.6.6.6;by=\", for=\"[2001:db8::9]:1\"",
            "for=1.1.1.1\", for=203.0.113.9",
            "for=\"1.1.1.1\"x, for=203.0.113.9",
        ] {
            assert_eq!(by_new(value), PROXY, "{value}");
        }
    }

    #[test]
    fn disagreeing_forwarded_headers_are_ignored() {
        let both = |old, new| client_of(&[("x-forwarded-for", old), ("forwarded", new)]);
        assert_eq!(both("203.0.113.9", "for=\"203.0.113.9:1\""), "203.0.113.9");
        assert_eq!(both("203.0.113.9", "for=1.1.1.1"), PROXY);
        assert_eq!(both("1.1.1.1", "for=203.0.113.9"), PROXY);
        assert_eq!(both("203.0.113.9", "rubbish"), PROXY);
        assert_eq!(both("", "for=203.0.113.9"), PROXY);
    }

    #[test]
    fn long_chain_of_hops_is_followed_to_the_limit() {
        let many = format!("203.0.113.9{}", ", 10.0.0.2".repeat(HOPS_MAX));
        assert_eq!(by_old(&many), "10.0.0.2");
        let long = "1.1.1.1,".repeat(8_000) + "203.0.113.9";
        assert_eq!(by_old(&long), "203.0.113.9");
        let long = "for=1.1.1.1,".repeat(8_000) + "for=203.0.113.9";
        assert_eq!(by_new(&long), "203.0.113.9");
    }

    proptest! {
        /// Checks that the hop that the proxy appends decides, whatever the client sent.
        #[test]
        fn client_cannot_forge_its_address(said in "[ -~]{0,60}", is_new: bool, quoted: bool) {
            let added = if quoted { "for=\"203.0.113.9:80\";proto=\"https\"" } else { "for=203.0.113.9;proto=https" };
            let found = match is_new {
                true => by_new(&format!("{said}, {added}")),
                false => by_old(&format!("{said}, 203.0.113.9")),
            };
            prop_assert!(found == "203.0.113.9" || (is_new && found == PROXY), "{}", found);
        }

        #[test]
        fn random_forwarded_header_names_no_client(said in prop::collection::vec(any::<u8>(), 0..80)) {
            let said: Vec<u8> = said.into_iter().filter(|byte| *byte >= 32 && *byte != 127).collect();
            let mut headers = HeaderMap::new();
            headers.append(FORWARDED, HeaderValue::from_bytes(&said).unwrap());
            headers.append(X_FORWARDED_FOR, HeaderValue::from_bytes(&said).unwrap());
            client_behind(&trusted(), address(PROXY), &headers);
        }
    }
}
