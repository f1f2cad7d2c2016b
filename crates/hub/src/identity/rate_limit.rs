//! Limits rates in fixed windows of one minute (contract: Rate limits).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use isobar_model::error::{Error, RateWindow};
use isobar_model::ids::{BoardLinkId, DeviceKey, UserId};
use isobar_model::time::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;

use super::authentication::Principal;
use super::rate_shares::RateSubject;
use crate::config::RateLimits;

/// Length of a window.
const WINDOW_SECONDS: i64 = 60;
/// Number of shards of the keys, each with its own lock.
const WINDOW_SHARDS: usize = 16;
/// Share of a limit, one of so many parts, beyond which a caller's calls are told to other nodes.
const TOLD_PART: u32 = 10;
/// Capacity reserved at the beginning of a window, if the one before had as many callers.
const CALLERS_KEPT: usize = 1 << 10;

/// Counts the calls of each `K` in the present window. The counts of an earlier window are dropped at once, so the
/// callers of one minute bound the memory, and their number is limited too.
pub(crate) struct RateWindows<K, S> {
    limit: u32,
    /// Callers counted in one shard, at most. Beyond this all counts of the shard restart: a client with that many
    /// addresses is not stopped by a limit for one.
    most: usize,
    /// Calls of a caller beyond which other nodes are told.
    untold_max: u32,
    hasher: S,
    shards: [Mutex<Shard<K, S>>; WINDOW_SHARDS],
}

struct Shard<K, S> {
    window: i64,
    counts: HashMap<K, CallCount, S>,
    /// Callers of whose calls other nodes are told.
    told: Vec<K>,
}

/// Calls of a caller in the present window.
#[derive(Clone, Copy, Default)]
struct CallCount {
    here: u32,
    /// Calls that other nodes have told.
    elsewhere: u32,
}

impl<K, S: BuildHasher + Clone> Shard<K, S> {
    fn begin(&mut self, window: i64, hasher: &S) {
        self.window = window;
        // Memory that a flood has needed is freed.
        self.counts = HashMap::with_capacity_and_hasher(self.counts.len().min(CALLERS_KEPT), hasher.clone());
        self.told = Vec::new();
    }
}

/// Returns the window of a moment.
pub(super) fn window_at(now: Timestamp) -> i64 {
    now.seconds().div_euclid(WINDOW_SECONDS)
}

/// Returns the address that a rate limit counts: for IPv6 the /64 network of a site, in which one client has as many
/// addresses as it likes. An IPv4-mapped address counts as its IPv4 address.
pub(crate) fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        plain @ IpAddr::V4(_) => plain,
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
    }
}

impl<K: Hash + Eq + Copy, S: BuildHasher + Clone + Default> RateWindows<K, S> {
    /// Makes windows of `limit` calls for at most `callers_max` callers; with a limit of 0 nothing is counted.
    pub(crate) fn new(limit: u32, callers_max: usize) -> Self {
        let hasher = S::default();
        let shard = || Shard { window: 0, counts: HashMap::with_hasher(hasher.clone()), told: Vec::new() };
        Self {
            limit,
            most: callers_max.div_ceil(WINDOW_SHARDS),
            untold_max: u32::MAX,
            shards: std::array::from_fn(|_| Mutex::new(shard())),
            hasher,
        }
    }

    /// Lets other nodes be told of callers that make many calls.
    fn told_to_others(mut self, has_other_nodes: bool) -> Self {
        self.untold_max = if has_other_nodes { self.limit / TOLD_PART } else { u32::MAX };
        self
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K, S>> {
        let hash = self.hasher.hash_one(key);
        self.shards[(hash >> 57) as usize % WINDOW_SHARDS].lock()
    }

    /// Counts a call. Returns `Err` if the window is used up, and `None` if nothing is counted.
    pub(crate) fn count(&self, key: K, now: Timestamp) -> Result<Option<RateWindow>, RateWindow> {
        self.count_all(key, 1, now)
    }

    /// Counts several calls, all or none of them.
    #[inline(always)]
    fn count_all(&self, key: K, calls: u32, now: Timestamp) -> Result<Option<RateWindow>, RateWindow> {
        if self.limit == 0 {
            return Ok(None);
        }
        let window = window_at(now);
        let shard = &mut *self.shard(&key);
        if shard.window != window {
            shard.begin(window, &self.hasher);
        } else if shard.counts.len() >= self.most && !shard.counts.contains_key(&key) {
            shard.counts.clear();
            shard.told.clear();
        }
        let count = shard.counts.entry(key).or_default();
        let left = self.limit.saturating_sub(count.here.saturating_add(count.elsewhere));
        let spent = left < calls;
        let counted = if spent { 0 } else { calls };
        if count.here <= self.untold_max && count.here + counted > self.untold_max {
            shard.told.push(key);
        }
        count.here += counted;
        let state = RateWindow {
            limit: self.limit,
            remaining: left - counted,
            reset: Timestamp::from_millis((window + 1) * WINDOW_SECONDS * 1000),
        };
        if spent { Err(state) } else { Ok(Some(state)) }
    }

    /// Returns the callers of whose calls other nodes are told, with their calls in the window.
    fn many_calls(&self, window: i64) -> Vec<(K, u32)> {
        let mut told = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            if shard.window == window {
                told.extend(shard.told.iter().filter_map(|key| Some((*key, shard.counts.get(key)?.here))));
            }
        }
        told
    }

