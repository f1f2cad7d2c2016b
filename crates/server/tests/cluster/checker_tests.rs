//! Shows the checker a good history, and bad ones in which it must find the one violation.

use super::checker::{OUTAGE_MAX, WINDOW, violations};
use super::history::{Call, Did, Fault, FaultKind, History, Shown, ShownAlarm};
use super::load::raises;

const EVENTS: u64 = 4;
const NODES: usize = 2;
const BEGUN_AT: u64 = 1_700_000_000_000;

fn call(begin: u64, did: Did) -> Call {
    Call { device: 0, node: 0, begin, end: begin + 5, status: Some(200), is_refused: false, did }
}

fn unanswered(begin: u64, did: Did) -> Call {
    Call { status: None, ..call(begin, did) }
}

fn kept(kind: &str) -> Vec<(String, u64)> {
    (1..=EVENTS).map(|n| (format!("{kind}{n}"), n)).collect()
}

/// Returns a history without a fault: four events, of which two raise an alarm and two clear it, four cloud events of which
/// two are taken, and a setting.
fn good() -> History {
    let mut calls = Vec::new();
    for n in 1..=EVENTS {
        let at = n * 100;
        calls.push(call(at, Did::Post { n, id: Some(format!("e{n}")) }));
        calls.push(call(at + 10, Did::Newest { n: Some(n) }));
        calls.push(call(at + 20, Did::Label { n: Some(n) }));
        calls.push(call(at + 30, Did::Queue { n, id: Some(format!("q{n}")) }));
        calls.push(call(at + 40, Did::Put { value: n }));
        calls.push(call(at + 50, Did::Get { value: Some(n) }));
    }
    calls.push(call(450, Did::Acknowledge));
    calls.push(call(50, Did::Take { got: Some(None) }));
    calls.push(call(500, Did::Take { got: Some(Some(1)) }));
    calls.push(call(510, Did::Take { got: Some(Some(2)) }));
    let shown = (0..NODES).map(|node| Shown {
        node,
        events: kept("e"),
        queued: kept("q"),
        counts: (1..=EVENTS).collect(),
        label_counts: (1..=EVENTS).collect(),
        label: EVENTS,
        waiting: vec![3, 4],
        setting: EVENTS,
        received: (1..=EVENTS).map(|n| (n, BEGUN_AT)).collect(),
        alarms: vec![ShownAlarm { is_active: false, is_acknowledged: true, count: 2, value: 2 }],
        acknowledgements: 1,
        ..Shown::default()
    });
    History { begun_at: BEGUN_AT, calls, shown: shown.collect(), ..History::default() }
}

/// Returns the rules that a changed history breaks, each once.
fn broken(change: impl FnOnce(&mut History)) -> Vec<&'static str> {
    let mut history = good();
    change(&mut history);
    let mut rules: Vec<_> = violations(&history).iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

fn adds(history: &mut History, begin: u64, did: Did) {
    history.calls.push(call(begin, did));
}

#[test]
fn good_history_breaks_nothing() {
    assert_eq!(broken(|_| {}), [""; 0]);
}

#[test]
fn lost_double_and_foreign_events_are_found() {
    assert_eq!(
        broken(|history| {
            for shown in &mut history.shown {
                shown.events.remove(2);
                shown.counts.pop();
                shown.label_counts.pop();
                shown.label = 3;
            }
        }),
        ["lost"]
    );
    assert_eq!(broken(|history| history.shown[1].queued.truncate(3)), ["lost"]);
    assert_eq!(broken(|history| history.shown[1].queued.push(("q9".to_owned(), 9))), ["foreign"]);
    assert_eq!(broken(|history| history.shown[0].queued.insert(0, ("q0".to_owned(), 1))), ["order", "twice"]);
}

#[test]
fn event_without_an_answer_may_be_kept() {
    let unknown = |history: &mut History| {
        history.calls.push(unanswered(600, Did::Queue { n: 5, id: None }));
        history.shown[0].queued.push(("q5".to_owned(), 5));
    };
    assert_eq!(broken(unknown), [""; 0]);
}

#[test]
fn second_id_of_a_key_is_found() {
    assert_eq!(broken(|history| adds(history, 600, Did::Post { n: 2, id: Some("other".to_owned()) })), ["key"]);
    assert_eq!(broken(|history| history.shown[0].events[2].0 = "other".to_owned()), ["key"]);
}

