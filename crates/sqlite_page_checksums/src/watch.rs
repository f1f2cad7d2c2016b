//! Damage that this process has found.

use std::collections::BTreeSet;
use std::path::Path;

use parking_lot::Mutex;

/// Damaged places that are remembered, and so logged only once; further ones are logged every time.
const DAMAGE_MAX: usize = 256;

static DAMAGE: Mutex<Damage> = Mutex::new(Damage { known: BTreeSet::new(), last: String::new() });

struct Damage {
    known: BTreeSet<String>,
    last: String,
}

/// Records and logs a damaged place.
pub(crate) fn damaged(what: String) {
    let mut damage = DAMAGE.lock();
    let is_new = damage.known.len() >= DAMAGE_MAX || damage.known.insert(what.clone());
    damage.last.clone_from(&what);
    drop(damage);
    if is_new {
        tracing::error!("damaged: {what}");
    }
}

/// Returns the damaged page that this process has found last.
pub fn last_damage() -> Option<String> {
    let damage = DAMAGE.lock();
    (!damage.last.is_empty()).then(|| damage.last.clone())
}

/// Returns the damaged pages of a database, and of its write-ahead log, that this process has found.
pub fn damage_of(path: &Path) -> Vec<String> {
    let name = path.display().to_string();
    DAMAGE.lock().known.iter().filter(|what| what.contains(&name)).cloned().collect()
}
