//! What is done to a database before SQLite opens it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::checksum::{PAGE_BYTES, Page, RESERVED_BYTES, fits, seal};
use crate::file::RESERVED_AT;
use crate::keeper::keep;
use crate::loss::{Loss, look};
use crate::note::{Claim, Note, Noted};
use crate::paths::{DatabasePaths, LOG_END, beside};
use crate::raw::Raw;
use crate::vfs::{VFS, register};

/// How every database of SQLite begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Where page 1 says how large pages are, and whose the database is.
const SIZE_AT: usize = 16;
const APPLICATION_AT: usize = 68;
/// Whose it is: `Isob`. Two words must be damaged until a database with checksums is taken for one without.
const APPLICATION: u32 = u32::from_be_bytes(*b"Isob");
/// What SQLite tells of a damaged file, at most.
const FAULTS_TOLD_MAX: usize = 5;

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// It is damaged.
    #[error("{0}")]
    Damaged(String),
    /// Changes that were acknowledged are gone.
    #[error("{0}")]
    Lost(#[from] Box<Loss>),
    /// The file system refuses.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// SQLite refuses.
    #[error("{path}: {cause}")]
    Sqlite {
        /// The file.
        path: String,
        /// What SQLite says.
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

/// What may be done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// What is missing is made, and what is older gets checksums.
    ToUse,
    /// Only looked at.
    AsItIs,
}

/// Makes a database ready to be opened. What is returned is the name of the layer that SQLite opens it through; none: it
/// has no checksums, and was to be left as it is.
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
    let is_noted = noted != Noted::Nothing;
    let has_checksums = match kind(&paths, is_noted)? {
        // Beside a database there is a note that says something, if only that there is nothing to claim.
        Kind::Missing if how != Open::ToUse || is_noted => {
            return Err(PagesError::Damaged(format!(
                "{} is missing or empty, though there was a registry: {} tells of it. Bring a backup back; where an empty \
                 one shall begin, remove {} too",
                paths.database().display(),
                paths.note().display(),
                paths.note().display()
            )));
        }
        Kind::Missing => make(&paths).map(|()| true)?,
        Kind::Checked => {
            if noted == Noted::Unreadable {
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

/// What was acknowledged and is lost. None: nothing that is known of.
pub fn loss(path: &Path) -> Result<Option<Loss>, PagesError> {
    let paths = DatabasePaths::of(path).map_err(at(path))?;
    if !paths.note().exists() {
        return Ok(None);
    }
    let note = Note::open(&paths.note()).map_err(at(path))?;
    let _alone = note.alone().map_err(at(path))?;
    Ok(look(&paths, &note).map_err(at(path))?.loss)
}

/// The files that belong to a database: its log, the log's index, its note. They lie beside what a symbolic link leads to.
pub fn companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    DatabasePaths::of(path).map(|paths| paths.companions()).into_iter().flatten()
}

enum Kind {
    Missing,
    Checked,
    Older,
}

/// What lies there.
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
        // The power went while a checkpoint wrote the first page: the log still has it. If not, reading it tells.
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

/// Makes an empty database whose pages have checksums.
fn make(paths: &DatabasePaths) -> Result<(), PagesError> {
    make_new(paths, |new| {
        let raw = Raw::open(new)?;
        raw.run(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
        raw.reserve()?;
        raw.run("VACUUM").map(|_| ())
    })?;
    put_in_place(paths)
}

/// Gives checksums to a database without. Another file is made of what it holds, and takes its place in one step: whatever
/// ends the process meanwhile, there is the old one or the new one.
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
    // What stands there is of another one, which lay here before: the one that takes its place has no log yet.
    note.write_for_good(Claim::default()).map_err(at(path))?;
    put_in_place(paths)
}

/// Has a database with room for checksums made beside this one, and fills them in.
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

/// Puts it in the place of this one, in one step.
fn put_in_place(paths: &DatabasePaths) -> Result<(), PagesError> {
    std::fs::rename(paths.new_one(), paths.database()).map_err(at(paths.database()))?;
    paths.sync_names().map_err(at(paths.database()))
}

/// Gives every page of a file its checksum.
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

/// Whether a page of this file fits to its checksum; for tools that look at files.
pub fn page_fits(page: &[u8]) -> bool {
    page.try_into().is_ok_and(|page: &Page| fits(page))
}
