//! The tenant that means no harm: devices that post, one that raises alarms, people who read devices, data and lists, and one
//! who follows the stream. Everything has its time: what is late because the call before it was counts from when it should have been.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::join_all;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::median;
use super::malice;
use crate::api::{Api, PASSWORD};
use crate::process::Server;
use crate::setup::{Device, STORAGE, event_request, make_devices, make_project, make_project_of, payload};
use crate::wire::{Wire, request};
use crate::{Failure, load};

/// Its name.
pub const NAME: &str = "ana";
/// What it does, as the table calls it.
pub const KINDS: [&str; 7] = ["events", "devices", "data", "lists", "stream", "alarms", "log-ins"];
/// Its devices, and the values that each of them has from the start.
const DEVICES: usize = 20;
const VALUES: usize = 100;
/// How long it waits for what is under way when its time is over.
pub const GRACE: Duration = Duration::from_secs(10);
/// A server that takes more is ended: the machine is for others too.
pub const MEMORY_MAX: u64 = 4 << 30;
/// Between two looks at the server.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Before alarms are listed again that lack the newest.
const LIST_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Before a stream that ended is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(500);
/// Longest latency that is told apart, in microseconds.
const LATENCY_MAX_MICROS: u64 = 300_000_000;
/// Where its people are when there is a proxy.
const FORWARDED: &str = "x-forwarded-for: 198.51.100.20";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Events,
    Devices,
    Data,
    Lists,
    Stream,
    Alarms,
    LogIns,
}

/// Connections of each kind, and the pause from call to call on each.
const CALLERS: [(Kind, usize, Duration); 5] = [
    (Kind::Events, 8, Duration::from_millis(80)),
    (Kind::Devices, 2, Duration::from_millis(50)),
    (Kind::Data, 2, Duration::from_millis(50)),
    (Kind::Lists, 2, Duration::from_millis(50)),
    (Kind::Alarms, 1, Duration::from_millis(200)),
];
/// The same of logins, where there are any.
const LOG_INS: (Kind, usize, Duration) = (Kind::LogIns, 1, Duration::from_millis(500));

/// What it saw of the server.
pub struct Heard {
    /// By kind, in microseconds.
    latency: Vec<Histogram<u64>>,
    /// What went wrong, and how often.
    failures: BTreeMap<String, usize>,
}

impl Heard {
    pub fn new() -> Result<Self, Failure> {
        let latency = KINDS.iter().map(|_| Histogram::new_with_bounds(1, LATENCY_MAX_MICROS, 3));
        Ok(Self { latency: latency.collect::<Result<_, _>>()?, failures: BTreeMap::new() })
    }

    /// The 99th percentile of a kind; none: there was none of it.
    pub fn p99(&self, kind: usize) -> Option<Duration> {
        self.latency.get(kind).and_then(p99)
    }

    /// The same of everything but logins, of which each waits for a hash that is slow by intention, and alarms, of which each
    /// is several calls.
    pub fn p99_of_all(&self) -> Result<Option<Duration>, Failure> {
        let mut all = Histogram::new_with_bounds(1, LATENCY_MAX_MICROS, 3)?;
        for one in &self.latency[..Kind::Alarms as usize] {
            all.add(one)?;
        }
        Ok(p99(&all))
    }
}

/// What it saw of the server, turn by turn. The median of the turns counts: now and then a disk that others use as well keeps
/// everybody waiting for longer than any tenant could.
#[derive(Default)]
pub struct Turns(Vec<Heard>);

impl Turns {
    /// Takes in another turn.
    pub fn push(&mut self, heard: Heard) {
        self.0.push(heard);
    }

    /// The 99th percentile of a kind; none: there was none of it.
    pub fn p99(&self, kind: usize) -> Option<Duration> {
        median(self.0.iter().filter_map(|heard| heard.p99(kind)).collect(), Duration::as_secs_f64)
    }

    /// The same of everything but logins and alarms.
    pub fn p99_of_all(&self) -> Result<Option<Duration>, Failure> {
        let turns: Vec<_> = self.0.iter().map(Heard::p99_of_all).collect::<Result<_, _>>()?;
        Ok(median(turns.into_iter().flatten().collect(), Duration::as_secs_f64))
    }

    /// How many calls failed in all turns, and how most of them did.
    pub fn failures(&self) -> Option<(usize, &str)> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for (what, count) in self.0.iter().flat_map(|heard| &heard.failures) {
            *counts.entry(what).or_default() += count;
        }
        let (what, _) = counts.iter().max_by_key(|(_, count)| **count)?;
        Some((counts.values().sum(), what))
    }
}

fn p99(latency: &Histogram<u64>) -> Option<Duration> {
    (!latency.is_empty()).then(|| Duration::from_micros(latency.value_at_quantile(0.99)))
}

/// The tenant.
pub struct Good {
    shared: Shared,
    callers: Vec<Caller>,
    ears: Ears,
}

