//! Tests the outbox of a hub on real stores.

use futures::poll;
use isobar_design::Effect;
use isobar_model::access::system;
use isobar_model::device::Device;
use isobar_model::page::ListRequest;
use isobar_store::registry::DeliveryKind;
use isobar_store::telemetry::Commit;
use sqlx::AssertSqlSafe;

use super::super::piece::PARKED_AFTER;
use super::super::*;
use super::{at, blank};
use crate::designs::Admission;
use crate::ingest::LinePlace;
use crate::ingest::design_runs::{DesignRuns, RunsEstimate};
use crate::stage::Stage;
use crate::{DeviceField, DeviceFilter, Operand, Operator, TreeQuery};

/// Stores each event in a label and a setting, and sends a notice.
const BUSY: &str = r#"{
    "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
        {"element": "state", "ability": "setValue", "arguments": {"tag": "'n'", "value": "payload"}},
        {"element": "limit", "ability": "set", "arguments": {"value": "payload"}},
        {"element": "tell", "ability": "notify"}]}},
    "state": {"type": "deviceMeta"},
    "limit": {"type": "deviceSetting", "properties": {"title": "Limit", "inputType": "number", "defaultValue": 1}},
    "tell": {"type": "notification", "properties": {"message": "'it talks'", "minimumRole": "technician"}}
}"#;

/// Stores each event in a label.
const LABELS: &str = r#"{
    "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
        {"element": "log", "ability": "store", "arguments": {"value": "device.meta"}},
        {"element": "state", "ability": "setValue", "arguments": {"tag": "'n'", "value": "payload"}}]}},
    "log": {"type": "storage"},
    "state": {"type": "deviceMeta"}
}"#;

async fn in_registry(stage: &Stage, device: &Device) -> Device {
    let permit = system(device.reference(), "a test looks at a device").reading();
    stage.hub.0.env.registry().device_fetch(&permit).await.unwrap().unwrap()
}

fn label(device: &Device) -> Option<String> {
    device.meta.tree().get("n").map(|value| value.scalar_text().unwrap().into_owned())
}

async fn sql(stage: &Stage, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&stage.sql().await).await.unwrap();
}

/// Makes the registry refuse every change of this device from now on.
async fn refuses(stage: &Stage, device: &Device) {
    let condition = format!("BEFORE UPDATE OF meta ON devices WHEN NEW.id = '{}'", device.id);
    sql(stage, &format!("CREATE TRIGGER no {condition} BEGIN SELECT RAISE(ABORT, 'no'); END")).await;
}

#[tokio::test]
async fn newest_state_of_many_events_is_written_once() {
    const EVENTS: usize = 100;
    let stage = Stage::set().await;
    let device = stage.device(BUSY).await;
    sql(&stage, "CREATE TABLE seen (n INTEGER); CREATE TRIGGER sees AFTER UPDATE OF meta ON devices BEGIN INSERT INTO seen VALUES (1); END")
        .await;
    for _ in 0..EVENTS / 2 {
        stage.posts(&device, "5").await;
        stage.posts(&device, "7").await;
        assert_eq!(label(&stage.shows(&device).await).as_deref(), Some("7"));
    }
    assert_eq!(label(&in_registry(&stage, &device).await), None);
    stage.hub.0.delivery.work_off_now().await.unwrap();
    assert_eq!(label(&in_registry(&stage, &device).await).as_deref(), Some("7"));
    let registry = stage.sql().await;
    let written = sqlx::query("SELECT n FROM seen").fetch_all(&registry).await.unwrap();
    assert_eq!(written.len(), 1);
    let history = stage.hub.setting_history(&stage.admin, device.id, ListRequest::default()).await.unwrap();
    assert_eq!((history.total as usize, stage.waiting(DeliveryKind::Notice).await), (EVENTS - 1, EVENTS));
    assert!(stage.hub.0.env.telemetry().outbox(0, 10).await.unwrap().is_empty());
    stage.over().await;
}

