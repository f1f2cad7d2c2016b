//! Devices that move from one organization to another.

use std::collections::HashMap;

use futures::future::join_all;
use isobar_model::organization::{Organization, OrganizationInput};

use super::given::{self, at, fetched, json, lists, lists_all, may, refetched, search, sorted};
use super::timers::designs;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceChange, DeviceSelection, NewDevices, NewTagged, Registry};

/// Sets an organization's device limit and changes nothing else.
pub(super) async fn limit(r: &Registry, organization: &Organization, devices: f64) {
    let name = organization.name.clone();
    let change = OrganizationInput { name, device_count_limit: Some(devices), ..OrganizationInput::default() };
    r.organization_update(&may(organization.id), &change, None, at(0)).await.unwrap();
}

/// Checks that a device is changed as a whole, that it moves only to an organization with room, and that a limit which
/// counts it already does not refuse it.
pub async fn device_moves_within_limits(r: &Registry) {
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
    // A change that was decided in the old organization is refused.
    let outdated = r.device_update(&may(device.reference()), &change, at(3)).await;
    assert!(matches!(outdated, Err(StoreError::Outdated(_))));
    let nowhere = DeviceChange { project: isobar_model::ids::ProjectId(given::uuid()), ..given::unchanged(&moved) };
    let refused = r.device_update(&may(device.reference()), &nowhere, at(3)).await;
    assert!(matches!(refused, Err(StoreError::Gone("project"))));
}

/// Checks that moves in both directions never deadlock, and that nothing is counted twice.
pub async fn concurrent_moves_in_both_directions_succeed(r: &Registry) {
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

/// Checks that devices can be created, provisioned, moved to another project and deleted concurrently, while the
/// projects get new designs, and that each project counts its own.
pub async fn project_counts_its_devices_during_moves(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let projects = [given::project(r, home, "p").await.id, given::project(r, home, "q").await.id];
    for round in 0..8 {
        let mut devices = Vec::new();
        for number in 0..8 {
            devices.push(given::device(r, home, projects[number % 2], "d").await);
        }
        let moves = devices[..4].iter().map(|device| async {
            let next = projects[usize::from(device.project == projects[0])];
            let change = DeviceChange { project: next, ..given::unchanged(device) };
            r.device_update(&may(device.reference()), &change, at(1)).await.unwrap();
        });
        let goes = devices[4..].iter().map(|device| async { r.device_delete(&may(device.reference())).await.unwrap() });
        let comes = (0..4).map(|number| async move {
            let [first, second] = [projects[number % 2], projects[(number + 1) % 2]];
            let devices = vec![given::new_device(first, "e"), given::new_device(second, "f")];
            r.devices_create(&[NewDevices { permit: may(home), devices }], at(1)).await.unwrap();
            given::device(r, home, first, "g").await;
            let tagged = NewTagged { value: format!("{round} {number}"), device: given::new_device(second, "h") };
            r.devices_provision(&may(home), given::tag("eui"), &[tagged], at(1)).await.unwrap();
        });
        let designs = (0..4_u32).map(|number| async move {
            designs(r, projects[number as usize % 2], &[("tick", 1 + number)], 1).await;
        });
        tokio::join!(join_all(moves), join_all(goes), join_all(comes), join_all(designs));
    }
    let devices = r.device_list(&lists_all(), &given::page(1, 1_000)).await.unwrap();
    let mut expected = HashMap::new();
    devices.items.iter().for_each(|device| *expected.entry(device.project).or_default() += 1);
    let summary = r.device_summary(&lists_all(), &DeviceSelection::default(), at(2)).await.unwrap();
    let counted: HashMap<_, u64> = summary.by_project.iter().map(|project| (project.project, project.count)).collect();
    assert_eq!((counted, summary.total), (expected, 8 * (4 + 4 * 4)));
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
}
