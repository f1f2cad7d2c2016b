//! Tests the memory of deliveries, from parsing until they are answered.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use isobar_model::access::Lineage;
use isobar_model::device::Device;
use isobar_power::within_patience;
use isobar_quota::{SharedAmount, limits};
use isobar_store::registry::{Tag, TagCase};

use super::*;
use crate::designs::RunPlace;
use crate::stage::{Stage, until};

/// Stores each event.
const STORES: &str = r#"{
    "in": {"type": "deviceEvent", "properties": {"integration": "custom"},
           "triggers": {"eventReceived": [{"element": "log", "ability": "store"}]}},
    "log": {"type": "storage"}
}"#;
/// Stores each event, with code in the design that receives nothing.
const CODED: &str = r#"{
    "in": {"type": "deviceEvent", "properties": {"integration": "custom"},
           "triggers": {"eventReceived": [{"element": "log", "ability": "store"}]}},
    "log": {"type": "storage"},
    "decode": {"type": "function", "properties": {"code": "function decodeUplink(input) { return {data: 1}; }"}}
}"#;
const KIB: usize = 1 << 10;

/// Stores the length of each event in a label, which is written to the registry.
const LABELS: &str = r#"{
    "in": {"type": "deviceEvent", "properties": {"integration": "custom"}, "triggers": {"eventReceived": [
        {"element": "meta", "ability": "setValue", "arguments": {"tag": "'length'", "value": "payload.size()"}}]}},
    "meta": {"type": "deviceMeta"}
}"#;
/// Makes a JSON text of this many bytes.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

