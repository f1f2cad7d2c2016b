//! Power cuts, stopped and wrong clocks for programs under test, and helpers with which tests wait.
//!
//! A program is started with a layer between it and its files ([`Layer::under`]), which journals every change beneath
//! one folder and every sync. After a power cut, [`Disk`] reads the journal and makes folders as the disk might hold
//! them: synced data is there; any part of the rest may be missing or torn.

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

/// Path of the library that is preloaded into the program.
const LIBRARY: &str = env!("LAYER");

/// A monotonic clock that stops for one thread: the C library's call fails, and Rust's standard library panics. This
/// makes a thread panic that no input would.
#[derive(Debug)]
pub struct StoppingClock {
    thread: &'static str,
    stopped: PathBuf,
}

impl StoppingClock {
    /// Makes a clock for the thread of this name, of 15 bytes at most. A file in `notes` stops it.
    #[must_use]
    pub fn of_thread(thread: &'static str, notes: &Path) -> Self {
        Self { thread, stopped: notes.join("stopped") }
    }

    /// Starts the program with this clock.
    pub fn under(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", LIBRARY)
            .env("POWER_CLOCK_THREAD", self.thread)
            .env("POWER_CLOCK_STOPPED", &self.stopped);
    }

    /// Stops the clock.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn stop(&self) -> io::Result<()> {
        File::create(&self.stopped).map(|_| ())
    }
}

/// A clock that is wrong by as much as a test chooses while the program runs. Durations are measured rightly.
#[derive(Debug)]
pub struct WrongClock {
    shift: File,
    path: PathBuf,
}

impl WrongClock {
    /// Makes a clock that is right for now, with its file at `path`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { shift: File::create(path)?, path: path.to_owned() })
    }

    /// Starts the program with this clock.
    pub fn under(&self, command: &mut Command) {
        command.env("LD_PRELOAD", LIBRARY).env("POWER_CLOCK_SHIFT", &self.path);
    }

    /// Sets the clock ahead by so many milliseconds, or behind by a negative number; 0 makes it right again.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_ahead(&self, millis: i64) -> io::Result<()> {
        self.shift.write_all_at(&millis.to_le_bytes(), 0)
    }
}

/// The layer of one program: the folder that it watches and the files that it writes.
#[derive(Debug)]
pub struct Layer {
    root: PathBuf,
    journal: PathBuf,
    fuse: File,
    fuse_path: PathBuf,
    sync: Duration,
}

impl Layer {
    /// Makes a layer for a program whose files are beneath `root`, a canonical path. The layer's own files go into
    /// `notes`, which must lie elsewhere. A sync takes `sync`.
    ///
    /// # Errors
    /// The files cannot be made.
    pub fn new(root: &Path, notes: &Path, sync: Duration) -> io::Result<Self> {
        let (journal, fuse_path) = (notes.join("journal"), notes.join("fuse"));
        File::create(&journal)?;
        let fuse = File::create(&fuse_path)?;
        Ok(Self { root: root.to_owned(), journal, fuse, fuse_path, sync })
    }

    /// Starts the program with this layer.
    pub fn under(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", LIBRARY)
            .env("POWER_ROOT", &self.root)
            .env("POWER_JOURNAL", &self.journal)
            .env("POWER_FUSE", &self.fuse_path)
            .env("POWER_SYNC_MICROS", self.sync.as_micros().to_string());
    }

    /// Cuts the power before the program's `changes`th change from now on: 1 is the next. A sync counts twice, at its
    /// start and at its end. Cannot be postponed.
    ///
    /// # Errors
    /// The fuse cannot be written.
    pub fn cut_after(&self, changes: u64) -> io::Result<()> {
        self.fuse.write_all_at(&changes.to_le_bytes(), 0)
    }

    /// Reads the changes of the program after it has ended; `before` holds the folder as it was when the program began.
    ///
    /// # Errors
    /// The journal or the folder cannot be read, or has records that no disk can be made of.
    pub fn disk(&self, before: &Path) -> io::Result<Disk> {
        Disk::read(before, std::fs::read(&self.journal)?)
    }
}
