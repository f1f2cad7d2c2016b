//! Who writes the note of a database that is open, and decides whether the database may be written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::log::{Log, Salts, Sound, wanting};
use crate::note::{Carried, Claim, Note};
use crate::paths::DatabasePaths;
use crate::watch::damaged;

static KEEPERS: Mutex<BTreeMap<PathBuf, Arc<Keeper>>> = Mutex::new(BTreeMap::new());

/// Writes the note of a database, for all its connections.
#[derive(Debug)]
pub(crate) struct Keeper {
    log: PathBuf,
    note: Note,
    state: Mutex<NoteState>,
    /// Nothing is written any more: what is written now would be lost at the next start, or nobody could say.
    has_failed: AtomicBool,
    /// That the note cannot be written, and that a checkpoint failed, is logged once.
    logged: [AtomicBool; 2],
}

#[derive(Debug)]
struct NoteState {
    claim: Claim,
    /// The last frame that may be taken from the log: it may be behind what is claimed, when a process was killed between.
    reach: u32,
    /// How far the log was looked at.
    sound: Option<Sound>,
    /// Frames that this process may carry into the database: it has looked at them, and noted that.
    carries: u32,
}

impl Keeper {
    fn new(paths: &DatabasePaths, note: Note, found: Claim, claimed: u32) -> Self {
        let claim = Claim { frames: claimed, ..found };
        let state = NoteState { reach: found.frames, claim, sound: None, carries: 0 };
        let (has_failed, logged) = (AtomicBool::new(false), [AtomicBool::new(false), AtomicBool::new(false)]);
        Self { log: paths.log(), note, state: Mutex::new(state), has_failed, logged }
    }

    /// A transaction is durable that ends with this frame of the log.
    pub(crate) fn claim(&self, salts: Salts, frames: u32) {
        let mut state = self.state.lock();
        if state.claim.salts != salts {
            // Somebody else has begun another log, past this layer.
            let claim = Claim { salts, ..Claim::default() };
            *state = NoteState { claim, reach: 0, sound: None, carries: 0 };
        }
        state.claim.frames = frames;
        state.reach = frames;
        self.tell(self.note.write(state.claim));
    }

    /// What the note claims will not be in the log any more, because it is in the database. False: the note still claims
    /// it, and the log has to stay.
    pub(crate) fn begin_anew(&self, salts: Salts) -> bool {
        if self.has_failed() {
            return false;
        }
        let mut state = self.state.lock();
        let claim = Claim { salts, ..Claim::default() };
        *state = NoteState { claim, reach: 0, sound: None, carries: 0 };
        self.tell(self.note.write_for_good(claim))
    }

    /// Whether nothing may be written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// A checkpoint is about to write a page into the database. False: it must not. Before the first page the log is looked
    /// at: a checkpoint that had to stop at a damaged frame would leave the database as it never was. And what may be
    /// carried over is noted, durably.
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
            // It is tried again with the next transaction; nothing is lost meanwhile, but the log grows.
            Err(error) => {
                self.checkpoint_failed(&error.to_string());
                return false;
            }
        }
        let frames = state.reach;
        if state.claim.carried.frames < frames {
            // What is carried is claimed, too: SQLite has synced the log just before.
            let claim = Claim { frames, carried: Carried { frames, is_whole: false }, ..state.claim };
            if !self.tell(self.note.write_for_good(claim)) {
                return false;
            }
            state.claim = claim;
        }
        state.carries = frames;
        true
    }

    /// What is damaged of that which the log is needed for.
    fn looked_at(&self, state: &mut NoteState) -> io::Result<Option<String>> {
        let file = File::open(&self.log)?;
        match Log::of(file.try_clone()?)? {
            // Somebody else has begun it, past this layer.
            Some(log) if log.salts != state.claim.salts => return Ok(None),
            Some(log) => state.sound = log.sound(state.sound, state.reach)?,
            None => state.sound = None,
        }
        if state.sound.is_some() {
            return Ok(None);
        }
        let frame = wanting(&file, state.claim.salts, state.reach)?;
        Ok(frame.map(|frame| format!("frame {frame} of {} does not fit to its checksum", self.log.display())))
    }

    /// The database was synced: SQLite does that when a checkpoint has carried all of the log into it.
    pub(crate) fn has_carried(&self) {
        let mut state = self.state.lock();
        if state.claim.carried.frames > 0 && !state.claim.carried.is_whole {
            state.claim.carried.is_whole = true;
            self.tell(self.note.write(state.claim));
        }
    }

    /// A damaged frame was met. If a later one has its page, the next checkpoint ends the damage; if not, whatever is
    /// written behind it would be lost at the next start.
    pub(crate) fn met_damage(&self, frame: u32) {
        if self.has_failed() {
            return;
        }
        let state = self.state.lock();
        let found = File::open(&self.log).and_then(|file| wanting(&file, state.claim.salts, state.reach));
        if !matches!(found, Ok(None)) {
            self.fail(&format!("frame {frame} of {} does not fit to its checksum", self.log.display()));
        }
    }

    /// From here on nothing is written.
    pub(crate) fn fail(&self, why: &str) {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            tracing::error!(why, "the registry takes no more changes, for the next start would not find them");
        }
    }

    /// A checkpoint has not come through.
    pub(crate) fn checkpoint_failed(&self, why: &str) {
        let [_, logged] = &self.logged;
        if !logged.swap(true, Ordering::AcqRel) {
            tracing::warn!(why, "the registry's log could not be carried into its file: it grows until that succeeds");
        }
    }

    /// A note that cannot be written claims less than it could.
    fn tell(&self, outcome: io::Result<()>) -> bool {
        let [logged, _] = &self.logged;
        if let Err(error) = &outcome
            && !logged.swap(true, Ordering::AcqRel)
        {
            tracing::warn!(%error, "the registry's note cannot be written: damage to its log might go unseen");
        }
        outcome.is_ok()
    }
}

/// From here on the database has a note: `found` is what stands in its log, of which so many frames are claimed. One that is
/// open already goes on as it is.
pub(crate) fn keep(paths: &DatabasePaths, note: Note, found: Claim, claimed: u32) {
    let mut keepers = KEEPERS.lock();
    let is_open = |keeper: &Arc<Keeper>| Arc::strong_count(keeper) > 1;
    if !keepers.get(paths.database()).is_some_and(is_open) {
        let keeper = Keeper::new(paths, note, found, claimed);
        keepers.insert(paths.database().to_owned(), Arc::new(keeper));
    }
}

/// Who keeps the note of a database, whose name has no links in it. None: it has none.
pub(crate) fn keeper(database: &Path) -> Option<Arc<Keeper>> {
    KEEPERS.lock().get(database).cloned()
}