    /// Sets the calls of a caller that other nodes have counted in the window.
    fn count_elsewhere(&self, key: K, calls: u32, window: i64) {
        let shard = &mut *self.shard(&key);
        if shard.window < window {
            shard.begin(window, &self.hasher);
        }
        let has_room = shard.counts.len() < self.most || shard.counts.contains_key(&key);
        if shard.window == window && has_room {
            shard.counts.entry(key).or_default().elsewhere = calls;
        }
    }
}

/// The rate windows of users, devices, links and addresses.
pub(crate) struct CallRates {
    users: RateWindows<UserId, FxBuildHasher>,
    devices: RateWindows<DeviceKey, FxBuildHasher>,
    /// Screens of one link count together, up to the limit of a user.
    links: RateWindows<BoardLinkId, FxBuildHasher>,
    /// Clients choose their addresses, so their hash function has a random seed.
    addresses: RateWindows<IpAddr, RandomState>,
    /// Calls with bad credentials.
    refused: RateWindows<IpAddr, RandomState>,
}

/// Factor of an address's limit up to which it may call with bad credentials before its connections are closed
/// (contract: Conventions).
const REFUSED_TIMES: u32 = 10;
/// Users, and devices, counted in a minute, at most.
const CALLERS_MAX: usize = 1 << 20;
/// Addresses counted in a minute, at most. They are cheap to obtain, so these are fewer.
const ADDRESSES_MAX: usize = 1 << 18;

impl CallRates {
    pub(crate) fn new(limits: &RateLimits, has_other_nodes: bool) -> Self {
        Self {
            users: RateWindows::new(limits.user, CALLERS_MAX).told_to_others(has_other_nodes),
            devices: RateWindows::new(limits.device, CALLERS_MAX).told_to_others(has_other_nodes),
            links: RateWindows::new(limits.user, CALLERS_MAX).told_to_others(has_other_nodes),
            addresses: RateWindows::new(limits.address, ADDRESSES_MAX).told_to_others(has_other_nodes),
            refused: RateWindows::new(limits.address.saturating_mul(REFUSED_TIMES), ADDRESSES_MAX),
        }
    }
}

impl CallRates {
    /// Counts a call in the window of its user, device, link or address; returns `None` if that limit is off.
    pub(crate) fn count_call(
        &self,
        principal: &Principal,
        address: IpAddr,
        now: Timestamp,
    ) -> isobar_model::error::Result<Option<RateWindow>> {
        let (subject, counts) = match principal {
            Principal::User(caller) => ("user", self.users.count(caller.user, now)),
            Principal::Device(session) => ("device", self.devices.count(session.device().key, now)),
            Principal::Link(session) => ("link", self.links.count(session.link.id, now)),
            Principal::Nobody => ("address", self.addresses.count(counted(address), now)),
        };
        counts.map_err(|window| Error::RateLimited { subject, window })
    }

    /// Counts further calls that one call of the caller is worth, all or none of them.
    pub(crate) fn count_further(
        &self,
        principal: &Principal,
        calls: u32,
        now: Timestamp,
    ) -> isobar_model::error::Result<Option<RateWindow>> {
        let (subject, counts) = match principal {
            Principal::User(caller) => ("user", self.users.count_all(caller.user, calls, now)),
            Principal::Device(session) => ("device", self.devices.count_all(session.device().key, calls, now)),
            Principal::Nobody | Principal::Link(_) => return Err(Error::Unauthenticated),
        };
        counts.map_err(|window| Error::RateLimited { subject, window })
    }

    /// Returns the callers of whose calls other nodes are told, with their calls in the window.
    pub(super) fn many_calls(&self, window: i64) -> Vec<(RateSubject, u32)> {
        let mut told = Vec::new();
        told.extend(self.users.many_calls(window).into_iter().map(|(id, calls)| (RateSubject::User(id), calls)));
        told.extend(self.devices.many_calls(window).into_iter().map(|(key, calls)| (RateSubject::Device(key), calls)));
        told.extend(self.links.many_calls(window).into_iter().map(|(id, calls)| (RateSubject::Link(id), calls)));
        told.extend(self.addresses.many_calls(window).into_iter().map(|(at, calls)| (RateSubject::Address(at), calls)));
        told
    }

