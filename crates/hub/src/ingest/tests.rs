//! The clock was ahead, and is right again: times never run backwards, and what measures time goes by the clock as it is.

use isobar_model::access::{self, CanRead};
use isobar_model::device::Device;
use isobar_model::event::{Event, StoredValue};
use isobar_model::ids::DeviceRef;
use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::time::Timestamp;
use isobar_quota::Claim;
use isobar_store::telemetry::{FilterField, HistoryQuery, Looked, QueueQuery, ValueQuery, ValueSort};

use crate::stage::Stage;

const HOUR: i64 = 3_600;
const PAGE: PageRequest = PageRequest::new(1, 100);

const DESIGN: &str = r#"{
    "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
        {"element": "all", "ability": "store"}, {"element": "few", "ability": "pass"},
        {"element": "lately", "ability": "push"}, {"element": "order", "ability": "send"}]}},
    "all": {"type": "storage"},
    "few": {"type": "throttle", "properties": {"minutes": 5}, "triggers": {"passed": [{"element": "passed", "ability": "store"}]}},
    "passed": {"type": "storage"},
    "lately": {"type": "window", "properties": {"minutes": 5, "aggregate": "count"},
               "triggers": {"result": [{"element": "counted", "ability": "store"}]}},
    "counted": {"type": "storage"},
    "order": {"type": "cloudEvent", "properties": {"ttlMinutes": 5}}
}"#;

async fn permit(stage: &Stage, device: &Device) -> CanRead<DeviceRef> {
    access::system(stage.entry(device).await.device, "a test looks at what is stored").reading()
}

async fn values(stage: &Stage, device: &Device, element: &str, range: TimeRange) -> Vec<StoredValue> {
    let (permit, claim) = (permit(stage, device).await, Claim::begin(stage.admin.organization()));
    let sort = vec![ValueSort { field: FilterField::Id, descending: false }];
    let query = ValueQuery { range, sort, page: PAGE, ..ValueQuery::default() };
    stage.hub.0.env.telemetry().values(&permit, element, query, claim).await.unwrap().unwrap().items
}

async fn history(stage: &Stage, device: &Device, range: TimeRange) -> Vec<Event> {
    let (permit, claim) = (permit(stage, device).await, Claim::begin(stage.admin.organization()));
    let (not_before, kinds) = (Timestamp::default(), (true, false));
    let query = HistoryQuery { device_events: kinds.0, cloud_events: kinds.1, range, not_before, page: PAGE };
    stage.hub.0.env.telemetry().history(&permit, query, claim).await.unwrap().items
}

fn moment(at: Timestamp) -> TimeRange {
    TimeRange { from: Some(at), to: Some(Timestamp::from_millis(at.millis() + 1)) }
}

// Holds: c18.time
#[tokio::test]
async fn values_after_a_clock_that_was_ahead_lie_in_their_ranges() {
    for restarts in [false, true] {
        let mut stage = Stage::set().await;
        let (device, other) = (stage.device(DESIGN).await, stage.device(DESIGN).await);
        stage.posts(&device, "1").await;
        stage.clock.advance_seconds(HOUR);
        stage.posts(&device, "2").await;
        let ahead = stage.clock.now();
        stage.clock.advance_seconds(-HOUR);
        for payload in ["3", "4"] {
            if restarts {
                stage = stage.restarts().await;
            }
            stage.posts(&device, payload).await;
            stage.posts(&other, payload).await;
        }
        let all = values(&stage, &device, "all", TimeRange::default()).await;
        let events = history(&stage, &device, TimeRange::default()).await;
        assert_eq!((all.len(), events.len()), (4, 4));
        for (two, events) in all.windows(2).zip(events.windows(2)) {
            assert!(two[0].id < two[1].id && two[0].created_at <= two[1].created_at);
            assert!(events[0].id > events[1].id && events[0].received_at >= events[1].received_at);
        }
        assert!(all.iter().all(|value| value.created_at <= Timestamp::from_millis(ahead.millis() + 4)));
        for value in &all {
            assert!(values(&stage, &device, "all", moment(value.created_at)).await.contains(value));
        }
        for event in &events {
            assert!(history(&stage, &device, moment(event.received_at)).await.contains(event));
        }
        // Once the clock has caught up, it is what is told again.
        stage.clock.advance_seconds(2 * HOUR);
        stage.posts(&device, "5").await;
        assert_eq!(history(&stage, &device, TimeRange::default()).await[0].received_at, stage.clock.now());
        stage.over().await;
    }
}

// Holds: c18.time
#[tokio::test]
async fn notifications_after_a_clock_that_was_ahead_come_first() {
    let stage = Stage::set().await;
    let tell = async |what: &str| stage.hub.system_notification_emit(&stage.admin, what.to_owned()).await.unwrap();
    stage.clock.advance_seconds(HOUR);
    tell("early").await;
    stage.clock.advance_seconds(-HOUR);
    tell("late").await;
    let list = stage.hub.notification_list(&stage.admin, PAGE, false).await.unwrap();
    let told: Vec<_> = list.items.iter().map(|notification| notification.message.as_str()).collect();
    assert_eq!(told, ["late", "early"]);
    assert!(list.items[0].created_at >= list.items[1].created_at);
    stage.over().await;
}

// Holds: c18.time
#[tokio::test]
async fn elements_measure_time_by_the_clock_as_it_is() {
    for restarts in [false, true] {
        let mut stage = Stage::set().await;
        let device = stage.device(DESIGN).await;
        stage.clock.advance_seconds(HOUR);
        stage.posts(&device, "0").await;
        stage.clock.advance_seconds(-HOUR);
        if restarts {
            stage = stage.restarts().await;
        }
        for (seconds, payload) in [(0, "1"), (240, "2"), (120, "3"), (60, "4"), (240, "5")] {
            stage.clock.advance_seconds(seconds);
            stage.posts(&device, payload).await;
        }
        let told = async |element: &str| {
            let values = values(&stage, &device, element, TimeRange::default()).await;
            values.iter().map(|value| value.payload.text().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(told("passed").await, ["0", "1", "3", "5"], "restarts: {restarts}");
        assert_eq!(told("counted").await, ["1", "2", "3", "2", "3", "2"], "restarts: {restarts}");
        // Of what was queued by a clock that is right those are left that were queued less than five minutes ago.
        let query = QueueQuery { element: None, page: PAGE, now: stage.clock.now(), looked: Looked::default() };
        let permit = permit(&stage, &device).await;
        let queued = stage.hub.0.env.telemetry().queue_peek(&permit, query).await.unwrap();
        let queued: Vec<_> = queued.iter().map(|event| event.payload.text()).collect();
        assert_eq!(queued, ["0", "4", "5"], "restarts: {restarts}");
        stage.over().await;
    }
}
