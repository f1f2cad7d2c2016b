//! What was acknowledged and is gone: the note claims more of the write-ahead log than SQLite would take of it.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::log::{Log, commits_within};
use crate::note::{Carried, Claim, Note, Noted};
use crate::paths::{COMPANION_ENDS, DatabasePaths, LOG_END};

/// How often a note that changes while the log is read is read again.
const LOOKS_MAX: usize = 10;

/// Changes that were acknowledged and are not in the database any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The write-ahead log.
    pub log: String,
    /// What is wrong with it.
    pub how: String,
    /// How many transactions are cut off, as far as it is known; a number, or all `of` so many pages.
    pub changes: String,
    pub(crate) left: Remainder,
}

impl Loss {
    /// All that belongs to the database: its log, the log's index, and the note that claims what is lost.
    pub fn companions(&self) -> [String; 3] {
        let database = self.log.strip_suffix(LOG_END).unwrap_or(&self.log);
        COMPANION_ENDS.map(|end| format!("{database}{end}"))
    }
}

/// What of a database is of one moment, and so may be gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remainder {
    /// The database and what is left of its log: this claim is true then.
    WithTheLog(Claim),
    /// The database alone: it has all of the log that is left, and more.
    WithoutTheLog,
    /// A checkpoint was under way: perhaps neither.
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

/// What was found beside a database.
pub(crate) struct LogFindings {
    pub(crate) loss: Option<Loss>,
    /// What SQLite would take of the log.
    pub(crate) taken: Claim,
    /// Frames of it that are claimed.
    pub(crate) claimed: u32,
}

/// Holds the log against the note.
pub(crate) fn look(paths: &DatabasePaths, note: &Note) -> io::Result<LogFindings> {
    let mut looks = 0;
    loop {
        let noted = note.read()?;
        let found = compare(paths, noted)?;
        looks += 1;
        // Whoever ends a log's life notes it first: then what was found is nothing.
        if found.loss.is_none() || looks == LOOKS_MAX || note.read()? == noted {
            return Ok(found);
        }
    }
}

fn compare(paths: &DatabasePaths, noted: Noted) -> io::Result<LogFindings> {
    let claim = match noted {
        Noted::Claim(claim) => claim,
        Noted::Nothing | Noted::Unreadable => Claim::default(),
    };
    let path = paths.log();
    let Some(file) = opened(&path)? else {
        let how = || ("is missing".to_owned(), format!("the {} pages of", claim.frames));
        let loss = (claim.frames > 0).then(|| lost(paths, claim, Claim { frames: 0, ..claim }, how()));
        return Ok(LogFindings { loss, taken: Claim::default(), claimed: 0 });
    };
    let taken = match Log::of(file.try_clone()?)? {
        Some(log) if log.salts == claim.salts => Claim { frames: log.last_commit()?, ..claim },
        // It has begun anew: what was claimed of the one before had gone into the database. Or nobody has noted anything of
        // it, or somebody else has written it.
        Some(log) => {
            let frames = log.last_commit()?;
            let taken = Claim { salts: log.salts, frames, carried: Carried::unknown(frames) };
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

/// None: there is none, or nothing in it.
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
