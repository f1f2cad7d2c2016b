//! Notes in each database which of a platform's databases it is. Its number is part of the numbers of its devices, so it
//! keeps it for ever, in whatever order the settings list the databases.

use std::sync::Arc;

use isobar_model::ids::DATABASES_MAX;
use sqlx::postgres::{PgConnectOptions, PgPool, Postgres};
use sqlx::{PgConnection, Transaction};

use super::connections::{self, ReadColumn as _, failed};
use super::numbers::ProcessNumbers;
use super::{OpenedDatabase, PostgresTelemetry};
use crate::error::{Result, StoreError};
use crate::postgres::{connect, place};
use crate::telemetry::{ForeignStore, KnownStores, NamedStore};

/// Lock that keeps two processes that start at once from giving out numbers at once.
const MEMBERSHIP_LOCK: i64 = 0x0069_736f_6261_7214;

const IDENTITY: &str = "SELECT identity::text FROM telemetry.membership";
const READ_MEMBERSHIP: &str = "SELECT identity::text, platform::text, number, \
    EXISTS (SELECT FROM telemetry.head) OR EXISTS (SELECT FROM telemetry.event), \
    pg_sequence_last_value('telemetry.process') IS NOT NULL FROM telemetry.membership";
/// Tells which tables are there: none, those of an earlier version, or all.
const FIND_TABLES: &str =
    "SELECT to_regclass('telemetry.head') IS NOT NULL, to_regclass('telemetry.membership') IS NOT NULL";
const HAS_DATA: &str = "SELECT EXISTS (SELECT FROM telemetry.head) OR EXISTS (SELECT FROM telemetry.event)";
const WRITE_MEMBERSHIP: &str = "UPDATE telemetry.membership SET platform = $1::uuid, number = $2";

/// A database that has its number.
#[derive(Clone, Debug)]
pub(crate) struct JoinedDatabase {
    pub number: u16,
    pub identity: String,
}

/// The note of a database, as it was found.
#[derive(Clone, Debug)]
struct MembershipNote {
    /// Name of the database, for messages.
    name: Arc<str>,
    /// Empty if there are no tables yet, or those of a version without identities.
    identity: String,
    /// The platform and the number, if it has joined one.
    joined: Option<(String, u16)>,
    has_data: bool,
    /// True if a process has served it, of an earlier version too, or a move has filled it.
    was_served: bool,
}

/// Reasons for which databases are not served together.
#[derive(Debug, thiserror::Error)]
enum MembershipError {
    #[error("{0} and {1} are the same database, or one is a copy of the other: stores.telemetry may name it once")]
    Same(Arc<str>, Arc<str>),
    #[error("{0} and {1} both are database {2} of a platform: only one of them can be")]
    SameNumber(Arc<str>, Arc<str>, u16),
    #[error("{0} and {1} are of different platforms")]
    Strangers(Arc<str>, Arc<str>),
    #[error("{0} has data, and was never a database of this platform: a database that is added must be empty")]
    HasData(Arc<str>),
    #[error("{0} and {1} both have data, and neither has noted which database of the platform it is")]
    Undecided(Arc<str>, Arc<str>),
    #[error(
        "the registry has devices in the databases with the numbers {missing}, which stores.telemetry does not name; it \
         names {named}"
    )]
    Missing { missing: String, named: String },
    #[error(
        "the registry has devices, and stores.telemetry names only databases that never were of a platform: {0}. Name the \
         database that the platform has, or bring it back from its backup; telemetry of a folder is moved by isobar move first"
    )]
    AllNew(String),
    #[error("the platform has given out all {DATABASES_MAX} numbers of databases")]
    NoNumberLeft,
    #[error(transparent)]
    Foreign(#[from] ForeignStore),
}

impl From<MembershipError> for StoreError {
    fn from(error: MembershipError) -> Self {
        Self::unavailable(error)
    }
}

/// Gives a database that is served alone the first number, unless it has one, and begins the numbers of this process.
pub async fn join_alone(database: &OpenedDatabase, known: &KnownStores) -> Result<(JoinedDatabase, ProcessNumbers)> {
    let mut tx = hold(&database.changes).await?;
    let note = read(&mut tx, place(&database.changes.connect_options())).await?;
    let joined = decide(std::slice::from_ref(&note), known)?;
    let number = joined.first().map_or(0, |(_, number)| *number);
    if note.joined.is_none() {
        write(&mut tx, &note.identity, number).await?;
    }
    // While nobody else may join: a process with several databases begins its numbers above all that were begun.
    let numbers = ProcessNumbers::begin(&mut tx).await?;
    tx.commit().await.map_err(failed)?;
    Ok((JoinedDatabase { number, identity: note.identity }, numbers))
}

