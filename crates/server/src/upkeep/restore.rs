//! `isobar restore`: brings a backup back into an empty data folder.

use std::io::Read;
use std::path::{Path, PathBuf};

use isobar_store::registry::companions;
use isobar_store::telemetry::embedded::Embedded;

use super::backup::{MAIL, Mark, REGISTRY, TELEMETRY};
use super::{UpkeepReport, check, files};
use crate::backups::archive::{Unpacking, decrypt};
use crate::backups::target::target;
use crate::config::{self, Flags, Place, Settings};
use crate::folder::{DataFolder, LOCK_FILE};
use crate::serve::MAIL_FOLDER;
use crate::stores::{Stores, is_telemetry, telemetry_options};
use crate::{Failure, logging, runtime};

/// Names that an empty data folder may contain: the lock file, and what file systems create.
const MAY_BE_THERE: [&str; 2] = [LOCK_FILE, "lost+found"];

/// Stands for standard input in place of a file.
const STANDARD_INPUT: &str = "-";

/// Runs `isobar restore BACKUP`: from a folder, an archive in a file or a bucket, or standard input.
pub fn restore(flags: &Flags, from: &str, identity: Option<&Path>) -> Result<UpkeepReport, Failure> {
    let settings = config::load(flags)?.settings;
    logging::start(&settings.log);
    if from == STANDARD_INPUT {
        // The restore is useless once the writing process is killed.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        return archive(&settings, std::io::stdin().lock(), identity, "the backup");
    }
    let place = Place::read(from)?;
    if let Place::Folder(folder) = &place
        && !folder.is_file()
    {
        let mark = Mark::read(folder)?;
        return into(&settings, &mark, |places| places.fill(folder));
    }
    let (place, name) = place.split().ok_or_else(|| format!("{from} names no backup"))?;
    // A relative path may have a single part.
    let place = if place == Place::Folder(PathBuf::new()) { Place::Folder(PathBuf::from(".")) } else { place };
    let target = target(&place, &settings.backup)?;
    archive(&settings, target.read(&name)?, identity, from)
}

/// Restores an archive from a stream.
fn archive(settings: &Settings, from: impl Read, identity: Option<&Path>, name: &str) -> Result<UpkeepReport, Failure> {
    let identity = identity.or(settings.backup.identity.as_deref());
    let mut archive = tar::Archive::new(decrypt(from, identity, name)?);
    let (mark, unpacking) = Unpacking::begin(&mut archive, name)?;
    into(settings, &mark, |places| {
        unpacking.fill(|path| places.of(path))?;
        match is_telemetry(&places.telemetry) {
            true => places.sync(),
            false => Err(format!("{name} holds no telemetry").into()),
        }
    })
}

/// Makes `fill` write a backup with this mark into the data folder, and checks the result.
fn into(
    settings: &Settings,
    mark: &Mark,
    fill: impl FnOnce(&Places) -> Result<(), Failure>,
) -> Result<UpkeepReport, Failure> {
    let places = Places::new(settings, mark)?;
    places.must_be_free(&settings.data)?;
    let folder = DataFolder::take(&settings.data)?;
    // Checked again under the lock, as another process may have been faster.
    places.must_be_free(&settings.data)?;
    let restored = fill(&places).and_then(|()| look(settings, mark));
    match restored {
        Ok(told) => {
            folder.stamp()?;
            let begun = format!("The backup of {} is restored into {}.\n", mark.at, settings.data.display());
            Ok(UpkeepReport { text: format!("{begun}{}", told.text), sound: told.sound })
        }
        Err(failure) => {
            places.clear();
            Err(failure)
        }
    }
}

/// Destinations of the parts of a backup.
struct Places {
    /// `None` if the registry is PostgreSQL's.
    registry: Option<PathBuf>,
    telemetry: PathBuf,
    mail: PathBuf,
}

