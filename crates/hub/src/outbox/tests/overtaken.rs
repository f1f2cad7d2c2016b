//! Tests what becomes of work that another process takes over.

use super::*;

#[test]
fn work_that_was_taken_over_is_not_put_back() {
    let mut desk = Desk::default();
    desk.leaves(device(1), 1, labelled(device(1), "n", "1", 0));
    let in_hand = desk.takes();
    desk.leaves(device(1), 1, labelled(device(1), "m", "1", 1));
    desk.waiting.forget_overtaken(DeviceKey(1), 0);
    assert!(desk.waiting.is_overtaken(DeviceKey(1)));
    // A run that has loaded the device anew leaves work of its own.
    desk.leaves(device(1), 1, labelled(device(1), "o", "1", 2));
    in_hand.into_iter().for_each(|piece| desk.waiting.put_back(piece));
    desk.waiting.is_done();
    assert_eq!(desk.look().size.entries, 1);
    let pieces = desk.takes();
    let PieceKind::Report(report) = &pieces[0].what else { panic!("{pieces:?}") };
    let labels: Vec<_> = report.found.report.meta.iter().map(|(label, _)| &**label).collect();
    assert_eq!((pieces.len(), labels), (1, vec!["o"]));
    pieces.iter().for_each(|piece| desk.waiting.written(piece));
    desk.waiting.is_done();
    assert_eq!(desk.look().size, OutboxSize::default());
    // What came later than the store was looked at stays.
    let (staged, _) = desk.expects(device(2), 1, labelled(device(2), "n", "1", 3)).unwrap();
    desk.waiting.comes((DeviceKey(2), 5), staged, at(3));
    desk.waiting.forget_overtaken(DeviceKey(2), 4);
    assert_eq!(desk.takes().len(), 1);
}

#[test]
fn parked_work_is_not_taken_for_overtaken() {
    let mut desk = Desk::default();
    let id = device(1).id;
    let work = format!(
        r#"{{"device":"{id}","meta":[["n","1"]],"settings":[{{"id":"{id}","name":"limit","value":"1"}}],
            "notices":[{{"event":"{id}","element":"tell","message":"it talks","minimum_role":"technician","organization":"{id}"}}]}}"#
    );
    let entry = OutboxEntry { number: 1, device: DeviceKey(1), work: work.into(), parked: Some("refused".into()) };
    desk.waiting.take_up(&entry, 3, at(0)).unwrap();
    // The store has no other work of the device. Runs go on beside what is parked.
    assert!(!desk.waiting.forget_overtaken(DeviceKey(1), 9));
    assert_eq!(desk.look().size.entries, 3);
    let in_hand = desk.takes();
    assert_eq!(in_hand.len(), 3);
    assert!(!desk.waiting.forget_overtaken(DeviceKey(1), 9) && !desk.waiting.is_overtaken(DeviceKey(1)));
    assert_eq!(shown(&desk.waiting.of(DeviceKey(1)).map(PendingChanges::of)).2, r#"{"n":1}"#);
    // Work that is not parked leaves the hand beside it.
    desk.leaves(device(2), 1, labelled(device(2), "n", "1", 0));
    let other = desk.takes();
    assert_eq!([(); 2].map(|()| desk.waiting.forget_overtaken(DeviceKey(2), 9)), [true, false]);
    in_hand.into_iter().chain(other).for_each(|piece| desk.waiting.put_back(piece));
    desk.waiting.is_done();
    assert_eq!((desk.look().size.entries, desk.takes().len()), (3, 3));
}
