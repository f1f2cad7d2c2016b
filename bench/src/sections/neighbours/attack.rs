//! A hostile tenant at work: on a thread of its own that gives way to all others, so that what it costs to send does not look
//! like what the server makes others wait.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Failure;
use crate::setup::Device;
use crate::wire::{Reply, Wire};

/// How nice the hostile tenant's thread is, by nice(2): elsewhere it would have a processor of its own, and here it takes one of
/// those that the server and the others have.
const NICENESS: i32 = 10;
/// Before a connection that broke is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(200);
/// Before a body that was refused drips again.
const DRIP_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Between two bytes of a body that drips, and between two looks at connections that say nothing.
const DRIP_EVERY: Duration = Duration::from_secs(1);
/// The rest of an answer, once it has begun.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Connections that are opened before anybody else has a turn.
const OPENED_AT_ONCE: usize = 64;
/// Addresses of this machine that silent connections come from. From a single one that has more than ten thousand already, the
/// system looks through the ports that are taken for about a millisecond each time, fifty times as long as it connects: what one
/// machine alone notices is no neighbour's.
const SILENT_ADDRESSES: usize = 16;
/// Longest text of an answer that is kept, in characters.
const TOLD_CHARACTERS: usize = 110;

/// A request by its number.
pub type Requests = Box<dyn Fn(usize) -> Arc<Vec<u8>> + Send + Sync>;

/// What is sent.
pub enum Way {
    /// Calls on so many connections, on each of them one after the other, and no sooner than so long after the one before.
    Calls { connections: usize, every: Duration, request: Requests },
    /// Streams that are read to their end, and opened again.
    Streams { connections: usize, request: Vec<u8> },
    /// Requests whose bodies never end, in turns of these.
    Drips { connections: usize, requests: Vec<Vec<u8>> },
    /// As many connections as there can be, up to so many.
    Silence { connections: usize },
    /// Nothing: what was prepared goes on by itself.
    Nothing,
}

/// What a hostile tenant does.
pub struct Attack {
    /// What it sends.
    pub way: Way,
    /// Devices whose newest events tell what became of them.
    pub devices: Vec<Device>,
    /// What it does is seen from then on.
    pub not_before: Option<Instant>,
    /// How long it has to go on until its bound is seen. It goes on once then, not in turns.
    pub at_least: Option<Duration>,
    /// How long before the others are measured.
    pub lead: Duration,
}

impl Attack {
    /// One that is seen at once.
    pub fn of(way: Way, devices: Vec<Device>) -> Self {
        Self { way, devices, not_before: None, at_least: None, lead: Duration::from_millis(500) }
    }
}

/// What it was answered, and how often.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<String, usize>>>);

impl Tally {
    pub fn count(&self, what: &str) {
        self.add(what, 1);
    }

    fn add(&self, what: &str, more: usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.to_owned()).or_default() += more;
    }

    /// The most frequent ones.
    pub fn most(&self, count: usize) -> Vec<(String, usize)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = counts.iter().map(|(what, count)| (what.clone(), *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.truncate(count);
        all
    }
}