/// Delivers for the device of that name in the device's project.
async fn delivers_as(
    stage: &Stage,
    caller: &Caller,
    (device, name): (&Device, &str),
    more: &[(&'static str, &str)],
    body: String,
) -> Result<WebhookReport> {
    let project = device.project.to_string();
    let parameters = [("deviceTag", "eui"), ("deviceTagValue", name), ("projectUuid", &*project)];
    let given = |(name, text): &(&'static str, &str)| {
        (*name, Given { field: format!("query.{name}"), text: Some((*text).to_owned()) })
    };
    let given = parameters.iter().chain(more).map(given).collect();
    stage.hub.webhook_receive(caller, given, body.into()).await
}

async fn delivers(stage: &Stage, device: &Device, name: &str, bytes: usize) -> Result<WebhookReport> {
    delivers_as(stage, &stage.admin, (device, name), &[], text(bytes)).await
}

/// Returns the same user as part of another tenant.
fn another(stage: &Stage) -> Caller {
    let top = OrganizationId(uuid::Uuid::from_u128(1));
    Caller { lineage: Lineage::new([top], stage.admin.organization()), ..(*stage.admin).clone() }
}

/// Reserves all memory of the tenant for other deliveries, except for this many bytes.
fn leaves(stage: &Stage, bytes: usize) -> TenantShare {
    let held = SharedAmount::of(limits::WEBHOOK_BYTES.of_all).of_one() - bytes;
    stage.hub.0.deliveries.take(stage.admin.lineage.top(), held).unwrap()
}

/// Returns true if there is memory for this many more bytes.
fn has_room(stage: &Stage, bytes: usize) -> bool {
    stage.hub.0.deliveries.take(stage.admin.lineage.top(), bytes).is_ok()
}

fn names_the_bound<T>(refused: Result<T>) -> bool {
    matches!(refused, Err(Error::NoRoom(message)) if message.contains("256 MiB"))
}

/// Returns true if the project has a device of that name.
async fn is_there(stage: &Stage, name: &str) -> bool {
    let subtree = access::list(&stage.admin, Action::WebhookReceive, &stage.admin.lineage, None).unwrap();
    let tag = Tag { label: "eui", case: TagCase::Sensitive };
    !stage.hub.0.env.registry().devices_labelled(&subtree, tag, &[name]).await.unwrap().is_empty()
}

/// Occupies all places of long runs of the device's project until they are dropped.
async fn all_places(stage: &Stage, device: &Device) -> Vec<RunPlace> {
    stage.hub.0.designs.all_places(stage.entry(device).await.project_runs())
}

#[tokio::test]
async fn delivery_is_charged_and_other_tenants_have_room() {
    let stage = Stage::set().await;
    let device = stage.device(STORES).await;
    let others = leaves(&stage, 64 * KIB);
    let report = delivers(&stage, &device, "a", 10 * KIB).await.unwrap();
    assert_eq!(report.tasks[0].events.len(), 1);
    assert!(!has_room(&stage, 60 * KIB), "a report holds what it tells of");
    drop(report);
    assert!(names_the_bound(delivers(&stage, &device, "b", 100 * KIB).await));
    assert!(!is_there(&stage, "b").await, "what is refused has done nothing");
    let other = another(&stage);
    delivers_as(&stage, &other, (&device, "c"), &[], text(100 * KIB)).await.unwrap();
    assert!(has_room(&stage, 64 * KIB));
    drop(others);
    delivers(&stage, &device, "b", 100 * KIB).await.unwrap();
    assert!(is_there(&stage, "b").await);
}

#[tokio::test]
async fn concurrent_deliveries_beyond_the_memory_are_refused() {
    let stage = Stage::set().await;
    let device = stage.device(CODED).await;
    drop(delivers(&stage, &device, "a", KIB).await.unwrap());
    let places = all_places(&stage, &device).await;
    // Each delivery occupies memory for its body and its payload.
    let _others = leaves(&stage, 900 * KIB);
    let mut deliveries: FuturesUnordered<_> =
        std::iter::repeat_with(|| delivers(&stage, &device, "a", 100 * KIB)).take(20).collect();
    for _ in 0..16 {
        let refused = within_patience("one too many is refused", deliveries.next()).await;
        assert!(names_the_bound(refused.unwrap()));
    }
    assert!(futures::poll!(deliveries.next()).is_pending() && !has_room(&stage, 100 * KIB));
    drop(places);
    for delivered in deliveries.collect::<Vec<_>>().await {
        assert_eq!(delivered.unwrap().tasks[0].events.len(), 1);
    }
    assert!(has_room(&stage, 900 * KIB));
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
async fn memory_is_freed_after_a_disconnect_or_a_panic() {
    let stage = Arc::new(Stage::set().await);
    let (device, coded) = (stage.device(LABELS).await, stage.device(CODED).await);
    let _others = leaves(&stage, 300 * KIB);
    stage.hub.0.env.faults.panic_at("hand_over", 1);
    let panics = {
        let (stage, device) = (Arc::clone(&stage), device.clone());
        // The body is short enough to be run on the same thread.
        tokio::spawn(async move { delivers(&stage, &device, "a", 20 * KIB).await.map(drop) })
    };
    assert!(panics.await.unwrap_err().is_panic());
    assert!(has_room(&stage, 300 * KIB));
    let places = all_places(&stage, &coded).await;
    let mut left = Box::pin(delivers(&stage, &coded, "b", 100 * KIB));
    // The thread that reads its body is done then, and holds nothing of it.
    until("a delivery waits for a place", async || {
        assert!(futures::poll!(&mut left).is_pending());
        stage.hub.0.designs.long_runs() == (places.len(), 1)
    })
    .await;
    assert!(!has_room(&stage, 100 * KIB));
    drop(left);
    assert!(has_room(&stage, 300 * KIB));
}

#[tokio::test]
async fn copies_of_long_labels_are_charged_by_batch() {
    let stage = Stage::set().await;
    let device = stage.device(STORES).await;
    let blocks: Vec<String> = (0..100).map(|n| format!(r#"{{"id":"d{n}"}}"#)).collect();
    let labels = format!(r#"{{"long":{}}}"#, text(60 * KIB));
    let more = [("eventsRef", "$"), ("deviceTagValueRef", "id"), ("extraMeta", &*labels)];
    let others = leaves(&stage, 3 << 20);
    let body = format!("[{}]", blocks.join(","));
    assert!(names_the_bound(delivers_as(&stage, &stage.admin, (&device, "d"), &more, body.clone()).await));
    assert!(!is_there(&stage, "d0").await);
    drop(others);
    let _others = leaves(&stage, 6 << 20);
    let report = delivers_as(&stage, &stage.admin, (&device, "d"), &more, body).await.unwrap();
    assert_eq!(report.tasks.iter().filter(|task| task.provisioned.is_some()).count(), 100);
    assert_eq!(report.all_errors().count(), 0);
}
