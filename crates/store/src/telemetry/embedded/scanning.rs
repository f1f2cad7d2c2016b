//! Scans for a page whose filters or order by payload need every value of a range. It runs in slices, in bounded
//! memory, and holds nothing of the database between two of them.

use std::ops::Range;
use std::sync::Arc;

use isobar_model::event::StoredValue;
use isobar_model::page::Page;
use rocksdb::{DB, ReadOptions};

use super::Core;
use super::rows::{read_value, text};
use super::seek::Track;
use super::slices::{Sliced, Watch};
use super::values::{OpenSeries, fetch, track};
use crate::error::Result;
use crate::telemetry::ready_query::{ReadyQuery, ValueOrder};
use crate::telemetry::scan::{ScannedRow, Sort};
use crate::telemetry::sorted_page::SortedPage;

/// Values of one step of a scan from the newest.
const STEP: u64 = 8_192;
/// Bytes that a scan reads ahead.
const SCAN_READAHEAD_BYTES: usize = 1 << 20;

/// Scan for one page.
pub struct Scan {
    device: u64,
    element: String,
    query: Arc<ReadyQuery>,
    /// Progress, or `None` before it begins.
    course: Option<ScanCourse>,
}

struct ScanCourse {
    series: u64,
    within: Range<u64>,
    /// Sequences that this round has not read yet.
    left: Range<u64>,
    /// Sequences of the page, as far as they are known.
    page: Vec<u64>,
    so_far: SoFar,
}

enum SoFar {
    InTime(InTime),
    Sorted(SortedPage),
}

/// Progress in an order of time. From the newest it goes back step by step, each read forwards, which is faster than
/// reading backwards.
#[derive(Default)]
struct InTime {
    newest_first: bool,
    /// Rest of the step; the next field has the sequences found in it.
    step: Range<u64>,
    found: Vec<u64>,
    total: u64,
}

impl Scan {
    /// Creates a scan that has read nothing.
    pub fn new(device: u64, element: String, query: Arc<ReadyQuery>) -> Self {
        Self { device, element, query, course: None }
    }
}

impl Sliced for Scan {
    /// Page, or `None` if there is no such series.
    type Done = Option<Page<StoredValue>>;

    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Self::Done>> {
        let course = match &mut self.course {
            Some(course) => course,
            none => match ScanCourse::begin(core, self.device, &self.element, &self.query)? {
                Some(course) => none.insert(course),
                None => return Ok(Some(None)),
            },
        };
        let Some(total) = course.go_on(&core.db, &self.query, watch)? else { return Ok(None) };
        let items = fetch(&core.db, course.series, &course.page)?;
        Ok(Some(Some(Page::new(items, total, self.query.request))))
    }
}

impl ScanCourse {
    fn begin(core: &Core, device: u64, element: &str, query: &ReadyQuery) -> Result<Option<Self>> {
        let options = ReadOptions::default();
        let Some(mut series) = OpenSeries::of(&core.db, device, element, options)? else { return Ok(None) };
        let (series, within) = (series.number, series.within(query)?);
        let mut left = within.clone();
        let so_far = match query.newest_first() {
            Some(newest_first) => SoFar::InTime(InTime { newest_first, ..InTime::default() }),
            None => {
                let total = query.takes_all().then_some(within.end - within.start);
                if !query.reaches(total)? {
                    left.start = left.end;
                }
                SoFar::Sorted(SortedPage::new(query.end_of_page(), total, &core.sorted))
            }
        };
        Ok(Some(Self { series, left, within, page: Vec::new(), so_far }))
    }

    /// Continues until the page is known, then returns the total that passes the filters; `None` if the slice is over.
    fn go_on(&mut self, db: &DB, query: &ReadyQuery, watch: &mut Watch<'_>) -> Result<Option<u64>> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(SCAN_READAHEAD_BYTES);
        let mut reading = Reading { track: track(db, self.series, options)?, query, watch };
        match (&mut self.so_far, &query.listing) {
            (SoFar::Sorted(sorted), ValueOrder::Sorted(sort)) => {
                sort_on(sorted, &mut reading, sort, (&self.within, &mut self.left), &mut self.page)
            }
            (SoFar::InTime(in_time), _) => in_time.go_on(&mut reading, &mut self.left, &mut self.page),
            // A scan is continued by the query that began it.
            (SoFar::Sorted(_), _) => Ok(Some(0)),
        }
    }
}

struct Reading<'a, 'w> {
    track: Track<'a>,
    query: &'a ReadyQuery,
    watch: &'a mut Watch<'w>,
}

impl Reading<'_, '_> {
    /// Calls `each` with the values of these sequences that pass the filters, from the first on. Returns false if the
    /// slice ended before them.
    fn each(&mut self, left: &mut Range<u64>, mut each: impl FnMut(&ScannedRow<'_>)) -> Result<bool> {
        let (query, watch) = (self.query, &mut *self.watch);
        if left.is_empty() {
            return Ok(true);
        }
        let mut goes_on = true;
        self.track.read(left.clone(), |sequence, value| {
            let (id, order, payload) = read_value(value)?;
            let row = ScannedRow { sequence, id, order, payload: text(payload)? };
            if query.holds(&row) {
                each(&row);
            }
            left.start = sequence + 1;
            goes_on = watch.goes_on(value.len())?;
            Ok(goes_on)
        })?;
        if goes_on {
            // Missing rows mean that the series was deleted meanwhile.
            left.start = left.end;
        }
        Ok(goes_on)
    }
}

impl InTime {
    fn go_on(
        &mut self,
        reading: &mut Reading<'_, '_>,
        left: &mut Range<u64>,
        page: &mut Vec<u64>,
    ) -> Result<Option<u64>> {
        let wanted = reading.query.request.offset()..reading.query.end_of_page();
        loop {
            let found = &mut self.found;
            if !reading.each(&mut self.step, |row| found.push(row.sequence))? {
                return Ok(None);
            }
            if self.newest_first {
                found.reverse();
            }
            for sequence in found.drain(..) {
                if wanted.contains(&self.total) {
                    page.push(sequence);
                }
                self.total += 1;
            }
            if left.is_empty() {
                return Ok(Some(self.total));
            }
            self.step = if self.newest_first {
                let from = left.start.max(left.end.saturating_sub(STEP));
                from..std::mem::replace(&mut left.end, from)
            } else {
                let to = left.end.min(left.start.saturating_add(STEP));
                std::mem::replace(&mut left.start, to)..to
            };
        }
    }
}

/// Continues the rounds of an order by payload; returns `None` if the slice is over.
fn sort_on(
    sorted: &mut SortedPage,
    reading: &mut Reading<'_, '_>,
    sort: &Sort,
    (within, left): (&Range<u64>, &mut Range<u64>),
    page: &mut Vec<u64>,
) -> Result<Option<u64>> {
    loop {
        if !reading.each(left, |row| sorted.take(sort, row))? {
            return Ok(None);
        }
        if let Some(total) = sorted.end_round(reading.query, sort, page)? {
            return Ok(Some(total));
        }
        *left = within.clone();
    }
}
