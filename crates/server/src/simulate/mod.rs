//! `isobar simulate`: a fleet of devices against a running server, by its public API alone.

mod client;
mod fleet;
mod load;
mod profile;
mod session;
mod stats;
mod view;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use tokio::sync::watch;

use self::client::ServerUrl;
use self::fleet::Fleet;
use self::profile::Profile;
use self::session::Credentials;
use self::stats::{Stats, Summary};
use crate::{Failure, output};

/// Most devices of one simulation.
const DEVICES_MAX: u64 = 1_000_000;
/// Most connections of one simulation.
const CONNECTIONS_MAX: u64 = 20_000;

/// Flags of `isobar simulate`.
#[derive(Debug, clap::Args)]
pub struct SimulateOptions {
    /// The server
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: ServerUrl,
    /// User that creates the project and the devices, of at least the role administrator
    #[arg(long, env = "ISOBAR_USER", default_value = "admin")]
    user: String,
    /// The user's password
    #[arg(long, env = "ISOBAR_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// An API key instead of user and password
    #[arg(long, env = "ISOBAR_API_KEY", hide_env_values = true, conflicts_with = "password")]
    api_key: Option<String>,
    /// Number of devices
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=DEVICES_MAX))]
    devices: u64,
    /// Events a second, all devices together; 0 or max: as fast as the server answers
    #[arg(long, default_value = "100", value_parser = rate)]
    rate: Rate,
    /// Kind of the devices
    #[arg(long, value_enum, default_value_t = Profile::SmartMeter)]
    profile: Profile,
    /// Duration, like 90, 60s, 5m or 1h [default: until Ctrl-C]
    #[arg(long, visible_alias = "for", value_parser = duration)]
    duration: Option<Duration>,
    /// Connections that the devices share
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    concurrency: u64,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Delete the project and the devices afterwards
    #[arg(long)]
    cleanup: bool,
}

/// Events a second; `None` for as fast as possible.
#[derive(Clone, Copy, Debug)]
struct Rate(Option<f64>);

fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Rate(None)),
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Rate(Some(rate))),
        _ if text == "max" => Ok(Rate(None)),
        _ => Err("must be a number of events a second, or max".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let number: u32 = number.parse().map_err(|_| "must be like 90, 60s, 5m or 1h")?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

/// Runs the simulation; returns true if there were no errors.
pub fn run(options: SimulateOptions) -> Result<bool, Failure> {
    crate::runtime::raise_file_limit();
    // A single thread, as the measured server shares the machine.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(simulate(&options, &Clock::System))
}

async fn simulate(options: &SimulateOptions, clock: &Clock) -> Result<bool, Failure> {
    let credentials = options.credentials()?;
    let fleet = Fleet::new(clock.clone());
    let outcome = set_up_and_load(options, &credentials, &fleet, clock).await;
    if options.cleanup {
        output::note("simulate: deleting the project and its devices");
        tokio::select! {
            deleted = fleet.delete(&options.url, &credentials) => {
                output::note(&format!("simulate: deleted {}", deleted?));
            }
            _ = tokio::signal::ctrl_c() => return Err("stopped before everything was deleted".into()),
        }
    }
    let Some(summary) = outcome? else { return Ok(false) };
    output::print(&if options.json { format!("{}\n", summary.json()) } else { summary.text() })?;
    Ok(summary.counts.errors.is_empty())
}

/// Sets the fleet up and runs the load. Returns `None` if it was stopped before a device posted.
async fn set_up_and_load(
    options: &SimulateOptions,
    credentials: &Credentials,
    fleet: &Fleet,
    clock: &Clock,
) -> Result<Option<Summary>, Failure> {
    let progress = Progress::new(options.devices, clock);
    let tell = |made| progress.tell(made);
    let made = tokio::select! {
        made = fleet.make(&options.url, credentials, options.profile, options.devices as usize, &tell) => made,
        _ = tokio::signal::ctrl_c() => return Ok(None),
    };
    made?;
    let (stop, stopped) = watch::channel(false);
    let stats = Arc::new(Stats::new()?);
    let view = start_view(options, &stats, &stopped, clock)?;
    let work = load::Work {
        server: options.url.clone(),
        profile: options.profile,
        rate: options.rate.0,
        connections: options.concurrency as usize,
        clock: clock.clone(),
    };
    let begun = clock.instant();
    let end = async {
        tokio::select! {
            () = sleep_for(options.duration, clock) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stop.send_replace(true);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = load::run(&work, fleet.seats(), &stats, &stopped) => {}
        () = end => {}
    }
    let elapsed = clock.elapsed(begun);
    stop.send_replace(true);
    let _ = view.join();
    let summary =
        Summary { profile: options.profile.name(), devices: options.devices as usize, elapsed, counts: stats.whole() };
    Ok(Some(summary))
}

fn start_view(
    options: &SimulateOptions,
    stats: &Arc<Stats>,
    stop: &watch::Receiver<bool>,
    clock: &Clock,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let title = format!("isobar simulate: {} x {} on {}", options.devices, options.profile.name(), options.url);
    let scene = view::Scene { title, duration: options.duration, is_json: options.json };
    let (stats, stop) = (stats.clone(), view::Stop::new(stop, clock));
    std::thread::Builder::new().name("view".to_owned()).spawn(move || view::show(&scene, &stats, stop))
}

async fn sleep_for(duration: Option<Duration>, clock: &Clock) {
    match duration {
        Some(duration) => clock.sleep(duration).await,
        None => std::future::pending().await,
    }
}

impl SimulateOptions {
    fn credentials(&self) -> Result<Credentials, Failure> {
        match (&self.api_key, &self.password) {
            (Some(key), _) => Ok(Credentials::ApiKey(key.clone())),
            (None, Some(password)) => Ok(Credentials::Password { user: self.user.clone(), password: password.clone() }),
            (None, None) => Err("give --password (or ISOBAR_PASSWORD), or --api-key (or ISOBAR_API_KEY)".into()),
        }
    }
}

/// The progress of the set-up: in place on a terminal, otherwise as occasional lines.
struct Progress<'a> {
    devices: u64,
    clock: &'a Clock,
    told: Cell<Option<Instant>>,
}

impl<'a> Progress<'a> {
    fn new(devices: u64, clock: &'a Clock) -> Self {
        Self { devices, clock, told: Cell::new(None) }
    }

    fn tell(&self, made: usize) {
        let is_last = made as u64 == self.devices;
        if !is_last && self.told.get().is_some_and(|told| self.clock.elapsed(told) < Duration::from_secs(1)) {
            return;
        }
        self.told.set(Some(self.clock.instant()));
        let line = format!("simulate: made {made} of {} devices", self.devices);
        output::note_with(&line, if output::is_error_terminal() && !is_last { "\r" } else { "\n" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates_are_read() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert!(duration("soon").is_err() && duration("-1s").is_err() && duration("1d").is_err());
        assert_eq!(rate("max").unwrap().0, None);
        assert_eq!(rate("0").unwrap().0, None);
        assert_eq!(rate("2.5").unwrap().0, Some(2.5));
        assert!(rate("-1").is_err() && rate("NaN").is_err());
    }
}
