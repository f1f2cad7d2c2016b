//! Runs long work in slices: between two slices others have theirs (see [`isobar_quota::FairQueue`]).

use isobar_threads::GivingThreads;

use super::{Cancel, Core, Embedded};
use crate::error::{Result, StoreError};
use isobar_quota::{QueueSlot, Slice};

/// Name of the threads of scans.
const SCAN_THREAD: &str = "isobar-scan";

/// Creates the threads for long reads, which yield to those that serve calls and write. There are as many as slots.
pub(super) fn scan_threads(at_once: usize) -> Result<GivingThreads> {
    GivingThreads::new(SCAN_THREAD, at_once).map_err(StoreError::unavailable)
}

/// Work that can be interrupted and continued.
pub trait Sliced: Send + 'static {
    /// Result of the work.
    type Done: Send + 'static;

    /// Continues until the result is known, or returns `None` if the slice is over, and is called again.
    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Self::Done>>;
}

/// Time limit of a slice, and the check that the caller still waits.
pub struct Watch<'a> {
    slice: Slice<'a>,
    cancel: &'a Cancel,
}

impl Watch<'_> {
    /// Counts a row of this many bytes; returns true if there is time for the next. Fails if the caller is gone.
    pub fn goes_on(&mut self, bytes: usize) -> Result<bool> {
        if !self.slice.is_time_to_look(bytes) {
            return Ok(true);
        }
        self.cancel.check()?;
        Ok(self.slice.goes_on())
    }
}

impl Embedded {
    /// Does work in its slots. When the caller is gone, the slot ends only after the thread has noticed it: there are
    /// never more working threads than slots.
    pub(super) async fn in_slices<W: Sliced>(&self, mut slot: QueueSlot, mut work: W) -> Result<W::Done> {
        loop {
            let slice = move |core: &Core, cancel: &Cancel| {
                cancel.check()?;
                let done = work.go_on(core, &mut Watch { slice: slot.slice(), cancel })?;
                Ok((slot, work, done))
            };
            match self.scanning(slice).await? {
                (_, _, Some(done)) => return Ok(done),
                (held, rest, None) => (slot, work) = (held.pass_on().await?, rest),
            }
        }
    }

