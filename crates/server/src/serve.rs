//! `isobar serve`: opens the stores, starts the hub, serves until it is told to stop, and closes everything in reverse.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isobar_http::HttpSettings;

use isobar_hub::{Hub, Parts, RateLimits, Started};
use isobar_model::chance::Chance;
use isobar_model::time::Clock;
use isobar_outlets::mail::Mailer;
use isobar_store::telemetry::Telemetry as _;

use crate::config::{self, Settings};
use crate::folder::DataFolder;
use crate::stores::{Stores, whole};
use crate::upkeep::control::Control;
use crate::{Failure, allocator, logging, runtime};

/// The commit that the program was built from, if the build knew it.
const COMMIT: Option<&str> = option_env!("BUILT_COMMIT");
/// Sets the first administrator's password.
const ADMIN_PASSWORD_VARIABLE: &str = "ISOBAR_ADMIN_PASSWORD";
/// Where e-mails are written when there is no server for them, beneath the data folder.
pub const MAIL_FOLDER: &str = "mail";
/// What is done beside the calls gets this long at the end.
const LAST_WORK: Duration = Duration::from_secs(10);
/// What still blocks a thread when everything is closed gets this long.
const LAST_THREADS: Duration = Duration::from_secs(5);

/// Runs the platform until it is told to stop.
pub fn run(flags: &config::Flags) -> Result<(), Failure> {
    let loaded = config::load(flags)?;
    logging::start(&loaded.settings.log);
    loaded.warn();
    let settings = loaded.settings;
    runtime::refuse_huge_pages();
    let connections = runtime::connections(settings.http.max_connections, runtime::raise_file_limit())?;
    let folder = DataFolder::take(&settings.data)?;
    let runtime = runtime::start(settings.http.threads)?;
    let outcome = runtime.block_on(serve(&settings, connections, &folder));
    runtime.shutdown_timeout(LAST_THREADS);
    outcome
}

/// The OpenAPI document.
pub fn openapi() -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&isobar_http::openapi())?)
}

async fn serve(settings: &Settings, connections: usize, folder: &DataFolder) -> Result<(), Failure> {
    let listener = isobar_http::listen(settings.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    let address = listener.local_addr()?;
    // Before anything of the folder is upgraded: an older program must not write into what it does not know.
    folder.stamp()?;
    let stores = Stores::open(settings).await?;
    let metrics = isobar_http::prometheus()?.install_recorder()?;
    let Started { hub, first_password } = Hub::start(Parts {
        registry: stores.registry.clone(),
        telemetry: stores.telemetry.clone(),
        mailer: mailer(settings)?,
        clock: Clock::System,
        chance: Chance::from_system(),
        config: hub_config(settings, address),
    })
    .await?;
    let app = isobar_http::app(hub.clone(), http_settings(settings, connections), metrics);
    if let Some(control) = Control::open(&settings.data) {
        let (control, settings, stores) = (Arc::new(control), settings.clone(), stores.clone());
        hub.employ("control", move |shift| Arc::clone(&control).serve(settings.clone(), stores.clone(), shift));
    }
    // Whoever reads that we are ready may tell us to stop in the next moment.
    let stop = runtime::StopSignals::catch()?;
    // The first password's hash took more than the idle server will.
    allocator::tidy();
    hub.employ("memory", runtime::tidy_memory);
    announce(address, first_password.as_deref())?;
    let telemetry = stores.telemetry.clone();
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
    };
    let served = isobar_http::serve(listener, app, ends).await;
    // Work that waits for a store must not keep the process from ending: it is durable, and goes on at the next start.
    if tokio::time::timeout(LAST_WORK, hub.stop()).await.is_err() {
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

fn hub_config(settings: &Settings, address: SocketAddr) -> isobar_hub::Config {
    isobar_hub::Config {
        public_url: settings.public_url.clone().unwrap_or_else(|| format!("http://{address}")),
        rate_limit: RateLimits {
            user: settings.rate_limit.user,
            device: settings.rate_limit.device,
            address: settings.rate_limit.address,
        },
        registration_open: settings.registration.open,
        require_verified_email: settings.registration.require_verified_email,
        admin_password: std::env::var(ADMIN_PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()),
        outgoing_allow: settings.outgoing_allow.clone(),
    }
}

/// E-mail goes out over SMTP, or becomes files in the data folder.
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
        commit: COMMIT,
        console: isobar_console::FILES,
        ..HttpSettings::default()
    }
}

/// Says on standard output that the platform is ready, and the first password if one was made up.
fn announce(address: SocketAddr, first_password: Option<&str>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if let Some(password) = first_password {
        writeln!(out, "The first administrator is admin, the password is {password} (shown only this once)")?;
    }
    writeln!(out, "Isobar is ready: http://{address}")?;
    if out.is_terminal() {
        writeln!(out, "Ctrl-C stops it.")?;
    }
    out.flush()
}
