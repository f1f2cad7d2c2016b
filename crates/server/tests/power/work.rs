//! The workers during power cuts, and their knowledge.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::people::{Keys, Newcomers, People};
use crate::program_support::Serving;
use crate::program_support::site::{Answer, Api, everything};
use crate::registry::{Designer, Fleet};
use crate::telemetry::{Sender, Setter, Talker};

const TALKERS: usize = 6;
const POSTERS_A_DEVICE: usize = 2;

/// A worker with increasing numbers of its own.
pub enum Worker {
    Talker(Talker),
    Sender(Sender),
    Setter(Setter),
    Fleet(Fleet),
    Designer(Designer),
    People(People),
    Keys(Keys),
    Newcomers(Newcomers),
}

impl Worker {
    /// Makes a call and records its acknowledgement; returns false if the server is gone.
    async fn step(&self, api: &Api) -> bool {
        let done = match self {
            Self::Talker(talker) => talker.post(api).await,
            Self::Sender(sender) => sender.step(api).await,
            Self::Setter(setter) => setter.step(api).await,
            Self::Fleet(fleet) => fleet.step(api).await,
            Self::Designer(designer) => designer.step(api).await,
            Self::People(people) => people.step(api).await,
            Self::Keys(keys) => keys.step(api).await,
            Self::Newcomers(newcomers) => newcomers.step(api).await,
        };
        done.is_some()
    }

    /// Returns acknowledged changes that are missing.
    async fn lost(&self, api: &Api) -> Vec<String> {
        match self {
            Self::Talker(talker) => talker.lost(api).await,
            Self::Sender(sender) => sender.lost(api).await,
            Self::Setter(setter) => setter.lost(api).await,
            Self::Fleet(fleet) => fleet.lost(api).await,
            Self::Designer(designer) => designer.lost(api).await,
            Self::People(people) => people.lost(api).await,
            Self::Keys(keys) => keys.lost(api).await,
            Self::Newcomers(newcomers) => newcomers.lost(api).await,
        }
    }

    async fn told(&self) -> Told {
        match self {
            Self::Talker(talker) => talker.told().await,
            Self::Sender(sender) => sender.told().await,
            Self::Setter(setter) => Told { settings: setter.told().await, ..Told::default() },
            Self::Fleet(fleet) => Told { registry: fleet.told().await, ..Told::default() },
            Self::Designer(designer) => Told { registry: designer.told().await, ..Told::default() },
            Self::People(people) => Told { registry: people.told().await, ..Told::default() },
            Self::Keys(keys) => Told { registry: keys.told().await, ..Told::default() },
            Self::Newcomers(newcomers) => Told { registry: newcomers.told().await, ..Told::default() },
        }
    }
}

/// Counts of acknowledged changes, which are checked after every cut.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub events: u64,
    /// Cloud events sent, taken and deleted.
    pub cloud_events: u64,
    pub settings: u64,
    /// Devices, tokens, users, keys and designs: created, changed and deleted.
    pub registry: u64,
}

impl Told {
    pub fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.cloud_events += more.cloud_events;
        self.settings += more.settings;
        self.registry += more.registry;
    }

    /// Checks that enough was acknowledged for the run to be meaningful.
    pub fn is_worth_something(&self, cuts: u64) {
        for (count, least) in [(self.events, 20), (self.cloud_events, 20), (self.settings, 1), (self.registry, 5)] {
            assert!(count >= cuts * least, "{cuts} cuts, {self}");
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "acknowledged: {} events, {} cloud events sent, taken or deleted, {} changes of settings, {} of the registry",
            self.events, self.cloud_events, self.settings, self.registry
        )
    }
}

/// Notifies after enough acknowledgements.
#[derive(Default)]
struct Fuse {
    left: AtomicU64,
    burnt: Notify,
}

impl Fuse {
    fn heard(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.burnt.notify_one();
        }
    }
}

/// A project with devices, and its workers.
pub struct Site {
    api: Api,
    workers: Vec<Arc<Worker>>,
}

/// Returns the id in an answer.
pub fn id(made: &Value) -> String {
    made["id"].as_str().unwrap().to_owned()
}

/// Returns an answer that must have one of these statuses; `None` if the server is gone.
pub fn expected(answer: reqwest::Result<Answer>, statuses: &[u16]) -> Option<Answer> {
    let answer = answer.ok()?;
    assert!(statuses.contains(&answer.status), "{} {}", answer.status, answer.body);
    Some(answer)
}

impl Site {
    pub async fn found(serving: &Serving) -> Self {
        let api = Api::of(serving).await;
        let mut design = everything();
        design["limit"] = json!({"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 0}});
        let mut devices = api.found(&design, TALKERS + 2).await;
        let mut workers = vec![
            Worker::Setter(Setter::of(devices.pop().unwrap())),
            Worker::Sender(Sender::of(devices.pop().unwrap())),
        ];
        workers.extend(devices.into_iter().map(|device| Worker::Talker(Talker::of(device))));
        let project = api.admin(Method::POST, "/v2/projects", Some(&json!({"name": "Other"}))).await;
        workers.push(Worker::Fleet(Fleet::of(id(&project))));
        workers.push(Worker::Designer(Designer::of(id(&project))));
        workers.push(Worker::People(People::default()));
        workers.push(Worker::Keys(Keys::of(id(&api.get("/v2/auth/user").await))));
        workers.push(Worker::Newcomers(Newcomers::default()));
        Self { api, workers: workers.into_iter().map(Arc::new).collect() }
    }

    /// Returns the same workers with another server.
    pub fn at(&self, serving: &Serving) -> Self {
        Self { api: self.api.at(serving), workers: self.workers.clone() }
    }

    /// Runs all workers until the server is gone; the future completes after enough acknowledgements.
    pub fn work(&self, clients: &mut JoinSet<()>, acknowledgements: u64) -> impl Future<Output = ()> + use<> {
        let fuse = Arc::new(Fuse { left: AtomicU64::new(acknowledgements), burnt: Notify::new() });
        for worker in &self.workers {
            let several = if matches!(**worker, Worker::Talker(_)) { POSTERS_A_DEVICE } else { 1 };
            for _ in 0..several {
                let (worker, api, fuse) = (worker.clone(), self.api.clone(), fuse.clone());
                clients.spawn(async move {
                    while worker.step(&api).await {
                        fuse.heard();
                    }
                });
            }
            if let Worker::Talker(_) = **worker {
                let (worker, api) = (worker.clone(), self.api.clone());
                clients.spawn(async move {
                    let Worker::Talker(talker) = &*worker else { return };
                    while talker.take(&api).await.is_some() {}
                });
            }
        }
        async move { fuse.burnt.notified().await }
    }

    /// Returns acknowledged changes that are missing or duplicated.
    pub async fn lost(&self) -> Vec<String> {
        let me = self.api.send_as_admin(Method::GET, "/v2/auth/user", None).await.unwrap();
        if me.status != 200 {
            return vec![format!("the administrator's token is answered {}", me.status)];
        }
        join_all(self.workers.iter().map(|worker| worker.lost(&self.api))).await.concat()
    }

    pub async fn told(&self) -> Told {
        let mut told = Told::default();
        for worker in &self.workers {
            told.add(&worker.told().await);
        }
        told
    }

    /// Waits for the e-mail of each registration, whatever happened on its way.
    pub async fn letters_come(&self, data: &Path) {
        for worker in &self.workers {
            if let Worker::Newcomers(newcomers) = &**worker {
                newcomers.letters_come(&data.join("mail")).await;
            }
        }
    }
}
