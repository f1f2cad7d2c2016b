//! Tests random sequences of all operations of the store against a simple model in memory; the store is reopened in
//! between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "suite/telemetry/given.rs"]
mod given;
mod model;

use bytes::Bytes;
use given::{at, id, page};
use isobar_model::page::TimeRange;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{
    Filter, FilterField, Idempotency, Looked, Memory, Operand, Operator, QueueQuery, Ran, Telemetry, ValueQuery,
    ValueSort,
};
use model::{Model, QUEUE_MAX};
use proptest::prelude::*;

const ELEMENTS: [&str; 2] = ["x", "y"];

/// Step of a sequence, with devices and elements by index.
#[derive(Clone, Debug)]
enum Step {
    Commit {
        device: usize,
        passes: i64,
        values: Vec<(usize, usize)>,
        sends: Vec<(usize, Option<i64>)>,
        key: Option<u8>,
    },
    Take {
        device: usize,
        element: Option<usize>,
        page: u64,
        limit: u32,
    },
    RemoveQueued {
        device: usize,
        nth: usize,
    },
    DeleteSeries {
        device: usize,
        element: Option<usize>,
    },
    Forget {
        device: usize,
    },
    Reopen {
        cleanly: bool,
    },
    Query {
        device: usize,
        element: usize,
        query: ValueQuery,
    },
    History {
        device: usize,
        kinds: (bool, bool),
        range: (Option<i64>, Option<i64>),
        page: u64,
        limit: u32,
    },
}

const PAYLOADS: [&str; 10] = [
    r#"{"a":1}"#,
    r#"{"a":2,"b":1}"#,
    r#"{"a":2.0}"#,
    r#"{"b":"text"}"#,
    r#"{"a":"text"}"#,
    r#"{"a":true}"#,
    r#"{"a":null}"#,
    "3",
    r#"{"a":{"c":[1,2]}}"#,
    r#"{"a":-7e2,"b":false}"#,
];

fn field() -> impl Strategy<Value = FilterField> {
    let payload = |keys: &[&str]| FilterField::Payload(keys.iter().map(|key| (*key).to_owned()).collect());
    prop::sample::select(vec![
        payload(&["a"]),
        payload(&["b"]),
        payload(&[]),
        payload(&["a", "c", "1"]),
        FilterField::CreatedAt,
        FilterField::Id,
    ])
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        prop::sample::select(vec!["1", "2", "2.00", "-700", "3"]).prop_map(|text| Operand::Number(text.to_owned())),
        prop::sample::select(vec!["text", "zz"]).prop_map(|text| Operand::Text(text.to_owned())),
        any::<bool>().prop_map(Operand::Bool),
        Just(Operand::Null),
        (-2_i64..60).prop_map(|millis| Operand::Time(at(millis))),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    use Operator::{Eq, Gt, Gte, In, Lt, Lte, Ne, Nin};
    let operator = prop::sample::select(vec![Eq, Ne, Lt, Lte, Gt, Gte, In, Nin]);
    (field(), operator, prop::collection::vec(operand(), 1..3)).prop_map(|(field, operator, mut operands)| {
        if !matches!(operator, In | Nin) {
            operands.truncate(1);
        }
        Filter { field, operator, operands }
    })
}

fn range() -> impl Strategy<Value = (Option<i64>, Option<i64>)> {
    (prop::option::weighted(0.3, -2_i64..60), prop::option::weighted(0.3, -2_i64..60))
}

