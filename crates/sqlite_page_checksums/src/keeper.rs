//! The keeper of an open database: it writes the note, and decides whether the database may be written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::log::{Log, Salts, VerifiedFrames, first_needed_damage};
use crate::note::{Claim, CopiedPart, Note};
use crate::paths::DatabasePaths;
use crate::watch::damaged;

static KEEPERS: Mutex<BTreeMap<PathBuf, Arc<Keeper>>> = Mutex::new(BTreeMap::new());

/// Maintains the note of a database, for all connections of the process.
#[derive(Debug)]
pub(crate) struct Keeper {
    log: PathBuf,
    note: Note,
    state: Mutex<NoteState>,
    /// Set when nothing may be written any more, because the next start would not, or might not, find it.
    has_failed: AtomicBool,
    /// Flags of what was logged, which is done once each: a failure to write the note, a failed checkpoint.
    logged: [AtomicBool; 2],
}

#[derive(Debug)]
struct NoteState {
    claim: Claim,
    /// The last frame that may be read from the log. It may lie behind the claimed ones, if a process was killed in
    /// between.
    reach: u32,
    /// The frames of the log that were verified.
    sound: Option<VerifiedFrames>,
    /// Frames that this process may copy into the database: they are verified, and the note covers them.
    carries: u32,
}

impl Keeper {
    fn new(paths: &DatabasePaths, note: Note, found: Claim, claimed: u32) -> Self {
        let claim = Claim { frames: claimed, ..found };
        let state = NoteState { reach: found.frames, claim, sound: None, carries: 0 };
        let (has_failed, logged) = (AtomicBool::new(false), [AtomicBool::new(false), AtomicBool::new(false)]);
        Self { log: paths.log(), note, state: Mutex::new(state), has_failed, logged }
    }

    /// Records that the transaction that ends with this frame of the log is durable.
    pub(crate) fn claim(&self, salts: Salts, frames: u32) {
        let mut state = self.state.lock();
        if state.claim.salts != salts {
            // Another program has started a log, without this layer.
            let claim = Claim { salts, ..Claim::default() };
            *state = NoteState { claim, reach: 0, sound: None, carries: 0 };
        }
        state.claim.frames = frames;
        state.reach = frames;
        self.tell(self.note.write(state.claim));
    }

    /// Prepares the note for a new log, or for none: the database holds all that the note claims. Returns false if the
    /// note could not be written; then the log has to stay.
    pub(crate) fn begin_anew(&self, salts: Salts) -> bool {
        if self.has_failed() {
            return false;
        }
        let mut state = self.state.lock();
        let claim = Claim { salts, ..Claim::default() };
        *state = NoteState { claim, reach: 0, sound: None, carries: 0 };
        self.tell(self.note.write_for_good(claim))
    }

    /// Returns true if nothing may be written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Decides whether a checkpoint may write a page into the database. Before its first page, the whole log is
    /// verified, because a checkpoint that stopped at a damaged frame would leave the database in a state that never
    /// existed; and the note records, durably, how much may be copied.
    pub(crate) fn may_carry(&self) -> bool {
        if self.has_failed() {
            return false;
        }
        let mut state = self.state.lock();
        if state.carries >= state.reach {
            return true;
        }
        match self.looked_at(&mut state) {
            Ok(None) => {}
            Ok(Some(what)) => {
                self.fail(&what);
                damaged(what);
                return false;
            }
            // The next transaction retries it; nothing is lost meanwhile, but the log grows.
            Err(error) => {
                self.checkpoint_failed(&error.to_string());
                return false;
            }
        }
        let frames = state.reach;
        if state.claim.carried.frames < frames {
            // Frames that are copied are claimed too: SQLite has synced the log just before.
            let claim = Claim { frames, carried: CopiedPart { frames, is_whole: false }, ..state.claim };
            if !self.tell(self.note.write_for_good(claim)) {
                return false;
            }
            state.claim = claim;
        }
        state.carries = frames;
        true
    }

    /// Verifies the log, and describes the first damaged frame that is still needed.
    fn looked_at(&self, state: &mut NoteState) -> io::Result<Option<String>> {
        let file = File::open(&self.log)?;
        match Log::of(file.try_clone()?)? {
            // Another program has started it, without this layer.
            Some(log) if log.salts != state.claim.salts => return Ok(None),
            Some(log) => state.sound = log.sound(state.sound, state.reach)?,
            None => state.sound = None,
        }
        if state.sound.is_some() {
            return Ok(None);
        }
        let frame = first_needed_damage(&file, state.claim.salts, state.reach)?;
        Ok(frame.map(|frame| format!("frame {frame} of {} does not fit to its checksum", self.log.display())))
    }

    /// Records that the database was synced: SQLite does so when a checkpoint has copied all of the log into it.
    pub(crate) fn has_carried(&self) {
        let mut state = self.state.lock();
        if state.claim.carried.frames > 0 && !state.claim.carried.is_whole {
            state.claim.carried.is_whole = true;
            self.tell(self.note.write(state.claim));
        }
    }

    /// Reacts to a damaged frame. If a later frame has the same page, the next checkpoint repairs the damage; if not,
    /// the next start would lose all that is written after it, so nothing is.
    pub(crate) fn met_damage(&self, frame: u32) {
        if self.has_failed() {
            return;
        }
        let state = self.state.lock();
        let found = File::open(&self.log).and_then(|file| first_needed_damage(&file, state.claim.salts, state.reach));
        if !matches!(found, Ok(None)) {
            self.fail(&format!("frame {frame} of {} does not fit to its checksum", self.log.display()));
        }
    }

    /// Refuses all writes from now on.
    pub(crate) fn fail(&self, why: &str) {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            tracing::error!(why, "the database takes no more writes: the next start would not find them");
        }
    }

    /// Logs a failed checkpoint.
    pub(crate) fn checkpoint_failed(&self, why: &str) {
        let [_, logged] = &self.logged;
        if !logged.swap(true, Ordering::AcqRel) {
            tracing::warn!(why, "a checkpoint failed: the write-ahead log grows until one succeeds");
        }
    }

    /// Logs a failure to write the note, which is no error: the note then claims less than it could.
    fn tell(&self, outcome: io::Result<()>) -> bool {
        let [logged, _] = &self.logged;
        if let Err(error) = &outcome
            && !logged.swap(true, Ordering::AcqRel)
        {
            tracing::warn!(%error, "cannot write the note of the database: damage to its log may stay undetected");
        }
        outcome.is_ok()
    }
}

/// Registers the keeper of a database: `found` is the content of its log, of which `claimed` frames are claimed. The
/// keeper of a database that is open already stays.
pub(crate) fn keep(paths: &DatabasePaths, note: Note, found: Claim, claimed: u32) {
    let mut keepers = KEEPERS.lock();
    let is_open = |keeper: &Arc<Keeper>| Arc::strong_count(keeper) > 1;
    if !keepers.get(paths.database()).is_some_and(is_open) {
        let keeper = Keeper::new(paths, note, found, claimed);
        keepers.insert(paths.database().to_owned(), Arc::new(keeper));
    }
}

/// Returns the keeper of a database, whose path contains no links. `None` if it has no note.
pub(crate) fn keeper(database: &Path) -> Option<Arc<Keeper>> {
    KEEPERS.lock().get(database).cloned()
}
