//! Adds to SQLite's file, by [`sqlite_page_checksums`], checksums of its pages and a note of the durable changes.

use std::path::{Path, PathBuf};

use sqlite_page_checksums::{Loss, Open, PagesError};
use sqlx::{Connection as _, SqliteConnection};

use super::DriverError;
use crate::error::{Result, StoreError};

/// Codes with which SQLite answers when its file makes no sense: `SQLITE_CORRUPT` and its extended forms,
/// `SQLITE_NOTADB`.
const SENSELESS: [&str; 5] = ["11", "267", "523", "779", "26"];

/// Prepares a file for opening; returns the name of the layer through which it must be opened.
pub(crate) async fn prepare(path: &str, how: Open) -> Result<Option<&'static str>> {
    let path = PathBuf::from(path);
    blocking(move || sqlite_page_checksums::prepare(&path, how)).await
}

/// Returns the acknowledged changes that a registry has lost, or `None` if no loss is known.
pub fn loss(address: &str) -> Result<Option<Loss>> {
    match file_of(address) {
        Some(file) => sqlite_page_checksums::loss(&file).map_err(store_error),
        None => Ok(None),
    }
}

/// Accepts a loss: the registry is used with the remaining data. Returns the loss, or `None` if there was none, and
/// then changes nothing. Copies the files of the registry into the folder `aside` first.
pub fn loss_accept(address: &str, aside: &Path) -> Result<Option<Loss>> {
    match file_of(address) {
        Some(file) => sqlite_page_checksums::accept_loss(&file, aside).map_err(store_error),
        None => Ok(None),
    }
}

/// Returns the version of the built-in SQLite.
pub async fn sqlite_version() -> Result<String> {
    let mut memory = SqliteConnection::connect("sqlite::memory:").await.map_err(StoreError::unavailable)?;
    let version = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut memory).await;
    version.map_err(StoreError::unavailable)
}

/// Returns the path of a registry that is an existing SQLite file.
fn file_of(address: &str) -> Option<PathBuf> {
    let path = PathBuf::from(super::connections::plain(address.strip_prefix("sqlite:")?));
    path.is_file().then_some(path)
}

/// Lists the damage that this process has met in a file and its companions.
pub(crate) fn damage_met(file: &str) -> Vec<String> {
    if file.is_empty() { Vec::new() } else { sqlite_page_checksums::damage_of(Path::new(file)) }
}

/// Returns true if this code of SQLite reports damaged data.
pub(crate) fn tells_of_damage(code: &str) -> bool {
    SENSELESS.contains(&code) || code.parse() == Ok(sqlite_page_checksums::DAMAGED_CODE)
}

/// Builds the error for damage that SQLite has met, with its place if that is known.
pub(crate) fn damage(error: &DriverError) -> StoreError {
    match sqlite_page_checksums::last_damage() {
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
