//! Branches of the tree that move.

use isobar_model::ids::OrganizationId;
use isobar_model::organization::{LEVELS_MAX, Organization, OrganizationInput};

use super::given::{self, at, lists_all, may, page, refetched};
use super::places::limit;
use isobar_store::error::{Result, StoreError};
use isobar_store::registry::Registry;

async fn moves(r: &Registry, moved: &Organization, to: Option<OrganizationId>) -> Result<Organization> {
    let change = OrganizationInput { name: moved.name.clone(), ..OrganizationInput::default() };
    r.organization_update(&may(moved.id), &change, Some(&may(to)), at(3)).await.map(|(moved, _)| moved)
}

/// Checks that a branch moves with everything beneath it and nothing else, and that devices are counted at their new place.
pub async fn branch_moves_with_its_contents(r: &Registry) {
    let [left, right] = [given::organization(r, None, "Left").await, given::organization(r, None, "Right").await];
    let branch = given::organization(r, Some(left.id), "Branch").await;
    let leaf = given::organization(r, Some(branch.id), "Leaf").await;
    let stays = given::organization(r, Some(left.id), "Stays").await;
    let project = given::project(r, left.id, "p").await.id;
    let device = given::device(r, leaf.id, project, "d").await;

    let moved = moves(r, &branch, Some(right.id)).await.unwrap();
    assert_eq!((moved.lineage.ids(), moved.names.join("/")), (&[right.id, branch.id][..], "Right/Branch".to_owned()));
    assert_eq!((moved.device_count, moved.updated_at), (1, at(3)));
    let leaf = refetched(r, leaf.id).await;
    assert_eq!(leaf.lineage.ids(), [right.id, branch.id, leaf.id]);
    assert_eq!(r.organization_lineage(leaf.id).await.unwrap(), Some(leaf.lineage.clone()));
    assert_eq!(r.device_placement(device.id).await.unwrap(), Some((device.reference(), leaf.lineage)));
    assert_eq!(refetched(r, stays.id).await, stays);
    let (left, right) = (refetched(r, left.id).await, refetched(r, right.id).await);
    assert_eq!((left.device_count, right.device_count), (0, 1));

    // The branch moves to the top and down again, and its levels move along.
    let top = moves(r, &branch, None).await.unwrap();
    assert_eq!(top.lineage.ids(), [branch.id]);
    let below = moves(r, &branch, Some(stays.id)).await.unwrap();
    assert_eq!(below.lineage.ids(), [left.id, stays.id, branch.id]);
    let within = r.organization_list(&given::lists(&left.lineage, Some(4)), true, &page(1, 10)).await.unwrap();
    assert_eq!(within.total, 4);
    let within = r.organization_list(&given::lists(&left.lineage, Some(3)), true, &page(1, 10)).await.unwrap();
    assert_eq!(within.total, 3);
    // A move to the current parent changes nothing.
    assert_eq!(moves(r, &branch, Some(stays.id)).await.unwrap(), below);
}

/// Checks that a circle, a tree that is too deep and a deleted parent are refused, and that nothing has moved then.
pub async fn branch_moves_to_an_allowed_parent_only(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let branch = given::organization(r, Some(top.id), "Branch").await;
    let leaf = given::organization(r, Some(branch.id), "Leaf").await;
    for circle in [branch.id, leaf.id] {
        assert!(matches!(moves(r, &branch, Some(circle)).await, Err(StoreError::Limit(_))));
    }
    let mut deep = given::organization(r, None, "level 1").await;
    for level in 2..LEVELS_MAX {
        deep = given::organization(r, Some(deep.id), &format!("level {level}")).await;
    }
    assert!(matches!(moves(r, &branch, Some(deep.id)).await, Err(StoreError::Limit(_))));
    let nobody = OrganizationId(given::uuid());
    assert!(matches!(moves(r, &branch, Some(nobody)).await, Err(StoreError::Gone("organization"))));
    assert_eq!(refetched(r, leaf.id).await, leaf);
    moves(r, &leaf, Some(deep.id)).await.unwrap();
}

/// Checks that a new ancestor must have room for all devices of the branch.
pub async fn branch_with_devices_moves_within_limits(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let [left, right] =
        [given::organization(r, Some(top.id), "L").await, given::organization(r, Some(top.id), "R").await];
    let branch = given::organization(r, Some(left.id), "Branch").await;
    let leaf = given::organization(r, Some(branch.id), "Leaf").await;
    let project = given::project(r, top.id, "p").await.id;
    for (organization, name) in [(branch.id, "a"), (leaf.id, "b"), (right.id, "c")] {
        given::device(r, organization, project, name).await;
    }
    // The top organization counts them already.
    limit(r, &top, 3.0).await;
    limit(r, &right, 2.0).await;
    assert!(matches!(moves(r, &branch, Some(right.id)).await, Err(StoreError::Limit(_))));
    assert_eq!(refetched(r, leaf.id).await.lineage, leaf.lineage);
    limit(r, &right, 3.0).await;
    moves(r, &branch, Some(right.id)).await.unwrap();
    assert_eq!(refetched(r, right.id).await.device_count, 3);
}

/// Checks that a child added to a branch during its move is at the branch's new place.
pub async fn moving_branch_loses_no_child(r: &Registry) {
    let [left, right] = [given::organization(r, None, "Left").await, given::organization(r, None, "Right").await];
    let branch = given::organization(r, Some(left.id), "Branch").await;
    for round in 0..10 {
        let (home, away) = if round % 2 == 0 { (left.id, right.id) } else { (right.id, left.id) };
        let beneath = may(Some(branch.id));
        let founds = r.organization_create(&beneath, given::new_organization("Leaf"), at(1));
        let (moved, made) = tokio::join!(moves(r, &branch, Some(away)), founds);
        let (moved, made) = (moved.unwrap(), refetched(r, made.unwrap().id).await);
        assert_eq!(moved.lineage.ids(), [away, branch.id]);
        assert_eq!(made.lineage.ids(), [away, branch.id, made.id], "away from {home}");
    }
    assert_eq!(r.organization_list(&lists_all(), true, &page(1, 100)).await.unwrap().total, 13);
}