#[tokio::test]
async fn run_beyond_a_full_outbox_is_refused_whole() {
    let stage = Stage::set().await;
    let device = stage.device(LABELS).await;
    stage.posts(&device, "1").await;
    let other = stage.another(&format!(r#"{{"name":"e","projectUuid":"{}"}}"#, device.project)).await;
    stage.hub.0.outbox.queue.lock().fill();
    let posts = async |device: &Device| {
        let caller = crate::Principal::User(Arc::clone(&stage.admin));
        let id = device.id.to_string();
        stage.hub.0.ingest.event_accept(&caller, Some(&id), Some("reading"), "2".into(), None).await.map(|_| ())
    };
    assert!(matches!(posts(&other).await, Err(Error::Busy)));
    assert_eq!(label(&stage.shows(&other).await), None);
    assert_eq!(
        (stage.stored(&other, "log").await, stage.entry(&other).await.view().unwrap().meta.text()),
        (None, "{}")
    );
    // A newer state that replaces a pending one needs no room.
    posts(&device).await.unwrap();
    assert_eq!(label(&stage.shows(&device).await).as_deref(), Some("2"));
    stage.over().await;
}

#[tokio::test]
async fn refused_device_is_parked_and_stops_no_other() {
    let stage = Stage::set().await;
    let (hub, outbox) = (&stage.hub, &stage.hub.0.outbox);
    let first = stage.device(LABELS).await;
    let second = stage.another(&format!(r#"{{"name":"e","projectUuid":"{}"}}"#, first.project)).await;
    refuses(&stage, &first).await;
    for device in [&first, &second] {
        stage.posts(device, "1").await;
    }
    hub.0.delivery.work_off_now().await.unwrap();
    assert_eq!(label(&in_registry(&stage, &second).await).as_deref(), Some("1"));
    let parked =
        async || hub.0.env.telemetry().outbox(0, 9).await.unwrap().first().and_then(|entry| entry.parked.clone());
    for tried in 1..PARKED_AFTER {
        assert_eq!((parked().await, outbox.queue.lock().look().parked), (None, 0), "{tried}");
        hub.0.delivery.work_off_now().await.unwrap();
    }
    assert!(parked().await.unwrap().contains("no"));
    assert_eq!(outbox.queue.lock().look().parked, 1);
    // The parked changes are visible to all readers and to later runs; no caller waits for them.
    stage.posts(&first, "2").await;
    hub.0.caches.device_changed(first.id);
    stage.posts(&first, "3").await;
    assert_eq!(label(&stage.shows(&first).await).as_deref(), Some("3"));
    let tree = TreeQuery { organization: None, depth: isobar_model::page::Depth::All };
    let list = hub.device_list(&stage.admin, tree, ListRequest::default(), Vec::new()).await.unwrap();
    let listed = list.items.iter().find(|device| device.id == first.id).unwrap();
    assert_eq!(label(listed).as_deref(), Some("3"));
    // Lists find and count the device by its parked changes, not by the registry's row.
    for (n, expected) in [("3", first.id), ("1", second.id)] {
        let filters = || {
            let (field, operands) = (DeviceField::Meta(vec!["n".to_owned()]), vec![Operand::Number(n.to_owned())]);
            vec![DeviceFilter { field, operator: Operator::Eq, operands }]
        };
        let tree = || TreeQuery { organization: None, depth: isobar_model::page::Depth::All };
        let found = hub.device_list(&stage.admin, tree(), ListRequest::default(), filters()).await.unwrap();
        assert_eq!(found.items.iter().map(|device| device.id).collect::<Vec<_>>(), [expected]);
        assert_eq!(hub.device_summary(&stage.admin, tree(), filters()).await.unwrap().total, 1);
    }
    assert_eq!(stage.stored(&first, "log").await.as_deref(), Some(r#"{"n":2}"#));
    assert!(poll!(std::pin::pin!(outbox.caught_up(stage.admin.lineage.top(), &[Shown::State]))).is_ready());
    assert!(poll!(std::pin::pin!(outbox.written(first.key))).is_ready());
    let again = stage.restarts().await;
    let parked = async || again.hub.0.env.telemetry().outbox(0, 9).await.unwrap();
    assert!(parked().await.iter().any(|entry| entry.parked.is_some()));
    assert_eq!(label(&again.shows(&first).await).as_deref(), Some("3"));
    again.hub.0.delivery.work_off_now().await.unwrap();
    again.takes_again().await;
    again.hub.0.delivery.work_off_now().await.unwrap();
    assert_eq!(label(&in_registry(&again, &first).await).as_deref(), Some("3"));
    assert_eq!((parked().await.len(), again.hub.0.outbox.queue.lock().look().parked), (0, 0));
    again.over().await;
}

#[tokio::test]
async fn parked_labels_end_when_a_user_writes_others() {
    let stage = Stage::set().await;
    let device = stage.device(LABELS).await;
    refuses(&stage, &device).await;
    stage.posts(&device, "1").await;
    for _ in 0..PARKED_AFTER {
        stage.hub.0.delivery.work_off_now().await.unwrap();
    }
    stage.takes_again().await;
    let body = format!(r#"{{"name":"d","projectUuid":"{}","meta":{{"own":true}}}}"#, device.project);
    let input = isobar_model::device::DeviceInput::read(&isobar_model::json::parse(&body).unwrap()).unwrap();
    stage.hub.device_update(&stage.admin, device.id, input, crate::LastChoice::None).await.unwrap();
    for _ in 0..2 {
        assert_eq!(stage.shows(&device).await.meta.text(), r#"{"own":true}"#);
        stage.hub.0.delivery.work_off_now().await.unwrap();
    }
    assert_eq!(in_registry(&stage, &device).await.meta.text(), r#"{"own":true}"#);
    assert!(stage.hub.0.env.telemetry().outbox(0, 9).await.unwrap().is_empty());
    stage.over().await;
}

#[tokio::test]
async fn parked_label_ends_when_a_person_changes_that_one() {
    let stage = Stage::set().await;
    let device = stage.device(LABELS).await;
    refuses(&stage, &device).await;
    stage.posts(&device, "1").await;
    for _ in 0..PARKED_AFTER {
        stage.hub.0.delivery.work_off_now().await.unwrap();
    }
    stage.takes_again().await;
    let patch = async |text: &str| {
        let patch = isobar_model::meta::MetaPatch::read(&isobar_model::json::parse(text).unwrap()).unwrap();
        stage.hub.meta_update(&stage.admin, device.id, patch, crate::LastChoice::None).await.unwrap();
        stage.shows(&device).await.meta.text().to_owned()
    };
    // The design's change of another label still counts.
    assert_eq!(patch(r#"{"own":true}"#).await, r#"{"own":true,"n":1}"#);
    assert_eq!(patch(r#"{"n":7}"#).await, r#"{"own":true,"n":7}"#);
    stage.hub.0.delivery.work_off_now().await.unwrap();
    assert_eq!(in_registry(&stage, &device).await.meta.text(), r#"{"own":true,"n":7}"#);
    assert!(stage.hub.0.env.telemetry().outbox(0, 9).await.unwrap().is_empty());
    stage.over().await;
}

#[tokio::test]
async fn unreachable_registry_parks_nothing() {
    let stage = Stage::set().await;
    let device = stage.device(LABELS).await;
    stage.posts(&device, "1").await;
    stage.hub.0.env.registry().close().await.unwrap();
    for _ in 0..3 * PARKED_AFTER {
        assert!(stage.hub.0.delivery.work_off_now().await.is_err());
    }
    assert_eq!(stage.hub.0.outbox.queue.lock().look().parked, 0);
    // A stop does not wait for the registry.
    let again = stage.restarts().await;
    assert!(again.hub.0.env.telemetry().outbox(0, 9).await.unwrap().iter().all(|entry| entry.parked.is_none()));
    again.hub.0.delivery.work_off_now().await.unwrap();
    assert_eq!(label(&in_registry(&again, &device).await).as_deref(), Some("1"));
    again.over().await;
}

#[tokio::test]
async fn pending_changes_are_visible_after_a_restart() {
    let stage = Stage::set().await;
    let device = stage.device(BUSY).await;
    let watched = stage.device(LABELS).await;
    for payload in ["5", "7"] {
        stage.posts(&device, payload).await;
        stage.posts(&watched, payload).await;
    }
    let again = stage.restarts().await;
    assert_eq!(label(&in_registry(&again, &device).await), None);
    assert_eq!(label(&again.shows(&device).await).as_deref(), Some("7"));
    let caller = crate::Principal::User(Arc::clone(&again.admin));
    let limit = again.hub.setting_fetch(&caller, device.id, "limit").await.unwrap();
    assert_eq!(limit.value.text(), "7");
    // A run sees the changes of runs of the earlier process.
    again.posts(&watched, "9").await;
    assert_eq!(again.stored(&watched, "log").await.as_deref(), Some(r#"{"n":7}"#));
    again.hub.0.delivery.work_off_now().await.unwrap();
    let history = again.hub.setting_history(&again.admin, device.id, ListRequest::default()).await.unwrap();
    assert_eq!((history.total, again.waiting(DeliveryKind::Notice).await), (1, 2));
    assert_eq!(label(&in_registry(&again, &watched).await).as_deref(), Some("9"));
    let page =
        again.hub.device_list(&again.admin, TreeQuery::default(), ListRequest::default(), Vec::new()).await.unwrap();
    assert_eq!(page.items.iter().filter(|device| label(device).is_some()).count(), 2);
    again.over().await;
}

#[tokio::test]
async fn panicking_setting_is_parked_and_stops_nothing_else() {
    let stage = Stage::set().await;
    let (hub, faults) = (&stage.hub, &stage.hub.0.env.faults);
    let device = stage.device(BUSY).await;
    stage.posts(&device, "5").await;
    faults.panic_at("outbox_settings", u32::MAX);
    for _ in 0..PARKED_AFTER {
        hub.0.delivery.work_off_now().await.unwrap();
    }
    assert_eq!(
        (label(&in_registry(&stage, &device).await).as_deref(), stage.waiting(DeliveryKind::Notice).await),
        (Some("5"), 1)
    );
    let entries = hub.0.env.telemetry().outbox(0, 9).await.unwrap();
    assert_eq!((entries.len(), entries[0].parked.as_deref()), (1, Some("its work panics")));
    // Later settings wait for it, because settings are written in order.
    stage.posts(&device, "7").await;
    hub.0.delivery.work_off_now().await.unwrap();
    let caller = crate::Principal::User(Arc::clone(&stage.admin));
    let limit = async || hub.setting_fetch(&caller, device.id, "limit").await.unwrap().value.text().to_owned();
    assert_eq!((limit().await.as_str(), stage.waiting(DeliveryKind::Notice).await), ("7", 2));
    faults.panic_at("outbox_settings", 0);
    hub.0.delivery.work_off_now().await.unwrap();
    let history = hub.setting_history(&stage.admin, device.id, ListRequest::default()).await.unwrap();
    assert_eq!((history.total, limit().await.as_str()), (1, "7"));
    assert!(hub.0.env.telemetry().outbox(0, 9).await.unwrap().is_empty());
    stage.over().await;
}

#[tokio::test]
async fn unreadable_entry_is_parked_and_counted() {
    let stage = Stage::set().await;
    let device = stage.device(LABELS).await;
    let number = stage.hub.0.env.telemetry().outbox_number();
    let permit = system(device.reference(), "a test leaves what nobody can read");
    let outbox = || vec![OutboxChange::Put { number, work: "rubbish".into() }];
    let mut work = |_: &dyn isobar_store::telemetry::Memory| Commit { outbox: outbox(), ..Commit::default() };
    stage.hub.0.env.telemetry().run(&permit, None, at(0), &mut work).await.unwrap();
    let again = stage.restarts().await;
    again.posts(&device, "1").await;
    again.hub.0.delivery.work_off_now().await.unwrap();
    assert_eq!(label(&in_registry(&again, &device).await).as_deref(), Some("1"));
    let entries = again.hub.0.env.telemetry().outbox(0, 9).await.unwrap();
    assert!(entries.len() == 1 && entries[0].parked.as_deref().unwrap().contains("cannot be read"));
    assert_eq!(again.hub.0.outbox.queue.lock().look().parked, 1);
    // It is the same one, however often it is taken over.
    again.hub.0.outbox.take_up(&entries[0], 0, at(0)).unwrap_err();
    assert_eq!(again.hub.0.outbox.queue.lock().look().parked, 1);
    again.over().await;
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
async fn concurrent_runs_of_one_device_leave_the_newest_state() {
    let stage = Stage::set().await;
    let device = stage.device(LABELS).await;
    let permit = system(device.reference(), "a test runs a design beside others");
    for round in 0..20_u32 {
        let entry = stage.entry(&device).await;
        let runs = (0..8_u32).map(|number| {
            let (hub, entry, permit) = (stage.hub.clone(), Arc::clone(&entry), permit.clone());
            tokio::spawn(async move {
                let leaves = move |runs: &mut DesignRuns<'_>| {
                    let id = runs.mint();
                    let value = isobar_model::json::RawJson::trusted((round * 8 + number).to_string().into());
                    runs.effects(id, vec![Effect::SetMeta { tag: "n".to_owned(), value }]);
                };
                let estimate = (Admission::Part, RunsEstimate::default());
                hub.0
                    .ingest
                    .design_runs(&permit, &entry, estimate, &mut LinePlace::default(), leaves)
                    .await
                    .unwrap()
                    .unwrap();
            })
        });
        let runs: Vec<_> = runs.collect();
        let permits = async {
            for _ in 0..3 {
                stage.hub.0.delivery.work_off_now().await.unwrap();
            }
        };
        permits.await;
        for run in runs {
            run.await.unwrap();
        }
        let newest = label(&Device { meta: entry.view().unwrap().meta.clone(), ..blank() });
        assert_eq!(label(&stage.shows(&device).await), newest);
        stage.hub.0.delivery.work_off_now().await.unwrap();
        assert_eq!(label(&in_registry(&stage, &device).await), newest);
    }
    assert!(stage.hub.0.outbox.queue.lock().of(device.key).is_none());
    stage.over().await;
}
