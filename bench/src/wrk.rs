//! wrk, the load generator: what it is told, and what it says.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::Failure;
use crate::setup::Device;

/// The script that rotates the requests; it travels within this program.
const SCRIPT: &str = include_str!("../post.lua");

/// One run of wrk.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Answers.
    pub answers: u64,
    /// Answers a second.
    pub rate: f64,
    /// Half of the answers came within.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// The slowest.
    pub max: Duration,
}

/// What wrk needs on disk: its script, and the requests that it sends in turns.
pub struct Ammunition {
    folder: tempfile::TempDir,
}

impl Ammunition {
    /// Each device posts a body.
    pub fn posts(devices: &[Device], body: impl Fn(usize) -> String) -> Result<Self, Failure> {
        let post = |(number, device): (usize, &Device)| format!("POST\t\tcloud: {}\t{}", device.token, body(number));
        Self::load(devices.iter().enumerate().map(post))
    }

    /// Nobody posts so many bodies.
    pub fn bodies(count: usize, body: impl Fn(usize) -> String) -> Result<Self, Failure> {
        Self::load((0..count).map(|number| format!("POST\t\t\t{}", body(number))))
    }

    /// Somebody with this header reads each path.
    pub fn reads(paths: &[String], header: &str) -> Result<Self, Failure> {
        Self::load(paths.iter().map(|path| format!("GET\t{path}\t{header}\t")))
    }

    fn load(lines: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("post.lua"), SCRIPT)?;
        let mut requests = String::new();
        for line in lines {
            writeln!(requests, "{line}")?;
        }
        std::fs::write(folder.path().join("requests"), requests)?;
        Ok(Self { folder })
    }

    /// Sends its requests for so long.
    pub async fn fire(&self, shot: &Shot<'_>) -> Result<Round, Failure> {
        let path = |name: &str| Path::new(self.folder.path()).join(name);
        let output = Command::new("wrk")
            .args(["--threads", &shot.threads.to_string(), "--connections", &shot.connections.to_string()])
            .args(["--duration", &format!("{}s", shot.seconds), "--timeout", "30s", "--latency", "--script"])
            .arg(path("post.lua"))
            .arg(format!("{}{}", shot.origin, shot.target))
            .arg("--")
            .arg(path("requests"))
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
    /// `http://HOST:PORT` or `https://HOST:PORT`
    pub origin: &'a str,
    /// Path and query of requests that have none of their own.
    pub target: &'a str,
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
        let answers = figure("requests")?;
        let rate = answers as f64 / (figure("micros")? as f64 / 1e6);
        let latency = |name| figure(name).map(Duration::from_micros);
        Ok(Self { answers, rate, p50: latency("p50")?, p99: latency("p99")?, max: latency("max")? })
    }
}
