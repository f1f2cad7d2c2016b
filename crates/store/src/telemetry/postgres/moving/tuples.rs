//! Encodes the rows of a move as `COPY … (FORMAT binary)` has them, in both directions: what is written to the database and
//! what is read from it again are the same bytes.

use isobar_model::ids::EventId;

use super::super::connections::own_id;
use crate::error::Result;
use crate::postgres::copied_rows::{CopiedRowReader, bytes, maybe, number, unreadable};
use crate::telemetry::moved::{MovedEvent, MovedRow};
use crate::telemetry::time_order::TimeOrder;

/// Last commit of a moved device: no process has given or gives this number.
const MOVED_COMMIT: i64 = 1;
/// Commits that a moved device has had.
const MOVED_SEQ: i64 = 1;

/// A table whose rows are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MovedTable {
    Head = 0,
    Event = 1,
    Last = 2,
    State = 3,
    Value = 4,
    Queue = 5,
    Key = 6,
    Outbox = 7,
}

/// Number of tables.
pub const MOVED_TABLES: usize = MovedTable::ALL.len();

impl MovedTable {
    /// All tables.
    pub const ALL: [MovedTable; 8] = [
        MovedTable::Head,
        MovedTable::Event,
        MovedTable::Last,
        MovedTable::State,
        MovedTable::Value,
        MovedTable::Queue,
        MovedTable::Key,
        MovedTable::Outbox,
    ];

    /// Returns the name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Event => "event",
            Self::Last => "last",
            Self::State => "state",
            Self::Value => "value",
            Self::Queue => "queue",
            Self::Key => "key",
            Self::Outbox => "outbox",
        }
    }

    /// Returns the rows in words, for operators.
    pub const fn rows(self) -> &'static str {
        match self {
            Self::Head => "numbers",
            Self::Event => "events",
            Self::Last => "series",
            Self::State => "states",
            Self::Value => "values",
            Self::Queue => "queued events",
            Self::Key => "idempotency keys",
            Self::Outbox => "entries of the outbox",
        }
    }

    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Head => &[
                "device",
                "seq",
                "last_commit",
                "device_events",
                "cloud_events",
                "device_order",
                "cloud_order",
                "queued",
            ],
            Self::Event => &["device", "kind", "n", "ord", "id", "element", "payload", "errors", "xact", "item"],
            Self::Last => &["device", "element", "series", "created", "count", "floor", "bytes", "ord", "last"],
            Self::State => &["device", "element", "state"],
            Self::Value => &["series", "n", "ord", "id", "payload"],
            Self::Queue => &["device", "n", "id", "element", "payload", "expires"],
            Self::Key => &["device", "key", "answer", "expires"],
            Self::Outbox => &["number", "device", "work", "parked"],
        }
    }

    /// Returns the statement that writes rows.
    pub fn copy_in(self) -> String {
        format!("COPY telemetry.{} ({}) FROM STDIN (FORMAT binary)", self.name(), self.columns().join(", "))
    }

    /// Returns the statement that reads the rows of devices after one and up to another, each with its device before it.
    pub fn copy_out(self, after: i64, up_to: i64) -> String {
        let columns: Vec<_> = self.columns().iter().map(|column| format!("t.{column}")).collect();
        let (devices, from) = match self {
            Self::Value => ("l", "telemetry.last l JOIN telemetry.value t USING (series)".to_owned()),
            _ => ("t", format!("telemetry.{} t", self.name())),
        };
        format!(
            "COPY (SELECT {devices}.device, {} FROM {from} WHERE {devices}.device > {after} AND {devices}.device <= {up_to}) \
             TO STDOUT (FORMAT binary)",
            columns.join(", ")
        )
    }
}

/// Writes the number of the columns of a row, which [`write_row`] follows.
pub fn write_count(table: MovedTable, to: &mut Vec<u8>) {
    to.extend_from_slice(&(table.columns().len() as i16).to_be_bytes());
}

/// Returns the table of a row.
pub fn table_of(row: &MovedRow<'_>) -> MovedTable {
    match row {
        MovedRow::Head { .. } => MovedTable::Head,
        MovedRow::Event(_) => MovedTable::Event,
        MovedRow::Series { .. } => MovedTable::Last,
        MovedRow::State { .. } => MovedTable::State,
        MovedRow::Value { .. } => MovedTable::Value,
        MovedRow::Queued { .. } => MovedTable::Queue,
        MovedRow::Key { .. } => MovedTable::Key,
        MovedRow::Outbox { .. } => MovedTable::Outbox,
    }
}

