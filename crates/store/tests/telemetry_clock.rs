//! Tests a clock that jumps ahead and back, with restarts in between: new rows are never before existing ones, and
//! every query for a range of time finds exactly the rows that are shown in it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;

use std::sync::Arc;

use given::{at, page};
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::buckets::{Functions, Grid, Zone};
use isobar_model::chance::Chance;
use isobar_model::event::{Event, StoredValue};
use isobar_model::ids::{DeviceRef, EventId, IdMint};
use isobar_model::page::TimeRange;
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{
    BucketQuery, Buckets, Filter, FilterField, HistoryQuery, Memory, Operand, Operator, StreamPosition, Telemetry as _,
    ValueQuery, ValueSort,
};
use proptest::prelude::*;

const ALL: u32 = 10_000;
const ELEMENTS: [&str; 2] = ["x", "y"];

/// Step of a test.
#[derive(Clone, Debug)]
enum Step {
    /// The clock jumps this many milliseconds ahead, or back.
    Clock(i64),
    /// The server restarts, in order or not.
    Restart { orderly: bool },
    /// A device posts an event, which stores these values and sends this number of cloud events.
    Post { device: usize, values: Vec<usize>, sends: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let jump = prop_oneof![
        0..5_i64,
        -5..0_i64,
        Just(3_600_000),
        Just(-3_600_000),
        Just(31_536_000_000),
        Just(-31_536_000_000)
    ];
    prop_oneof![
        3 => jump.prop_map(Step::Clock),
        1 => any::<bool>().prop_map(|orderly| Step::Restart { orderly }),
        8 => (0..2_usize, prop::collection::vec(0..2_usize, 0..4), 0..2_usize)
            .prop_map(|(device, values, sends)| Step::Post { device, values, sends }),
    ]
}

/// Server that only stores events.
struct Server {
    folder: tempfile::TempDir,
    store: Option<Embedded>,
    mint: IdMint,
    chance: Chance,
    clock: Timestamp,
    devices: [CanWrite<DeviceRef>; 2],
    /// Newest identifier of each device.
    newest: [EventId; 2],
    events: Vec<EventId>,
}

impl Server {
    fn begin(seed: u64) -> Self {
        let nothing = EventId::from_bytes([0; 16]);
        let mut server = Self {
            folder: tempfile::tempdir().unwrap(),
            store: None,
            mint: IdMint::new(),
            chance: Chance::from_seed(seed),
            clock: at(0),
            devices: [given::device(), given::device()],
            newest: [nothing; 2],
            events: Vec::new(),
        };
        server.open();
        server
    }

    fn open(&mut self) {
        // States of devices are read from disk all the time.
        let store = Embedded::open(self.folder.path(), Options { device_bytes: 0, ..Options::default() }).unwrap();
        self.mint = IdMint::new();
        self.mint.go_on_behind(store.follow().from.newest.0);
        self.store = Some(store);
    }

    fn store(&self) -> &Embedded {
        self.store.as_ref().unwrap()
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Clock(millis) => self.clock = Timestamp::from_millis(self.clock.millis() + millis),
            Step::Restart { orderly } => {
                if orderly {
                    self.store().close().await.unwrap();
                }
                self.store = None;
                self.open();
            }
            Step::Post { device, values, sends } => self.post(device, &values, sends).await,
        }
    }

