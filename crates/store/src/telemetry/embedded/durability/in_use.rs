//! The manifest that RocksDB has in use, and how much of it is synced: looked at after every sync of the log. It stays open,
//! so that the look needs no file of its own: a process that has run out of them goes on noting what is durable.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::manifest::{CURRENT, named};

/// What the system says where the process, or the system itself, has no more files to give: `ENFILE`, `EMFILE`.
const NO_FILES: [i32; 2] = [23, 24];

/// What distinguishes CURRENT from the file that replaced it: its number, and when it was changed.
type Stamp = (u64, i64, i64);

/// The manifest in use.
pub struct InUse {
    folder: PathBuf,
    current: Option<Stamp>,
    file: Option<File>,
    number: u64,
    synced: u64,
}

impl InUse {
    /// The one of this database.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), current: None, file: None, number: 0, synced: 0 }
    }

    /// Its number, and its bytes that are synced now: all of them, if they have become more. Both 0, if there was none yet.
    /// A newer one that cannot be opened for want of files is looked at the next time: what is reported is less than what is
    /// true then, which it always may be.
    pub fn look(&mut self) -> io::Result<(u64, u64)> {
        match self.follow() {
            Err(error) if error.raw_os_error().is_some_and(|code| NO_FILES.contains(&code)) => {}
            // RocksDB is about to put another one in its place.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            followed => followed?,
        }
        if let Some(file) = &self.file {
            let length = file.metadata()?.len();
            if length != self.synced {
                // RocksDB may be within its own sync: what is noted must not be ahead of the disk.
                file.sync_data()?;
                self.synced = length;
            }
        }
        Ok((self.number, self.synced))
    }

    /// Opens the one that CURRENT names, if CURRENT is another one than it was.
    fn follow(&mut self) -> io::Result<()> {
        let path = self.folder.join(CURRENT);
        let found = std::fs::metadata(&path)?;
        let stamp = (found.ino(), found.ctime(), found.ctime_nsec());
        if self.current == Some(stamp) {
            return Ok(());
        }
        let text = std::fs::read(&path)?;
        let Some((name, number)) = named(&text) else { return Err(ErrorKind::NotFound.into()) };
        let file = File::open(self.folder.join(name))?;
        (self.current, self.number, self.synced, self.file) = (Some(stamp), number, 0, Some(file));
        Ok(())
    }
}
