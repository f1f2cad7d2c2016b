//! Start on an empty folder, restart after kill -9 under full load when much is stored, and what was acknowledged until then.

use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{House, LOAD_CONNECTIONS, grouped, median, megabytes, millis, verdict};
use crate::api::Api;
use crate::page::Page;
use crate::process::Server;
use crate::setup::{Device, STORAGE};
use crate::{Failure, Options, load};

/// How often an empty folder is started on.
const STARTS: usize = 5;
/// What a restart after a kill may take until it is ready.
const RESTART_TARGET: Duration = Duration::from_secs(3);

/// `stored`: events of the devices that the house holds already.
pub async fn measure(
    options: &Options,
    page: &Page,
    house: House,
    devices: &[Device],
    stored: usize,
) -> Result<(), Failure> {
    let crash = crash(options, house, devices).await?;
    let (mut starts, mut stops, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..STARTS {
        let folder = TempDir::with_prefix_in("isobar-bench-", &options.folder)?;
        let server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
        starts.push(server.ready_after);
        memory = server.memory()?;
        stops.push(server.stop().await?);
    }
    let middle = |durations: Vec<Duration>| median(durations, Duration::as_secs_f64).map(millis).unwrap_or_default();
    let slowest = crash.restarts.iter().max().copied().unwrap_or_default();
    let expected = stored + crash.acknowledged;
    let target = format!("< {}", millis(RESTART_TARGET));
    let figures = format!(
        "| what | figure | target |\n|---|---:|---|\n\
         | start on an empty folder, until ready | {} | |\n\
         | stop by SIGTERM | {} | |\n\
         | memory when idle | {} | |\n\
         | memory under full load, {} devices known | {} | |\n\
         | restart after kill -9 under full load, until ready: the slowest of {} | {} | {target}: {} |\n\
         | the others | {} | |\n\
         | events acknowledged before the kills, {} of them under that load | {} | |\n\
         | of these, lost | {} | 0: {} |\n",
        middle(starts),
        middle(stops),
        megabytes(memory),
        grouped(devices.len() as f64),
        megabytes(crash.memory),
        crash.restarts.len(),
        millis(slowest),
        verdict(slowest < RESTART_TARGET),
        others(&crash.restarts),
        grouped(crash.acknowledged as f64),
        grouped(expected as f64),
        grouped(expected.saturating_sub(crash.found) as f64),
        verdict(crash.found >= expected)
    );
    page.put("start", &figures)?;
    if crash.found < expected {
        return Err(format!("{expected} events were acknowledged, {} are there", crash.found).into());
    }
    Ok(())
}

struct Crash {
    /// Events that were acknowledged between the start of the load and the last kill.
    acknowledged: usize,
    /// Events of all devices that are there in the end.
    found: usize,
    memory: u64,
    /// From each start to its line.
    restarts: Vec<Duration>,
}

/// Kills the server under full load and starts it again, several times: each kill finds another part of the log written.
async fn crash(options: &Options, house: House, devices: &[Device]) -> Result<Crash, Failure> {
    let House { mut server, folder, .. } = house;
    let busy = &devices[..options.devices.min(devices.len())];
    let (mut acknowledged, mut memory, mut restarts) = (0, 0, Vec::new());
    for round in 0..options.rounds.max(1) {
        let kill_after = Duration::from_secs(options.seconds).mul_f64(1.0 + 0.15 * round as f64);
        let address = server.address.clone();
        let killer = async {
            tokio::time::sleep(kill_after).await;
            let memory = server.memory()?;
            server.kill().await?;
            Ok::<u64, Failure>(memory)
        };
        let (told, most) = tokio::join!(load::post_until_broken(&address, busy, LOAD_CONNECTIONS), killer);
        (acknowledged, memory) = (acknowledged + told, memory.max(most?));
        let begun = Instant::now();
        server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
        restarts.push(begun.elapsed());
    }
    let found = count(&server, devices).await?;
    server.stop().await?;
    Ok(Crash { acknowledged, found, memory, restarts })
}

/// All but the slowest.
fn others(restarts: &[Duration]) -> String {
    let mut sorted = restarts.to_vec();
    sorted.sort_unstable();
    sorted.pop();
    sorted.into_iter().map(millis).collect::<Vec<_>>().join(", ")
}

/// All values of all devices.
async fn count(server: &Server, devices: &[Device]) -> Result<usize, Failure> {
    let mut api = Api::log_in(&server.address).await?;
    let mut found = 0;
    for device in devices {
        let values = api.call("GET", &format!("/v2/devices/{}/data/{STORAGE}?limit=1", device.id), None).await?;
        found += values["meta"]["totalDocs"].as_u64().unwrap_or_default() as usize;
    }
    Ok(found)
}
