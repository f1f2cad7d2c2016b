//! Lines at devices, in this process: changes of a device's row, and runs that others have overtaken, take turns in the order
//! in which they came.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceKey;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::Delivery;

/// Longest time for which a change or a run waits in a line.
const LINE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Number of devices above which lines without anybody are removed.
const LINES_LOOKED_AT: usize = 1_024;

#[derive(Default)]
pub(super) struct DeviceLines(Mutex<HashMap<DeviceKey, Arc<tokio::sync::Mutex<()>>>>);

/// The first place in the lines of some devices, until it is dropped.
#[must_use = "the next one begins when this is dropped"]
pub(crate) struct FirstInLine {
    places: Vec<OwnedMutexGuard<()>>,
    /// True if somebody was first before.
    pub has_waited: bool,
}

impl DeviceLines {
    fn of(&self, device: DeviceKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut lines = self.0.lock();
        if lines.len() >= LINES_LOOKED_AT {
            lines.retain(|_, line| Arc::strong_count(line) > 1);
        }
        Arc::clone(lines.entry(device).or_default())
    }
}

impl Delivery {
    /// Waits until the caller is the first in the lines of these devices.
    ///
    /// # Errors
    /// `Busy` if that takes too long.
    pub(crate) async fn line_up(&self, devices: impl Iterator<Item = DeviceKey>) -> Result<FirstInLine> {
        let mut devices: Vec<DeviceKey> = devices.collect();
        // In one order: nobody waits for somebody who waits for it.
        devices.sort_unstable();
        devices.dedup();
        let mut first = FirstInLine { places: Vec::with_capacity(devices.len()), has_waited: false };
        let waits = async {
            for device in devices {
                let line = self.lines.of(device);
                let place = match Arc::clone(&line).try_lock_owned() {
                    Ok(place) => place,
                    Err(_) => {
                        first.has_waited = true;
                        line.lock_owned().await
                    }
                };
                first.places.push(place);
            }
        };
        let is_first = self.env.clock().timeout(LINE_WAIT_MAX, waits).await.is_ok();
        if is_first { Ok(first) } else { Err(Error::Busy) }
    }
}
