//! Lost transactions: the note claims more of the write-ahead log than SQLite would read of it.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::log::{Log, commits_within};
use crate::note::{Claim, CopiedPart, Note, NoteContent};
use crate::paths::{COMPANION_ENDS, DatabasePaths, LOG_END};

/// Reads of a note that changes while the log is read, at most.
const LOOKS_MAX: usize = 10;

/// Transactions that were acknowledged and are missing in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The write-ahead log.
    pub log: String,
    /// The fault of the log.
    pub how: String,
    /// The number of lost transactions, as far as it is known: a number, or all of a number of pages.
    pub changes: String,
    pub(crate) left: Remainder,
}

impl Loss {
    /// Returns the files beside the database: its log, the log's index, and the note that claims the lost transactions.
    pub fn companions(&self) -> [String; 3] {
        let database = self.log.strip_suffix(LOG_END).unwrap_or(&self.log);
        COMPANION_ENDS.map(|end| format!("{database}{end}"))
    }
}

/// The part of a database that is of one moment, and so may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remainder {
    /// The database and the rest of its log; the claim holds then.
    WithTheLog(Claim),
    /// The database alone: it holds all of the rest of the log, and more.
    WithoutTheLog,
    /// Unknown, because a checkpoint was under way: perhaps neither.
    Unknown(Claim),
}

impl std::error::Error for Loss {}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log, how, changes, .. } = self;
        match (changes.as_str(), self.left) {
            ("0", _) => {
                write!(f, "{log} {how}: nothing that was acknowledged is lost, for all that it held is in the database")
            }
            (_, Remainder::Unknown(_)) => write!(
                f,
                "{log} {how}: up to {changes} changes that were acknowledged are lost, and what is left may be of no one \
                 moment, for the log was being carried into the database"
            ),
            _ => write!(f, "{log} {how}: up to {changes} changes that were acknowledged are lost"),
        }
    }
}

/// Findings about the log of a database.
pub(crate) struct LogFindings {
    pub(crate) loss: Option<Loss>,
    /// The part of the log that SQLite would read.
    pub(crate) taken: Claim,
    /// Frames of it that the note claims.
    pub(crate) claimed: u32,
}

/// Compares the log with the note.
pub(crate) fn look(paths: &DatabasePaths, note: &Note) -> io::Result<LogFindings> {
    let mut looks = 0;
    loop {
        let noted = note.read()?;
        let found = compare(paths, noted)?;
        looks += 1;
        // A process that ends a log empties the note first: then the finding is outdated.
        if found.loss.is_none() || looks == LOOKS_MAX || note.read()? == noted {
            return Ok(found);
        }
    }
}

fn compare(paths: &DatabasePaths, noted: NoteContent) -> io::Result<LogFindings> {
    let claim = match noted {
        NoteContent::Claim(claim) => claim,
        NoteContent::Nothing | NoteContent::Unreadable => Claim::default(),
    };
    let path = paths.log();
    let Some(file) = opened(&path)? else {
        let how = || ("is missing".to_owned(), format!("the {} pages of", claim.frames));
        let loss = (claim.frames > 0).then(|| lost(paths, claim, Claim { frames: 0, ..claim }, how()));
        return Ok(LogFindings { loss, taken: Claim::default(), claimed: 0 });
    };
    let taken = match Log::of(file.try_clone()?)? {
        Some(log) if log.salts == claim.salts => Claim { frames: log.last_commit()?, ..claim },
        // SQLite has started the log anew: what the note claims of the log before is in the database. Or nothing was
        // claimed yet, or a program without this layer has written it.
        Some(log) => {
            let frames = log.last_commit()?;
            let taken = Claim { salts: log.salts, frames, carried: CopiedPart::unknown(frames) };
            return Ok(LogFindings { loss: None, taken, claimed: 0 });
        }
        None => Claim { frames: 0, ..claim },
    };
    if taken.frames >= claim.frames {
        return Ok(LogFindings { loss: None, taken, claimed: claim.frames });
    }
    let kept = taken.frames;
    let how =
        if kept == 0 { "is damaged at its beginning".to_owned() } else { format!("is damaged behind frame {kept}") };
    let after = if claim.carried.is_whole { kept.max(claim.carried.frames) } else { kept };
    let changes = commits_within(&file, after, claim.frames)?.max(1);
    let loss = lost(paths, claim, taken, (how, changes.to_string()));
    Ok(LogFindings { loss: Some(loss), taken, claimed: kept })
}

/// Opens the log. `None` if there is none, or an empty one.
fn opened(log: &Path) -> io::Result<Option<File>> {
    match File::open(log) {
        Ok(file) if file.metadata()?.len() > 0 => Ok(Some(file)),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(None),
    }
}

fn lost(paths: &DatabasePaths, claim: Claim, taken: Claim, (how, changes): (String, String)) -> Loss {
    let carried = claim.carried;
    let left = match () {
        () if carried.frames <= taken.frames => Remainder::WithTheLog(taken),
        () if carried.is_whole => Remainder::WithoutTheLog,
        () => Remainder::Unknown(taken),
    };
    let has_all = left == Remainder::WithoutTheLog && carried.frames >= claim.frames;
    let log = paths.log().display().to_string();
    Loss { log, how, changes: if has_all { "0".to_owned() } else { changes }, left }
}
