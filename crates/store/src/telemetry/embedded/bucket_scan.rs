//! Buckets of a series: every value of the range is looked at once, oldest first, in slices.

use std::ops::Range;
use std::sync::Arc;

use rocksdb::ReadOptions;

use super::keys::{self, Family};
use super::rows::{read_value, text};
use super::scan::ScannedRow;
use super::slices::{Sliced, Watch};
use super::values::{Plan, track};
use super::{Core, load};
use crate::error::{Result, StoreError};
use crate::telemetry::Buckets;

/// Read ahead of a scan, in bytes.
const BUCKETS_READAHEAD_BYTES: usize = 1 << 20;

/// A scan into buckets.
pub struct BucketScan {
    device: u64,
    element: Arc<str>,
    plan: Plan,
    /// None: they were handed out.
    buckets: Option<Buckets>,
    /// The series, and what of it was not looked at yet; none: it has not begun.
    course: Option<(u64, Range<u64>)>,
}

impl BucketScan {
    /// Nothing is read yet.
    pub fn new(device: u64, element: Arc<str>, plan: Plan, buckets: Buckets) -> Self {
        Self { device, element, plan, buckets: Some(buckets), course: None }
    }

    fn begin(&self, core: &Core) -> Result<Option<(u64, Range<u64>)>> {
        let db = &core.db;
        let Some(record) = load::record(db, self.device, &self.element)? else { return Ok(None) };
        let count = load::count(db, Family::Values, record.number)?;
        let within = self.plan.within(&mut track(db, record.number, ReadOptions::default())?, count)?;
        Ok(Some((record.number, within)))
    }
}

impl Sliced for BucketScan {
    /// The buckets, and whether there is such a series.
    type Done = (Buckets, bool);

    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Self::Done>> {
        if self.course.is_none() {
            self.course = self.begin(core)?;
        }
        let Some((series, left)) = &mut self.course else {
            return Ok(self.buckets.take().map(|buckets| (buckets, false)));
        };
        let buckets = self.buckets.as_mut().ok_or_else(|| StoreError::unavailable("buckets are handed out once"))?;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(BUCKETS_READAHEAD_BYTES);
        let (plan, mut goes_on) = (&self.plan, true);
        if !left.is_empty() {
            track(&core.db, *series, options)?.read(left.clone(), |sequence, value| {
                let (id, order, payload) = read_value(value)?;
                let row = ScannedRow { sequence, id, order, payload: text(payload)? };
                if plan.holds(&row) {
                    buckets.take(keys::moment(order), row.payload)?;
                }
                left.start = sequence + 1;
                goes_on = watch.goes_on(value.len())?;
                Ok(goes_on)
            })?;
        }
        Ok(self.buckets.take_if(|_| goes_on).map(|buckets| (buckets, true)))
    }
}
