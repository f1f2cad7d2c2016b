//! Settings (contract: The program). `config.default.toml` is their documentation and their default.

mod acme;
mod backup;
mod layers;
mod otlp;
mod shown;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub use acme::Acme;
pub use backup::{Access, BackupSettings, Place};
use isobar_http::{CertificateFiles, Network};
use isobar_hub::{LetterBounds, RateLimits};
use isobar_model::ids::DATABASES_MAX;
use isobar_outlets::mail;
pub use layers::Fault;
use layers::Layers;
pub use otlp::OtlpSettings;
pub use shown::{MASK, ShownSettings};
use toml::Table;

use crate::folder::DataFolder;
use crate::logging::LogChoice;
use crate::{Failure, logging};

/// The commented default file.
pub const DEFAULT_FILE: &str = include_str!("config.default.toml");

/// Most threads that serve requests.
const THREADS_MAX: u32 = 256;
/// Smallest and largest limit of a body, in bytes: 1 KiB to 64 MiB.
const BODY_BYTES_MIN: u32 = 1024;
const BODY_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Smallest and largest limit of connections.
const CONNECTIONS_SETTING_MIN: u32 = 16;
const CONNECTIONS_SETTING_MAX: u32 = 1_000_000;
/// Largest limit of a device's cloud-event queue.
const QUEUE_EVENTS_MAX: u32 = 1_000_000;
/// Beginnings of addresses of PostgreSQL.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Largest limit of e-mails an hour.
const LETTERS_MAX: u32 = 1_000_000;

/// All settings, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// The data folder.
    pub data: PathBuf,
    /// Address by which clients reach the server, without a trailing slash; `None` for the address that it listens on.
    pub public_url: Option<String>,
    /// Filter and format of the log.
    pub log: LogChoice,
    /// `sqlite:PATH` or `postgres://…`.
    pub registry: String,
    /// Place of telemetry.
    pub telemetry: TelemetryPlace,
    /// True if a PostgreSQL is refused for telemetry that may lose what it has acknowledged.
    pub needs_syncs: bool,
    /// `[http]`
    pub http: Http,
    /// `[rate_limit]`
    pub rate_limit: RateLimits,
    /// `[registration]`
    pub registration: Registration,
    /// `[mail]`
    pub mail: Mail,
    /// `[outgoing] allow`
    pub outgoing_allow: Vec<String>,
    /// `[queue] max_events`
    pub queue_max_events: u32,
    /// `[backup]`
    pub backup: BackupSettings,
    /// `[observability]`; `None` if nothing is exported.
    pub otlp: Option<OtlpSettings>,
}

/// `stores.telemetry`
#[derive(Clone, PartialEq)]
pub enum TelemetryPlace {
    /// A folder of RocksDB.
    Folder(PathBuf),
    /// Addresses of PostgreSQL: one at least.
    Postgres(Vec<String>),
}

impl fmt::Debug for TelemetryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.fmt(f),
            // It may contain a password.
            Self::Postgres(_) => f.write_str("postgres"),
        }
    }
}

/// `[http]`
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Threads that serve requests: at least one.
    pub threads: usize,
    /// Origins whose pages may call the API.
    pub cors_origins: Vec<String>,
    /// Largest body, in bytes.
    pub max_body_bytes: usize,
    /// Most connections, if the limit of open files allows them.
    pub max_connections: usize,
    /// Proxies whose headers about clients are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Certificate files of HTTPS; `None` for HTTP.
    pub tls: Option<CertificateFiles>,
    /// Certificates by ACME; `None` for certificate files only.
    pub acme: Option<Acme>,
    /// Separate address for health and metrics.
    pub operations_listen: Option<SocketAddr>,
}

/// `[registration]`
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// True if anyone may register.
    pub open: bool,
    /// True if login requires a verified e-mail address.
    pub require_verified_email: bool,
}