/// Gives each of several databases its number, unless it has one, and begins the numbers of this process in all of them.
pub(crate) async fn join(
    databases: &[OpenedDatabase],
    known: &KnownStores,
) -> Result<(Vec<JoinedDatabase>, ProcessNumbers)> {
    let mut order = Vec::with_capacity(databases.len());
    for (index, database) in databases.iter().enumerate() {
        let identity = sqlx::query(IDENTITY).fetch_one(&database.changes).await.map_err(failed)?;
        order.push((identity.column::<String>(0)?, index));
    }
    // All processes take the locks in this order.
    order.sort_unstable();
    if let Some(same) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let name = |index: usize| place(&databases[index].changes.connect_options());
        return Err(MembershipError::Same(name(same[0].1), name(same[1].1)).into());
    }
    let mut held = Vec::with_capacity(databases.len());
    for (_, index) in &order {
        let pool = &databases[*index].changes;
        let mut tx = hold(pool).await?;
        let note = read(&mut tx, place(&pool.connect_options())).await?;
        held.push((*index, note, tx));
    }
    // New ones are numbered in the order of the list.
    held.sort_unstable_by_key(|(index, ..)| *index);
    let notes: Vec<MembershipNote> = held.iter().map(|(_, note, _)| note.clone()).collect();
    let joined = decide(&notes, known)?;
    let pools: Vec<&PgPool> = databases.iter().map(|database| &database.changes).collect();
    let numbers = ProcessNumbers::begin_together(&pools).await?;
    let mut by_number: Vec<_> = held.into_iter().zip(joined).collect();
    by_number.sort_unstable_by_key(|(_, (_, number))| *number);
    let mut given = Vec::with_capacity(databases.len());
    for ((index, note, mut tx), (platform, number)) in by_number {
        if note.joined.is_none() {
            write(&mut tx, &platform, number).await?;
        }
        // The first one first: the others name it.
        tx.commit().await.map_err(failed)?;
        given.push((index, JoinedDatabase { number, identity: note.identity }));
    }
    given.sort_unstable_by_key(|(index, _)| *index);
    Ok((given.into_iter().map(|(_, joined)| joined).collect(), numbers))
}

/// Checks, without changing anything, that databases may be served together for a registry that knows these. What is
/// refused here has left nothing behind.
pub async fn must_fit(addresses: &[String], known: &KnownStores) -> Result<()> {
    let mut notes = Vec::with_capacity(addresses.len());
    for address in addresses {
        notes.push(look(address).await.map_err(|error| named(address, error))?);
    }
    must_be_different(&notes)?;
    decide(&notes, known)?;
    Ok(())
}

/// Reads the note of a database that may have no tables yet, or older ones.
async fn look(address: &str) -> Result<MembershipNote> {
    let options = address.parse::<PgConnectOptions>().map_err(failed)?;
    let (name, mut connection) = (place(&options), connect(&options).await.map_err(failed)?);
    let tables = sqlx::query(FIND_TABLES).fetch_one(&mut connection).await.map_err(failed)?;
    let (has_tables, has_note): (bool, bool) = (tables.column(0)?, tables.column(1)?);
    if has_note {
        return read(&mut connection, name).await;
    }
    let has_data = match has_tables {
        true => sqlx::query(HAS_DATA).fetch_one(&mut connection).await.map_err(failed)?.column(0)?,
        false => false,
    };
    Ok(MembershipNote { name, identity: String::new(), joined: None, has_data, was_served: has_tables })
}

/// Fails if two of these are the same database.
fn must_be_different(notes: &[MembershipNote]) -> std::result::Result<(), MembershipError> {
    for (index, note) in notes.iter().enumerate() {
        if let Some(same) = notes[..index].iter().find(|it| !it.identity.is_empty() && it.identity == note.identity) {
            return Err(MembershipError::Same(Arc::clone(&same.name), Arc::clone(&note.name)));
        }
    }
    Ok(())
}

impl MembershipNote {
    fn named(&self) -> NamedStore {
        let identity = (!self.identity.is_empty()).then(|| self.identity.clone());
        NamedStore { place: self.name.to_string(), identity, number: self.joined.as_ref().map(|(_, number)| *number) }
    }
}

/// Decides the platform and the number of each database, in their order.
fn decide(notes: &[MembershipNote], known: &KnownStores) -> std::result::Result<Vec<(String, u16)>, MembershipError> {
    let used = known.used.as_slice();
    known.must_fit(&notes.iter().map(MembershipNote::named).collect::<Vec<_>>())?;
    let mut joined: Vec<Option<(String, u16)>> = notes.iter().map(|note| note.joined.clone()).collect();
    if joined.iter().all(Option::is_none) {
        let first = first_of(notes, used)?;
        joined[first] = Some((notes[first].identity.clone(), 0));
    }
    let with_number: Vec<usize> = (0..notes.len()).filter(|index| joined[*index].is_some()).collect();
    for (place, index) in with_number.iter().enumerate() {
        for other in &with_number[..place] {
            must_be_together((&notes[*other], &joined[*other]), (&notes[*index], &joined[*index]))?;
        }
    }
    let named: Vec<u16> = joined.iter().flatten().map(|(_, number)| *number).collect();
    let missing: Vec<u16> = used.iter().copied().filter(|number| !named.contains(number)).collect();
    if !missing.is_empty() {
        return Err(MembershipError::Missing { missing: listed(&missing), named: listed(&named) });
    }
    let platform = joined.iter().flatten().map(|(platform, _)| platform.clone()).next().unwrap_or_default();
    let mut taken = named;
    taken.extend(known.noted.iter().map(|noted| noted.number));
    for (note, place) in notes.iter().zip(&mut joined).filter(|(_, place)| place.is_none()) {
        if note.has_data {
            return Err(MembershipError::HasData(Arc::clone(&note.name)));
        }
        let free = (0..DATABASES_MAX as u16).find(|number| !taken.contains(number));
        let number = free.ok_or(MembershipError::NoNumberLeft)?;
        taken.push(number);
        *place = Some((platform.clone(), number));
    }
    Ok(joined.into_iter().flatten().collect())
}

