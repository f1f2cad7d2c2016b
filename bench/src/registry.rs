//! A large registry: filled through the API where nothing waits for a disk, then moved to one.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::{Api, text};
use crate::process::Server;
use crate::setup::{EVENT, EVENTS, make};
use crate::{Failure, Options};

/// A file system in memory: filling it syncs nothing.
const MEMORY_FOLDER: &str = "/dev/shm";
/// Connections that fill.
const MAKERS: usize = 8;
/// Each level has so many organizations for each one above it.
const FANS: [usize; 3] = [10, 10, 9];
/// System notifications that everybody has.
const NOTIFICATIONS: usize = 150;
/// One of so many devices is on the map.
const PLACED: usize = 10;
/// One of so many was heard.
const HEARD: usize = 10;
/// Devices that one call makes.
const BULK: usize = 500;
/// Settings of the device whose settings are listed.
const SETTINGS: usize = 30;

/// How much is in it.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub organizations: usize,
    pub users: usize,
    pub devices: usize,
}

/// A server with a large registry.
pub struct Registry {
    pub server: Server,
    pub api: Api,
    pub sizes: Sizes,
    /// An organization with a tenth of everything beneath it.
    pub region: String,
    /// One with a hundredth.
    pub site: String,
    /// A device with settings.
    pub device: String,
    _folder: TempDir,
}

/// Fills one.
pub async fn fill(options: &Options) -> Result<Registry, Failure> {
    let fast = Path::new(MEMORY_FOLDER);
    let filled = TempDir::with_prefix_in("isobar-bench-", if fast.is_dir() { fast } else { &options.folder })?;
    let begun = Instant::now();
    let server = Server::isobar(&options.isobar, filled.path(), options.threads()).await?;
    let mut api = Api::log_in(&server.address).await?;
    let tree = tree(&mut api).await?;
    let projects = make(&api, tree.len(), MAKERS, async |api, number| {
        let body = json!({"name": format!("design {number}"), "organizationId": tree[number]});
        text(&api.call("POST", "/v2/projects", Some(&body)).await?, "id")
    })
    .await?;
    make(&api, projects.len(), MAKERS, async |api, number| {
        design(api, &projects[number], if number == 0 { SETTINGS } else { 0 }).await
    })
    .await?;
    let sizes = Sizes { organizations: tree.len(), users: options.list_users, devices: options.list_devices };
    let users = make(&api, sizes.users, MAKERS, async |api, number| {
        // Spread, so that no order of theirs is that of another.
        let spread = number.wrapping_mul(7_919) % sizes.users.max(1);
        let body = json!({"username": format!("user{number}"), "email": format!("user{spread}@example.com"),
            "firstName": format!("Ana {}", number % 97), "lastName": format!("Moreau {spread}"),
            "company": format!("Company {}", number % 211), "role": "technician",
            "organizationId": tree[number % tree.len()]});
        text(&api.call("POST", "/v2/users", Some(&body)).await?, "id")
    });
    users.await?;
    let device = devices(&api, sizes.devices, &tree, &projects).await?;
    for number in 0..NOTIFICATIONS {
        let body = json!({"message": format!("Maintenance {number}")});
        api.call("POST", "/v2/notifications/system", Some(&body)).await?;
    }
    eprintln!("bench: the registry is filled in {:.0} s", begun.elapsed().as_secs_f64());
    server.stop().await?;
    let folder = TempDir::with_prefix_in("isobar-bench-", &options.folder)?;
    copy(filled.path(), folder.path())?;
    let server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
    let api = Api::log_in(&server.address).await?;
    Ok(Registry {
        server,
        api,
        sizes,
        region: tree[1].clone(),
        site: tree[1 + FANS[0]].clone(),
        device,
        _folder: folder,
    })
}

/// Makes the devices, in bulk, and lets one in so many be heard; the first one's id.
async fn devices(api: &Api, count: usize, tree: &[String], projects: &[String]) -> Result<String, Failure> {
    let bulks = make(api, count.div_ceil(BULK), MAKERS, async |api, bulk| {
        let numbers = bulk * BULK..count.min((bulk + 1) * BULK);
        let body = numbers.clone().map(|number| new_device(number, count, tree, projects)).collect();
        let made = api.call("POST", "/v2/devices/bulk", Some(&Value::Array(body))).await?;
        let made =
            made["data"].as_array().filter(|made| made.len() == numbers.len()).ok_or("not all were made")?.clone();
        for (_, device) in numbers.zip(&made).filter(|(number, _)| number.is_multiple_of(HEARD)) {
            let path = format!("{EVENTS}&deviceId={}", text(device, "id")?);
            api.call("POST", &path, Some(&json!(1))).await?;
        }
        text(made.first().ok_or("no devices")?, "id")
    })
    .await?;
    bulks.into_iter().next().ok_or_else(|| "no devices".into())
}

/// The body of the device of this number: spread, so that no order is that of another.
fn new_device(number: usize, devices: usize, tree: &[String], projects: &[String]) -> Value {
    let (place, spread) = (number % tree.len(), number.wrapping_mul(7_919) % devices.max(1));
    let mut body = json!({"name": format!("pump {spread}"), "description": format!("in hall {}", number % 40),
        "projectUuid": projects[if number == 0 { 0 } else { place }], "organizationId": tree[place],
        "meta": {"serial": format!("sn-{number:08}")}});
    if number.is_multiple_of(PLACED) {
        body["meta"]["latitude"] = json!((number % 179) as f64 - 89.0);
        body["meta"]["longitude"] = json!((number % 359) as f64 - 179.0);
    }
    body
}

/// The organizations from the top down, level by level: first the caller's own.
async fn tree(api: &mut Api) -> Result<Vec<String>, Failure> {
    let mut tree = vec![text(&api.call("GET", "/v2/auth/user", None).await?, "organizationId")?];
    let mut above = 0..1;
    for (level, fan) in ["region", "site", "department"].iter().zip(FANS) {
        let begun = tree.len();
        for (number, parent) in above.flat_map(|parent| (0..fan).map(move |_| parent)).enumerate() {
            let body = json!({"name": format!("{level} {number}"), "parentId": tree[parent],
                "description": format!("number {}", number.wrapping_mul(7_919) % 1_009)});
            tree.push(text(&api.call("POST", "/v2/organizations", Some(&body)).await?, "id")?);
        }
        above = begun..tree.len();
    }
    Ok(tree)
}

/// Gives a project a design that takes events and has so many settings.
pub async fn design(api: &mut Api, project: &str, settings: usize) -> Result<(), Failure> {
    let setting = |number: usize| {
        let properties = json!({"title": {"en": format!("Setting {number}")}, "inputType": "number", "defaultValue": number, "listOrder": number});
        (format!("setting{number}"), json!({"type": "deviceSetting", "properties": properties}))
    };
    let mut elements: serde_json::Map<_, _> = (0..settings).map(setting).collect();
    elements.insert(EVENT.to_owned(), json!({"type": "deviceEvent"}));
    let body = json!({"name": "pumps", "planes": {"cloud": {"elements": elements}}});
    api.call("PUT", &format!("/v2/projects/{project}/specification"), Some(&body)).await?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
