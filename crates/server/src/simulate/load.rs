//! The devices at work: each connection serves its share of them, one after the other.

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

/// After an error a connection rests, so that a server that is down is not hammered.
const REST_AFTER_ERROR: Duration = Duration::from_millis(200);
/// A connection that fell behind its pace catches up with at most this much at once.
const BACKLOG_MAX: Duration = Duration::from_secs(1);
/// How long all devices of a connection rest when each has spent its rate window: then they look again.
const REST_WHEN_SPENT: Duration = Duration::from_millis(50);

/// What the connections are to do.
pub struct Work {
    /// Where.
    pub server: ServerUrl,
    /// As what.
    pub profile: Profile,
    /// Events a second, all devices together; none: as fast as it can.
    pub rate: Option<f64>,
    /// Connections.
    pub connections: usize,
    /// Tells devices what time it is, and when their next event is due.
    pub clock: Clock,
}

struct Device {
    seat: Seat,
    simulated: Box<dyn Simulated>,
    /// Its rate window is spent until then (seconds since the epoch).
    spent_until: i64,
}

struct LoadWorker {
    connection: Connection,
    devices: Vec<Device>,
    /// Time between two events; none: no pause.
    interval: Option<Duration>,
    target: Uri,
    stats: Arc<Stats>,
    stop: watch::Receiver<bool>,
    clock: Clock,
}

/// Lets all devices post until `stop` says so.
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

    /// Posts one event. Whether it was acknowledged.
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

/// A device whose window is spent waits for its end instead of being refused.
fn spent_until(answer: &Answer) -> i64 {
    match answer.number("x-ratelimit-remaining") {
        Some(0) => answer.number("x-ratelimit-reset").unwrap_or(0),
        _ => 0,
    }
}