    async fn post(&mut self, device: usize, values: &[usize], sends: usize) {
        let (clock, mut ids) = (self.clock, Vec::new());
        let latest = clock.max(self.latest());
        let mut work = |memory: &dyn Memory| {
            self.mint.go_on_behind(memory.newest().0);
            let mut mint = || {
                ids.push(EventId(self.chance.with(|rng| self.mint.mint(clock, rng))));
                ids[ids.len() - 1]
            };
            let stored: Vec<_> = values.iter().map(|element| (ELEMENTS[*element], r#"{"n":1}"#)).collect();
            let mut commit = given::storing(mint(), &stored);
            for _ in 0..sends {
                commit.history.extend(given::sending(mint(), "out", "0", None).history);
            }
            commit
        };
        self.store().run(&self.devices[device], None, clock, &mut work).await.unwrap();
        for id in &ids {
            assert!(*id > self.newest[device] && id.minted_at() <= latest, "{id} by {clock}");
            self.newest[device] = *id;
        }
        self.events.extend(ids);
    }

    /// Returns the moment a millisecond after the newest of all.
    fn latest(&self) -> Timestamp {
        let newest = self.newest.iter().map(|id| id.minted_at()).max().unwrap();
        Timestamp::from_millis(newest.millis() + 1)
    }
}

async fn values(store: &Embedded, device: &CanRead<DeviceRef>, element: &str, query: ValueQuery) -> Vec<StoredValue> {
    let oldest_first = vec![ValueSort { field: FilterField::CreatedAt, descending: false }];
    let query = ValueQuery { page: page(1, ALL), sort: oldest_first, ..query };
    let whole = given::whole(store, device, element, &query).await;
    let page = store.values(device, element, query, given::claim()).await.unwrap();
    assert_eq!(page.as_ref().map(|page| (&page.items, page.total)), whole.as_ref().map(|all| (all, all.len() as u64)));
    whole.unwrap_or_default()
}

fn lies_in(at: Timestamp, range: TimeRange) -> bool {
    range.from.is_none_or(|from| from <= at) && range.to.is_none_or(|to| at < to)
}

async fn look_at_series(store: &Embedded, device: &CanRead<DeviceRef>, element: &str, range: TimeRange) {
    let all = values(store, device, element, ValueQuery::default()).await;
    let in_order = |two: &[StoredValue]| two[0].id < two[1].id && two[0].created_at <= two[1].created_at;
    assert!(all.windows(2).all(in_order), "{all:?}");
    assert!(all.iter().all(|value| value.created_at == value.id.minted_at()));
    let expected: Vec<_> = all.iter().filter(|value| lies_in(value.created_at, range)).cloned().collect();
    assert_eq!(values(store, device, element, ValueQuery { range, ..ValueQuery::default() }).await, expected);
    let until = range.to.map(|to| Filter {
        field: FilterField::CreatedAt,
        operator: Operator::Lt,
        operands: vec![Operand::Time(to)],
    });
    let kept = Kept { not_before: range.from, ..Kept::default() };
    let filtered = ValueQuery { filters: until.into_iter().collect(), kept, ..ValueQuery::default() };
    assert_eq!(values(store, device, element, filtered).await, expected, "as retention and filters have it");
    let query = BucketQuery {
        fields: vec![vec!["n".to_owned()]],
        functions: Functions::default(),
        grid: Some(Grid::new("1m".parse().unwrap(), Zone::default())),
        range,
        filters: Vec::new(),
        time: None,
    };
    let buckets = Buckets::new(Arc::new(query), Box::new(Some));
    let (mut buckets, _) = store.buckets(device, element, &Kept::default(), buckets, given::claim()).await.unwrap();
    let told = buckets.take_series().unwrap();
    assert_eq!(told.values, expected.len() as u64);
    for (from, bucket) in &told.buckets {
        let minute = TimeRange { from: Some(*from), to: Some(from.plus_seconds(60)) };
        let count = expected.iter().filter(|value| lies_in(value.created_at, minute)).count();
        assert_eq!(bucket.count, count as u64);
    }
}

async fn look_at_history(store: &Embedded, device: &CanRead<DeviceRef>, range: TimeRange) -> Vec<EventId> {
    let history = async |range, not_before| {
        let query = HistoryQuery { range, not_before, ..given::all_history(page(1, ALL)) };
        store.history(device, query, given::claim()).await.unwrap().items
    };
    let all = history(TimeRange::default(), Timestamp::default()).await;
    assert!(all.windows(2).all(|two| two[0].id > two[1].id && two[0].received_at >= two[1].received_at));
    let expected: Vec<Event> = all.iter().filter(|event| lies_in(event.received_at, range)).cloned().collect();
    assert_eq!(history(range, Timestamp::default()).await, expected);
    let to = TimeRange { from: None, to: range.to };
    assert_eq!(history(to, range.from.unwrap_or_default()).await, expected, "as retention has it");
    for event in &expected {
        assert_eq!(store.history_event(device, event.id).await.unwrap().as_ref(), Some(event));
    }
    all.iter().map(|event| event.id).collect()
}

/// Checks that every posted event is streamed once, from whichever event it is resumed.
async fn look_at_stream(server: &Server) {
    let store = server.store();
    let devices = [server.devices[0].reading(), server.devices[1].reading()];
    let until = store.follow().from;
    let all = given::ids(&given::between(store, &devices, StreamPosition::first(), until, 7).await);
    assert_eq!(all, server.events);
    if let Some(middle) = all.get(all.len() / 2) {
        let after = store.history_position(*middle).await.unwrap();
        let rest = given::ids(&given::between(store, &devices, after, until, 7).await);
        assert_eq!(rest, all[all.len() / 2 + 1..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn time_ranges_are_exact_for_any_clock(
        steps in prop::collection::vec(step(), 1..60),
        ends in prop::collection::vec((0..99_usize, 0..99_usize, -1..2_i64), 1..6),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut server = Server::begin(seed);
            for step in steps {
                server.take(step).await;
            }
            let moment = |nth: usize, beside: i64| {
                let event = server.events.get(nth % server.events.len().max(1));
                event.map(|id| Timestamp::from_millis(id.minted_at().millis() + beside))
            };
            for (from, to, beside) in ends {
                let (from, to) = (moment(from, beside), moment(to, 0));
                let range = TimeRange { from: from.min(to), to: to.max(from) };
                for device in &server.devices {
                    for element in ELEMENTS {
                        look_at_series(server.store(), &device.reading(), element, range).await;
                    }
                    look_at_history(server.store(), &device.reading(), range).await;
                }
            }
            look_at_stream(&server).await;
        });
    }
}