    /// Sets the calls of a caller that other nodes have counted in the window.
    pub(super) fn count_elsewhere(&self, subject: RateSubject, calls: u32, window: i64) {
        match subject {
            RateSubject::User(id) => self.users.count_elsewhere(id, calls, window),
            RateSubject::Device(key) => self.devices.count_elsewhere(key, calls, window),
            RateSubject::Link(id) => self.links.count_elsewhere(id, calls, window),
            RateSubject::Address(address) => self.addresses.count_elsewhere(address, calls, window),
        }
    }

    /// Counts a call with bad credentials; returns true if its address has sent so many that the connection should be
    /// closed.
    pub(crate) fn count_refused(&self, address: IpAddr, now: Timestamp) -> bool {
        self.refused.count(counted(address), now).is_err()
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxBuildHasher;

    use super::*;

    const CALLERS_MAX: usize = 1 << 14;

    fn windows<K: Hash + Eq + Copy>(limit: u32) -> RateWindows<K, FxBuildHasher> {
        RateWindows::new(limit, CALLERS_MAX)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn window_refuses_beyond_its_limit_until_it_ends() {
        let windows = windows(2);
        let first = windows.count("a", at(60)).unwrap().unwrap();
        assert_eq!((first.limit, first.remaining, first.reset), (2, 1, at(120)));
        assert_eq!(windows.count("a", at(119)).unwrap().unwrap().remaining, 0);
        assert_eq!(windows.count("a", at(119)).unwrap_err().remaining, 0);
        assert!(windows.count("b", at(119)).is_ok());
        assert!(windows.count("a", at(120)).is_ok());
    }

    #[test]
    fn several_calls_are_counted_all_or_none() {
        let windows = windows(5);
        assert_eq!(windows.count_all("a", 3, at(60)).unwrap().unwrap().remaining, 2);
        assert_eq!(windows.count_all("a", 3, at(61)).unwrap_err().remaining, 2);
        assert_eq!(windows.count_all("a", 2, at(62)).unwrap().unwrap().remaining, 0);
        assert!(windows.count("a", at(63)).is_err());
        assert!(windows.count_all("b", 6, at(63)).is_err());
        assert!(windows.count_all("b", 5, at(64)).is_ok());
    }

    // Holds: c10.window
    #[test]
    fn calls_at_other_nodes_count_in_the_same_window() {
        let windows = windows(20).told_to_others(true);
        windows.count_all("a", 2, at(60)).unwrap();
        assert_eq!(windows.many_calls(1), []);
        windows.count("a", at(61)).unwrap();
        windows.count_all("b", 9, at(61)).unwrap();
        windows.count("b", at(61)).unwrap();
        let mut told = windows.many_calls(1);
        told.sort_unstable();
        assert_eq!((told, windows.many_calls(0), windows.many_calls(2)), (vec![("a", 3), ("b", 10)], vec![], vec![]));
        for (key, here) in [("a", 3), ("c", 0)] {
            windows.count_elsewhere(key, 12, 1);
            windows.count_elsewhere(key, 15, 1);
            assert_eq!(windows.count(key, at(62)).unwrap().unwrap().remaining, 20 - 15 - here - 1);
        }
        windows.count_elsewhere("a", 1_000, 1);
        assert_eq!(windows.count("a", at(63)).unwrap_err().remaining, 0);
        // Shares of an earlier window count no more; the next one begins for all.
        windows.count_elsewhere("a", 5, 2);
        windows.count_elsewhere("a", 20, 1);
        assert_eq!(windows.count("a", at(120)).unwrap().unwrap().remaining, 14);
        assert_eq!(windows.many_calls(2), []);
    }

    #[test]
    fn limit_of_zero_counts_nothing() {
        assert_eq!(windows(0).count("a", at(0)), Ok(None));
    }

    // Holds: c1.flood
    #[test]
    fn memory_is_bounded_for_any_number_of_callers() {
        const CALLERS: usize = CALLERS_MAX * 3 / 2;
        let windows = windows(1);
        for caller in 0..CALLERS {
            windows.count(caller, at(0)).unwrap();
        }
        assert!(windows.shards.iter().map(|shard| shard.lock().counts.len()).sum::<usize>() <= CALLERS_MAX);
        assert!(windows.count(CALLERS - 1, at(0)).is_err());
        windows.count(0, at(60)).unwrap();
    }

    // Holds: c14.sites
    #[test]
    fn addresses_of_a_site_are_counted_together() {
        let at = |text: &str| counted(text.parse().unwrap());
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff::9"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("::ffff:192.0.2.1"), at("::ffff:192.0.2.2"));
    }
}
