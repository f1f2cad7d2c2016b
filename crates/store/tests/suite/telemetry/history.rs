//! History: pages of both kinds, streams, retention.

use std::time::Duration;

use isobar_model::event::EventType;
use isobar_model::ids::EventId;
use isobar_model::page::TimeRange;

use super::given::{self, all_history, at, id, page, payloads};
use isobar_store::telemetry::{Commit, HistoryQuery, Telemetry};

/// Stores sixty events, every third one a cloud event, three in each millisecond.
async fn mixed(t: &dyn Telemetry) -> (isobar_model::access::CanWrite<isobar_model::ids::DeviceRef>, Vec<EventId>) {
    let device = given::device();
    let mut ids = Vec::new();
    for n in 0..60 {
        let event = id(n / 3);
        ids.push(event);
        let commit = match n % 3 {
            2 => given::sending(event, "out", &n.to_string(), None),
            _ => Commit { history: [given::device_event(event, &n.to_string())].into(), ..Commit::default() },
        };
        given::run(t, &device, commit).await;
    }
    (device, ids)
}

/// Checks pages of one kind and of both, newest first, with exact totals, and ranges of time.
pub async fn history_has_both_kinds_newest_first(t: &dyn Telemetry) {
    let (device, ids) = mixed(t).await;
    let reading = device.reading();
    let all: Vec<EventId> = ids.iter().rev().copied().collect();
    for limit in [1, 7, 60, 100] {
        let mut seen = Vec::new();
        for number in 1..=60_u64.div_ceil(u64::from(limit)) {
            let found = t.history(&reading, all_history(page(number, limit)), given::claim()).await.unwrap();
            assert_eq!(found.total, 60);
            seen.extend(found.items.iter().map(|event| event.id));
        }
        assert_eq!(seen, all, "limit {limit}");
    }
    let past = t.history(&reading, all_history(page(9, 10)), given::claim()).await.unwrap();
    assert_eq!((past.total, past.items.len()), (60, 0));
    let none = HistoryQuery { device_events: false, cloud_events: false, ..all_history(page(1, 10)) };
    assert_eq!(t.history(&reading, none, given::claim()).await.unwrap().total, 0);
    let cloud = HistoryQuery { device_events: false, ..all_history(page(2, 3)) };
    let cloud = t.history(&reading, cloud, given::claim()).await.unwrap();
    assert_eq!((cloud.total, payloads(&cloud.items)), (20, vec!["50", "47", "44"]));
    assert!(cloud.items.iter().all(|event| event.kind == EventType::CloudEvent));
    for (from, to, not_before, expected) in [
        (Some(2), Some(4), 0, 6),
        (None, Some(1), 0, 3),
        (Some(19), None, 0, 3),
        (Some(4), Some(2), 0, 0),
        (None, None, 18, 6),
    ] {
        let range = TimeRange { from: from.map(at), to: to.map(at) };
        let query = HistoryQuery { range, not_before: at(not_before), ..all_history(page(1, 100)) };
        assert_eq!(
            t.history(&reading, query, given::claim()).await.unwrap().total,
            expected,
            "{from:?} {to:?} {not_before}"
        );
    }
}

/// Checks that another device's events are found neither in a list nor by identifier.
pub async fn history_of_other_devices_is_hidden(t: &dyn Telemetry) {
    let (device, other) = (given::device(), given::device());
    let event = id(1);
    given::run(t, &device, given::storing(event, &[])).await;
    assert!(t.history_event(&device.reading(), event).await.unwrap().is_some());
    assert!(t.history_event(&other.reading(), event).await.unwrap().is_none());
    assert_eq!(given::history(t, &other.reading()).await.total, 0);
}

/// Checks that a stream resumes with the events that became durable after a given one, in order, of few or many devices,
/// at once or in pieces.
pub async fn a_stream_resumes_after_an_event(t: &dyn Telemetry) {
    let from = given::follow(t).await.from;
    let ((first, ids), (second, more)) = (mixed(t).await, mixed(t).await);
    let until = given::follow(t).await.from;
    let others = (0..400).map(|_| given::device());
    let few = vec![first.reading(), second.reading()];
    let many: Vec<_> = few.iter().cloned().chain(others.map(|device| device.reading())).collect();
    let all: Vec<EventId> = ids.iter().chain(&more).copied().collect();
    for devices in [&few, &many] {
        for limit in [1, 7, 1_000] {
            let found = given::between(t, devices, from, until, limit).await;
            assert_eq!(given::ids(&found), all, "limit {limit}");
            assert!(found.is_sorted_by(|left, right| left.position < right.position));
        }
        let after = t.history_position(ids[4]).await.unwrap();
        assert_eq!(given::ids(&given::between(t, devices, after, until, 10).await), all[5..]);
        let before = t.history_position(more[10]).await.unwrap();
        assert_eq!(given::ids(&given::between(t, devices, after, before, 10).await), all[5..=70]);
        assert!(given::between(t, devices, until, until, 10).await.is_empty());
    }
    assert_eq!(given::ids(&given::between(t, &few[..1], from, until, 10).await), ids);
    assert!(given::between(t, &[], from, until, 10).await.is_empty());
}

/// Checks that events beyond retention are gone everywhere, that totals of the rest are right, and that values stay.
pub async fn history_past_retention_is_gone(t: &dyn Telemetry) {
    let from = given::follow(t).await.from;
    let (device, ids) = mixed(t).await;
    given::store(t, &device, 20, "log", "1").await;
    t.retain(at(10), Duration::ZERO, 0).await.unwrap();
    t.retain(at(5), Duration::ZERO, 0).await.unwrap();
    // A clock that was set to next year, without a year having gone by, takes nothing away.
    let next_year = at(365 * 86_400_000);
    assert!(t.retain(next_year, Duration::from_secs(3_600), 86_400).await.unwrap() <= at(86_400_000));
    let reading = device.reading();
    let left = given::history(t, &reading).await;
    assert_eq!((left.total, left.items.len()), (31, 31));
    assert!(t.history_event(&reading, ids[29]).await.unwrap().is_none());
    assert!(t.history_event(&reading, ids[30]).await.unwrap().is_some());
    let after = given::between(t, std::slice::from_ref(&reading), from, given::follow(t).await.from, 1_000).await;
    assert_eq!(after.len(), 31);
    assert_eq!(given::texts(t, &device, "log", isobar_store::telemetry::ValueQuery::default()).await.1, 1);
    let both = t.history(&reading, all_history(page(1, 10)), given::claim()).await.unwrap();
    assert_eq!(both.items.len(), 10);
}
