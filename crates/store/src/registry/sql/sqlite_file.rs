//! What SQLite's file lacks, from [`isobar_pages`]: checksums of its pages, and a note of what was durable.

use std::path::{Path, PathBuf};

use isobar_pages::{Loss, Open, PagesError};

use super::DriverError;
use crate::error::{Result, StoreError};

/// What SQLite answers when what it has read makes no sense: `SQLITE_CORRUPT` and its extended forms, `SQLITE_NOTADB`.
const SENSELESS: [&str; 5] = ["11", "267", "523", "779", "26"];

/// Makes a file ready to be opened; the layer that it is opened through.
pub(crate) async fn prepare(path: &str, how: Open) -> Result<Option<&'static str>> {
    let path = PathBuf::from(path);
    blocking(move || isobar_pages::prepare(&path, how)).await
}

/// What a registry has lost that was acknowledged. None: nothing that is known of.
pub fn loss(address: &str) -> Result<Option<Loss>> {
    match file_of(address) {
        Some(file) => isobar_pages::loss(&file).map_err(store_error),
        None => Ok(None),
    }
}

/// Goes on with what is left of a registry; what it has lost. None: nothing, and nothing was done. What there is of the
/// registry is copied into the folder `aside` first.
pub fn loss_accept(address: &str, aside: &Path) -> Result<Option<Loss>> {
    match file_of(address) {
        Some(file) => isobar_pages::accept_loss(&file, aside).map_err(store_error),
        None => Ok(None),
    }
}

/// The file of a registry, if it is one and there.
fn file_of(address: &str) -> Option<PathBuf> {
    let path = PathBuf::from(super::connections::plain(address.strip_prefix("sqlite:")?));
    path.is_file().then_some(path)
}

/// What this process has met that was damaged, of a file and of what lies beside it.
pub(crate) fn damage_met(file: &str) -> Vec<String> {
    if file.is_empty() { Vec::new() } else { isobar_pages::damage_of(Path::new(file)) }
}

/// Whether SQLite says with this code that what it has read is damaged.
pub(crate) fn tells_of_damage(code: &str) -> bool {
    SENSELESS.contains(&code) || code.parse() == Ok(isobar_pages::DAMAGED_CODE)
}

/// The damage that SQLite has met, by its name if it is known.
pub(crate) fn damage(error: &DriverError) -> StoreError {
    match isobar_pages::last_damage() {
        Some(place) => StoreError::Damaged(format!("{error} ({place})")),
        None => StoreError::Damaged(error.to_string()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, PagesError> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(store_error),
        Err(error) => Err(StoreError::unavailable(error)),
    }
}

fn store_error(error: PagesError) -> StoreError {
    match error {
        PagesError::Damaged(what) => StoreError::Damaged(what),
        PagesError::Lost(loss) => {
            let [log, index, note] = loss.companions();
            StoreError::Damaged(format!(
                "{loss}; restore a backup, or go on with what is left (isobar recover). If the database was put there by \
                 hand, as a copy, what lies beside it belongs to the one before: then remove {log}, {index} and {note}"
            ))
        }
        other => StoreError::unavailable(other),
    }
}
