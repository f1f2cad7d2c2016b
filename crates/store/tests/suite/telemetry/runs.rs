//! Runs, idempotency, the outbox, forgetting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::join_all;
use isobar_model::event::{EventError, STATE_BYTES_BESIDE};

use super::given::{self, at, id, json};
use isobar_store::error::StoreError;
use isobar_store::telemetry::{
    Commit, Idempotency, Locked, Memory, OutboxChange, Ran, StreamPosition, Telemetry, ValueQuery,
};

/// Checks that a committed run is found in history, in its series and in the last values.
pub async fn a_run_is_remembered(t: &dyn Telemetry) {
    let device = given::device();
    let event = id(5);
    let mut commit = given::storing(event, &[("temps", r#"{"temp":21.5}"#)]);
    commit.history[0].payload = json(r#"{"raw":"0a"}"#);
    commit.history[0].errors = vec![EventError { element: "decode".into(), message: "too \"short\"".into() }];
    assert_eq!(given::run(t, &device, commit).await, Ran::Committed { dropped: 0 });

    let reading = device.reading();
    let found = t.history_event(&reading, event).await.unwrap().unwrap();
    assert_eq!((found.id, found.device, &*found.element), (event, device.target().id, "in"));
    assert_eq!(found.payload.text(), r#"{"raw":"0a"}"#);
    assert_eq!(found.errors, [EventError { element: "decode".into(), message: "too \"short\"".into() }]);
    assert_eq!(found.received_at, at(5));
    let page = t.values(&reading, "temps", ValueQuery::default(), given::claim()).await.unwrap().unwrap();
    assert_eq!((page.total, page.items[0].id, page.items[0].created_at), (1, event, at(5)));
    let last = t.last(&reading, "temps").await.unwrap().unwrap();
    assert_eq!((last.updated_at, last.values.text()), (at(5), r#"{"temp":21.5}"#));
    let series = t.series(&reading).await.unwrap();
    assert_eq!(series.len(), 1);
    assert_eq!((&*series[0].element, series[0].count, series[0].bytes), ("temps", 1, 13));
    assert_eq!((series[0].created_at, series[0].updated_at), (at(5), at(5)));
    assert!(t.values(&reading, "none", ValueQuery::default(), given::claim()).await.unwrap().is_none());
    assert!(t.last(&reading, "none").await.unwrap().is_none());
    assert!(t.history_event(&reading, id(5)).await.unwrap().is_none());
}

/// Checks that element states and last values are available to the next run.
pub async fn run_sees_the_state_of_the_previous_one(t: &dyn Telemetry) {
    let device = given::device();
    for step in 0..3_u8 {
        let mut work = |memory: &dyn Memory| {
            assert_eq!(memory.state("count"), step.checked_sub(1).map(|before| Bytes::from(vec![before])));
            assert_eq!(memory.last("log").is_some(), step > 0);
            assert!(memory.state("other").is_none() && memory.last("other").is_none());
            let mut commit = given::storing(id(i64::from(step)), &[("log", &format!("{{\"k{step}\":1}}"))]);
            commit.states = vec![("count".into(), Bytes::from(vec![step]))];
            commit
        };
        t.run(&device, None, at(0), &mut work).await.unwrap();
    }
    let last = t.last(&device.reading(), "log").await.unwrap().unwrap();
    assert_eq!(last.values.text(), r#"{"k0":1,"k1":1,"k2":1}"#);
}

/// Checks that state for the next run is counted, and that an empty state is removed.
pub async fn states_of_runs_are_counted(t: &dyn Telemetry) {
    let device = given::device();
    let states = |states: &[(&str, &'static [u8])]| Commit {
        states: states.iter().map(|(element, state)| (Arc::from(*element), Bytes::from_static(state))).collect(),
        ..Commit::default()
    };
    for (step, (commit, left)) in (0..).zip([
        (states(&[("b", b"22"), ("a", b"1")]), &[("a", 1), ("b", 2)][..]),
        (states(&[("b", b"4444"), ("c", b"55555")]), &[("a", 1), ("b", 4), ("c", 5)]),
        (states(&[("a", b""), ("x", b"")]), &[("b", 4), ("c", 5)]),
        (states(&[("c", b"3"), ("c", b""), ("b", b"")]), &[]),
    ]) {
        given::run(t, &device, commit).await;
        let mut look = |memory: &dyn Memory| {
            let mut found = memory.states();
            found.sort();
            let expected: Vec<(Arc<str>, usize)> =
                left.iter().map(|(name, bytes)| (Arc::from(*name), *bytes)).collect();
            assert_eq!(found, expected, "step {step}");
            let bytes = left.iter().map(|(name, bytes)| name.len() + bytes + STATE_BYTES_BESIDE).sum::<usize>();
            assert_eq!(memory.states_bytes(), bytes, "step {step}");
            assert!(left.iter().all(|(name, bytes)| memory.state(name).is_some_and(|state| state.len() == *bytes)));
            assert!(memory.state("x").is_none() && (memory.state("a").is_some() || step > 1));
            Commit::default()
        };
        t.run(&device, None, at(0), &mut look).await.unwrap();
    }
    given::store(t, &device, 1, "log", r#"{"a":1}"#).await;
    given::store(t, &device, 2, "log", r#"{"b":1}"#).await;
    let mut look = |memory: &dyn Memory| {
        assert_eq!((memory.last_bytes("log"), memory.last_bytes("none")), (r#"{"a":1,"b":1}"#.len(), 0));
        Commit::default()
    };
    t.run(&device, None, at(0), &mut look).await.unwrap();
}

/// Checks that runs of one device happen one after the other, also on a first, cold start.
pub async fn concurrent_runs_are_all_kept(t: &dyn Telemetry) {
    let device = given::device();
    let count = |memory: &dyn Memory| memory.state("n").map_or(0, |bytes| bytes[0]);
    join_all((0..100).map(|_| async {
        let mut work = |memory: &dyn Memory| {
            let mut commit = given::storing(id(1), &[("log", "1")]);
            commit.states = vec![("n".into(), Bytes::from(vec![count(memory) + 1]))];
            commit
        };
        t.run(&device, None, at(0), &mut work).await.unwrap();
    }))
    .await;
    t.run(&device, None, at(0), &mut |memory| {
        assert_eq!(count(memory), 100);
        Commit::default()
    })
    .await
    .unwrap();
    assert_eq!(given::texts(t, &device, "log", ValueQuery::default()).await.1, 100);
}

fn with_key(key: &str) -> Commit {
    let event = id(1);
    let key = Idempotency { key: key.to_owned(), answer: event, expires_at: at(1_000) };
    Commit { idempotency: Some(key), ..given::storing(event, &[("log", "1")]) }
}

/// Checks that a known key answers with the first identifier until it expires.
pub async fn repeated_request_has_no_effect(t: &dyn Telemetry) {
    let (device, other) = (given::device(), given::device());
    let mut first = None;
    let mut work = |_: &dyn Memory| {
        let commit = with_key("k");
        first = Some(commit.history[0].id);
        commit
    };
    assert!(matches!(t.run(&device, Some("k"), at(0), &mut work).await.unwrap(), Ran::Committed { .. }));
    for millis in [0, 999] {
        let ran = t.run(&device, Some("k"), at(millis), &mut |_| unreachable!("it is known")).await.unwrap();
        assert_eq!(Some(ran), first.map(Ran::Repeated));
    }
    for (device, key, millis) in [(&device, "k", 1_000), (&device, "K", 0), (&other, "k", 0)] {
        let ran = t.run(device, Some(key), at(millis), &mut |_| with_key(key)).await.unwrap();
        assert_eq!(ran, Ran::Committed { dropped: 0 }, "{key} at {millis}");
    }
    assert_eq!(given::texts(t, &device, "log", ValueQuery::default()).await.1, 3);
}

/// Checks that of concurrent requests with one key one runs, and that all get its identifier.
pub async fn concurrent_requests_with_one_key_get_one_answer(t: &dyn Telemetry) {
    let device = given::device();
    let answers = join_all((0..10).map(|_| async {
        let mut own = None;
        let mut work = |_: &dyn Memory| {
            let commit = with_key("k");
            own = Some(commit.history[0].id);
            commit
        };
        match t.run(&device, Some("k"), at(0), &mut work).await.unwrap() {
            Ran::Committed { .. } => own.unwrap(),
            Ran::Repeated(id) => id,
        }
    }))
    .await;
    assert!(answers.iter().all(|id| *id == answers[0]));
    assert_eq!(given::texts(t, &device, "log", ValueQuery::default()).await.1, 1);
}

/// Checks that entries are listed by number, and that numbers increase, until they are done.
pub async fn outbox_keeps_its_order_until_done(t: &dyn Telemetry) {
    let device = given::device();
    let before = t.outbox(0, usize::MAX).await.unwrap().last().map_or(0, |entry| entry.number);
    for step in 0..10_u8 {
        let outbox = given::work(t, [vec![step, 0], vec![step, 1]]);
        given::run(t, &device, Commit { outbox, ..Commit::default() }).await;
    }
    let entries = t.outbox(before, 100).await.unwrap();
    let work: Vec<_> = entries.iter().map(|entry| (entry.work[0], entry.work[1])).collect();
    assert_eq!(work, (0..10).flat_map(|step| [(step, 0), (step, 1)]).collect::<Vec<_>>());
    assert!(entries.iter().all(|entry| entry.device == device.target().key));
    assert!(entries.is_sorted_by(|left, right| left.number < right.number));
    assert_eq!(t.outbox(entries[14].number, 3).await.unwrap().len(), 3);
    let done: Vec<_> = entries[..19].iter().map(|entry| (entry.device, entry.number)).collect();
    t.outbox_done(&done).await.unwrap();
    // Removal is lazy; a later durable run of anybody carries it.
    given::run(t, &device, given::storing(id(1), &[])).await;
    let left = t.outbox(before, 100).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.number).collect::<Vec<_>>(), [entries[19].number]);
    t.outbox_done(&[(entries[19].device, entries[19].number)]).await.unwrap();
}

/// Checks that new work replaces that of an entry, and that a commit removes an entry that it makes needless.
pub async fn replaced_entry_of_the_outbox_keeps_its_position(t: &dyn Telemetry) {
    let device = given::device();
    let before = t.outbox(0, usize::MAX).await.unwrap().last().map_or(0, |entry| entry.number);
    let [first, second] = [t.outbox_number(), t.outbox_number()];
    let put = |number, work: &'static [u8]| OutboxChange::Put { number, work: Bytes::from_static(work) };
    for outbox in [
        vec![put(first, b"a"), put(second, b"b")],
        vec![put(first, b"c")],
        vec![put(first, b"d"), OutboxChange::Done(second)],
    ] {
        given::run(t, &device, Commit { outbox, ..Commit::default() }).await;
    }
    let left = t.outbox(before, 100).await.unwrap();
    assert_eq!(left.iter().map(|entry| (entry.number, &*entry.work)).collect::<Vec<_>>(), [(first, b"d".as_slice())]);
    t.outbox_done(&[(device.target().key, first)]).await.unwrap();
    given::run(t, &device, given::storing(id(1), &[])).await;
    assert!(t.outbox(before, 100).await.unwrap().is_empty());
}

/// Checks that the reason for parking an entry is kept until the entry is done, even if it is replaced.
pub async fn parked_entry_has_a_reason(t: &dyn Telemetry) {
    let device = given::device();
    let before = t.outbox(0, usize::MAX).await.unwrap().last().map_or(0, |entry| entry.number);
    let outbox = given::work(t, [vec![1], vec![2]]);
    given::run(t, &device, Commit { outbox, ..Commit::default() }).await;
    let entries = t.outbox(before, 100).await.unwrap();
    let [parked, sound] = [&entries[0], &entries[1]].map(|entry| entry.number);
    t.outbox_park(device.target().key, parked, "a reason").await.unwrap();
    t.outbox_park(device.target().key, parked, "a better one").await.unwrap();
    let again = OutboxChange::Put { number: parked, work: Bytes::from_static(b"3") };
    given::run(t, &device, Commit { outbox: vec![again], ..Commit::default() }).await;
    let left = t.outbox(before, 100).await.unwrap();
    let reasons: Vec<_> = left.iter().map(|entry| (entry.number, entry.parked.as_deref())).collect();
    assert_eq!(reasons, [(parked, Some("a better one")), (sound, None)]);
    t.outbox_done(&[parked, sound].map(|number| (device.target().key, number))).await.unwrap();
    given::run(t, &device, given::storing(id(1), &[])).await;
    assert!(t.outbox(before, 100).await.unwrap().is_empty());
}

/// Checks that no other caller gets a turn of the device until the turn is dropped, also after its commit.
pub async fn a_turn_excludes_others_until_it_is_dropped(t: &dyn Telemetry) {
    let (device, busy) = (given::device(), AtomicBool::new(false));
    join_all((1..=20).map(async |number| {
        loop {
            let mut turn = t.lock(&device).await.unwrap();
            assert!(!busy.swap(true, Ordering::SeqCst), "{number}");
            assert!(t.lock_now(&device).unwrap().is_none() && t.lock(&device).now_or_never().is_none(), "{number}");
            let committed = turn.commit(Commit::default());
            assert!(t.lock_now(&device).unwrap().is_none(), "{number}");
            tokio::task::yield_now().await;
            assert!(busy.swap(false, Ordering::SeqCst), "{number}");
            drop(turn);
            match committed {
                Err(StoreError::Conflict) => {}
                committed => return committed.unwrap().durable.wait().await.unwrap(),
            }
        }
    }))
    .await;
}

/// Checks that a dropped turn leaves its commits, which become durable, and nothing else.
pub async fn dropped_turn_keeps_its_commits(t: &dyn Telemetry) {
    let device = given::device();
    given::store(t, &device, 1, "log", "1").await;
    drop(t.lock(&device).await.unwrap());
    assert!(matches!(t.lock_unless_repeated(&device, "k", at(0)).await.unwrap(), Locked::Turn(_)));
    assert_eq!(given::texts(t, &device, "log", ValueQuery::default()).await.1, 1);
    let mut committed = loop {
        let mut turn = t.lock(&device).await.unwrap();
        match turn.commit(given::storing(id(2), &[("log", "2")])) {
            Err(StoreError::Conflict) => assert_eq!(turn.memory().last("log").unwrap().text(), "1"),
            committed => break committed.unwrap(),
        }
    };
    t.sync().await.unwrap();
    assert!(committed.durable.wait().now_or_never().is_some_and(|outcome| outcome.is_ok()));
    assert_eq!(given::texts(t, &device, "log", ValueQuery::default()).await.1, 2);
}

/// Checks that a run whose commit conflicts is repeated on a new turn and stored once, and that each run sees the state
/// of the previous one.
pub async fn conflicting_runs_are_stored_once(t: &dyn Telemetry) {
    const RUNS: u64 = 100;
    let (device, seen) = (given::device(), AtomicU64::new(0));
    join_all((0..RUNS).map(async |_| {
        let mut work = |memory: &dyn Memory| {
            let before = memory.state("n").map_or(0, |state| u64::from_be_bytes(state[..].try_into().unwrap()));
            // That of a commit that conflicts is seen again.
            assert!(seen.swap(before, Ordering::SeqCst) <= before);
            let states = vec![("n".into(), Bytes::copy_from_slice(&(before + 1).to_be_bytes()))];
            let event = id(before as i64);
            let queue = given::sending(event, "out", "1", None).queue;
            let outbox = given::work(t, [before.to_be_bytes().to_vec()]);
            Commit { states, queue, outbox, ..given::storing(event, &[("log", &before.to_string())]) }
        };
        t.run(&device, None, at(0), &mut work).await.unwrap();
    }))
    .await;
    let query = ValueQuery { page: given::page(1, RUNS as u32), ..ValueQuery::default() };
    let newest_first = (0..RUNS).rev().map(|number| number.to_string()).collect();
    assert_eq!(given::texts(t, &device, "log", query).await, (newest_first, RUNS));
    let reading = device.reading();
    assert_eq!(given::history(t, &reading).await.total, RUNS);
    assert_eq!(t.queue_peek(&reading, given::queued(1_000, 0)).await.unwrap().len() as u64, RUNS);
    let entries = t.outbox(0, usize::MAX).await.unwrap();
    let own = entries.iter().filter(|entry| entry.device == device.target().key);
    let work: Vec<_> = own.map(|entry| u64::from_be_bytes(entry.work[..].try_into().unwrap())).collect();
    assert_eq!(work, (0..RUNS).collect::<Vec<_>>());
}

/// Checks that a forgotten device has no data, and that later data is all that it has.
pub async fn forgotten_device_starts_empty(t: &dyn Telemetry) {
    let (device, neighbour) = (given::device(), given::device());
    given::store(t, &neighbour, 1, "log", "1").await;
    for round in 0..3_i64 {
        let event = id(1);
        given::run(t, &device, given::storing(event, &[("log", "1"), ("other", "2")])).await;
        given::run(t, &device, given::sending(id(2), "out", "3", None)).await;
        t.run(&device, Some("k"), at(0), &mut |_| with_key("k")).await.unwrap();
        let states = vec![("n".into(), Bytes::from_static(b"x"))];
        given::run(t, &device, Commit { states, ..Commit::default() }).await;
        t.forget(&device).await.unwrap();

        let reading = device.reading();
        assert_eq!(given::history(t, &reading).await.total, 0, "round {round}");
        assert!(t.history_event(&reading, event).await.unwrap().is_none());
        assert!(
            given::between(t, std::slice::from_ref(&reading), StreamPosition::first(), given::follow(t).await.from, 10)
                .await
                .is_empty()
        );
        assert!(t.series(&reading).await.unwrap().is_empty());
        assert!(t.values(&reading, "log", ValueQuery::default(), given::claim()).await.unwrap().is_none());
        assert!(t.queue_peek(&reading, given::queued(10, 0)).await.unwrap().is_empty());
        t.run(&device, Some("k"), at(0), &mut |memory| {
            assert!(memory.state("n").is_none() && memory.last("log").is_none());
            Commit::default()
        })
        .await
        .unwrap();
    }
    given::store(t, &device, 9, "log", "5").await;
    assert_eq!(given::history(t, &device.reading()).await.total, 1);
    assert_eq!(given::texts(t, &device, "log", ValueQuery::default()).await, (vec!["5".to_owned()], 1));
    assert_eq!(given::texts(t, &neighbour, "log", ValueQuery::default()).await.1, 1);
    assert_eq!(given::history(t, &neighbour.reading()).await.total, 1);
}