/// `[mail]`
#[derive(Clone, PartialEq)]
pub struct Mail {
    /// The server; `None` to write e-mails as files.
    pub smtp_url: Option<String>,
    /// The sender address.
    pub from: String,
    /// Most e-mails an hour per account and per tenant.
    pub bounds: LetterBounds,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Mail").field("from", &self.from).field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// Settings on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Settings file (TOML); `isobar config` prints one with all defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder that holds all state [default: ./data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Address and port to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Address by which clients reach this server [default: http:// and the address it listens on]
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Level of the log: error, warn, info, debug, trace, or targets with levels [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
}

/// The error of invalid settings, with all faults.
#[derive(Debug, thiserror::Error)]
pub struct BadSettings(pub Vec<Fault>);

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = if self.0.len() == 1 { "setting is" } else { "settings are" };
        write!(f, "{} {many} wrong:", self.0.len())?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

/// Settings, with the sources of those that are not at their default.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Names and sources of the given settings.
    pub given: Vec<(String, String)>,
    /// Given names that are not settings, and are ignored.
    pub warnings: Vec<Fault>,
    /// All settings, without secrets.
    pub shown: ShownSettings,
}

impl Loaded {
    /// Logs the warnings.
    pub fn warn(&self) {
        self.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }
}

/// Reads the settings of this process: flags, environment, file, defaults.
pub fn load(flags: &Flags) -> Result<Loaded, BadSettings> {
    load_from(flags, texts(std::env::vars_os()))
}

/// Converts the environment to texts. Invalid UTF-8 becomes replacement characters, which no setting accepts.
fn texts(variables: impl Iterator<Item = (OsString, OsString)>) -> impl Iterator<Item = (String, String)> {
    variables.map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// Reads the settings of a command that works on an existing data folder, and starts logging.
pub fn of_a_platform(flags: &Flags) -> Result<Settings, Failure> {
    let settings = load(flags)?.settings;
    logging::start(&settings.log);
    // A new folder would hide that the wrong one was named.
    if !DataFolder::is_there(&settings.data) {
        return Err(format!("{} is no data folder of isobar", settings.data.display()).into());
    }
    Ok(settings)
}

/// Reads the settings of a command that needs no data folder if both stores are in PostgreSQL, and starts logging.
pub fn of_a_platform_anywhere(flags: &Flags) -> Result<Settings, Failure> {
    let settings = load(flags)?.settings;
    if !settings.may_have_other_nodes() {
        return of_a_platform(flags);
    }
    logging::start(&settings.log);
    Ok(settings)
}

/// Reads the settings, with the environment passed in.
pub fn load_from(flags: &Flags, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, BadSettings> {
    let defaults: Table = DEFAULT_FILE.parse().map_err(|error: toml::de::Error| {
        BadSettings(vec![Fault { place: "config.default.toml".to_owned(), message: error.to_string() }])
    })?;
    let mut layers = Layers::over(&defaults);
    if let Some(path) = &flags.config {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(content) => layers.file(&name, &content),
            Err(error) => layers.fault(name, format!("cannot be read: {error}")),
        }
    }
    layers.environment(environment);
    layers.flag("listen", "--listen", flags.listen.clone());
    layers.flag("data", "--data", flags.data.clone());
    layers.flag("public_url", "--public-url", flags.public_url.clone());
    layers.flag("log", "--log", flags.log.clone());
    let settings = Settings::read(&mut layers);
    let shown = ShownSettings::of(&layers);
    let given = layers.places().map(|(name, place)| (name.to_owned(), place.to_owned())).collect();
    match (settings, layers.end()) {
        (Some(settings), (faults, warnings)) if faults.is_empty() => Ok(Loaded { settings, given, warnings, shown }),
        (_, (faults, _)) => Err(BadSettings(faults)),
    }
}

impl Settings {
    /// Returns the registry's file, if it is SQLite's.
    pub fn sqlite_file(&self) -> Option<PathBuf> {
        let path = self.registry.strip_prefix("sqlite:")?;
        Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))
    }

    /// Returns true if other processes may serve the same platform: both stores are in PostgreSQL.
    pub fn may_have_other_nodes(&self) -> bool {
        self.sqlite_file().is_none() && matches!(self.telemetry, TelemetryPlace::Postgres(_))
    }

    /// Returns the folder of telemetry.
    ///
    /// # Errors
    /// Telemetry is in PostgreSQL.
    pub fn telemetry_folder(&self) -> Result<&Path, crate::Failure> {
        match &self.telemetry {
            TelemetryPlace::Folder(folder) => Ok(folder),
            TelemetryPlace::Postgres(_) => Err("telemetry is in PostgreSQL, and its tools do this there: \
                                                pg_dump, pg_restore, pg_amcheck"
                .into()),
        }
    }

    /// Reads all settings and collects every fault; `None` only together with a fault.
    fn read(layers: &mut Layers) -> Option<Self> {
        let listen = layers.parsed("listen", socket_address);
        let data = layers.parsed("data", |text| match text {
            "" => Err("must be the path of a folder".to_owned()),
            path => Ok(PathBuf::from(path)),
        });
        let log = layers.parsed("log", LogChoice::read);
        let public_url = layers.parsed("public_url", public_url);
        let registry = layers.parsed("stores.registry", registry);
        let telemetry = layers.texts("stores.telemetry", &POSTGRES_SCHEMES, telemetry);
        if let (Some(Some(TelemetryPlace::Postgres(databases))), Some(registry)) = (&telemetry, &registry)
            && databases.len() > 1
            && !registry.as_ref().is_some_and(|registry| is_postgres(registry))
        {
            layers.fault_of(
                "stores.telemetry",
                "lists several databases, and for that stores.registry has to be in PostgreSQL too",
            );
        }
        let needs_syncs = layers.switch("stores.needs_syncs");
        let http = Http::read(layers);
        let mut limit = |name| layers.number(name, 0, u32::MAX);
        let rate_limit = RateLimits {
            user: limit("rate_limit.user"),
            device: limit("rate_limit.device"),
            address: limit("rate_limit.address"),
        };
        let registration = Registration::read(layers);
        let mail = Mail::read(layers);
        let outgoing_allow = layers.list("outgoing.allow", allowed_target);
        let queue_max_events = layers.number("queue.max_events", 1, QUEUE_EVENTS_MAX);
        let backup = BackupSettings::read(layers);
        let otlp = OtlpSettings::read(layers);
        let (listen, data) = (listen?, data?);
        Some(Self {
            public_url: public_url?,
            registry: registry?.unwrap_or_else(|| format!("sqlite:{}", data.join("registry.db").display())),
            telemetry: telemetry?.unwrap_or_else(|| TelemetryPlace::Folder(data.join("telemetry"))),
            needs_syncs,
            log: log?,
            listen,
            data,
            http,
            rate_limit,
            registration,
            mail,
            outgoing_allow,
            queue_max_events,
            backup,
            otlp,
        })
    }
}

