//! Stores letters, the e-mails to users. The number for an account and a tenant in an hour is limited when they are
//! stored, in the transaction of their cause, so that a restart does not reset it.

use std::collections::HashMap;

use isobar_model::ids::UserId;
use isobar_model::time::Timestamp;

use super::deliveries::{DeliveryKind, NewDelivery, put_due};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::lists::folded;
use crate::registry::sql::{AdvisoryLock, Connection, Dialect, Row, Sql, all, run};

/// Length of the hour that is counted, in milliseconds.
const LETTER_HOUR_MILLIS: i64 = 3_600_000;
/// Number of hours that are stored: after three days no letter waits any more.
const HOURS_KEPT: i64 = 72;
/// Counts that one statement writes.
const COUNTS_WRITTEN_AT_ONCE: usize = 100;

/// Limits of letters in an hour (contract: Authentication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterBounds {
    /// Bounds the letters to one account.
    pub account_hour: u32,
    /// Bounds the letters to all accounts of a tenant.
    pub tenant_hour: u32,
}

/// Letter to a user.
#[derive(Clone, Debug)]
pub struct NewLetter {
    /// Recipient.
    pub user: UserId,
    /// Identifier: storing the same one again changes nothing.
    pub id: String,
    /// Content, in JSON.
    pub body: String,
    /// Kind of letter.
    pub kind: LetterKind,
    /// Limits that apply to it.
    pub bounds: LetterBounds,
}

/// Kind of a letter.
#[derive(Clone, Debug)]
pub enum LetterKind {
    /// Letter with a link. Beyond a limit, of the tenant or of the address, it is due in a later hour, in turn.
    Link,
    /// Letter about a notice. Without room for it, the replacement is sent instead, once an hour for an account.
    Notice {
        /// Replacement, in JSON: announces that further notices appear in the application only.
        instead: String,
    },
}

/// Counts of letters in the current hour of a tenant, an account or an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    begins_at: Timestamp,
    links: u64,
    notices: u64,
    is_told: bool,
}

/// Keys by which a letter is counted: the user, the tenant, and the address, which another user may have had.
#[derive(Debug)]
struct Addressee {
    user: String,
    tenant: String,
    address: String,
}

/// Decision about the letter of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Sent,
    Replaced,
    LeftOut,
}

impl Count {
    /// Returns the count as of a moment. Links that were deferred to later hours still count there.
    fn at(self, now: Timestamp, bound: u64) -> Self {
        let passed = now.millis().saturating_sub(self.begins_at.millis());
        match u64::try_from(passed / LETTER_HOUR_MILLIS) {
            Ok(0) if passed >= 0 => self,
            Ok(hours) if passed >= 0 => {
                let links = self.links.saturating_sub(hours.saturating_mul(bound));
                Self { begins_at: now, links, ..Self::default() }
            }
            // The clock was set back: nothing is known about the current hour.
            _ => Self { begins_at: now, ..Self::default() },
        }
    }

    /// Counts a link; returns when it is due.
    fn add_link(&mut self, bound: u64) -> Timestamp {
        let hours = i64::try_from(self.links / bound.max(1)).unwrap_or_default().min(HOURS_KEPT);
        self.links += 1;
        Timestamp::from_millis(self.begins_at.millis() + hours * LETTER_HOUR_MILLIS)
    }
}

/// Counts a notice's letter to an account. The first in an hour reserves two places of the tenant's: one is for the
/// replacement letter.
fn judge_notice(account: &mut Count, tenant: &mut Count, bounds: LetterBounds) -> Verdict {
    let (most, most_of_all) = (u64::from(bounds.account_hour), u64::from(bounds.tenant_hour));
    if account.is_told {
        return Verdict::LeftOut;
    }
    let has_place_for_word = account.notices > 0;
    let sent = account.links + account.notices;
    let left = most_of_all.saturating_sub(tenant.links.min(most_of_all) + tenant.notices);
    let takes = if has_place_for_word { 1 } else { 2 };
    if sent + 1 < most && left >= takes {
        account.notices += 1;
        tenant.notices += takes;
        return Verdict::Sent;
    }
    if !has_place_for_word && (sent >= most || left == 0) {
        return Verdict::LeftOut;
    }
    account.notices += 1;
    tenant.notices += u64::from(!has_place_for_word);
    account.is_told = true;
    Verdict::Replaced
}

