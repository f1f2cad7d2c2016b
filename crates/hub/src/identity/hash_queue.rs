//! The queue for password hashes. Each address has a share of it, and so has each site, which is an IPv4 address or an
//! IPv6 network of 48 bits: one client may own the 65,536 networks in it, which are counted separately elsewhere. When
//! the queue is full, the longest share loses a place to a shorter one, so that a client with many addresses does not
//! displace one from elsewhere.

use std::net::IpAddr;

use isobar_model::ids::OrganizationId;
use isobar_model::site::Site;
use isobar_quota::{FairQueue, Holder, limits};

use super::rate_limit::counted;
use super::sites::site_of;

/// The party that a password is hashed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HashedFor {
    /// An anonymous caller at an address; an IPv6 address is the first of its network of 64 bits.
    Address(IpAddr),
    /// A user of this tenant.
    Tenant(OrganizationId),
    /// The operator, or the first administrator.
    System,
}

/// The site of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HashSite {
    Addresses(IpAddr),
    Tenants(Site),
    System,
}

impl HashedFor {
    /// Returns the party at an address.
    pub(crate) fn address(address: IpAddr) -> Self {
        Self::Address(counted(address))
    }
}

impl Holder for HashedFor {
    type Tenant = Self;
    type Site = HashSite;

    fn tenant(&self) -> Self {
        *self
    }

    fn site(&self) -> HashSite {
        match self {
            Self::Address(address) => HashSite::Addresses(site_of(*address)),
            Self::Tenant(tenant) => HashSite::Tenants(tenant.site()),
            Self::System => HashSite::System,
        }
    }
}

/// Makes the queue.
pub(super) fn hash_queue() -> FairQueue<HashedFor> {
    FairQueue::new(&limits::PASSWORD_HASHES)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use isobar_quota::{Claim, Full, Limit, QueueSlot};

    use super::*;

    const LIMIT: Limit = limits::PASSWORD_HASHES;
    const WAITING: usize = LIMIT.of_all - LIMIT.at_once;

    /// Returns an address in a network of 64 bits of a site.
    fn at(site: u16, network: u16) -> HashedFor {
        HashedFor::address(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 1]))
    }

    fn ipv4(number: u8) -> HashedFor {
        HashedFor::address(IpAddr::from([192, 0, 2, number]))
    }

    /// Takes all slots for other callers.
    fn all(line: &Arc<FairQueue<HashedFor>>) -> Vec<QueueSlot<HashedFor>> {
        (0..LIMIT.at_once)
            .map(|_| line.take(Claim::begin(HashedFor::System)).now_or_never().unwrap().unwrap())
            .collect()
    }

    /// Returns a waiting claim, or `None` if it is refused.
    fn waits(
        line: &Arc<FairQueue<HashedFor>>,
        who: HashedFor,
    ) -> Option<BoxFuture<'static, Result<QueueSlot<HashedFor>, Full>>> {
        let line = Arc::clone(line);
        let mut slot = async move { line.take(Claim::begin(who)).await }.boxed();
        match (&mut slot).now_or_never() {
            None => Some(slot),
            Some(Err(Full { .. })) => None,
            Some(other) => panic!("{:?}", other.map(|_| ())),
        }
    }

    #[test]
    fn site_has_one_share_and_others_come_next() {
        let line = Arc::new(hash_queue());
        let mut slots = all(&line);
        let crowd: Vec<_> = (0..1_000).filter_map(|network| waits(&line, at(1, network))).collect();
        assert_eq!(crowd.len(), LIMIT.of_site);
        let [other, plain] = [at(2, 0), ipv4(1)].map(|who| waits(&line, who).unwrap());
        // The first slot is that of the crowd, the next are those of the two who came last.
        slots.clear();
        let other = other.now_or_never().unwrap().unwrap();
        drop(other);
        let plain = plain.now_or_never().unwrap().unwrap();
        drop((crowd, plain));
        assert_eq!(line.taken_and_waiting(), (0, 0));
    }

    #[test]
    fn address_has_fewer_places_than_its_site() {
        let line = Arc::new(hash_queue());
        let (slots, mut all_waiting) = (all(&line), Vec::new());
        for (who, places) in [
            (at(1, 1), LIMIT.of_one),
            (at(1, 2), LIMIT.of_site - LIMIT.of_one),
            (ipv4(1), LIMIT.of_one),
            (HashedFor::Tenant(OrganizationId(uuid::Uuid::from_u128(1))), LIMIT.of_one),
        ] {
            let waiting: Vec<_> = (0..100).filter_map(|_| waits(&line, who)).collect();
            assert_eq!(waiting.len(), places, "{who:?}");
            all_waiting.extend(waiting);
        }
        drop((slots, all_waiting));
        assert_eq!(line.taken_and_waiting(), (0, 0));
    }

    #[test]
    fn heaviest_site_makes_room_when_full() {
        let line = Arc::new(hash_queue());
        let slots = all(&line);
        let from = (0..10).flat_map(|site| (0..100).map(move |network| at(site, network)));
        let mut crowd: Vec<_> = from.filter_map(|who| waits(&line, who)).collect();
        assert_eq!(line.taken_and_waiting().1, WAITING);
        // Callers from elsewhere find a place.
        let others: Vec<_> = (0..20).map(|number| waits(&line, ipv4(number)).unwrap()).collect();
        assert_eq!(line.taken_and_waiting().1, WAITING);
        let evicted = crowd.iter_mut().filter_map(|waiting| waiting.now_or_never()).filter(Result::is_err).count();
        assert_eq!(crowd.len() + others.len() - evicted, WAITING);
        drop((slots, others, crowd));
        assert_eq!(line.taken_and_waiting(), (0, 0));
    }
}
