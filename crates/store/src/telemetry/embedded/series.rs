//! Removing series and whole devices: the answer comes when they are out of sight, durably; the space comes back later.

use isobar_model::ids::DeviceKey;

use super::Embedded;
use super::device::{DeviceState, SeriesState, Timeline};
use super::keys::{self, Family};
use super::rows::{Rows, damaged};
use crate::error::Result;

/// A series goes out of sight: its record goes, its number is noted to be reclaimed.
fn bury(device: u64, series: &SeriesState, rows: &mut Rows) {
    rows.delete(Family::State, &keys::state(device, keys::STATE_SERIES, &series.element));
    rows.put(Family::Meta, &keys::about(keys::GARBAGE_SERIES, series.number), &[&series.bytes.to_be_bytes()]);
}

impl Embedded {
    /// Removes a series, or all of them.
    pub(super) async fn delete_series(&self, device: DeviceKey, element: Option<&str>) -> Result<bool> {
        let mut held = self.hold(device).await?;
        let reservation = self.core.shared.reserve(None)?;
        let state = held.state.as_mut().ok_or_else(|| damaged("a device is not loaded"))?;
        let chosen = |series: &mut SeriesState| element.is_none_or(|element| *series.element == *element);
        let gone: Vec<_> = state.series.extract_if(.., chosen).collect();
        state.count_texts();
        if gone.is_empty() {
            return Ok(false);
        }
        let mut rows = Rows::default();
        gone.iter().for_each(|series| bury(device.0, series, &mut rows));
        let sent = reservation.send(&rows);
        state.ticket = sent.ticket;
        self.core.devices.weigh(&mut held, self.core.shared.durable());
        self.core.reclaim.series(gone.iter().map(|series| (series.number, series.bytes)), sent.ticket);
        drop(held);
        sent.durable.await?;
        Ok(true)
    }

    /// Forgets a device. Its timelines go on where they were, so that what is reclaimed cannot be mistaken for what is new.
    pub(super) async fn forget_device(&self, device: DeviceKey) -> Result<()> {
        let mut held = self.hold(device).await?;
        let reservation = self.core.shared.reserve(None)?;
        let state = held.state.as_mut().ok_or_else(|| damaged("a device is not loaded"))?;
        let floors = state.timelines.map(|timeline| timeline.next);
        let mut rows = Rows::default();
        for family in [Family::State, Family::Queue] {
            rows.delete_range(family, &device.0.to_be_bytes(), &keys::after(device.0));
        }
        let late = |kind: u8| keys::timeline(device.0, kind, 0);
        rows.delete_range(Family::Timeline, &late(keys::KIND_LATE), &late(keys::KIND_LATE + 1));
        state.series.iter().for_each(|series| bury(device.0, series, &mut rows));
        rows.put(
            Family::Meta,
            &keys::about(keys::GARBAGE_DEVICE, device.0),
            &[&floors[0].to_be_bytes(), &floors[1].to_be_bytes()],
        );
        let timelines = floors.map(|next| Timeline { next, order: 0 });
        let gone = std::mem::replace(state, DeviceState { timelines, ..DeviceState::default() });
        self.core.reclaim.hide(device.0, floors);
        let sent = reservation.send(&rows);
        state.ticket = sent.ticket;
        self.core.devices.weigh(&mut held, self.core.shared.durable());
        self.core.reclaim.forgotten(device.0, sent.ticket);
        self.core.reclaim.series(gone.series.iter().map(|series| (series.number, series.bytes)), sent.ticket);
        drop(held);
        sent.durable.await
    }
}
