//! The line of those who wait for a password to be hashed. Each address has a share of it, and each site, which is an IPv4
//! address or an IPv6 network of 48 bits: one client may have 65,536 networks in it that are counted apart otherwise. A slot
//! that is free goes to the site that has the fewest, and among those to the one that had its last the longest ago; within a
//! site to its addresses in the same way. When the line is full, the longest share makes room for a shorter one: who has many
//! addresses crowds nobody out who comes from another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_model::site::Site;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::rate_limit::counted;
use super::sites::site_of;

/// Hashes computed at the same time: each takes about 19 MiB and tens of milliseconds.
pub(super) const HASHES_AT_ONCE: usize = 2;
/// Requests that may wait for a hash: all of them, those of one address, and those of one site. A tenant's users are as one
/// address, and tenants that registered from one are one site.
const HASHES_WAITING_MAX: usize = 256;
const HASHES_OF_ADDRESS_MAX: usize = 32;
const HASHES_OF_SITE_MAX: usize = 64;

/// For whom a password is hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashedFor {
    /// Somebody who calls from there, and may be anybody.
    Address(IpAddr),
    /// Somebody whom this tenant knows.
    Tenant(OrganizationId),
    /// The operator, or the first administrator.
    System,
}

/// Who has a share of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HashHolder {
    Site(IpAddr),
    SiteOfTenants(Site),
    Address(IpAddr),
    Tenant(OrganizationId),
    System,
}

/// The site of a holder, and the holder.
#[derive(Clone, Copy, Debug)]
struct HashPlace([HashHolder; 2]);

impl From<HashedFor> for HashPlace {
    fn from(who: HashedFor) -> Self {
        match who {
            HashedFor::Address(address) => {
                Self([HashHolder::Site(site_of(address)), HashHolder::Address(counted(address))])
            }
            HashedFor::Tenant(tenant) => Self([HashHolder::SiteOfTenants(tenant.site()), HashHolder::Tenant(tenant)]),
            HashedFor::System => Self([HashHolder::System; 2]),
        }
    }
}

/// The line.
pub(super) struct HashLine(Mutex<LineState>);

#[derive(Default)]
struct LineState {
    hashing: usize,
    waiting: Vec<HashWait>,
    /// Those who hash or wait.
    holders: HashMap<HashHolder, HashHolds>,
    /// Grows with each who comes, and each slot.
    number: u64,
}

struct HashWait {
    number: u64,
    place: HashPlace,
    give: oneshot::Sender<HashSlot>,
}

/// What a holder has of the line.
#[derive(Clone, Copy, Default)]
struct HashHolds {
    hashing: usize,
    waiting: usize,
    /// When it had its last slot.
    last: u64,
}

/// A slot for hashing, until it is dropped.
pub(super) struct HashSlot {
    line: Arc<HashLine>,
    place: HashPlace,
}

/// Somebody who waits, until it is dropped.
struct HashWaiter<'l> {
    line: &'l HashLine,
    number: u64,
}

impl HashLine {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// A slot, when it comes. Who no longer waits has no place in the line.
    ///
    /// # Errors
    /// `Busy`: too many wait already, or so many that others who have fewer come first.
    pub(super) async fn take(self: &Arc<Self>, who: HashedFor) -> Result<HashSlot> {
        let place = HashPlace::from(who);
        let (waits, given) = {
            let mut state = self.0.lock();
            state.number += 1;
            let number = state.number;
            if state.hashing < HASHES_AT_ONCE {
                // While a slot is free nobody waits.
                state.begins(place);
                return Ok(HashSlot { line: Arc::clone(self), place });
            }
            state.make_room(place)?;
            let (give, given) = oneshot::channel();
            state.waiting.push(HashWait { number, place, give });
            state.change(place, |holds| holds.waiting += 1);
            (HashWaiter { line: self, number }, given)
        };
        let slot = given.await.map_err(|_| Error::Busy);
        drop(waits);
        slot
    }

    #[cfg(test)]
    fn hashing_and_waiting(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.hashing, state.waiting.len())
    }
}

impl LineState {
    fn holds(&self, holder: HashHolder) -> HashHolds {
        self.holders.get(&holder).copied().unwrap_or_default()
    }

    /// Changes what both holders of a place have; who has nothing is forgotten.
    fn change(&mut self, HashPlace(holders): HashPlace, change: impl Fn(&mut HashHolds)) {
        let distinct = if holders[0] == holders[1] { &holders[..1] } else { &holders[..] };
        for holder in distinct {
            let holds = self.holders.entry(*holder).or_default();
            change(holds);
            if holds.hashing == 0 && holds.waiting == 0 {
                self.holders.remove(holder);
            }
        }
    }

    /// Whether one more may wait; in a full line whoever has most gives up a place, if that is more than this one has.
    fn make_room(&mut self, HashPlace([site, holder]): HashPlace) -> Result<()> {
        let own = self.holds(site).waiting;
        if own >= HASHES_OF_SITE_MAX || self.holds(holder).waiting >= HASHES_OF_ADDRESS_MAX {
            return Err(Error::Busy);
        }
        if self.waiting.len() < HASHES_WAITING_MAX {
            return Ok(());
        }
        let rank = |waiting: &HashWait| {
            let HashPlace([site, holder]) = waiting.place;
            (self.holds(site).waiting, self.holds(holder).waiting, waiting.number)
        };
        let last = (0..self.waiting.len()).max_by_key(|at| rank(&self.waiting[*at])).ok_or(Error::Busy)?;
        if self.holds(self.waiting[last].place.0[0]).waiting <= own + 1 {
            return Err(Error::Busy);
        }
        // It hears that nobody will give it a slot.
        let gone = self.waiting.swap_remove(last);
        self.change(gone.place, |holds| holds.waiting -= 1);
        Ok(())
    }

