//! Sets up a hub for a test, on stores in a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_model::access::{Caller, Lineage};
use isobar_model::alarm::AlarmCounts;
use isobar_model::chance::Chance;
use isobar_model::check::Faults;
use isobar_model::device::{Device, DeviceInput};
use isobar_model::ids::{DeviceId, DeviceKey, OrganizationId, ProjectId};
use isobar_model::json::parse;
use isobar_model::organization::OrganizationInput;
use isobar_model::project::{ProjectInput, SpecificationInput, empty_object};
use isobar_model::status::Status;
use isobar_model::time::{Clock, Timestamp};
use isobar_outlets::mail::Mailer;
pub(crate) use isobar_power::becomes as until;
use isobar_store::registry::{DeliveryKind, Registry};
use isobar_store::telemetry::Telemetry as _;
use isobar_store::telemetry::embedded::{Embedded, Options};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqlitePool;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cache::entries::DeviceEntry;
use crate::{Config, Hub, Parts, Principal, RateLimits};

/// The time at which every stage begins.
const BEGINNING: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A hub on stores of its own, with its first administrator.
pub(crate) struct Stage {
    pub hub: Hub,
    pub clock: Clock,
    pub admin: Arc<Caller>,
    telemetry: Arc<Embedded>,
    folder: TempDir,
}

impl Stage {
    /// Sets up a hub whose workers are not running yet.
    pub async fn set() -> Self {
        Self::open(tempfile::tempdir().unwrap(), Clock::manual_moments(BEGINNING)).await
    }

    /// Stops the hub, and starts another one on the same stores.
    pub async fn restarts(self) -> Self {
        self.restarts_after(|_| ()).await
    }

    /// Stops the hub, changes its stores, and starts another one on them.
    pub async fn restarts_after(self, change: impl FnOnce(&StoreFiles)) -> Self {
        let Self { hub, clock, telemetry, folder, .. } = self;
        hub.stop().await;
        telemetry.close().await.unwrap();
        hub.0.env.registry().close().await.unwrap();
        drop((hub, telemetry));
        change(&StoreFiles(folder.path().to_owned()));
        Self::open(folder, clock).await
    }

    async fn open(folder: TempDir, clock: Clock) -> Self {
        let registry = Registry::open(&registry_of(&folder)).await.unwrap();
        let options = Options { cache_bytes: 4 << 20, memtable_bytes: 8 << 20, ..Options::default() };
        let telemetry = Arc::new(Embedded::open(&folder.path().join("telemetry"), options).unwrap());
        let from = "Isobar <isobar@localhost>";
        let parts = Parts {
            registry,
            telemetry: telemetry.clone(),
            mailer: Mailer::files(&folder.path().join("mail"), from, clock.clone()).unwrap(),
            clock: clock.clone(),
            chance: Chance::from_system(),
            config: Config {
                rate_limit: RateLimits { user: 0, device: 0, address: 0 },
                admin_password: Some("the-admin's-own".to_owned()),
                outgoing_allow: vec!["127.0.0.1".to_owned()],
                ..Config::default()
            },
        };
        let hub = Hub::made_of(parts).await.unwrap();
        hub.found_first_administrator().await.unwrap();
        hub.0.delivery.take_up_left_work().await.unwrap();
        hub.0.usage.usage_begins().await.unwrap();
        let user = hub.0.env.registry().login_by_name("admin").await.unwrap().unwrap().user;
        let admin = Arc::clone(&hub.0.caches.account_entry(user).await.unwrap().unwrap().caller);
        Self { hub, clock, admin, telemetry, folder }
    }

    /// Creates a device of a project with this design (`planes.cloud`).
    pub async fn device(&self, design: &str) -> Device {
        self.device_of(self.admin.organization(), design).await
    }

