//! Slows down who guesses passwords, and who has others sent e-mails (contract: Authentication).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

use crate::rate::counted;

/// How long failures count, in seconds.
const PERIOD_SECONDS: i64 = 15 * 60;
/// Failures for one name from one address.
const PER_ADDRESS: u32 = 10;
/// Failures for one name from anywhere.
const PER_NAME: u32 = 100;
/// Names and addresses remembered; beyond, those whose period is over are dropped, then all.
const REMEMBERED_MAX: usize = 100_000;

/// Counts failed logins.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<HashMap<(String, Option<IpAddr>), Failures>>);

struct Failures {
    since: Timestamp,
    count: u32,
}

impl Failures {
    fn count_one(&mut self, now: Timestamp) {
        if now >= self.since.plus_seconds(PERIOD_SECONDS) {
            *self = Failures { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
    }
}

impl Throttle {
    /// Refuses while too many logins for the name have failed; whether the account exists plays no part.
    pub(crate) fn check(&self, name: &str, address: IpAddr, now: Timestamp) -> Result<()> {
        let (failures, address) = (self.0.lock(), counted(address));
        for (from, most) in [(Some(address), PER_ADDRESS), (None, PER_NAME)] {
            if let Some(seen) = failures.get(&(name.to_lowercase(), from)) {
                let until = seen.since.plus_seconds(PERIOD_SECONDS);
                if seen.count >= most && now < until {
                    return Err(Error::Throttled { until });
                }
            }
        }
        Ok(())
    }

    /// Counts a failed login.
    pub(crate) fn failed(&self, name: &str, address: IpAddr, now: Timestamp) {
        let (mut failures, address) = (self.0.lock(), counted(address));
        make_room(&mut failures, now);
        for from in [Some(address), None] {
            let seen = failures.entry((name.to_lowercase(), from)).or_insert(Failures { since: now, count: 0 });
            seen.count_one(now);
        }
    }
}

/// So many of each `K` in a period.
pub(crate) struct Quota<K> {
    most: u32,
    spent: Mutex<HashMap<K, Failures>>,
}

impl<K: Hash + Eq> Quota<K> {
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

/// Drops what is over when there is much, and everything when that is not enough.
fn make_room<K: Hash + Eq>(remembered: &mut HashMap<K, Failures>, now: Timestamp) {
    if remembered.len() >= REMEMBERED_MAX {
        remembered.retain(|_, seen| now < seen.since.plus_seconds(PERIOD_SECONDS));
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_from_one_address_close_the_door_for_the_period() {
        let (throttle, now) = (Throttle::default(), Timestamp::from_millis(0));
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        for _ in 0..10 {
            assert!(throttle.check("Ana", here, now).is_ok());
            throttle.failed("ana", here, now);
        }
        assert!(throttle.check("ANA", here, now.plus_seconds(899)).is_err());
        assert!(throttle.check("ana", there, now).is_ok());
        assert!(throttle.check("ana", here, now.plus_seconds(900)).is_ok());
    }

    #[test]
    fn a_quota_comes_back_with_the_next_period() {
        let (quota, now) = (Quota::new(2), Timestamp::from_millis(0));
        assert_eq!([(); 3].map(|()| quota.spend("ana", now)), [true, true, false]);
        assert!(quota.spend("bob", now) && !quota.spend("ana", now.plus_seconds(899)));
        assert!(quota.spend("ana", now.plus_seconds(900)));
    }

    #[test]
    fn a_hundred_failures_from_anywhere_close_it_for_all() {
        let (throttle, now) = (Throttle::default(), Timestamp::from_millis(0));
        for number in 0..100 {
            throttle.failed("ana", IpAddr::from([10, 0, 0, number]), now);
        }
        assert!(throttle.check("ana", IpAddr::from([10, 9, 9, 9]), now).is_err());
        assert!(throttle.check("bob", IpAddr::from([10, 9, 9, 9]), now).is_ok());
    }
}
