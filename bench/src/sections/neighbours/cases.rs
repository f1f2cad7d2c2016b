//! The hostile tenants, and what each of them prepares.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use super::attack::{Attack, Requests, Way};
use super::{doors, floods, malice, payloads};
use crate::api::Api;
use crate::setup::{Device, event_request, make_devices, make_project_of};
use crate::{Failure, Options};

/// Bytes of the largest body that is taken, nearly.
pub const BODY_BYTES: usize = 1_048_000;

/// A hostile tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hostile {
    /// Large objects with their names in other orders, of which last values are kept
    Orders,
    /// The same into a `changed` element
    Changed,
    /// A thousand `changed` elements that keep a large payload each
    States,
    /// 900 windows of large values
    Windows,
    /// Names that collide under a hash without a seed
    Collisions,
    /// The same at the login, without credentials
    Logins,
    /// 10,000 links to an element of each type, one type after the other
    Links,
    /// Names in payloads that nobody saw before
    Names,
    /// Labels that nobody saw before
    NewLabels,
    /// A label that changes with every event
    Labels,
    /// 512 devices with an interval and code that never ends
    Intervals,
    /// A delivery of ten thousand blocks for a thousand elements
    Webhook,
    /// The last pages of sorts by payload
    Sorts,
    /// Streams that go on from long ago
    Streams,
    /// Bodies that drip, without credentials
    SlowLogins,
    /// Bodies that drip, with a device's token
    SlowBodies,
    /// As many silent connections as there can be
    Silent,
    /// Code that never ends
    Code,
    /// Wrong passwords behind a proxy
    Passwords,
    /// Questions in buckets: percentiles of ten fields of a long series
    Buckets,
    /// Ten thousand devices in one call, again and again
    DeviceBulks,
    /// Summaries and lists with filters that no index serves
    Summaries,
    /// Batches of a thousand events
    Batches,
    /// Batches of a hundred events, each of which raises eight alarms
    Alarms,
}

/// A hostile tenant, or one of its kinds.
#[derive(Clone, Copy)]
pub struct Case {
    hostile: Hostile,
    /// The type of element that its links lead to.
    linked: &'static str,
}

/// How much of everything.
pub struct Sizes {
    /// Links of a design.
    pub links: usize,
    /// Values of a long series: more than an order by payload reaches.
    pub series: usize,
    /// Devices with an interval.
    pub intervals: usize,
    /// Whether the section is to take little time.
    pub quick: bool,
}

impl Sizes {
    pub fn of(options: &Options) -> Self {
        Self { links: 10_000, series: 120_000, intervals: 512, quick: options.quick }
    }
}

/// Those that are asked for, or all.
pub fn chosen(options: &Options) -> Vec<Case> {
    let all = Hostile::value_variants().iter();
    let chosen = all.filter(|hostile| options.neighbours.is_empty() || options.neighbours.contains(hostile));
    let cases = |hostile: &Hostile| {
        let linked = if *hostile == Hostile::Links { malice::LINKED.as_slice() } else { &[""] };
        linked.iter().map(|linked| Case { hostile: *hostile, linked }).collect::<Vec<_>>()
    };
    chosen.flat_map(cases).collect()
}

impl Case {
    /// As the table calls it.
    pub fn name(self) -> String {
        let name = match self.hostile {
            Hostile::Orders => "last values: the same 87,000 names in another order",
            Hostile::Changed => "`changed`: the same 87,000 names in another order",
            Hostile::States => "998 `changed` elements, a payload of 1 MB",
            Hostile::Windows => "900 windows of 1 KB values",
            Hostile::Collisions => "27,000 names that collide under an unseeded hash",
            Hostile::Logins => "the same at the login, without credentials",
            Hostile::Links => return format!("10,000 links to a `{}`, a payload of 1 MB", self.linked),
            Hostile::Names => "ever new names in payloads, 100 KB each",
            Hostile::NewLabels => "ever new labels",
            Hostile::Labels => "a label that changes with every event, 2,000 a second",
            Hostile::Intervals => "512 devices with an interval and code that never ends",
            Hostile::Webhook => "webhook: 10,000 blocks for 1,000 elements",
            Hostile::Sorts => "last pages of sorts by payload",
            Hostile::Streams => "64 streams from long ago, of 300 devices",
            Hostile::SlowLogins => "500 bodies that drip, without credentials",
            Hostile::SlowBodies => "64 bodies that drip, with a device's token",
            Hostile::Silent => "silent connections, as many as there can be",
            Hostile::Code => "code that never ends, 16 connections",
            Hostile::Passwords => "wrong passwords behind a proxy",
            Hostile::Buckets => "buckets: percentiles of 10 fields of 120,000 values",
            Hostile::DeviceBulks => "bulks of 10,000 devices",
            Hostile::Summaries => "summaries and lists of 20,000 devices with filters",
            Hostile::Batches => "batches of 1,000 events, 8 connections",
            Hostile::Alarms => "batches of 100 events that raise 8 alarms each, one connection",
        };
        name.to_owned()
    }

