//! A backup becomes the state of a platform again, on a data folder that holds none.

use std::path::{Path, PathBuf};

use isobar_store::registry::companions;

use super::backup::{MAIL, Mark, REGISTRY, TELEMETRY};
use super::{UpkeepReport, check, files};
use crate::config::{self, Flags, Settings};
use crate::folder::{DataFolder, LOCK_FILE};
use crate::serve::MAIL_FOLDER;
use crate::stores::{Stores, is_telemetry};
use crate::{Failure, logging, runtime};

/// What may lie in an empty data folder: our own lock, and what file systems put into theirs.
const MAY_BE_THERE: [&str; 2] = [LOCK_FILE, "lost+found"];

/// `isobar restore DIR`
pub fn restore(flags: &Flags, from: &Path) -> Result<UpkeepReport, Failure> {
    let settings = config::load(flags)?.settings;
    logging::start(&settings.log);
    let mark = Mark::read(from)?;
    let places = Places::of(&settings, &mark)?;
    places.must_be_free(&settings.data)?;
    let folder = DataFolder::take(&settings.data)?;
    // Once more: another process may have been faster.
    places.must_be_free(&settings.data)?;
    let restored = places.fill(from).and_then(|()| look(&settings, &mark));
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

/// Where the parts of a backup go.
struct Places {
    /// None: the registry is PostgreSQL's.
    registry: Option<PathBuf>,
    telemetry: PathBuf,
    mail: PathBuf,
}

impl Places {
    fn of(settings: &Settings, mark: &Mark) -> Result<Self, Failure> {
        let registry = settings.sqlite_file();
        match (&registry, mark.with_registry) {
            (None, true) => Err("the backup holds a registry of SQLite, but stores.registry names PostgreSQL")?,
            (Some(_), false) => {
                Err("the backup holds no registry: it was PostgreSQL's; give its address as stores.registry")?
            }
            _ => {}
        }
        Ok(Self { registry, telemetry: settings.telemetry.clone(), mail: settings.data.join(MAIL_FOLDER) })
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
            // What lies beside another registry would be taken for this one's.
            Some(file) => match std::iter::once(file.clone()).chain(companions(file)).find(|file| file.exists()) {
                Some(there) => Err(format!("{} is there already", there.display()).into()),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn fill(&self, from: &Path) -> Result<(), Failure> {
        if !is_telemetry(&from.join(TELEMETRY)) {
            return Err(format!("{} holds no telemetry", from.display()).into());
        }
        files::copy_folder(&from.join(TELEMETRY), &self.telemetry)?;
        files::sync_folder(&self.telemetry)?;
        if let Some(file) = &self.registry {
            let told = |error| format!("{}: {error}", file.display());
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).map_err(told)?;
            }
            files::copy_file(&from.join(REGISTRY), file)?;
            std::fs::File::open(file).and_then(|file| file.sync_all()).map_err(told)?;
        }
        files::copy_folder(&from.join(MAIL), &self.mail)?;
        if self.mail.is_dir() {
            files::sync_folder(&self.mail)?;
        }
        Ok(())
    }

    /// Removes what was begun.
    fn clear(&self) {
        for folder in [&self.telemetry, &self.mail] {
            files::clear(folder);
            // Empty now; if it was somebody else's before, and cannot go, it was empty then too.
            let _ = std::fs::remove_dir(folder);
        }
        let Some(file) = &self.registry else { return };
        for file in std::iter::once(file.clone()).chain(companions(file)) {
            // It may not be there; then it need not go.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Both stores open, or they are of a newer version; and they say what they hold.
fn look(settings: &Settings, mark: &Mark) -> Result<UpkeepReport, Failure> {
    if !mark.with_registry {
        let text = "Restore PostgreSQL's dump that was made after this backup, then run isobar check.\n";
        return Ok(UpkeepReport { text: text.to_owned(), sound: true });
    }
    runtime::start(1)?.block_on(async {
        let stores = Stores::open_as_they_are(settings).await?;
        let told = check::everything(&stores).await;
        stores.close().await?;
        told
    })
}
