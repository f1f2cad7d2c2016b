//! Those who stand in the door: bodies that drip, connections that say nothing, wrong passwords.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::attack::{Attack, Requests, Way};
use super::cases::{BODY_BYTES, Sizes, calls, devices_of, in_turns};
use super::{good, malice};
use crate::Failure;
use crate::api::Api;
use crate::setup::EVENTS;
use crate::wire::request;

const LOGIN: &str = "/v2/auth/login";
/// Connections with large bodies for the login, and the pause on each in milliseconds.
const LOGINS: usize = 4;
const LOGIN_EVERY: u64 = 1_000;
/// Connections whose bodies drip: those of nobody, and those of a device.
const DRIPS: usize = 500;
const DRIPS_OF_A_DEVICE: usize = 64;
/// What the open operations take at most.
const OPEN_BODY_BYTES: usize = 16 << 10;
/// A body has a minute, or its 16 KiB a second.
const BODY_TIME: Duration = Duration::from_secs(75);
/// Until all of them have sent what they do not drip.
const DRIP_LEAD: Duration = Duration::from_secs(3);
/// Until there are as many silent connections as there can be.
const SILENCE_LEAD: Duration = Duration::from_secs(5);
/// Files that this process needs for itself.
const OWN_FILES: u64 = 200;
/// Silent connections where files have no limit.
const SILENT_MAX: u64 = 25_000;
/// Who guesses passwords, their pause in milliseconds, and what the proxy says where they are.
const GUESSERS: usize = 4;
const GUESS_EVERY: u64 = 50;
const FORWARDED: &str = "x-forwarded-for: 203.0.113.7";

pub fn colliding_logins(api: &Api) -> Attack {
    let login = request("POST", api.address(), LOGIN, "", Some(&malice::colliding(BODY_BYTES)));
    Attack::of(calls(LOGINS, LOGIN_EVERY, in_turns(vec![login])), Vec::new())
}

/// A request whose body is all there but for its end.
fn unfinished(api: &Api, path: &str, credential: &str, bytes: usize) -> Vec<u8> {
    let whole = request("POST", api.address(), path, credential, Some(&" ".repeat(bytes)));
    whole[..whole.len() - bytes / 20].to_vec()
}

fn dripping(connections: usize, requests: Vec<Vec<u8>>, sizes: &Sizes) -> Attack {
    let mut attack = Attack::of(Way::Drips { connections, requests }, Vec::new());
    attack.lead = DRIP_LEAD;
    attack.at_least = (!sizes.quick).then_some(BODY_TIME);
    attack
}

pub fn slow_logins(api: &Api, sizes: &Sizes) -> Attack {
    let requests = [BODY_BYTES, OPEN_BODY_BYTES].map(|bytes| unfinished(api, LOGIN, "", bytes));
    dripping(DRIPS, requests.to_vec(), sizes)
}

pub async fn slow_bodies(api: &mut Api, sizes: &Sizes) -> Result<Attack, Failure> {
    let devices = devices_of(api, &malice::stores(), 1).await?;
    let token = format!("cloud: {}", devices.first().ok_or("no devices")?.token);
    let request = unfinished(api, EVENTS, &token, BODY_BYTES);
    Ok(dripping(DRIPS_OF_A_DEVICE, vec![request], sizes))
}

pub fn silence() -> Attack {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(SILENT_MAX).min(SILENT_MAX);
    let connections = files.saturating_sub(OWN_FILES) as usize;
    let mut attack = Attack::of(Way::Silence { connections }, Vec::new());
    attack.lead = SILENCE_LEAD;
    attack
}

pub fn passwords(api: &Api) -> Attack {
    let address = api.address().to_owned();
    // In turns the name of somebody who is there, and one of somebody who is not.
    let guess: Requests = Box::new(move |number| {
        let name = if number % 2 == 0 { good::NAME.to_owned() } else { format!("nobody{number}") };
        let body = json!({"usernameOrEmail": name, "password": format!("guess {number}")}).to_string();
        Arc::new(request("POST", &address, LOGIN, FORWARDED, Some(&body)))
    });
    Attack::of(calls(GUESSERS, GUESS_EVERY, guess), Vec::new())
}
