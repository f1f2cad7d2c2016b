//! Following events as they become durable.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceRef, EventId};
use tokio::sync::broadcast::error::TryRecvError;

use super::given;
use crate::telemetry::{Following, Place, Telemetry, Told};

/// What was told of these devices by now; none where something was not.
fn told(following: &mut Following, devices: &[CanRead<DeviceRef>]) -> Option<Vec<(Place, Event)>> {
    let mut all = Vec::new();
    loop {
        match following.told.try_recv() {
            Ok(Told::Event { place, device: of, event, .. }) => {
                let event = event.upgrade().expect("it is small, and kept");
                assert_eq!(event.device, of);
                if devices.iter().any(|device| device.target().id == of) {
                    all.push((place, (*event).clone()));
                }
            }
            Ok(Told::Gap) => return None,
            Err(error) => {
                assert_eq!(error, TryRecvError::Empty);
                return Some(all);
            }
        }
    }
}

/// Each event is told once, at the place that it has in history; from each of them on, what came later is found.
pub async fn those_who_follow_are_told_what_history_has_in_its_order(t: &dyn Telemetry) {
    let devices: Vec<_> = (0..6).map(|_| given::device()).collect();
    let reading: Vec<_> = devices.iter().map(CanWrite::reading).collect();
    let mut following = t.follow();
    assert!(t.is_followed());
    let mut made = Vec::new();
    for _ in 0..4 {
        made.extend(given::side_by_side(t, &devices, None, true).await);
    }
    let (from, until) = (following.from, t.follow().from);
    let told = told(&mut following, &reading).expect("all of them were shown");
    assert!(told.is_sorted_by(|left, right| left.0 < right.0));
    let mut ids = given::ids(&told);
    ids.sort_unstable();
    made.sort_unstable();
    assert_eq!(ids, made);
    for limit in [3, 100, 1_000] {
        assert_eq!(given::between(t, &reading, from, until, limit).await, told, "limit {limit}");
    }
    let others = (0..400).map(|_| given::device().reading());
    let many: Vec<_> = reading.iter().cloned().chain(others).collect();
    for at in (0..told.len()).step_by(17) {
        let place = t.history_place(told[at].1.id).await.unwrap();
        assert_eq!(place, told[at].0);
        for devices in [&reading, &many] {
            assert_eq!(given::between(t, devices, place, until, 50).await, told[at + 1..]);
        }
    }
}

/// Events that nobody has prepared to be shown are told as a gap, and are in history when it is told.
pub async fn who_comes_between_is_sent_to_history(t: &dyn Telemetry) {
    let devices: Vec<_> = (0..3).map(|_| given::device()).collect();
    let reading: Vec<_> = devices.iter().map(CanWrite::reading).collect();
    for _ in 0..4 {
        // Whoever followed before has gone, which is found at the next commit.
        given::side_by_side(t, &devices, None, false).await;
        assert!(!t.is_followed());
        let from = t.follow().from;
        let ((before, mut following), after) = futures::join!(
            async {
                let before = given::side_by_side(t, &devices, None, false);
                let follow = async {
                    tokio::task::yield_now().await;
                    t.follow()
                };
                futures::join!(before, follow)
            },
            given::side_by_side(t, &devices, None, true),
        );
        let seen = following.from;
        let until = t.follow().from;
        let mut found = given::ids(&given::between(t, &reading, from, until, 100).await);
        found.sort_unstable();
        let mut made: Vec<EventId> = before.into_iter().chain(after).collect();
        made.sort_unstable();
        assert_eq!(found, made);
        // With a gap or without: nothing is lost between what is told and what is found.
        if let Some(told) = told(&mut following, &reading) {
            assert_eq!(given::between(t, &reading, seen, until, 100).await, told);
        }
    }
}
