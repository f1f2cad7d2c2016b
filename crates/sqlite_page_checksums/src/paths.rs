//! Paths of a database and of the files beside it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Suffixes of a database's name: of its write-ahead log, its note, and a new database that will replace it.
pub(crate) const LOG_END: &str = "-wal";
const NOTE_END: &str = "-note";
const NEW_END: &str = "-new";
/// Suffixes of all files beside a database: its log, the log's index, its note.
pub(crate) const COMPANION_ENDS: [&str; 3] = [LOG_END, "-shm", NOTE_END];
/// Symbolic links that are followed one after the other, at most.
const LINKS_MAX: usize = 40;

/// The path of a database without symbolic links. SQLite follows links and creates the log beside the file that they
/// lead to, so all other files of the database lie there too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabasePaths(PathBuf);

impl DatabasePaths {
    /// Follows links, whether the database exists or not.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            match path.canonicalize() {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                found => return found.map(Self),
            }
            match (fs::read_link(&path), path.file_name()) {
                (Ok(to), _) => path = folder_of(&path).join(to),
                (Err(_), Some(name)) => return folder_of(&path).canonicalize().map(|folder| Self(folder.join(name))),
                (Err(_), None) => break,
            }
        }
        Err(ErrorKind::InvalidInput.into())
    }

    /// Returns the database itself.
    pub(crate) fn database(&self) -> &Path {
        &self.0
    }

    /// Returns its write-ahead log.
    pub(crate) fn log(&self) -> PathBuf {
        beside(&self.0, LOG_END)
    }

    /// Returns its note.
    pub(crate) fn note(&self) -> PathBuf {
        beside(&self.0, NOTE_END)
    }

    /// Returns the new database that will replace it.
    pub(crate) fn new_one(&self) -> PathBuf {
        beside(&self.0, NEW_END)
    }

    /// Returns its log, the log's index, and its note.
    pub(crate) fn companions(&self) -> [PathBuf; 3] {
        COMPANION_ENDS.map(|end| beside(&self.0, end))
    }

    /// Syncs the folder, so that new names in it are durable.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        fs::File::open(folder_of(&self.0))?.sync_all()
    }
}

/// Returns a path with a suffix.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Returns the folder of a path.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
