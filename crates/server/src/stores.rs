//! The stores, opened by the settings.

use std::path::Path;
use std::sync::Arc;

pub use isobar_model::quote::with_causes as whole;
use isobar_store::error::StoreError;
use isobar_store::registry::{Registry, companions};
use isobar_store::telemetry::embedded::{Embedded, Options};
use isobar_store::telemetry::postgres::PostgresOptions;
use isobar_store::telemetry::spread::SpreadTelemetry;
use isobar_store::telemetry::{LostDevices, NamedStore, NotedStore, Telemetry, Upkeep};

use crate::Failure;
use crate::config::{Settings, TelemetryPlace};
use crate::folder::make_lasting;
use crate::upkeep::files;

/// File that identifies a folder of RocksDB.
const TELEMETRY_MARK: &str = "CURRENT";

/// Both stores. Cloning shares them.
#[derive(Clone)]
pub struct Stores {
    pub registry: Registry,
    pub telemetry: TelemetryStore,
}

/// The telemetry store that the settings name. Cloning shares it.
#[derive(Clone)]
pub enum TelemetryStore {
    Embedded(Arc<Embedded>),
    Postgres(Arc<SpreadTelemetry>),
}

impl TelemetryStore {
    /// Returns the port to the store.
    pub fn port(&self) -> Arc<dyn Telemetry> {
        match self {
            Self::Embedded(store) => Arc::clone(store) as _,
            Self::Postgres(store) => Arc::clone(store) as _,
        }
    }

    /// Returns the stores, as the registry notes them.
    fn noted(&self, settings: &Settings) -> Vec<NotedStore> {
        match self {
            Self::Embedded(store) => {
                let place =
                    settings.telemetry_folder().map_or_else(|_| String::new(), |path| path.display().to_string());
                vec![NotedStore { number: 0, identity: store.identity(), place }]
            }
            Self::Postgres(store) => store.noted(),
        }
    }

    /// Returns the port for upkeep.
    pub fn upkeep(&self) -> &dyn Upkeep {
        match self {
            Self::Embedded(store) => &**store,
            Self::Postgres(store) => &**store,
        }
    }

    /// Returns the embedded store.
    ///
    /// # Errors
    /// Telemetry is in PostgreSQL.
    pub fn embedded(&self) -> Result<&Embedded, Failure> {
        match self {
            Self::Embedded(store) => Ok(store),
            Self::Postgres(_) => Err("telemetry is in PostgreSQL, and its tools do this there".into()),
        }
    }
}

impl Stores {
    /// Opens both stores for serving, creates missing ones and upgrades older ones. Makes sure that telemetry is the
    /// registry's, and that no device number known to telemetry is given out again.
    pub async fn open(settings: &Settings) -> Result<Self, Failure> {
        require_files(settings)?;
        // Before the registry, whose tables are made when it is opened.
        if let TelemetryPlace::Postgres(databases) = &settings.telemetry {
            SpreadTelemetry::must_be_fit(databases).await.map_err(no_telemetry)?;
        }
        let registry = Registry::open(&settings.registry).await.map_err(no_registry)?;
        let telemetry = open_telemetry(settings, &registry, !settings.may_have_other_nodes()).await?;
        let stores = Self { registry, telemetry };
        // Of two first starts with different telemetry, one is too late here.
        stores.registry.telemetry_stores_note(&stores.telemetry.noted(settings)).await.map_err(no_telemetry)?;
        stores.place_devices();
        stores.agree_on_numbers().await.map_err(|error| format!("the numbers of devices: {}", whole(&error)))?;
        Ok(stores)
    }

    /// Makes the registry place new devices in the databases of telemetry.
    fn place_devices(&self) {
        match &self.telemetry {
            TelemetryStore::Embedded(_) => {}
            TelemetryStore::Postgres(store) => {
                let spread = Arc::clone(store);
                let is_away = Arc::new(move |number| spread.is_away(number));
                self.registry.place_devices_in(&store.numbers(), Some(is_away));
            }
        }
    }

    /// Makes the registry continue after every device number in telemetry. If the registry is older than telemetry, the
    /// devices that it lost are recorded, and their data is unreachable until they are back.
    async fn agree_on_numbers(&self) -> Result<(), StoreError> {
        let (registry, telemetry) = (&self.registry, self.telemetry.upkeep());
        let mut back = Vec::new();
        for lost in telemetry.devices_lost().await? {
            if registry.has_device_within(lost.after, lost.up_to).await? {
                back.push(lost);
            }
        }
        telemetry.forget_lost_devices(back).await?;
        // Telemetry is read first: a device that another process makes between the two reads is not taken for a lost one.
        let known = telemetry.greatest_device().await?;
        let given = registry.device_number_given().await?;
        if given < known {
            tracing::error!(
                given = given.0,
                known = known.0,
                "the registry is older than telemetry: the devices with numbers above the one and up to the other are lost. \
                 Their numbers are not given out again; bring the newer registry back, or see isobar check"
            );
            // The record comes first, as the loss cannot be found afterwards.
            telemetry.note_lost_devices(LostDevices { after: given, up_to: known }).await?;
        }
        registry.device_numbers_raise(given.max(known)).await
    }