impl Http {
    fn read(layers: &mut Layers) -> Self {
        let threads = match layers.number("http.threads", 0, THREADS_MAX) {
            0 => default_threads(),
            threads => threads as usize,
        };
        let cors_origins = layers.list("http.cors_origins", |origin| match origin_of(origin) {
            Some(plain) if plain == origin => Ok(()),
            None if origin == "*" => Ok(()),
            _ => Err(format!("{origin:?} is no origin like https://app.example.com")),
        });
        let max_body_bytes = layers.number("http.max_body_bytes", BODY_BYTES_MIN, BODY_BYTES_MAX) as usize;
        let max_connections =
            layers.number("http.max_connections", CONNECTIONS_SETTING_MIN, CONNECTIONS_SETTING_MAX) as usize;
        let trusted_proxies = layers.list_of("http.trusted_proxies", |text| {
            text.parse::<Network>().map_err(|error| format!("{text:?} {error}"))
        });
        let tls = certificate_files(layers);
        let acme = Acme::read(layers, tls.is_some());
        let operations_listen = layers.parsed("http.operations_listen", |text| match text {
            "" => Ok(None),
            address => socket_address(address).map(Some),
        });
        Self {
            threads,
            cors_origins,
            max_body_bytes,
            max_connections,
            trusted_proxies,
            tls,
            acme,
            operations_listen: operations_listen.flatten(),
        }
    }
}

impl Registration {
    fn read(layers: &mut Layers) -> Self {
        let open = layers.parsed("registration.mode", |mode| match mode {
            "open" => Ok(true),
            "closed" => Ok(false),
            other => Err(format!("must be \"open\" or \"closed\", not {other:?}")),
        });
        // With an invalid mode nothing starts; closed is the safe default all the same.
        Self {
            open: open.unwrap_or(false),
            require_verified_email: layers.switch("registration.require_verified_email"),
        }
    }
}

