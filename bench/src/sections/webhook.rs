//! The integration webhook: a thousand devices in one delivery, first unknown, then known.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{House, grouped, millis, timed_row};
use crate::page::Page;
use crate::setup::{STORAGE, make_project_of};
use crate::{Failure, Options};

/// Event Blocks of a delivery, each of a device of its own.
const BLOCKS: usize = 1_000;
/// Deliveries of either kind; the one in the middle counts.
const ROUNDS: usize = 3;
/// Until a delivery is answered whose devices are all new.
const TARGET_NEW: Duration = Duration::from_secs(1);
/// The same when all are known.
const TARGET_KNOWN: Duration = Duration::from_millis(200);

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut house = House::build(options).await?;
    let elements = json!({
        "uplink": {"type": "deviceEvent", "properties": {"integration": "custom"}, "triggers": {"eventReceived": [
            {"element": STORAGE, "ability": "store"},
        ]}},
        STORAGE: {"type": "storage"},
    });
    let project = make_project_of(&mut house.api, "Deliveries", &elements).await?;
    let path =
        format!("/v2/events/integrations?deviceTag=eui&deviceTagValueRef=eui&eventsRef=blocks&projectUuid={project}");
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let block = |number: usize| json!({"eui": format!("70B3D5{:010X}", round * BLOCKS + number), "temperature": number as f64 / 10.0});
        let body = json!({"blocks": (0..BLOCKS).map(block).collect::<Vec<Value>>()});
        new.push(deliver(&mut house, &path, &body, BLOCKS).await?);
        known.push(deliver(&mut house, &path, &body, 0).await?);
    }
    house.server.stop().await?;
    let mut table = String::from("| delivery | median | slowest | blocks/s | target |\n|---|---:|---:|---:|---|\n");
    for (name, durations, target) in
        [("all devices new", new, TARGET_NEW), ("the same again: all known", known, TARGET_KNOWN)]
    {
        table.push_str(&timed_row(name, durations, BLOCKS, target)?);
    }
    writeln!(
        table,
        "\n{ROUNDS} deliveries of either kind, in turns, with an API key: {} blocks, each of a device of its own and stored by the design.",
        grouped(BLOCKS as f64)
    )?;
    page.put("webhook", &table)
}

/// How long a delivery takes that makes so many devices.
async fn deliver(house: &mut House, path: &str, body: &Value, provisions: usize) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let reply = house.api.reply("POST", path, Some(body)).await?;
    let took = begun.elapsed();
    let answer: Value = serde_json::from_slice(&reply.body)?;
    let told = format!("{BLOCKS} event(s) processed, {provisions} device(s) provisioned");
    if answer["errors"] != json!([]) || !answer["message"].as_str().is_some_and(|message| message.ends_with(&told)) {
        return Err(format!("a delivery is answered {answer}").into());
    }
    eprintln!("bench: {told} in {}", millis(took));
    Ok(took)
}