    fn begins(&mut self, place: HashPlace) {
        self.hashing += 1;
        let number = self.number;
        self.change(place, |holds| (holds.hashing, holds.last) = (holds.hashing + 1, number));
    }

    /// Whose slot it is, if anybody waits: it begins.
    fn next(&mut self) -> Option<HashWait> {
        let rank = |waiting: &HashWait| {
            let [site, holder] = waiting.place.0.map(|holder| self.holds(holder));
            (site.hashing, site.last, holder.hashing, holder.last, waiting.number)
        };
        let first = (0..self.waiting.len()).min_by_key(|at| rank(&self.waiting[*at]))?;
        let next = self.waiting.swap_remove(first);
        self.number += 1;
        self.begins(next.place);
        self.change(next.place, |holds| holds.waiting -= 1);
        Some(next)
    }
}

impl Drop for HashWaiter<'_> {
    fn drop(&mut self) {
        let mut state = self.line.0.lock();
        if let Some(at) = state.waiting.iter().position(|waiting| waiting.number == self.number) {
            let gone = state.waiting.swap_remove(at);
            state.change(gone.place, |holds| holds.waiting -= 1);
        }
    }
}

impl Drop for HashSlot {
    fn drop(&mut self) {
        let next = {
            let mut state = self.line.0.lock();
            state.hashing -= 1;
            state.change(self.place, |holds| holds.hashing -= 1);
            state.next()
        };
        if let Some(HashWait { place, give, .. }) = next {
            // Who has gone meanwhile drops it, and so passes it on.
            drop(give.send(HashSlot { line: Arc::clone(&self.line), place }));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    /// An address in a network of 64 bits in a site.
    fn at(site: u16, network: u16) -> HashedFor {
        HashedFor::Address(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 1]))
    }

    fn ipv4(number: u8) -> HashedFor {
        HashedFor::Address(IpAddr::from([192, 0, 2, number]))
    }

    /// All slots, by others.
    fn all(line: &Arc<HashLine>) -> Vec<HashSlot> {
        (0..HASHES_AT_ONCE).map(|_| line.take(HashedFor::System).now_or_never().unwrap().unwrap()).collect()
    }

    /// Who waits; none where it is refused.
    fn waits(line: &Arc<HashLine>, who: HashedFor) -> Option<BoxFuture<'static, Result<HashSlot>>> {
        let line = Arc::clone(line);
        let mut slot = async move { line.take(who).await }.boxed();
        match (&mut slot).now_or_never() {
            None => Some(slot),
            Some(Err(Error::Busy)) => None,
            Some(other) => panic!("{:?}", other.map(|_| ())),
        }
    }

    #[test]
    fn who_has_a_whole_site_has_one_share_and_others_come_next() {
        let line = HashLine::new();
        let mut slots = all(&line);
        let crowd: Vec<_> = (0..1_000).filter_map(|network| waits(&line, at(1, network))).collect();
        assert_eq!(crowd.len(), HASHES_OF_SITE_MAX);
        let [other, plain] = [at(2, 0), ipv4(1)].map(|who| waits(&line, who).unwrap());
        // The first slot is that of the crowd, the next are those of the two who came last.
        slots.clear();
        let other = other.now_or_never().unwrap().unwrap();
        drop(other);
        let plain = plain.now_or_never().unwrap().unwrap();
        drop((crowd, plain));
        assert_eq!(line.hashing_and_waiting(), (0, 0));
        assert!(line.0.lock().holders.is_empty());
    }

    #[test]
    fn an_address_has_fewer_places_than_its_site_and_a_tenant_as_many() {
        let line = HashLine::new();
        let (slots, mut all_waiting) = (all(&line), Vec::new());
        for (who, places) in [
            (at(1, 1), HASHES_OF_ADDRESS_MAX),
            (at(1, 2), HASHES_OF_SITE_MAX - HASHES_OF_ADDRESS_MAX),
            (ipv4(1), HASHES_OF_ADDRESS_MAX),
            (HashedFor::Tenant(OrganizationId(uuid::Uuid::from_u128(1))), HASHES_OF_ADDRESS_MAX),
        ] {
            let waiting: Vec<_> = (0..100).filter_map(|_| waits(&line, who)).collect();
            assert_eq!(waiting.len(), places, "{who:?}");
            all_waiting.extend(waiting);
        }
        drop((slots, all_waiting));
        assert_eq!(line.hashing_and_waiting(), (0, 0));
    }

    #[test]
    fn in_a_full_line_whoever_has_most_makes_room() {
        let line = HashLine::new();
        let slots = all(&line);
        let from = (0..10).flat_map(|site| (0..100).map(move |network| at(site, network)));
        let mut crowd: Vec<_> = from.filter_map(|who| waits(&line, who)).collect();
        assert_eq!(line.hashing_and_waiting().1, HASHES_WAITING_MAX);
        // Whoever comes from elsewhere finds a place.
        let others: Vec<_> = (0..20).map(|number| waits(&line, ipv4(number)).unwrap()).collect();
        assert_eq!(line.hashing_and_waiting().1, HASHES_WAITING_MAX);
        let evicted = crowd.iter_mut().filter_map(|waiting| waiting.now_or_never()).filter(Result::is_err).count();
        assert_eq!(crowd.len() + others.len() - evicted, HASHES_WAITING_MAX);
        drop((slots, others, crowd));
        assert_eq!(line.hashing_and_waiting(), (0, 0));
        assert!(line.0.lock().holders.is_empty());
    }
}
