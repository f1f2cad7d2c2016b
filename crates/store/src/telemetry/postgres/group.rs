//! One statement that writes the commits of a group: it locks the heads of their devices in the order of their numbers,
//! leaves out those whose last commit is not the one that their run has seen, and writes the rest.

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{Arguments as _, AssertSqlSafe};

use super::connections::{ReadColumn as _, failed, own_id};
use super::memory::DeviceWrites;
use crate::error::{Result, StoreError};

/// Outcome of a group.
#[derive(Debug, Default)]
pub struct GroupOutcome {
    /// The transaction; 0 if that is not known any more.
    pub transaction: i64,
    /// Devices whose commits were first.
    pub devices: Vec<i64>,
    /// Devices of whose commits the outcome is unknown for ever.
    pub unknown: Vec<i64>,
}

/// A column of a relation that is bound as an array.
enum ArrayColumn<'a> {
    Numbers(&'static str, Vec<i64>),
    MaybeNumbers(&'static str, Vec<Option<i64>>),
    Bytes(&'static str, Vec<&'a [u8]>),
    Orders(&'static str, Vec<[u8; 16]>),
    MaybeIds(&'static str, Vec<Option<[u8; 16]>>),
    MaybeTexts(&'static str, Vec<Option<&'a str>>),
}

/// The text of a statement and its arguments.
#[derive(Default)]
struct GroupStatement {
    text: String,
    arguments: PgArguments,
    bound: usize,
}

impl GroupStatement {
    fn add(&mut self, column: ArrayColumn<'_>) -> Result<(&'static str, &'static str)> {
        let arguments = &mut self.arguments;
        let (added, name, cast) = match column {
            ArrayColumn::Numbers(name, values) => (arguments.add(values), name, "bigint[]"),
            ArrayColumn::MaybeNumbers(name, values) => (arguments.add(values), name, "bigint[]"),
            ArrayColumn::Bytes(name, values) => (arguments.add(values), name, "bytea[]"),
            ArrayColumn::Orders(name, values) => (arguments.add(values), name, "bytea[]"),
            ArrayColumn::MaybeIds(name, values) => (arguments.add(values), name, "bytea[]"),
            ArrayColumn::MaybeTexts(name, values) => (arguments.add(values), name, "text[]"),
        };
        added.map_err(StoreError::unavailable)?;
        self.bound += 1;
        Ok((name, cast))
    }

    /// Adds a part: its text, with `{rows}` where the rows of these columns stand.
    fn part(&mut self, text: &str, columns: Vec<ArrayColumn<'_>>) -> Result<()> {
        let (mut arrays, mut names) = (Vec::new(), Vec::new());
        for column in columns {
            let (name, cast) = self.add(column)?;
            arrays.push(format!("${}::{cast}", self.bound));
            names.push(name);
        }
        let rows = format!("unnest({}) AS g({})", arrays.join(", "), names.join(", "));
        self.text.push_str(&text.replace("{rows}", &rows));
        Ok(())
    }
}

/// Locks the heads, and raises those of which the last commit is the expected one.
const HEADS: &str = "WITH given AS (SELECT * FROM {rows}), \
    locked AS (SELECT h.device, h.last_commit FROM telemetry.head h WHERE h.device IN (SELECT device FROM given) \
        ORDER BY h.device FOR UPDATE), \
    raised AS (UPDATE telemetry.head h SET seq = h.seq + 1, last_commit = g.last_commit, \
            device_events = g.device_events, cloud_events = g.cloud_events, device_order = g.device_order, \
            cloud_order = g.cloud_order, queued = g.queued, revision = g.revision \
        FROM given g JOIN locked l ON l.device = g.device \
        WHERE h.device = g.device AND l.last_commit = g.expected RETURNING h.device), \
    begun AS (INSERT INTO telemetry.head (device, seq, last_commit, device_events, cloud_events, device_order, \
            cloud_order, queued, revision) \
        SELECT device, 1, last_commit, device_events, cloud_events, device_order, cloud_order, queued, revision \
        FROM given \
        WHERE expected = 0 ORDER BY device ON CONFLICT DO NOTHING RETURNING device), \
    firsts AS (SELECT device FROM raised UNION ALL SELECT device FROM begun)";
const EVENTS: &str = ", events AS (INSERT INTO telemetry.event (device, kind, n, ord, id, element, payload, errors, item) \
    SELECT device, kind::smallint, n, ord, id, element, payload, errors, item::integer FROM {rows} \
    WHERE device IN (SELECT device FROM firsts))";
const VALUES: &str = ", stored AS (INSERT INTO telemetry.value (series, n, ord, id, payload) \
    SELECT series, n, ord, id, payload FROM {rows} WHERE device IN (SELECT device FROM firsts))";
const SERIES: &str = ", lasts AS (INSERT INTO telemetry.last \
        (device, element, series, created, count, floor, bytes, ord, last) \
    SELECT device, element, series, created, count, floor, bytes, ord, last FROM {rows} \
    WHERE device IN (SELECT device FROM firsts) ON CONFLICT (device, element) DO UPDATE SET series = excluded.series, \
        created = excluded.created, count = excluded.count, floor = excluded.floor, bytes = excluded.bytes, \
        ord = excluded.ord, last = excluded.last)";
const SERIES_GONE: &str = ", lasts_gone AS (DELETE FROM telemetry.last t USING {rows} \
    WHERE t.device = g.device AND t.element = g.element AND g.device IN (SELECT device FROM firsts))";
const GARBAGE: &str = ", garbage AS (INSERT INTO telemetry.garbage (series, below) SELECT series, below FROM {rows} \
    WHERE device IN (SELECT device FROM firsts) ON CONFLICT DO NOTHING)";
const STATES: &str = ", states AS (INSERT INTO telemetry.state (device, element, state) \
    SELECT device, element, state FROM {rows} WHERE device IN (SELECT device FROM firsts) \
    ON CONFLICT (device, element) DO UPDATE SET state = excluded.state)";
const STATES_GONE: &str = ", states_gone AS (DELETE FROM telemetry.state t USING {rows} \
    WHERE t.device = g.device AND t.element = g.element AND g.device IN (SELECT device FROM firsts))";
const QUEUED: &str = ", queued AS (INSERT INTO telemetry.queue (device, n, id, element, payload, expires) \
    SELECT device, n, id, element, payload, expires FROM {rows} WHERE device IN (SELECT device FROM firsts))";
const TAKEN: &str = ", taken AS (DELETE FROM telemetry.queue t USING {rows} \
    WHERE t.device = g.device AND t.n = g.n AND g.device IN (SELECT device FROM firsts))";
const OUTBOX: &str = ", works AS (INSERT INTO telemetry.outbox (number, device, work, revision, owner) \
    SELECT number, device, work, revision, number >> 40 FROM {rows} WHERE device IN (SELECT device FROM firsts) ORDER BY number \
    ON CONFLICT (number) DO UPDATE SET work = excluded.work)";
const OUTBOX_GONE: &str = ", works_gone AS (DELETE FROM telemetry.outbox t USING {rows} \
    WHERE t.number = g.number AND g.device IN (SELECT device FROM firsts))";
const KEYS: &str = ", keys AS (INSERT INTO telemetry.key (device, key, answer, expires) \
    SELECT device, key, answer, expires FROM {rows} WHERE device IN (SELECT device FROM firsts) \
    ON CONFLICT (device, key) DO UPDATE SET answer = excluded.answer, expires = excluded.expires)";
const FIRSTS: &str = " SELECT pg_current_xact_id()::text::bigint, device FROM firsts";

/// Writes the commits of a group, which are of different devices. Those that were not first write nothing. `raised` is added
/// to the number of the transaction.
pub async fn write(
    connection: &mut PgConnection,
    group: &[&DeviceWrites],
    raised: i64,
) -> std::result::Result<GroupOutcome, GroupFailure> {
    let statement = statement(group).map_err(GroupFailure::Statement)?;
    let query = sqlx::query_with(AssertSqlSafe(statement.text), statement.arguments);
    let rows = query.fetch_all(connection).await.map_err(GroupFailure::of)?;
    let mut outcome = GroupOutcome::default();
    for row in &rows {
        let transaction: i64 = row.column(0).map_err(GroupFailure::Statement)?;
        outcome.transaction = transaction.saturating_add(raised);
        outcome.devices.push(row.column(1).map_err(GroupFailure::Statement)?);
    }
    Ok(outcome)
}

/// The reason for which a group was not written.
#[derive(Debug)]
pub enum GroupFailure {
    /// Nothing was written: the transaction was a victim of others, and can be repeated.
    Victim,
    /// Nothing was written: the database refuses the statement.
    Statement(StoreError),
    /// The connection ended, and it is unknown whether anything was written.
    Unknown(StoreError),
}

impl GroupFailure {
    fn of(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        match code.as_deref() {
            Some("40P01" | "40001" | "55P03") => Self::Victim,
            // The database shuts down, or somebody has ended the connection: perhaps after the commit.
            Some(code) if code.starts_with("57P") => Self::Unknown(failed(error)),
            Some(_) => Self::Statement(failed(error)),
            None => Self::Unknown(failed(error)),
        }
    }
}

impl From<GroupFailure> for StoreError {
    fn from(failure: GroupFailure) -> Self {
        match failure {
            GroupFailure::Victim => Self::Busy,
            GroupFailure::Statement(error) | GroupFailure::Unknown(error) => error,
        }
    }
}

fn statement(group: &[&DeviceWrites]) -> Result<GroupStatement> {
    let mut statement = GroupStatement::default();
    heads(&mut statement, group)?;
    history(&mut statement, group)?;
    values(&mut statement, group)?;
    series(&mut statement, group)?;
    states(&mut statement, group)?;
    queue(&mut statement, group)?;
    outbox(&mut statement, group)?;
    keys(&mut statement, group)?;
    statement.text.push_str(FIRSTS);
    Ok(statement)
}

/// Collects a value of each row of a kind.
fn each<'g, R: 'g, T>(
    group: &[&'g DeviceWrites],
    rows: impl Fn(&'g DeviceWrites) -> &'g [R],
    value: impl Fn(&'g DeviceWrites, &'g R) -> T,
) -> Vec<T> {
    group
        .iter()
        .flat_map(|writes| rows(writes).iter().map(|row| (*writes, row)))
        .map(|(of, row)| value(of, row))
        .collect()
}

fn heads(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let numbers = |number: fn(&DeviceWrites) -> i64| group.iter().map(|writes| number(writes)).collect::<Vec<i64>>();
    let orders = |kind: usize| group.iter().map(|writes| writes.head.ends[kind].order.to_be_bytes()).collect();
    statement.part(
        HEADS,
        vec![
            ArrayColumn::Numbers("device", numbers(|writes| writes.device)),
            ArrayColumn::Numbers("expected", numbers(|writes| writes.expected)),
            ArrayColumn::Numbers("last_commit", numbers(|writes| writes.head.last_commit)),
            ArrayColumn::Numbers("device_events", numbers(|writes| writes.head.ends[0].next as i64)),
            ArrayColumn::Numbers("cloud_events", numbers(|writes| writes.head.ends[1].next as i64)),
            ArrayColumn::Orders("device_order", orders(0)),
            ArrayColumn::Orders("cloud_order", orders(1)),
            ArrayColumn::Numbers("queued", numbers(|writes| writes.head.queued as i64)),
            ArrayColumn::Numbers("revision", numbers(|writes| writes.head.revision as i64)),
        ],
    )
}

fn history(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let devices = each(group, |writes| &writes.events, |writes, _| writes.device);
    if devices.is_empty() {
        return Ok(());
    }
    let items = (0..devices.len() as i64).collect();
    statement.part(
        EVENTS,
        vec![
            ArrayColumn::Numbers("device", devices),
            ArrayColumn::Numbers("kind", each(group, |writes| &writes.events, |_, row| row.kind.into())),
            ArrayColumn::Numbers("n", each(group, |writes| &writes.events, |_, row| row.number as i64)),
            ArrayColumn::Orders("ord", each(group, |writes| &writes.events, |_, row| row.order.to_be_bytes())),
            ArrayColumn::MaybeIds("id", each(group, |writes| &writes.events, |_, row| own_id(row.id, row.order))),
            ArrayColumn::Bytes("element", each(group, |writes| &writes.events, |_, row| row.element.as_bytes())),
            ArrayColumn::Bytes("payload", each(group, |writes| &writes.events, |_, row| &*row.payload)),
            ArrayColumn::MaybeTexts("errors", each(group, |writes| &writes.events, |_, row| row.errors.as_deref())),
            ArrayColumn::Numbers("item", items),
        ],
    )
}

fn values(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let devices = each(group, |writes| &writes.values, |writes, _| writes.device);
    if devices.is_empty() {
        return Ok(());
    }
    statement.part(
        VALUES,
        vec![
            ArrayColumn::Numbers("device", devices),
            ArrayColumn::Numbers("series", each(group, |writes| &writes.values, |_, row| row.series)),
            ArrayColumn::Numbers("n", each(group, |writes| &writes.values, |_, row| row.number as i64)),
            ArrayColumn::Orders("ord", each(group, |writes| &writes.values, |_, row| row.order.to_be_bytes())),
            ArrayColumn::MaybeIds("id", each(group, |writes| &writes.values, |_, row| own_id(row.id, row.order))),
            ArrayColumn::Bytes("payload", each(group, |writes| &writes.values, |_, row| &*row.payload)),
        ],
    )
}

fn series(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let devices = each(group, |writes| &writes.series, |writes, _| writes.device);
    if !devices.is_empty() {
        statement.part(
            SERIES,
            vec![
                ArrayColumn::Numbers("device", devices),
                ArrayColumn::Bytes("element", each(group, |writes| &writes.series, |_, row| row.element.as_bytes())),
                ArrayColumn::Numbers("series", each(group, |writes| &writes.series, |_, row| row.number)),
                ArrayColumn::Numbers("created", each(group, |writes| &writes.series, |_, row| row.created.millis())),
                ArrayColumn::Numbers("count", each(group, |writes| &writes.series, |_, row| row.count as i64)),
                ArrayColumn::Numbers("floor", each(group, |writes| &writes.series, |_, row| row.floor as i64)),
                ArrayColumn::Numbers("bytes", each(group, |writes| &writes.series, |_, row| row.bytes as i64)),
                ArrayColumn::Orders("ord", each(group, |writes| &writes.series, |_, row| row.order.to_be_bytes())),
                ArrayColumn::Bytes("last", each(group, |writes| &writes.series, |_, row| &*row.last)),
            ],
        )?;
    }
    let gone = each(group, |writes| &writes.series_gone, |writes, _| writes.device);
    if !gone.is_empty() {
        let elements = each(group, |writes| &writes.series_gone, |_, element| element.as_bytes());
        let columns = vec![ArrayColumn::Numbers("device", gone), ArrayColumn::Bytes("element", elements)];
        statement.part(SERIES_GONE, columns)?;
    }
    let garbage = each(group, |writes| &writes.garbage, |writes, _| writes.device);
    if !garbage.is_empty() {
        let numbers = each(group, |writes| &writes.garbage, |_, (series, _)| *series);
        let below = each(group, |writes| &writes.garbage, |_, (_, below)| *below as i64);
        let columns = vec![
            ArrayColumn::Numbers("device", garbage),
            ArrayColumn::Numbers("series", numbers),
            ArrayColumn::Numbers("below", below),
        ];
        statement.part(GARBAGE, columns)?;
    }
    Ok(())
}

fn states(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let all = || group.iter().flat_map(|writes| writes.states.iter().map(|(name, state)| (writes.device, name, state)));
    for (part, is_gone) in [(STATES, false), (STATES_GONE, true)] {
        let rows = || all().filter(|(.., state)| state.is_empty() == is_gone);
        if rows().next().is_none() {
            continue;
        }
        let mut columns = vec![
            ArrayColumn::Numbers("device", rows().map(|(device, ..)| device).collect()),
            ArrayColumn::Bytes("element", rows().map(|(_, name, _)| name.as_bytes()).collect()),
        ];
        if !is_gone {
            columns.push(ArrayColumn::Bytes("state", rows().map(|(.., state)| &**state).collect()));
        }
        statement.part(part, columns)?;
    }
    Ok(())
}

fn queue(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let devices = each(group, |writes| &writes.queued, |writes, _| writes.device);
    if !devices.is_empty() {
        statement.part(
            QUEUED,
            vec![
                ArrayColumn::Numbers("device", devices),
                ArrayColumn::Numbers("n", each(group, |writes| &writes.queued, |_, row| row.number as i64)),
                ArrayColumn::Bytes("id", each(group, |writes| &writes.queued, |_, row| &row.id.bytes()[..])),
                ArrayColumn::Bytes("element", each(group, |writes| &writes.queued, |_, row| row.element.as_bytes())),
                ArrayColumn::Bytes("payload", each(group, |writes| &writes.queued, |_, row| &*row.payload)),
                ArrayColumn::MaybeNumbers("expires", each(group, |writes| &writes.queued, |_, row| row.expires)),
            ],
        )?;
    }
    let gone = each(group, |writes| &writes.taken, |writes, _| writes.device);
    if !gone.is_empty() {
        let numbers = each(group, |writes| &writes.taken, |_, number| *number as i64);
        statement.part(TAKEN, vec![ArrayColumn::Numbers("device", gone), ArrayColumn::Numbers("n", numbers)])?;
    }
    Ok(())
}

fn outbox(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let all = || group.iter().flat_map(|writes| writes.outbox.iter().map(|(number, work)| (*writes, number, work)));
    for (part, is_gone) in [(OUTBOX, false), (OUTBOX_GONE, true)] {
        let rows = || all().filter(|(.., work)| work.is_none() == is_gone);
        if rows().next().is_none() {
            continue;
        }
        let mut columns = vec![
            ArrayColumn::Numbers("device", rows().map(|(writes, ..)| writes.device).collect()),
            ArrayColumn::Numbers("number", rows().map(|(_, number, _)| *number as i64).collect()),
        ];
        if !is_gone {
            columns.push(ArrayColumn::Bytes("work", rows().filter_map(|(.., work)| work.as_deref()).collect()));
            let revisions = rows().map(|(writes, ..)| writes.head.revision as i64);
            columns.push(ArrayColumn::Numbers("revision", revisions.collect()));
        }
        statement.part(part, columns)?;
    }
    Ok(())
}

fn keys(statement: &mut GroupStatement, group: &[&DeviceWrites]) -> Result<()> {
    let rows = || group.iter().filter_map(|writes| Some((writes.device, writes.key.as_ref()?)));
    if rows().next().is_none() {
        return Ok(());
    }
    statement.part(
        KEYS,
        vec![
            ArrayColumn::Numbers("device", rows().map(|(device, _)| device).collect()),
            ArrayColumn::Bytes("key", rows().map(|(_, key)| key.key.as_bytes()).collect()),
            ArrayColumn::Bytes("answer", rows().map(|(_, key)| &key.answer.bytes()[..]).collect()),
            ArrayColumn::Numbers("expires", rows().map(|(_, key)| key.expires_at.millis()).collect()),
        ],
    )
}