fn query() -> impl Strategy<Value = ValueQuery> {
    let sort = (field(), any::<bool>()).prop_map(|(field, descending)| ValueSort { field, descending });
    let parts = (range(), prop::collection::vec(sort, 0..3), prop::collection::vec(filter(), 0..3), 1_u64..4, 1_u32..9);
    parts.prop_map(|((from, to), sort, filters, number, limit)| ValueQuery {
        page: page(number, limit),
        range: TimeRange { from: from.map(at), to: to.map(at) },
        sort,
        filters,
        ..ValueQuery::default()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let device = || 0..2_usize;
    let values = prop::collection::vec((0..2_usize, 0..PAYLOADS.len()), 0..20);
    let sends = prop::collection::vec((0..2_usize, prop::option::weighted(0.3, 0_i64..60)), 0..4);
    prop_oneof![
        8 => (device(), -1_i64..3, values, sends, prop::option::weighted(0.2, 0..3_u8))
            .prop_map(|(device, passes, values, sends, key)| Step::Commit { device, passes, values, sends, key }),
        3 => (device(), prop::option::of(0..2_usize), 1_u64..3, 1_u32..4)
            .prop_map(|(device, element, page, limit)| Step::Take { device, element, page, limit }),
        1 => (device(), 0..12_usize).prop_map(|(device, nth)| Step::RemoveQueued { device, nth }),
        1 => (device(), prop::option::of(0..2_usize))
            .prop_map(|(device, element)| Step::DeleteSeries { device, element }),
        1 => device().prop_map(|device| Step::Forget { device }),
        1 => any::<bool>().prop_map(|cleanly| Step::Reopen { cleanly }),
        8 => (device(), 0..2_usize, query())
            .prop_map(|(device, element, query)| Step::Query { device, element, query }),
        3 => (device(), any::<(bool, bool)>(), range(), 1_u64..4, 1_u32..9)
            .prop_map(|(device, kinds, range, page, limit)| Step::History { device, kinds, range, page, limit }),
    ]
}

struct Scene {
    folder: tempfile::TempDir,
    store: Option<Embedded>,
    devices: [isobar_model::access::CanWrite<isobar_model::ids::DeviceRef>; 2],
    models: [Model; 2],
    now: i64,
}

impl Scene {
    fn open(&mut self) {
        // This cache holds almost nothing: states are read again from disk all the time.
        let options = Options { queue_max_events: QUEUE_MAX as u64, device_bytes: 0, ..Options::default() };
        self.store = Some(Embedded::open(self.folder.path(), options).unwrap());
    }

    async fn take(&mut self, step: Step) {
        let Some(store) = &self.store else { unreachable!("it is open") };
        match step {
            Step::Commit { device, passes, values, sends, key } => {
                self.now += passes;
                self.commit(device, &values, &sends, key).await;
            }
            Step::Take { device, element, page: number, limit } => {
                let element = element.map(|index| ELEMENTS[index].to_owned());
                let query = QueueQuery { element, page: page(number, limit), ..given::queued(limit, self.now) };
                // Use another reader: its progress must not affect the one that takes.
                let first = QueueQuery { looked: Looked::default(), ..query.clone() };
                let peeked = store.queue_peek(&self.devices[device].reading(), first).await.unwrap();
                let taken = store.queue_take(&self.devices[device], query.clone()).await.unwrap();
                assert_eq!(peeked, taken);
                let ids: Vec<_> = taken.iter().map(|event| event.id).collect();
                assert_eq!(ids, self.models[device].take(&query));
            }
            Step::RemoveQueued { device, nth } => {
                let Some(id) = self.models[device].remove_queued(nth) else { return };
                assert!(store.queue_delete(&self.devices[device], id).await.unwrap());
            }
            Step::DeleteSeries { device, element } => {
                let element = element.map(|index| ELEMENTS[index]);
                let there = store.series_delete(&self.devices[device], element).await.unwrap();
                assert_eq!(there, self.models[device].delete_series(element));
            }
            Step::Forget { device } => {
                store.forget(&self.devices[device]).await.unwrap();
                self.models[device] = Model::default();
            }
            Step::Reopen { cleanly } => {
                if cleanly {
                    store.close().await.unwrap();
                }
                self.store = None;
                self.open();
            }
            Step::Query { device, element, query } => self.query(device, ELEMENTS[element], query).await,
            Step::History { device, kinds, range, page: number, limit } => {
                let query = isobar_store::telemetry::HistoryQuery {
                    device_events: kinds.0,
                    cloud_events: kinds.1,
                    range: TimeRange { from: range.0.map(at), to: range.1.map(at) },
                    ..given::all_history(page(number, limit))
                };
                let found = store.history(&self.devices[device].reading(), query, given::claim()).await.unwrap();
                let ids: Vec<_> = found.items.iter().map(|event| event.id).collect();
                assert_eq!((ids, found.total), self.models[device].history(&query), "{query:?}");
            }
        }
    }

    async fn query(&self, device: usize, element: &str, query: ValueQuery) {
        let Some(store) = &self.store else { unreachable!("it is open") };
        let (reading, model) = (self.devices[device].reading(), &self.models[device]);
        if query.newest_first().is_some() {
            let found = given::whole(store, &reading, element, &query).await;
            let unpaged = ValueQuery { page: page(1, u32::MAX), ..query.clone() };
            let expected = model.values(element, &unpaged);
            assert_eq!(found, expected.map(|(values, _)| values), "{query:?}");
        }
        let found = store.values(&reading, element, query.clone(), given::claim()).await.unwrap();
        let found = found.map(|page| (page.items, page.total));
        assert_eq!(found, model.values(element, &query), "{query:?}");
    }

    async fn commit(
        &mut self,
        device: usize,
        values: &[(usize, usize)],
        sends: &[(usize, Option<i64>)],
        key: Option<u8>,
    ) {
        let Some(store) = &self.store else { unreachable!("it is open") };
        let event = id(self.now);
        let stored: Vec<_> = values.iter().map(|(element, payload)| (ELEMENTS[*element], PAYLOADS[*payload])).collect();
        let mut commit = given::storing(event, &stored);
        for (element, expires) in sends {
            let sent = given::sending(id(self.now), ELEMENTS[*element], "0", expires.map(at));
            commit.history.extend(sent.history);
            commit.queue.extend(sent.queue);
        }
        commit.states = vec![("count".into(), Bytes::from(vec![self.models[device].runs + 1]))];
        let key = key.map(|key| key.to_string());
        commit.idempotency = key.clone().map(|key| Idempotency { key, answer: event, expires_at: at(self.now + 5) });
        let model = &mut self.models[device];
        let (runs, lasts) = (model.runs, ELEMENTS.map(|element| model.last(element)));
        let expected = model.commit(&commit, self.now);
        let mut commit = Some(commit);
        let mut work = |memory: &dyn Memory| {
            assert_eq!(memory.state("count").map_or(0, |count| count[0]), runs);
            assert_eq!(ELEMENTS.map(|element| memory.last(element).map(|kept| kept.values())), lasts);
            commit.take().unwrap_or_default()
        };
        let ran = store.run(&self.devices[device], key.as_deref(), at(self.now), &mut work).await.unwrap();
        assert_eq!(ran, expected);
        if let Ran::Committed { .. } = expected {
            for element in ELEMENTS {
                let last = store.last(&self.devices[device].reading(), element).await.unwrap();
                assert_eq!(last.map(|last| last.values), self.models[device].last(element));
            }
            let series = store.series(&self.devices[device].reading()).await.unwrap();
            let counts: Vec<_> = series.iter().map(|series| (series.count, series.bytes)).collect();
            assert_eq!(counts, self.models[device].counts());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_behaves_like_its_model(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut scene = Scene {
                folder: tempfile::tempdir().unwrap(),
                store: None,
                devices: [given::device(), given::device()],
                models: Default::default(),
                now: 10,
            };
            scene.open();
            for step in steps {
                scene.take(step).await;
            }
        });
    }
}
