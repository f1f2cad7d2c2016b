//! Those who ask for much with little: intervals, deliveries, sorts, streams, code.

use std::time::Duration;

use tokio::time::Instant;

use super::attack::{Attack, Way};
use super::cases::{Sizes, calls, devices_of, in_turns, posts};
use super::malice;
use crate::Failure;
use crate::api::Api;
use crate::load;
use crate::setup::{STORAGE, make_project, make_project_of};
use crate::wire::request;

/// An interval, and the moment until what is due is looked for.
const INTERVAL: Duration = Duration::from_secs(62);
/// How long the runs of all devices that are due are looked at.
const INTERVAL_LASTS: Duration = Duration::from_secs(15);
/// Blocks and elements of a delivery, its connections, and the pause on each in milliseconds.
const BLOCKS: usize = 10_000;
const ELEMENTS: usize = 1_000;
const DELIVERIES: usize = 4;
const DELIVERY_EVERY: u64 = 1_000;
/// Those who sort, and their pause.
const SORTERS: usize = 8;
const SORT_EVERY: u64 = 100;
/// Values on a page.
const PAGE: usize = 100;
/// Streams from long ago, and the devices whose events they tell.
const STREAMS: usize = 64;
const STREAMED_DEVICES: usize = 300;
/// Connections that fill a series.
const FILLERS: usize = 64;
/// Connections with code that never ends.
const CODE_CONNECTIONS: usize = 16;

pub async fn intervals(api: &mut Api, sizes: &Sizes) -> Result<Attack, Failure> {
    let begun = Instant::now();
    let devices = devices_of(api, &malice::endless_every_minute(), sizes.intervals).await?;
    let mut attack = Attack::of(Way::Nothing, devices);
    attack.not_before = Some(begun + INTERVAL);
    attack.at_least = Some(INTERVAL_LASTS);
    Ok(attack)
}

pub async fn webhook(api: &mut Api) -> Result<Attack, Failure> {
    let project = make_project_of(api, "Hostile", &malice::receivers(ELEMENTS)).await?;
    let (path, body) = (malice::delivery_path(&project), malice::delivery(BLOCKS));
    let delivery = request("POST", api.address(), &path, api.credential(), Some(&body));
    Ok(Attack::of(calls(DELIVERIES, DELIVERY_EVERY, in_turns(vec![delivery])), Vec::new()))
}

pub async fn sorts(api: &mut Api, sizes: &Sizes) -> Result<Attack, Failure> {
    let project = make_project(api).await?;
    let devices = crate::setup::make_devices(api, &project, 1).await?;
    load::post(api.address(), &devices, sizes.series, FILLERS, usize::MAX).await?;
    let device = devices.first().ok_or("no devices")?;
    let last = sizes.series / PAGE;
    let sort = |key: &str| {
        let path = format!("/v2/devices/{}/data/{STORAGE}?limit={PAGE}&page={last}&sortBy=payload.{key}", device.id);
        request("GET", api.address(), &path, api.credential(), None)
    };
    Ok(Attack::of(calls(SORTERS, SORT_EVERY, in_turns(vec![sort("humidity"), sort("temperature")])), Vec::new()))
}

pub async fn streams(api: &mut Api, sizes: &Sizes) -> Result<Attack, Failure> {
    let project = make_project(api).await?;
    let devices = crate::setup::make_devices(api, &project, STREAMED_DEVICES).await?;
    load::post(api.address(), &devices, sizes.series, FILLERS, usize::MAX).await?;
    let device = devices.first().ok_or("no devices")?;
    let events = format!("/v2/devices/{}/events?limit=1", device.id);
    let count = api.call("GET", &events, None).await?["meta"]["totalDocs"].as_u64().unwrap_or(1);
    let oldest = api.call("GET", &format!("{events}&page={count}"), None).await?;
    let oldest = oldest["data"][0]["id"].as_str().ok_or("a device has no events")?;
    let headers = format!("{}\r\nlast-event-id: {oldest}", api.credential());
    let stream = request("GET", api.address(), "/v2/events/stream", &headers, None);
    Ok(Attack::of(Way::Streams { connections: STREAMS, request: stream }, Vec::new()))
}

pub async fn code(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::endless(), CODE_CONNECTIONS).await?;
    let posts = posts(api, &devices, &["\"AAAA\"".to_owned()]);
    Ok(Attack::of(calls(CODE_CONNECTIONS, 0, posts), devices))
}
