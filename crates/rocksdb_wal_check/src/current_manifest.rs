//! The manifest that RocksDB has in use, and the number of its bytes that are synced; queried after every sync of the
//! log. Its file stays open, so that a process without free file descriptors can still record what is durable.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::manifest::{CURRENT, named};

/// The errors of the system when it, or the process, has no free file descriptors: `ENFILE`, `EMFILE`.
const NO_FILES: [i32; 2] = [23, 24];

/// Identifies a version of the file CURRENT: its inode, and the time of its change.
type Stamp = (u64, i64, i64);

/// The manifest in use.
pub struct CurrentManifest {
    folder: PathBuf,
    current: Option<Stamp>,
    file: Option<File>,
    number: u64,
    synced: u64,
}

impl CurrentManifest {
    /// Creates the value for a database, without any I/O.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), current: None, file: None, number: 0, synced: 0 }
    }

    /// Returns the manifest's number and the number of its bytes that are synced; syncs them if there are more than
    /// before. Both are 0 if there is no manifest yet. A newer manifest that cannot be opened for want of file
    /// descriptors is queried the next time: the result is then a lower bound, as it always may be.
    pub fn look(&mut self) -> io::Result<(u64, u64)> {
        match self.follow() {
            Err(error) if error.raw_os_error().is_some_and(|code| NO_FILES.contains(&code)) => {}
            // RocksDB is about to replace it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            followed => followed?,
        }
        if let Some(file) = &self.file {
            let length = file.metadata()?.len();
            if length != self.synced {
                // RocksDB may be within its own sync: the note must not be ahead of the disk.
                file.sync_data()?;
                self.synced = length;
            }
        }
        Ok((self.number, self.synced))
    }

    /// Opens the manifest that CURRENT names, if CURRENT was replaced.
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