#[test]
fn wrong_order_is_found() {
    assert_eq!(broken(|history| history.shown[0].events.swap(2, 3)), ["order"]);
}

#[test]
fn gaps_and_doubles_of_counts_are_found() {
    assert_eq!(broken(|history| history.shown[0].counts = vec![1, 2, 2, 3]), ["count"]);
    assert_eq!(broken(|history| history.shown[0].label_counts = vec![1, 2, 4, 5]), ["count"]);
    assert_eq!(broken(|history| history.shown[1].counts.truncate(3)), ["count"]);
    assert_eq!(broken(|history| history.shown[1].label = 3), ["label"]);
}

#[test]
fn window_counts_no_further_than_its_size() {
    let many = |history: &mut History| {
        for n in EVENTS + 1..=WINDOW + 2 {
            adds(history, 1_000 + 10 * n, Did::Post { n, id: Some(format!("e{n}")) });
            for shown in &mut history.shown {
                shown.events.push((format!("e{n}"), n));
                shown.counts.push(n.min(WINDOW));
                shown.label_counts.push(n);
                shown.label = n;
                if raises(n) {
                    let count = shown.alarms[0].count + 1;
                    let is_active = raises(WINDOW + 2);
                    shown.alarms[0] = ShownAlarm { is_active, count, value: n, ..ShownAlarm::default() };
                    shown.acknowledgements = 0;
                }
            }
        }
    };
    assert_eq!(broken(many), [""; 0]);
}

#[test]
fn cloud_event_taken_twice_or_early_is_found() {
    assert_eq!(broken(|history| adds(history, 600, Did::Take { got: Some(Some(1)) })), ["taken twice"]);
    assert_eq!(broken(|history| history.shown[0].waiting.push(2)), ["taken twice"]);
    assert_eq!(broken(|history| adds(history, 600, Did::Take { got: Some(Some(7)) })), ["taken early"]);
    let late = |history: &mut History| {
        history.shown.iter_mut().for_each(|shown| shown.waiting.clear());
        adds(history, 600, Did::Take { got: Some(Some(4)) });
        adds(history, 610, Did::Take { got: Some(Some(3)) });
    };
    assert_eq!(broken(late), ["queue order"]);
}

#[test]
fn cloud_event_that_nobody_took_is_found() {
    let loses = |history: &mut History| history.shown.iter_mut().for_each(|shown| shown.waiting = vec![4]);
    assert_eq!(broken(loses), ["queue lost"]);
    let in_flight = |history: &mut History| {
        loses(history);
        history.calls.push(unanswered(600, Did::Take { got: None }));
    };
    assert_eq!(broken(in_flight), [""; 0]);
    // A take that nobody accepted has taken nothing, nor has one that came after the next event was taken.
    let refused = |history: &mut History| {
        loses(history);
        history.calls.push(Call { is_refused: true, ..unanswered(600, Did::Take { got: None }) });
    };
    assert_eq!(broken(refused), ["queue lost"]);
    let late = |history: &mut History| {
        in_flight(history);
        adds(history, 590, Did::Take { got: Some(Some(4)) });
        history.shown.iter_mut().for_each(|shown| shown.waiting.clear());
    };
    assert_eq!(broken(late), ["queue lost"]);
}

#[test]
fn take_that_does_not_see_the_queue_is_found() {
    assert_eq!(broken(|history| adds(history, 480, Did::Take { got: Some(None) })), ["unseen"]);
    assert_eq!(broken(|history| adds(history, 600, Did::Take { got: Some(None) })), ["unseen"]);
}

#[test]
fn read_of_the_past_or_the_future_is_found() {
    assert_eq!(broken(|history| adds(history, 460, Did::Newest { n: Some(3) })), ["unseen"]);
    assert_eq!(broken(|history| adds(history, 260, Did::Label { n: Some(1) })), ["unseen"]);
    assert_eq!(broken(|history| adds(history, 260, Did::Label { n: Some(3) })), ["unseen"]);
    // An event without an answer may be seen.
    let unknown = |history: &mut History| {
        history.calls.push(unanswered(270, Did::Post { n: 3, id: None }));
        adds(history, 280, Did::Newest { n: Some(3) });
    };
    assert_eq!(broken(unknown), [""; 0]);
}

#[test]
fn setting_that_goes_back_or_differs_is_found() {
    assert_eq!(broken(|history| adds(history, 460, Did::Get { value: Some(3) })), ["setting"]);
    assert_eq!(broken(|history| history.shown[1].setting = 3), ["setting"]);
}

