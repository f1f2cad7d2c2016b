//! The initial data of scenes.

#![allow(dead_code, reason = "each test that has this module uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests: a broken promise ends them"
)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use isobar_model::access::{self, CanRead, CanWrite, Lineage};
use isobar_model::event::{Event, EventType, StoredValue};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, EventId, OrganizationId};
use isobar_model::json::RawJson;
use isobar_model::page::{Page, PageRequest, TimeRange};
use isobar_model::time::Timestamp;
use uuid::Uuid;

use isobar_quota::Claim;
use isobar_store::telemetry::{
    Commit, Followed, Following, HistoryQuery, Looked, Memory, NewCloudEvent, NewEvent, NewValue, OutboxChange,
    QueueQuery, Ran, StreamPiece, StreamPosition, StreamedEvents, Telemetry, ValueQuery,
};

/// Time at which scenes begin: 2026-01-01T00:00:00Z.
pub const START: i64 = 1_767_225_600_000;

static DEVICES: AtomicU64 = AtomicU64::new(1);
thread_local! {
    /// Databases over which the scene of this thread spreads its devices, in turn.
    pub static DATABASES: Cell<u16> = const { Cell::new(1) };
}
static IDS: AtomicU64 = AtomicU64::new(1);

/// Returns the moment this many milliseconds into the scene.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// Makes an identifier of this moment; later ones are larger within a millisecond.
pub fn id(millis: i64) -> EventId {
    let number = IDS.fetch_add(1, Ordering::Relaxed);
    let high = ((START + millis) as u64) << 16 | 0x7000 | (number >> 32 & 0xfff);
    EventId(Uuid::from_u64_pair(high, 1 << 63 | (number & 0xffff_ffff) << 16))
}

/// Parses a text as JSON.
pub fn json(text: &str) -> RawJson {
    RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// Returns a claim for long reads.
pub fn claim() -> Claim {
    Claim::begin(OrganizationId(Uuid::nil()))
}

/// Returns a permit for a new device.
pub fn device() -> CanWrite<DeviceRef> {
    let number = DEVICES.fetch_add(1, Ordering::Relaxed);
    device_in((number % u64::from(DATABASES.get())) as u16)
}

/// Returns a permit for a new device in this database.
pub fn device_in(database: u16) -> CanWrite<DeviceRef> {
    device_with_key(DeviceKey::new(database, DEVICES.fetch_add(1, Ordering::Relaxed)).0)
}

/// Returns a permit for the device with this number.
pub fn device_with_key(number: u64) -> CanWrite<DeviceRef> {
    let id = DeviceId(Uuid::from_u64_pair(0x7000, 1 << 63 | number));
    access::device(DeviceRef { id, key: DeviceKey(number) })
}

/// Returns a device event for the history.
pub fn device_event(id: EventId, payload: &str) -> NewEvent {
    NewEvent { id, kind: EventType::DeviceEvent, element: "in".into(), payload: json(payload), errors: Vec::new() }
}

/// Returns the commit of a run that stores values, all of one event.
pub fn storing(id: EventId, values: &[(&str, &str)]) -> Commit {
    let values = values.iter().map(|(element, payload)| NewValue {
        event: id,
        element: Arc::from(*element),
        payload: json(payload),
    });
    Commit { history: [device_event(id, "{}")].into(), values: values.collect(), ..Commit::default() }
}

/// Returns the commit of a run that sends a cloud event.
pub fn sending(id: EventId, element: &str, payload: &str, expires_at: Option<Timestamp>) -> Commit {
    let element: Arc<str> = element.into();
    let event = NewEvent {
        id,
        kind: EventType::CloudEvent,
        element: element.clone(),
        payload: json(payload),
        errors: Vec::new(),
    };
    let queued = NewCloudEvent { id, element, payload: json(payload), expires_at };
    Commit { history: [event].into(), queue: vec![queued], ..Commit::default() }
}

/// Commits a run.
pub async fn run(t: &dyn Telemetry, device: &CanWrite<DeviceRef>, commit: Commit) -> Ran {
    t.run(device, None, at(0), &mut |_| commit.clone()).await.unwrap()
}

/// Stores one value.
pub async fn store(t: &dyn Telemetry, device: &CanWrite<DeviceRef>, millis: i64, element: &str, payload: &str) {
    run(t, device, storing(id(millis), &[(element, payload)])).await;
}

/// Requests a page.
pub fn page(page: u64, limit: u32) -> PageRequest {
    PageRequest::new(page, limit)
}

/// Returns all values of a series that a query finds, as texts, and their total.
pub async fn texts(
    t: &dyn Telemetry,
    device: &CanWrite<DeviceRef>,
    element: &str,
    query: ValueQuery,
) -> (Vec<String>, u64) {
    let page = t.values(&device.reading(), element, query, claim()).await.unwrap().unwrap();
    (page.items.iter().map(|value: &StoredValue| value.payload.text().to_owned()).collect(), page.total)
}

/// Reads a whole series in pieces; returns `None` if there is no such series.
pub async fn whole(
    t: &dyn Telemetry,
    device: &CanRead<DeviceRef>,
    element: &str,
    query: &ValueQuery,
) -> Option<Vec<StoredValue>> {
    let mut piece = t.values_chunk(device, element, query, None, claim()).await.unwrap()?;
    let mut values = std::mem::take(&mut piece.values);
    while let Some(next) = piece.next {
        piece = t.values_chunk(device, element, query, Some(next), claim()).await.unwrap()?;
        values.append(&mut piece.values);
    }
    Some(values)
}

/// Queries the first events of a queue at a moment.
pub fn queued(limit: u32, millis: i64) -> QueueQuery {
    QueueQuery { element: None, page: page(1, limit), now: at(millis), looked: Looked::default() }
}

/// Queries a page of the whole history.
pub fn all_history(request: PageRequest) -> HistoryQuery {
    HistoryQuery {
        device_events: true,
        cloud_events: true,
        range: TimeRange::default(),
        not_before: Timestamp::default(),
        page: request,
    }
}

/// Runs sixty runs of devices concurrently; each is durable. Identifiers increase for each device, but not from one
/// device to another, like those of runs that take longer. They begin at a moment, or after those of earlier calls.
pub async fn side_by_side(
    t: &dyn Telemetry,
    devices: &[CanWrite<DeviceRef>],
    from_millis: Option<i64>,
    is_streamed: bool,
) -> Vec<EventId> {
    static MOMENTS: AtomicI64 = AtomicI64::new(10_000);
    let from = from_millis.unwrap_or_else(|| MOMENTS.fetch_add(100, Ordering::Relaxed));
    let counts: Vec<_> = devices.iter().map(|_| AtomicI64::new(0)).collect();
    let runs = (0..60).map(async |number: usize| {
        let index = number % devices.len();
        let mut made = None;
        let mut work = |_: &dyn Memory| {
            let event = id(from + 3 * index as i64 + counts[index].fetch_add(1, Ordering::Relaxed));
            made = Some(event);
            let mut commit = storing(event, &[]);
            commit.streamed = is_streamed.then(|| streamed(&devices[index], &commit));
            commit
        };
        t.run(&devices[index], None, at(0), &mut work).await.unwrap();
        made
    });
    join_all(runs).await.into_iter().flatten().collect()
}

/// An event as a follower receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Position in the order of streams.
    pub position: StreamPosition,
    /// Device of the event.
    pub device: DeviceId,
    /// Its id.
    pub id: EventId,
    /// Payload as written.
    pub text: String,
}

