//! Accepting a loss: continuing with the sound rest of a damaged database.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::loss::{Loss, Remainder, look};
use crate::note::{Claim, Note};
use crate::paths::{DatabasePaths, LOG_END, beside, folder_of};
use crate::prepare::{PagesError, at};
use crate::raw::Raw;
use crate::vfs::{C_NAME, register};

/// Subfolder of the copies, in which candidates are opened to test whether they are sound.
const TRIAL: &str = "trial";

/// Makes a database usable again after a [`Loss`], with what is left of it. Returns `None`, and changes nothing, if
/// nothing was lost. Copies database, log and note into the folder `aside` first, which is created if it is missing.
///
/// The result is a consistent state of one moment: the database with the rest of its log, or, if a checkpoint has
/// copied more than that into the database, the database alone. If a checkpoint was under way, both candidates are
/// tested with `PRAGMA integrity_check`; if neither is sound, nothing is changed, and the error says so.
pub fn accept_loss(path: &Path, aside: &Path) -> Result<Option<Loss>, PagesError> {
    let paths = DatabasePaths::of(path).map_err(at(path))?;
    let note = Note::open(&paths.note()).map_err(at(path))?;
    let _alone = note.alone().map_err(at(path))?;
    let Some(loss) = look(&paths, &note).map_err(at(path))?.loss else { return Ok(None) };
    copy(&paths, aside).map_err(at(aside))?;
    let claim = match loss.left {
        Remainder::WithTheLog(claim) => claim,
        Remainder::WithoutTheLog => Claim::default(),
        Remainder::Unknown(claim) if is_sound(&paths, aside, true)? => claim,
        Remainder::Unknown(_) if is_sound(&paths, aside, false)? => Claim::default(),
        Remainder::Unknown(_) => {
            return Err(PagesError::Damaged(format!(
                "{}: while its log was carried into it, the process ended, and the log is damaged: neither with what is \
                 left of the log nor without it is it sound. Nothing was changed; bring a backup back",
                paths.database().display()
            )));
        }
    };
    if claim == Claim::default() {
        // Before the note, or the next start would take what is left of it.
        match fs::remove_file(paths.log()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&paths.log())(error)),
            _ => paths.sync_names().map_err(at(path))?,
        }
    }
    note.write_for_good(claim).map_err(at(path))?;
    Ok(Some(loss))
}

/// Copies database, log and note, and syncs the copies.
fn copy(paths: &DatabasePaths, aside: &Path) -> io::Result<()> {
    fs::create_dir_all(aside)?;
    for file in [paths.database().to_owned(), paths.log(), paths.note()] {
        let Some(name) = file.file_name() else { continue };
        match fs::copy(&file, aside.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => {
                copied?;
                File::open(aside.join(name))?.sync_all()?;
            }
        }
    }
    File::open(aside)?.sync_all()?;
    File::open(folder_of(aside))?.sync_all()
}

/// Returns true if SQLite finds no fault in a copy of the database, with or without its log.
fn is_sound(paths: &DatabasePaths, aside: &Path, with_log: bool) -> Result<bool, PagesError> {
    let trial = aside.join(TRIAL);
    let tried = || -> io::Result<bool> {
        fs::create_dir_all(&trial)?;
        let database = trial.join("trial.db");
        fs::copy(paths.database(), &database)?;
        if with_log && paths.log().exists() {
            fs::copy(paths.log(), beside(&database, LOG_END))?;
        }
        Ok(register() && has_no_faults(&database).unwrap_or(false))
    };
    let sound = tried().map_err(at(&trial))?;
    fs::remove_dir_all(&trial).map_err(at(&trial))?;
    Ok(sound)
}

/// Checks a database through the layer, so that every page is verified against its checksum.
fn has_no_faults(database: &Path) -> Result<bool, String> {
    let raw = Raw::open_through(database, Some(C_NAME))?;
    Ok(raw.run("PRAGMA integrity_check")? == ["ok"] && raw.run("PRAGMA foreign_key_check")?.is_empty())
}
