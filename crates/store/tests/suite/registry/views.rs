//! Views of the device list.

use isobar_model::ids::{OrganizationId, UserId, ViewId};
use isobar_model::view::{View, ViewInput};

use super::given::{self, at, json, may, sees};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;

/// More views than these scenes make, so that none is refused.
const MANY: usize = 50;

fn input(text: &str) -> ViewInput {
    ViewInput::read(&json(text).tree()).unwrap()
}

fn named(name: &str) -> ViewInput {
    input(&format!(r#"{{"name": "{name}", "query": "q={name}"}}"#))
}

fn of_organization(name: &str, organization: OrganizationId) -> ViewInput {
    input(&format!(r#"{{"name": "{name}", "query": "", "organizationId": "{organization}"}}"#))
}

async fn make(r: &Registry, user: UserId, view: ViewInput) -> View {
    r.view_create(&may(user), ViewId(given::uuid()), view, MANY, at(1)).await.unwrap().unwrap()
}

async fn names(r: &Registry, user: UserId) -> Vec<String> {
    r.view_list(&sees(user)).await.unwrap().into_iter().map(|view| view.name).collect()
}

async fn two_users(r: &Registry) -> (UserId, UserId) {
    let home = given::organization(r, None, "Home").await.id;
    (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id)
}

/// Checks that a view has its last written state, and that views of other users are not found.
// Holds: c13.viewsOwn
pub async fn view_is_visible_to_its_user_alone(r: &Registry) {
    let (ana, bob) = two_users(r).await;
    let view = make(r, ana, named("b")).await;
    make(r, ana, named("a")).await;
    assert_eq!(names(r, ana).await, ["a", "b"]);
    assert_eq!(r.view_fetch(&sees(ana), view.id).await.unwrap(), Some(view.clone()));
    let changed = r.view_update(&may(ana), view.id, named("B"), at(5)).await.unwrap();
    let expected = View { name: "B".to_owned(), query: "q=B".to_owned(), updated_at: at(5), ..view.clone() };
    assert_eq!((&changed, names(r, ana).await), (&expected, vec!["B".to_owned(), "a".to_owned()]));
    assert_eq!(r.view_fetch(&sees(ana), view.id).await.unwrap(), Some(expected));
    assert_eq!((names(r, bob).await, r.view_fetch(&sees(bob), view.id).await.unwrap()), (Vec::new(), None));
    let refused = r.view_update(&may(bob), view.id, named("x"), at(6)).await;
    assert!(matches!(refused, Err(StoreError::Gone("view"))));
    assert!(!r.view_delete(&may(bob), view.id).await.unwrap());
    assert!(r.view_delete(&may(ana), view.id).await.unwrap());
    assert!(!r.view_delete(&may(ana), view.id).await.unwrap());
    assert_eq!(names(r, ana).await, ["a"]);
}

/// Checks that no two views of a user have one name, also for concurrent requests.
// Holds: c13.views
pub async fn name_of_a_view_is_unique(r: &Registry) {
    let (ana, bob) = two_users(r).await;
    let view = make(r, ana, named("a")).await;
    let other = make(r, ana, named("A")).await;
    make(r, bob, named("a")).await;
    let is_taken = |error: &StoreError| matches!(error, StoreError::Taken { fields } if fields == &["name"]);
    assert!(is_taken(&r.view_update(&may(ana), other.id, named("a"), at(2)).await.unwrap_err()));
    // Its own name is no other's.
    r.view_update(&may(ana), view.id, named("a"), at(2)).await.unwrap();
    let permit = may(ana);
    let make = |name: &str| r.view_create(&permit, ViewId(given::uuid()), named(name), MANY, at(3));
    let (left, right) = tokio::join!(make("new"), make("new"));
    let (made, refused) = if left.is_ok() { (left, right) } else { (right, left) };
    assert!(made.unwrap().is_some() && is_taken(&refused.unwrap_err()));
    assert_eq!(names(r, ana).await, ["A", "a", "new"]);
}

/// Checks that the last place is taken once by concurrent requests.
// Holds: c13.views
pub async fn views_of_a_user_are_bounded(r: &Registry) {
    let (ana, _) = two_users(r).await;
    let permit = may(ana);
    let make = |name: &str| r.view_create(&permit, ViewId(given::uuid()), named(name), 2, at(1));
    let first = make("a").await.unwrap().unwrap();
    let (left, right) = tokio::join!(make("b"), make("c"));
    assert!(left.unwrap().is_some() != right.unwrap().is_some());
    assert_eq!(names(r, ana).await.len(), 2);
    // Existing views can still be changed.
    r.view_update(&permit, first.id, named("d"), at(2)).await.unwrap();
}

/// Checks that views are deleted with their user, and with the organization that they show.
// Holds: c13.viewsOwn
pub async fn views_are_deleted_with_user_or_organization(r: &Registry) {
    let (ana, _) = two_users(r).await;
    let shown = given::organization(r, None, "Shown").await.id;
    let tied = make(r, ana, of_organization("tied", shown)).await;
    assert_eq!(tied.organization, Some(shown));
    // Left out it stays.
    assert_eq!(r.view_update(&may(ana), tied.id, named("tied"), at(2)).await.unwrap().organization, Some(shown));
    let free = make(r, ana, named("free")).await;
    let nobody = OrganizationId(given::uuid());
    let refused = r.view_create(&may(ana), ViewId(given::uuid()), of_organization("x", nobody), MANY, at(1)).await;
    assert!(matches!(refused, Err(StoreError::Gone("organization"))));
    let refused = r.view_update(&may(ana), free.id, of_organization("x", nobody), at(1)).await;
    assert!(matches!(refused, Err(StoreError::Gone("organization"))));
    r.organization_delete(&may(shown)).await.unwrap();
    assert_eq!(names(r, ana).await, ["free"]);
    r.user_delete(&may(ana)).await.unwrap();
    assert_eq!(r.view_fetch(&sees(ana), free.id).await.unwrap(), None);
    let gone = r.view_create(&may(ana), ViewId(given::uuid()), named("x"), MANY, at(1)).await;
    assert!(matches!(gone, Err(StoreError::Gone("user"))));
}