#[test]
fn put_without_an_answer_may_be_seen() {
    let unknown = |history: &mut History| {
        history.calls.push(unanswered(600, Did::Put { value: 9 }));
        history.shown.iter_mut().for_each(|shown| shown.setting = 9);
    };
    assert_eq!(broken(unknown), [""; 0]);
    // It takes effect once.
    let returns = |history: &mut History| {
        unknown(history);
        adds(history, 700, Did::Get { value: Some(9) });
        adds(history, 710, Did::Put { value: 10 });
    };
    assert_eq!(broken(returns), ["setting"]);
}

#[test]
fn put_without_an_answer_may_be_taken_back_where_it_was_not_replicated() {
    let taken_back = |history: &mut History| {
        history.calls.push(unanswered(600, Did::Put { value: 9 }));
        adds(history, 620, Did::Get { value: Some(9) });
        adds(history, 700, Did::Get { value: Some(EVENTS) });
    };
    assert_eq!(broken(taken_back), ["setting"]);
    let with_fault = |history: &mut History, end| {
        taken_back(history);
        let (kind, target) = (FaultKind::LoseUnreplicated, String::new());
        history.faults.push(Fault { kind, node: None, target, begin: 590, end });
    };
    assert_eq!(broken(|history| with_fault(history, 650)), [""; 0]);
    assert_eq!(broken(|history| with_fault(history, 610)), ["setting"]);
    // What was acknowledged is not taken back.
    let lost = |history: &mut History| {
        with_fault(history, 650);
        adds(history, 605, Did::Put { value: 10 });
        adds(history, 630, Did::Get { value: Some(10) });
    };
    assert_eq!(broken(lost), ["setting"]);
}

#[test]
fn answer_that_no_fault_explains_is_found() {
    let refused = |history: &mut History| {
        history.calls.push(Call { status: Some(500), ..call(600, Did::Get { value: None }) });
    };
    assert_eq!(broken(refused), ["answer"]);
}

#[test]
fn node_that_fails_for_long_beyond_a_fault_is_found() {
    let fails = |history: &mut History| {
        for begin in [1_000, OUTAGE_MAX / 2, OUTAGE_MAX + 2_000] {
            history.calls.push(unanswered(begin, Did::Get { value: None }));
        }
    };
    assert_eq!(broken(fails), ["outage"]);
    let with_fault = |history: &mut History, node| {
        fails(history);
        let target = String::new();
        history.faults.push(Fault { kind: FaultKind::Kill, node, target, begin: 900, end: 10_000 });
    };
    assert_eq!(broken(|history| with_fault(history, Some(0))), [""; 0]);
    assert_eq!(broken(|history| with_fault(history, None)), [""; 0]);
    assert_eq!(broken(|history| with_fault(history, Some(1))), ["outage"]);
}

#[test]
fn long_time_without_an_acknowledged_event_is_found() {
    // The good history acknowledges one every 100.
    assert_eq!(broken(|history| history.gap_max = Some(100)), [""; 0]);
    assert_eq!(broken(|history| history.gap_max = Some(99)), ["gap"]);
    let history = good();
    assert_eq!((history.longest_gap(0, 1_000), history.longest_gap(106, 150)), (100, 0));
}

#[test]
fn fault_that_is_not_mended_is_found() {
    assert_eq!(broken(|history| history.stuck.push("pair A".to_owned())), ["recovery"]);
}

#[test]
fn alarm_that_differs_from_the_events_is_found() {
    let changes: [fn(&mut Shown); 7] = [
        |shown| shown.alarms[0].is_active = true,
        |shown| shown.alarms.clear(),
        |shown| shown.alarms[0].count = 3,
        |shown| shown.alarms[0].value = 1,
        |shown| shown.alarms.extend([ShownAlarm::default(), ShownAlarm::default()]),
        |shown| shown.acknowledgements = 0,
        |shown| shown.acknowledgements = 2,
    ];
    for change in changes {
        assert_eq!(broken(|history| change(&mut history.shown[1])), ["alarm"]);
    }
}

#[test]
fn event_of_another_time_is_found() {
    for millis in [-2_500, 2_500, 3_600_000] {
        let wrong = |history: &mut History| history.shown[0].received[2].1 = BEGUN_AT.saturating_add_signed(millis);
        assert_eq!(broken(wrong), ["time"]);
    }
}