/// Writes the columns of a row.
pub fn write_row(device: u64, row: &MovedRow<'_>, to: &mut Vec<u8>) {
    match *row {
        MovedRow::Head { next, orders, queued } => {
            numbers(to, [device as i64, MOVED_SEQ, MOVED_COMMIT, next[0] as i64, next[1] as i64]);
            orders.iter().for_each(|order| bytes(to, &order.to_be_bytes()));
            number(to, queued as i64);
        }
        MovedRow::Event(event) => write_event(device, &event, to),
        MovedRow::Series { element, series, created, count, floor, bytes: length, order, last } => {
            number(to, device as i64);
            bytes(to, element.as_bytes());
            numbers(to, [series as i64, created, count as i64, floor as i64, length as i64]);
            bytes(to, &order.to_be_bytes());
            bytes(to, last);
        }
        MovedRow::State { element, state } => {
            number(to, device as i64);
            bytes(to, element.as_bytes());
            bytes(to, state);
        }
        MovedRow::Value { series, number: n, order, id, payload } => {
            numbers(to, [series as i64, n as i64]);
            place_in_time(to, order, id);
            bytes(to, payload);
        }
        MovedRow::Queued { number: n, id, element, payload, expires } => {
            numbers(to, [device as i64, n as i64]);
            bytes(to, id.bytes());
            bytes(to, element.as_bytes());
            bytes(to, payload);
            maybe(to, expires.map(i64::to_be_bytes).as_ref().map(|expires| &expires[..]));
        }
        MovedRow::Key { key, answer, expires } => {
            number(to, device as i64);
            bytes(to, key.as_bytes());
            bytes(to, answer.bytes());
            number(to, expires);
        }
        MovedRow::Outbox { number: n, work, parked } => {
            numbers(to, [n as i64, device as i64]);
            bytes(to, work);
            // The adapter does the same: a text of the database has no U+0000.
            maybe(to, parked.map(|why| why.replace('\0', "\u{fffd}")).as_ref().map(String::as_bytes));
        }
    }
}

fn write_event(device: u64, event: &MovedEvent<'_>, to: &mut Vec<u8>) {
    number(to, device as i64);
    bytes(to, &i16::from(event.kind).to_be_bytes());
    number(to, event.number as i64);
    place_in_time(to, event.order, event.id);
    bytes(to, event.element.as_bytes());
    bytes(to, event.payload);
    maybe(to, event.errors.map(str::as_bytes));
    number(to, event.place.anchor);
    bytes(to, &event.place.late.to_be_bytes());
}

/// Writes a position in time, and the identifier beside it.
fn place_in_time(to: &mut Vec<u8>, order: TimeOrder, id: EventId) {
    bytes(to, &order.to_be_bytes());
    maybe(to, own_id(id, order).as_ref().map(|id| &id[..]));
}

fn numbers<const N: usize>(to: &mut Vec<u8>, all: [i64; N]) {
    all.into_iter().for_each(|each| number(to, each));
}

/// Reader of the rows that the database copies out, each with its device before it.
#[derive(Default)]
pub struct TupleReader(CopiedRowReader);

impl TupleReader {
    /// Takes the next bytes, and calls `take` with the device and the columns of each row that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(i64, &[u8])) -> Result<()> {
        self.0.feed(bytes, |row| {
            let (device, columns) = row.split_at_checked(4 + 8).ok_or_else(unreadable)?;
            let device = device.last_chunk::<8>().map(|device| i64::from_be_bytes(*device));
            take(device.ok_or_else(unreadable)?, columns);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::copied_rows::{begin_copy, end_copy};

    #[test]
    fn rows_are_read_from_pieces_of_any_length() {
        let mut copy = Vec::new();
        begin_copy(&mut copy);
        for device in 1..4_i64 {
            copy.extend_from_slice(&3_i16.to_be_bytes());
            number(&mut copy, device);
            bytes(&mut copy, b"text");
            maybe(&mut copy, None);
        }
        end_copy(&mut copy);
        let mut columns = Vec::new();
        bytes(&mut columns, b"text");
        maybe(&mut columns, None);
        for size in 1..copy.len() {
            let (mut reader, mut found) = (TupleReader::default(), Vec::new());
            for piece in copy.chunks(size) {
                reader.feed(piece, |device, row| found.push((device, row.to_vec()))).unwrap();
            }
            assert_eq!(found, (1..4).map(|device| (device, columns.clone())).collect::<Vec<_>>(), "{size}");
        }
    }
}
