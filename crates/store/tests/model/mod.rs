//! Models a telemetry store of one device as simply as possible.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use isobar_model::event::{EventType, StoredValue};
use isobar_model::ids::EventId;
use isobar_model::json::{Json, LastKept, Rank, RawJson, compare, equal, parse};
use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{
    Commit, Filter, FilterField, HistoryQuery, NewCloudEvent, Operand, Operator, QueueQuery, Ran, ValueQuery, ValueSort,
};

/// Bounds the events of a queue.
pub const QUEUE_MAX: usize = 6;

/// Value or event, with the moment at which it counts as stored: never before the previous one.
#[derive(Clone, Debug)]
struct Kept<T> {
    what: T,
    time: Timestamp,
}

/// Device.
#[derive(Default)]
pub struct Model {
    /// Number of committed runs.
    pub runs: u8,
    series: BTreeMap<String, Vec<Kept<StoredValue>>>,
    history: [Vec<Kept<EventId>>; 2],
    queue: Vec<(EventId, String, i64)>,
    keys: BTreeMap<String, (EventId, Timestamp)>,
}

/// Appends an item at its own moment, or at that of the previous one if that is later.
fn keep<T>(list: &mut Vec<Kept<T>>, id: EventId, what: impl FnOnce(Timestamp) -> T) {
    let time = list.last().map_or(id.minted_at(), |last| last.time.max(id.minted_at()));
    list.push(Kept { what: what(time), time });
}

fn within(time: Timestamp, range: TimeRange) -> bool {
    range.from.is_none_or(|from| time >= from) && range.to.is_none_or(|to| time < to)
}

fn paged<T: Clone>(list: &[T], request: PageRequest) -> Vec<T> {
    list.iter().skip(request.offset() as usize).take(request.limit as usize).cloned().collect()
}

impl Model {
    pub fn commit(&mut self, commit: &Commit, now: i64) -> Ran {
        let moment = crate::given::at(now);
        if let Some(key) = &commit.idempotency {
            if let Some((answer, _)) = self.keys.get(&key.key).filter(|(_, expires)| *expires > moment) {
                return Ran::Repeated(*answer);
            }
            self.keys.insert(key.key.clone(), (key.answer, key.expires_at));
        }
        self.runs += 1;
        for event in &commit.history {
            keep(&mut self.history[usize::from(event.kind == EventType::CloudEvent)], event.id, |_| event.id);
        }
        let mut nth = BTreeMap::new();
        for value in &commit.values {
            let nth = nth.entry(value.element.clone()).or_insert(0_u128);
            let id = EventId(uuid::Uuid::from_u128(value.event.0.as_u128() + *nth));
            *nth += 1;
            let series = self.series.entry(value.element.to_string()).or_default();
            keep(series, id, |created_at| StoredValue { id, created_at, payload: value.payload.clone() });
        }
        let queued = |event: &NewCloudEvent| {
            (event.id, event.element.to_string(), event.expires_at.map_or(i64::MAX, Timestamp::millis))
        };
        self.queue.extend(commit.queue.iter().map(queued));
        let dropped = self.queue.len().saturating_sub(QUEUE_MAX);
        self.queue.drain(..dropped);
        Ran::Committed { dropped: dropped as u32 }
    }

    pub fn take(&mut self, query: &QueueQuery) -> Vec<EventId> {
        let (offset, limit) = (query.page.offset() as usize, query.page.limit as usize);
        let (mut seen, mut taken) = (0, Vec::new());
        // A reader that stops early has not reached the events behind: they stay, even expired ones.
        self.queue.retain(|(id, element, expires)| {
            if taken.len() == limit {
                return true;
            }
            if *expires <= query.now.millis() {
                return false;
            }
            if query.element.as_ref().is_some_and(|wanted| wanted != element) {
                return true;
            }
            seen += 1;
            if seen > offset {
                taken.push(*id);
            }
            seen <= offset
        });
        taken
    }

    pub fn remove_queued(&mut self, nth: usize) -> Option<EventId> {
        (nth < self.queue.len()).then(|| self.queue.remove(nth).0)
    }

    pub fn delete_series(&mut self, element: Option<&str>) -> bool {
        let before = self.series.len();
        self.series.retain(|name, _| element.is_some_and(|element| element != name));
        self.series.len() < before
    }

    pub fn last(&self, element: &str) -> Option<RawJson> {
        let values = self.series.get(element)?.iter();
        let kept = values.fold(None, |kept: Option<LastKept>, value| {
            Some(LastKept::after_all(kept.as_ref().map(LastKept::text), [&value.what.payload]).0)
        });
        kept.map(|kept| kept.values())
    }

