//! One call that changes ten thousand settings.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{House, grouped, millis, timed_row};
use crate::page::Page;
use crate::registry::design;
use crate::{Failure, Options};

/// Devices whose settings are changed.
const DEVICES: usize = 100;
/// Settings of each.
const SETTINGS: usize = 100;
/// How often; the one in the middle counts.
const ROUNDS: usize = 3;
/// Until it is answered.
const TARGET: Duration = Duration::from_secs(2);

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut house = House::build(options).await?;
    design(&mut house.api, &house.project, SETTINGS).await?;
    let devices = house.devices(DEVICES).await?;
    let mut durations = Vec::new();
    for round in 1..=ROUNDS {
        // Each value is new, also beside its default: nothing is left out as unchanged.
        let item = |id: &str, setting: usize| json!({"deviceId": id, "name": format!("setting{setting}"), "value": round * SETTINGS + setting});
        let items = devices.iter().flat_map(|device| (0..SETTINGS).map(move |setting| item(&device.id, setting)));
        let items = Value::Array(items.collect());
        let begun = Instant::now();
        let reply = house.api.reply("POST", "/v2/devices/settings", Some(&items)).await?;
        let took = begun.elapsed();
        eprintln!("bench: {} settings in {}", DEVICES * SETTINGS, millis(took));
        let outcome: Value = serde_json::from_slice(&reply.body)?;
        let changed = outcome["data"].as_array().map_or(0, Vec::len);
        if changed != DEVICES * SETTINGS || outcome["errors"] != json!([]) {
            return Err(format!("{changed} settings were changed, and these not: {}", outcome["errors"]).into());
        }
        durations.push(took);
    }
    house.server.stop().await?;
    let mut table = String::from("| call | median | slowest | items/s | target |\n|---|---:|---:|---:|---|\n");
    let name = format!("{} settings", grouped((DEVICES * SETTINGS) as f64));
    table.push_str(&timed_row(&name, durations, DEVICES * SETTINGS, TARGET)?);
    writeln!(
        table,
        "\n{ROUNDS} calls, one after the other: {SETTINGS} settings of each of {DEVICES} devices, every value a new one; the time includes writing \
         the body and reading the whole answer."
    )?;
    page.put("settings", &table)
}
