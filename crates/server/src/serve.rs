//! `isobar serve`: opens the stores, starts the hub, serves until a signal, and closes everything in reverse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isobar_http::{HttpSettings, Listeners, Tls};
use isobar_hub::{Hub, Parts, Started};
use isobar_model::chance::Chance;
use isobar_model::time::Clock;
use isobar_outlets::mail::Mailer;

use crate::acme::Renewal;
use crate::config::{self, Settings, ShownSettings};
use crate::folder::DataFolder;
use crate::logging::Levels;
use crate::otlp::Otlp;
use crate::reload::ReloadSignal;
use crate::stores::{Stores, whole};
use crate::upkeep::Platform;
use crate::upkeep::control::Control;
use crate::{Failure, allocator, logging, output, process, runtime, service_manager, several_nodes};

/// The commit of the build, if known.
pub const COMMIT: Option<&str> = option_env!("BUILT_COMMIT");
/// Environment variable with the first administrator's password.
const ADMIN_PASSWORD_VARIABLE: &str = "ISOBAR_ADMIN_PASSWORD";
/// Folder beneath the data folder for e-mails if there is no SMTP server.
pub const MAIL_FOLDER: &str = "mail";
/// Time for background work at a stop.
const LAST_WORK: Duration = Duration::from_secs(10);
/// Time for blocked threads after everything is closed.
const LAST_THREADS: Duration = Duration::from_secs(5);

/// Runs the platform until a stop signal.
pub fn run(flags: &config::Flags) -> Result<(), Failure> {
    let loaded = config::load(flags)?;
    let levels = logging::start(&loaded.settings.log);
    loaded.warn();
    let (settings, shown) = (loaded.settings, Arc::new(loaded.shown));
    runtime::refuse_huge_pages();
    let connections = runtime::connections(settings.http.max_connections, runtime::raise_file_limit())?;
    let mut folder = DataFolder::take(&settings.data)?;
    let runtime = runtime::start(settings.http.threads)?;
    let outcome = runtime.block_on(serve((&settings, shown), (flags, levels), connections, &mut folder));
    runtime.shutdown_timeout(LAST_THREADS);
    if outcome.is_err() {
        folder.remove_if_new();
    }
    outcome
}

/// Returns the OpenAPI document.
pub fn openapi() -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&isobar_http::openapi())?)
}

async fn serve(
    (settings, shown): (&Settings, Arc<ShownSettings>),
    (flags, levels): (&config::Flags, Levels),
    connections: usize,
    folder: &mut DataFolder,
) -> Result<(), Failure> {
    let listeners = listeners(settings)?;
    let url = own_url(&listeners)?;
    // Before any upgrade of the folder's contents: older programs must not write to them.
    folder.stamp()?;
    // Before the stores, which have limits with metrics.
    let metrics = isobar_http::prometheus()?.install_recorder()?;
    let stores = Stores::open(settings).await?;
    folder.keep();
    let otlp = settings.otlp.as_ref().map(Otlp::start).transpose()?.map(Arc::new);
    let Started { hub, first_password } = start_hub(settings, &url, &stores).await?;
    let platform = Platform { shown, ..Platform::new(settings, &stores, hub.clock().clone()) };
    let http_settings = HttpSettings {
        backup: settings.backup.schedule.is_some().then(|| platform.backups.standing()),
        ..http_settings(settings, connections)
    };
    let app = isobar_http::app(hub.clone(), http_settings, metrics.clone());
    // Signals are caught before the ready line, as its reader may send one at once.
    let stop = runtime::StopSignals::catch()?;
    ReloadSignal::catch()?.obey(flags.clone(), levels, listeners.tls.clone());
    // Hashing the first password took more memory than the idle server needs.
    allocator::tidy();
    employ_own(&hub, &platform);
    drop(platform);
    if let Some(otlp) = otlp {
        otlp.employ(&hub, metrics);
    }
    if let (Some(acme), Some(tls)) = (&settings.http.acme, &listeners.tls) {
        let renewal = Renewal::new(acme, &settings.data)?;
        let (tls, clock) = (tls.clone(), hub.clock().clone());
        hub.employ("acme", move |shift| renewal.clone().keep(tls.clone(), clock.clone(), shift));
    }
    announce(&url, first_password.as_deref())?;
    service_manager::report_ready(&url);
    let telemetry = stores.telemetry.port();
    let mut failure = None;
    let ends = async {
        tokio::select! {
            () = stop.wait() => {}
            error = telemetry.failed() => {
                let cause = whole(&error);
                tracing::error!(cause, "the telemetry store failed: finishes what is under way and ends");
                failure = Some(cause);
            }
        }
        service_manager::report_stopping();
    };
    let served = isobar_http::serve(listeners, app, ends).await;
    // Work that waits for a store must not block the stop: it is durable, and continues at the next start.
    if hub.clock().timeout(LAST_WORK, hub.stop()).await.is_err() {
        tracing::warn!("work beside the calls waits for a store, and goes on at the next start");
    }
    drop(hub);
    let closed = stores.close().await;
    if let Some(cause) = failure {
        return Err(format!(
            "the telemetry store failed: {cause}. What was acknowledged is kept; start isobar again when the cause is gone"
        )
        .into());
    }
    closed?;
    tracing::info!("stopped");
    Ok(served?)
}