    pub fn counts(&self) -> Vec<(u64, u64)> {
        let bytes =
            |values: &Vec<Kept<StoredValue>>| values.iter().map(|value| value.what.payload.bytes().len() as u64).sum();
        self.series.values().map(|values| (values.len() as u64, bytes(values))).collect()
    }

    pub fn values(&self, element: &str, query: &ValueQuery) -> Option<(Vec<StoredValue>, u64)> {
        let all = self.series.get(element)?.iter().enumerate();
        let passes = |(_, value): &(usize, &Kept<StoredValue>)| {
            within(value.time, query.range) && query.filters.iter().all(|filter| holds(filter, value))
        };
        let mut found: Vec<_> = all.filter(passes).collect();
        let by_time = |key: &ValueSort| !matches!(key.field, FilterField::Payload(_));
        let oldest_first = query.sort.first().is_some_and(|first| by_time(first) && !first.descending);
        found.sort_by(|left, right| {
            let by_keys = query.sort.iter().map(|key| by(key, left, right)).fold(Ordering::Equal, Ordering::then);
            by_keys.then(if oldest_first { left.0.cmp(&right.0) } else { right.0.cmp(&left.0) })
        });
        let found: Vec<_> = found.into_iter().map(|(_, value)| value.what.clone()).collect();
        Some((paged(&found, query.page), found.len() as u64))
    }

    pub fn history(&self, query: &HistoryQuery) -> (Vec<EventId>, u64) {
        let mut found = Vec::new();
        for (kind, wanted) in [query.device_events, query.cloud_events].into_iter().enumerate() {
            let part = self.history[kind].iter().filter(|event| wanted && within(event.time, query.range));
            // The two kinds are merged by the order: the id, or one more than the previous order.
            let mut order = 0;
            let orders: BTreeMap<EventId, u128> = self.history[kind]
                .iter()
                .map(|event| {
                    order = event.what.0.as_u128().max(order + 1);
                    (event.what, order)
                })
                .collect();
            found.extend(part.map(|event| (orders[&event.what], event.what)));
        }
        found.sort_unstable();
        let found: Vec<_> = found.into_iter().rev().map(|(_, id)| id).collect();
        (paged(&found, query.page), found.len() as u64)
    }
}

fn by(key: &ValueSort, left: &(usize, &Kept<StoredValue>), right: &(usize, &Kept<StoredValue>)) -> Ordering {
    let directed = |order: Ordering| if key.descending { order.reverse() } else { order };
    let path = match &key.field {
        FilterField::Id => return directed(left.0.cmp(&right.0)),
        FilterField::CreatedAt => return directed(left.1.time.cmp(&right.1.time)),
        FilterField::Payload(path) => path,
    };
    let (left, right) = (left.1.what.payload.tree(), right.1.what.payload.tree());
    let [left, right] = [&left, &right].map(|tree| tree.at(path.iter().map(String::as_str)));
    match (Rank::of(left), Rank::of(right)) {
        (left, right) if left == Rank::Missing || right == Rank::Missing => left.cmp(&right),
        (rank, other) if rank != other => directed(rank.cmp(&other)),
        _ => directed(left.zip(right).and_then(|(left, right)| compare(left, right)).unwrap_or(Ordering::Equal)),
    }
}

fn holds(filter: &Filter, value: &Kept<StoredValue>) -> bool {
    let none_holds = matches!(filter.operator, Operator::Ne | Operator::Nin);
    let tree = value.what.payload.tree();
    let relation = |operand: &Operand| -> (bool, Option<Ordering>) {
        let text = match operand {
            Operand::Null => "null".to_owned(),
            Operand::Bool(value) => value.to_string(),
            Operand::Number(text) => text.clone(),
            Operand::Text(text) => format!("{text:?}"),
            Operand::Time(moment) => {
                let order = matches!(filter.field, FilterField::CreatedAt).then(|| value.time.cmp(moment));
                return (order == Some(Ordering::Equal), order);
            }
        };
        let operand = parse(&text).unwrap();
        let id = Json::Text(value.what.id.to_string().into());
        let found = match &filter.field {
            FilterField::Id => Some(&id),
            FilterField::CreatedAt => None,
            FilterField::Payload(path) => tree.at(path.iter().map(String::as_str)),
        };
        found.map_or((false, None), |found| (equal(found, &operand), compare(found, &operand)))
    };
    let order = relation(&filter.operands[0]).1;
    match filter.operator {
        Operator::Eq | Operator::In | Operator::Ne | Operator::Nin => {
            filter.operands.iter().any(|operand| relation(operand).0) != none_holds
        }
        Operator::Lt => order == Some(Ordering::Less),
        Operator::Lte => order.is_some_and(Ordering::is_le),
        Operator::Gt => order == Some(Ordering::Greater),
        Operator::Gte => order.is_some_and(Ordering::is_ge),
    }
}
