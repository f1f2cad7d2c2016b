//! Devices.

use isobar_model::device::{Location, PostalCode, StreetAddress};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::status::Status;

use super::given::{self, at, digest, fetched, json, may, sees};
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceReport, Registry};

/// Checks that a device is read as it was written.
pub async fn device_is_stored_unchanged(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let project = given::project(r, home.id, "p").await.id;
    let mut new = given::new_device(project, "Kühlschrank");
    new.version = Some("v1".to_owned());
    new.protocol = Some("lora".to_owned());
    new.protocols = vec!["lora".to_owned(), "http".to_owned()];
    new.meta = json(r#"{"b":1.0, "a":[null]}"#);
    new.description = Some(String::new());
    let postal_code = Some(PostalCode::Number(1234));
    new.street_address = Some(StreetAddress { city: Some("Bern".to_owned()), postal_code, ..Default::default() });
    new.created_by = Some(UserId(given::uuid()));
    let made = r.device_create(&may(home.id), new.clone(), at(8)).await.unwrap();
    assert_eq!((made.id, &made.name, made.project, made.organization), (new.id, &new.name, project, home.id));
    assert_eq!((&made.lineage, &*made.organization_name), (&home.lineage, "Home"));
    assert_eq!((&made.version, &made.protocol, &made.protocols), (&new.version, &new.protocol, &new.protocols));
    assert_eq!(
        (&made.meta, &made.description, &made.street_address),
        (&new.meta, &new.description, &new.street_address)
    );
    assert_eq!((made.status, made.location, made.last_active), (Status::None, None, None));
    assert_eq!((made.created_by, made.created_at, made.updated_at), (new.created_by, at(8), at(8)));
    assert_eq!(fetched(r, made.reference()).await, made);
    assert_eq!(r.device_by_token(&new.token).await.unwrap(), Some(made.id));
    assert_eq!(r.device_placement(made.id).await.unwrap(), Some((made.reference(), home.lineage)));
    assert_eq!(r.device_placement(DeviceId(given::uuid())).await.unwrap(), None);
}

/// Checks that the number of a removed device is never assigned again: the telemetry store may still have rows under
/// it.
pub async fn device_number_is_never_reused(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let mut newest = 0;
    for round in 0..3 {
        let device = given::device(r, home, project, "d").await;
        assert!(device.key.0 > newest, "round {round}");
        newest = device.key.0;
        r.device_delete(&may(device.reference())).await.unwrap();
        assert_eq!(r.device_fetch(&sees(device.reference())).await.unwrap(), None);
    }
    assert_eq!(given::refetched(r, home).await.device_count, 0);
}

/// Checks that writers wait for each other, and that none is refused.
pub async fn fifty_devices_are_created_concurrently(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let made = at_once(r, home, project, 50).await;
    assert!(made.iter().all(Result::is_ok), "{:?}", made.iter().find(|made| made.is_err()));
    assert_eq!(given::refetched(r, home).await.device_count, 50);
    assert_eq!(r.device_list(&given::lists_all(), &given::page(1, 10)).await.unwrap().total, 50);
}

async fn at_once(
    r: &Registry,
    organization: OrganizationId,
    project: ProjectId,
    count: usize,
) -> Vec<Result<DeviceRef, StoreError>> {
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let (r, new) = (r.clone(), given::new_device(project, &format!("d{number}")));
            tokio::spawn(async move { r.device_create(&may(organization), new, at(0)).await.map(|d| d.reference()) })
        })
        .collect();
    let mut made = Vec::new();
    for task in tasks {
        made.push(task.await.unwrap());
    }
    made
}

/// Checks that a limit counts all devices of the subtree, and applies to all of it.
// Holds: c5.limits
pub async fn a_limit_holds_for_the_whole_subtree(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let project = given::project(r, top.id, "p").await.id;
    super::limit(r, &top, 2.0).await;
    given::device(r, top.id, project, "a").await;
    let second = given::device(r, low.id, project, "b").await;
    for organization in [top.id, low.id] {
        let refused = r.device_create(&may(organization), given::new_device(project, "c"), at(0)).await;
        assert!(matches!(refused, Err(StoreError::Limit(_))));
    }
    r.device_delete(&may(second.reference())).await.unwrap();
    given::device(r, low.id, project, "c").await;
    super::limit(r, &top, 0.0).await;
    given::device(r, low.id, project, "d").await;
    let beside = given::organization(r, None, "Beside").await;
    given::device(r, beside.id, project, "e").await;
}

