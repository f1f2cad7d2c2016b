//! Preparation of a database before SQLite opens it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::checksum::{PAGE_BYTES, Page, RESERVED_BYTES, fits, seal};
use crate::file::RESERVED_AT;
use crate::keeper::keep;
use crate::loss::{Loss, look};
use crate::note::{Claim, Note, NoteContent};
use crate::paths::{DatabasePaths, LOG_END, beside};
use crate::raw::Raw;
use crate::vfs::{VFS, register};

/// The first bytes of every database of SQLite.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Offsets in page 1 of the page size and of the application id.
const SIZE_AT: usize = 16;
const APPLICATION_AT: usize = 68;
/// The application id of databases with checksums: `Isob`, of the first program with this layer. Two words must be
/// damaged before a database with checksums is taken for one without.
const APPLICATION: u32 = u32::from_be_bytes(*b"Isob");
/// Faults that SQLite reports of a damaged file that are repeated in an error, at most.
const FAULTS_TOLD_MAX: usize = 5;

/// An error of a database that cannot be opened, and its cause.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// The database is damaged.
    #[error("{0}")]
    Damaged(String),
    /// Transactions that were acknowledged are missing.
    #[error("{0}")]
    Lost(#[from] Box<Loss>),
    /// The file system returned an error.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// SQLite returned an error.
    #[error("{path}: {cause}")]
    Sqlite {
        /// The file.
        path: String,
        /// The error of SQLite.
        cause: String,
    },
}

pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> PagesError {
    let path = path.display().to_string();
    move |cause| PagesError::Io { path: path.clone(), cause }
}

fn in_sqlite(path: &Path) -> impl Fn(String) -> PagesError {
    let path = path.display().to_string();
    move |cause| PagesError::Sqlite { path: path.clone(), cause }
}

/// Permitted changes when a database is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// A missing database is created, and one without checksums gets them.
    ToUse,
    /// Nothing is changed.
    AsItIs,
}

/// Prepares a database to be opened, and returns the name of the VFS to open it with; `None` if it has no checksums and
/// was to be left as it is. Refuses a database that is damaged, or whose log lacks transactions that were acknowledged.
///
/// Blocks; another process or thread that prepares the same database waits.
pub fn prepare(path: &Path, how: Open) -> Result<Option<&'static str>, PagesError> {
    if !register() {
        return Err(in_sqlite(path)("SQLite takes no layer beneath it".to_owned()));
    }
    let paths = DatabasePaths::of(path).map_err(at(path))?;
    let note = Note::open(&paths.note()).map_err(at(path))?;
    let alone = note.alone().map_err(at(path))?;
    let noted = note.read().map_err(at(path))?;
    let is_noted = noted != NoteContent::Nothing;
    let has_checksums = match kind(&paths, is_noted)? {
        // A database has a note that holds something, if only that there is nothing to claim.
        Kind::Missing if how != Open::ToUse || is_noted => {
            return Err(PagesError::Damaged(format!(
                "{} is missing or empty, though there was a database: {} is beside it. Restore a backup; for an empty \
                 one, remove {} too",
                paths.database().display(),
                paths.note().display(),
                paths.note().display()
            )));
        }
        Kind::Missing => make(&paths).map(|()| true)?,
        Kind::Checked => {
            if noted == NoteContent::Unreadable {
                // A power cut may have torn it, as it is not synced: that is no damage.
                tracing::warn!(note = %paths.note().display(), "a note does not fit to its checksum: it claims nothing");
                if how == Open::ToUse {
                    note.write_for_good(Claim::default()).map_err(at(path))?;
                }
            }
            true
        }
        Kind::Older if how == Open::ToUse => upgrade(&paths, &note).map(|()| true)?,
        Kind::Older => false,
    };
    if !has_checksums {
        return Ok(None);
    }
    let found = look(&paths, &note).map_err(at(path))?;
    drop(alone);
    if let Some(loss) = found.loss {
        return Err(Box::new(loss).into());
    }
    keep(&paths, note, found.taken, found.claimed);
    Ok(Some(VFS))
}

/// Returns the transactions that were acknowledged and are missing; `None` if none is known to be.
pub fn loss(path: &Path) -> Result<Option<Loss>, PagesError> {
    let paths = DatabasePaths::of(path).map_err(at(path))?;
    if !paths.note().exists() {
        return Ok(None);
    }
    let note = Note::open(&paths.note()).map_err(at(path))?;
    let _alone = note.alone().map_err(at(path))?;
    Ok(look(&paths, &note).map_err(at(path))?.loss)
}

/// Returns the files beside a database: its log, the log's index, its note. They lie beside the file that a symbolic
/// link leads to.
pub fn companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    DatabasePaths::of(path).map(|paths| paths.companions()).into_iter().flatten()
}

enum Kind {
    Missing,
    Checked,
    Older,
}

