//! Tests of the memory that waiting changes of settings hold, and of the slots of their runs.

use std::pin::Pin;
use std::sync::{Arc, mpsc};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use isobar_model::access;
use isobar_model::device::Device;
use isobar_model::json::RawJson;
use isobar_model::setting::{SETTINGS_BYTES_MAX, SettingItem};
use isobar_power::within_patience;
use isobar_quota::SharedAmount;
use tokio::sync::oneshot;

use super::device::CHANGES_AT_ONCE;
use super::*;
use crate::designs::Admission;
use crate::ingest::LinePlace;
use crate::ingest::design_runs::RunsEstimate;
use crate::stage::{Stage, until};
use crate::{DeviceSetting, SettingsOutcome};

/// Settings that nothing is linked to.
const QUIET: &str = r#"{"label": {"type": "deviceSetting"}, "other": {"type": "deviceSetting"}}"#;
/// A setting whose changes run code.
const CODED: &str = r#"{
    "label": {"type": "deviceSetting", "triggers": {"changed": [{"element": "decode", "ability": "evaluate"}]}},
    "decode": {"type": "function", "properties": {"code": "function decodeUplink(input) { return {data: 1}; }"},
               "triggers": {"result": [{"element": "reading", "ability": "store"}]}},
    "reading": {"type": "storage"}
}"#;
const KIB: usize = 1 << 10;

/// A text of so many bytes of JSON.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

async fn puts(stage: &Stage, device: &Device, name: &str, value: String) -> Result<DeviceSetting> {
    stage.hub.setting_update(&stage.admin, device.id, name, value.into()).await
}

/// Gives the setting `label` of each device a value of so many bytes, in one call.
async fn puts_all(stage: &Stage, devices: &[&Device], bytes: usize) -> Result<SettingsOutcome> {
    let item = |device: &&Device| SettingItem {
        device: device.id.to_string(),
        name: "label".to_owned(),
        value: RawJson::check(text(bytes).into()).unwrap(),
    };
    let items: Vec<SettingItem> = devices.iter().map(item).collect();
    stage.hub.settings_update(&stage.admin, &items).await
}

/// Takes so many bytes for other work of the tenant.
fn holds(stage: &Stage, bytes: usize) -> Result<TenantShare> {
    stage.hub.0.designs.hold(HeldByRun { tenant: stage.admin.lineage.top(), bytes })
}

/// Something else of the tenant holds all that it may, but for so many bytes.
fn leaves(stage: &Stage, bytes: usize) -> TenantShare {
    holds(stage, SharedAmount::of(limits::LONG_RUN_BYTES.of_all).of_one() - bytes).unwrap()
}

/// Returns true if there is room for so many more bytes.
fn has_room(stage: &Stage, bytes: usize) -> bool {
    holds(stage, bytes).is_ok()
}

fn names_the_bound<T>(refused: Result<T>) -> bool {
    matches!(refused, Err(Error::NoRoom(message)) if message.contains("192 MiB"))
}

#[tokio::test]
async fn a_change_is_charged_what_it_holds_and_another_tenant_has_room() {
    let stage = Stage::set().await;
    let (device, other) = (stage.device(QUIET).await, stage.device_of_another_tenant(QUIET).await);
    let held = leaves(&stage, 64 * KIB);
    puts(&stage, &device, "label", text(10 * KIB)).await.unwrap();
    assert!(names_the_bound(puts(&stage, &device, "label", text(100 * KIB)).await));
    assert!(names_the_bound(puts_all(&stage, &[&device], 100 * KIB).await));
    puts(&stage, &other, "label", text(100 * KIB)).await.unwrap();
    assert_eq!(puts_all(&stage, &[&device], KIB).await.unwrap().changed.len(), 1);
    let values = async || stage.entry(&device).await.view().unwrap().settings_bytes();
    assert!(values().await < 2 * KIB, "what was refused has changed nothing");
    drop(held);
    puts(&stage, &device, "label", text(100 * KIB)).await.unwrap();
    assert_eq!(puts_all(&stage, &[&device, &other], 100 * KIB).await.unwrap().changed.len(), 2);
    // What a device has besides counts too: resets hold it while they wait.
    let held = leaves(&stage, 64 * KIB);
    assert!(names_the_bound(stage.hub.setting_reset(&stage.admin, device.id, "label").await));
    assert!(names_the_bound(stage.hub.settings_reset(&stage.admin, device.id).await));
    drop(held);
    stage.hub.settings_reset(&stage.admin, device.id).await.unwrap();
    assert_eq!(values().await, 0);
}

