//! Images of all nouns that have one: posted as text, returned as that text or as a picture.

use std::str::FromStr;

use axum::http::header::{CACHE_CONTROL, IF_NONE_MATCH};
use axum::http::{HeaderValue, StatusCode};
use isobar_hub::{HasImage, Png};
use isobar_model::ids::DeviceId;
use isobar_model::secret::Digest;
use utoipa::ToSchema;

use crate::problem::Problem;
use crate::request::{Call, after};
use crate::response::{self, Answer, EntityTags, Response};

/// Most bytes of a posted image (contract: Conventions): 2 MiB as Base64, with room for line breaks.
const IMAGE_BODY_BYTES_MAX: usize = 5 << 20;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const PNG: HeaderValue = HeaderValue::from_static("image/png");
/// Cache header of a picture: private, and revalidated each time, as it changes under one address.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("private, no-cache, must-revalidate");

pub(crate) async fn image_set<T: HasImage + FromStr>(call: &mut Call) -> Answer {
    save::<T>(call).await?;
    response::message(StatusCode::OK, "the image was updated")
}

pub(crate) async fn device_image_set(call: &mut Call) -> Answer {
    save::<DeviceId>(call).await?;
    response::no_content()
}

async fn save<T: HasImage + FromStr>(call: &mut Call) -> Result<(), Problem> {
    let id: T = call.id("id", T::NOUN)?;
    let body = call.text(IMAGE_BODY_BYTES_MAX).await;
    let posted = after(call.hub().allow_image(call.caller()?, id), body).await?;
    Ok(call.hub().image_set(call.caller()?, id, posted).await?)
}

pub(crate) async fn image_posted<T: HasImage + FromStr>(call: &mut Call) -> Answer {
    let id: T = call.id("id", T::NOUN)?;
    Ok(response::of_type(StatusCode::OK, TEXT, call.hub().image_posted(call.caller()?, id).await?))
}

pub(crate) async fn image_png<T: HasImage + FromStr>(call: &mut Call) -> Answer {
    let id: T = call.id("id", T::NOUN)?;
    // A malformed list of tags matches nothing.
    if let Ok(Some(known)) = EntityTags::read(&call.head.headers, &IF_NONE_MATCH) {
        let tag = tag(call.hub().image_digest(call.caller()?, id).await?);
        if known.name(&tag) {
            return Ok(kept(response::not_modified(&tag)));
        }
    }
    let Png { bytes, digest } = call.hub().image_png(call.caller()?, id).await?;
    Ok(kept(response::tagged(response::of_type(StatusCode::OK, PNG, bytes), &tag(digest))))
}

pub(crate) async fn device_image_delete(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    call.hub().image_delete(call.caller()?, id).await?;
    response::no_content()
}

/// Sets the cache header of a picture.
fn kept(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, ASK_AGAIN);
    response
}

/// Returns the entity tag of a picture: half of its digest.
fn tag(digest: Digest) -> String {
    digest.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A PNG, a JPEG or a WebP of at most 2 MiB and 4096 by 4096 pixels, in Base64: bare, or as a data URI (`data:image/png;base64,…`).
#[derive(ToSchema)]
#[schema(value_type = String)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ImageText(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_tag_is_half_of_a_digest() {
        let tag = tag(Digest::of(b"x"));
        assert_eq!(tag.len(), 32);
        assert!(tag.bytes().all(|digit| digit.is_ascii_hexdigit()), "{tag}");
    }
}
