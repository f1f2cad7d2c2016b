//! What is measured with: a project that stores every event and looks at it once, and devices.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::Failure;
use crate::api::{Api, text};
use crate::wire::request;

/// The device event element.
pub const EVENT: &str = "reading";
/// Where devices post it.
pub const EVENTS: &str = "/v2/events/device?elementName=reading";
/// The storage element.
pub const STORAGE: &str = "readings";
/// Connections that make devices.
const MAKERS: usize = 16;

/// A device.
#[derive(Clone)]
pub struct Device {
    /// Its identifier.
    pub id: String,
    /// Its token.
    pub token: String,
}

/// Makes a project with one storage element and one condition.
pub async fn make_project(api: &mut Api) -> Result<String, Failure> {
    let elements = json!({
        EVENT: {"type": "deviceEvent", "properties": {"integration": "http"}, "triggers": {"eventReceived": [
            {"element": STORAGE, "ability": "store"},
            {"element": "hot", "ability": "evaluate"},
        ]}},
        STORAGE: {"type": "storage"},
        "hot": {"type": "condition", "properties": {"expression": "payload.temperature > 30.0"}, "triggers": {
            "true": [{"element": "alarm", "ability": "setStatus", "arguments": {"status": "warning"}}],
        }},
        "alarm": {"type": "deviceMeta"},
    });
    make_project_of(api, "Measurements", &elements).await
}

/// Makes a project of these elements.
pub async fn make_project_of(api: &mut Api, name: &str, elements: &Value) -> Result<String, Failure> {
    let project = api.call("POST", "/v2/projects", Some(&json!({"name": name}))).await?;
    let id = text(&project, "id")?;
    let specification = json!({"name": name, "planes": {"cloud": {"elements": elements}}});
    api.call("PUT", &format!("/v2/projects/{id}/specification"), Some(&specification)).await?;
    Ok(id)
}

/// Makes devices through the API, several at a time.
pub async fn make_devices(api: &Api, project: &str, count: usize) -> Result<Vec<Device>, Failure> {
    let begun = Instant::now();
    let devices = make(api, count, MAKERS, async |api, number| {
        let body = json!({"name": format!("device {number}"), "projectUuid": project});
        let device = api.call("POST", "/v2/devices", Some(&body)).await?;
        Ok(Device { id: text(&device, "id")?, token: text(&device, "token")? })
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("bench: made {count} devices in {seconds:.1} s ({:.0} a second)", count as f64 / seconds);
    Ok(devices)
}

/// Makes so many of something over several connections; in the order of their numbers.
pub async fn make<T>(
    api: &Api,
    count: usize,
    makers: usize,
    one: impl AsyncFn(&mut Api, usize) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let (next, made) = (Cell::new(0), RefCell::new(BTreeMap::new()));
    let maker = async || {
        let mut api = api.again().await?;
        loop {
            let number = next.replace(next.get() + 1);
            if number >= count {
                return Ok(());
            }
            let it = one(&mut api, number).await?;
            made.borrow_mut().insert(number, it);
        }
    };
    crate::load::all((0..makers.min(count)).map(|_| maker()).collect()).await?;
    Ok(made.into_inner().into_values().collect())
}

/// The request with which a device posts an event.
pub fn event_request(address: &str, device: &Device, body: &str) -> Vec<u8> {
    request("POST", address, EVENTS, &format!("cloud: {}", device.token), Some(body))
}

/// The payload of the event of this number: a few bytes that differ.
pub fn payload(number: usize) -> String {
    // A multiplicative hash spreads the numbers, so that sorting by them has something to do.
    let spread = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
    format!(
        "{{\"temperature\":{}.{:02},\"humidity\":{},\"number\":{number}}}",
        10 + spread % 20,
        spread % 100,
        spread % 101
    )
}
