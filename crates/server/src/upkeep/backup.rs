//! A consistent copy of all state, with or without a running platform.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use isobar_model::quote::quote;
use isobar_model::time::Clock;
use serde_json::{Value, json};

use super::{UpkeepReport, files};
use crate::Failure;
use crate::config::Settings;
use crate::folder::{LAYOUT_VERSION, write_whole};
use crate::serve::MAIL_FOLDER;
use crate::stores::Stores;

/// Names of the parts in a backup.
pub const REGISTRY: &str = "registry.db";
pub const TELEMETRY: &str = "telemetry";
pub const MAIL: &str = "mail";
/// The mark, written last: a folder without it is not a complete backup.
pub const MARK: &str = "BACKUP";
/// Largest mark that is read, in bytes: it has a few lines.
pub const MARK_BYTES_MAX: u64 = 65_536;

/// The mark of a backup.
#[derive(Clone, Debug)]
pub struct Mark {
    /// True if it holds the registry; otherwise that is PostgreSQL's.
    pub with_registry: bool,
    /// Time at which it was finished.
    pub at: String,
}

impl Mark {
    /// Reads the mark; fails if the backup is incomplete or too new for this program.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let name = folder.display();
        let mut text = String::new();
        files::open_file(&folder.join(MARK))
            .and_then(|mark| Ok(mark.take(MARK_BYTES_MAX).read_to_string(&mut text)?))
            .map_err(|error| format!("{name} is no backup, or one that was not finished ({MARK}: {error})"))?;
        Self::parse(&text, &name.to_string())
    }

    /// Parses the mark of the backup with this name.
    pub fn parse(text: &str, name: &str) -> Result<Self, Failure> {
        let mark: Value = serde_json::from_str(text).map_err(|error| format!("{name}/{MARK} is damaged: {error}"))?;
        let layout = mark["layout"].as_u64().ok_or_else(|| format!("{name}/{MARK} is damaged: it has no layout"))?;
        if layout > u64::from(LAYOUT_VERSION) {
            return Err(format!(
                "{name} was made by isobar {} (layout {layout}; this one knows {LAYOUT_VERSION}); restore it with that version",
                quote(mark["version"].as_str().unwrap_or("of a newer version"))
            )
            .into());
        }
        Ok(Self {
            with_registry: mark["registry"] == "sqlite",
            at: quote(mark["at"].as_str().unwrap_or("an unknown moment")),
        })
    }

    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let registry = if self.with_registry { "sqlite" } else { "postgres" };
        let version = env!("CARGO_PKG_VERSION");
        let mark = json!({"layout": LAYOUT_VERSION, "version": version, "registry": registry, "at": self.at});
        write_whole(&folder.join(MARK), &format!("{mark:#}\n"))?;
        Ok(())
    }
}

/// Copies all state into a folder, which is created or must be empty.
pub async fn into_folder(settings: &Settings, stores: &Stores, to: &Path) -> Result<UpkeepReport, Failure> {
    let telemetry = stores.telemetry.embedded()?;
    let unfinished = Unfinished::begin(to)?;
    // Telemetry before the registry: see the module above.
    let copied = telemetry.backup(&to.join(TELEMETRY)).await;
    copied.map_err(|error| format!("telemetry cannot be copied: {}", crate::stores::whole(&error)))?;
    let with_registry = stores.registry.backup(&to.join(REGISTRY)).await;
    let with_registry =
        with_registry.map_err(|error| format!("the registry cannot be copied: {}", crate::stores::whole(&error)))?;
    let (mail, folder) = (settings.data.join(MAIL_FOLDER), to.to_owned());
    let mark = Mark { with_registry, at: Clock::System.now().to_string() };
    let bytes = tokio::task::spawn_blocking(move || -> Result<u64, Failure> {
        // An operator may have moved the folder itself elsewhere.
        files::copy_folder(&mail.canonicalize().unwrap_or(mail), &folder.join(MAIL))?;
        let bytes = files::sync_folder(&folder)?;
        mark.write(&folder)?;
        Ok(bytes)
    });
    let bytes = bytes.await??;
    unfinished.finish();
    let mut text = format!("The backup is in {} ({:.1} MB).\n", to.display(), bytes as f64 / 1e6);
    if !with_registry {
        text.push_str(
            "The registry is not in it: it is PostgreSQL's. Dump it now, with pg_dump; a dump from before this backup \
             does not fit to it.\n",
        );
    }
    Ok(UpkeepReport { text, sound: true })
}

/// A backup that is emptied when dropped, unless it is finished.
struct Unfinished {
    folder: PathBuf,
    ours: bool,
}

impl Unfinished {
    fn begin(folder: &Path) -> Result<Self, Failure> {
        files::make_empty(folder)?;
        Ok(Self { folder: folder.to_owned(), ours: true })
    }

    fn finish(mut self) {
        self.ours = false;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.ours {
            files::clear(&self.folder);
        }
    }
}