    /// Settings of the server, in the environment.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self.hostile {
            Hostile::Passwords => &[("HTTP__TRUSTED_PROXIES", "127.0.0.1/32"), ("RATE_LIMIT__ADDRESS", "600")],
            _ => &[],
        }
    }

    /// Whether the others log in meanwhile.
    pub fn is_about_logins(self) -> bool {
        self.hostile == Hostile::Passwords
    }

    /// Makes what the attack needs.
    pub async fn prepare(self, api: &mut Api, sizes: &Sizes) -> Result<Attack, Failure> {
        match self.hostile {
            Hostile::Orders => payloads::orders(api).await,
            Hostile::Changed => payloads::changed(api).await,
            Hostile::States => payloads::states(api).await,
            Hostile::Windows => payloads::windows(api).await,
            Hostile::Collisions => payloads::collisions(api).await,
            Hostile::Logins => Ok(doors::colliding_logins(api)),
            Hostile::Links => payloads::links(api, self.linked, sizes).await,
            Hostile::Names => payloads::names(api).await,
            Hostile::NewLabels => payloads::new_labels(api).await,
            Hostile::Labels => payloads::labels(api).await,
            Hostile::Intervals => floods::intervals(api, sizes).await,
            Hostile::Webhook => floods::webhook(api).await,
            Hostile::Sorts => floods::sorts(api, sizes).await,
            Hostile::Streams => floods::streams(api, sizes).await,
            Hostile::SlowLogins => Ok(doors::slow_logins(api, sizes)),
            Hostile::SlowBodies => doors::slow_bodies(api, sizes).await,
            Hostile::Silent => Ok(doors::silence()),
            Hostile::Code => floods::code(api).await,
            Hostile::Passwords => Ok(doors::passwords(api)),
            Hostile::Buckets => floods::buckets(api, sizes).await,
            Hostile::DeviceBulks => floods::bulks(api).await,
            Hostile::Summaries => floods::summaries(api).await,
            Hostile::Batches => floods::batches(api).await,
            Hostile::Alarms => floods::alarms(api).await,
        }
    }
}

/// Devices of a new project with this design.
pub async fn devices_of(api: &mut Api, elements: &Value, count: usize) -> Result<Vec<Device>, Failure> {
    let project = make_project_of(api, "Hostile", elements).await?;
    make_devices(api, &project, count).await
}

/// Each of these bodies from each device, in turns.
pub fn posts(api: &Api, devices: &[Device], bodies: &[String]) -> Requests {
    let post =
        |body: &String| devices.iter().map(|device| event_request(api.address(), device, body)).collect::<Vec<_>>();
    in_turns(bodies.iter().flat_map(post).collect())
}

/// Devices post in turns what is made for each event by its number.
pub fn posts_made(api: &Api, devices: &[Device], body: impl Fn(usize) -> String + Send + Sync + 'static) -> Requests {
    let (address, devices) = (api.address().to_owned(), devices.to_vec());
    Box::new(move |number| Arc::new(event_request(&address, &devices[number % devices.len()], &body(number))))
}

/// These requests, in turns.
pub fn in_turns(requests: Vec<Vec<u8>>) -> Requests {
    let requests: Vec<Arc<Vec<u8>>> = requests.into_iter().map(Arc::new).collect();
    Box::new(move |number| Arc::clone(&requests[number % requests.len()]))
}

/// Calls on so many connections.
pub fn calls(connections: usize, every_millis: u64, request: Requests) -> Way {
    Way::Calls { connections, every: Duration::from_millis(every_millis), request }
}