impl Good {
    /// Registers it, and makes what it has. `logs_in`: through a proxy, again and again.
    pub async fn make(address: &str, logs_in: bool) -> Result<Self, Failure> {
        let mut api = Api::register(address, NAME).await?;
        let project = make_project(&mut api).await?;
        let devices = make_devices(&api, &project, DEVICES).await?;
        load::post(address, &devices, DEVICES * VALUES, DEVICES, usize::MAX).await?;
        let project = make_project_of(&mut api, "Alarms", &malice::alarms(1)).await?;
        let raising = make_devices(&api, &project, 1).await?.pop().ok_or("no devices")?;
        let kinds = CALLERS.into_iter().chain(logs_in.then_some(LOG_INS));
        let callers = kinds.flat_map(|(kind, count, every)| {
            (0..count).map(move |at| Caller {
                kind,
                every,
                offset: every.mul_f64(at as f64 / count as f64),
                wire: None,
            })
        });
        let callers = callers.collect();
        let shared = Shared {
            address: address.to_owned(),
            credential: api.credential().to_owned(),
            devices,
            raising,
            alarm: Cell::new(0),
            number: Cell::new(DEVICES * VALUES),
            turn: Cell::new(0),
            heard: RefCell::new(Heard::new()?),
            under_way: RefCell::new(HashMap::new()),
            awaited: RefCell::new(HashMap::new()),
        };
        Ok(Self { shared, callers, ears: Ears::default() })
    }

