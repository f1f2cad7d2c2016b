//! The addresses that may be called: public ones, and private ones that the operator lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not part of the public internet (IANA's special-purpose registry), with their prefix lengths.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),  // this network, and 0.0.0.0, which reaches this machine
    (Ipv4Addr::new(10, 0, 0, 0), 8), // private
    (Ipv4Addr::new(100, 64, 0, 0), 10), // behind a carrier's NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16), // link-local: the metadata services of clouds are here
    (Ipv4Addr::new(172, 16, 0, 0), 12), // private
    (Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24), // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24), // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16), // private
    (Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4), // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4), // reserved, and broadcast
];

/// The only public part of IPv6: everything else is loopback, unique-local, link-local, multicast, unassigned, or an
/// encoding of an IPv4 address (NAT64 and its like).
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Networks within it that are not public.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments; Teredo carries IPv4 addresses
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4 carries IPv4 addresses
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// The private addresses and names that the operator lets projects call (`outgoing.allow`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    names: Vec<String>,
    /// Networks: address and prefix length.
    networks: Vec<(IpAddr, u32)>,
}

impl Guard {
    /// Reads the operator's list: addresses, networks (`10.1.0.0/16`) and host names. Other entries allow nothing.
    pub(crate) fn new(allow: &[String]) -> Self {
        let mut guard = Self::default();
        for item in allow {
            let (address, prefix) = item.split_once('/').map_or((&**item, None), |(host, bits)| (host, Some(bits)));
            match (address.parse::<IpAddr>(), prefix.map(str::parse::<u32>)) {
                (Ok(address), None) => guard.networks.push((address.to_canonical(), 128)),
                (Ok(address), Some(Ok(bits))) => guard.networks.push((address, bits)),
                (Err(_), None) => guard.names.push(plain_name(item)),
                _ => {}
            }
        }
        guard
    }

    /// Returns true if a call to `host` (a name, or the address itself) may connect to this address.
    pub(crate) fn allows(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address)
            || self.names.contains(&plain_name(host))
            || self.networks.iter().any(|(network, bits)| is_within(address, *network, *bits))
    }
}

/// Normalizes a host name for comparison: lower case, without the trailing dot.
fn plain_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Returns true if an address is of the public internet. An IPv4-mapped one is judged as the IPv4 address.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !NOT_PUBLIC_V4.iter().any(|(network, bits)| is_within(address.into(), (*network).into(), *bits))
        }
        IpAddr::V6(address) => {
            let within = |(network, bits): &(Ipv6Addr, u32)| is_within(address.into(), (*network).into(), *bits);
            within(&PUBLIC_V6) && !NOT_PUBLIC_V6.iter().any(within)
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differing = (address.to_bits() ^ network.to_bits()).leading_zeros();
            differing >= bits.min(32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differing = (address.to_bits() ^ network.to_bits()).leading_zeros();
            differing >= bits.min(128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(items: &[&str]) -> Guard {
        Guard::new(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
    }

    // Holds: c11.missing
    #[test]
    fn private_address_is_not_public() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:0:127.0.0.1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn internet_address_is_public() {
        for address in
            ["1.1.1.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "192.167.1.1", "2606:4700::1111", "::ffff:8.8.8.8"]
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn listed_addresses_networks_and_names_are_allowed() {
        let guard = list(&["10.1.0.0/16", "127.0.0.1", "fd00::/8", "Printer.local", "nonsense/99x"]);
        let allows = |host: &str, address: &str| guard.allows(host, address.parse().unwrap());
        assert!(allows("any", "10.1.255.1") && !allows("any", "10.2.0.1"));
        assert!(allows("any", "127.0.0.1") && allows("any", "::ffff:127.0.0.1") && !allows("any", "127.0.0.2"));
        assert!(allows("any", "fd12::1") && !allows("any", "fc12::1"));
        assert!(allows("PRINTER.local.", "192.168.1.9") && !allows("other.local", "192.168.1.9"));
        assert!(list(&["0.0.0.0/0"]).allows("any", "127.0.0.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn mapped_address_is_judged_as_its_ipv4_address(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(is_public(address.into()), is_public(address.to_ipv6_mapped().into()));
        }
    }
}
