//! What was acknowledged and is gone: the note claims more of the write-ahead log than SQLite would take of it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::log::{Log, commits_within};
use crate::note::{Claim, Note, Noted};

/// How often a note that changes while the log is read is read again.
const LOOKS_MAX: usize = 10;

/// Changes that were acknowledged and are not in the database any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{log} {how}: up to {changes} changes that were acknowledged are lost")]
pub struct Loss {
    /// The write-ahead log.
    pub log: String,
    /// What is wrong with it.
    pub how: String,
    /// How many transactions are cut off, as far as it can be told; a number, or `all` of so many pages.
    pub changes: String,
}

/// Holds the log against the note.
pub(crate) fn look(log: &Path, note: &Note) -> io::Result<Option<Loss>> {
    let mut found = None;
    for _ in 0..LOOKS_MAX {
        let Noted::Claim(claim) = note.read()? else { return Ok(None) };
        found = compare(log, claim)?;
        // Whoever ends a log's life notes it first: then what was found is nothing.
        if found.is_none() || note.read()? == Noted::Claim(claim) {
            break;
        }
    }
    Ok(found)
}

fn compare(path: &Path, claim: Claim) -> io::Result<Option<Loss>> {
    if claim.frames == 0 {
        return Ok(None);
    }
    let loss = |how: String, changes: String| Some(Loss { log: path.display().to_string(), how, changes });
    let file = match File::open(path) {
        Ok(file) if file.metadata()?.len() > 0 => file,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => return Ok(loss("is missing".to_owned(), format!("the {} pages of", claim.frames))),
    };
    let kept = match Log::of(file.try_clone()?)? {
        Some(log) if log.salts == claim.salts => log.last_commit()?,
        // It has begun anew: what was claimed of the one before had gone into the database.
        Some(_) => return Ok(None),
        None => 0,
    };
    if kept >= claim.frames {
        return Ok(None);
    }
    let changes = commits_within(&file, kept, claim.frames)?.max(1);
    let how =
        if kept == 0 { "is damaged at its beginning".to_owned() } else { format!("is damaged behind frame {kept}") };
    Ok(loss(how, changes.to_string()))
}