/// Determines what kind of database lies there.
fn kind(paths: &DatabasePaths, is_noted: bool) -> Result<Kind, PagesError> {
    let path = paths.database();
    let mut page: Page = [0; PAGE_BYTES];
    let length = match File::open(path) {
        Ok(file) => filled(&file, &mut page).map_err(at(path))?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(at(path)(error)),
    };
    let (name, log) = (path.display(), paths.log());
    let has_log = log.metadata().is_ok_and(|found| found.len() > 0);
    if length == 0 {
        return match has_log {
            true => Err(PagesError::Damaged(format!("{name} is missing or empty, but {} is there", log.display()))),
            false => Ok(Kind::Missing),
        };
    }
    let is_ours = page.get(RESERVED_AT) == Some(&RESERVED_BYTES)
        || page.get(APPLICATION_AT..APPLICATION_AT + 4) == Some(APPLICATION.to_be_bytes().as_slice());
    match () {
        () if is_ours => Ok(Kind::Checked),
        // The power failed while a checkpoint wrote the first page: the log still has it. If not, reading it fails.
        () if is_noted && has_log => Ok(Kind::Checked),
        () if !page.starts_with(SQLITE_MAGIC) || length < PAGE_BYTES => {
            Err(PagesError::Damaged(format!("{name} is damaged: it does not begin as a database of SQLite")))
        }
        () => Ok(Kind::Older),
    }
}

/// Reads as much of the first page as there is.
fn filled(file: &File, page: &mut Page) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = page.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

/// Creates an empty database whose pages have checksums.
fn make(paths: &DatabasePaths) -> Result<(), PagesError> {
    make_new(paths, |new| {
        let raw = Raw::open(new)?;
        raw.run(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
        raw.reserve()?;
        raw.run("VACUUM").map(|_| ())
    })?;
    put_in_place(paths)
}

/// Converts a database without checksums. Writes a new file with the same content, which replaces the old one by a
/// rename: whatever ends the process meanwhile, either the old or the new one is there.
fn upgrade(paths: &DatabasePaths, note: &Note) -> Result<(), PagesError> {
    let path = paths.database();
    tracing::info!("{} gets checksums for its pages; this takes a moment", path.display());
    let raw = Raw::open(path).map_err(in_sqlite(path))?;
    let answers = raw.run("PRAGMA integrity_check").map_err(in_sqlite(path))?;
    if answers != ["ok"] {
        let faults = answers.iter().take(FAULTS_TOLD_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
        return Err(PagesError::Damaged(format!("{} is damaged: {faults}", path.display())));
    }
    // The log's last changes go into the file, and the log goes: the new file must not meet it.
    raw.run("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE").map_err(in_sqlite(path))?;
    if paths.log().metadata().is_ok_and(|found| found.len() > 0) {
        return Err(in_sqlite(path)("another program has it open".to_owned()));
    }
    make_new(paths, |new| {
        // Not the other way round: the size would forget what is reserved.
        raw.run(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
        raw.reserve()?;
        let name = new.to_str().ok_or("SQLite needs a path in UTF-8")?.replace('\'', "''");
        raw.run(&format!("VACUUM INTO '{name}'")).map(|_| ())
    })?;
    // The note is of another database, which lay here before: the one that replaces it has no log yet.
    note.write_for_good(Claim::default()).map_err(at(path))?;
    put_in_place(paths)
}

/// Creates a database with room for checksums beside this one, and fills them in.
fn make_new(paths: &DatabasePaths, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), PagesError> {
    let new = paths.new_one();
    for left in [new.clone(), beside(&new, "-journal"), beside(&new, LOG_END)] {
        match std::fs::remove_file(&left) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&left)(error)),
            _ => {}
        }
    }
    make(&new).map_err(in_sqlite(&new))?;
    Raw::open(&new)
        .and_then(|raw| raw.run(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA journal_mode = WAL")))
        .map_err(in_sqlite(&new))?;
    seal_all(&new)
}

/// Replaces the database by the new one, with a rename.
fn put_in_place(paths: &DatabasePaths) -> Result<(), PagesError> {
    std::fs::rename(paths.new_one(), paths.database()).map_err(at(paths.database()))?;
    paths.sync_names().map_err(at(paths.database()))
}

/// Writes the checksum of every page of a file.
fn seal_all(path: &Path) -> Result<(), PagesError> {
    let work = || -> io::Result<bool> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        let mut page: Page = [0; PAGE_BYTES];
        for offset in (0..length).step_by(PAGE_BYTES) {
            file.read_exact_at(&mut page, offset)?;
            let has_room = page.get(RESERVED_AT) == Some(&RESERVED_BYTES)
                && page.get(SIZE_AT..SIZE_AT + 2) == Some((PAGE_BYTES as u16).to_be_bytes().as_slice());
            if offset == 0 && !has_room {
                return Ok(false);
            }
            seal(&mut page);
            file.write_all_at(&page, offset)?;
        }
        file.sync_all()?;
        Ok(true)
    };
    match work().map_err(at(path))? {
        true => Ok(()),
        false => Err(in_sqlite(path)("SQLite leaves no room for checksums".to_owned())),
    }
}

/// Returns true if a page agrees with its checksum; for tools that read database files.
pub fn page_fits(page: &[u8]) -> bool {
    page.try_into().is_ok_and(|page: &Page| fits(page))
}
