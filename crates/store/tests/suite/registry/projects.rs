//! Projects and their specifications.

use isobar_model::ids::{OrganizationId, ProjectId, UserId};
use isobar_model::project::SpecificationInput;
use isobar_model::retention::DesignRetention;

use super::given::{self, at, json, lists, lists_all, may, search, sees, sorted};
use isobar_store::error::StoreError;
use isobar_store::registry::{NewProject, NewSpecification, Registry};

/// Checks that a project has an empty specification from the start.
pub async fn a_project_begins_with_an_empty_specification(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let maker = UserId(given::uuid());
    let new = NewProject { id: ProjectId(given::uuid()), name: "Fridges".to_owned(), created_by: Some(maker) };
    let made = r.project_create(&may(home.id), new, at(4)).await.unwrap();
    assert_eq!((&*made.name, made.organization, &*made.organization_name), ("Fridges", home.id, "Home"));
    assert_eq!((&made.lineage, made.created_by, made.created_at), (&home.lineage, Some(maker), at(4)));
    assert_eq!(r.project_fetch(&sees(made.id)).await.unwrap().as_ref(), Some(&made));
    assert_eq!(r.project_placement(made.id).await.unwrap(), Some(home.lineage));
    let specification = r.specification_fetch(&sees(made.id)).await.unwrap().unwrap();
    assert_eq!((&*specification.name, &*specification.create_version), ("Fridges", "2"));
    assert_eq!((specification.meta.text(), specification.planes.text()), ("{}", "{}"));
    assert_eq!((specification.created, specification.last_modified), (at(4), at(4)));
    let nobody = ProjectId(given::uuid());
    assert_eq!(r.specification_fetch(&sees(nobody)).await.unwrap(), None);
    assert_eq!(r.project_placement(nobody).await.unwrap(), None);
    let new = NewProject { id: nobody, name: "x".to_owned(), created_by: None };
    let gone = r.project_create(&may(OrganizationId(given::uuid())), new, at(0)).await;
    assert!(matches!(gone, Err(StoreError::Gone("organization"))));
}

/// Checks that a specification is returned as it was written: its spaces, its numbers, its order.
pub async fn specification_is_stored_byte_for_byte(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let input = SpecificationInput {
        name: "Ünit".to_owned(),
        create_version: "3".to_owned(),
        description: "long".to_owned(),
        meta: json(r#"{"z": 1.10, "a": "\u0000 \"?\" $1 {text}"}"#),
        planes: json(r#"{"cloud" : {"elements":{}},  "n": 12345678901234567890}"#),
    };
    let (new, kept) = (NewSpecification::new(input.clone()), DesignRetention::new());
    let (written, _) = r.specification_write(&may(project), &new, None, &[], &kept, at(7)).await.unwrap();
    assert_eq!((&written.meta, &written.planes), (&input.meta, &input.planes));
    assert_eq!((written.created, written.last_modified), (at(0), at(7)));
    assert_eq!(r.specification_fetch(&sees(project)).await.unwrap(), Some(written));
    let nobody = may(ProjectId(given::uuid()));
    let gone = r.specification_write(&nobody, &new, None, &[], &kept, at(7)).await;
    assert!(matches!(gone, Err(StoreError::Gone("project"))));
}

/// Checks that the list supports type, order and search, and that a search finds identifiers too.
pub async fn projects_are_listed_by_type(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let below = given::organization(r, Some(home.id), "Below").await;
    let fridges = given::project(r, home.id, "Fridges").await;
    let doors = given::project(r, below.id, "doors").await;
    let names = |kind, request| async move {
        let page = r.project_list(&lists_all(), kind, &request).await.unwrap();
        page.items.into_iter().map(|project| project.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, sorted(&[])).await, ["Fridges", "doors"]);
    assert_eq!(names(Some("api"), sorted(&["-name"])).await, ["doors", "Fridges"]);
    assert!(names(Some("other"), sorted(&[])).await.is_empty());
    assert_eq!(names(None, search("DOOR")).await, ["doors"]);
    assert_eq!(names(None, search(&fridges.id.to_string()[4..])).await, ["Fridges"]);
    let own = r.project_list(&lists(&below.lineage, None), None, &sorted(&[])).await.unwrap();
    assert_eq!(own.items, [doors]);
}

/// Checks that a project moves to another organization, and is deleted only when no device uses it.
pub async fn project_is_moved_and_deleted(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let other = given::organization(r, None, "Other").await;
    let project = given::project(r, home.id, "p").await;
    let renamed = r.project_update(&may(project.id), "q", None, at(2)).await.unwrap();
    assert_eq!((&*renamed.name, renamed.organization, renamed.updated_at), ("q", home.id, at(2)));
    let moved = r.project_update(&may(project.id), "q", Some(other.id), at(3)).await.unwrap();
    assert_eq!((moved.organization, moved.lineage, &*moved.organization_name), (other.id, other.lineage, "Other"));
    let nowhere = r.project_update(&may(project.id), "q", Some(OrganizationId(given::uuid())), at(3)).await;
    assert!(matches!(nowhere, Err(StoreError::Gone("organization"))));

    let device = given::device(r, home.id, project.id, "d").await;
    assert!(matches!(r.project_delete(&may(project.id)).await, Err(StoreError::InUse(_))));
    r.device_delete(&may(device.reference())).await.unwrap();
    r.project_delete(&may(project.id)).await.unwrap();
    assert_eq!(r.specification_fetch(&sees(project.id)).await.unwrap(), None);
    assert!(matches!(r.project_delete(&may(project.id)).await, Err(StoreError::Gone("project"))));
    assert!(matches!(r.project_update(&may(project.id), "q", None, at(4)).await, Err(StoreError::Gone("project"))));
}