/// An attack under way.
pub struct Loose {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Loose {
    /// Lets it loose.
    pub fn begin(attack: &Arc<Attack>, address: &str, tally: &Tally) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (attack, address, tally) = (Arc::clone(attack), address.to_owned(), tally.clone());
        let thread = std::thread::Builder::new().name("hostile".to_owned()).spawn(move || {
            isobar_threads::give_way(NICENESS);
            runtime.block_on(async {
                tokio::select! {
                    () = go_on(&attack.way, &address, &tally) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it, and all its connections.
    pub fn end(self) {
        // It listens until its thread ends.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Without end.
async fn go_on(way: &Way, address: &str, tally: &Tally) {
    match way {
        Way::Calls { connections, every, request } => {
            let next = std::cell::Cell::new(0);
            let call = |at: usize| {
                let offset = every.mul_f64(at as f64 / *connections as f64);
                calls(address, *every, offset, || request(next.replace(next.get() + 1)), tally)
            };
            join_all((0..*connections).map(call)).await;
        }
        Way::Streams { connections, request } => {
            join_all((0..*connections).map(|_| anew(REOPEN_AFTER, tally, || stream(address, request)))).await;
        }
        Way::Drips { connections, requests } => {
            let drips = |at: usize| {
                let request = &requests[at % requests.len()];
                anew(DRIP_AGAIN_AFTER, tally, move || drip(address, request))
            };
            join_all((0..*connections).map(drips)).await;
        }
        Way::Silence { connections } => silence(address, *connections, tally).await,
        Way::Nothing => std::future::pending().await,
    }
}

async fn calls(address: &str, every: Duration, offset: Duration, next: impl Fn() -> Arc<Vec<u8>>, tally: &Tally) {
    let mut wire = None;
    let mut due = Instant::now() + offset;
    loop {
        sleep_until(due).await;
        due = Instant::now() + every;
        match exchange(&mut wire, address, &next()).await {
            Ok(reply) => tally.count(&told(&reply)),
            Err(_) => {
                tally.count("connection closed");
                wire = None;
                sleep(REOPEN_AFTER).await;
            }
        }
    }
}

async fn exchange(wire: &mut Option<Wire>, address: &str, request: &[u8]) -> Result<Reply, Failure> {
    let wire = match wire {
        Some(wire) => wire,
        None => wire.insert(Wire::open(address).await?),
    };
    wire.exchange(request).await
}

/// A status, and what was said beside a refusal.
fn told(reply: &Reply) -> String {
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let fault = &said["errors"][0];
    let text = match (fault["field"].as_str(), fault["message"].as_str(), said["message"].as_str()) {
        (Some(field), Some(message), _) => format!("{field} {message}"),
        (None, Some(message), _) => message.to_owned(),
        (_, None, Some(message)) if reply.status >= 300 => message.to_owned(),
        _ => return reply.status.to_string(),
    };
    shortened(&format!("{}: {text}", reply.status))
}

/// What is kept of a text.
pub fn shortened(text: &str) -> String {
    // Moments and counts differ from answer to answer.
    let short: String = text.chars().take(TOLD_CHARACTERS).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Does something again and again, and tells how it ended each time.
async fn anew<F: Future<Output = Result<String, Failure>>>(pause: Duration, tally: &Tally, once: impl Fn() -> F) {
    loop {
        match once().await {
            Ok(end) => tally.count(&end),
            Err(_) => tally.count("connection closed"),
        }
        sleep(pause).await;
    }
}

/// Reads a stream to its end; its status, and the last thing it says about itself.
async fn stream(address: &str, request: &[u8]) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let (mut tail, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let mut head = None;
    loop {
        let count = stream.read(&mut piece).await?;
        if head.is_none() {
            head = Some(String::from_utf8_lossy(piece.get(9..12).unwrap_or_default()).into_owned());
        }
        let status = head.as_deref().unwrap_or_default();
        tail.extend_from_slice(&piece[..count]);
        tail.drain(..tail.len().saturating_sub(4 << 10));
        let text = String::from_utf8_lossy(&tail);
        let comment = text.lines().filter_map(|line| line.strip_prefix(": ")).next_back();
        if status != "200" && !text.is_empty() {
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).as_bytes().to_vec();
            return Ok(told(&Reply { status: status.parse()?, body }));
        }
        if count == 0 {
            return Ok(shortened(&format!("{status}, {}", comment.unwrap_or("ended"))));
        }
    }
}

/// Sends what there is, and then a byte every second, until there is an answer.
async fn drip(address: &str, request: &[u8]) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut reader, mut writer) = stream.split();
    let sending = async {
        writer.write_all(request).await?;
        loop {
            sleep(DRIP_EVERY).await;
            writer.write_all(b" ").await?;
        }
    };
    let mut answer = Vec::new();
    let told: Result<(), std::io::Error> = tokio::select! {
        read = reader.read_buf(&mut answer) => read.map(|_| ()),
        sent = sending => sent,
    };
    // Who is refused while it sends may see the connection end before it sees the answer.
    let _ = timeout(ANSWER_TIME, reader.read_to_end(&mut answer)).await;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    match head.get(9..12).and_then(|status| status.parse().ok()) {
        Some(status) => Ok(self::told(&Reply { status, body: body.as_bytes().to_vec() })),
        None => told.map(|()| "connection closed".to_owned()).map_err(Failure::from),
    }
}

/// Connects from one of [`SILENT_ADDRESSES`].
async fn connect_from(number: usize, address: &str) -> Result<TcpStream, Failure> {
    let own = Ipv4Addr::new(127, 0, 0, 2 + (number % SILENT_ADDRESSES) as u8);
    let socket = TcpSocket::new_v4()?;
    socket.bind((own, 0).into())?;
    Ok(socket.connect(address.parse()?).await?)
}

/// Holds connections, and opens those anew that were closed.
async fn silence(address: &str, most: usize, tally: &Tally) {
    let mut held: Vec<TcpStream> = Vec::new();
    loop {
        let mut refused = false;
        while held.len() < most && !refused {
            let open = join_all((0..OPENED_AT_ONCE.min(most - held.len())).map(|number| connect_from(number, address)));
            let opened = timeout(ANSWER_TIME, open).await.unwrap_or_default();
            let before = held.len();
            held.extend(opened.into_iter().flatten());
            refused = held.len() == before;
        }
        sleep(DRIP_EVERY).await;
        let before = held.len();
        held.retain(|stream| {
            matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
        tally.add("connection closed", before - held.len());
        tally.count(&format!("held about {},000 connections", held.len() / 1_000));
    }
}
