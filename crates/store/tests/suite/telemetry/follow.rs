//! Following events as they become durable.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::{DeviceRef, EventId};
use tokio::sync::broadcast::error::TryRecvError;

use super::given::{self, Told};
use isobar_store::telemetry::{Following, StreamMessage, Telemetry};

/// Returns the events of these devices received so far, or `None` if some are missing.
fn received(following: &mut Following, devices: &[CanRead<DeviceRef>]) -> Option<Vec<Told>> {
    let mut all = Vec::new();
    loop {
        match following.messages.try_recv() {
            Ok(StreamMessage::Event { position, device: of, event, .. }) => {
                let event = event.upgrade().expect("it is small, and kept");
                assert_eq!(event.device, of);
                if devices.iter().any(|device| device.target().id == of) {
                    all.push(Told::live(position, &event));
                }
            }
            Ok(StreamMessage::Gap) => return None,
            Err(error) => {
                assert_eq!(error, TryRecvError::Empty);
                return Some(all);
            }
        }
    }
}

/// Checks that each event is sent once, with the position that it has in history, and that from each position the later
/// events are found.
pub async fn stream_has_events_in_the_order_of_history(t: &dyn Telemetry) {
    let devices: Vec<_> = (0..6).map(|_| given::device()).collect();
    let reading: Vec<_> = devices.iter().map(CanWrite::reading).collect();
    let mut following = given::follow(t).await;
    assert!(t.is_followed());
    let mut made = Vec::new();
    for _ in 0..4 {
        made.extend(given::side_by_side(t, &devices, None, true).await);
    }
    let (from, until) = (following.from, given::follow(t).await.from);
    let received = received(&mut following, &reading).expect("all of them were prepared for followers");
    assert!(received.is_sorted_by(|left, right| left.position < right.position));
    let mut ids = given::ids(&received);
    ids.sort_unstable();
    made.sort_unstable();
    assert_eq!(ids, made);
    for limit in [3, 100, 1_000] {
        assert_eq!(given::between(t, &reading, from, until, limit).await, received, "limit {limit}");
    }
    let others = (0..400).map(|_| given::device().reading());
    let many: Vec<_> = reading.iter().cloned().chain(others).collect();
    for at in (0..received.len()).step_by(17) {
        let position = t.history_position(received[at].id).await.unwrap();
        assert_eq!(position, received[at].position);
        for devices in [&reading, &many] {
            assert_eq!(given::between(t, devices, position, until, 50).await, received[at + 1..]);
        }
    }
}

/// Checks that events which were not prepared for followers are received as a gap, and are in history by then.
pub async fn lagging_stream_is_referred_to_history(t: &dyn Telemetry) {
    let devices: Vec<_> = (0..3).map(|_| given::device()).collect();
    let reading: Vec<_> = devices.iter().map(CanWrite::reading).collect();
    for _ in 0..4 {
        // The earlier follower is gone, which the next commit detects.
        given::side_by_side(t, &devices, None, false).await;
        assert!(!t.is_followed());
        let from = given::follow(t).await.from;
        let ((before, mut following), after) = futures::join!(
            async {
                let before = given::side_by_side(t, &devices, None, false);
                let follow = async {
                    tokio::task::yield_now().await;
                    given::follow(t).await
                };
                futures::join!(before, follow)
            },
            given::side_by_side(t, &devices, None, true),
        );
        let seen = following.from;
        let until = given::follow(t).await.from;
        let mut found = given::ids(&given::between(t, &reading, from, until, 100).await);
        found.sort_unstable();
        let mut made: Vec<EventId> = before.into_iter().chain(after).collect();
        made.sort_unstable();
        assert_eq!(found, made);
        // With a gap or without: nothing is lost between what is received and what is found.
        if let Some(received) = received(&mut following, &reading) {
            assert_eq!(given::between(t, &reading, seen, until, 100).await, received);
        }
    }
}
