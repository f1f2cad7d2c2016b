//! Slows down callers who guess passwords or cause many e-mails (contract: Authentication).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::ids::UserId;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

use super::rate_limit::counted;

/// Period in which failures count, in seconds.
pub(super) const PERIOD_SECONDS: i64 = 15 * 60;
/// Failures for one name, or one account, from one address, before logins are refused.
pub(super) const PER_ADDRESS: u32 = 10;
/// Failures for one name, or one account, from all addresses, before logins are refused.
pub(super) const PER_NAME: u32 = 100;
/// Counters stored at a time; beyond this some are removed.
const REMEMBERED_MAX: usize = 100_000;
/// Divisor of [`REMEMBERED_MAX`] that gives the number of counters removed at a time: an eighth.
const MADE_FREE: usize = 8;

/// Counts failed logins.
///
/// Names are counted as they are sent, even if no account has them, and the refusal says so. An account has two names
/// (contract: a username and an e-mail address) and is counted apart from them without telling the caller: else ten
/// failures for one name and a login by the other would reveal that there is an account, and that it has both names.
#[derive(Default)]
pub(crate) struct LoginThrottle(Mutex<HashMap<(Subject, Option<IpAddr>), Failures>>);

/// The name or account whose failures are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// The digest of a name in lower case, whatever its length.
    Name(Digest),
    Account(UserId),
}

impl Subject {
    pub(super) fn of(name: &str) -> Self {
        let folded: String = name.chars().flat_map(char::to_lowercase).collect();
        Self::Name(Digest::of(folded.as_bytes()))
    }
}

pub(super) struct Failures {
    pub(super) since: Timestamp,
    pub(super) count: u32,
}

impl Failures {
    /// Returns the time until which failures count. Failures in the future, counted by a clock that was ahead, are
    /// moved to now: else they would count until that time comes.
    fn until(&mut self, now: Timestamp) -> Timestamp {
        self.since = self.since.min(now);
        self.since.plus_seconds(PERIOD_SECONDS)
    }

    /// Returns the time until which further tries are refused, if `most` are allowed.
    pub(super) fn refuses_until(&mut self, most: u32, now: Timestamp) -> Option<Timestamp> {
        let until = self.until(now);
        (self.count >= most && now < until).then_some(until)
    }

    fn count_one(&mut self, now: Timestamp) {
        if now >= self.until(now) {
            *self = Failures { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
    }
}

impl LoginThrottle {
    /// Refuses a login while too many have failed for the name; an account need not exist.
    pub(crate) fn check(&self, name: &str, address: IpAddr, now: Timestamp) -> Result<()> {
        self.until(Subject::of(name), address, now).map_or(Ok(()), |until| Err(Error::Throttled { until }))
    }

    /// Returns true if too many logins for an account have failed, by any of its names. Its right password is then
    /// refused as if it were wrong, without telling the caller why.
    pub(crate) fn is_closed(&self, account: UserId, address: IpAddr, now: Timestamp) -> bool {
        self.until(Subject::Account(account), address, now).is_some()
    }

    /// Refuses a user who is logged in while too many wrong passwords were given for the account.
    pub(crate) fn check_account(&self, account: UserId, address: IpAddr, now: Timestamp) -> Result<()> {
        self.until(Subject::Account(account), address, now).map_or(Ok(()), |until| Err(Error::Throttled { until }))
    }

    fn until(&self, subject: Subject, address: IpAddr, now: Timestamp) -> Option<Timestamp> {
        let (mut failures, address) = (self.0.lock(), counted(address));
        [(Some(address), PER_ADDRESS), (None, PER_NAME)]
            .into_iter()
            .find_map(|(from, most)| failures.get_mut(&(subject, from))?.refuses_until(most, now))
    }

    /// Counts a failed login for its name and its account.
    pub(crate) fn failed(&self, name: &str, account: Option<UserId>, address: IpAddr, now: Timestamp) {
        let (mut failures, address) = (self.0.lock(), counted(address));
        for subject in [Some(Subject::of(name)), account.map(Subject::Account)].into_iter().flatten() {
            for from in [Some(address), None] {
                if !failures.contains_key(&(subject, from)) {
                    make_room(&mut failures, now);
                }
                let seen = failures.entry((subject, from)).or_insert(Failures { since: now, count: 0 });
                seen.count_one(now);
            }
        }
    }
}

/// Allows each `K` a number of uses in a period.
pub(crate) struct PeriodicAllowance<K> {
    most: u32,
    spent: Mutex<HashMap<K, Failures>>,
}

impl<K: Hash + Eq> PeriodicAllowance<K> {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, spent: Mutex::new(HashMap::new()) }
    }

