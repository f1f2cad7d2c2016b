//! Errors of a check.

use std::io;

use crate::{Loss, ManifestTail};

/// An error of a check, or its result where the database must not be opened.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The database is damaged.
    #[error("{0}")]
    Damaged(String),
    /// Writes that were acknowledged cannot be replayed; nothing was changed.
    #[error("{0}")]
    Lost(Box<Loss>),
    /// The manifest ends with an unfinished write, as a power cut leaves it: no damage, but RocksDB must not read it.
    #[error("{0}")]
    UnfinishedManifest(ManifestTail),
    /// The file system returned an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The result of a check.
pub type Result<T> = std::result::Result<T, CheckError>;
