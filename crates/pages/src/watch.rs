//! What is known of the databases of this process: their notes, and the damage that was met.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::note::{Claim, Note};

/// Damaged places that are remembered, and so told once only. What is beyond is told every time.
const DAMAGE_MAX: usize = 256;

static NOTES: Mutex<BTreeMap<PathBuf, Arc<Keeper>>> = Mutex::new(BTreeMap::new());
static DAMAGE: Mutex<Damage> = Mutex::new(Damage { known: BTreeSet::new(), last: String::new() });

struct Damage {
    known: BTreeSet<String>,
    last: String,
}

/// A damaged place was met: the log names it.
pub(crate) fn damaged(what: String) {
    let mut damage = DAMAGE.lock();
    let is_new = damage.known.len() >= DAMAGE_MAX || damage.known.insert(what.clone());
    damage.last.clone_from(&what);
    drop(damage);
    if is_new {
        tracing::error!("damaged: {what}");
    }
}

/// The damaged place that was met last.
pub(crate) fn last_damage() -> Option<String> {
    let damage = DAMAGE.lock();
    (!damage.last.is_empty()).then(|| damage.last.clone())
}

/// The damaged places of a file and of what lies beside it.
pub(crate) fn damage_of(path: &Path) -> Vec<String> {
    let name = path.display().to_string();
    DAMAGE.lock().known.iter().filter(|what| what.contains(&name)).cloned().collect()
}

/// Writes the note of a database. A note that cannot be written claims less than it could; that is told, once.
#[derive(Debug)]
pub(crate) struct Keeper {
    note: Note,
    told: Mutex<bool>,
}

impl Keeper {
    /// A transaction is durable.
    pub(crate) fn claim(&self, claim: Claim) {
        self.tell(self.note.write(claim));
    }

    /// What the note claims will not be in the log any more, because it is in the database. False: the note still claims
    /// it, and the log has to stay.
    pub(crate) fn begin_anew(&self, claim: Claim) -> bool {
        self.tell(self.note.write_for_good(claim))
    }

    fn tell(&self, outcome: std::io::Result<()>) -> bool {
        if let Err(error) = &outcome
            && !std::mem::replace(&mut *self.told.lock(), true)
        {
            tracing::warn!(%error, "the registry's note cannot be written: damage to its log might go unseen");
        }
        outcome.is_ok()
    }
}

/// From here on the database at this path, which is canonical, has a note.
pub(crate) fn keep(database: &Path, note: Note) {
    let keeper = Keeper { note, told: Mutex::new(false) };
    NOTES.lock().insert(database.to_owned(), Arc::new(keeper));
}

/// Who keeps the note of a database. None: it has none.
pub(crate) fn keeper(database: &Path) -> Option<Arc<Keeper>> {
    NOTES.lock().get(database).cloned()
}
