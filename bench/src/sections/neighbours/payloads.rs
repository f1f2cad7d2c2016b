//! Devices whose designs and payloads are made for each other.

use super::attack::Attack;
use super::cases::{BODY_BYTES, Sizes, calls, devices_of, posts, posts_made};
use super::malice;
use crate::Failure;
use crate::api::Api;

/// Devices of nearly every hostile tenant; each has a connection.
const DEVICES: usize = 4;
/// Between two large bodies on a connection, in milliseconds.
const LARGE_EVERY: u64 = 1_000;
/// The same of smaller ones.
const EVERY: u64 = 50;

/// `changed` elements of a design, and windows.
const CHANGED: usize = 998;
const WINDOWS: usize = 900;
/// Links to each of the windows: a few events fill them.
const LINKS_TO_A_WINDOW: usize = 11;
/// Bytes of a value that a window keeps.
const WINDOW_VALUE_BYTES: usize = 900;
/// Bytes that come with a new name in a payload, and with a new label.
const NEW_NAME_BYTES: usize = 100_000;
const NEW_LABEL_BYTES: usize = 1_000;

/// Devices that change a label, their connections, and the pause on each in milliseconds: 2,000 events a second.
const LABELLED_DEVICES: usize = 200;
const LABELLED_CONNECTIONS: usize = 16;
const LABELLED_EVERY: u64 = 8;

async fn large(api: &mut Api, elements: &serde_json::Value, bodies: &[String]) -> Result<Attack, Failure> {
    let devices = devices_of(api, elements, DEVICES).await?;
    Ok(Attack::of(calls(DEVICES, LARGE_EVERY, posts(api, &devices, bodies)), devices))
}

pub async fn orders(api: &mut Api) -> Result<Attack, Failure> {
    large(api, &malice::stores(), &malice::in_two_orders(BODY_BYTES)).await
}

pub async fn changed(api: &mut Api) -> Result<Attack, Failure> {
    large(api, &malice::changed(1), &malice::in_two_orders(BODY_BYTES)).await
}

pub async fn states(api: &mut Api) -> Result<Attack, Failure> {
    let bodies = [0, 1].map(|number| malice::laden(number, BODY_BYTES));
    large(api, &malice::changed(CHANGED), &bodies).await
}

pub async fn collisions(api: &mut Api) -> Result<Attack, Failure> {
    large(api, &malice::stores(), &[malice::colliding(BODY_BYTES)]).await
}

/// `kind`: the type of the element that the links lead to.
pub async fn links(api: &mut Api, kind: &str, sizes: &Sizes) -> Result<Attack, Failure> {
    let bodies = [0, 1].map(|number| malice::laden(number, BODY_BYTES));
    large(api, &malice::links_to(kind, sizes.links), &bodies).await
}

pub async fn windows(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::windows(WINDOWS, LINKS_TO_A_WINDOW), DEVICES).await?;
    let value = "x".repeat(WINDOW_VALUE_BYTES);
    Ok(Attack::of(calls(DEVICES, 4 * EVERY, posts(api, &devices, &[malice::label("", &value)])), devices))
}

pub async fn names(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::stores(), DEVICES).await?;
    let posts = posts_made(api, &devices, |number| malice::new_name(number, NEW_NAME_BYTES));
    Ok(Attack::of(calls(DEVICES, 4 * EVERY, posts), devices))
}

pub async fn new_labels(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::labels(), DEVICES).await?;
    let value = "x".repeat(NEW_LABEL_BYTES);
    let posts = posts_made(api, &devices, move |number| malice::label(&format!("t{number}"), &value));
    Ok(Attack::of(calls(DEVICES, EVERY, posts), devices))
}

pub async fn labels(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::labels(), LABELLED_DEVICES).await?;
    let posts = posts_made(api, &devices, |number| malice::label("state", &number.to_string()));
    Ok(Attack::of(calls(LABELLED_CONNECTIONS, LABELLED_EVERY, posts), devices))
}
