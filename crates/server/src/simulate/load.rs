//! The load: each connection posts for its share of the devices, in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use hyper::header::HeaderName;
use hyper::{Method, Uri};
use isobar_model::time::Clock;
use tokio::sync::watch;

use super::client::{Answer, Connection, ServerUrl};
use super::fleet::Seat;
use super::profile::{Profile, Simulated};
use super::stats::Stats;

/// Pause of a connection after an error, to spare a server that is down.
const REST_AFTER_ERROR: Duration = Duration::from_millis(200);
/// Most backlog that a connection catches up with.
const BACKLOG_MAX: Duration = Duration::from_secs(1);
/// Pause of a connection whose devices have all exhausted their rate limits.
const REST_WHEN_SPENT: Duration = Duration::from_millis(50);

/// The load to generate.
pub struct Work {
    /// The server.
    pub server: ServerUrl,
    /// The kind of devices.
    pub profile: Profile,
    /// Events a second of all devices together; `None` for as fast as possible.
    pub rate: Option<f64>,
    /// Number of connections.
    pub connections: usize,
    /// The clock of payloads and intervals.
    pub clock: Clock,
}

struct Device {
    seat: Seat,
    simulated: Box<dyn Simulated>,
    /// End of its exhausted rate window, in seconds since the epoch.
    spent_until: i64,
}

struct LoadWorker {
    connection: Connection,
    devices: Vec<Device>,
    /// Time between two events; `None` for no pause.
    interval: Option<Duration>,
    target: Uri,
    stats: Arc<Stats>,
    stop: watch::Receiver<bool>,
    clock: Clock,
}

/// Posts for all devices until `stop`.
pub async fn run(work: &Work, seats: Vec<Seat>, stats: &Arc<Stats>, stop: &watch::Receiver<bool>) {
    let connections = work.connections.clamp(1, seats.len().max(1));
    let interval = work.rate.map(|rate| Duration::from_secs_f64(connections as f64 / rate));
    let target: Uri = format!("/v2/events/device?elementName={}", work.profile.element()).parse().unwrap_or_default();
    let mut shares: Vec<Vec<Device>> = (0..connections).map(|_| Vec::new()).collect();
    for (number, seat) in seats.into_iter().enumerate() {
        let device = Device { seat, simulated: work.profile.device(number), spent_until: 0 };
        shares[number % connections].push(device);
    }
    let workers = shares.into_iter().enumerate().map(|(number, devices)| {
        let worker = LoadWorker {
            connection: Connection::to(&work.server, &work.clock),
            devices,
            interval,
            target: target.clone(),
            stats: stats.clone(),
            stop: stop.clone(),
            clock: work.clock.clone(),
        };
        let offset = interval.unwrap_or_default().mul_f64(number as f64 / connections as f64);
        tokio::spawn(worker.run(offset))
    });
    join_all(workers.collect::<Vec<_>>()).await;
}

impl LoadWorker {
    async fn run(mut self, offset: Duration) {
        let mut due = self.clock.instant() + offset;
        let mut resting = 0;
        for turn in (0..self.devices.len()).cycle() {
            if let Some(interval) = self.interval {
                self.sleep_until(due).await;
                due = (due + interval).max(self.clock.instant() - BACKLOG_MAX);
            }
            if *self.stop.borrow() {
                return;
            }
            if self.devices[turn].spent_until > self.clock.now().seconds() {
                resting += 1;
                if resting >= self.devices.len() {
                    resting = 0;
                    self.sleep_until(self.clock.instant() + REST_WHEN_SPENT).await;
                }
                continue;
            }
            resting = 0;
            if !self.post(turn).await {
                self.sleep_until(self.clock.instant() + REST_AFTER_ERROR).await;
            }
        }
    }

    /// Posts one event; returns true if it was acknowledged.
    async fn post(&mut self, turn: usize) -> bool {
        const CLOUD: HeaderName = HeaderName::from_static("cloud");
        let device = &mut self.devices[turn];
        let mut body = Vec::with_capacity(128);
        device.simulated.measure(self.clock.now().millis() as f64 / 1_000.0, &mut body);
        let credential = Some((&CLOUD, &device.seat.token));
        let begun = self.clock.instant();
        match self.connection.call(&Method::POST, &self.target, credential, Some(Bytes::from(body))).await {
            Ok(answer) => {
                device.spent_until = spent_until(&answer);
                if device.spent_until > 0 {
                    self.stats.spent();
                }
                if answer.status.is_success() {
                    self.stats.event(self.clock.elapsed(begun));
                } else {
                    self.stats.error(format!("status {}", answer.status.as_u16()));
                }
                answer.status.is_success()
            }
            Err(error) => {
                self.stats.error(error.kind().to_owned());
                false
            }
        }
    }

    async fn sleep_until(&mut self, due: Instant) {
        if due > self.clock.instant() {
            tokio::select! {
                () = self.clock.sleep_until(due) => {}
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
        }
    }
}

/// Returns the end of an exhausted rate window, for which the device waits, or 0.
fn spent_until(answer: &Answer) -> i64 {
    match answer.number("x-ratelimit-remaining") {
        Some(0) => answer.number("x-ratelimit-reset").unwrap_or(0),
        _ => 0,
    }
}