    /// Goes about its business for so long. What it saw; and why that came to an end before everything was answered, if
    /// it did.
    pub async fn behave(&mut self, span: Duration, server: &Server) -> Result<(Heard, Option<String>), Failure> {
        let Self { shared, callers, ears } = self;
        *shared.heard.borrow_mut() = Heard::new()?;
        let begun = Instant::now();
        let work = async {
            ears.open(shared).await;
            let begun = Instant::now();
            let work = async {
                let callers = callers.iter_mut().enumerate();
                join_all(callers.map(|(at, caller)| caller.run(at, shared, begun..begun + span))).await;
                while !shared.awaited.borrow().is_empty() {
                    sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::select! {
                () = work => {}
                () = ears.listen(shared) => {}
            }
        };
        let ended = tokio::select! {
            () = work => None,
            why = looked_at(server) => Some(why),
            () = sleep_until(begun + span + GRACE) => Some(format!("calls were not answered within {} s", GRACE.as_secs())),
        };
        shared.give_up();
        Ok((shared.heard.replace(Heard::new()?), ended))
    }
}

/// Looks at the server until something is wrong with it; what.
async fn looked_at(server: &Server) -> String {
    loop {
        match server.memory() {
            Err(_) => return "the server ended".to_owned(),
            Ok(bytes) if bytes > MEMORY_MAX => return format!("the server took {} GiB", MEMORY_MAX >> 30),
            Ok(_) => sleep(LOOK_EVERY).await,
        }
    }
}

/// What its calls share.
struct Shared {
    address: String,
    credential: String,
    devices: Vec<Device>,
    /// The device that raises alarms, and how many there were.
    raising: Device,
    alarm: Cell<usize>,
    /// Of the next event.
    number: Cell<usize>,
    /// Of the next read.
    turn: Cell<usize>,
    heard: RefCell<Heard>,
    /// Calls by their caller.
    under_way: RefCell<HashMap<usize, (Kind, Instant)>>,
    /// Events that the stream has not told yet, by their numbers.
    awaited: RefCell<HashMap<usize, Instant>>,
}

impl Shared {
    fn took(&self, kind: Kind, since: Instant) {
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.heard.borrow_mut().latency[kind as usize].saturating_record(micros);
    }

    fn failed(&self, kind: Kind, how: &str) {
        let what = format!("{} {how}", KINDS[kind as usize]);
        *self.heard.borrow_mut().failures.entry(what).or_default() += 1;
    }

    /// What has no answer yet took as long as it has waited.
    fn give_up(&self) {
        for (_, (kind, since)) in self.under_way.borrow_mut().drain() {
            self.took(kind, since);
            self.failed(kind, "without an answer");
        }
        for (_, since) in self.awaited.borrow_mut().drain() {
            self.took(Kind::Stream, since);
            self.failed(Kind::Stream, "without an event");
        }
    }

    /// The next call of a kind; of an event its number too.
    fn next(&self, kind: Kind) -> (Vec<u8>, Option<usize>) {
        let turn = self.turn.replace(self.turn.get() + 1);
        let device = &self.devices[turn % self.devices.len()];
        let get = |path: &str| (request("GET", &self.address, path, &self.credential, None), None);
        match kind {
            Kind::Events | Kind::Stream => {
                let number = self.number.replace(self.number.get() + 1);
                (event_request(&self.address, device, &payload(number)), Some(number))
            }
            Kind::Devices => get(&format!("/v2/devices/{}", device.id)),
            Kind::Data if turn.is_multiple_of(2) => get(&format!("/v2/devices/{}/last/{STORAGE}", device.id)),
            Kind::Data => get(&format!("/v2/devices/{}/data/{STORAGE}?limit=100", device.id)),
            Kind::Lists => get("/v2/devices?depth=all&limit=100"),
            Kind::Alarms => {
                self.alarm.set(self.alarm.get() + 1);
                let body = json!({"key": self.alarm.get().to_string()}).to_string();
                (event_request(&self.address, &self.raising, &body), None)
            }
            Kind::LogIns => {
                let body = json!({"usernameOrEmail": NAME, "password": PASSWORD}).to_string();
                (request("POST", &self.address, "/v2/auth/login", FORWARDED, Some(&body)), None)
            }
        }
    }
}

/// Calls of one kind, one after the other.
struct Caller {
    kind: Kind,
    every: Duration,
    offset: Duration,
    wire: Option<Wire>,
}

impl Caller {
    async fn run(&mut self, at: usize, shared: &Shared, window: std::ops::Range<Instant>) {
        let kind = self.kind;
        let mut due = window.start + self.offset;
        let mut free = due;
        while due < window.end {
            sleep_until(due).await;
            // A timer that rang late is not the server's fault.
            let since = if free > due { due } else { Instant::now() };
            let (request, number) = shared.next(kind);
            shared.under_way.borrow_mut().insert(at, (kind, since));
            shared.awaited.borrow_mut().extend(number.map(|number| (number, since)));
            let mut answered = self.call(&shared.address, &request).await;
            if kind == Kind::Alarms && matches!(answered, Ok(201)) {
                answered = self.until_listed(shared).await;
            }
            shared.under_way.borrow_mut().remove(&at);
            shared.took(kind, since);
            let fault = match answered {
                Ok(200..300) => None,
                Ok(status) => Some(format!("answered {status}")),
                Err(_) => Some("broken off".to_owned()),
            };
            if let Some(fault) = fault {
                shared.failed(kind, &fault);
                number.and_then(|number| shared.awaited.borrow_mut().remove(&number));
            }
            free = Instant::now();
            due += self.every;
        }
    }

    /// Lists the newest alarm until it is there. The status of the last answer.
    async fn until_listed(&mut self, shared: &Shared) -> Result<u16, Failure> {
        let path = format!("/v2/alarms?filter[key][eq]={}", shared.alarm.get());
        let list = request("GET", &shared.address, &path, &shared.credential, None);
        loop {
            let mut wire = match self.wire.take() {
                Some(wire) => wire,
                None => Wire::open(&shared.address).await?,
            };
            let reply = wire.exchange(&list).await?;
            self.wire = Some(wire);
            let page: Value = serde_json::from_slice(&reply.body)?;
            if reply.status != 200 || page["meta"]["totalDocs"] == 1 {
                return Ok(reply.status);
            }
            sleep(LIST_AGAIN_AFTER).await;
        }
    }

    /// The status of the answer.
    async fn call(&mut self, address: &str, request: &[u8]) -> Result<u16, Failure> {
        if let Some(mut wire) = self.wire.take()
            && let Ok(status) = wire.exchange_status(request).await
        {
            self.wire = Some(wire);
            return Ok(status);
        }
        // A connection that rested may be closed at any time: clients ask once more on a new one.
        let mut wire = Wire::open(address).await?;
        let status = wire.exchange_status(request).await?;
        self.wire = Some(wire);
        Ok(status)
    }
}

/// Who follows the stream.
#[derive(Default)]
struct Ears {
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Ears {
    async fn open(&mut self, shared: &Shared) {
        if self.stream.is_none() {
            match self.connect(shared).await {
                Ok(stream) => self.stream = Some(stream),
                Err(_) => shared.failed(Kind::Stream, "not begun"),
            }
        }
    }

    async fn connect(&mut self, shared: &Shared) -> Result<TcpStream, Failure> {
        let mut stream = TcpStream::connect(&shared.address).await?;
        stream.write_all(&request("GET", &shared.address, "/v2/events/stream", &shared.credential, None)).await?;
        self.buffer.clear();
        while !self.buffer.windows(4).any(|window| window == b"\r\n\r\n") {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the stream ended".into());
            }
        }
        match self.buffer.starts_with(b"HTTP/1.1 200") {
            true => Ok(stream),
            false => Err("the stream was refused".into()),
        }
    }

    /// Notes when awaited events come, without end.
    async fn listen(&mut self, shared: &Shared) {
        loop {
            let Some(stream) = &mut self.stream else {
                sleep(REOPEN_AFTER).await;
                self.open(shared).await;
                continue;
            };
            match stream.read_buf(&mut self.buffer).await {
                Ok(1..) => self.hear(shared),
                Ok(0) | Err(_) => {
                    self.stream = None;
                    shared.failed(Kind::Stream, "ended");
                }
            }
        }
    }

    /// Takes whole lines out of the buffer.
    fn hear(&mut self, shared: &Shared) {
        const NUMBER: &str = "\"number\":";
        let Some(end) = self.buffer.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..=end);
        for (_, rest) in lines.lines().filter_map(|line| line.split_once(NUMBER)) {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let since = digits.parse().ok().and_then(|number: usize| shared.awaited.borrow_mut().remove(&number));
            if let Some(since) = since {
                shared.took(Kind::Stream, since);
            }
        }
    }
}
