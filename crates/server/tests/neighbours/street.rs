//! A server with a good and a hostile tenant.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use isobar_model::time::Clock;
use isobar_power::{becomes, within_patience};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::malice::{EVENT, stores};
use crate::program_support::house::until;
use crate::program_support::site::{Answer, Api, Device, ENVIRONMENT};
use crate::program_support::{Serving, serve};

/// Calls of each kind that the good tenant completes during the hostile work.
const CALLS: u64 = 20;
/// Largest memory of the process, in bytes.
const MEMORY_MAX: u64 = 512 << 20;
/// Largest size of the folder, in bytes, with 64 MiB of a preallocated log. A run may write 4 MiB, and no test has more
/// than a dozen such runs.
const FOLDER_MAX: u64 = 320 << 20;
/// Rounds of hostile work of this length write much. Their number is limited, so that a slow machine stays within the
/// bounds of memory and folder too.
const LONG_ROUND: Duration = Duration::from_millis(300);
const LONG_ROUNDS_MAX: u32 = 8;
pub const ONE_THREAD: (&str, &str) = ("ISOBAR_HTTP__THREADS", "1");
/// Devices of the good tenant.
const DEVICES: usize = 3;
/// Path of device events.
pub const EVENTS: &str = "/v2/events/device?elementName=reading";

/// A server with its two tenants.
pub struct Street {
    pub serving: Serving,
    pub hostile: Api,
    pub good: Arc<Good>,
    pub folder: TempDir,
}

impl Street {
    pub async fn open() -> Self {
        Self::with(&[]).await
    }

    /// Starts a server with additional settings.
    pub async fn with(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let environment = [ENVIRONMENT.as_slice(), &[ONE_THREAD], settings].concat();
        let serving = Serving::of(serve(folder.path(), &environment));
        Self::on(serving, folder).await
    }

    pub async fn on(serving: Serving, folder: TempDir) -> Self {
        let api = Api::registered(&serving, "ana").await;
        let devices = api.found(&stores(), DEVICES).await;
        let good = Good::of(api, &serving, devices, 0);
        let hostile = Api::registered(&serving, "mallory").await;
        Self { serving, hostile, good, folder }
    }

    /// Creates a device of the hostile tenant with this design.
    pub async fn device(&self, elements: &Value) -> Device {
        self.hostile.found(elements, 1).await.remove(0)
    }

    /// Posts a text as an event of a hostile device.
    pub async fn posts(&self, device: &Device, payload: String) -> Answer {
        let token = [("cloud", device.token.as_str())];
        let post = self.hostile.send_text(Method::POST, EVENTS, &token, Some(payload));
        within_patience("an answer", post).await.unwrap()
    }

    /// Makes a call of the hostile tenant.
    pub async fn calls(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let call = self.hostile.send_as_admin(method, path, body);
        within_patience("an answer", call).await.unwrap()
    }

    /// Posts a text as a user of the hostile tenant.
    pub async fn sends(&self, path: &str, body: String) -> Answer {
        let (name, value) = self.hostile.credentials();
        let headers = [(name, value.as_str())];
        let post = self.hostile.send_text(Method::POST, path, &headers, Some(body));
        within_patience("an answer", post).await.unwrap()
    }

    /// Returns the distinct errors of the newest event of a hostile device.
    pub async fn errors(&self, device: &Device) -> Vec<String> {
        // Cloud events that it sent are newer.
        let events = self.hostile.get(&format!("/v2/devices/{}/events?limit=100", device.id)).await;
        let errors = events["data"].as_array().into_iter().flatten().filter_map(|event| event["errors"].as_array());
        let texts = errors.flatten().map(|error| error["message"].as_str().unwrap().to_owned());
        let texts: HashSet<String> = texts.collect();
        let mut texts: Vec<String> = texts.into_iter().collect();
        texts.sort();
        texts
    }

