//! Images of organizations, projects, users and devices.

use reqwest::{Method, StatusCode};

use crate::support::{NOBODY, Person, TestApp, on_both_registries};

/// A PNG of one pixel, as a data URI.
pub const TINY_PNG: &str = "data:image/png;base64,\
    iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z9DwHwAGAAJ/IQJzOwAAAABJRU5ErkJggg==";
/// Another, bare.
const OTHER_PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGMQ+N/wHwAFQQKPSBc7DAAAAABJRU5ErkJggg==";
/// A WebP of one pixel.
const TINY_WEBP: &str = "data:image/webp;base64,UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAgA0JaQAA3AA/vuUAAA=";

const PNG_BEGINS: &[u8] = b"\x89PNG\r\n\x1a\n";

on_both_registries!(
    an_image_is_shown_as_it_was_posted_and_as_a_picture,
    cached_picture_is_not_sent_again,
    a_device_loses_its_image,
    hostile_images_are_refused,
    users_change_their_own_image_and_those_of_lower_ranks,
);

/// Fetches a picture, and returns its status and headers.
async fn picture(person: &Person<'_>, path: &str, known: Option<&str>) -> (StatusCode, String, String, Vec<u8>) {
    let mut request = person.request(Method::GET, path);
    if let Some(known) = known {
        request = request.header("if-none-match", known);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let header = |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let (status, kind, tag) = (response.status(), header("content-type"), header("etag"));
    if status != StatusCode::NOT_FOUND {
        assert_eq!(header("cache-control"), "private, no-cache, must-revalidate");
    }
    (status, kind, tag, response.bytes().await.unwrap().to_vec())
}

// Holds: error.messages, user.imageUrl, organization.imageUrl, image.text, GET /v2/devices/{id}/image,
// POST /v2/devices/{id}/image, GET /v2/devices/{id}/image.png, GET /v2/organizations/{id}/image,
// POST /v2/organizations/{id}/image, GET /v2/organizations/{id}/image.png, GET /v2/projects/{id}/image,
// POST /v2/projects/{id}/image, GET /v2/projects/{id}/image.png, GET /v2/users/{id}/image.png, c5.images
async fn an_image_is_shown_as_it_was_posted_and_as_a_picture(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    for owner in [
        device.url(),
        format!("/v2/organizations/{}", ana.organization),
        format!("/v2/projects/{}", ana.project().await),
        format!("/v2/users/{}", ana.id),
    ] {
        let (image, png) = (format!("{owner}/image"), format!("{owner}/image.png"));
        ana.get(&image).await.not_found();
        ana.get(&png).await.not_found();
        for posted in [TINY_PNG, OTHER_PNG, TINY_WEBP] {
            let answer = ana.post_plain(&image, posted).await;
            if owner.contains("/devices/") {
                answer.no_content();
            } else {
                let body = answer.ok();
                assert!(body["message"].is_string() && body["errors"] == serde_json::json!([]), "{body}");
            }
            let text = ana.get(&image).await.is(200);
            assert_eq!((text.text.as_str(), text.header("content-type")), (posted, "text/plain; charset=utf-8"));
            let (status, kind, _, bytes) = picture(&ana, &png, None).await;
            assert_eq!((status, kind.as_str()), (StatusCode::OK, "image/png"));
            assert!(bytes.starts_with(PNG_BEGINS));
        }
        // The address is in the resource itself.
        let shown = ana.get(&owner).await.ok();
        if let Some(url) = shown["imageUrl"].as_str() {
            assert_eq!(format!("/v2{}", url.trim_start_matches("/v2")), png);
        }
        let thing = owner.rsplit_once('/').unwrap().0;
        for rest in ["image", "image.png"] {
            ana.get(&format!("{thing}/{NOBODY}/{rest}")).await.not_found();
        }
    }
}

async fn cached_picture_is_not_sent_again(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (image, png) = (format!("/v2/users/{}/image", ana.id), format!("/v2/users/{}/image.png", ana.id));
    ana.post_plain(&image, TINY_PNG).await.ok();
    let (_, _, first, _) = picture(&ana, &png, None).await;
    let (status, _, tag, bytes) = picture(&ana, &png, Some(&first)).await;
    assert_eq!((status, &tag, bytes.len()), (StatusCode::NOT_MODIFIED, &first, 0));
    ana.post_plain(&image, OTHER_PNG).await.ok();
    let (status, _, second, bytes) = picture(&ana, &png, Some(&first)).await;
    assert_eq!((status, bytes.is_empty()), (StatusCode::OK, false));
    assert_ne!(first, second);
}

// Holds: DELETE /v2/devices/{id}/image
async fn a_device_loses_its_image(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    ana.delete(&device.at("image")).await.not_found();
    ana.post_plain(&device.at("image"), TINY_PNG).await.no_content();
    ana.delete(&device.at("image")).await.no_content();
    ana.get(&device.at("image")).await.not_found();
    ana.get(&device.at("image.png")).await.not_found();
    // A device's token is for its events.
    device.get(&device.at("image")).await.unauthenticated();
}

// Holds: c1.413, c5.images
async fn hostile_images_are_refused(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let (path, bare) = (device.at("image"), TINY_PNG.split_once(',').unwrap().1);
    // One pixel that claims to be 65535 by 65535, with a valid checksum.
    let bomb = "data:image/png;base64,\
        iVBORw0KGgoAAAANSUhEUgAA//8AAP//CAYAAAC2BdlQAAAADUlEQVR4nGP4z9DwHwAGAAJ/IQJzOwAAAABJRU5ErkJggg==";
    let svg = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciPjxzY3JpcHQ+YWxlcnQoMSk8L3NjcmlwdD48L3N2Zz4=";
    for hostile in [
        String::new(),
        "no image".to_owned(),
        "<script>alert(1)</script>".to_owned(),
        bomb.to_owned(),
        bare[..bare.len() - 16].to_owned(),
        bare[..40].to_owned(),
        format!("data:image/svg+xml;base64,{svg}"),
        format!("data:image/png;base64,{svg}"),
        format!("data:image/jpeg;base64,{bare}"),
        format!("data:text/html;base64,{bare}"),
        "A".repeat(3 << 20),
        "\0".repeat(1000),
    ] {
        let refused = ana.post_plain(&path, hostile.clone()).await;
        assert_eq!(refused.faults(), ["body"], "{}", &hostile[..hostile.len().min(60)]);
    }
    assert_eq!(ana.post_plain(&path, vec![0xff, 0xfe, 0x80]).await.faults(), ["body"]);
    ana.post_plain(&path, "A".repeat((5 << 20) + 1)).await.is(413);
    // Another type of body, and none.
    assert_eq!(ana.post_text(&path, TINY_PNG).await.faults(), ["body"]);
    assert_eq!(ana.app.send(ana.request(Method::POST, &path).body(TINY_PNG)).await.faults(), ["body"]);
    ana.get(&path).await.not_found();
    let with_charset = ana.request(Method::POST, &path).header("content-type", "Text/Plain; charset=us-ascii");
    ana.app.send(with_charset.body(TINY_PNG)).await.no_content();
}

// Holds: GET /v2/users/{id}/image, POST /v2/users/{id}/image
async fn users_change_their_own_image_and_those_of_lower_ranks(app: &TestApp) {
    let ana = app.developer("ana").await;
    let basic = ana.invites("basic", "basicUser").await;
    let manager = ana.invites("manager", "manager").await;
    let image = |person: &Person<'_>| format!("/v2/users/{}/image", person.id);
    basic.post_plain(&image(&basic), TINY_PNG).await.ok();
    basic.post_plain(&image(&manager), TINY_PNG).await.forbidden();
    manager.post_plain(&image(&basic), OTHER_PNG).await.ok();
    manager.post_plain(&image(&ana), TINY_PNG).await.forbidden();
    assert_eq!(manager.get(&image(&basic)).await.is(200).text, OTHER_PNG);
    app.stranger("bob").await.get(&image(&basic)).await.not_found();
}
