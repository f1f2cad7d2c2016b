//! The dashboards of organizations.

use isobar_model::appearance::DashboardInput;
use isobar_model::board::Board;
use isobar_model::ids::{DashboardId, OrganizationId};
use isobar_model::organization::OrganizationInput;
use isobar_model::version::IfMatch;

use super::given::{self, at, json, may, sees};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;

/// More boards than these scenes make.
const MANY: u64 = 100;

/// Reads the input of a dashboard from a body.
pub(super) fn board_input(text: &str) -> DashboardInput {
    DashboardInput::read(&json(text).tree()).unwrap()
}

fn named(name: &str) -> DashboardInput {
    board_input(&format!(r#"{{"name": "{name}", "configuration": {{"of": "{name}"}}}}"#))
}

async fn make(r: &Registry, owner: OrganizationId, name: &str) -> Board {
    let id = DashboardId(given::uuid());
    r.board_create(&may(owner), id, named(name), MANY, at(1)).await.unwrap().unwrap()
}

async fn names(r: &Registry, of: OrganizationId) -> Vec<(String, bool)> {
    let boards = r.board_list(&sees(of)).await.unwrap();
    boards.into_iter().map(|board| (board.name.unwrap_or_default(), board.is_inherited)).collect()
}

async fn lends(r: &Registry, id: OrganizationId) {
    let change =
        OrganizationInput { name: "x".to_owned(), children_inherit_dashboard: Some(true), ..Default::default() };
    r.organization_update(&may(id), &change, None, at(1)).await.unwrap();
}

/// Checks that the first dashboard is the oldest, or the next oldest once it is deleted, and that a change keeps the
/// order.
// Holds: c18.boards
pub async fn oldest_board_is_first(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let first = async || r.dashboard_fetch(&sees(own)).await.unwrap().and_then(|board| board.name);
    assert_eq!((first().await, names(r, own).await), (None, Vec::new()));
    let id = DashboardId(given::uuid());
    r.dashboard_update(&may(own), named("a"), id, at(1)).await.unwrap();
    let second = make(r, own, "b").await;
    make(r, own, "c").await;
    let a = r.board_fetch(&sees(own), id).await.unwrap().unwrap();
    assert_eq!((a.head.version, a.head.created_at, a.dashboard.configuration.text()), (1, at(1), r#"{"of":"a"}"#));
    r.dashboard_update(&may(own), named("A"), DashboardId(given::uuid()), at(2)).await.unwrap();
    let changed = r.board_fetch(&sees(own), id).await.unwrap().unwrap();
    assert_eq!((changed.head.version, changed.head.created_at, changed.head.updated_at), (2, at(1), at(2)));
    assert_ne!(changed.head.tag(), a.head.tag());
    assert_eq!(names(r, own).await, [("A", false), ("b", false), ("c", false)].map(|(name, is)| (name.to_owned(), is)));
    r.board_delete(&may(own), id, None).await.unwrap();
    assert_eq!(first().await.as_deref(), Some("b"));
    r.board_delete(&may(own), second.head.id, None).await.unwrap();
    assert_eq!(first().await.as_deref(), Some("c"));
    let nobody = OrganizationId(given::uuid());
    assert!(matches!(r.board_list(&sees(nobody)).await, Err(StoreError::Gone("organization"))));
    let made = r.board_create(&may(nobody), DashboardId(given::uuid()), named("x"), MANY, at(1)).await;
    assert!(matches!(made, Err(StoreError::Gone("organization"))));
    // They go with their organization.
    r.organization_delete(&may(own)).await.unwrap();
    assert!(matches!(r.board_list(&sees(own)).await, Err(StoreError::Gone("organization"))));
}

/// Checks that all dashboards of the nearest organization that has some and shares them are shown, and are changed only
/// there.
// Holds: c18.boardsInherited
pub async fn boards_are_inherited_together(r: &Registry) {
    let top = given::organization(r, None, "Top").await.id;
    let low = given::organization(r, Some(top), "Low").await.id;
    let (a, _) = (make(r, top, "a").await, make(r, top, "b").await);
    assert_eq!(names(r, low).await, []);
    assert_eq!(r.board_fetch(&sees(low), a.head.id).await.unwrap(), None);
    lends(r, top).await;
    assert_eq!(names(r, low).await, [("a".to_owned(), true), ("b".to_owned(), true)]);
    let lent = r.board_fetch(&sees(low), a.head.id).await.unwrap().unwrap();
    assert_eq!((lent.head.is_inherited, &lent.dashboard), (true, &a.dashboard));
    let change = r.board_update(&may(low), a.head.id, named("x"), None, at(2)).await;
    assert!(matches!(change, Err(StoreError::Gone("dashboard"))));
    assert!(matches!(r.board_delete(&may(low), a.head.id, None).await, Err(StoreError::Gone("dashboard"))));
    // With one of its own it shows no lent ones.
    make(r, low, "own").await;
    assert_eq!(names(r, low).await, [("own".to_owned(), false)]);
    assert_eq!(r.board_fetch(&sees(low), a.head.id).await.unwrap(), None);
}

/// Checks that a dashboard is changed and deleted only if it has the required tag.
// Holds: c18.boardsEtag
pub async fn board_changes_with_a_current_tag_only(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let board = make(r, own, "a").await;
    let tags = |board: &Board| IfMatch::Tags(vec![board.head.tag().to_string()]);
    let known = tags(&board);
    let changed = r.board_update(&may(own), board.head.id, named("b"), Some(&known), at(1)).await.unwrap();
    assert_eq!((changed.head.version, changed.head.name.as_deref()), (2, Some("b")));
    let late = r.board_update(&may(own), board.head.id, named("c"), Some(&known), at(2)).await;
    assert!(matches!(late, Err(StoreError::Outdated("the dashboard"))));
    let late = r.board_delete(&may(own), board.head.id, Some(&known)).await;
    assert!(matches!(late, Err(StoreError::Outdated("the dashboard"))));
    assert_eq!(r.board_fetch(&sees(own), board.head.id).await.unwrap(), Some(changed.clone()));
    r.board_delete(&may(own), board.head.id, Some(&tags(&changed))).await.unwrap();
    let gone = r.board_delete(&may(own), board.head.id, Some(&IfMatch::Any)).await;
    assert!(matches!(gone, Err(StoreError::Gone("dashboard"))));
}

/// Checks that of two concurrent writes that require the same tag one wins, and the other changes nothing.
// Holds: c18.boardsEtag
pub async fn concurrent_writes_of_a_board_have_one_winner(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let board = make(r, own, "a").await;
    for round in 0..20 {
        let present = r.board_fetch(&sees(own), board.head.id).await.unwrap().unwrap();
        let required = IfMatch::Tags(vec![present.head.tag().to_string()]);
        let permit = may(own);
        let put = |name: &str| r.board_update(&permit, board.head.id, named(name), Some(&required), at(round));
        let (left, right) = tokio::join!(put("left"), put("right"));
        let (won, lost) = if left.is_ok() { (left, right) } else { (right, left) };
        assert!(matches!(lost, Err(StoreError::Outdated("the dashboard"))));
        assert_eq!(r.board_fetch(&sees(own), board.head.id).await.unwrap(), Some(won.unwrap()));
    }
}

/// Checks that the last place is taken once by concurrent requests.
// Holds: c18.boards
pub async fn boards_of_an_organization_are_bounded(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let permit = may(own);
    let make = |name: &str| r.board_create(&permit, DashboardId(given::uuid()), named(name), 2, at(1));
    assert!(make("a").await.unwrap().is_some());
    let (left, right) = tokio::join!(make("b"), make("c"));
    assert!(left.unwrap().is_some() != right.unwrap().is_some());
    assert_eq!(names(r, own).await.len(), 2);
    // Existing dashboards can still be changed.
    r.dashboard_update(&permit, named("d"), DashboardId(given::uuid()), at(2)).await.unwrap();
    assert_eq!(names(r, own).await[0].0, "d");
}
