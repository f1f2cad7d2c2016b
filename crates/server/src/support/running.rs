//! Asks the process that serves for its part of a support bundle, by its control socket.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use isobar_model::time::Clock;
use serde_json::{Value, json};

use super::{ANSWER_TIME, layout, scrub};
use crate::stores::{TelemetryStore, whole};
use crate::upkeep::{Platform, Task, UpkeepReport, control};
use crate::{Failure, health, logging};

/// The part that the process that serves has written.
pub struct ProcessReport {
    /// Its settings, without secrets.
    pub settings: String,
    /// Where it serves metrics over HTTP.
    pub address: Result<SocketAddr, Failure>,
    /// The formats of its stores.
    pub stores: String,
    /// The newest lines of its log.
    pub log: String,
}

/// Describes this process, for the command in another one. Secrets are removed here, as the other has not read them.
pub async fn describe(platform: &Platform) -> UpkeepReport {
    let (settings, shown) = (&platform.settings, &platform.shown);
    let (lines, dropped) = logging::newest_lines();
    let (log, left_out) = scrub::log(&lines, &shown.secrets);
    let address = health::operations_address(settings);
    let told = json!({
        "settings": shown.text,
        "address": address.as_ref().ok(),
        "noAddress": address.as_ref().err().map(ToString::to_string),
        "stores": scrub::text(&stores(platform).await, &shown.secrets),
        "log": super::log::headed("the process that serves", &log, left_out + dropped),
    });
    UpkeepReport { text: told.to_string(), sound: true }
}

async fn stores(platform: &Platform) -> String {
    let mut text = layout(&platform.settings.data);
    let _ = match Clock::System.timeout(ANSWER_TIME / 2, platform.stores.registry.steps()).await {
        Ok(Ok((found, known))) => writeln!(text, "steps of the registry: {found} (this program's: {known})"),
        Ok(Err(error)) => writeln!(text, "steps of the registry: {}", whole(&error)),
        Err(late) => writeln!(text, "steps of the registry: {late}"),
    };
    if let TelemetryStore::Embedded(store) = &platform.stores.telemetry {
        let _ = match store.format_now() {
            Ok(format) => writeln!(text, "format of telemetry: {format}"),
            Err(error) => writeln!(text, "format of telemetry: {}", whole(&error)),
        };
    }
    text
}

/// Asks the process that serves. Returns `None` if there is none.
pub async fn ask(data: &Path) -> Result<Option<ProcessReport>, Failure> {
    let asked = Clock::System.timeout(ANSWER_TIME, control::ask(data, &Task::Describe)).await;
    let Some(told) = asked.map_err(|_| "it does not answer on its socket")?? else { return Ok(None) };
    let told: Value = serde_json::from_str(&told.text)?;
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let address = text("address").parse().map_err(|_| Failure::from(text("noAddress")));
    Ok(Some(ProcessReport { settings: text("settings"), address, stores: text("stores"), log: text("log") }))
}