#[tokio::test]
async fn changes_that_wait_for_a_place_are_bounded_by_their_memory() {
    let stage = Stage::set().await;
    let device = stage.device(CODED).await;
    let project = stage.entry(&device).await.project_runs();
    let _others = leaves(&stage, 450 * KIB);
    let places = stage.hub.0.designs.all_places(project);
    let mut changes: FuturesUnordered<_> =
        std::iter::repeat_with(|| puts(&stage, &device, "label", text(100 * KIB))).take(20).collect();
    for _ in 0..16 {
        let refused = within_patience("one too many is refused", changes.next()).await;
        assert!(names_the_bound(refused.unwrap()));
    }
    assert!(has_room(&stage, 49 * KIB) && !has_room(&stage, 100 * KIB));
    drop(places);
    for change in changes.collect::<Vec<_>>().await {
        change.unwrap();
    }
    assert!(has_room(&stage, 450 * KIB));
}

#[tokio::test]
async fn memory_of_an_abandoned_or_panicking_change_is_given_back() {
    let stage = Stage::set().await;
    let device = stage.device(CODED).await;
    let _others = leaves(&stage, 150 * KIB);
    stage.hub.0.env.faults.panic_at("hand_over", 1);
    let failed = puts(&stage, &device, "label", text(100 * KIB)).await;
    assert!(matches!(failed, Err(Error::Internal(_))), "{failed:?}");
    assert!(has_room(&stage, 150 * KIB));
    let places = stage.hub.0.designs.all_places(stage.entry(&device).await.project_runs());
    let mut left = Box::pin(puts(&stage, &device, "label", text(100 * KIB)));
    until("a change waits for a place", async || {
        assert!(futures::poll!(&mut left).is_pending());
        stage.hub.0.designs.long_runs() == (places.len(), 1)
    })
    .await;
    assert!(!has_room(&stage, 100 * KIB));
    drop(left);
    assert!(has_room(&stage, 150 * KIB));
}

#[tokio::test]
async fn a_bulk_for_which_there_is_room_changes_devices_one_after_the_other_where_they_hold_much() {
    let stage = Stage::set().await;
    let mut devices = vec![stage.device(QUIET).await];
    for _ in 0..5 {
        let body = format!(r#"{{"name":"d","projectUuid":"{}"}}"#, devices[0].project);
        devices.push(stage.another(&body).await);
    }
    for device in &devices {
        puts(&stage, device, "other", text(200 * KIB)).await.unwrap();
    }
    let _others = leaves(&stage, 500 * KIB);
    let outcome = puts_all(&stage, &devices.iter().collect::<Vec<_>>(), 10).await.unwrap();
    assert_eq!((outcome.changed.len(), outcome.errors), (6, vec![]));
    assert!(has_room(&stage, 500 * KIB));
    let _more = holds(&stage, 350 * KIB).unwrap();
    let outcome = puts_all(&stage, &devices.iter().collect::<Vec<_>>(), 10).await.unwrap();
    assert_eq!(outcome.errors.len(), 6);
    assert!(outcome.errors.iter().all(|error| error.contains("192 MiB")), "{:?}", outcome.errors);
}

/// A setting that is linked so many times over to what might read its value, and one that nothing is linked to.
fn linked(times: usize) -> String {
    let link = r#"{"element": "length", "ability": "evaluate"}"#;
    let links = vec![link; times].join(",");
    format!(
        r#"{{"label": {{"type": "deviceSetting", "triggers": {{"changed": [{links}]}}}},
            "other": {{"type": "deviceSetting"}},
            "length": {{"type": "transform", "properties": {{"expression": "1"}}}}}}"#
    )
}