    /// Uses one; returns false if none is left until the period ends.
    pub(crate) fn spend(&self, key: K, now: Timestamp) -> bool {
        let mut spent = self.spent.lock();
        make_room(&mut spent, now);
        let seen = spent.entry(key).or_insert(Failures { since: now, count: 0 });
        seen.count_one(now);
        seen.count <= self.most
    }
}

/// Removes expired counters once there are many; if that is not enough, those with the fewest failures: to get a
/// counter removed, an attacker must try other names as often.
fn make_room<K: Hash + Eq>(remembered: &mut HashMap<K, Failures>, now: Timestamp) {
    if remembered.len() < REMEMBERED_MAX {
        return;
    }
    remembered.retain(|_, seen| now < seen.until(now));
    let wanted = REMEMBERED_MAX - REMEMBERED_MAX / MADE_FREE;
    for least in 1..PER_NAME {
        if remembered.len() <= wanted {
            return;
        }
        remembered.retain(|_, seen| seen.count > least);
    }
    if remembered.len() > wanted {
        remembered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_from_one_address_refuse_it_for_the_period() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        for _ in 0..10 {
            assert!(throttle.check("Ana", here, now).is_ok());
            throttle.failed("ana", None, here, now);
        }
        assert!(throttle.check("ANA", here, now.plus_seconds(899)).is_err());
        assert!(throttle.check("ana", there, now).is_ok());
        assert!(throttle.check("ana", here, now.plus_seconds(900)).is_ok());
    }

    #[test]
    fn failures_of_a_clock_ahead_end_after_a_period() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        let (quota, here, ahead) = (PeriodicAllowance::new(1), IpAddr::from([127, 0, 0, 1]), now.plus_seconds(3_600));
        (0..10).for_each(|_| throttle.failed("ana", None, here, ahead));
        assert!(quota.spend("ana", ahead));
        assert!(throttle.check("ana", here, now).is_err() && !quota.spend("ana", now));
        assert!(throttle.check("ana", here, now.plus_seconds(899)).is_err());
        assert!(throttle.check("ana", here, now.plus_seconds(900)).is_ok());
        assert!(quota.spend("ana", now.plus_seconds(900)));
    }

    #[test]
    fn allowance_returns_with_the_next_period() {
        let (quota, now) = (PeriodicAllowance::new(2), Timestamp::from_millis(0));
        assert_eq!([(); 3].map(|()| quota.spend("ana", now)), [true, true, false]);
        assert!(quota.spend("bob", now) && !quota.spend("ana", now.plus_seconds(899)));
        assert!(quota.spend("ana", now.plus_seconds(900)));
    }

    // Holds: c3.throttle
    #[test]
    fn hundred_failures_refuse_every_address() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        for number in 0..100 {
            throttle.failed("ana", None, IpAddr::from([10, 0, 0, number]), now);
        }
        assert!(throttle.check("ana", IpAddr::from([10, 9, 9, 9]), now).is_err());
        assert!(throttle.check("bob", IpAddr::from([10, 9, 9, 9]), now).is_ok());
    }
    #[test]
    fn account_is_closed_by_failures_of_all_its_names() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        let (here, ana) = (IpAddr::from([127, 0, 0, 1]), UserId(uuid::Uuid::from_u128(1)));
        for turn in 0..10 {
            assert!(!throttle.is_closed(ana, here, now));
            throttle.failed(["ana", "ana@example.com"][turn % 2], Some(ana), here, now);
        }
        assert!(throttle.is_closed(ana, here, now));
        assert!(!throttle.is_closed(ana, IpAddr::from([127, 0, 0, 2]), now));
        for name in ["ana", "ana@example.com"] {
            assert!(throttle.check(name, here, now).is_ok());
        }
        assert!(!throttle.is_closed(ana, here, now.plus_seconds(900)));
    }

    // Holds: c14.sites
    #[test]
    fn client_of_many_addresses_is_counted_as_one() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        let at = |site: u32, address: u32| {
            let [a, b, c, d] = [site >> 16, site, address >> 16, address].map(|part| part as u16);
            IpAddr::from([0x2001, 0xdb8, a, b, 0, 0, c, d])
        };
        for address in 0..10 {
            throttle.failed("admin", None, at(0, address), now);
        }
        assert!(throttle.check("admin", at(0, 99), now).is_err() && throttle.check("admin", at(1, 0), now).is_ok());
        // A /32 of other sites, each with a name of its own.
        for site in 1..2 * REMEMBERED_MAX as u32 {
            throttle.failed(&site.to_string(), None, at(site, 0), now);
        }
        assert!(throttle.0.lock().len() <= REMEMBERED_MAX);
        assert!(throttle.check("admin", at(0, 99), now).is_err());
        // Expired counters are removed first.
        throttle.failed("bob", None, at(0, 0), now.plus_seconds(900));
        assert!(throttle.check("admin", at(0, 99), now.plus_seconds(900)).is_ok());
    }
}
