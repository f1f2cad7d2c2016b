//! wrk, the load generator: what it is told, and what it says.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::Failure;
use crate::setup::{Device, payload};

/// The script that rotates the devices; it travels within this program.
const SCRIPT: &str = include_str!("../post.lua");

/// One run of wrk.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Answers a second.
    pub rate: f64,
    /// Half of the answers came within.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// The slowest.
    pub max: Duration,
}

/// What wrk needs on disk: its script, and the devices' tokens and bodies.
pub struct Ammunition {
    folder: tempfile::TempDir,
}

impl Ammunition {
    /// For these devices.
    pub fn new(devices: &[Device]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("post.lua"), SCRIPT)?;
        let (mut with_tokens, mut without) = (String::new(), String::new());
        for (number, device) in devices.iter().enumerate() {
            let body = payload(number);
            writeln!(with_tokens, "{}\t{body}", device.token)?;
            writeln!(without, "\t{body}")?;
        }
        std::fs::write(folder.path().join("devices"), with_tokens)?;
        std::fs::write(folder.path().join("nobody"), without)?;
        Ok(Self { folder })
    }

    /// Posts to `target` for so long: as the devices, or as nobody.
    pub async fn fire(&self, shot: &Shot<'_>) -> Result<Round, Failure> {
        let path = |name: &str| Path::new(self.folder.path()).join(name);
        let output = Command::new("wrk")
            .args(["--threads", &shot.threads.to_string(), "--connections", &shot.connections.to_string()])
            .args(["--duration", &format!("{}s", shot.seconds), "--timeout", "30s", "--latency", "--script"])
            .arg(path("post.lua"))
            .arg(format!("http://{}{}", shot.address, shot.target))
            .arg("--")
            .arg(path(if shot.as_devices { "devices" } else { "nobody" }))
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| format!("wrk cannot be run: {error}"))?;
        let told = String::from_utf8_lossy(&output.stdout);
        let figures = told.lines().find_map(|line| line.strip_prefix("figures "));
        let figures = figures.ok_or_else(|| format!("wrk says: {told}{}", String::from_utf8_lossy(&output.stderr)))?;
        Round::read(figures)
    }
}

/// What wrk is to do.
pub struct Shot<'a> {
    /// Where.
    pub address: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// With tokens, or without.
    pub as_devices: bool,
    /// Threads of wrk.
    pub threads: usize,
    /// Connections that stay open.
    pub connections: usize,
    /// How long.
    pub seconds: u64,
}

impl Round {
    fn read(figures: &str) -> Result<Self, Failure> {
        let figure = |name: &str| -> Result<u64, Failure> {
            let value = figures.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            Ok(value.ok_or_else(|| format!("wrk does not tell {name}: {figures}"))?.parse()?)
        };
        let errors = figure("errors")?;
        if errors > 0 {
            return Err(format!("wrk counts {errors} errors: {figures}").into());
        }
        let rate = figure("requests")? as f64 / (figure("micros")? as f64 / 1e6);
        let latency = |name| figure(name).map(Duration::from_micros);
        Ok(Self { rate, p50: latency("p50")?, p99: latency("p99")?, max: latency("max")? })
    }
}