impl Mail {
    fn read(layers: &mut Layers) -> Self {
        let smtp_url = layers.parsed("mail.smtp_url", |text| match text {
            "" => Ok(None),
            url => mail::check_server(url).map(|()| Some(url.to_owned())).map_err(|error| error.to_string()),
        });
        let from = layers.text("mail.from");
        if let Err(error) = mail::sender(&from) {
            layers.fault_of("mail.from", error.to_string());
        }
        let bounds = LetterBounds {
            account_hour: layers.number("mail.account_hour", 1, LETTERS_MAX),
            tenant_hour: layers.number("mail.tenant_hour", 1, LETTERS_MAX),
        };
        Self { smtp_url: smtp_url.flatten(), from, bounds }
    }
}

/// Reads the paths of certificate and key; one without the other is a fault.
fn certificate_files(layers: &mut Layers) -> Option<CertificateFiles> {
    let (certificate, key) = (layers.text("http.tls_certificate"), layers.text("http.tls_key"));
    match (certificate.as_str(), key.as_str()) {
        ("", "") => None,
        ("", _) => {
            layers.fault_of("http.tls_certificate", "is required beside http.tls_key".to_owned());
            None
        }
        (_, "") => {
            layers.fault_of("http.tls_key", "is required beside http.tls_certificate".to_owned());
            None
        }
        _ => Some(CertificateFiles { certificate: certificate.into(), key: key.into() }),
    }
}

/// Returns one less than the number of processors, as the stores have threads of their own.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get).saturating_sub(1).max(1)
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("must be an address and a port like 127.0.0.1:8080, not {text:?}"))
}

fn public_url(text: &str) -> Result<Option<String>, String> {
    let plain = text.trim_end_matches('/');
    match origin_of(plain) {
        _ if text.is_empty() => Ok(None),
        Some(_) => Ok(Some(plain.to_owned())),
        None => Err(format!("must be an address like https://iot.example.com, not {text:?}")),
    }
}

/// Returns `scheme://host[:port]` of an http URL.
fn origin_of(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let sound = matches!(scheme, "http" | "https") && !authority.is_empty() && !authority.contains(['@', ' ']);
    sound.then(|| &url[..scheme.len() + 3 + authority.len()])
}

fn registry(text: &str) -> Result<Option<String>, String> {
    let is_file = text.strip_prefix("sqlite:").is_some_and(|path| !path.is_empty());
    match text {
        "" => Ok(None),
        _ if is_file || text.starts_with("postgres://") || text.starts_with("postgresql://") => {
            Ok(Some(text.to_owned()))
        }
        _ => Err("must be sqlite:PATH or postgres://…".to_owned()),
    }
}

fn is_postgres(text: &str) -> bool {
    POSTGRES_SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

fn telemetry(texts: &[&str]) -> Result<Option<TelemetryPlace>, String> {
    let text = match texts {
        many if many.len() > DATABASES_MAX => return Err(format!("may list at most {DATABASES_MAX} databases")),
        some if !some.is_empty() && some.iter().all(|text| is_postgres(text)) => {
            return Ok(Some(TelemetryPlace::Postgres(some.iter().map(|text| (*text).to_owned()).collect())));
        }
        [text] => *text,
        _ => return Err("must be rocksdb:PATH, postgres://…, or a list of postgres://…".to_owned()),
    };
    match text.strip_prefix("rocksdb:") {
        _ if text.is_empty() => Ok(None),
        Some(path) if !path.is_empty() => Ok(Some(TelemetryPlace::Folder(Path::new(path).to_owned()))),
        _ => Err("must be rocksdb:PATH, postgres://…, or a list of postgres://…".to_owned()),
    }
}

fn allowed_target(text: &str) -> Result<(), String> {
    let (host, prefix) = text.split_once('/').map_or((text, None), |(host, prefix)| (host, Some(prefix)));
    let address = host.parse::<IpAddr>().ok();
    let is_network = |most: u8| prefix.is_none_or(|prefix| prefix.parse::<u8>().is_ok_and(|bits| bits <= most));
    let is_name = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    let sound = match address {
        Some(IpAddr::V4(_)) => is_network(32),
        Some(IpAddr::V6(_)) => is_network(128),
        None => is_name && prefix.is_none(),
    };
    sound
        .then_some(())
        .ok_or_else(|| format!("{text:?} is neither an IP address, a network like 10.1.0.0/16, nor a host name"))
}
