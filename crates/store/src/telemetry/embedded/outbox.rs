//! Stores the outbox: work that runs have deferred, by number, until it is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_model::ids::DeviceKey;
use parking_lot::Mutex;
use rocksdb::DB;

use super::keys::{self, Family};
use super::load::{current, each, rows};
use super::rows::{Parts, Rows, failed, text, trailing};
use super::{Core, engine, numbers};
use crate::error::Result;
use crate::telemetry::OutboxEntry;

/// Index of the outbox in memory.
pub struct OutboxIndex {
    /// Next free number.
    next: AtomicU64,
    /// Causes why entries are parked.
    parked: Mutex<BTreeMap<u64, Arc<str>>>,
}

impl OutboxIndex {
    /// Loads the index from the database, to which no writer is attached yet.
    pub fn load(db: &DB) -> Result<Self> {
        let mut entries = db.raw_iterator_cf(engine::family(db, Family::Outbox)?);
        entries.seek_to_last();
        let last = match current(&entries)? {
            Some((key, _)) => trailing(key)?,
            None => 0,
        };
        Ok(Self { next: AtomicU64::new(last + 1), parked: Mutex::new(parked(db)?) })
    }

    /// Assigns the next number, which is above those of all entries.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes entries, and the causes recorded about them.
    pub fn done(&self, numbers: &[u64], rows: &mut Rows) {
        let mut parked = self.parked.lock();
        for number in numbers {
            rows.delete(Family::Outbox, &number.to_be_bytes());
            if !parked.is_empty() && parked.remove(number).is_some() {
                rows.delete(Family::Meta, &keys::about(keys::PARKED, *number));
            }
        }
    }

    /// Records why an entry cannot be done. Returns false if the same cause is recorded already.
    pub fn park(&self, number: u64, why: &str, rows: &mut Rows) -> bool {
        if self.parked.lock().insert(number, why.into()).is_some_and(|known| *known == *why) {
            return false;
        }
        rows.put(Family::Meta, &keys::about(keys::PARKED, number), &[why.as_bytes()]);
        true
    }
}

/// Reads the causes recorded about entries. Removes a cause whose entry is gone: the number may be reused.
fn parked(db: &DB) -> Result<BTreeMap<u64, Arc<str>>> {
    let (meta, outbox) = (engine::family(db, Family::Meta)?, engine::family(db, Family::Outbox)?);
    let (from, to) = (keys::about(keys::PARKED, 0), keys::about(keys::PARKED, u64::MAX));
    let mut parked = BTreeMap::new();
    each(db, Family::Meta, &from, &to, |key, why| {
        let number = trailing(key)?;
        match db.get_pinned_cf(outbox, number.to_be_bytes()).map_err(failed)? {
            Some(_) => drop(parked.insert(number, text(why)?.into())),
            None => db.delete_cf(meta, key).map_err(failed)?,
        }
        Ok(())
    })?;
    Ok(parked)
}

/// Lists entries after a number. Entries of devices that the registry has lost are withheld until it is restored: it
/// would treat them as done.
pub fn entries(core: &Core, after: u64, limit: usize) -> Result<Vec<OutboxEntry>> {
    let Some(from) = after.checked_add(1) else { return Ok(Vec::new()) };
    let lost = numbers::lost(&core.db)?;
    let mut entries = Vec::new();
    let mut found = rows(&core.db, Family::Outbox, &from.to_be_bytes(), &u64::MAX.to_be_bytes())?;
    found.seek_to_first();
    while entries.len() < limit
        && let Some((key, value)) = current(&found)?
    {
        let number = trailing(key)?;
        let mut parts = Parts(value);
        let device = DeviceKey(parts.u64()?);
        if lost.iter().any(|lost| lost.contains(device)) {
            found.next();
            continue;
        }
        let parked = core.outbox.parked.lock().get(&number).cloned();
        entries.push(OutboxEntry { number, device, work: bytes::Bytes::copy_from_slice(parts.0), parked });
        found.next();
    }
    Ok(entries)
}

impl Core {
    /// Removes entries whose work is done.
    pub fn outbox_done(&self, numbers: &[u64]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let reservation = self.shared.reserve(None)?;
        Rows::at_hand(|rows| {
            self.outbox.done(numbers, rows);
            reservation.send(rows);
        });
        Ok(())
    }

    /// Records why an entry cannot be done; durable when this returns.
    pub async fn outbox_park(&self, number: u64, why: &str) -> Result<()> {
        let sent = {
            let reservation = self.shared.reserve(None)?;
            Rows::at_hand(|rows| self.outbox.park(number, why, rows).then(|| reservation.send(rows)))
        };
        match sent {
            Some(mut sent) => sent.durable.wait().await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::ids::DeviceKey;

    use crate::telemetry::Telemetry as _;
    use crate::telemetry::embedded::{Embedded, Options};

    #[tokio::test]
    async fn note_without_its_entry_is_removed_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Embedded::open(folder.path(), Options::default()).unwrap();
        let store = open();
        store.outbox_park(DeviceKey(1), 1, "why").await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let store = open();
        assert!(store.core.outbox.parked.lock().is_empty());
        assert_eq!(store.outbox_number(), 1);
        store.close().await.unwrap();
    }
}
