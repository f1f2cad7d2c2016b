//! The adapter for databases of PostgreSQL, one or several: each device is in the one that its number names.
//!
//! Calls for a device go to its database, and to no other. A database that does not answer for some seconds is away: from
//! then on its calls fail at once, so that they hold nothing that those of other databases need ([`member`]). What concerns
//! all devices is asked of every database, and fails only as far as a database does.

mod live;
mod member;
mod order;
mod port;
mod shared;
mod streams;
mod upkeep;

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use isobar_model::ids::{DATABASES_MAX, DeviceKey};
use tokio::task::JoinHandle;

use self::live::SpreadEvents;
use self::member::Member;
use super::known_stores::{KnownStores, NotedStore};
use super::marks::StreamMarks;
use super::postgres::{self, OpenedDatabase, PostgresOptions, PostgresTelemetry, ProcessParts, join};
use crate::error::{Result, StoreError};
use crate::postgres::fitness;

/// The telemetry store in databases of PostgreSQL.
pub struct SpreadTelemetry {
    /// By their numbers, and at least one.
    members: Arc<[Member]>,
    parts: ProcessParts,
    /// `None` with one database, which has an order of its own.
    merged: Option<MergedEvents>,
}

/// Events of several databases, and the task that sends them.
struct MergedEvents {
    events: Arc<SpreadEvents>,
    sends: JoinHandle<()>,
}

/// A database, and items of its devices with their places among all items.
type MemberItems<'a, T> = (&'a Member, Vec<(usize, T)>);

/// Error for a device of a database that the settings do not name.
#[derive(Debug, thiserror::Error)]
#[error("device number {dense} is in database {database}, which stores.telemetry does not name")]
struct UnknownDatabase {
    dense: u64,
    database: u16,
}

/// Error of a list of databases that is too long, or empty.
#[derive(Debug, thiserror::Error)]
#[error("stores.telemetry names {0} databases, and 1 to {DATABASES_MAX} are possible")]
struct WrongCount(usize);

impl SpreadTelemetry {
    /// Opens the store in a database, or in several, in any order: all of several have to be reachable, and are waited for.
    /// The registry knows its databases, and refuses others; `marks` keep the order of events of several.
    pub async fn open(
        addresses: &[String],
        options: PostgresOptions,
        known: &KnownStores,
        marks: Arc<dyn StreamMarks>,
    ) -> Result<Self> {
        if !(1..=DATABASES_MAX).contains(&addresses.len()) {
            return Err(StoreError::unavailable(WrongCount(addresses.len())));
        }
        member::when_reached(member::waited_for(addresses), || postgres::must_fit(addresses, known)).await?;
        if let [address] = addresses {
            let store = PostgresTelemetry::open_for(address, options, known).await?;
            let parts = store.parts().clone();
            return Ok(Self { members: [Member::new(address, store)].into(), parts, merged: None });
        }
        let opened = addresses.iter().map(|address| member::open(address, options.needs_syncs));
        let mut opened: Vec<OpenedDatabase> = futures::future::try_join_all(opened).await?;
        let (joined, numbers) = join(&opened, known).await?;
        let marked = marks.mark_at(u64::MAX).await?.places;
        for (database, joined) in opened.iter_mut().zip(&joined) {
            if let Some(place) = marked.get(&joined.number) {
                database.must_be_behind(*place).await?;
            }
        }
        let parts = ProcessParts::new(numbers, options.device_bytes)?;
        let members = addresses.iter().zip(opened.into_iter().zip(joined)).map(|(address, (opened, joined))| {
            let (parts, options) = (parts.clone(), options.clone());
            async move {
                let served = PostgresTelemetry::serve((opened, joined), parts, options).await;
                served.map(|store| Member::new(address, store)).map_err(|error| postgres::named(address, error))
            }
        });
        let mut members: Vec<Member> = futures::future::try_join_all(members).await?;
        members.sort_unstable_by_key(Member::number);
        let members: Arc<[Member]> = members.into();
        let events = Arc::new(SpreadEvents::new(Arc::clone(&members), marks));
        let sending = Arc::clone(&events);
        let sends = tokio::spawn(async move { sending.run().await });
        Ok(Self { members, parts, merged: Some(MergedEvents { events, sends }) })
    }

