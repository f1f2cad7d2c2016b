//! Measures the embedded telemetry store alone, without HTTP and without a design.
//!
//! `cargo run --release -p isobar-store --example telemetry_bench -- [events] [tasks] [folder]`

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on ends")]
#![expect(clippy::disallowed_methods, reason = "a bench measures the machine's time")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use isobar_model::access;
use isobar_model::chance::seeded;
use isobar_model::event::EventType;
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, EventId, IdMint, OrganizationId};
use isobar_model::json::RawJson;
use isobar_model::page::PageRequest;
use isobar_model::time::{Clock, Timestamp};
use isobar_quota::Claim;
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::{
    Commit, Filter, FilterField, NewEvent, NewValue, Operand, Operator, Telemetry, ValueQuery, ValueSort,
};
use uuid::Uuid;

const DEVICES: u64 = 100_000;
const SERIES: u64 = 1_000_000;
const PAYLOAD: &[u8] = br#"{"temp":21.5,"humidity":40,"battery":3.1}"#;

fn device(number: u64) -> access::CanWrite<DeviceRef> {
    let id = DeviceId(Uuid::from_u64_pair(0x7000, 1 << 63 | number));
    access::system(DeviceRef { id, key: DeviceKey(number) }, "bench")
}

/// Reads a figure of this process from /proc/self.
fn proc_figure(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

struct Load {
    store: Arc<Embedded>,
    mint: IdMint,
    clock: Clock,
    next: AtomicU64,
    events: u64,
    devices: u64,
}

impl Load {
    async fn event(&self, number: u64, payload: &RawJson, mint: &mut (dyn FnMut(Timestamp) -> EventId + Send)) {
        let now = self.clock.now();
        let device = device(1 + number % self.devices);
        let element: Arc<str> = "reading".into();
        let mut work = |_: &dyn isobar_store::telemetry::Memory| {
            let id = mint(now);
            Commit {
                history: [NewEvent {
                    id,
                    kind: EventType::DeviceEvent,
                    element: element.clone(),
                    payload: payload.clone(),
                    errors: Vec::new(),
                }]
                .into(),
                values: [NewValue { event: id, element: element.clone(), payload: payload.clone() }].into(),
                ..Commit::default()
            }
        };
        self.store.run(&device, None, now, &mut work).await.unwrap();
    }

    /// Sends the events from this number of tasks; returns their latencies in microseconds, sorted.
    async fn run(self: &Arc<Self>, tasks: u64) -> Vec<u32> {
        let tasks: Vec<_> = (0..tasks)
            .map(|task| {
                let load = self.clone();
                tokio::spawn(async move {
                    let mut rng = seeded(task);
                    let mut latencies = Vec::new();
                    loop {
                        let number = load.next.fetch_add(1, Ordering::Relaxed);
                        if number >= load.events {
                            return latencies;
                        }
                        let payload = RawJson::trusted(Bytes::copy_from_slice(PAYLOAD));
                        let start = Instant::now();
                        load.event(number, &payload, &mut |now| EventId(load.mint.mint(now, &mut rng))).await;
                        latencies.push(start.elapsed().as_micros() as u32);
                    }
                })
            })
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await.unwrap());
        }
        latencies.sort_unstable();
        latencies
    }
}

async fn ingest(store: &Arc<Embedded>, events: u64, tasks: u64, devices: u64) {
    let load = |events| {
        Arc::new(Load {
            store: store.clone(),
            mint: IdMint::new(),
            clock: Clock::System,
            next: AtomicU64::new(0),
            events,
            devices,
        })
    };
    let mut left = events;
    while left > 0 {
        let part = left.min(1_000_000);
        left -= part;
        let (start, written, cpu) = (Instant::now(), proc_figure("io", "write_bytes"), cpu_seconds());
        let latencies = load(part).run(tasks).await;
        let seconds = start.elapsed().as_secs_f64();
        let at = |share: f64| f64::from(latencies[((latencies.len() - 1) as f64 * share) as usize]) / 1000.0;
        println!(
            "{tasks:5} tasks: {:7.0} events/s, p50 {:.2} p99 {:.2} worst {:.1} ms, {} bytes/event, {:.2} cores, {} MB resident",
            part as f64 / seconds,
            at(0.5),
            at(0.99),
            at(1.0),
            (proc_figure("io", "write_bytes") - written) / part,
            (cpu_seconds() - cpu) / seconds,
            proc_figure("status", "VmRSS") / 1024,
        );
    }
}

fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default();
    let ticks =
        |nth: usize| rest.split_whitespace().nth(nth).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Fills one series with a million values, and measures queries of it.
async fn one_series(store: &Arc<Embedded>, folder: &Path) {
    let device = device(DEVICES + 1);
    let mint = IdMint::new();
    let mut rng = seeded(1);
    for start in (0..SERIES).step_by(1_000) {
        let mut work = |_: &dyn isobar_store::telemetry::Memory| {
            let value = |n: u64, event| NewValue {
                event,
                element: "log".into(),
                payload: RawJson::trusted(
                    format!("{{\"temp\":{}.5,\"humidity\":{},\"battery\":3.1}}", n * 7_919 % 100, n % 100).into(),
                ),
            };
            let mut id = |n: u64| EventId(mint.mint(Timestamp::from_millis(1_700_000_000_000 + n as i64), &mut rng));
            let values = (start..start + 1_000).map(|n| value(n, id(n)));
            Commit { values: values.collect(), ..Commit::default() }
        };
        store.run(&device, None, Timestamp::default(), &mut work).await.unwrap();
    }
    let asked = async |name: &str, query: &ValueQuery| {
        let mut best = Duration::MAX;
        let mut first = None;
        for _ in 0..5 {
            let start = Instant::now();
            let page = store
                .values(&device.reading(), "log", query.clone(), Claim::begin(OrganizationId(Uuid::nil())))
                .await
                .unwrap()
                .unwrap();
            best = best.min(start.elapsed());
            first.get_or_insert((start.elapsed(), page.total, page.items.len()));
        }
        println!("{name}: first {:?}, best {best:?} (total {:?})", first.unwrap().0, first.unwrap().1);
    };
    let page = |page, limit| PageRequest::new(page, limit);
    let temp = || FilterField::Payload(vec!["temp".into()]);
    let filters = vec![Filter { field: temp(), operator: Operator::Gt, operands: vec![Operand::Number("50".into())] }];
    let sort = vec![ValueSort { field: FilterField::Payload(vec!["humidity".into()]), descending: true }];
    asked("newest 100", &ValueQuery { page: page(1, 100), ..ValueQuery::default() }).await;
    asked("page 5,000 of 100", &ValueQuery { page: page(5_000, 100), ..ValueQuery::default() }).await;
    let both = ValueQuery { filters: filters.clone(), sort: sort.clone(), ..ValueQuery::default() };
    asked("filter + sort of a million", &both).await;
    asked("filter of a million", &ValueQuery { filters, ..ValueQuery::default() }).await;
    let deep = ValueQuery { page: page(4_000, 100), sort, ..ValueQuery::default() };
    asked("sort of a million, page 4,000", &deep).await;
    println!("before the deletion: {} MB in tables", folder_bytes(folder) >> 20);
    let start = Instant::now();
    store.series_delete(&device, Some("log")).await.unwrap();
    println!("delete of a million: {:?}", start.elapsed());
}

/// Returns the bytes of the table files, without the logs.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
    let tables = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sst"));
    tables.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments.next().map_or(2_000_000, |text| text.parse().unwrap());
    let tasks: Vec<u64> = arguments.next().map_or(vec![256, 1024], |text| vec![text.parse().unwrap()]);
    let folder = arguments.next().map_or_else(|| std::env::temp_dir().join("telemetry_bench"), Into::into);
    let devices: u64 = arguments.next().map_or(DEVICES, |text| text.parse().unwrap());
    let _ = std::fs::remove_dir_all(&folder);
    let store = Arc::new(Embedded::open(&folder, Options::default()).unwrap());
    println!("idle: {} MB resident", proc_figure("status", "VmRSS") / 1024);
    for tasks in tasks {
        ingest(&store, events, tasks, devices).await;
    }
    drop(store);
    let start = Instant::now();
    let store = Arc::new(Embedded::open(&folder, Options::default()).unwrap());
    println!("reopened without a clean end in {:?}, {} MB in tables", start.elapsed(), folder_bytes(&folder) >> 20);
    one_series(&store, &folder).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("5 s later: {} MB in tables", folder_bytes(&folder) >> 20);
    store.close().await.unwrap();
    drop(store);
    let _ = std::fs::remove_dir_all(&folder);
}
