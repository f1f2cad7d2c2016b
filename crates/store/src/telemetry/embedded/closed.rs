//! What is done to a store that nobody has open: it is looked at as it is, and what is lost of it is given up.

use std::path::Path;
use std::sync::Arc;

use isobar_model::time::Timestamp;

use super::durability::{self, LogState, Loss, Note, Noted};
use super::{Cancel, Embedded, Options, engine, examine, keys, numbers, retention};
use crate::error::Result;
use crate::telemetry::{Examined, LostDevices};

impl Embedded {
    /// What a start on this folder would be without, of all that was acknowledged; none if nothing. Nobody may have it open.
    pub fn loss(path: &Path) -> Result<Option<Loss>> {
        Ok(match durability::look(path)? {
            LogState::Whole(_) => None,
            LogState::Lost(loss) => Some(loss),
        })
    }

    /// Goes on without what is lost. What is needed to look at it later is copied to `aside`, a folder that is not there.
    pub fn recover(path: &Path, options: &Options, loss: &Loss, aside: &Path) -> Result<()> {
        durability::drop_lost(path, loss, aside)?;
        let db = engine::open_what_is_there(path, options, &Arc::default(), false)?;
        numbers::keep_after_loss(&db)?;
        let sequence = db.latest_sequence_number();
        Note::begin(path, Noted::up_to(sequence, sequence)).map(drop)
    }

    /// Returns the format of a store that nobody has open. A newer one than this program reads is refused.
    pub fn format(path: &Path, options: &Options) -> Result<u32> {
        let found = engine::format(&engine::open_to_read(path, options)?)?.unwrap_or(keys::FORMAT_WITHOUT_FLOORS);
        engine::must_be_known(found)?;
        Ok(found)
    }

    /// Up to when the clock is believed by a store that nobody has open; none: it is empty.
    pub fn seen(path: &Path, options: &Options) -> Result<Option<Timestamp>> {
        retention::seen(&engine::open_to_read(path, options)?)
    }

    /// Has a store that nobody has open believe the clock.
    pub fn believe(path: &Path, options: &Options, now: Timestamp) -> Result<()> {
        let db = engine::open(path, options, &Arc::default())?;
        retention::believe(&db, now)?;
        Note::begin(path, Noted::up_to(db.latest_sequence_number(), 0)).map(drop)
    }

    /// Returns the devices of which a store that nobody has open holds data, and which the registry has lost.
    pub fn lost_devices(path: &Path, options: &Options) -> Result<Vec<LostDevices>> {
        numbers::lost(&engine::open_to_read(path, options)?)
    }

    /// Takes the devices that the registry has lost for deleted ones, in a store that nobody has open.
    pub fn give_up_lost_devices(path: &Path, options: &Options) -> Result<()> {
        let db = engine::open(path, options, &Arc::default())?;
        numbers::give_up(&db, &numbers::lost(&db)?)?;
        Note::begin(path, Noted::up_to(db.latest_sequence_number(), 0)).map(drop)
    }

    /// Examines a store that nobody has open, as [`Self::examine`] does an open one; nothing in its folder is changed. It reads
    /// on the thread that calls it.
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