#[tokio::test]
async fn long_change_waits_for_a_place_and_a_short_one_does_not() {
    let stage = Stage::set().await;
    let device = stage.device(&linked(500)).await;
    let (designs, project) = (&stage.hub.0.designs, stage.entry(&device).await.project_runs());
    let changes: [Change<'_>; 3] = [
        Box::pin(async { drop(puts(&stage, &device, "label", text(KIB)).await.unwrap()) }),
        Box::pin(async { drop(puts(&stage, &device, "other", text(200 * KIB)).await.unwrap()) }),
        Box::pin(async {
            let outcome = puts_all(&stage, &vec![&device; CHANGES_AT_ONCE], 3).await.unwrap();
            assert_eq!(outcome.changed.len(), CHANGES_AT_ONCE);
        }),
    ];
    for mut long in changes {
        let places = designs.all_places(project);
        until("it waits for a place", async || {
            assert!(futures::poll!(&mut long).is_pending(), "it waits for nobody");
            designs.long_runs() == (places.len(), 1)
        })
        .await;
        puts(&stage, &device, "other", text(KIB)).await.unwrap();
        puts(&stage, &device, "label", text(3)).await.unwrap();
        drop(places);
        long.await;
    }
}

type Change<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
async fn long_runs_of_a_change_leave_the_serving_thread_to_others() {
    let stage = Arc::new(Stage::set().await);
    let device = stage.device(&linked(500)).await;
    let (asks, asked) = oneshot::channel();
    let (answers, answered) = mpsc::channel();
    let change = {
        let (stage, entry) = (Arc::clone(&stage), stage.entry(&device).await);
        tokio::spawn(async move {
            let permit = access::system(entry.device, "a test changes a setting");
            let estimate = RunsEstimate::of_changes(&entry.plan().unwrap(), [("label", KIB)]);
            let (mut asks, mut place) = (Some(asks), LinePlace::default());
            let runs =
                stage.hub.0.ingest.design_runs(&permit, &entry, (Admission::Part, estimate), &mut place, move |_| {
                    asks.take().unwrap().send(()).unwrap();
                    answered.recv_timeout(isobar_power::PATIENCE)
                });
            runs.await.unwrap().unwrap()
        })
    };
    // It has the thread of the one that waits for it, unless that is another one's meanwhile.
    tokio::spawn(async move {
        asked.await.unwrap();
        answers.send(()).unwrap();
    });
    assert_eq!(change.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn settings_of_before_the_bound_are_read_and_may_become_smaller() {
    let stage = Stage::set().await;
    let device = stage.device(QUIET).await;
    let entry = stage.entry(&device).await;
    let permit = access::system(entry.device, "a test sets what was allowed once");
    let most = SETTINGS_BYTES_MAX;
    for (name, bytes) in [("label", most), ("gone", most), ("other", KIB)] {
        let value = RawJson::check(text(bytes).into()).unwrap();
        let (estimate, mut place) = ((Admission::Part, RunsEstimate::default()), LinePlace::default());
        let set = stage.hub.0.ingest.design_runs(&permit, &entry, estimate, &mut place, move |runs| {
            runs.set(Arc::from(name), Some(value.clone()));
        });
        set.await.unwrap().unwrap();
    }
    let principal = crate::Principal::User(Arc::clone(&stage.admin));
    let length =
        async |name: &str| stage.hub.setting_fetch(&principal, device.id, name).await.unwrap().value.bytes().len();
    assert_eq!((length("label").await, length("other").await), (most, KIB));
    puts(&stage, &device, "label", text(most - 10)).await.unwrap();
    puts(&stage, &device, "other", text(KIB)).await.unwrap();
    for bytes in [most, most - 9] {
        let Err(Error::Invalid(faults)) = puts(&stage, &device, "label", text(bytes)).await else { panic!("{bytes}") };
        assert!(faults[0].field == "body" && faults[0].message.contains("at most 1 MiB"), "{faults:?}");
    }
    // What no design declares any more takes room, and goes with all others.
    stage.hub.setting_reset(&stage.admin, device.id, "label").await.unwrap();
    assert!(puts(&stage, &device, "label", text(KIB)).await.is_err());
    stage.hub.settings_reset(&stage.admin, device.id).await.unwrap();
    puts(&stage, &device, "label", text(most - 100)).await.unwrap();
    assert_eq!((length("label").await, length("other").await), (most - 100, 4));
}