    /// Does work within one slot.
    pub(super) async fn in_slot<T: Send + 'static>(
        &self,
        slot: QueueSlot,
        work: impl FnOnce(&Core, &Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.scanning(move |core, cancel| {
            let _slot = slot;
            cancel.check()?;
            work(core, cancel)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use isobar_model::access::CanWrite;
    use isobar_model::ids::{DeviceRef, OrganizationId};
    use isobar_power::within_patience;
    use uuid::Uuid;

    use super::super::Options;
    use super::*;
    use crate::error::StoreError;
    use crate::given::{self, id};
    use crate::telemetry::{
        Filter, FilterField, Followed, Operand, Operator, StreamPosition, Telemetry, ValueQuery, ValueSort,
    };
    use isobar_quota::{Claim, FairQueue, Limit, UNLIMITED};

    fn claim(tenant: u128) -> Claim {
        Claim::begin(OrganizationId(Uuid::from_u128(tenant)))
    }

    /// Opens a store with one slot, which is passed on whenever another task waits; and a device with this many values.
    async fn store_with(values: usize) -> (tempfile::TempDir, Embedded, CanWrite<DeviceRef>) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Embedded::open(folder.path(), Options::default()).unwrap();
        store.scans = FairQueue::new(&Limit { at_once: 1, of_all: 4, of_one: 2, slice: Duration::ZERO, ..UNLIMITED });
        let device = given::device();
        for start in (0..values).step_by(1_000) {
            let payloads: Vec<String> = (start..start + 1_000).map(|n| (n * 7 % values).to_string()).collect();
            let values: Vec<_> = payloads.iter().map(|text| ("log", text.as_str())).collect();
            given::run(&store, &device, given::storing(id(start as i64), &values)).await;
        }
        (folder, store, device)
    }

    fn filtered() -> ValueQuery {
        let operands = vec![Operand::Number("-1".to_owned())];
        let filter = Filter { field: FilterField::Payload(Vec::new()), operator: Operator::Gt, operands };
        ValueQuery { filters: vec![filter], ..ValueQuery::default() }
    }

    fn sorted() -> ValueQuery {
        let sort = vec![ValueSort { field: FilterField::Payload(Vec::new()), descending: false }];
        ValueQuery { sort, ..ValueQuery::default() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn long_scan_yields_and_has_the_same_result() {
        let (_folder, store, device) = store_with(20_000).await;
        let small = given::device();
        given::store(&store, &small, 1, "log", "1").await;
        let (large, small) = (device.reading(), small.reading());
        for query in [filtered(), sorted()] {
            let alone = store.values(&large, "log", query.clone(), claim(1)).await.unwrap();
            let held = store.scans.take(claim(3)).await.unwrap();
            let mut long = store.values(&large, "log", query.clone(), claim(1));
            assert!((&mut long).now_or_never().is_none());
            let mut short = store.values(&small, "log", query, claim(2));
            assert!((&mut short).now_or_never().is_none());
            drop(held);
            // The long scan is first in the line, and yet does not end first.
            let is_short_first = tokio::select! {
                biased;
                _ = &mut long => false,
                found = &mut short => {
                    assert_eq!(found.unwrap().unwrap().total, 1);
                    true
                }
            };
            assert!(is_short_first);
            assert_eq!(long.await.unwrap(), alone);
        }
        assert_eq!(store.scans.taken_and_waiting(), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn cancelled_scan_frees_its_slot_and_its_queue_position() {
        let (_folder, store, device) = store_with(20_000).await;
        let reading = device.reading();
        let under_way = Box::pin(async {
            let _ = store.values(&reading, "log", sorted(), claim(1)).await;
        });
        let waits = Box::pin(async {
            let _ = store.values(&reading, "log", filtered(), claim(2)).await;
        });
        let (mut under_way, mut waits) = (under_way, waits);
        assert!((&mut under_way).now_or_never().is_none() && (&mut waits).now_or_never().is_none());
        assert_eq!(store.scans.taken_and_waiting(), (1, 1));
        drop(waits);
        assert_eq!(store.scans.taken_and_waiting(), (1, 0));
        drop(under_way);
        while store.scans.taken_and_waiting() != (0, 0) {
            tokio::task::yield_now().await;
        }
    }

    /// Work without a practical end: it counts its rows, and pauses at the first until the test continues it.
    struct Endless {
        rows: Arc<AtomicU32>,
        begun: mpsc::Sender<()>,
        gone: mpsc::Receiver<()>,
    }

    /// Rows after which it ends all the same.
    const ENDLESS: u32 = 10_000;

    impl Sliced for Endless {
        type Done = ();

        fn go_on(&mut self, _: &Core, watch: &mut Watch<'_>) -> Result<Option<()>> {
            while self.rows.fetch_add(1, Ordering::Relaxed) < ENDLESS {
                if self.rows.load(Ordering::Relaxed) == 1 {
                    self.begun.send(()).unwrap();
                    self.gone.recv().unwrap();
                }
                if !watch.goes_on(1)? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        }
    }

    // Holds: c13.bucketsEnd
    #[tokio::test(flavor = "multi_thread")]
    async fn cancelled_scan_ends_after_a_few_rows() {
        let (_folder, store, _) = store_with(0).await;
        let (rows, (begun, first), (go, gone)) = (Arc::new(AtomicU32::new(0)), mpsc::channel(), mpsc::channel());
        let work = Endless { rows: Arc::clone(&rows), begun, gone };
        let mut asked = Box::pin(store.in_slices(store.scans.take(claim(1)).await.unwrap(), work));
        assert!((&mut asked).now_or_never().is_none());
        first.recv().unwrap();
        drop(asked);
        go.send(()).unwrap();
        while store.scans.taken_and_waiting() != (0, 0) {
            tokio::task::yield_now().await;
        }
        let rows = rows.load(Ordering::Relaxed);
        assert!(rows < 1_000, "{rows} rows were looked at for nobody");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn long_reads_wait_for_a_slot_in_a_bounded_queue() {
        let (_folder, store, device) = store_with(2_000).await;
        let (reading, held) = (device.reading(), store.scans.take(claim(3)).await.unwrap());
        let devices = Followed::of([reading.clone()]);
        let until = store.follow().from;
        let query = ValueQuery::default();
        let mut page = store.values(&reading, "log", sorted(), claim(1));
        let mut piece = store.values_chunk(&reading, "log", &query, None, claim(1));
        let mut found = store.history_between(&devices, StreamPosition::first(), until, 10, claim(2));
        assert!((&mut page).now_or_never().is_none());
        assert!((&mut piece).now_or_never().is_none());
        assert!((&mut found).now_or_never().is_none());
        for tenant in [1, 2] {
            let asks = store.values(&reading, "log", filtered(), claim(tenant));
            let refused = within_patience("one too many is refused", asks).await;
            assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
        }
        // A tenant without a place takes the newest place of the tenant with most; the next one finds none that has
        // more.
        let long = given::all_history(given::page(1, 10_000));
        let mut fourth = store.history(&reading, long, claim(4));
        assert!((&mut fourth).now_or_never().is_none());
        let evicted = within_patience("the youngest is evicted", piece).await;
        assert!(matches!(evicted, Err(StoreError::Busy)), "{evicted:?}");
        let refused = within_patience("nobody has more", store.history(&reading, long, claim(5))).await;
        assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
        // A short read waits for no slot.
        assert_eq!(store.values(&reading, "log", query.clone(), claim(4)).await.unwrap().unwrap().total, 2_000);
        drop(held);
        let (page, fourth, found) = futures::join!(page, fourth, found);
        assert!(page.unwrap().is_some() && fourth.is_ok());
        assert_eq!(found.unwrap().left(), 2);
    }
}
