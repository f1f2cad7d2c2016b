//! Counts failed log-ins, and links sent to accounts: in memory, or in the registry where other nodes count too. The
//! rules are the same (`throttle.rs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use isobar_model::error::{Error, Result};
use isobar_model::ids::UserId;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::registry::Purpose;

use super::rate_limit::counted;
use super::throttle::{Failures, LoginThrottle, PER_ADDRESS, PER_NAME, PERIOD_SECONDS, PeriodicAllowance, Subject};
use crate::env::Env;

/// Counts attempts of this node, or of all.
pub(super) struct Attempts {
    env: Arc<Env>,
    here: LoginThrottle,
    links_max: u32,
    links_here: PeriodicAllowance<(UserId, Purpose)>,
}

impl Attempts {
    pub(super) fn new(env: Arc<Env>, links_max: u32) -> Self {
        let (here, links_here) = (LoginThrottle::default(), PeriodicAllowance::new(links_max));
        Self { env, here, links_max, links_here }
    }

    fn are_shared(&self) -> bool {
        self.env.config().has_other_nodes
    }

    /// Refuses a login while too many have failed for the name; an account need not exist.
    pub(super) async fn check(&self, name: &str, address: IpAddr, now: Timestamp) -> Result<()> {
        if !self.are_shared() {
            return self.here.check(name, address, now);
        }
        let [until] = self.shared_until([Some(Subject::of(name))], address, now).await?;
        throttled(until)
    }

    /// Refuses a login as [`Attempts::check`] does. Returns true if too many logins for the account have failed, by any
    /// of its names. The registry is asked once for both, so that the time tells nothing of the account.
    pub(super) async fn check_both(
        &self,
        name: &str,
        account: Option<UserId>,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<bool> {
        if !self.are_shared() {
            self.here.check(name, address, now)?;
            return Ok(account.is_some_and(|user| self.here.is_closed(user, address, now)));
        }
        let subjects = [Some(Subject::of(name)), account.map(Subject::Account)];
        let [until, closed_until] = self.shared_until(subjects, address, now).await?;
        throttled(until)?;
        Ok(closed_until.is_some())
    }

    /// Refuses a user who is logged in while too many wrong passwords were given for the account.
    pub(super) async fn check_account(&self, account: UserId, address: IpAddr, now: Timestamp) -> Result<()> {
        if !self.are_shared() {
            return self.here.check_account(account, address, now);
        }
        let [until] = self.shared_until([Some(Subject::Account(account))], address, now).await?;
        throttled(until)
    }

    /// Counts a failed login for its name and its account.
    pub(super) async fn failed(
        &self,
        name: &str,
        account: Option<UserId>,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<()> {
        if !self.are_shared() {
            self.here.failed(name, account, address, now);
            return Ok(());
        }
        let subjects = [Some(Subject::of(name)), account.map(Subject::Account)];
        let address = counted(address);
        let rows = subjects.into_iter().flatten().flat_map(|of| [row_of(of, Some(address)), row_of(of, None)]);
        self.env.registry().failures_add(&rows.collect::<Vec<_>>(), now, PERIOD_SECONDS).await?;
        Ok(())
    }

    /// Counts a link to an account; returns false if none is left until the period ends.
    pub(super) async fn spend_link(&self, user: UserId, purpose: Purpose, now: Timestamp) -> Result<bool> {
        if !self.are_shared() {
            return Ok(self.links_here.spend((user, purpose), now));
        }
        let row = match purpose {
            Purpose::Verify => format!("{user} verifies"),
            Purpose::Reset => format!("{user} resets"),
        };
        let spent = self.env.registry().failures_add(&[row], now, PERIOD_SECONDS).await?;
        Ok(spent <= u64::from(self.links_max))
    }

    /// Removes what counts no more.
    pub(super) async fn sweep(&self, now: Timestamp) -> std::result::Result<(), StoreError> {
        if self.are_shared() {
            self.env.registry().failures_sweep(now, PERIOD_SECONDS).await?;
        }
        Ok(())
    }

    /// Returns the time until which each of these subjects is refused, by what all nodes have counted.
    async fn shared_until<const SUBJECTS: usize>(
        &self,
        subjects: [Option<Subject>; SUBJECTS],
        address: IpAddr,
        now: Timestamp,
    ) -> Result<[Option<Timestamp>; SUBJECTS]> {
        let places = [(Some(counted(address)), PER_ADDRESS), (None, PER_NAME)];
        let rows = subjects.iter().flatten().flat_map(|of| places.map(|(from, _)| row_of(*of, from)));
        let found = self.env.registry().failures_of(&rows.collect::<Vec<_>>(), now).await?;
        let mut found: HashMap<String, Failures> = found
            .into_iter()
            .map(|seen| {
                let count = u32::try_from(seen.count).unwrap_or(u32::MAX);
                (seen.subject, Failures { since: seen.since, count })
            })
            .collect();
        Ok(subjects.map(|of| {
            places.iter().find_map(|(from, most)| found.get_mut(&row_of(of?, *from))?.refuses_until(*most, now))
        }))
    }
}

fn throttled(until: Option<Timestamp>) -> Result<()> {
    until.map_or(Ok(()), |until| Err(Error::Throttled { until }))
}

/// Names the counter of a subject at an address, or anywhere.
fn row_of(subject: Subject, from: Option<IpAddr>) -> String {
    let subject = match subject {
        Subject::Name(name) => name.0.iter().map(|byte| format!("{byte:02x}")).collect(),
        Subject::Account(user) => user.to_string(),
    };
    from.map_or(subject.clone(), |from| format!("{subject} {from}"))
}