/// Returns the index of the database that is the first of its platform, where none has noted a number.
fn first_of(notes: &[MembershipNote], used: &[u16]) -> std::result::Result<usize, MembershipError> {
    let with_data: Vec<usize> = (0..notes.len()).filter(|index| notes[*index].has_data).collect();
    match with_data.as_slice() {
        [first, second, ..] => {
            let name = |index: usize| Arc::clone(&notes[index].name);
            Err(MembershipError::Undecided(name(*first), name(*second)))
        }
        [first] => Ok(*first),
        [] => match notes.iter().position(|note| note.was_served) {
            Some(served) => Ok(served),
            None if used.is_empty() => Ok(0),
            None => Err(MembershipError::AllNew(notes.iter().map(|note| &*note.name).collect::<Vec<_>>().join(", "))),
        },
    }
}

type Joined<'a> = (&'a MembershipNote, &'a Option<(String, u16)>);

fn must_be_together(
    (first, of_first): Joined<'_>,
    (second, of_second): Joined<'_>,
) -> std::result::Result<(), MembershipError> {
    let names = || (Arc::clone(&first.name), Arc::clone(&second.name));
    let (Some((platform, number)), Some((other, its))) = (of_first, of_second) else { return Ok(()) };
    if platform != other {
        let (first, second) = names();
        return Err(MembershipError::Strangers(first, second));
    }
    if number == its {
        let (first, second) = names();
        return Err(MembershipError::SameNumber(first, second, *number));
    }
    Ok(())
}

fn listed(numbers: &[u16]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

async fn hold(pool: &PgPool) -> Result<Transaction<'static, Postgres>> {
    let mut tx = pool.begin().await.map_err(failed)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MEMBERSHIP_LOCK).execute(&mut *tx).await.map_err(failed)?;
    Ok(tx)
}

async fn read(connection: &mut PgConnection, name: Arc<str>) -> Result<MembershipNote> {
    let row = sqlx::query(READ_MEMBERSHIP).fetch_one(connection).await.map_err(failed)?;
    let (platform, number) = (row.column::<Option<String>>(1)?, row.column::<Option<i16>>(2)?);
    let joined = platform.zip(number).map(|(platform, number)| (platform, number.unsigned_abs()));
    Ok(MembershipNote { name, identity: row.column(0)?, joined, has_data: row.column(3)?, was_served: row.column(4)? })
}

async fn write(connection: &mut PgConnection, platform: &str, number: u16) -> Result<()> {
    let note = sqlx::query(WRITE_MEMBERSHIP).bind(platform).bind(i16::try_from(number).unwrap_or(i16::MAX));
    note.execute(connection).await.map(drop).map_err(failed)
}

/// Error of one of several databases.
#[derive(Debug, thiserror::Error)]
#[error("the telemetry database {name}")]
pub(crate) struct DatabaseFailed {
    pub name: Arc<str>,
    #[source]
    pub error: StoreError,
}

/// Names the database that an error is of.
pub fn named(address: &str, error: StoreError) -> StoreError {
    StoreError::unavailable(DatabaseFailed { name: name_of(address), error })
}

/// Returns host, port and name of the database at an address, without user and password.
pub fn name_of(address: &str) -> Arc<str> {
    address.parse::<PgConnectOptions>().map_or_else(|_| "an address that cannot be read".into(), |it| place(&it))
}

/// Returns the version of the server at an address.
pub async fn server_version(address: &str) -> Result<String> {
    let pool = connections::to_read(address).await?;
    let version = sqlx::query("SELECT current_setting('server_version')").fetch_one(&pool).await.map_err(failed);
    pool.close().await;
    version?.column(0)
}

/// Returns the number of the database at an address, which no process need serve; 0 if it has none.
pub async fn number_of(address: &str) -> Result<u16> {
    let pool = connections::to_read(address).await?;
    let is_there = sqlx::query("SELECT to_regclass('telemetry.membership') IS NOT NULL").fetch_one(&pool).await;
    let is_there: bool = is_there.map_err(failed)?.column(0)?;
    let number = match is_there {
        true => {
            sqlx::query("SELECT number FROM telemetry.membership").fetch_one(&pool).await.map_err(failed)?.column(0)?
        }
        false => None,
    };
    pool.close().await;
    Ok(number.map_or(0, i16::unsigned_abs))
}

impl PostgresTelemetry {
    /// Returns host, port and name of the database.
    pub(super) fn name(&self) -> Arc<str> {
        place(&self.core.reads.get().connect_options())
    }
}
