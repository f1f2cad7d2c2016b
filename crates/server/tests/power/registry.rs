//! Acknowledged changes of devices and designs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::program_support::site::Api;
use crate::work::{expected, id};

/// One step in this many creates several devices at once, and their number.
const BULKS_OF: u64 = 5;
const BULK_DEVICES: u64 = 4;

/// The knowledge of a created device.
struct Made {
    id: String,
    token: String,
    /// The token before the last rotation.
    old_token: Option<String>,
    name: String,
    /// The last request without an answer.
    asked: Option<Change>,
    is_deleted: bool,
    acknowledged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Deletion,
    Token,
    Name,
}

/// A worker that creates devices, and deletes, renames or re-keys them.
pub struct Fleet {
    project: String,
    next: AtomicU64,
    made: Mutex<BTreeMap<u64, Made>>,
}

impl Fleet {
    pub fn of(project: String) -> Self {
        Self { project, next: AtomicU64::new(0), made: Mutex::default() }
    }

    pub async fn step(&self, api: &Api) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(BULKS_OF) {
            let first = self.next.fetch_add(BULK_DEVICES, Ordering::Relaxed);
            return self.make_in_bulk(api, first..first + BULK_DEVICES).await;
        }
        let name = format!("made {number}");
        let body = json!({"name": name, "projectUuid": self.project, "description": "x".repeat(100)});
        let answer = expected(api.send_as_admin(Method::POST, "/v2/devices", Some(&body)).await, &[201])?.json();
        let token = answer["token"].as_str().unwrap().to_owned();
        let change = [Change::Deletion, Change::Token, Change::Name][(number % 3) as usize];
        let device = id(&answer);
        let made = Made {
            id: device.clone(),
            token,
            old_token: None,
            name,
            asked: Some(change),
            is_deleted: false,
            acknowledged: 1,
        };
        self.made.lock().await.insert(number, made);
        self.change(api, number, &device, change).await
    }

    /// Creates devices in one call, which are not changed later.
    async fn make_in_bulk(&self, api: &Api, numbers: Range<u64>) -> Option<()> {
        let body = |number| json!({"name": format!("made {number}"), "projectUuid": self.project});
        let bodies = Value::from_iter(numbers.clone().map(body));
        let answer = api.send_as_admin(Method::POST, "/v2/devices/bulk", Some(&bodies)).await;
        let answer = expected(answer, &[200])?.json();
        assert_eq!(answer["errors"], json!([]));
        let made = numbers.zip(answer["data"].as_array().unwrap()).map(|(number, item)| {
            let made = Made {
                id: id(item),
                token: item["token"].as_str().unwrap().to_owned(),
                old_token: None,
                name: format!("made {number}"),
                asked: None,
                is_deleted: false,
                acknowledged: 1,
            };
            (number, made)
        });
        self.made.lock().await.extend(made);
        Some(())
    }

    async fn change(&self, api: &Api, number: u64, device: &str, change: Change) -> Option<()> {
        let url = format!("/v2/devices/{device}");
        let name = format!("renamed {number}");
        let renamed = json!({"name": name, "projectUuid": self.project});
        let answer = match change {
            Change::Deletion => expected(api.send_as_admin(Method::DELETE, &url, None).await, &[204]),
            Change::Token => {
                expected(api.send_as_admin(Method::POST, &format!("{url}/token"), None).await, &[200, 201])
            }
            Change::Name => expected(api.send_as_admin(Method::PUT, &url, Some(&renamed)).await, &[200]),
        }?;
        let mut all = self.made.lock().await;
        let made = all.get_mut(&number).unwrap();
        (made.asked, made.acknowledged) = (None, 2);
        match change {
            Change::Deletion => made.is_deleted = true,
            Change::Name => made.name = name,
            Change::Token => {
                let token = answer.json()["token"].as_str().unwrap().to_owned();
                made.old_token = Some(std::mem::replace(&mut made.token, token));
            }
        }
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (all, mut lost) = (self.made.lock().await, Vec::new());
        let devices = api.list("/v2/devices?limit=10000").await;
        let mut found: HashMap<&str, &str> = HashMap::new();
        for device in devices.iter().filter(|device| device["projectUuid"] == self.project) {
            let (name, id) = (device["name"].as_str().unwrap(), device["id"].as_str().unwrap());
            if found.values().any(|other| *other == name) {
                lost.push(format!("{name} is there twice"));
            }
            found.insert(id, name);
        }
        for (number, made) in all.iter() {
            let name = found.get(made.id.as_str()).copied();
            let fine = match (made.asked, made.is_deleted) {
                (_, true) => name.is_none(),
                (Some(Change::Deletion), _) => name.is_none_or(|name| name == made.name),
                (Some(Change::Name), _) => {
                    name.is_some_and(|name| name == made.name || name == format!("renamed {number}"))
                }
                _ => name == Some(&made.name),
            };
            if !fine {
                lost.push(format!(
                    "{}: it is {name:?}, deleted: {}, asked: {:?}",
                    made.name, made.is_deleted, made.asked
                ));
            }
            if let Some(old) = &made.old_token {
                let new = self.shows(api, &made.id, &made.token).await;
                let old = self.shows(api, &made.id, old).await;
                if (new, old) != (200, 401) {
                    lost.push(format!("{}: its token is answered {new}, the one before {old}", made.name));
                }
            }
        }
        lost
    }

    async fn shows(&self, api: &Api, device: &str, token: &str) -> u16 {
        let path = format!("/v2/devices/{device}");
        api.send(Method::GET, &path, &[("cloud", token)], None).await.unwrap().status
    }

    pub async fn told(&self) -> u64 {
        self.made.lock().await.values().map(|made| made.acknowledged).sum()
    }
}

/// A worker that changes a project and its design repeatedly.
pub struct Designer {
    project: String,
    next: AtomicU64,
    /// The newest acknowledged name and design.
    newest: Mutex<[u64; 2]>,
}

impl Designer {
    pub fn of(project: String) -> Self {
        Self { project, next: AtomicU64::new(0), newest: Mutex::default() }
    }

    pub async fn step(&self, api: &Api) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let url = format!("/v2/projects/{}", self.project);
        let name = json!({"name": format!("Project {number}")});
        expected(api.send_as_admin(Method::PUT, &url, Some(&name)).await, &[200])?;
        self.newest.lock().await[0] = number;
        let design = json!({"name": format!("Design {number}"), "planes": {"cloud": {"note": "x".repeat(10_000)}}});
        expected(api.send_as_admin(Method::PUT, &format!("{url}/specification"), Some(&design)).await, &[200])?;
        self.newest.lock().await[1] = number;
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (newest, tried) = (*self.newest.lock().await, self.next.load(Ordering::Relaxed));
        let url = format!("/v2/projects/{}", self.project);
        let mut lost = Vec::new();
        let shown = [api.get(&url).await, api.get(&format!("{url}/specification")).await];
        for (shown, newest) in shown.iter().zip(newest) {
            let number = shown["name"].as_str().unwrap().split(' ').nth(1).map_or(0, |number| number.parse().unwrap());
            if number < newest || number > tried {
                lost.push(format!("{} was acknowledged as number {newest}", shown["name"]));
            }
        }
        lost
    }

    pub async fn told(&self) -> u64 {
        self.newest.lock().await.iter().sum()
    }
}