    /// Opens both stores without creating or changing anything.
    pub async fn open_as_they_are(settings: &Settings) -> Result<Self, Failure> {
        require_files(settings)?;
        let registry = Registry::open_as_it_is(&settings.registry).await.map_err(no_registry)?;
        if let TelemetryPlace::Folder(folder) = &settings.telemetry
            && !is_telemetry(folder)
        {
            return Err(format!("there is no telemetry store in {}", folder.display()).into());
        }
        let telemetry = open_telemetry(settings, &registry, true).await?;
        Ok(Self { registry, telemetry })
    }

    /// Closes both.
    pub async fn close(self) -> Result<(), Failure> {
        let telemetry = self.telemetry.port().close().await;
        self.registry.close().await?;
        Ok(telemetry?)
    }
}

/// Refuses anything but files and folders in the places of both stores, before a store waits for it.
pub fn require_files(settings: &Settings) -> Result<(), Failure> {
    if let Some(file) = settings.sqlite_file() {
        files::require_plain(&file)?;
        companions(&file).try_for_each(|file| files::require_plain(&file))?;
    }
    match &settings.telemetry {
        // A link to the folder may stand in its place.
        TelemetryPlace::Folder(folder) => files::require_plain(&folder.canonicalize().unwrap_or(folder.clone())),
        TelemetryPlace::Postgres(_) => Ok(()),
    }
}

/// Describes a registry that cannot be opened.
pub fn no_registry(error: StoreError) -> String {
    format!("the registry cannot be opened: {}", whole(&error))
}

/// Describes telemetry that cannot be opened.
fn no_telemetry(error: StoreError) -> String {
    format!("the telemetry store cannot be opened: {}", whole(&error))
}

/// Returns true if a folder holds a telemetry store.
pub fn is_telemetry(folder: &Path) -> bool {
    folder.join(TELEMETRY_MARK).is_file()
}

/// Returns the options of telemetry by the settings.
pub fn telemetry_options(settings: &Settings) -> Options {
    Options { queue_max_events: u64::from(settings.queue_max_events), ..Options::default() }
}

/// Opens telemetry, alone or with other processes: a folder on a blocking thread, as that replays the write-ahead log.
async fn open_telemetry(settings: &Settings, registry: &Registry, is_alone: bool) -> Result<TelemetryStore, Failure> {
    let known = registry.known_stores().await.map_err(no_registry)?;
    match &settings.telemetry {
        TelemetryPlace::Folder(path) => {
            must_have(&[0], &known.used)?;
            let named = |identity| NamedStore { place: path.display().to_string(), identity, number: Some(0) };
            if !is_telemetry(path) {
                known.must_fit(&[named(None)])?;
            }
            let store = open_folder(path, telemetry_options(settings)).await?;
            known.must_fit(&[named(Some(store.identity()))])?;
            Ok(TelemetryStore::Embedded(Arc::new(store)))
        }
        TelemetryPlace::Postgres(databases) => {
            let options = PostgresOptions {
                queue_max_events: u64::from(settings.queue_max_events),
                needs_syncs: settings.needs_syncs,
                is_alone,
                ..PostgresOptions::default()
            };
            let marks = Arc::new(registry.clone());
            let store = SpreadTelemetry::open(databases, options, &known, marks).await.map_err(no_telemetry)?;
            Ok(TelemetryStore::Postgres(Arc::new(store)))
        }
    }
}

/// Fails if devices are in databases that the settings do not name.
fn must_have(named: &[u16], used: &[u16]) -> Result<(), Failure> {
    let missing: Vec<String> = used.iter().filter(|number| !named.contains(number)).map(u16::to_string).collect();
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(format!(
            "the registry has devices in the telemetry databases with the numbers {}, which stores.telemetry does not name",
            missing.join(", ")
        )
        .into()),
    }
}

async fn open_folder(path: &Path, options: Options) -> Result<Embedded, Failure> {
    let folder = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        // The registry notes the store that is in it, and refuses a start without it: RocksDB does not sync its name.
        make_lasting(&folder).map_err(StoreError::unavailable)?;
        Embedded::open(&folder, options)
    });
    let told = |error| format!("the telemetry store {} cannot be opened: {}", path.display(), whole(&error));
    Ok(opened.await?.map_err(told)?)
}
