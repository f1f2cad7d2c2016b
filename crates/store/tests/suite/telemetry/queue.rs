//! The queue of cloud events.

use futures::future::join_all;
use isobar_model::event::EventType;

use super::QUEUE_MAX;
use super::given::{self, at, id, page, payloads, queued};
use isobar_store::telemetry::{Commit, QueueQuery, Ran, Telemetry};

/// Checks that peeking leaves an event in the queue, that taking removes it, and that history keeps it.
pub async fn a_cloud_event_is_taken_once(t: &dyn Telemetry) {
    let device = given::device();
    let event = id(3);
    assert!(t.queue_take(&device, queued(1, 0)).await.unwrap().is_empty());
    given::run(t, &device, given::sending(event, "out", r#"{"on":true}"#, None)).await;
    for _ in 0..2 {
        assert_eq!(t.queue_peek(&device.reading(), queued(10, 0)).await.unwrap().len(), 1);
    }
    let taken = t.queue_take(&device, queued(10, 0)).await.unwrap();
    assert_eq!((taken[0].id, taken[0].kind, &*taken[0].element), (event, EventType::CloudEvent, "out"));
    assert_eq!((payloads(&taken), taken[0].device), (vec![r#"{"on":true}"#], device.target().id));
    assert!(t.queue_take(&device, queued(10, 0)).await.unwrap().is_empty());
    assert!(t.queue_peek(&device.reading(), queued(10, 0)).await.unwrap().is_empty());
    assert_eq!(given::history(t, &device.reading()).await.items, taken);
}

/// Checks that no two takers get the same event, and that none is lost, while others are sent.
pub async fn takers_at_the_same_time_share_the_queue(t: &dyn Telemetry) {
    let device = given::device();
    for n in 0..20 {
        given::run(t, &device, given::sending(id(n), "out", &n.to_string(), None)).await;
    }
    let senders =
        join_all((20..40).map(|n| given::run(t, &device, given::sending(id(40), "out", &n.to_string(), None))));
    let takers = join_all((0..20).map(|_| t.queue_take(&device, queued(1, 0))));
    let (_, taken) = futures::join!(senders, takers);
    let mut taken: Vec<_> = taken.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(taken.len(), 20);
    taken.extend(t.queue_take(&device, queued(100, 0)).await.unwrap());
    let mut numbers: Vec<i32> = payloads(&taken).iter().map(|text| text.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
}

/// Checks that events are oldest first, that an element finds its own, and that the page counts before anything is
/// removed and removes only its own events.
pub async fn a_queue_is_read_by_element_and_page(t: &dyn Telemetry) {
    let device = given::device();
    for n in 0..10 {
        let element = if n % 2 == 0 { "even" } else { "odd" };
        given::run(t, &device, given::sending(id(n), element, &n.to_string(), None)).await;
    }
    let of = |element: &str, number, limit| QueueQuery {
        element: Some(element.to_owned()),
        page: page(number, limit),
        ..queued(limit, 0)
    };
    let reading = device.reading();
    assert_eq!(payloads(&t.queue_peek(&reading, of("odd", 2, 2)).await.unwrap()), ["5", "7"]);
    assert_eq!(payloads(&t.queue_take(&device, of("odd", 2, 2)).await.unwrap()), ["5", "7"]);
    assert_eq!(payloads(&t.queue_take(&device, of("odd", 1, 10)).await.unwrap()), ["1", "3", "9"]);
    assert!(t.queue_take(&device, of("none", 1, 10)).await.unwrap().is_empty());
    assert_eq!(payloads(&t.queue_take(&device, queued(10, 0)).await.unwrap()), ["0", "2", "4", "6", "8"]);
}

/// Checks that no reader gets an expired event.
pub async fn expired_cloud_events_are_gone(t: &dyn Telemetry) {
    let device = given::device();
    for (payload, expires) in [("1", Some(at(10))), ("2", None), ("3", Some(at(20)))] {
        given::run(t, &device, given::sending(id(0), "out", payload, expires)).await;
    }
    let reading = device.reading();
    for (millis, expected) in [(9, vec!["1", "2", "3"]), (10, vec!["2", "3"]), (20, vec!["2"])] {
        assert_eq!(payloads(&t.queue_peek(&reading, queued(10, millis)).await.unwrap()), expected);
    }
    assert_eq!(payloads(&t.queue_take(&device, queued(1, 15)).await.unwrap()), ["2"]);
    assert!(t.queue_take(&device, queued(10, 20)).await.unwrap().is_empty());
}

/// Checks that one event is removed by its identifier, once.
pub async fn one_cloud_event_can_be_removed(t: &dyn Telemetry) {
    let device = given::device();
    let ids: Vec<_> = (0..5).map(id).collect();
    for (n, id) in ids.iter().enumerate() {
        given::run(t, &device, given::sending(*id, "out", &n.to_string(), None)).await;
    }
    for (index, there) in [(2, true), (2, false), (0, true), (4, true)] {
        assert_eq!(t.queue_delete(&device, ids[index]).await.unwrap(), there);
    }
    assert!(!t.queue_delete(&device, id(9)).await.unwrap());
    assert_eq!(payloads(&t.queue_take(&device, queued(10, 0)).await.unwrap()), ["1", "3"]);
    assert!(!t.queue_delete(&device, ids[1]).await.unwrap());
}

/// Checks that the oldest events beyond the limit are dropped and counted.
pub async fn a_full_queue_drops_its_oldest(t: &dyn Telemetry) {
    let device = given::device();
    let send = |from: u64, to: u64| {
        (from..to).fold(Commit::default(), |mut all, n| {
            let one = given::sending(id(n as i64), "out", &n.to_string(), None);
            all.history.extend(one.history);
            all.queue.extend(one.queue);
            all
        })
    };
    assert_eq!(given::run(t, &device, send(0, QUEUE_MAX)).await, Ran::Committed { dropped: 0 });
    t.queue_delete(&device, t.queue_peek(&device.reading(), queued(3, 0)).await.unwrap()[1].id).await.unwrap();
    assert_eq!(given::run(t, &device, send(QUEUE_MAX, QUEUE_MAX + 3)).await, Ran::Committed { dropped: 2 });
    let left = t.queue_take(&device, queued(10_000, 0)).await.unwrap();
    // 0 and 2 were dropped, 1 was removed.
    assert_eq!((left.len() as u64, left[0].payload.text()), (QUEUE_MAX, "3"));
}