/// Checks that a limit is met exactly by concurrent requests.
pub async fn device_limit_is_exact_for_concurrent_requests(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let project = given::project(r, top.id, "p").await.id;
    super::limit(r, &top, 7.0).await;
    let (above, below) = tokio::join!(at_once(r, top.id, project, 12), at_once(r, low.id, project, 12));
    let made = above.iter().chain(&below).filter(|made| made.is_ok()).count();
    let refused = above.iter().chain(&below).filter(|made| matches!(made, Err(StoreError::Limit(_)))).count();
    assert_eq!((made, refused), (7, 17));
    assert_eq!(given::refetched(r, top.id).await.device_count, 7);
}

/// Checks that a rotated token works at once, and the old one no more.
pub async fn rotated_token_revokes_the_old_one(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let new = given::new_device(project, "d");
    let (old, fresh) = (new.token, digest());
    let device = r.device_create(&may(home), new, at(0)).await.unwrap().reference();
    r.device_token_set(&may(device), &fresh).await.unwrap();
    assert_eq!(r.device_by_token(&old).await.unwrap(), None);
    assert_eq!(r.device_by_token(&fresh).await.unwrap(), Some(device.id));
}

/// Checks that reports that are late, repeated or for no device do no harm.
pub async fn activity_of_a_device_moves_forwards_only(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let a = given::device(r, home, project, "a").await.reference();
    let b = given::device(r, home, project, "b").await.reference();
    r.devices_touch(&[]).await.unwrap();
    r.devices_touch(&[(a.key, at(9)), (b.key, at(3)), (a.key, at(5)), (DeviceKey(9_999), at(1))]).await.unwrap();
    r.devices_touch(&[(a.key, at(7)), (b.key, at(4))]).await.unwrap();
    let heard = (fetched(r, a).await.last_active, fetched(r, b).await.last_active);
    assert_eq!(heard, (Some(at(9)), Some(at(4))));
    assert_eq!(fetched(r, a).await.updated_at, at(0));
}

/// Checks that a report sets the fields that it names and no others, and that its repetition changes nothing.
pub async fn report_changes_named_members_alone(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let mut new = given::new_device(project, "d");
    new.meta = json(r#"{"keep": 1.50, "set": "old"}"#);
    let device = r.device_create(&may(home), new, at(0)).await.unwrap().reference();
    let report = DeviceReport {
        status: Some(Status::Critical),
        meta: vec![("set".to_owned(), json(r#""New""#)), ("more".to_owned(), json(r#"{"x":[1.0]}"#))],
        location: Location::new(46.9, 7.4),
        ..DeviceReport::default()
    };
    given::reports(r, device, &report, at(3)).await;
    given::reports(r, device, &report, at(4)).await;
    let reported = fetched(r, device).await;
    assert_eq!((reported.status, reported.location, reported.updated_at), (Status::Critical, report.location, at(3)));
    assert_eq!(reported.meta.text(), r#"{"keep":1.50,"set":"New","more":{"x":[1.0]}}"#);
    let found = |text| async move { r.device_list(&given::lists_all(), &given::search(text)).await.unwrap().total };
    assert_eq!((found("new").await, found("old").await), (1, 0));

    let status = DeviceReport { status: Some(Status::Good), ..DeviceReport::default() };
    given::reports(r, device, &status, at(5)).await;
    let after = fetched(r, device).await;
    assert_eq!((after.status, after.location, &after.meta), (Status::Good, reported.location, &reported.meta));
    given::reports(r, device, &DeviceReport::default(), at(6)).await;
    assert_eq!(fetched(r, device).await.updated_at, at(5));

    // All of it again, as after a crash: it ends as it was, and when it was.
    for (report, moment) in [(&report, at(3)), (&status, at(5))] {
        given::reports(r, device, report, moment).await;
    }
    let again = fetched(r, device).await;
    assert_eq!((again.status, again.meta, again.updated_at), (Status::Good, after.meta, at(5)));
}

/// Checks that a reference to a missing row is refused with the name of that row.
pub async fn missing_row_is_named_in_the_refusal(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let nowhere = r.device_create(&may(OrganizationId(given::uuid())), given::new_device(project, "d"), at(0)).await;
    assert!(matches!(nowhere, Err(StoreError::Gone("organization"))));
    let unplanned = given::new_device(ProjectId(given::uuid()), "d");
    let made = r.device_create(&may(home), unplanned, at(0)).await;
    assert!(matches!(made, Err(StoreError::Gone("project"))));
    assert_eq!(given::refetched(r, home).await.device_count, 0);

    let device = given::device(r, home, project, "d").await;
    r.device_delete(&may(device.reference())).await.unwrap();
    let permit = may(device.reference());
    assert!(matches!(r.device_delete(&permit).await, Err(StoreError::Gone("device"))));
    assert!(matches!(r.device_token_set(&permit, &digest()).await, Err(StoreError::Gone("device"))));
    let change = given::unchanged(&device);
    assert!(matches!(r.device_update(&permit, &change, at(1)).await, Err(StoreError::Gone("device"))));
}