/// Stores letters, as far as their accounts and tenants have room. Call it last in a transaction: other transactions
/// that store letters wait until this one ends.
pub(crate) async fn put(tx: &impl Connection, letters: &[NewLetter], now: Timestamp) -> Result<()> {
    if letters.is_empty() {
        return Ok(());
    }
    AdvisoryLock::Letters.hold(tx).await?;
    let addressees = addressees(tx, letters).await?;
    let mut counts = counts_of(tx, addressees.values()).await?;
    let mut deliveries = Vec::with_capacity(letters.len());
    // Letters to users removed in the meantime are left out.
    for (letter, to) in letters.iter().filter_map(|letter| Some((letter, addressees.get(&letter.user)?))) {
        if let Some((kind, body, due_at)) = admit(letter, to, &mut counts, now) {
            let (id, body, destination) = (letter.id.clone(), body.to_owned(), Some(to.tenant.clone()));
            deliveries.push((NewDelivery { id, kind, body, destination }, due_at));
        }
    }
    put_due(tx, deliveries.iter().map(|(delivery, due_at)| (delivery, *due_at)), now).await?;
    write(tx, &counts).await
}

/// Counts a letter; returns the delivery and when it is due, or `None` if there is no room.
fn admit<'l>(
    letter: &'l NewLetter,
    to: &Addressee,
    counts: &mut HashMap<String, Count>,
    now: Timestamp,
) -> Option<(DeliveryKind, &'l str, Timestamp)> {
    let (own_bound, bound) = (letter.bounds.account_hour.into(), letter.bounds.tenant_hour.into());
    let known = |whose: &String| counts.get(whose).copied();
    let mut tenant = known(&to.tenant).unwrap_or_default().at(now, bound);
    let mut address = known(&to.address).unwrap_or_default().at(now, own_bound);
    // An account counts in the hour of its tenant.
    let own = known(&to.user).filter(|count| count.begins_at == tenant.begins_at);
    let mut account = own.unwrap_or(Count { begins_at: tenant.begins_at, ..Count::default() });
    let admitted = match &letter.kind {
        LetterKind::Link => {
            account.links += 1;
            let due_at = tenant.add_link(bound).max(address.add_link(own_bound)).max(now);
            counts.insert(to.address.clone(), address);
            Some((DeliveryKind::Link, letter.body.as_str(), due_at))
        }
        LetterKind::Notice { instead } => match judge_notice(&mut account, &mut tenant, letter.bounds) {
            Verdict::Sent => Some((DeliveryKind::Mail, letter.body.as_str(), now)),
            Verdict::Replaced => Some((DeliveryKind::Mail, instead.as_str(), now)),
            Verdict::LeftOut => None,
        },
    };
    for (whose, count) in [(&to.user, account), (&to.tenant, tenant)] {
        counts.insert(whose.clone(), count);
    }
    admitted
}

/// Finds users, their tenants, and their addresses.
async fn addressees(tx: &impl Connection, letters: &[NewLetter]) -> Result<HashMap<UserId, Addressee>> {
    let users = letters.iter().map(|letter| letter.user);
    let query = Sql::new(
        "SELECT u.id, u.email, o.lineage FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.id",
    )
    .among(Dialect::of(tx), users);
    let addressee = |row: &Row| {
        let user: UserId = row.id("id")?;
        let (tenant, address) =
            (row.lineage("lineage")?.top().to_string(), format!("to {}", folded(&row.text("email")?)));
        Ok((user, Addressee { user: user.to_string(), tenant, address }))
    };
    all(tx, query).await?.iter().map(addressee).collect()
}

/// Reads the stored counts.
async fn counts_of(
    tx: &impl Connection,
    addressees: impl Iterator<Item = &Addressee>,
) -> Result<HashMap<String, Count>> {
    let whose = addressees.flat_map(|to| [&to.user, &to.tenant, &to.address]);
    let query = Sql::new("SELECT whose, begins_at, links, notices, is_told FROM letter_hours WHERE whose")
        .among(Dialect::of(tx), whose);
    let count = |row: &Row| {
        let count = Count {
            begins_at: row.time("begins_at")?,
            links: row.count("links")?,
            notices: row.count("notices")?,
            is_told: row.truth("is_told")?,
        };
        Ok((row.text("whose")?, count))
    };
    all(tx, query).await?.iter().map(count).collect()
}

