//! Tags organizations founded by registration with the site of the registration: its address or network, as a tag that
//! cannot be turned back into it (see [`isobar_model::site`]).

use std::net::{IpAddr, Ipv6Addr};

use hmac::{Hmac, KeyInit as _, Mac as _};
use isobar_model::error::{Error, Result};
use isobar_model::site::Site;
use sha2::Sha256;

/// Distinguishes a tag from other values that the key signs.
const PURPOSE: &[u8] = b"site ";

/// Makes tags, always the same one for an address.
pub(super) struct Sites(Hmac<Sha256>);

impl Sites {
    pub(super) fn new(key: &[u8]) -> Result<Self> {
        Hmac::new_from_slice(key).map(|mac| Self(mac.chain_update(PURPOSE))).map_err(Error::internal)
    }

    /// Returns the site of a registration from this address.
    pub(super) fn of(&self, address: IpAddr) -> Site {
        let tag = self.0.clone().chain_update(site_of(address).to_string()).finalize().into_bytes();
        Site::of_tag(u32::from_be_bytes([tag[0], tag[1], tag[2], tag[3]]))
    }
}

/// Returns the network of one customer: an IPv4 address, or an IPv6 network of 48 bits. An IPv4-mapped address counts
/// as its IPv4 address.
pub(super) fn site_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        plain @ IpAddr::V4(_) => plain,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 80 << 80)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_is_an_address_or_a_network_of_48_bits() {
        let sites = Sites::new(&[7; 32]).unwrap();
        let of = |text: &str| sites.of(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8:1::1"), of("2001:db8:1:ffff::2"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
        assert_ne!(of("192.0.2.1"), Sites::new(&[8; 32]).unwrap().of("192.0.2.1".parse().unwrap()));
    }
}
