//! The tree of organizations.

use isobar_model::check::Patch;
use isobar_model::ids::OrganizationId;
use isobar_model::organization::{LEVELS_MAX, Organization, OrganizationInput};
use isobar_model::status::Status;

use super::given::{self, at, json, lists, lists_all, may, page, refetched, sees, sorted};
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceReport, Registry};

/// Checks that an organization has its lineage, the names along it, and a flag for children.
pub async fn organization_has_its_position_in_the_tree(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let mut new = given::new_organization("Middle");
    new.description = Some("in between".to_owned());
    new.children_inherit_dashboard = true;
    new.device_table = Some(json(r#"{"columns": [1.50]}"#));
    let middle = r.organization_create(&may(Some(top.id)), new, at(5)).await.unwrap();
    let low = given::organization(r, Some(middle.id), "Low").await;

    assert_eq!(middle.lineage.ids(), [top.id, middle.id]);
    assert_eq!(low.lineage.ids(), [top.id, middle.id, low.id]);
    assert_eq!(low.names, ["Top", "Middle", "Low"]);
    assert!(!low.has_children);
    let middle = refetched(r, middle.id).await;
    assert!(middle.has_children);
    assert_eq!(middle.description.as_deref(), Some("in between"));
    assert!(middle.children_inherit_dashboard);
    assert_eq!(middle.device_table, Some(json(r#"{"columns": [1.50]}"#)));
    assert_eq!((middle.created_at, middle.updated_at), (at(5), at(5)));
    assert_eq!((middle.device_count_limit, middle.data_usage_mb_limit), (0.0, 0.0));
    assert_eq!(r.organization_lineage(low.id).await.unwrap(), Some(low.lineage));
    let nobody = OrganizationId(given::uuid());
    assert_eq!(r.organization_lineage(nobody).await.unwrap(), None);
    assert_eq!(r.organization_fetch(&sees(nobody)).await.unwrap(), None);
}

/// Checks that a parent must exist.
pub async fn deleted_parent_accepts_no_child(r: &Registry) {
    let nobody = OrganizationId(given::uuid());
    let made = r.organization_create(&may(Some(nobody)), given::new_organization("Orphan"), at(0)).await;
    assert!(matches!(made, Err(StoreError::Gone("organization"))));
    assert_eq!(r.organization_list(&lists_all(), true, &page(1, 10)).await.unwrap().total, 0);
}

/// Checks that the depth of a lineage is limited.
pub async fn depth_of_the_tree_is_bounded(r: &Registry) {
    let mut parent = None;
    for level in 1..=LEVELS_MAX {
        parent = Some(given::organization(r, parent, &format!("level {level}")).await.id);
    }
    let made = r.organization_create(&may(parent), given::new_organization("too deep"), at(0)).await;
    assert!(matches!(made, Err(StoreError::Limit(_))));
}

async fn status(r: &Registry, organization: OrganizationId, name: &str, status: Status) {
    let project = given::project(r, organization, "p").await;
    let device = given::device(r, organization, project.id, name).await;
    let report = DeviceReport { status: Some(status), ..DeviceReport::default() };
    given::reports(r, device.reference(), &report, at(1)).await;
}

/// Checks that devices are counted, and the most urgent status shown, over the whole subtree and nothing else.
pub async fn subtree_has_its_totals(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let left = given::organization(r, Some(top.id), "Left").await;
    let right = given::organization(r, Some(top.id), "Right").await;
    let low = given::organization(r, Some(left.id), "Low").await;
    let other = given::organization(r, None, "Other").await;
    status(r, low.id, "a", Status::Warning).await;
    status(r, low.id, "b", Status::Good).await;
    status(r, right.id, "c", Status::Info).await;
    status(r, other.id, "d", Status::Missing).await;

    let expected = |organization: &Organization| match &*organization.name {
        "Top" => (3, Status::Warning, true),
        "Left" => (2, Status::Warning, true),
        "Right" => (1, Status::Info, false),
        "Low" => (2, Status::Warning, false),
        _ => (1, Status::Missing, false),
    };
    let listed = r.organization_list(&lists_all(), true, &page(1, 10)).await.unwrap();
    assert_eq!(listed.total, 5);
    for organization in listed.items {
        let found = (organization.device_count, organization.status, organization.has_children);
        assert_eq!(found, expected(&organization), "{}", organization.name);
        assert_eq!(refetched(r, organization.id).await, organization);
    }
}

async fn names(r: &Registry, base: &Organization, levels: Option<u32>, include_base: bool) -> Vec<String> {
    let list = r.organization_list(&lists(&base.lineage, levels), include_base, &sorted(&["name"])).await.unwrap();
    assert_eq!(list.total, list.items.len() as u64);
    list.items.into_iter().map(|organization| organization.name).collect()
}

/// Checks that levels are counted from the base, which may be included in the list.
pub async fn organizations_are_listed_by_level(r: &Registry) {
    let top = given::organization(r, None, "a").await;
    let base = given::organization(r, Some(top.id), "b").await;
    let child = given::organization(r, Some(base.id), "c").await;
    given::organization(r, Some(child.id), "d").await;
    given::organization(r, Some(top.id), "e").await;
    assert_eq!(names(r, &base, Some(1), true).await, ["b"]);
    assert_eq!(names(r, &base, Some(2), true).await, ["b", "c"]);
    assert_eq!(names(r, &base, Some(2), false).await, ["c"]);
    assert_eq!(names(r, &base, Some(3), true).await, ["b", "c", "d"]);
    assert_eq!(names(r, &base, None, false).await, ["c", "d"]);
    assert_eq!(names(r, &top, None, true).await, ["a", "b", "c", "d", "e"]);
    assert_eq!(names(r, &top, Some(u32::MAX), true).await.len(), 5);
}

/// Checks that a change of values does not move the organization.
pub async fn organization_is_changed_in_place(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let change = OrganizationInput {
        name: "Deep".to_owned(),
        description: Patch::Set("quite".to_owned()),
        children_inherit_dashboard: Some(true),
        device_table: Patch::Set(json("{}")),
        device_count_limit: Some(7.0),
        data_usage_mb_limit: Some(0.5),
        ..OrganizationInput::default()
    };
    let (changed, is_renamed) = r.organization_update(&may(low.id), &change, None, at(9)).await.unwrap();
    assert!(is_renamed);
    assert_eq!(changed.names, ["Top", "Deep"]);
    assert_eq!((changed.device_count_limit, changed.data_usage_mb_limit), (7.0, 0.5));
    assert_eq!((changed.created_at, changed.updated_at), (at(0), at(9)));
    assert_eq!(refetched(r, low.id).await, changed);
    let found = r.organization_list(&lists_all(), true, &given::search("QUIT")).await.unwrap();
    assert_eq!(found.items, std::slice::from_ref(&changed));
    // A change keeps omitted values.
    let bare = OrganizationInput { name: "Low".to_owned(), ..OrganizationInput::default() };
    let (renamed, _) = r.organization_update(&may(low.id), &bare, None, at(9)).await.unwrap();
    assert_eq!(renamed, Organization { name: "Low".to_owned(), names: renamed.names.clone(), ..changed });
    let (_, is_renamed) = r.organization_update(&may(low.id), &bare, None, at(9)).await.unwrap();
    assert!(!is_renamed);
    let gone = r.organization_update(&may(OrganizationId(given::uuid())), &change, None, at(9)).await;
    assert!(matches!(gone, Err(StoreError::Gone("organization"))));
}

/// Checks that only an empty organization can be deleted.
pub async fn organization_in_use_cannot_be_deleted(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    assert!(matches!(r.organization_delete(&may(top.id)).await, Err(StoreError::InUse(_))));
    let user = given::user(r, low.id, "ana").await;
    assert!(matches!(r.organization_delete(&may(low.id)).await, Err(StoreError::InUse(_))));
    r.user_delete(&may(user.id)).await.unwrap();
    let project = given::project(r, low.id, "p").await;
    assert!(matches!(r.organization_delete(&may(low.id)).await, Err(StoreError::InUse(_))));
    r.project_delete(&may(project.id)).await.unwrap();
    r.organization_delete(&may(low.id)).await.unwrap();
    assert_eq!(r.organization_fetch(&sees(low.id)).await.unwrap(), None);
    assert!(matches!(r.organization_delete(&may(low.id)).await, Err(StoreError::Gone("organization"))));
    assert!(!refetched(r, top.id).await.has_children);
}
