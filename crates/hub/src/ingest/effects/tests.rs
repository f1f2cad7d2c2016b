//! Tests that the effects of runs on their device are bounded and applied once, for any design and event.

use isobar_model::access;
use isobar_model::event::Event;
use isobar_model::meta::MetaSize;
use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::setting::SettingItem;
use isobar_quota::Claim;
use isobar_store::telemetry::HistoryQuery;

use super::*;
use crate::ingest::design_runs::RUNS_BYTES_FULL;
use crate::ingest::run_commit::CHANGED;
use crate::stage::Stage;

/// `reading` leads to these links, and there are these other elements.
fn design(links: &[String], others: &str) -> String {
    let links = links.join(",");
    format!(r#"{{"reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": [{links}]}}}}, {others}}}"#)
}

fn text(bytes: usize) -> &'static str {
    format!("\"{}\"", "x".repeat(bytes - 2)).leak()
}

/// The newest events of a device, newest first.
async fn events(stage: &Stage, device: &isobar_model::device::Device) -> Vec<Event> {
    let permit = access::system(device.reference(), "a test looks at history").reading();
    let query = HistoryQuery {
        device_events: true,
        cloud_events: false,
        range: TimeRange { from: None, to: None },
        not_before: isobar_model::time::Timestamp::from_millis(0),
        page: PageRequest::new(1, 10),
    };
    stage.hub.0.env.telemetry().history(&permit, query, Claim::begin(device.organization)).await.unwrap().items
}

