//! A server of one's own, in this process, on stores in a folder that goes away with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isobar_http::{HttpSettings, Listeners};
use isobar_hub::{Config, Hub, Parts, RateLimits};
use isobar_model::chance::Chance;
use isobar_model::time::{Clock, Timestamp};
use isobar_outlets::mail::Mailer;
use isobar_store::registry::Registry;
use isobar_store::telemetry::postgres::PostgresOptions;
use isobar_store::telemetry::{Telemetry, Upkeep};
use metrics_exporter_prometheus::PrometheusHandle;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;

use super::contended::Contended;
use super::databases::TelemetryDatabases;
use super::postgres::{OwnDatabase, Raw};
use super::road::Road;
use super::{Answer, Person};

/// 2027-01-15T08:00:00.000Z: when every scene begins.
const BEGINNING: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The first administrator's password.
const ADMIN_PASSWORD: &str = "the-admin's-own";

/// Settings that a scene may change.
#[derive(Clone)]
pub struct TestSettings {
    pub hub: Config,
    pub http: HttpSettings,
    pub queue_max_events: u64,
    /// The server that takes e-mails; none: they become files.
    pub smtp_url: Option<String>,
    /// Share and seed of the commits that conflict with another process. `None` if there is no other.
    pub conflicts: Option<Conflicts>,
    /// Renders the page of /metrics; `None` if nothing is recorded.
    pub metrics: Option<PrometheusHandle>,
}

/// Commits that conflict.
#[derive(Clone, Copy)]
pub struct Conflicts {
    pub seed: u64,
    pub share: u64,
}

/// Percentage of commits that conflict if the environment asks for conflicts.
const CONFLICTS_SHARE: u64 = 30;

impl Conflicts {
    /// Returns what the environment's SCENES_CONFLICTS asks for, which is a seed.
    fn from_environment() -> Option<Self> {
        let seed = std::env::var("SCENES_CONFLICTS").ok()?;
        Some(Self { seed: seed.parse().unwrap(), share: CONFLICTS_SHARE })
    }
}

impl Default for TestSettings {
    fn default() -> Self {
        let unlimited = RateLimits { user: 0, device: 0, address: 0 };
        let hub = Config {
            rate_limit: unlimited,
            admin_password: Some(ADMIN_PASSWORD.to_owned()),
            // The address of external servers of scenes; all other addresses of the machine stay forbidden.
            outgoing_allow: vec!["127.0.0.1".to_owned()],
            ..Config::default()
        };
        Self {
            hub,
            http: HttpSettings::default(),
            queue_max_events: PostgresOptions::default().queue_max_events,
            smtp_url: None,
            conflicts: Conflicts::from_environment(),
            metrics: None,
        }
    }
}

impl TestSettings {
    fn mailer(&self, folder: &Path, clock: &Clock) -> Mailer {
        let from = "Isobar <isobar@localhost>";
        match &self.smtp_url {
            Some(url) => Mailer::smtp(url, from, clock.clone()).unwrap(),
            None => Mailer::files(&folder.join("mail"), from, clock.clone()).unwrap(),
        }
    }
}

/// A server that runs.
pub struct TestApp {
    pub clock: Clock,
    pub address: SocketAddr,
    client: reqwest::Client,
    settings: TestSettings,
    folder: TempDir,
    /// The database of the registry, if it is not in the folder.
    database: Option<Arc<OwnDatabase>>,
    /// The databases of telemetry, if it is not in the folder.
    telemetry: TelemetryDatabases,
    running: Running,
    /// An API key of the first administrator, made when it is needed.
    operator: OnceCell<String>,
}

