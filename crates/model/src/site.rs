//! Sites: tenants that registered from one address or network, which count together in competition with others.
//!
//! Registration is open and free. Somebody with a hundred accounts has a hundred tenants, but mostly one address. So a
//! self-registered organization carries a tag of that address in the last four bytes of its identifier instead of
//! random bits: code that knows the tenant knows its site. An organization that a user created is a site of its own.

use uuid::Uuid;

use crate::ids::OrganizationId;

/// Bits of an identifier that hold the site.
const SITE_BITS: u32 = 32;

/// A tag of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(u32);

impl Site {
    /// Returns the site with this tag.
    pub const fn of_tag(tag: u32) -> Self {
        Self(tag)
    }

    /// Makes the identifier of an organization that registers itself from this site, from a minted one.
    pub fn founds(self, minted: Uuid) -> OrganizationId {
        OrganizationId(Uuid::from_u128(minted.as_u128() >> SITE_BITS << SITE_BITS | u128::from(self.0)))
    }
}

impl OrganizationId {
    /// Returns the site of a tenant.
    pub const fn site(&self) -> Site {
        Site(self.0.as_u128() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organization_bears_the_site_that_founded_it() {
        let minted = |low: u128| Uuid::from_u128(0x0189_0a5d_ac96_774b_bcce_b302_0000_0000 | low);
        let site = Site::of_tag(0xfeed_beef);
        let (one, other) = (site.founds(minted(1)), site.founds(Uuid::from_u128(minted(1).as_u128() + (1 << 32))));
        assert_eq!((one.site(), other.site()), (site, site));
        assert_ne!(one, other);
        assert_eq!(one.minted_at(), OrganizationId(minted(1)).minted_at());
        assert_eq!((one.0.get_version_num(), one.0.get_variant()), (7, uuid::Variant::RFC4122));
        assert_ne!(OrganizationId(minted(1)).site(), OrganizationId(minted(2)).site());
    }
}
