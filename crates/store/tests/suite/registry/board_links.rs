//! Links of dashboards.

use isobar_model::board_link::BoardLink;
use isobar_model::ids::{BoardLinkId, DashboardId, OrganizationId, UserId};

use super::boards::board_input;
use super::given::{self, at, digest, may};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;

async fn board(r: &Registry, owner: OrganizationId) -> DashboardId {
    let input = board_input(r#"{"configuration": {}}"#);
    let made = r.board_create(&may(owner), DashboardId(given::uuid()), input, 100, at(1)).await;
    made.unwrap().unwrap().head.id
}

fn link(organization: OrganizationId, board: DashboardId, maker: UserId) -> BoardLink {
    let (id, name) = (BoardLinkId(given::uuid()), "hall".to_owned());
    BoardLink { id, board, organization, maker, name, created_at: at(5), expires_at: at(100) }
}

/// Checks that a link is returned with the digest of its secret until it is deleted, and only for its own dashboard and
/// organization.
pub async fn a_link_is_found_until_it_is_deleted(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let other = given::organization(r, None, "Other").await.id;
    let ana = given::user(r, own, "ana").await.id;
    let (first, second) = (board(r, own).await, board(r, own).await);
    let (made, secret) = (link(own, first, ana), digest());
    assert!(r.board_link_create(&may(own), &made, &secret, 3).await.unwrap());
    assert_eq!(r.board_link_by_id(made.id).await.unwrap(), Some((made.clone(), secret)));
    assert_eq!(r.board_link_by_id(BoardLinkId(given::uuid())).await.unwrap(), None);
    assert_eq!(r.board_link_list(&may(own), first).await.unwrap(), std::slice::from_ref(&made));
    assert_eq!(r.board_link_list(&may(own), second).await.unwrap(), []);
    assert!(matches!(r.board_link_list(&may(other), first).await, Err(StoreError::Gone("dashboard"))));
    let late = r.board_link_create(&may(other), &link(other, first, ana), &digest(), 3).await;
    assert!(matches!(late, Err(StoreError::Gone("dashboard"))));
    assert!(!r.board_link_delete(&may(own), second, made.id).await.unwrap());
    assert!(!r.board_link_delete(&may(other), first, made.id).await.unwrap());
    assert!(r.board_link_delete(&may(own), first, made.id).await.unwrap());
    assert!(!r.board_link_delete(&may(own), first, made.id).await.unwrap());
    assert_eq!(r.board_link_by_id(made.id).await.unwrap(), None);
}

/// Checks that the last place is taken once by concurrent requests, and that expired links take none.
pub async fn links_of_a_board_are_bounded(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let ana = given::user(r, own, "ana").await.id;
    let (shown, permit) = (board(r, own).await, may(own));
    let ended = BoardLink { created_at: at(1), expires_at: at(5), ..link(own, shown, ana) };
    let (one, secret) = (link(own, shown, ana), digest());
    assert!(r.board_link_create(&permit, &ended, &secret, 2).await.unwrap());
    assert!(r.board_link_create(&permit, &one, &secret, 2).await.unwrap());
    assert_eq!(r.board_link_by_id(ended.id).await.unwrap(), None);
    let (left, right) = (link(own, shown, ana), link(own, shown, ana));
    let (made, refused) =
        tokio::join!(r.board_link_create(&permit, &left, &secret, 2), r.board_link_create(&permit, &right, &secret, 2));
    assert!(made.unwrap() != refused.unwrap());
    assert_eq!(r.board_link_list(&permit, shown).await.unwrap().len(), 2);
}

/// Checks that a link ends with its dashboard, its organization and the user who made it.
pub async fn link_ends_with_board_organization_or_maker(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let away = given::organization(r, None, "Away").await.id;
    let (ana, bob) = (given::user(r, own, "ana").await.id, given::user(r, away, "bob").await.id);
    let (shown, other) = (board(r, own).await, board(r, own).await);
    let lone = given::organization(r, None, "Lone").await.id;
    let of_lone = board(r, lone).await;
    let links = [link(own, shown, bob), link(own, other, ana), link(lone, of_lone, bob), link(own, other, bob)];
    for made in &links {
        assert!(r.board_link_create(&may(made.organization), made, &digest(), 9).await.unwrap());
    }
    let there = async || {
        let mut found = Vec::new();
        for made in &links {
            found.push(r.board_link_by_id(made.id).await.unwrap().is_some());
        }
        found
    };
    r.board_delete(&may(own), shown, None).await.unwrap();
    assert_eq!(there().await, [false, true, true, true]);
    r.user_delete(&may(ana)).await.unwrap();
    assert_eq!(there().await, [false, false, true, true]);
    r.organization_delete(&may(lone)).await.unwrap();
    assert_eq!(there().await, [false, false, false, true]);
    let late = r.board_link_create(&may(own), &link(own, other, ana), &digest(), 9).await;
    assert!(matches!(late, Err(StoreError::Gone("user"))));
}