/// Listens on the addresses of the settings, with the certificate from files or ACME.
fn listeners(settings: &Settings) -> Result<Listeners, Failure> {
    let (http, public) = (&settings.http, settings.listen);
    let tls = match (&http.tls, &http.acme) {
        (Some(files), _) => Some(Tls::read(files.clone())?),
        (None, Some(acme)) => Some(Renewal::new(acme, &settings.data)?.open()?),
        (None, None) => None,
    };
    let listen = |address| isobar_http::listen(address).map_err(|error| format!("cannot listen on {address}: {error}"));
    Ok(Listeners { public: listen(public)?, tls, operations: http.operations_listen.map(listen).transpose()? })
}

/// Returns the URL by which this machine reaches the platform.
fn own_url(listeners: &Listeners) -> std::io::Result<String> {
    let scheme = if listeners.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", listeners.public.local_addr()?))
}

/// Starts the hub on these stores with the settings.
async fn start_hub(settings: &Settings, own_url: &str, stores: &Stores) -> Result<Started, Failure> {
    several_nodes::warn(settings, &stores.registry).await;
    let parts = Parts {
        registry: stores.registry.clone(),
        telemetry: stores.telemetry.port(),
        mailer: mailer(settings)?,
        clock: if settings.may_have_other_nodes() { Clock::System } else { Clock::guarded() },
        chance: Chance::from_system(),
        config: hub_config(settings, own_url),
    };
    Ok(Hub::start(parts).await?)
}

/// Starts the workers of the program itself.
fn employ_own(hub: &Hub, platform: &Platform) {
    let settings = &platform.settings;
    if let Some(control) = Control::open(&settings.data) {
        let (control, platform, clock) = (Arc::new(control), platform.clone(), hub.clock().clone());
        hub.employ("control", move |shift| Arc::clone(&control).serve(platform.clone(), clock.clone(), shift));
    }
    if let Some(schedule) = settings.backup.schedule.clone() {
        let backups = Arc::clone(&platform.backups);
        hub.employ("backup", move |shift| Arc::clone(&backups).on_schedule(schedule.clone(), shift));
    }
    hub.employ("memory", runtime::tidy_memory);
    let (data, started) = (settings.data.clone(), hub.clock().now());
    hub.employ("process", move |shift| process::measure(data.clone(), started, shift));
    if let Some(interval) = service_manager::sign_of_life_interval() {
        hub.employ("watchdog", move |shift| service_manager::report_alive(interval, shift));
    }
}

fn hub_config(settings: &Settings, own_url: &str) -> isobar_hub::Config {
    isobar_hub::Config {
        has_other_nodes: settings.may_have_other_nodes(),
        node_name: node_name(&rustix::system::uname().nodename().to_string_lossy(), own_url),
        public_url: settings.public_url.clone().unwrap_or_else(|| own_url.to_owned()),
        rate_limit: settings.rate_limit,
        registration_open: settings.registration.open,
        require_verified_email: settings.registration.require_verified_email,
        admin_password: std::env::var(ADMIN_PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()),
        letters: settings.mail.bounds,
        outgoing_allow: settings.outgoing_allow.clone(),
    }
}

