//! Slows down who guesses passwords, and who has others sent e-mails (contract: Authentication).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::ids::UserId;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

use super::rate_limit::counted;

/// How long failures count, in seconds.
const PERIOD_SECONDS: i64 = 15 * 60;
/// Failures for one name, or one account, from one address.
const PER_ADDRESS: u32 = 10;
/// Failures for one name, or one account, from anywhere.
const PER_NAME: u32 = 100;
/// What is remembered at a time; beyond, room is made.
const REMEMBERED_MAX: usize = 100_000;
/// So much of it is made free then: an eighth.
const MADE_FREE: usize = 8;

/// Counts failed logins.
///
/// Names are counted as they are given, whether they are anybody's or not, and that is told. An account that goes by two
/// names (contract: a username and an e-mail address) is counted apart from them, and nobody is told: else ten failures for
/// the one and a look at the other would tell that there is an account, and that it goes by both.
#[derive(Default)]
pub(crate) struct LoginThrottle(Mutex<HashMap<(Subject, Option<IpAddr>), Failures>>);

/// Whose failures are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    /// A name without regard to case: its digest, however long it is.
    Name(Digest),
    Account(UserId),
}

impl Subject {
    fn of(name: &str) -> Self {
        let folded: String = name.chars().flat_map(char::to_lowercase).collect();
        Self::Name(Digest::of(folded.as_bytes()))
    }
}

struct Failures {
    since: Timestamp,
    count: u32,
}

impl Failures {
    /// Until when they count. Those of a clock that was ahead of now have been by now, else they would count until it is there.
    fn until(&mut self, now: Timestamp) -> Timestamp {
        self.since = self.since.min(now);
        self.since.plus_seconds(PERIOD_SECONDS)
    }

    fn count_one(&mut self, now: Timestamp) {
        if now >= self.until(now) {
            *self = Failures { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
    }
}

impl LoginThrottle {
    /// Refuses while too many logins for the name have failed; whether the account exists plays no part.
    pub(crate) fn check(&self, name: &str, address: IpAddr, now: Timestamp) -> Result<()> {
        self.until(Subject::of(name), address, now).map_or(Ok(()), |until| Err(Error::Throttled { until }))
    }

    /// Whether too many logins for an account have failed, by whichever of its names. Its password is then as good as a wrong
    /// one, and that is all that anybody hears.
    pub(crate) fn is_closed(&self, account: UserId, address: IpAddr, now: Timestamp) -> bool {
        self.until(Subject::Account(account), address, now).is_some()
    }

    /// Refuses while too many passwords were wrong for an account; only for whoever has signed in to it.
    pub(crate) fn check_account(&self, account: UserId, address: IpAddr, now: Timestamp) -> Result<()> {
        self.until(Subject::Account(account), address, now).map_or(Ok(()), |until| Err(Error::Throttled { until }))
    }

    fn until(&self, subject: Subject, address: IpAddr, now: Timestamp) -> Option<Timestamp> {
        let (mut failures, address) = (self.0.lock(), counted(address));
        [(Some(address), PER_ADDRESS), (None, PER_NAME)].into_iter().find_map(|(from, most)| {
            let seen = failures.get_mut(&(subject, from))?;
            let until = seen.until(now);
            (seen.count >= most && now < until).then_some(until)
        })
    }

    /// Counts a failed login by a name, and whose it is.
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

/// So many of each `K` in a period.
pub(crate) struct PeriodicAllowance<K> {
    most: u32,
    spent: Mutex<HashMap<K, Failures>>,
}

impl<K: Hash + Eq> PeriodicAllowance<K> {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, spent: Mutex::new(HashMap::new()) }
    }

    /// Takes one; false: there is none left until the period is over.
    pub(crate) fn spend(&self, key: K, now: Timestamp) -> bool {
        let mut spent = self.spent.lock();
        make_room(&mut spent, now);
        let seen = spent.entry(key).or_insert(Failures { since: now, count: 0 });
        seen.count_one(now);
        seen.count <= self.most
    }
}

/// Drops what is over when there is much; and when that is not enough, what has failed least: who would have a name
/// forgotten that it has tried often must try others as often.
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
    fn ten_failures_from_one_address_close_the_door_for_the_period() {
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
    fn failures_of_a_clock_that_was_ahead_end_after_a_period() {
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
    fn a_quota_comes_back_with_the_next_period() {
        let (quota, now) = (PeriodicAllowance::new(2), Timestamp::from_millis(0));
        assert_eq!([(); 3].map(|()| quota.spend("ana", now)), [true, true, false]);
        assert!(quota.spend("bob", now) && !quota.spend("ana", now.plus_seconds(899)));
        assert!(quota.spend("ana", now.plus_seconds(900)));
    }

    #[test]
    fn a_hundred_failures_from_anywhere_close_it_for_all() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        for number in 0..100 {
            throttle.failed("ana", None, IpAddr::from([10, 0, 0, number]), now);
        }
        assert!(throttle.check("ana", IpAddr::from([10, 9, 9, 9]), now).is_err());
        assert!(throttle.check("bob", IpAddr::from([10, 9, 9, 9]), now).is_ok());
    }
    #[test]
    fn an_account_is_closed_by_all_of_its_names_and_no_name_by_another() {
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

    #[test]
    fn one_client_of_many_addresses_is_one_and_is_not_forgotten_for_others() {
        let (throttle, now) = (LoginThrottle::default(), Timestamp::from_millis(0));
        let at = |site: u32, address: u32| {
            let [a, b, c, d] = [site >> 16, site, address >> 16, address].map(|part| part as u16);
            IpAddr::from([0x2001, 0xdb8, a, b, 0, 0, c, d])
        };
        for address in 0..10 {
            throttle.failed("admin", None, at(0, address), now);
        }
        assert!(throttle.check("admin", at(0, 99), now).is_err() && throttle.check("admin", at(1, 0), now).is_ok());
        // A /32 of others, each with a name of its own.
        for site in 1..2 * REMEMBERED_MAX as u32 {
            throttle.failed(&site.to_string(), None, at(site, 0), now);
        }
        assert!(throttle.0.lock().len() <= REMEMBERED_MAX);
        assert!(throttle.check("admin", at(0, 99), now).is_err());
        // What is over is forgotten first.
        throttle.failed("bob", None, at(0, 0), now.plus_seconds(900));
        assert!(throttle.check("admin", at(0, 99), now.plus_seconds(900)).is_ok());
    }
}