struct Running {
    hub: Hub,
    registry: Registry,
    telemetry: Arc<dyn Upkeep>,
    contended: Option<Arc<Contended>>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl TestApp {
    /// Starts a server on SQLite.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server with other settings: on SQLite, or on PostgreSQL if the environment's SCENES_REGISTRY is
    /// `postgres`; with telemetry in a folder, or in PostgreSQL if SCENES_TELEMETRY is.
    pub async fn with(change: impl FnOnce(&mut TestSettings)) -> Self {
        let mut settings = TestSettings::default();
        change(&mut settings);
        let on_postgres = std::env::var("SCENES_REGISTRY").is_ok_and(|registry| registry == "postgres");
        let database = if on_postgres { Some(own_database().await) } else { None };
        Self::open(settings, database).await
    }

    /// Starts a server on a PostgreSQL database of its own.
    pub async fn on_postgres() -> Self {
        let database = own_database().await;
        Self::open(TestSettings::default(), Some(database)).await
    }

    /// Starts a server with other settings on a PostgreSQL database of its own, and returns the road to it.
    pub async fn on_far_postgres(change: impl FnOnce(&mut TestSettings)) -> (Self, Road) {
        let mut settings = TestSettings::default();
        change(&mut settings);
        let mut database = own_database().await;
        let (road, address) = Road::to(&database.address).await;
        database.address = address;
        (Self::open(settings, Some(database)).await, road)
    }

    /// Starts a server whose telemetry is spread over two databases, and returns the roads to them.
    pub async fn on_two_far_databases() -> (Self, [Road; 2]) {
        let (telemetry, roads) = TelemetryDatabases::two_far_ones().await;
        let registry = Some(Arc::new(own_database().await));
        (Self::open_on(TestSettings::default(), (registry, telemetry), Clock::manual_moments(BEGINNING)).await, roads)
    }

    /// Starts two servers over one registry and one telemetry store, both in PostgreSQL, with one clock.
    pub async fn two_nodes() -> (Self, Self) {
        Self::two_nodes_with(|_| {}).await
    }

    /// Starts two servers as [`TestApp::two_nodes`] does, with other settings.
    pub async fn two_nodes_with(change: impl FnOnce(&mut TestSettings)) -> (Self, Self) {
        let mut settings = TestSettings::default();
        settings.hub.has_other_nodes = true;
        change(&mut settings);
        let databases = (Some(Arc::new(own_database().await)), TelemetryDatabases::of_nodes().await);
        let first = Self::open_on(settings, databases, Clock::manual_moments(BEGINNING)).await;
        let second = first.another_node().await;
        (first, second)
    }

    /// Starts another server over the stores of this one, with its clock and settings.
    pub async fn another_node(&self) -> Self {
        self.another_node_by(self.clock.clone()).await
    }

    /// Starts another server over the stores of this one, with a clock of its own that shows the same moment.
    pub async fn another_node_with_a_clock(&self) -> Self {
        self.another_node_by(Clock::manual(self.clock.now())).await
    }

    async fn another_node_by(&self, clock: Clock) -> Self {
        let databases = (self.database.clone(), self.telemetry.clone());
        Self::open_on(self.settings.clone(), databases, clock).await
    }

    async fn open(settings: TestSettings, database: Option<OwnDatabase>) -> Self {
        let telemetry = TelemetryDatabases::of_environment(database.is_some()).await;
        Self::open_on(settings, (database.map(Arc::new), telemetry), Clock::manual_moments(BEGINNING)).await
    }

    async fn open_on(
        settings: TestSettings,
        (database, telemetry): (Option<Arc<OwnDatabase>>, TelemetryDatabases),
        clock: Clock,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (running, address) = run(&settings, &folder, (database.as_deref(), &telemetry), &clock).await;
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let operator = OnceCell::new();
        Self { clock, address, client, settings, folder, database, telemetry, running, operator }
    }

    /// Stops the server and starts it again on the same stores.
    pub async fn restart(mut self) -> Self {
        halt(self.running).await;
        let databases = (self.database.as_deref(), &self.telemetry);
        (self.running, self.address) = run(&self.settings, &self.folder, databases, &self.clock).await;
        self
    }

    /// Restarts as [`TestApp::restart`] does; `meanwhile` works on the telemetry of the stopped server.
    pub async fn restart_after(mut self, meanwhile: impl AsyncFnOnce(&dyn Telemetry)) -> Self {
        halt(self.running).await;
        let telemetry = self.telemetry.open(&self.settings, self.folder.path(), None).await;
        meanwhile(&*telemetry).await;
        telemetry.close().await.unwrap();
        drop(telemetry);
        let databases = (self.database.as_deref(), &self.telemetry);
        (self.running, self.address) = run(&self.settings, &self.folder, databases, &self.clock).await;
        self
    }

    /// Restarts as [`TestApp::restart`] does; meanwhile an operator confirms the clock, however far it has moved.
    pub async fn restart_believing_the_clock(mut self) -> Self {
        halt(self.running).await;
        self.telemetry.believe(&self.settings, self.folder.path(), self.clock.now()).await;
        let databases = (self.database.as_deref(), &self.telemetry);
        (self.running, self.address) = run(&self.settings, &self.folder, databases, &self.clock).await;
        self
    }

    /// Stops the server and removes what it kept: the last one that shares a database removes it.
    pub async fn end(self) {
        halt(self.running).await;
        if let Some(database) = self.database.and_then(Arc::into_inner) {
            database.remove().await;
        }
        self.telemetry.remove().await;
    }

    /// Returns true if other servers may share the telemetry store.
    pub fn shares_telemetry(&self) -> bool {
        !self.telemetry.is_none()
    }

    /// Opens the telemetry store once more, as another server does.
    pub async fn opens_telemetry_elsewhere(&self) -> Arc<dyn Upkeep> {
        self.telemetry.open(&self.settings, self.folder.path(), None).await
    }

    /// Returns the folder in which e-mails become files.
    pub fn mail_folder(&self) -> PathBuf {
        self.folder.path().join("mail")
    }

    /// Advances the clock.
    pub fn wait_seconds(&self, seconds: i64) {
        self.clock.advance_seconds(seconds);
    }

    /// Returns the e-mails that were sent so far, each as its file.
    pub fn mails(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(self.folder.path().join("mail")) else { return Vec::new() };
        let paths = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "eml"));
        paths.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    /// Locks the registry for writing until the returned value is dropped. Reads are still possible.
    pub async fn holds_the_registry(&self) -> impl Sized + use<> {
        let file = format!("sqlite:{}", self.folder.path().join("registry.db").display());
        let (address, hold) = match &self.database {
            Some(database) => (&database.address, "BEGIN; LOCK TABLE devices IN EXCLUSIVE MODE"),
            None => (&file, "BEGIN IMMEDIATE"),
        };
        let holder = Raw::open(address).await;
        holder.run(hold).await.unwrap();
        holder
    }

