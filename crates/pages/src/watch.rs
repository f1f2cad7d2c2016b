//! The damage that this process has met.

use std::collections::BTreeSet;
use std::path::Path;

use parking_lot::Mutex;

/// Damaged places that are remembered, and so logged once only. What is beyond is logged every time.
const DAMAGE_MAX: usize = 256;

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

/// The damaged page that this process has met last.
pub fn last_damage() -> Option<String> {
    let damage = DAMAGE.lock();
    (!damage.last.is_empty()).then(|| damage.last.clone())
}

/// The damaged pages of a database, and of its write-ahead log, that this process has met.
pub fn damage_of(path: &Path) -> Vec<String> {
    let name = path.display().to_string();
    DAMAGE.lock().known.iter().filter(|what| what.contains(&name)).cloned().collect()
}
