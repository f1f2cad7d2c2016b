//! Acknowledged changes of users, and their e-mails.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_power::becomes;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::program_support::site::Api;
use crate::work::{expected, id};

fn user(name: &str) -> Value {
    json!({
        "username": name,
        "email": format!("{name}@example.com"),
        "role": "technician",
        "firstName": "Ada",
        "lastName": "Lovelace",
        "company": "none",
    })
}

/// A worker that creates users, and changes or deletes each.
#[derive(Default)]
pub struct People {
    next: AtomicU64,
    made: Mutex<BTreeMap<u64, Member>>,
}

#[derive(Default)]
struct Member {
    id: String,
    has_company: bool,
    is_deleted: bool,
    /// True if the second call was answered.
    is_settled: bool,
}

impl People {
    pub async fn step(&self, api: &Api) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let body = user(&format!("user-{number}"));
        let answer = expected(api.send_as_admin(Method::POST, "/v2/users", Some(&body)).await, &[201])?;
        let id = answer.created();
        self.made.lock().await.insert(number, Member { id: id.clone(), ..Member::default() });
        let url = format!("/v2/users/{id}");
        let deletes = number.is_multiple_of(4);
        if deletes {
            expected(api.send_as_admin(Method::DELETE, &url, None).await, &[204])?;
        } else {
            let body = json!({"role": "technician", "company": "some"});
            expected(api.send_as_admin(Method::PUT, &url, Some(&body)).await, &[200])?;
        }
        let mut made = self.made.lock().await;
        let member = made.get_mut(&number).unwrap();
        (member.is_settled, member.is_deleted, member.has_company) = (true, deletes, !deletes);
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (made, mut lost) = (self.made.lock().await, Vec::new());
        let users = api.list("/v2/users?limit=10000&depth=all").await;
        let mut found: HashMap<&str, &Value> = HashMap::new();
        let mut names = HashSet::new();
        for user in &users {
            found.insert(user["id"].as_str().unwrap(), user);
            if !names.insert(user["username"].as_str().unwrap()) {
                lost.push(format!("{} is there twice", user["username"]));
            }
        }
        for (number, member) in made.iter() {
            let found = found.get(member.id.as_str());
            let fine = match found {
                None => member.is_deleted || !member.is_settled && number.is_multiple_of(4),
                Some(_) if member.is_deleted => false,
                Some(user) => {
                    user["username"] == format!("user-{number}") && (!member.has_company || user["company"] == "some")
                }
            };
            if !fine {
                lost.push(format!("user {number}, deleted: {}, is {found:?}", member.is_deleted));
            }
        }
        lost
    }

    pub async fn told(&self) -> u64 {
        self.made.lock().await.values().map(|member| 1 + u64::from(member.is_settled)).sum()
    }
}

/// A worker that creates API keys, and deletes every second one.
pub struct Keys {
    user: String,
    next: AtomicU64,
    made: Mutex<Vec<Key>>,
}

struct Key {
    key: String,
    /// True if a deletion was requested, and acknowledged.
    ends: bool,
    ended: bool,
}

impl Keys {
    pub fn of(user: String) -> Self {
        Self { user, next: AtomicU64::new(0), made: Mutex::default() }
    }

    pub async fn step(&self, api: &Api) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let url = format!("/v2/users/{}/apiKeys", self.user);
        let body = json!({"name": format!("key {number}")});
        let answer = expected(api.send_as_admin(Method::POST, &url, Some(&body)).await, &[201])?.json();
        let (id, key) = (id(&answer), answer["key"].as_str().unwrap().to_owned());
        // A user may have a thousand keys, so only some stay.
        let ends = !number.is_multiple_of(5);
        let place = {
            let mut made = self.made.lock().await;
            made.push(Key { key, ends, ended: false });
            made.len() - 1
        };
        if ends {
            expected(api.send_as_admin(Method::DELETE, &format!("{url}/{id}"), None).await, &[204])?;
            self.made.lock().await[place].ended = true;
        }
        Some(())
    }

    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (made, mut lost) = (self.made.lock().await, Vec::new());
        for (number, key) in made.iter().enumerate() {
            let headers = [("api_auth_token", key.key.as_str())];
            let status = api.send(Method::GET, "/v2/auth/user", &headers, None).await.unwrap().status;
            let fine = match status {
                200 => !key.ended,
                401 => key.ends,
                _ => false,
            };
            if !fine {
                lost.push(format!("key {number}, ended: {}, is answered {status}", key.ended));
            }
        }
        lost
    }

    pub async fn told(&self) -> u64 {
        self.made.lock().await.iter().map(|key| 1 + u64::from(key.ended)).sum()
    }
}

/// Users who register, each of whom gets an e-mail.
#[derive(Default)]
pub struct Newcomers {
    next: AtomicU64,
    /// Names with their ids.
    registered: Mutex<Vec<(String, String)>>,
}

impl Newcomers {
    pub async fn step(&self, api: &Api) -> Option<()> {
        let name = format!("newcomer-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut body = user(&name);
        body["password"] = json!("open sesame");
        body["passwordConfirmation"] = json!("open sesame");
        body["company"] = json!(format!("Company of {name}"));
        let answer = expected(api.send(Method::POST, "/v2/auth/register", &[], Some(&body)).await, &[201])?;
        self.registered.lock().await.push((name, answer.created()));
        Some(())
    }

    /// Returns missing registrations; the newest user must be able to log in. E-mails may come later.
    pub async fn lost(&self, api: &Api) -> Vec<String> {
        let (registered, mut lost) = (self.registered.lock().await, Vec::new());
        for (name, id) in registered.iter() {
            let answer = api.send_as_admin(Method::GET, &format!("/v2/users/{id}"), None).await.unwrap();
            if answer.status != 200 || answer.json()["username"] != **name {
                lost.push(format!("{name} has registered, and is {}", answer.body));
            }
        }
        if let Some((name, _)) = registered.last() {
            let login = json!({"usernameOrEmail": name, "password": "open sesame"});
            let status = api.send(Method::POST, "/v2/auth/login", &[], Some(&login)).await.unwrap().status;
            if status != 201 {
                lost.push(format!("{name} cannot log in: {status}"));
            }
        }
        lost
    }

    pub async fn told(&self) -> u64 {
        self.registered.lock().await.len() as u64
    }

    pub async fn letters_come(&self, folder: &Path) {
        let registered = self.registered.lock().await;
        for (name, _) in registered.iter() {
            becomes(&format!("a letter to {name}"), async || has_letter(folder, name)).await;
        }
    }
}

fn has_letter(folder: &Path, name: &str) -> bool {
    let Ok(letters) = std::fs::read_dir(folder) else { return false };
    let paths =
        letters.map(|letter| letter.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "eml"));
    paths.into_iter().any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("{name}@"))))
}
