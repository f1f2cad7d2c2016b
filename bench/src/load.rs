//! A load of an exact number of events, for what wrk cannot do: it only knows durations.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use hdrhistogram::Histogram;

use crate::Failure;
use crate::setup::{Device, event_request, payload};
use crate::wire::Wire;

/// One minute, in microseconds.
const LATENCY_MAX_MICROS: u64 = 60_000_000;

/// What a load came to.
pub struct Outcome {
    /// Events that were acknowledged.
    pub acknowledged: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// How long each `mark_every` took.
    pub marks: Vec<Duration>,
    /// Latencies in microseconds.
    pub latency: Histogram<u64>,
}

/// Posts events `0..count`, device after device, over so many connections. `mark_every`: where the time is taken.
pub async fn post(
    address: &str,
    devices: &[Device],
    count: usize,
    connections: usize,
    mark_every: usize,
) -> Result<Outcome, Failure> {
    let counter = Counter::new(mark_every)?;
    let begun = Instant::now();
    let connection = async || {
        let mut wire = Wire::open(address).await?;
        while let Some(number) = counter.take(count) {
            let request = event_request(address, &devices[number % devices.len()], &payload(number));
            let sent = Instant::now();
            let status = wire.exchange_status(&request).await?;
            if status != 201 {
                return Err(Failure::from(format!("event {number} is answered {status}")));
            }
            counter.acknowledge(sent.elapsed());
        }
        Ok(())
    };
    all((0..connections.min(count)).map(|_| connection()).collect()).await?;
    Ok(counter.outcome(begun.elapsed()))
}

/// Posts until the server is gone; how many were acknowledged until then.
pub async fn post_until_broken(address: &str, devices: &[Device], connections: usize) -> usize {
    let (next, acknowledged) = (Cell::new(0), Cell::new(0));
    let connection = async || {
        let Ok(mut wire) = Wire::open(address).await else { return };
        loop {
            let number = next.replace(next.get() + 1);
            let request = event_request(address, &devices[number % devices.len()], &payload(number));
            match wire.exchange_status(&request).await {
                Ok(201) => acknowledged.set(acknowledged.get() + 1),
                _ => return,
            }
        }
    };
    join_all((0..connections).map(|_| connection())).await;
    acknowledged.get()
}

struct Counter {
    next: Cell<usize>,
    acknowledged: Cell<usize>,
    mark_every: usize,
    marked: Cell<Instant>,
    marks: RefCell<Vec<Duration>>,
    latency: RefCell<Histogram<u64>>,
}

impl Counter {
    fn new(mark_every: usize) -> Result<Self, Failure> {
        Ok(Self {
            next: Cell::new(0),
            acknowledged: Cell::new(0),
            mark_every,
            marked: Cell::new(Instant::now()),
            marks: RefCell::new(Vec::new()),
            latency: RefCell::new(Histogram::new_with_bounds(1, LATENCY_MAX_MICROS, 3)?),
        })
    }

    fn take(&self, count: usize) -> Option<usize> {
        let number = self.next.get();
        self.next.set(number + 1);
        (number < count).then_some(number)
    }

    fn acknowledge(&self, took: Duration) {
        self.latency.borrow_mut().saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        let acknowledged = self.acknowledged.get() + 1;
        self.acknowledged.set(acknowledged);
        if acknowledged.is_multiple_of(self.mark_every) {
            let since = self.marked.replace(Instant::now());
            self.marks.borrow_mut().push(since.elapsed());
            eprintln!(
                "bench: {acknowledged} events, the last {} in {:.1} s",
                self.mark_every,
                since.elapsed().as_secs_f64()
            );
        }
    }

    fn outcome(self, elapsed: Duration) -> Outcome {
        let acknowledged = self.acknowledged.get();
        Outcome { acknowledged, elapsed, marks: self.marks.into_inner(), latency: self.latency.into_inner() }
    }
}

/// Runs futures side by side until all have ended, or one has failed.
pub async fn all<F: Future<Output = Result<(), Failure>>>(futures: Vec<F>) -> Result<(), Failure> {
    try_join_all(futures).await.map(|_| ())
}
