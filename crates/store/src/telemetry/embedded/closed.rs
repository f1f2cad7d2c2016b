//! Maintains a closed store: examines it unchanged, and accepts losses.

use std::path::Path;
use std::sync::Arc;

use isobar_model::time::Timestamp;
use rocksdb_wal_check::{LogState, Loss, Note, Watermark};

use super::keys::Family;
use super::{Cancel, Embedded, Options, engine, examine, keys, numbers, retention};
use crate::error::Result;
use crate::telemetry::{Examined, LostDevices};

impl Embedded {
    /// Returns the acknowledged changes that a start on this folder would lack, or `None`. The store must be closed.
    pub fn loss(path: &Path) -> Result<Option<Loss>> {
        Ok(match rocksdb_wal_check::inspect(path, Family::ALL.len())? {
            LogState::Whole(_) => None,
            LogState::Lost(loss) => Some(loss),
        })
    }

    /// Accepts a loss. Copies the files needed to investigate it later to `aside`, a folder that must not exist.
    pub fn recover(path: &Path, options: &Options, loss: &Loss, aside: &Path) -> Result<()> {
        rocksdb_wal_check::accept_loss(path, loss, aside)?;
        let db = engine::open_what_is_there(path, options, &Arc::default(), false)?;
        numbers::keep_after_loss(&db)?;
        let sequence = db.latest_sequence_number();
        Ok(Note::begin(path, Watermark::up_to(sequence, sequence)).map(drop)?)
    }

    /// Returns the format of a closed store. Refuses a newer one than this program reads.
    pub fn format(path: &Path, options: &Options) -> Result<u32> {
        let found = engine::format(&engine::open_to_read(path, options)?)?.unwrap_or(keys::FORMAT_WITHOUT_FLOORS);
        engine::must_be_known(found)?;
        Ok(found)
    }

    /// Returns the format of an open store.
    pub fn format_now(&self) -> Result<u32> {
        Ok(engine::format(&self.core.db)?.unwrap_or(keys::FORMAT_WITHOUT_FLOORS))
    }

    /// Returns the identity of a closed store, or `None` if an earlier version has served it last.
    pub fn identity_of(path: &Path, options: &Options) -> Result<Option<String>> {
        Ok(numbers::identity(&engine::open_to_read(path, options)?)?.map(|identity| identity.to_string()))
    }

    /// Returns the moment up to which a closed store trusts the clock, or `None` if it is empty.
    pub fn seen(path: &Path, options: &Options) -> Result<Option<Timestamp>> {
        retention::seen(&engine::open_to_read(path, options)?)
    }

    /// Makes a closed store trust the clock.
    pub fn believe(path: &Path, options: &Options, now: Timestamp) -> Result<()> {
        let db = engine::open(path, options, &Arc::default())?;
        retention::believe(&db, now)?;
        Ok(Note::begin(path, Watermark::up_to(db.latest_sequence_number(), 0)).map(drop)?)
    }

    /// Returns the devices of which a closed store has data, and which the registry has lost.
    pub fn lost_devices(path: &Path, options: &Options) -> Result<Vec<LostDevices>> {
        numbers::lost(&engine::open_to_read(path, options)?)
    }

    /// Treats the devices that the registry has lost as deleted, in a closed store.
    pub fn give_up_lost_devices(path: &Path, options: &Options) -> Result<()> {
        let db = engine::open(path, options, &Arc::default())?;
        numbers::give_up(&db, &numbers::lost(&db)?)?;
        Ok(Note::begin(path, Watermark::up_to(db.latest_sequence_number(), 0)).map(drop)?)
    }

    /// Examines a closed store, as [`Self::examine`] does an open one, without changing its folder. It reads on the
    /// calling thread.
    pub fn examine_folder(path: &Path, options: &Options) -> Result<Examined> {
        let loss = Self::loss(path)?;
        let mut examined = examine::everything(&engine::open_to_read(path, options)?, &Cancel::default())?;
        if let Some(loss) = loss {
            examined.faults.insert(0, loss.to_string());
            examined.faults_found += 1;
        }
        Ok(examined)
    }
}
