//! Promises for the stored bytes of devices, by organization.

use isobar_model::ids::{DeviceKey, OrganizationId};
use isobar_model::limits::Fill;
use isobar_model::organization::OrganizationInput;

use super::given::{self, at, may, refetched};
use isobar_store::registry::{Alert, DeviceChange, Registry, Used};

async fn stored(r: &Registry, organizations: &[OrganizationId]) -> Vec<u64> {
    let mut bytes = Vec::new();
    for id in organizations {
        bytes.push(refetched(r, *id).await.bytes_stored);
    }
    bytes
}

/// Checks that a figure replaces the previous one, and counts in every organization above its device.
pub async fn stored_bytes_of_devices_are_summed(r: &Registry) {
    let top = given::organization(r, None, "Top").await.id;
    let [left, right] =
        [given::organization(r, Some(top), "L").await.id, given::organization(r, Some(top), "R").await.id];
    let project = given::project(r, top, "p").await.id;
    let a = given::device(r, left, project, "a").await;
    let b = given::device(r, left, project, "b").await;
    let c = given::device(r, right, project, "c").await;
    let nobody = DeviceKey(1_000_000);
    r.usage_write(&[(a.key, 100), (b.key, 20), (c.key, 3), (nobody, 9)]).await.unwrap();
    assert_eq!(stored(r, &[top, left, right]).await, [123, 120, 3]);
    r.usage_write(&[(a.key, 50), (c.key, 3)]).await.unwrap();
    assert_eq!(stored(r, &[top, left, right]).await, [73, 70, 3]);
    r.usage_write(&[]).await.unwrap();
    r.usage_write(&[(a.key, 0)]).await.unwrap();
    assert_eq!(stored(r, &[top, left, right]).await, [23, 20, 3]);
    let keys = |found: Vec<isobar_model::ids::DeviceRef>| found.iter().map(|device| device.key).collect::<Vec<_>>();
    assert_eq!(keys(r.devices_after(DeviceKey(0), 2).await.unwrap()), [a.key, b.key]);
    assert_eq!(keys(r.devices_after(b.key, 2).await.unwrap()), [c.key]);
    assert_eq!(keys(r.devices_after(c.key, 2).await.unwrap()), []);
}

/// Checks that a moved or deleted device takes its figure along.
pub async fn moved_device_takes_its_usage_along(r: &Registry) {
    let [left, right] = [given::organization(r, None, "L").await.id, given::organization(r, None, "R").await.id];
    let project = given::project(r, left, "p").await.id;
    let device = given::device(r, left, project, "a").await;
    r.usage_write(&[(device.key, 100)]).await.unwrap();
    let change = DeviceChange { organization: Some(right), ..given::unchanged(&device) };
    r.device_update(&may(device.reference()), &change, at(1)).await.unwrap();
    assert_eq!(stored(r, &[left, right]).await, [0, 100]);
    r.usage_write(&[(device.key, 101)]).await.unwrap();
    assert_eq!(stored(r, &[left, right]).await, [0, 101]);
    r.device_delete(&may(device.reference())).await.unwrap();
    assert_eq!(stored(r, &[left, right]).await, [0, 0]);
}

/// Checks that figures are marked as exact only by an orderly stop.
pub async fn usage_is_trusted_only_after_an_orderly_stop(r: &Registry) {
    assert!(!r.usage_begin().await.unwrap());
    r.usage_counted().await.unwrap();
    r.usage_counted().await.unwrap();
    assert!(r.usage_begin().await.unwrap());
    assert!(!r.usage_begin().await.unwrap());
}

/// Checks that limited organizations are listed with the usage of their subtree and the last notified level.
pub async fn limited_organization_has_its_usage(r: &Registry) {
    let top = given::organization(r, None, "Top").await.id;
    let low = given::organization(r, Some(top), "Low").await.id;
    given::organization(r, None, "Free").await;
    let project = given::project(r, top, "p").await.id;
    let device = given::device(r, low, project, "a").await;
    r.usage_write(&[(device.key, 100)]).await.unwrap();
    assert_eq!(r.organizations_limited().await.unwrap(), []);
    let limits = async |id: OrganizationId, devices: f64, megabytes: f64| {
        let change = OrganizationInput {
            name: "Limited".to_owned(),
            device_count_limit: Some(devices),
            data_usage_mb_limit: Some(megabytes),
            ..OrganizationInput::default()
        };
        r.organization_update(&may(id), &change, None, at(1)).await.unwrap();
    };
    limits(top, 0.0, 1.5).await;
    let found = r.organizations_limited().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id, &*found[0].name, found[0].device_count, found[0].bytes_stored), (top, "Limited", 1, 100));
    assert_eq!((found[0].device_count_limit, found[0].data_usage_mb_limit), (0.0, 1.5));
    assert_eq!((found[0].devices.fill, found[0].devices.told, found[0].data.fill), (Fill::Below, true, Fill::Below));
    let alert = |fill, told| Alert { fill, since: at(7), told };
    let begun = found[0].data;
    let set = async |id, before, after| r.organization_alert_set(id, Used::Data, before, after).await.unwrap();
    assert!(set(top, begun, alert(Fill::Near, true)).await);
    assert!(set(top, alert(Fill::Near, true), alert(Fill::Full, false)).await);
    assert!(!set(OrganizationId(given::uuid()), begun, alert(Fill::Full, false)).await);
    // Of two that have seen the same level one records the next.
    for late in [begun, alert(Fill::Near, true), Alert { since: at(8), ..alert(Fill::Full, false) }] {
        assert!(!set(top, late, Alert { since: at(9), ..alert(Fill::Near, false) }).await, "{late:?}");
    }
    let found = r.organizations_limited().await.unwrap();
    assert_eq!((found[0].devices.fill, found[0].data), (Fill::Below, alert(Fill::Full, false)));
}