    /// Creates such a device in a tenant of its own.
    pub async fn device_of_another_tenant(&self, design: &str) -> Device {
        let input = OrganizationInput::read(&parse(r#"{"name":"another","parentId":null}"#).unwrap()).unwrap();
        let organization = self.hub.organization_create(&self.admin, input).await.unwrap();
        self.device_of(organization.id, design).await
    }

    async fn device_of(&self, organization: OrganizationId, design: &str) -> Device {
        let input = ProjectInput { name: "p".to_owned(), organization: Some(organization) };
        let project = self.hub.project_create(&self.admin, input).await.unwrap();
        let text = format!(r#"{{"name":"p","planes":{{"cloud":{{"elements":{design}}}}}}}"#);
        let (specification, faults): (_, Faults) = SpecificationInput::read(&parse(&text).unwrap()).unwrap();
        self.hub.specification_write(&self.admin, project.id, (specification, faults), None).await.unwrap();
        let body = format!(r#"{{"name":"d","projectUuid":"{}","organizationId":"{organization}"}}"#, project.id);
        self.another(&body).await
    }

    /// Creates a device from a body.
    pub async fn another(&self, body: &str) -> Device {
        let input = DeviceInput::read(&parse(body).unwrap()).unwrap();
        self.hub.device_create(&self.admin, input).await.unwrap().0
    }

    /// Posts to the device's element `reading`; the event is durable when this returns.
    pub async fn posts(&self, device: &Device, payload: &'static str) {
        let caller = Principal::User(Arc::clone(&self.admin));
        let id = device.id.to_string();
        let body = payload.as_bytes().into();
        let accepted = self.hub.0.ingest.event_accept(&caller, Some(&id), Some("reading"), body, None).await;
        accepted.unwrap().durable().await.unwrap();
    }

    /// Returns the entry that the device's runs use.
    pub async fn entry(&self, device: &Device) -> Arc<DeviceEntry> {
        self.hub.0.caches.device_entry(device.id).await.unwrap().unwrap()
    }

    /// Returns the device as a caller sees it.
    pub async fn shows(&self, device: &Device) -> Device {
        let caller = Principal::User(Arc::clone(&self.admin));
        self.hub.device_fetch(&caller, device.id, crate::LastChoice::None).await.unwrap().device
    }

    /// Returns the newest value of a storage element, as text.
    pub async fn stored(&self, device: &Device, element: &str) -> Option<String> {
        let entry = self.entry(device).await;
        let permit = isobar_model::access::system(entry.device, "a test looks at what is stored").reading();
        let last = self.hub.0.env.telemetry().last(&permit, element).await.unwrap()?;
        Some(last.values.text().to_owned())
    }

    /// Returns the number of sent e-mails.
    pub fn mails(&self) -> usize {
        let files = std::fs::read_dir(self.folder.path().join("mail")).into_iter().flatten();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|it| it == "eml")).count()
    }

    /// Returns the number of pending deliveries of a kind, due or not.
    pub async fn waiting(&self, kind: DeliveryKind) -> usize {
        self.due(kind, Timestamp::from_millis(i64::MAX / 2)).await
    }

    /// Returns true if deliveries of a kind are pending, but none is due.
    pub async fn is_put_off(&self, kind: DeliveryKind) -> bool {
        self.due(kind, self.clock.now()).await == 0 && self.waiting(kind).await > 0
    }

    /// Returns the number of deliveries of a kind that are due at a time, or wait for their destination.
    async fn due(&self, kind: DeliveryKind, moment: Timestamp) -> usize {
        let registry = self.hub.0.env.registry();
        let mut count = registry.deliveries_without_destination(kind, 100).await.unwrap().len();
        for destination in registry.delivery_destinations(kind, "", 100).await.unwrap() {
            count += registry.deliveries_to(kind, &destination.name, moment, 100).await.unwrap().len();
        }
        count
    }

    /// Opens the registry's file, to be corrupted by a test.
    pub async fn sql(&self) -> SqlitePool {
        SqlitePool::connect(&registry_of(&self.folder)).await.unwrap()
    }

    /// Makes the registry refuse every `event` on this table from now on.
    pub async fn refuses(&self, event: &str, table: &str) {
        let trigger = format!("CREATE TRIGGER no BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END");
        sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&self.sql().await).await.unwrap();
    }

    /// Makes the registry accept it again.
    pub async fn takes_again(&self) {
        sqlx::raw_sql("DROP TRIGGER no").execute(&self.sql().await).await.unwrap();
    }

    /// Stops the hub; the stores stay open.
    pub async fn ends(&self) {
        self.hub.stop().await;
    }

    /// Stops the hub and closes the stores.
    pub async fn over(self) {
        let Self { hub, telemetry, .. } = self;
        hub.stop().await;
        telemetry.close().await.unwrap();
        hub.0.env.registry().close().await.unwrap();
    }
}

/// The files of a stage's stores, while no hub uses them.
pub(crate) struct StoreFiles(PathBuf);

impl StoreFiles {
    /// Keeps a copy of a store as it is: `registry` or `telemetry`.
    pub fn keep(&self, store: &str) {
        self.copy(store, &self.0, &self.0.join("kept"));
    }

    /// Sets a store back to the copy that was kept.
    pub fn restore(&self, store: &str) {
        self.copy(store, &self.0.join("kept"), &self.0);
    }

    fn copy(&self, store: &str, from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        let of_store = |folder: &Path| {
            let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(store)).collect::<Vec<_>>()
        };
        for old in of_store(to) {
            let removed = if old.is_dir() { std::fs::remove_dir_all(&old) } else { std::fs::remove_file(&old) };
            removed.unwrap();
        }
        for file in of_store(from) {
            let target = to.join(file.file_name().unwrap());
            match file.is_dir() {
                true => {
                    std::fs::create_dir(&target).unwrap();
                    for inner in std::fs::read_dir(&file).unwrap() {
                        let inner = inner.unwrap();
                        std::fs::copy(inner.path(), target.join(inner.file_name())).unwrap();
                    }
                }
                false => drop(std::fs::copy(&file, &target).unwrap()),
            }
        }
    }
}

/// Returns a device with blank fields.
pub(crate) fn blank_device() -> Device {
    let (nobody, begun) = (uuid::Uuid::nil(), Timestamp::from_millis(0));
    let organization = OrganizationId(uuid::Uuid::from_u128(1));
    Device {
        id: DeviceId(nobody),
        key: DeviceKey(0),
        name: String::new(),
        organization,
        lineage: Lineage::new([], organization),
        organization_name: String::new(),
        project: ProjectId(nobody),
        version: None,
        protocol: None,
        protocols: Vec::new(),
        meta: empty_object(),
        description: None,
        street_address: None,
        location: None,
        status: Status::None,
        status_before: Status::None,
        created_by: None,
        created_at: begun,
        updated_at: begun,
        last_active: None,
        alarms: AlarmCounts::default(),
    }
}

fn registry_of(folder: &TempDir) -> String {
    format!("sqlite:{}", folder.path().join("registry.db").display())
}

/// Starts a server that answers every call with 200; returns its port.
pub(crate) async fn answering_server() -> u16 {
    counting_server().await.0
}

/// Starts such a server; returns its port and its number of calls.
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
pub(crate) async fn counting_server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
        }
    });
    (port, count)
}
