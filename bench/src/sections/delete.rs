//! Deletion of a device with a long series: how long it takes, and when its space comes back.

use std::time::{Duration, Instant};

use super::{House, grouped, megabytes, millis};
use crate::page::Page;
use crate::process::size_of;
use crate::setup::Device;
use crate::{Failure, Options};

/// How long the space is waited for.
const SPACE_TIMEOUT: Duration = Duration::from_secs(90);
const SPACE_TIMEOUT_QUICK: Duration = Duration::from_secs(10);
/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub async fn measure(options: &Options, page: &Page, house: &mut House, device: &Device) -> Result<(), Failure> {
    let path = format!("/v2/devices/{}", device.id);
    let storage = house.api.call("GET", &format!("{path}/storage"), None).await?;
    let held = storage["bytesStored"].as_u64().unwrap_or_default();
    let before = size_of(house.path());
    let timeout = if options.quick { SPACE_TIMEOUT_QUICK } else { SPACE_TIMEOUT };
    let begun = Instant::now();
    house.api.reply("DELETE", &path, None).await?;
    let took = begun.elapsed();
    let mut least = before;
    let mut came_back = Duration::ZERO;
    while begun.elapsed() < timeout {
        let now = size_of(house.path());
        if now + now / 200 < least {
            least = now;
            came_back = begun.elapsed();
        }
        // Settled: nothing more has come for a while.
        if !came_back.is_zero() && begun.elapsed() > came_back + Duration::from_secs(15) {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let back = match came_back.is_zero() {
        true => format!("no space came back within {} s", timeout.as_secs()),
        false => format!("{} came back within {:.0} s", megabytes(before - least), came_back.as_secs_f64()),
    };
    let figures = format!(
        "A device with {} values ({} by `bytesStored`) is deleted in {}; of the folder's {}, {back}.",
        grouped(options.series as f64),
        megabytes(held),
        millis(took),
        megabytes(before)
    );
    page.put("delete", &figures)
}