    /// Checks that databases can hold a store, without changing anything, and waits until they can be reached.
    ///
    /// # Errors
    /// One is a standby, or behind a pooler that shares sessions, or cannot be reached.
    pub async fn must_be_fit(addresses: &[String]) -> Result<()> {
        futures::future::try_join_all(addresses.iter().map(|address| {
            let check = async || {
                let fit = async {
                    fitness::must_have_sessions(address, "stores.telemetry").await?;
                    fitness::must_be_primary(address, "stores.telemetry").await
                };
                fit.await.map_err(|error| postgres::named(address, error))
            };
            member::when_reached(member::waited_for(addresses), check)
        }))
        .await
        .map(drop)
    }

    /// Returns the numbers of the databases, in order.
    pub fn numbers(&self) -> Vec<u16> {
        self.members.iter().map(Member::number).collect()
    }

    /// Returns the databases, as a registry notes them.
    pub fn noted(&self) -> Vec<NotedStore> {
        self.members.iter().map(|member| member.store().noted()).collect()
    }

    /// Returns true if the database with this number is away.
    pub fn is_away(&self, number: u16) -> bool {
        self.members.iter().any(|member| member.number() == number && member.here().is_err())
    }

    /// Returns the events of several databases; `None` with one.
    fn merged(&self) -> Option<&SpreadEvents> {
        self.merged.as_ref().map(|merged| &*merged.events)
    }

    /// Returns the first database, which is the only one where no events are merged.
    fn first(&self) -> &Member {
        &self.members[0]
    }

    /// Returns the database of a device.
    fn of(&self, device: DeviceKey) -> Result<&Member> {
        let (dense, database) = (device.dense(), device.database());
        let found = self.members.binary_search_by_key(&database, Member::number);
        let member = found.ok().and_then(|index| self.members.get(index));
        member.ok_or_else(|| StoreError::unavailable(UnknownDatabase { dense, database }))
    }

    /// Sorts items by the databases of their devices; each comes with its place among the items.
    fn sorted<T: Copy>(&self, items: &[T], device: impl Fn(&T) -> DeviceKey) -> Result<Vec<MemberItems<'_, T>>> {
        let mut sorted: Vec<MemberItems<'_, T>> = self.members.iter().map(|member| (member, Vec::new())).collect();
        for (place, item) in items.iter().enumerate() {
            let of = self.of(device(item))?;
            if let Some((_, items)) = sorted.iter_mut().find(|(member, _)| member.number() == of.number()) {
                items.push((place, *item));
            }
        }
        sorted.retain(|(_, items)| !items.is_empty());
        Ok(sorted)
    }

    /// Asks every database, at the same time; returns the answers of those that gave one, and the first error.
    async fn ask_all<'a, T, F>(&'a self, ask: impl Fn(&'a PostgresTelemetry) -> F) -> (Vec<(&'a Member, T)>, Result<()>)
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let asked = self.members.iter().map(|member| {
            let answer = ask(member.store());
            async move { (member, member.ask(answer).await) }
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let (mut answers, mut outcome) = (Vec::with_capacity(self.members.len()), Ok(()));
        while let Some((member, answer)) = asked.next().await {
            match answer {
                Ok(answer) => answers.push((member, answer)),
                Err(error) => {
                    if member.here().is_ok() {
                        tracing::warn!(%error, database = %member.name(), "a telemetry database does not answer");
                    }
                    outcome = outcome.and(Err(member.named(error)));
                }
            }
        }
        answers.sort_unstable_by_key(|(member, _)| member.number());
        (answers, outcome)
    }
}

impl Drop for MergedEvents {
    fn drop(&mut self) {
        self.sends.abort();
    }
}