/// Returns the name of a node: its machine, and the address that it listens on if it is not every one of the machine.
fn node_name(machine: &str, own_url: &str) -> String {
    let address = own_url.split_once("://").map_or(own_url, |(_, address)| address);
    match address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("{machine}:{}", address.port()),
        _ => format!("{machine} {address}"),
    }
}

/// Makes the mailer: SMTP, or files in the data folder.
fn mailer(settings: &Settings) -> Result<Mailer, Failure> {
    Ok(match &settings.mail.smtp_url {
        Some(url) => Mailer::smtp(url, &settings.mail.from, Clock::System)?,
        None => Mailer::files(&settings.data.join(MAIL_FOLDER), &settings.mail.from, Clock::System)?,
    })
}

fn http_settings(settings: &Settings, connections: usize) -> HttpSettings {
    HttpSettings {
        max_body_bytes: settings.http.max_body_bytes,
        cors_origins: settings.http.cors_origins.clone(),
        max_connections: connections,
        trusted_proxies: settings.http.trusted_proxies.clone(),
        has_operations_listener: settings.http.operations_listen.is_some(),
        commit: COMMIT,
        console: isobar_console::FILES,
        ..HttpSettings::default()
    }
}

/// Prints the ready line, and the first password if it was generated.
fn announce(url: &str, first_password: Option<&str>) -> std::io::Result<()> {
    let first = first_password.map_or_else(String::new, |password| {
        format!("The first administrator is admin, the password is {password} (shown only this once)\n")
    });
    let hint = if output::is_terminal() { "Ctrl-C stops it.\n" } else { "" };
    output::print(&format!("{first}Isobar is ready: {url}\n{hint}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use isobar_power::becomes;

    use super::*;
    use crate::faults;
    use crate::upkeep::{Task, control};

    #[test]
    fn nodes_of_one_machine_are_named_by_their_addresses() {
        assert_eq!(node_name("box", "http://0.0.0.0:8080"), "box:8080");
        assert_eq!(node_name("box", "https://[::]:443"), "box:443");
        assert_eq!(node_name("box", "http://127.0.0.2:8080"), "box 127.0.0.2:8080");
    }

    async fn named_by_readiness(hub: &Hub) -> BTreeSet<String> {
        hub.ready().await.err().unwrap_or_default().into_iter().map(|fault| fault.field).collect()
    }

    #[tokio::test]
    async fn workers_that_panic_are_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let flags = config::Flags { data: Some(folder.path().display().to_string()), ..config::Flags::default() };
        let settings = config::load_from(&flags, std::iter::empty()).unwrap().settings;
        let taken = DataFolder::take(&settings.data).unwrap();
        taken.stamp().unwrap();
        let stores = Stores::open(&settings).await.unwrap();
        let hub = start_hub(&settings, "http://localhost", &stores).await.unwrap().hub;
        // Often enough that readiness reports it for some seconds.
        faults::panic_at("memory", 5);
        employ_own(&hub, &Platform::new(&settings, &stores, hub.clock().clone()));
        becomes("readiness tells of it", async || named_by_readiness(&hub).await.contains("memory")).await;
        becomes("it comes through", async || named_by_readiness(&hub).await.is_empty()).await;
        // A command on which the worker panics fails; the next one succeeds.
        faults::panic_at("control", 2);
        for _ in 0..2 {
            let refused = control::ask(&settings.data, &Task::Check).await.unwrap_err();
            assert!(refused.to_string().contains("ended before it was done"), "{refused}");
        }
        let report = control::ask(&settings.data, &Task::Check).await.unwrap().unwrap();
        assert!(report.sound, "{}", report.text);
        assert_eq!(["memory", "control"].map(faults::left_at), [0, 0]);
        hub.stop().await;
        drop(hub);
        stores.close().await.unwrap();
    }
}