async fn write(tx: &impl Connection, counts: &HashMap<String, Count>) -> Result<()> {
    let counts: Vec<_> = counts.iter().collect();
    for counts in counts.chunks(COUNTS_WRITTEN_AT_ONCE) {
        let insert =
            Sql::new("INSERT INTO letter_hours (whose, begins_at, links, notices, is_told)").values(counts.len(), 5);
        let insert = counts.iter().fold(insert, |insert, (whose, count)| {
            let insert = insert.bind(whose.as_str()).bind(count.begins_at);
            insert.bind(count.links).bind(count.notices).bind(count.is_told)
        });
        let update = " ON CONFLICT (whose) DO UPDATE SET begins_at = excluded.begins_at, links = excluded.links, \
                      notices = excluded.notices, is_told = excluded.is_told";
        run(tx, insert.text(update)).await?;
    }
    Ok(())
}

impl Registry {
    /// Removes the counts of hours that are long over.
    pub async fn letter_hours_sweep(&self, now: Timestamp) -> Result<()> {
        let ended = Timestamp::from_millis(now.millis() - HOURS_KEPT * LETTER_HOUR_MILLIS);
        let delete = Sql::new("DELETE FROM letter_hours WHERE begins_at <= ?").bind(ended);
        self.db.write.run(delete).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: LetterBounds = LetterBounds { account_hour: 4, tenant_hour: 10 };

    fn judge(account: &mut Count, tenant: &mut Count, times: usize) -> Vec<Verdict> {
        (0..times).map(|_| judge_notice(account, tenant, BOUNDS)).collect()
    }

    fn sent(verdicts: &[Verdict]) -> usize {
        verdicts.iter().filter(|verdict| **verdict != Verdict::LeftOut).count()
    }

    #[test]
    fn account_is_notified_once_of_its_letter_limit() {
        use Verdict::{LeftOut, Replaced, Sent};
        let (mut account, mut tenant) = (Count::default(), Count::default());
        assert_eq!(judge(&mut account, &mut tenant, 6), [Sent, Sent, Sent, Replaced, LeftOut, LeftOut]);
        assert_eq!((account.notices, tenant.notices), (4, 4));
        // A link takes a place of the notices.
        let (mut account, mut tenant) =
            (Count { links: 2, ..Count::default() }, Count { links: 2, ..Count::default() });
        assert_eq!(judge(&mut account, &mut tenant, 3), [Sent, Replaced, LeftOut]);
        let mut full = Count { links: 4, ..Count::default() };
        assert_eq!(judge(&mut full, &mut tenant, 2), [LeftOut, LeftOut]);
    }

    #[test]
    fn tenant_limit_leaves_each_account_one_notice() {
        for accounts in 1..30 {
            let (mut tenant, mut counts) = (Count::default(), vec![Count::default(); accounts]);
            let mut all = 0;
            for _ in 0..9 {
                for account in &mut counts {
                    all += sent(&judge(account, &mut tenant, 1));
                }
            }
            assert_eq!(all as u64, (4 * accounts as u64).min(10), "{accounts} accounts");
            let heard = counts.iter().filter(|count| count.notices > 0);
            assert!(heard.clone().all(|count| count.is_told), "{accounts} accounts");
        }
    }

    #[test]
    fn links_beyond_the_bound_are_due_in_later_hours() {
        let at = |hours: i64| Timestamp::from_millis(1_000_000_000_000 + hours * LETTER_HOUR_MILLIS);
        let mut tenant = Count::default().at(at(0), 10);
        let due: Vec<_> = (0..25).map(|_| tenant.add_link(10)).collect();
        assert_eq!([due[0], due[9], due[10], due[19], due[24]], [at(0), at(0), at(1), at(1), at(2)]);
        // Links count in the hours in which they are due.
        let mut later = tenant.at(at(1), 10);
        assert_eq!((later.links, later.add_link(10)), (15, at(2)));
        assert_eq!((tenant.at(at(3), 10).links, tenant.at(at(-1), 10).links), (0, 0));
        assert_eq!(tenant.at(Timestamp::from_millis(at(1).millis() - 1), 10), tenant);
    }
}