impl Told {
    /// Returns an event that a follower received.
    pub fn live(position: StreamPosition, event: &Event) -> Self {
        let mut text = Vec::new();
        write_told(event, &mut text);
        Self { position, device: event.device, id: event.id, text: String::from_utf8(text).unwrap() }
    }

    /// Returns all events that were read.
    fn past(piece: &StreamPiece) -> impl Iterator<Item = Self> {
        let mut begin = 0;
        piece.events.iter().map(move |event| {
            let text = std::str::from_utf8(&piece.text[begin..event.end]).unwrap().to_owned();
            begin = event.end;
            let id = text.split(' ').next().unwrap().parse().unwrap();
            Self { position: event.position, device: event.device, id, text }
        })
    }
}

fn write_told(event: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{} ", event.id).as_bytes());
    event.write_json(out);
}

/// Follows from now on: everything that was answered before is before its position.
pub async fn follow(t: &dyn Telemetry) -> Following {
    t.follow_from(StreamPosition::first()).await.unwrap()
}

/// Returns all events of these devices that became durable between two positions, read in pieces.
pub async fn between(
    t: &dyn Telemetry,
    devices: &[CanRead<DeviceRef>],
    mut after: StreamPosition,
    until: StreamPosition,
    limit: usize,
) -> Vec<Told> {
    let (devices, mut all) = (Followed::of(devices.iter().cloned()), Vec::new());
    while after < until {
        let mut stretch = t.history_between(&devices, after, until, limit, claim()).await.unwrap();
        assert!(after < stretch.until() && stretch.until() <= until && stretch.left() <= limit);
        while stretch.left() > 0 {
            // Now one by one, now many.
            let bytes = if all.len() % 2 == 0 { 0 } else { 1_000 };
            let piece = t.history_next(&mut stretch, (bytes, write_told), claim()).await.unwrap();
            assert!(bytes > 0 || piece.events.len() == 1);
            assert!(piece.events.iter().all(|told| after < told.position && told.position <= stretch.until()));
            all.extend(Told::past(&piece));
        }
        after = stretch.until();
    }
    all
}

/// Returns the identifiers of events by position.
pub fn ids(found: &[Told]) -> Vec<EventId> {
    found.iter().map(|told| told.id).collect()
}

/// Returns the events of a device's commit, for followers.
pub fn streamed(device: &CanWrite<DeviceRef>, commit: &Commit) -> Arc<StreamedEvents> {
    let event = |event: &NewEvent| Event {
        id: event.id,
        received_at: event.id.minted_at(),
        kind: event.kind,
        device: device.target().id,
        element: Arc::clone(&event.element),
        payload: event.payload.clone(),
        errors: event.errors.clone(),
    };
    let events = commit.history.iter().map(|each| Arc::new(event(each))).collect();
    Arc::new(StreamedEvents { lineage: Arc::new(Lineage::new([], OrganizationId(Uuid::nil()))), events })
}

/// Returns the payloads of events.
pub fn payloads(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.payload.text()).collect()
}

/// Returns a device's whole history.
pub async fn history(t: &dyn Telemetry, device: &CanRead<DeviceRef>) -> Page<Event> {
    t.history(device, all_history(page(1, 10_000)), claim()).await.unwrap()
}

/// Makes outbox entries of this work, each with a number of its own.
pub fn work<W: Into<Bytes>>(t: &dyn Telemetry, work: impl IntoIterator<Item = W>) -> Vec<OutboxChange> {
    work.into_iter().map(|work| OutboxChange::Put { number: t.outbox_number(), work: work.into() }).collect()
}
