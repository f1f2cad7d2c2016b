//! Images.

use isobar_model::secret::Digest;

use super::given::{self, at, may, sees};
use isobar_store::error::StoreError;
use isobar_store::registry::{NewImage, Pictured, Png, Registry};

fn image(posted: &str, png: &[u8]) -> NewImage {
    NewImage { posted: posted.to_owned(), png: png.to_vec() }
}

async fn is_kept<T: Pictured + Clone>(r: &Registry, owner: T) {
    let reading = sees(owner.clone());
    assert_eq!(r.image_posted(&reading).await.unwrap(), None);
    assert_eq!(r.image_digest(&reading).await.unwrap(), None);
    assert_eq!(r.image_png(&reading).await.unwrap(), None);
    for png in [&b"first \0 \xff"[..], b"second"] {
        r.image_set(&may(owner.clone()), image("data:…\n", png), at(1)).await.unwrap();
        let expected = Png { bytes: png.to_vec(), digest: Digest::of(png) };
        assert_eq!(r.image_posted(&reading).await.unwrap().as_deref(), Some("data:…\n"));
        assert_eq!(r.image_digest(&reading).await.unwrap(), Some(expected.digest));
        assert_eq!(r.image_png(&reading).await.unwrap(), Some(expected));
    }
}

/// Checks that each owner has one image, which a new one replaces and its deletion removes.
pub async fn image_is_found_by_its_owner(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let user = given::user(r, home, "ana").await.id;
    let project = given::project(r, home, "p").await.id;
    let device = given::device(r, home, project, "d").await.reference();
    is_kept(r, home).await;
    is_kept(r, user).await;
    is_kept(r, project).await;
    is_kept(r, device).await;
    assert!(r.image_delete(&may(user)).await.unwrap());
    assert!(!r.image_delete(&may(user)).await.unwrap());
    assert_eq!(r.image_posted(&sees(user)).await.unwrap(), None);
    assert!(r.image_posted(&sees(project)).await.unwrap().is_some());
}

/// Checks that a deletion removes the image too, and that none can be added afterwards.
pub async fn image_is_deleted_with_its_owner(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let device = given::device(r, home, project, "d").await.reference();
    r.image_set(&may(device), image("x", b"x"), at(0)).await.unwrap();
    r.image_set(&may(project), image("x", b"x"), at(0)).await.unwrap();
    r.device_delete(&may(device)).await.unwrap();
    r.project_delete(&may(project)).await.unwrap();
    assert_eq!(r.image_png(&sees(device)).await.unwrap(), None);
    assert_eq!(r.image_png(&sees(project)).await.unwrap(), None);
    let refused = r.image_set(&may(device), image("x", b"x"), at(0)).await;
    assert!(matches!(refused, Err(StoreError::Gone("device"))), "{refused:?}");
}
