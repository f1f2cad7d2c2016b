//! Tests of the timers of devices.

use isobar_model::device::Device;

use super::*;
use crate::stage::Stage;

/// A design with an interval whose code keeps what it is told.
const CODED: &str = r#"{
    "tick": {"type": "interval", "properties": {"minutes": 5},
             "triggers": {"elapsed": [{"element": "bytes", "ability": "evaluate"}]}},
    "bytes": {"type": "transform", "properties": {"expression": "{'bytes': [1]}"},
              "triggers": {"result": [{"element": "decode", "ability": "evaluate"}]}},
    "decode": {"type": "function", "properties": {"code": "function decodeUplink(input) { return {data: 1}; }"},
               "triggers": {"result": [{"element": "ticks", "ability": "store"}]}},
    "ticks": {"type": "storage"}
}"#;

#[tokio::test]
async fn timer_without_a_place_is_put_off_and_keeps_its_rhythm() {
    let stage = Stage::set().await;
    let hub = &stage.hub.clone();
    let first = stage.device(CODED).await;
    let mut devices = vec![first.clone()];
    for _ in 0..limits::CODE_TIMERS.of_one + 20 {
        devices.push(stage.another(&format!(r#"{{"name":"d","projectUuid":"{}"}}"#, first.project)).await);
    }
    stage.clock.advance_seconds(300);
    let now = stage.clock.now();
    // No place is free, and no further run may wait.
    let project = stage.entry(&first).await.project_runs();
    let places = hub.0.designs.all_places(project);
    let waiting = hub.0.designs.fill(project);
    let mut runs = JoinSet::new();
    assert!(!hub.0.jobs.serve_timers(&mut runs).await.unwrap());
    assert!(runs.len() <= limits::CODE_TIMERS.of_one);
    assert_eq!(hub.0.jobs.scheduler.writes.load(Ordering::Relaxed), 1, "one write for all of them");
    while runs.join_next().await.is_some() {}
    hub.0.jobs.serve_timers(&mut runs).await.unwrap();
    // All timers are postponed: none is due.
    assert_eq!(hub.0.env.registry().timers_due(now, 1_000).await.unwrap(), []);
    assert_eq!(hub.0.env.registry().timers_due(now.plus_seconds(60), 1_000).await.unwrap().len(), devices.len());
    // When there is room again all have their turn, and go on in the rhythm that they had.
    drop((places, waiting));
    for _ in 0..600 {
        stage.clock.advance_seconds(1);
        hub.0.jobs.serve_timers(&mut runs).await.unwrap();
        while runs.join_next().await.is_some() {}
        let state = hub.0.jobs.scheduler.timers.lock();
        if state.put_off.is_empty() && state.under_way.is_empty() {
            break;
        }
    }
    hub.0.jobs.serve_timers(&mut runs).await.unwrap();
    for device in &devices {
        assert!(stage.stored(device, "ticks").await.is_some());
    }
    let due = hub.0.env.registry().timers_due(now.plus_seconds(300), 1_000).await.unwrap();
    assert_eq!(due.iter().filter(|timer| timer.due_at == now.plus_seconds(300)).count(), devices.len());
    stage.over().await;
}

#[tokio::test]
async fn an_interval_elapses_once_though_the_registry_takes_nothing() {
    const PLAIN: &str = r#"{
        "tick": {"type": "interval", "properties": {"minutes": 5},
                 "triggers": {"elapsed": [{"element": "ticks", "ability": "store"}]}},
        "ticks": {"type": "storage"}
    }"#;
    let stage = Stage::set().await;
    let (hub, mut runs) = (&stage.hub.clone(), JoinSet::new());
    let device = stage.device(PLAIN).await;
    stage.clock.advance_seconds(300);
    let first = format!(r#"{{"elapsedAt":"{}"}}"#, stage.clock.now());
    stage.refuses("UPDATE", "device_timers").await;
    for _ in 0..5 {
        assert!(hub.0.jobs.serve_timers(&mut runs).await.is_err());
        assert_eq!(stage.stored(&device, "ticks").await.as_deref(), Some(&*first));
        stage.clock.advance_seconds(1);
    }
    stage.takes_again().await;
    assert!(!hub.0.jobs.serve_timers(&mut runs).await.unwrap());
    assert_eq!(stage.stored(&device, "ticks").await.as_deref(), Some(&*first));
    let due = hub.0.env.registry().timers_due(stage.clock.now().plus_seconds(300), 9).await.unwrap();
    assert_eq!(due.iter().map(|timer| timer.due_at).collect::<Vec<_>>(), [stage.clock.now().plus_seconds(295)]);
    stage.over().await;
}

#[test]
fn moments_that_were_missed_are_one() {
    let at = Timestamp::from_millis;
    for (due, now, next) in [(0, 0, 300_000), (0, 299_999, 300_000), (0, 300_000, 600_000), (7, 1_000_000, 1_200_007)] {
        assert_eq!(following(at(due), 5, at(now)), at(next), "{due} {now}");
    }
    // The clock was set back meanwhile.
    assert_eq!(following(at(3_600_007), 5, at(1_000)), at(300_007));
}

/// A design whose interval counts, and that marks a silent device as missing.
const WATCHED: &str = r#"{
    "tick": {"type": "interval", "properties": {"minutes": 5},
             "triggers": {"elapsed": [{"element": "ticks", "ability": "store"}]}},
    "ticks": {"type": "storage"},
    "state": {"type": "deviceMeta", "properties": {"missingAfterMinutes": 10}},
    "reading": {"type": "deviceEvent"}
}"#;

/// Returns how often the interval has elapsed.
async fn ticks(stage: &Stage, device: &Device) -> u64 {
    let permit = access::system(stage.entry(device).await.device, "a test looks at what is stored").reading();
    let series = stage.hub.0.env.telemetry().series(&permit).await.unwrap();
    series.iter().find(|series| &*series.element == "ticks").map_or(0, |series| series.count)
}

/// Lets minutes pass; the scheduler runs in each.
async fn minutes_pass(stage: &Stage, minutes: u32) {
    let mut runs = JoinSet::new();
    for _ in 0..minutes {
        stage.clock.advance_seconds(60);
        stage.hub.0.jobs.serve_timers(&mut runs).await.unwrap();
        stage.hub.0.activity.flush_activity(false).await;
    }
}

#[tokio::test]
async fn timers_go_on_once_a_clock_that_was_ahead_is_right() {
    for restarts in [false, true] {
        let mut stage = Stage::set().await;
        let (quiet, device) = (stage.device(WATCHED).await, stage.device(WATCHED).await);
        minutes_pass(&stage, 5).await;
        assert_eq!((ticks(&stage, &quiet).await, ticks(&stage, &device).await), (1, 1));
        // For a minute the clock is a day ahead. Both devices send events in that time, and all timers that are due
        // elapse.
        stage.clock.advance_seconds(86_400);
        for device in [&quiet, &device] {
            stage.posts(device, "1").await;
        }
        minutes_pass(&stage, 1).await;
        assert_eq!((ticks(&stage, &quiet).await, ticks(&stage, &device).await), (2, 2));
        stage.clock.advance_seconds(-86_400);
        if restarts {
            stage = stage.restarts().await;
        }
        minutes_pass(&stage, 6).await;
        assert_eq!((ticks(&stage, &quiet).await, ticks(&stage, &device).await), (3, 3), "restarts: {restarts}");
        stage.posts(&device, "2").await;
        assert_eq!(stage.shows(&device).await.last_active, Some(stage.clock.now()));
        minutes_pass(&stage, 9).await;
        assert_eq!((ticks(&stage, &quiet).await, ticks(&stage, &device).await), (5, 5));
        let statuses = (stage.shows(&quiet).await.status, stage.shows(&device).await.status);
        assert_eq!(statuses, (Status::Missing, Status::None), "restarts: {restarts}");
        minutes_pass(&stage, 5).await;
        assert_eq!(stage.shows(&device).await.status, Status::Missing);
        stage.over().await;
    }
}
