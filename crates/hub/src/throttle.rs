//! Slows down who guesses passwords (contract: Authentication).

use std::collections::HashMap;
use std::net::IpAddr;

use isobar_model::error::{Error, Result};
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

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

impl Throttle {
    /// Refuses while too many logins for the name have failed; whether the account exists plays no part.
    pub(crate) fn check(&self, name: &str, address: IpAddr, now: Timestamp) -> Result<()> {
        let failures = self.0.lock();
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
        let mut failures = self.0.lock();
        if failures.len() >= REMEMBERED_MAX {
            failures.retain(|_, seen| now < seen.since.plus_seconds(PERIOD_SECONDS));
            if failures.len() >= REMEMBERED_MAX {
                failures.clear();
            }
        }
        for from in [Some(address), None] {
            let seen = failures.entry((name.to_lowercase(), from)).or_insert(Failures { since: now, count: 0 });
            if now >= seen.since.plus_seconds(PERIOD_SECONDS) {
                *seen = Failures { since: now, count: 0 };
            }
            seen.count += 1;
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
    fn a_hundred_failures_from_anywhere_close_it_for_all() {
        let (throttle, now) = (Throttle::default(), Timestamp::from_millis(0));
        for number in 0..100 {
            throttle.failed("ana", IpAddr::from([10, 0, 0, number]), now);
        }
        assert!(throttle.check("ana", IpAddr::from([10, 9, 9, 9]), now).is_err());
        assert!(throttle.check("bob", IpAddr::from([10, 9, 9, 9]), now).is_ok());
    }
}
