//! Tests the turns of tenants, and what of them lists wait for.

use futures::poll;
use serde_json::json;

use super::*;

/// Returns the findings of a run that has raised so many alarms, with keys from this number on.
fn raised(device: DeviceRef, from: usize, count: usize, now: i64) -> RegistryWork {
    let alarm = |key: usize| json!({"element": "e", "key": key.to_string(), "episode": 1, "begin": ["t", 1, now], "count": 1, "at": now});
    let alarms: Vec<_> = (from..from + count).map(alarm).collect();
    serde_json::from_value(json!({"device": device.id, "at": now, "alarms": alarms})).unwrap()
}

/// Returns the keys of the alarms that a piece writes now.
fn keys(piece: &Piece) -> Vec<usize> {
    let PieceKind::Report(report) = &piece.what else { return Vec::new() };
    let part = report.part();
    report.found.alarms.iter().skip(part.start).take(part.len()).map(|alarm| alarm.key.parse().unwrap()).collect()
}

impl Desk {
    /// Writes all that the worker takes at once; returns what that was.
    fn writes(&mut self) -> Vec<(u64, Vec<usize>)> {
        let pieces = self.takes();
        let written = pieces.iter().map(|piece| (piece.device.key.0, keys(piece))).collect();
        pieces.into_iter().for_each(|piece| self.waiting.part_written(piece));
        self.waiting.is_done();
        self.removes();
        written
    }
}

#[test]
fn newcomer_is_written_next_whatever_the_backlog() {
    let mut desk = Desk::default();
    for number in 0..100 {
        desk.leaves(device(number), 1, raised(device(number), 0, 8, 0));
    }
    desk.writes();
    desk.leaves(device(1_000), 2, labelled(device(1_000), "n", "1", 0));
    let written: Vec<u64> = desk.writes().into_iter().map(|(device, _)| device).take(2).collect();
    assert!(written.contains(&1_000), "{written:?}");
    assert!(desk.waiting.is_ready());
}

#[test]
fn transaction_is_bounded_in_rows_of_alarms() {
    let mut desk = Desk::default();
    for number in 0..100 {
        desk.leaves(device(number), 1, raised(device(number), 0, 1_000, 0));
    }
    let rows: usize = desk.writes().iter().map(|(_, keys)| keys.len()).sum();
    assert_eq!(rows, 128);
}

#[test]
fn large_report_is_written_in_parts_in_order() {
    let mut desk = Desk::default();
    desk.leaves(device(1), 1, raised(device(1), 0, 1_000, 0));
    desk.leaves(device(2), 2, labelled(device(2), "n", "1", 0));
    let mut seen: Vec<usize> = Vec::new();
    let mut batches = 0;
    while desk.waiting.is_ready() {
        let written = desk.writes();
        batches += 1;
        assert!(written.iter().all(|(_, keys)| keys.len() <= 64), "{written:?}");
        seen.extend(written.iter().filter(|(device, _)| *device == 1).flat_map(|(_, keys)| keys));
        if batches == 2 {
            // It stays in the store as a whole, and newer findings wait behind it.
            desk.leaves(device(1), 1, raised(device(1), 1_000, 10, 1));
            assert_eq!((desk.rows.len(), seen.len()), (2, 128));
            assert!(!desk.waiting.is_written(DeviceKey(1), 1));
        }
    }
    assert_eq!(seen, (0..1_010).collect::<Vec<_>>());
    assert_eq!((desk.look().size, desk.rows.len()), (OutboxSize::default(), 0));
}

#[test]
fn report_written_in_part_is_written_again_after_a_restart() {
    let mut desk = Desk::default();
    desk.leaves(device(3), 0, raised(device(3), 0, 300, 0));
    desk.writes();
    desk.leaves(device(3), 0, raised(device(3), 300, 1, 1));
    desk.restarts();
    let mut seen: Vec<usize> = Vec::new();
    while desk.waiting.is_ready() {
        seen.extend(desk.writes().iter().flat_map(|(_, keys)| keys));
    }
    assert_eq!(seen, (0..301).collect::<Vec<_>>());
    assert_eq!((desk.look().size, desk.rows.len()), (OutboxSize::default(), 0));
}

#[test]
fn refused_part_is_retried_before_newer_findings() {
    let mut desk = Desk::default();
    desk.leaves(device(1), 1, raised(device(1), 0, 100, 0));
    desk.writes();
    let pieces = desk.takes();
    desk.leaves(device(1), 1, raised(device(1), 100, 1, 1));
    pieces.into_iter().for_each(|piece| desk.waiting.put_back(piece));
    desk.waiting.is_done();
    let mut seen: Vec<usize> = Vec::new();
    while desk.waiting.is_ready() {
        seen.extend(desk.writes().iter().flat_map(|(_, keys)| keys));
    }
    // Both are one report now, which is written from its beginning.
    assert_eq!(seen, (0..101).collect::<Vec<_>>());
    assert_eq!((desk.look().size, desk.rows.len()), (OutboxSize::default(), 0));
}

#[tokio::test]
async fn list_waits_for_no_more_than_it_shows() {
    let outbox = Outbox::new(Clock::System, false);
    let next = std::cell::Cell::new(0);
    let number = || {
        next.set(next.get() + 1);
        next.get()
    };
    let leaves = |of: u64, tenant: u128, work: RegistryWork| {
        let mut waiting = outbox.queue.lock();
        let (leaving, _) = expect(&mut waiting, device(of), organization(tenant), work, &number).unwrap();
        waiting.comes((device(of).key, 0), leaving, at(0));
    };
    let waits = async |tenant: u128, shown: Shown| {
        poll!(std::pin::pin!(outbox.caught_up(organization(tenant), &[shown]))).is_pending()
    };
    leaves(1, 1, raised(device(1), 0, 200, 0));
    leaves(2, 2, labelled(device(2), "n", "1", 0));
    let setting = json!({"id": Uuid::from_u128(1), "name": "limit", "value": "1"});
    leaves(3, 3, serde_json::from_value(json!({"device": device(3).id, "at": 0, "settings": [setting]})).unwrap());
    let kinds = [Shown::State, Shown::Alarms];
    for (tenant, expected) in [(1, [false, true]), (2, [true, false]), (3, [false, false])] {
        for (shown, expected) in kinds.into_iter().zip(expected) {
            assert_eq!(waits(tenant, shown).await, expected, "{tenant} {shown:?}");
        }
    }
    // A report with labels and many alarms: lists of devices wait for its first part alone.
    let mut both = raised(device(4), 0, 100, 0);
    both.status = Some(3);
    leaves(4, 4, both);
    let write = || {
        let mut waiting = outbox.queue.lock();
        let pieces = waiting.take(Clock::System.instant(), BATCH_ROWS_MAX);
        pieces.into_iter().for_each(|piece| waiting.part_written(piece));
        waiting.is_done();
    };
    write();
    assert_eq!([waits(4, Shown::State).await, waits(4, Shown::Alarms).await], [false, true]);
    write();
    assert_eq!([waits(4, Shown::State).await, waits(4, Shown::Alarms).await], [false, false]);
}