    /// Locks the row of a device in a registry on PostgreSQL until the first returned value is dropped. The second asks the
    /// registry.
    pub async fn holds_device(&self, id: &str) -> [Raw; 2] {
        let address = &self.database.as_ref().unwrap().address;
        let (holder, registry) = (Raw::open(address).await, Raw::open(address).await);
        holder.run(&format!("BEGIN; SELECT FROM devices WHERE id = '{id}' FOR UPDATE")).await.unwrap();
        [holder, registry]
    }

    /// Opens the database of telemetry in which a device is.
    pub async fn telemetry_of(&self, id: &str) -> Raw {
        let registry = Raw::open(&self.database.as_ref().unwrap().address).await;
        let number = registry.number(&format!("SELECT key >> 48 FROM devices WHERE id = '{id}'")).await;
        self.telemetry.raw(number).await
    }

    /// Returns every row of the registry, if that is not a file of the data folder.
    pub async fn rows_elsewhere(&self) -> String {
        let Some(database) = &self.database else { return String::new() };
        let mut reader = PgConnection::connect(&database.address).await.unwrap();
        let rows = "SELECT schema_to_xml('public', true, false, '')::text";
        sqlx::query_scalar(rows).fetch_one(&mut reader).await.unwrap()
    }

    /// Returns the hub, for state that only operators can reach.
    pub fn hub(&self) -> &Hub {
        &self.running.hub
    }

    /// Returns the registry, for state that no operation shows yet.
    pub fn registry(&self) -> &Registry {
        &self.running.registry
    }

    /// Returns the telemetry store, for state that no operation reaches any more.
    pub fn telemetry(&self) -> &dyn Upkeep {
        &*self.running.telemetry
    }

    /// Returns the number of commits that have conflicted, each of which had its run repeated.
    pub fn conflicts(&self) -> u64 {
        self.running.contended.as_ref().map_or(0, |contended| contended.conflicts())
    }

    /// Returns the store whose commits conflict, if the scene has one.
    pub fn contended(&self) -> &Contended {
        self.running.contended.as_ref().unwrap()
    }