#[tokio::test]
async fn a_device_is_seen_anew_once_a_run() {
    let stage = Stage::set().await;
    let label = |n: usize| format!(r#"{{"element": "m", "ability": "setValue", "arguments": {{"tag": "'t{n}'"}}}}"#);
    let set = r#"{"element": "s", "ability": "set", "arguments": {"value": "'a'"}}"#.to_owned();
    let status = r#"{"element": "m", "ability": "setStatus", "arguments": {"status": "critical"}}"#.to_owned();
    let links: Vec<String> = (0..300).map(label).chain([set, status]).collect();
    let device = stage.device(&design(&links, r#""m": {"type": "deviceMeta"}, "s": {"type": "deviceSetting"}"#)).await;
    let before = CHANGED.get();
    stage.posts(&device, "7").await;
    assert_eq!(CHANGED.get() - before, 1);
    let view = stage.entry(&device).await.view().unwrap();
    assert_eq!(MetaSize::of(&view.meta).labels, 300);
    assert_eq!((view.status, view.settings.len()), (Status::Critical, 1));
    stage.over().await;
}

#[tokio::test]
async fn work_for_the_registry_is_bounded() {
    let stage = Stage::set().await;
    let set = r#"{"element": "s", "ability": "set"}"#.to_owned();
    let label = r#"{"element": "m", "ability": "setValue", "arguments": {"tag": "'t'"}}"#.to_owned();
    let links = [vec![set; 20], vec![label; 20]].concat();
    let device = stage.device(&design(&links, r#""m": {"type": "deviceMeta"}, "s": {"type": "deviceSetting"}"#)).await;
    stage.posts(&device, text(1_000_000)).await;
    let work: usize =
        stage.hub.0.env.telemetry().outbox(0, 100).await.unwrap().iter().map(|entry| entry.work.len()).sum();
    assert!((1_000_000..3 << 20).contains(&work), "{work} bytes of work");
    let errors = &events(&stage, &device).await[0].errors;
    for (element, bound) in [("s", "at most 2 MiB"), ("m", "at most 65536 bytes")] {
        assert!(errors.iter().any(|it| it.element == element && it.message.contains(bound)), "{errors:?}");
    }
    stage.over().await;
}

#[tokio::test]
async fn an_event_is_told_what_has_no_room_among_last_values() {
    let stage = Stage::set().await;
    let store = r#"{"element": "out", "ability": "store"}"#.to_owned();
    let device = stage.device(&design(&[store], r#""out": {"type": "storage"}"#)).await;
    let large = |from: usize| -> &'static str {
        let members: Vec<String> = (from..from + 20_000).map(|n| format!("\"key{n:06}\":{n}")).collect();
        format!("{{{}}}", members.join(",")).leak()
    };
    for (payload, message) in [
        (r#"{"a":1}"#, None),
        (large(0), Some("last values: no room for")),
        (large(20_000), Some("last values: no room for 20000 of the names, 256 KiB are kept of a series")),
        (r#"{"a":2}"#, None),
        (text(300_000), Some("last values: no room for 1 of the names")),
    ] {
        stage.posts(&device, payload).await;
        let event = &events(&stage, &device).await[0];
        let told = event.errors.first().map(|error| error.message.as_str());
        assert!(
            told.is_some() == message.is_some() && told.unwrap_or_default().starts_with(message.unwrap_or_default()),
            "{:?}",
            event.errors
        );
        assert!(stage.stored(&device, "out").await.unwrap().len() <= LAST_BYTES_MAX);
    }
    let reading = access::system(device.reference(), "a test counts what is stored").reading();
    assert_eq!(stage.hub.0.env.telemetry().series(&reading).await.unwrap()[0].count, 5);
    stage.over().await;
}

#[tokio::test]
async fn changes_that_leave_much_are_of_several_commits() {
    // A device has room for three of these values.
    const SETTINGS: usize = 3;
    const CHANGES: usize = 20;
    let stage = Stage::set().await;
    let setting = |n: usize| {
        format!(
            r#""s{n}": {{"type": "deviceSetting", "triggers": {{"changed": [{{"element": "out", "ability": "store"}}]}}}}"#
        )
    };
    let settings: Vec<String> = (0..SETTINGS).map(setting).collect();
    let device = stage.device(&design(&[], &format!(r#"{}, "out": {{"type": "storage"}}"#, settings.join(",")))).await;
    let value = RawJson::check(text(300 << 10).into()).unwrap();
    let item = |n: usize| SettingItem {
        device: device.id.to_string(),
        name: format!("s{}", n % SETTINGS),
        value: value.clone(),
    };
    let items: Vec<SettingItem> = (0..CHANGES).map(item).collect();
    let outcome = stage.hub.settings_update(&stage.admin, &items).await.unwrap();
    assert_eq!((outcome.changed.len(), outcome.errors), (CHANGES, vec![]));
    // One entry of the outbox for each commit.
    let entries = stage.hub.0.env.telemetry().outbox(0, 100).await.unwrap();
    assert!(entries.len() > 5, "{} commits", entries.len());
    assert!(entries.iter().all(|entry| entry.work.len() < 2 * RUNS_BYTES_FULL));
    let reading = access::system(device.reference(), "a test counts what is stored").reading();
    assert_eq!(stage.hub.0.env.telemetry().series(&reading).await.unwrap()[0].count, CHANGES as u64);
    stage.over().await;
}

#[tokio::test]
async fn runs_of_one_commit_see_what_those_before_have_left() {
    let stage = Stage::set().await;
    let setting = |n: usize| {
        format!(
            r#""s{n}": {{"type": "deviceSetting", "properties": {{"inputType": "number"}}, "triggers": {{"changed": [
                {{"element": "w", "ability": "push"}},
                {{"element": "out", "ability": "store", "arguments": {{"value": "{{'n': has(last.out.n) ? last.out.n + payload : payload}}"}}}}]}}}}"#
        )
    };
    let others = format!(
        r#"{}, {}, {}, "out": {{"type": "storage"}}, "sums": {{"type": "storage"}},
        "w": {{"type": "window", "properties": {{"size": 10, "aggregate": "sum"}},
               "triggers": {{"result": [{{"element": "sums", "ability": "store"}}]}}}}"#,
        setting(0),
        setting(1),
        setting(2)
    );
    let device = stage.device(&design(&[], &others)).await;
    let item = |n: usize| SettingItem {
        device: device.id.to_string(),
        name: format!("s{n}"),
        value: RawJson::check((n + 1).to_string().into()).unwrap(),
    };
    let items: Vec<SettingItem> = (0..3).map(item).collect();
    stage.hub.settings_update(&stage.admin, &items).await.unwrap();
    assert_eq!(stage.stored(&device, "out").await.as_deref(), Some(r#"{"n":6}"#));
    assert_eq!(stage.stored(&device, "sums").await.as_deref(), Some("6"));
    assert_eq!(stage.hub.0.env.telemetry().outbox(0, 100).await.unwrap().len(), 1);
    stage.over().await;
}

/// A device that holds all that it may.
struct Full;

impl Memory for Full {
    fn newest(&self) -> EventId {
        EventId::from_bytes([0; 16])
    }

    fn last(&self, element: &str) -> Option<LastKept> {
        (element == "known").then(|| LastKept::from_bytes(b"1"))
    }

    fn last_bytes(&self, element: &str) -> usize {
        usize::from(element == "known")
    }

    fn all_last_bytes(&self) -> (usize, usize) {
        (DEVICE_LAST_BYTES_MAX, SERIES_MAX - 1)
    }

    fn state(&self, _: &str) -> Option<Bytes> {
        None
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        Vec::new()
    }

    fn states_bytes(&self) -> usize {
        0
    }
}

#[test]
fn an_event_is_told_what_its_device_has_no_room_for() {
    let event = EventId(uuid::Uuid::from_u128(1));
    let value =
        |element: &str| NewValue { event, element: element.into(), payload: RawJson::trusted(text(300).into()) };
    let told = NewEvent {
        id: event,
        kind: EventType::DeviceEvent,
        element: "reading".into(),
        payload: RawJson::trusted("1".into()),
        errors: Vec::new(),
    };
    let values = ["known", "first", "second", "first", "second"].map(value).into_iter().collect();
    let mut commit = Commit { history: [told].into(), values, ..Commit::default() };
    hold_to_series(&Full, &mut commit);
    add_left_out(&Full, &mut commit);
    let left: Vec<&str> = commit.values.iter().map(|value| &*value.element).collect();
    assert_eq!(left, ["known", "first", "first"]);
    let errors: Vec<String> =
        commit.history[0].errors.iter().map(|error| format!("{}: {}", error.element, error.message)).collect();
    assert_eq!(
        errors,
        [
            "second: not stored: a device has values of at most 2000 storage elements",
            "first: last values: no room for 2 of the names, 16 MiB are kept of a device",
            "known: last values: no room for 1 of the names, 16 MiB are kept of a device",
        ]
    );
}
