//! The project and the devices of a simulation, created and deleted through the API.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use hyper::Method;
use hyper::header::HeaderValue;
use isobar_model::time::Clock;
use serde_json::{Value, json};

use super::client::ServerUrl;
use super::profile::Profile;
use super::session::{CallError, Credentials, Session};

/// Devices that are created or deleted concurrently.
const SETUP_CONCURRENCY: usize = 16;

/// A device of the simulation.
#[derive(Clone)]
pub struct Seat {
    /// Its identifier.
    pub id: String,
    /// Its token, the value of the header `cloud`.
    pub token: HeaderValue,
}

/// The created resources, recorded one by one, so that a failed set-up can be cleaned up.
pub struct Fleet {
    project: Mutex<Option<String>>,
    seats: Mutex<BTreeMap<usize, Seat>>,
    clock: Clock,
}

impl Fleet {
    /// Makes an empty fleet.
    pub fn new(clock: Clock) -> Self {
        Self { project: Mutex::default(), seats: Mutex::default(), clock }
    }

    /// Creates the project, its design and its devices.
    pub async fn make(
        &self,
        server: &ServerUrl,
        credentials: &Credentials,
        profile: Profile,
        count: usize,
        progress: &impl Fn(usize),
    ) -> Result<(), CallError> {
        let mut session = Session::new(server, credentials, &self.clock);
        let project = json!({"name": format!("Simulation: {}", profile.name())});
        let [project] = session.call_for(Method::POST, "/v2/projects", &project, ["id"]).await?;
        *lock(&self.project) = Some(project.clone());
        let specification = json!({
            "name": profile.name(),
            "description": "Made by isobar simulate.",
            "planes": {"cloud": {"elements": profile.elements()}},
        });
        session.call(Method::PUT, &format!("/v2/projects/{project}/specification"), Some(&specification)).await?;
        let next = AtomicUsize::new(0);
        let makers = (0..SETUP_CONCURRENCY.min(count)).map(|_| async {
            let mut session = Session::new(server, credentials, &self.clock);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let seat = make_device(&mut session, &project, profile, number).await?;
                let mut seats = lock(&self.seats);
                seats.insert(number, seat);
                progress(seats.len());
            }
        });
        join_all(makers).await.into_iter().collect()
    }

    /// Returns the devices, in the order of their numbers.
    pub fn seats(&self) -> Vec<Seat> {
        lock(&self.seats).values().cloned().collect()
    }

    /// Deletes the devices, then the project; returns the result in words.
    pub async fn delete(&self, server: &ServerUrl, credentials: &Credentials) -> Result<String, CallError> {
        let paths: Vec<String> = lock(&self.seats).values().map(|seat| format!("/v2/devices/{}", seat.id)).collect();
        let count = paths.len();
        let paths = Mutex::new(paths);
        let deleters = (0..SETUP_CONCURRENCY.min(count)).map(|_| async {
            let mut session = Session::new(server, credentials, &self.clock);
            loop {
                let Some(path) = lock(&paths).pop() else { return Ok(()) };
                session.call(Method::DELETE, &path, None).await?;
            }
        });
        join_all(deleters).await.into_iter().collect::<Result<(), CallError>>()?;
        let Some(project) = lock(&self.project).clone() else { return Ok("nothing: nothing was made".to_owned()) };
        Session::new(server, credentials, &self.clock)
            .call(Method::DELETE, &format!("/v2/projects/{project}"), None)
            .await?;
        Ok(format!("{count} devices and their project"))
    }
}

async fn make_device(session: &mut Session, project: &str, profile: Profile, number: usize) -> Result<Seat, CallError> {
    let body: Value = json!({
        "name": format!("{} {:05}", profile.name(), number + 1),
        "projectUuid": project,
        "protocol": "http",
        "description": "Simulated device",
    });
    let [id, token] = session.call_for(Method::POST, "/v2/devices", &body, ["id", "token"]).await?;
    let mut token = HeaderValue::from_str(&token).map_err(|_| CallError::NoHeader)?;
    token.set_sensitive(true);
    Ok(Seat { id, token })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
