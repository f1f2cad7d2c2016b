//! Drops labels that the registry refuses, because a user has written others.

use std::sync::Arc;

use isobar_model::ids::DeviceRef;
use isobar_store::telemetry::OutboxChange;
use smallvec::SmallVec;

use super::super::piece::{OutboxSize, ReportRows};
use super::super::work::DeviceFindings;
use super::OutboxQueue;

impl OutboxQueue {
    /// Drops a device's parked labels that `is_dropped` selects, because a user has written others, once `commit` has
    /// accepted the changes for the store.
    pub fn drop_parked_labels<T, E>(
        &mut self,
        device: DeviceRef,
        is_dropped: &dyn Fn(&str) -> bool,
        number: &dyn Fn() -> u64,
        commit: impl FnOnce(Vec<OutboxChange>) -> Result<T, E>,
    ) -> Result<T, E> {
        let report = self.devices.get(&device.key).and_then(|of| of.report.as_ref());
        let left = report.and_then(|report| report.without_parked_labels(is_dropped));
        let Some(found) = left else { return commit(Vec::new()) };
        let left = (!found.is_empty()).then(|| (number(), found.bytes(device.id)));
        let changes = left.iter().map(|(row, bytes)| OutboxChange::Put { number: *row, work: bytes.clone() });
        let committed = commit(changes.collect())?;
        self.lose_labels(device, left.map(|(row, bytes)| (found, row, bytes.len())));
        Ok(committed)
    }

    /// Replaces the report of a device by its remaining changes with a sequence of their own, or removes the report if
    /// none remain.
    fn lose_labels(&mut self, device: DeviceRef, left: Option<(DeviceFindings, u64, usize)>) {
        let Some(of) = self.devices.get_mut(&device.key) else { return };
        let Some(mut report) = of.report.take() else { return };
        let (mut more, less) = (OutboxSize::default(), report.size());
        let needless: SmallVec<[u64; 2]> = report.rows.left.drain(..).chain(report.rows.own.drain(..)).collect();
        if let Some((found, row, bytes)) = left {
            report.rows = ReportRows { own_bytes: bytes, whole_bytes: bytes, ..ReportRows::default() };
            report.rows.own.push(row);
            (report.found, report.bytes) = (Arc::new(found), bytes);
            more.add(of.report.insert(report).size());
        }
        needless.into_iter().for_each(|row| self.let_go(device.key, row));
        self.sized(device.key, more, less);
        self.place(device.key);
    }
}
