//! Devices that move from one organization to another.

use isobar_model::organization::Organization;

use super::given::{self, at, fetched, json, lists, may, refetched, search, sorted};
use crate::error::StoreError;
use crate::registry::{DeviceChange, OrganizationChange, Registry};

/// Sets an organization's device limit and leaves the rest as it is.
pub(super) async fn limit(r: &Registry, organization: &Organization, devices: f64) {
    let name = organization.name.clone();
    let change = OrganizationChange { name, device_count_limit: Some(devices), ..OrganizationChange::default() };
    r.organization_update(&may(organization.id), &change, None, at(0)).await.unwrap();
}

/// A device is changed as a whole, and moves only to where there is room; a limit that counts it already does not mind.
pub async fn a_device_moves_where_there_is_room(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let [left, right] =
        [given::organization(r, Some(top.id), "L").await, given::organization(r, Some(top.id), "R").await];
    let project = given::project(r, top.id, "p").await.id;
    let next = given::project(r, top.id, "q").await.id;
    limit(r, &top, 2.0).await;
    let device = given::device(r, left.id, project, "a").await;
    given::device(r, right.id, project, "b").await;
    limit(r, &right, 1.0).await;
    let change = DeviceChange {
        organization: Some(right.id),
        project: next,
        name: "moved".to_owned(),
        meta: Some(json(r#"{"x": "y"}"#)),
        ..given::unchanged(&device)
    };
    let full = r.device_update(&may(device.reference()), &change, at(2)).await;
    assert!(matches!(full, Err(StoreError::Limit(_))));
    assert_eq!(fetched(r, device.reference()).await, device);

    limit(r, &right, 2.0).await;
    let moved = r.device_update(&may(device.reference()), &change, at(2)).await.unwrap();
    assert_eq!((moved.organization, moved.project, &*moved.name), (right.id, next, "moved"));
    assert_eq!((moved.key, moved.lineage.clone(), moved.updated_at), (device.key, right.lineage.clone(), at(2)));
    assert_eq!(Some(&moved.meta), change.meta.as_ref());
    let counts = [refetched(r, left.id).await.device_count, refetched(r, right.id).await.device_count];
    assert_eq!(counts, [0, 2]);
    for request in [sorted(&["name"]), sorted(&["lastActive"]), search("moved"), search("y")] {
        let beneath = r.device_list(&lists(&right.lineage, None), &request).await.unwrap();
        assert!(beneath.items.contains(&moved), "{request:?}");
        assert_eq!(r.device_list(&lists(&left.lineage, None), &request).await.unwrap().total, 0, "{request:?}");
    }
    let nowhere = DeviceChange { project: isobar_model::ids::ProjectId(given::uuid()), ..change };
    let refused = r.device_update(&may(device.reference()), &nowhere, at(3)).await;
    assert!(matches!(refused, Err(StoreError::Gone("project"))));
}

/// Moves to and fro never wait for each other, and nothing is counted twice.
pub async fn moves_both_ways_at_the_same_time(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let [left, right] =
        [given::organization(r, Some(top.id), "L").await, given::organization(r, Some(top.id), "R").await];
    let project = given::project(r, top.id, "p").await.id;
    limit(r, &left, 100.0).await;
    limit(r, &right, 100.0).await;
    let mut tasks = Vec::new();
    for number in 0..16 {
        let (from, to) = if number % 2 == 0 { (left.id, right.id) } else { (right.id, left.id) };
        let device = given::device(r, from, project, "d").await;
        let change = DeviceChange { organization: Some(to), ..given::unchanged(&device) };
        let r = r.clone();
        tasks.push(tokio::spawn(async move { r.device_update(&may(device.reference()), &change, at(1)).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let counts = [refetched(r, left.id).await, refetched(r, right.id).await, refetched(r, top.id).await];
    assert_eq!(counts.map(|organization| organization.device_count), [8, 8, 16]);
}