    /// Repeats the hostile work until the good tenant has done its own, which must succeed and be stored. Memory and
    /// folder must stay within their bounds.
    pub async fn beside(&self, hostile: impl AsyncFn()) {
        let business = self.good.begins().await;
        let mut long_rounds = 0;
        while !business.is_done() && long_rounds < LONG_ROUNDS_MAX {
            let begun = Clock::System.instant();
            hostile().await;
            long_rounds += u32::from(Clock::System.elapsed(begun) > LONG_ROUND);
        }
        becomes("the good tenant has done its work", async || business.is_done()).await;
        business.ends().await;
        self.is_within_bounds();
    }

    pub fn is_within_bounds(&self) {
        let (memory, folder) = (self.serving.memory("VmHWM"), size_of(self.folder.path()));
        assert!(memory < MEMORY_MAX, "the process took {memory} bytes of memory");
        assert!(folder < FOLDER_MAX, "the folder holds {folder} bytes");
    }
}

/// Returns the size of all files beneath a folder, in bytes.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
        // It was removed meanwhile.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// The well-behaved tenant.
pub struct Good {
    pub api: Api,
    address: String,
    devices: Vec<Device>,
    /// Number of the next event.
    number: AtomicU64,
    stops: AtomicBool,
}

/// The work of the good tenant.
struct Business {
    good: Arc<Good>,
    work: JoinSet<()>,
    done: Arc<[AtomicU64; 3]>,
    stream: TcpStream,
    /// Number of the first event of this work.
    first: u64,
}

impl Good {
    fn of(api: Api, serving: &Serving, devices: Vec<Device>, number: u64) -> Arc<Self> {
        let (address, number, stops) = (serving.address.clone(), AtomicU64::new(number), AtomicBool::new(false));
        Arc::new(Self { api, address, devices, number, stops })
    }

    async fn begins(self: &Arc<Self>) -> Business {
        self.stops.store(false, Ordering::Relaxed);
        let first = self.number.load(Ordering::Relaxed);
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let (name, value) = self.api.credentials();
        let head = format!("GET /v2/events/stream HTTP/1.1\r\nhost: {}\r\n{name}: {value}\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(until(&mut stream, "\r\n\r\n").await.contains(" 200 "));
        let (mut work, done) = (JoinSet::new(), Arc::<[AtomicU64; 3]>::default());
        for kind in 0..done.len() {
            let (good, done) = (Arc::clone(self), Arc::clone(&done));
            work.spawn(async move {
                while !good.stops.load(Ordering::Relaxed) {
                    within_patience("the good tenant is served", good.works(kind)).await;
                    done[kind].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Business { good: Arc::clone(self), work, done, stream, first }
    }

    /// Makes a call: an event, a read or a list.
    async fn works(&self, kind: usize) {
        let number = self.number.load(Ordering::Relaxed);
        let device = &self.devices[number as usize % self.devices.len()];
        match kind {
            0 => {
                self.api.post(device, EVENT, &json!({"n": number})).await.created();
                self.number.fetch_add(1, Ordering::Relaxed);
            }
            1 => {
                let read = self.api.get(&format!("/v2/devices/{}", device.id)).await;
                assert_eq!(read["id"], device.id);
                self.api.get(&format!("/v2/devices/{}/data/stored?limit=10", device.id)).await;
            }
            _ => assert_eq!(self.api.list("/v2/devices?depth=all").await.len(), DEVICES),
        }
    }
}

impl Business {
    fn is_done(&self) -> bool {
        self.done.iter().all(|done| done.load(Ordering::Relaxed) >= CALLS)
    }

    /// Stops the work, and checks that everything acknowledged is stored and was streamed.
    async fn ends(mut self) {
        self.good.stops.store(true, Ordering::Relaxed);
        while let Some(ended) = self.work.join_next().await {
            ended.unwrap();
        }
        let last = self.good.number.load(Ordering::Relaxed) - 1;
        let told = until(&mut self.stream, &format!("{{\"n\":{last}}}")).await;
        for number in self.first..=last {
            assert!(told.contains(&format!("{{\"n\":{number}}}")), "the stream does not tell of event {number}");
        }
        let mut kept = 0;
        for device in &self.good.devices {
            let values = self.good.api.get(&format!("/v2/devices/{}/data/stored?limit=1", device.id)).await;
            kept += values["meta"]["totalDocs"].as_u64().unwrap();
        }
        assert_eq!(kept, last + 1);
    }
}
