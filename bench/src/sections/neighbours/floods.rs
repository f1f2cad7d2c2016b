//! Those who ask for much with little: intervals, deliveries, sorts, streams, code, buckets, bulks, batches, alarms.

use std::sync::Arc;
use std::time::Duration;

use isobar_store::telemetry::SORTED_MAX;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::attack::{Attack, Way};
use super::cases::{Sizes, calls, devices_of, in_turns, posts};
use super::malice;
use crate::Failure;
use crate::api::Api;
use crate::load;
use crate::setup::{STORAGE, make_project, make_project_of};
use crate::wire::request;

/// Where many devices are made, and many events posted.
const BULK_PATH: &str = "/v2/devices/bulk";
const BATCH_PATH: &str = "/v2/events/device/batch";

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
/// Those who ask in buckets, for summaries and filtered lists, and their pause.
const ASKERS: usize = 8;
const ASK_EVERY: u64 = 50;
/// Questions of each kind that take turns.
const QUESTIONS: usize = 24;
/// Devices of one call, those that filters go through, the connections that make more, and their pause.
const BULK_DEVICES: usize = 10_000;
const FILTERED_DEVICES: usize = 20_000;
const BULKS: usize = 2;
const BULK_EVERY: u64 = 2_000;
/// Connections that send batches, their pause, and the events and devices of a batch.
const BATCHES: usize = 8;
const BATCH_EVERY: u64 = 100;
const BATCH_EVENTS: usize = 1_000;
const BATCH_DEVICES: usize = 16;
/// Events of a batch that raise alarms, and how many each.
const ALARM_EVENTS: usize = 100;
const ALARMS: usize = 8;
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
    // The furthest that an order reaches, and the last of all.
    let pages = [(SORTED_MAX as usize).min(sizes.series) / PAGE, sizes.series / PAGE];
    let sort = |(key, page): (&str, usize)| {
        let path = format!("/v2/devices/{}/data/{STORAGE}?limit={PAGE}&page={page}&sortBy=payload.{key}", device.id);
        request("GET", api.address(), &path, api.credential(), None)
    };
    let asked = ["humidity", "temperature"].into_iter().flat_map(|key| pages.map(|page| (key, page)));
    Ok(Attack::of(calls(SORTERS, SORT_EVERY, in_turns(asked.map(sort).collect())), Vec::new()))
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

pub async fn buckets(api: &mut Api, sizes: &Sizes) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::stores(), 1).await?;
    let device = devices.first().ok_or("no devices")?;
    for first in (0..sizes.series).step_by(BATCH_EVENTS) {
        let event = |number: usize| -> Result<Value, Failure> {
            let payload: Value = serde_json::from_str(&malice::numbers(number))?;
            Ok(json!({"deviceId": device.id, "elementName": malice::EVENT, "payload": payload}))
        };
        let batch = (first..first + BATCH_EVENTS).map(event).collect::<Result<Value, Failure>>()?;
        api.call("POST", BATCH_PATH, Some(&batch)).await?;
    }
    let asks = |number: usize| {
        let path = format!("/v2/devices/{}/data/stored/buckets?{}", device.id, malice::bucket_query(number));
        request("GET", api.address(), &path, api.credential(), None)
    };
    Ok(Attack::of(calls(ASKERS, ASK_EVERY, in_turns((0..QUESTIONS).map(asks).collect())), Vec::new()))
}

pub async fn bulks(api: &mut Api) -> Result<Attack, Failure> {
    let project = make_project(api).await?;
    let bodies = malice::many_devices(&project, BULK_DEVICES);
    let bulk = request("POST", api.address(), BULK_PATH, api.credential(), Some(&bodies));
    Ok(Attack::of(calls(BULKS, BULK_EVERY, in_turns(vec![bulk])), Vec::new()))
}

pub async fn summaries(api: &mut Api) -> Result<Attack, Failure> {
    let project = make_project(api).await?;
    let bodies: Value = serde_json::from_str(&malice::many_devices(&project, BULK_DEVICES))?;
    for _ in 0..FILTERED_DEVICES / BULK_DEVICES {
        api.call("POST", BULK_PATH, Some(&bodies)).await?;
    }
    let asks = |number: usize| request("GET", api.address(), &malice::filtered(number), api.credential(), None);
    Ok(Attack::of(calls(ASKERS, ASK_EVERY, in_turns((0..QUESTIONS).map(asks).collect())), Vec::new()))
}

pub async fn batches(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::stores(), BATCH_DEVICES).await?;
    let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
    let body = malice::batch(&ids, BATCH_EVENTS);
    let batch = request("POST", api.address(), BATCH_PATH, api.credential(), Some(&body));
    Ok(Attack::of(calls(BATCHES, BATCH_EVERY, in_turns(vec![batch])), devices))
}

pub async fn alarms(api: &mut Api) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::alarms(ALARMS), BATCH_DEVICES).await?;
    let ids: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
    let (address, credential) = (api.address().to_owned(), api.credential().to_owned());
    let batch = move |number: usize| {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let body = malice::alarm_batch(&ids, ALARM_EVENTS, number);
        Arc::new(request("POST", &address, BATCH_PATH, &credential, Some(&body)))
    };
    Ok(Attack::of(calls(1, 0, Box::new(batch)), devices))
}
