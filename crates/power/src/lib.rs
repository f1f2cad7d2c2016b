//! What a program has on its disk after a power cut, what it does when its clock stops, and how its tests wait.
//!
//! A program under test is started with a layer between it and its files ([`Layer::under`]), which writes every change
//! beneath one folder down, and every sync. When the power fails, [`Disk`] reads that journal, and makes up a folder as the
//! disk might hold it: what was synced is there; of everything else any part may be missing or torn.

mod chance;
mod disk;
mod journal;
mod settled;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use chance::Chance;
pub use disk::{Disk, Names, Outage};
pub use settled::{PATIENCE, becomes, becomes_blocking, settled, settled_blocking, within_patience};

/// The library that is loaded into the program.
const LIBRARY: &str = env!("LAYER");

/// A clock that stops for one thread of a program: asked for the time that has run, the C library fails, and Rust's standard
/// library panics where it asked. So a thread can panic that nothing a program is given would have panic.
#[derive(Debug)]
pub struct StoppingClock {
    thread: &'static str,
    stopped: PathBuf,
}

impl StoppingClock {
    /// For the thread of this name, of 15 bytes at most. It is told by a file in `notes`.
    #[must_use]
    pub fn of_thread(thread: &'static str, notes: &Path) -> Self {
        Self { thread, stopped: notes.join("stopped") }
    }

    /// Has the program go by it.
    pub fn under(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", LIBRARY)
            .env("POWER_CLOCK_THREAD", self.thread)
            .env("POWER_CLOCK_STOPPED", &self.stopped);
    }

    /// The clock stops.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn stop(&self) -> io::Result<()> {
        File::create(&self.stopped).map(|_| ())
    }
}

/// The layer of one program: where it watches, and where it writes down what it sees.
#[derive(Debug)]
pub struct Layer {
    root: PathBuf,
    journal: PathBuf,
    fuse: File,
    fuse_path: PathBuf,
    sync: Duration,
}

impl Layer {
    /// For a program whose files are beneath `root`, a folder as the system names it. What the layer itself writes is put
    /// into `notes`, which lies elsewhere. A sync takes as long as `sync`.
    ///
    /// # Errors
    /// The files cannot be made.
    pub fn new(root: &Path, notes: &Path, sync: Duration) -> io::Result<Self> {
        let (journal, fuse_path) = (notes.join("journal"), notes.join("fuse"));
        File::create(&journal)?;
        let fuse = File::create(&fuse_path)?;
        Ok(Self { root: root.to_owned(), journal, fuse, fuse_path, sync })
    }

    /// Has the program run on the layer.
    pub fn under(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", LIBRARY)
            .env("POWER_ROOT", &self.root)
            .env("POWER_JOURNAL", &self.journal)
            .env("POWER_FUSE", &self.fuse_path)
            .env("POWER_SYNC_MICROS", self.sync.as_micros().to_string());
    }

    /// The power fails before the program's `changes`th change from now on: 1 is the next. Syncs count twice, when they
    /// begin and when they end. Said once: it cannot be put off.
    ///
    /// # Errors
    /// The fuse cannot be written.
    pub fn cut_after(&self, changes: u64) -> io::Result<()> {
        self.fuse.write_all_at(&changes.to_le_bytes(), 0)
    }

    /// What there was to be read of the program's changes when it has ended; `before` holds the folder as it was when the
    /// program began.
    ///
    /// # Errors
    /// The journal or the folder cannot be read, or tells of what no disk can be made of.
    pub fn disk(&self, before: &Path) -> io::Result<Disk> {
        Disk::read(before, std::fs::read(&self.journal)?)
    }
}
