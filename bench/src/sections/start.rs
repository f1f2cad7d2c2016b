//! Start on an empty folder, restart after kill -9 under full load, and what was acknowledged until then.

use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{House, LOAD_CONNECTIONS, grouped, median, megabytes, millis};
use crate::api::Api;
use crate::page::Page;
use crate::process::Server;
use crate::setup::{Device, STORAGE};
use crate::{Failure, Options, load};

/// How often an empty folder is started on.
const STARTS: usize = 5;

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let (mut starts, mut stops, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..STARTS {
        let folder = TempDir::with_prefix_in("isobar-bench-", &options.folder)?;
        let server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
        starts.push(server.ready_after);
        memory = server.memory()?;
        stops.push(server.stop().await?);
    }
    let crash = crash(options).await?;
    let middle = |durations: Vec<Duration>| median(durations, Duration::as_secs_f64).map(millis).unwrap_or_default();
    let figures = format!(
        "| what | figure |\n|---|---:|\n\
         | start on an empty folder, until ready | {} |\n\
         | stop by SIGTERM | {} |\n\
         | memory when idle | {} |\n\
         | memory under full load | {} |\n\
         | restart after kill -9 under full load, until ready | {} |\n\
         | events acknowledged before the kill | {} |\n\
         | of these, lost | {} |\n",
        middle(starts),
        middle(stops),
        megabytes(memory),
        megabytes(crash.memory),
        millis(crash.restart),
        grouped(crash.acknowledged as f64),
        crash.acknowledged.saturating_sub(crash.found)
    );
    page.put("start", &figures)?;
    if crash.found < crash.acknowledged {
        return Err(format!("{} events were acknowledged, {} are there", crash.acknowledged, crash.found).into());
    }
    Ok(())
}

struct Crash {
    acknowledged: usize,
    found: usize,
    memory: u64,
    restart: Duration,
}

async fn crash(options: &Options) -> Result<Crash, Failure> {
    let house = House::build(options).await?;
    let devices = house.devices(options.devices).await?;
    let House { server, folder, .. } = house;
    let (address, kill_after) = (server.address.clone(), Duration::from_secs(options.seconds));
    let killer = async {
        tokio::time::sleep(kill_after).await;
        let memory = server.memory()?;
        server.kill().await?;
        Ok::<u64, Failure>(memory)
    };
    let (acknowledged, memory) = tokio::join!(load::post_until_broken(&address, &devices, LOAD_CONNECTIONS), killer);
    let (acknowledged, memory) = (acknowledged?, memory?);
    let begun = Instant::now();
    let server = Server::isobar(&options.isobar, folder.path(), options.threads()).await?;
    let restart = begun.elapsed();
    let found = count(&server, &devices).await?;
    server.stop().await?;
    Ok(Crash { acknowledged, found, memory, restart })
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
