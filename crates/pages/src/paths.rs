//! Where a database lies, and what lies beside it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What is put behind a database's name to name its write-ahead log, its note, and one that is being made.
pub(crate) const LOG_END: &str = "-wal";
const NOTE_END: &str = "-note";
const NEW_END: &str = "-new";
/// All that belongs to a database: its log, the log's index, its note.
pub(crate) const COMPANION_ENDS: [&str; 3] = [LOG_END, "-shm", NOTE_END];
/// Symbolic links that lead to each other, at most.
const LINKS_MAX: usize = 40;

/// A database by the name that its file has in the end. SQLite follows symbolic links and puts the log beside what they
/// lead to; so whatever else belongs to the database lies there, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabasePaths(PathBuf);

impl DatabasePaths {
    /// Where the links lead to, whether there is anything yet or not.
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

    /// The database itself.
    pub(crate) fn database(&self) -> &Path {
        &self.0
    }

    /// Its write-ahead log.
    pub(crate) fn log(&self) -> PathBuf {
        beside(&self.0, LOG_END)
    }

    /// Its note.
    pub(crate) fn note(&self) -> PathBuf {
        beside(&self.0, NOTE_END)
    }

    /// One that is being made to take its place.
    pub(crate) fn new_one(&self) -> PathBuf {
        beside(&self.0, NEW_END)
    }

    /// Its log, the log's index, and its note.
    pub(crate) fn companions(&self) -> [PathBuf; 3] {
        COMPANION_ENDS.map(|end| beside(&self.0, end))
    }

    /// Waits until the names in its folder are on the disk.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        fs::File::open(folder_of(&self.0))?.sync_all()
    }
}

/// A name with something behind it.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The folder that a name is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