    /// Returns a request without credentials.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// Sends a request.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let request = request.build().unwrap();
        let question = format!("{} {}", request.method(), request.url());
        Answer::of(question, self.client.execute(request).await.unwrap()).await
    }

    /// Sends a GET without credentials.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends a POST without credentials.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(with_json(self.request(Method::POST, path), &body)).await
    }

    /// Registers a developer, who creates an organization.
    pub async fn developer(&self, name: &str) -> Person<'_> {
        self.founder(name, "developer").await
    }

    /// Registers a developer of another organization, who must not see anything.
    pub async fn stranger(&self, name: &str) -> Person<'_> {
        self.founder(name, "developer").await
    }

    /// Registers a user with a role, who creates an organization.
    pub async fn founder(&self, name: &str, role: &str) -> Person<'_> {
        let user = self.post("/v2/auth/register", new_user(name, role)).await.created();
        Person::known(self, user, password_of(name)).await
    }

    /// Returns the first administrator.
    pub async fn admin(&self) -> Person<'_> {
        let tokens = self.login("admin", ADMIN_PASSWORD).await.created();
        let jwt = tokens["jwtToken"].as_str().unwrap();
        let me = self.request(Method::GET, "/v2/auth/user").bearer_auth(jwt);
        let user = self.send(me).await.ok();
        Person::known(self, user, ADMIN_PASSWORD.to_owned()).await
    }

    /// Returns a request to queue a cloud event for a device, by a user with that right.
    pub async fn queueing(&self, device: &str, element: &str) -> reqwest::RequestBuilder {
        let key = self.operator.get_or_init(|| async { self.admin().await.makes_api_key("operator").await }).await;
        let path = format!("/v2/events/cloud?deviceId={device}&elementName={element}");
        self.request(Method::POST, &path).header("api_auth_token", key)
    }

    /// Logs in, or tries to.
    pub async fn login(&self, name: &str, password: &str) -> Answer {
        self.post("/v2/auth/login", json!({"usernameOrEmail": name, "password": password})).await
    }
}

/// Returns the body that registers or creates a user.
pub fn new_user(name: &str, role: &str) -> Value {
    json!({
        "username": name,
        "password": password_of(name),
        "passwordConfirmation": password_of(name),
        "firstName": name,
        "lastName": "Scene",
        "email": format!("{name}@example.com"),
        "company": format!("{name}'s company"),
        "role": role,
    })
}

/// Returns the password of the person with that name.
pub fn password_of(name: &str) -> String {
    format!("secret of {name}")
}

/// Adds a JSON body to a request.
pub fn with_json(request: reqwest::RequestBuilder, body: &Value) -> reqwest::RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

/// Makes a PostgreSQL database with the registry's schema: a copy of one that was migrated once for all scenes.
async fn own_database() -> OwnDatabase {
    OwnDatabase::with_schema(migrate).await
}

async fn migrate(address: &str) {
    Registry::open(address).await.unwrap().close().await.unwrap();
}

async fn run(
    settings: &TestSettings,
    folder: &TempDir,
    (database, telemetry): (Option<&OwnDatabase>, &TelemetryDatabases),
    clock: &Clock,
) -> (Running, SocketAddr) {
    let file = format!("sqlite:{}", folder.path().join("registry.db").display());
    let registry = Registry::open(database.map_or(&file, |database| &database.address)).await.unwrap();
    let telemetry = telemetry.open(settings, folder.path(), Some(&registry)).await;
    let contend =
        |Conflicts { seed, share }: Conflicts| Arc::new(Contended::new(Arc::clone(&telemetry) as _, seed, share));
    let contended = settings.conflicts.map(contend);
    let parts = Parts {
        registry: registry.clone(),
        telemetry: contended.clone().map_or_else(|| telemetry.clone() as _, |contended| contended as _),
        mailer: settings.mailer(folder.path(), clock),
        clock: clock.clone(),
        chance: Chance::from_system(),
        config: settings.hub.clone(),
    };
    let hub = Hub::start(parts).await.unwrap().hub;
    let public = isobar_http::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = public.local_addr().unwrap();
    let listeners = Listeners { public, tls: None, operations: None };
    // Never installed: every scene has a server of its own, but a process has one recorder.
    let unused = || isobar_http::prometheus().unwrap().build_recorder().handle();
    let metrics = settings.metrics.clone().unwrap_or_else(unused);
    let app = isobar_http::app(hub.clone(), settings.http.clone(), metrics);
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(async move {
        let told = async { stopped.await.unwrap_or_default() };
        isobar_http::serve(listeners, app, told).await.unwrap();
    });
    (Running { hub, registry, telemetry, contended, stop, served }, address)
}

async fn halt(running: Running) {
    let Running { hub, registry, telemetry, contended: _, stop, served } = running;
    let _ = stop.send(());
    served.await.unwrap();
    hub.stop().await;
    drop(hub);
    telemetry.close().await.unwrap();
    registry.close().await.unwrap();
}