impl Places {
    fn new(settings: &Settings, mark: &Mark) -> Result<Self, Failure> {
        let registry = settings.sqlite_file();
        match (&registry, mark.with_registry) {
            (None, true) => Err("the backup holds a registry of SQLite, but stores.registry names PostgreSQL")?,
            (Some(_), false) => {
                Err("the backup holds no registry: it was PostgreSQL's; give its address as stores.registry")?
            }
            _ => {}
        }
        Ok(Self { registry, telemetry: settings.telemetry_folder()?.to_owned(), mail: settings.data.join(MAIL_FOLDER) })
    }

    fn must_be_free(&self, data: &Path) -> Result<(), Failure> {
        let taken = |path: &Path| Err(format!("{} is not empty; a backup is restored beside nothing", path.display()));
        for folder in [data, self.telemetry.as_path()] {
            let Ok(mut entries) = std::fs::read_dir(folder) else { continue };
            if entries.any(|entry| entry.is_ok_and(|entry| !MAY_BE_THERE.iter().any(|name| entry.file_name() == *name)))
            {
                taken(folder)?;
            }
        }
        match &self.registry {
            // Leftovers beside the database would be taken for its log.
            Some(file) => match std::iter::once(file.clone()).chain(companions(file)).find(|file| file.exists()) {
                Some(there) => Err(format!("{} is there already", there.display()).into()),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Returns the destination of a file in an archive; `None` if it is not part of a backup.
    fn of(&self, path: &Path) -> Option<PathBuf> {
        if path == Path::new(REGISTRY) {
            return self.registry.clone();
        }
        let within = |part: &str, folder: &Path| path.strip_prefix(part).ok().map(|rest| folder.join(rest));
        within(TELEMETRY, &self.telemetry).or_else(|| within(MAIL, &self.mail))
    }

    fn fill(&self, from: &Path) -> Result<(), Failure> {
        if !is_telemetry(&from.join(TELEMETRY)) {
            return Err(format!("{} holds no telemetry", from.display()).into());
        }
        files::copy_folder(&from.join(TELEMETRY), &self.telemetry)?;
        if let Some(file) = &self.registry {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            }
            files::copy_file(&from.join(REGISTRY), file)?;
        }
        files::copy_folder(&from.join(MAIL), &self.mail)?;
        self.sync()
    }

    /// Waits until everything is durable.
    fn sync(&self) -> Result<(), Failure> {
        files::sync_folder(&self.telemetry)?;
        if let Some(file) = &self.registry {
            let synced = std::fs::File::open(file).and_then(|file| file.sync_all());
            synced.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        if self.mail.is_dir() {
            files::sync_folder(&self.mail)?;
        }
        Ok(())
    }

    /// Removes an incomplete restore.
    fn clear(&self) {
        for folder in [&self.telemetry, &self.mail] {
            files::clear(folder);
            // The folder is empty now; one that cannot be removed was empty before too.
            let _ = std::fs::remove_dir(folder);
        }
        let Some(file) = &self.registry else { return };
        for file in std::iter::once(file.clone()).chain(companions(file)) {
            // The file may be missing.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Opens both stores as they are, checks them, and reports the result.
fn look(settings: &Settings, mark: &Mark) -> Result<UpkeepReport, Failure> {
    if !mark.with_registry {
        let examined = Embedded::examine_folder(settings.telemetry_folder()?, &telemetry_options(settings))?;
        let sound = examined.faults.is_empty();
        let text = match examined.faults.first() {
            None => "Telemetry is sound. Restore PostgreSQL's dump that was made after this backup, then run isobar check.\n".to_owned(),
            Some(fault) => format!("Damage was found:\n  telemetry: {fault}\n"),
        };
        return Ok(UpkeepReport { text, sound });
    }
    runtime::start(1)?.block_on(async {
        let stores = Stores::open_as_they_are(settings).await?;
        let told = check::everything(&stores).await;
        stores.close().await?;
        told
    })
}
