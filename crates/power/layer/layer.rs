//! A layer between a program and its files, loaded with `LD_PRELOAD`. Every call is passed on to the file system;
//! changes of files beneath one folder, and syncs, are appended to a journal in their order. On request the layer kills
//! the process just before its next change, as a power cut would. `disk.rs` of the crate makes possible disks of the
//! journal.
//!
//! The layer can also stop the monotonic clock of one thread, and shift the time of day.
//!
//! A sync is not passed on but takes the time that is set: the journal alone decides what survives.

#![allow(unsafe_code, reason = "it takes the place of functions of the C library")]

mod calls;
mod kind;
mod real;

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::fs::Metadata;
use std::os::fd::FromRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use kind::Kind;

/// Environment variable: the folder whose files are watched.
const ROOT: &str = "POWER_ROOT";
/// Environment variable: the journal file.
const JOURNAL: &str = "POWER_JOURNAL";
/// Environment variable: the file with the number of changes until the power fails, eight bytes, little-endian; 0 or
/// empty: not yet.
const FUSE: &str = "POWER_FUSE";
/// Environment variable: duration of a sync, in microseconds.
const SYNC: &str = "POWER_SYNC_MICROS";

/// Environment variables: the name of the thread whose clock stops, and the file whose existence stops it.
const CLOCK_THREAD: &str = "POWER_CLOCK_THREAD";
const CLOCK_STOPPED: &str = "POWER_CLOCK_STOPPED";
/// Environment variable: the file with the milliseconds by which the time of day is ahead, eight bytes, little-endian.
const CLOCK_SHIFT: &str = "POWER_CLOCK_SHIFT";

struct Layer {
    root: PathBuf,
    sync: Duration,
    state: Mutex<State>,
}

struct State {
    journal: c_int,
    fuse: c_int,
    /// Changes left until the power fails.
    left: Option<u64>,
    /// Number of records written so far.
    records: u64,
    /// Journal numbers of files, by device and inode.
    files: HashMap<(u64, u64), u64>,
    next_file: u64,
}

/// Returns the layer of this process, or `None` if its variables are not set.
fn layer() -> Option<&'static Layer> {
    static LAYER: OnceLock<Option<Layer>> = OnceLock::new();
    LAYER.get_or_init(Layer::from_environment).as_ref()
}

impl Layer {
    fn from_environment() -> Option<Self> {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let (root, journal, fuse) = (path(ROOT)?, path(JOURNAL)?, path(FUSE)?);
        let micros = std::env::var(SYNC).ok().and_then(|micros| micros.parse().ok()).unwrap_or(0);
        let state = State {
            journal: real::open_own(&journal, true)?,
            fuse: real::open_own(&fuse, false)?,
            left: None,
            records: 0,
            files: HashMap::new(),
            next_file: 1,
        };
        Some(Self { root, sync: Duration::from_micros(micros), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns a path relative to the root, or `None` if it lies elsewhere.
    fn beneath(&self, path: &Path) -> Option<PathBuf> {
        let path = if path.is_absolute() { path.to_owned() } else { std::env::current_dir().ok()?.join(path) };
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    plain.pop();
                }
                part => plain.push(part),
            }
        }
        plain.strip_prefix(&self.root).ok().map(Path::to_owned)
    }

    /// Returns the relative path of one given to the C library: relative to the working folder or to an open one.
    fn named(&self, folder: c_int, path: *const c_char) -> Option<PathBuf> {
        if path.is_null() {
            return None;
        }
        // SAFETY: whoever calls the C library gives it a text that ends with a zero.
        let path = unsafe { CStr::from_ptr(path) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        if folder == real::WORKING_FOLDER || path.is_absolute() {
            return self.beneath(path);
        }
        Some(self.place_of(folder)?.join(path))
    }

    /// Returns the path of an open file or folder, relative to the root.
    fn place_of(&self, fd: c_int) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let bytes = path.into_os_string().into_vec();
        let plain = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes);
        self.beneath(Path::new(OsStr::from_bytes(plain)))
    }
}

/// Returns true if the monotonic clock has stopped for the calling thread.
fn clock_has_stopped() -> bool {
    static STOPS: OnceLock<Option<(Vec<u8>, CString)>> = OnceLock::new();
    let stops = STOPS.get_or_init(|| {
        let text = |name: &str| std::env::var_os(name).map(OsString::into_vec);
        Some((text(CLOCK_THREAD)?, CString::new(text(CLOCK_STOPPED)?).ok()?))
    });
    stops.as_ref().is_some_and(|(thread, file)| real::is_this_thread(thread) && real::is_there(file))
}

/// Returns the milliseconds by which the time of day is ahead; negative if it is behind.
fn clock_shift() -> i64 {
    static FILE: OnceLock<Option<c_int>> = OnceLock::new();
    let file = FILE.get_or_init(|| real::open_own(Path::new(&std::env::var_os(CLOCK_SHIFT)?), false));
    file.and_then(real::number).map_or(0, u64::cast_signed)
}

/// Returns the metadata of an open file.
fn metadata(fd: c_int) -> Option<Metadata> {
    if fd < 0 {
        return None;
    }
    // SAFETY: it is only looked at, and not closed.
    let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    file.metadata().ok()
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl State {
    /// Counts a change or sync, and kills the process if the fuse is spent.
    fn spend(&mut self) {
        if self.left.is_none() {
            self.left = real::number(self.fuse).filter(|left| *left > 0);
        }
        let Some(left) = &mut self.left else { return };
        *left -= 1;
        if *left == 0 {
            real::end_this_process();
        }
    }

    fn write_down(&mut self, kind: Kind, a: u64, b: u64, bytes: &[u8]) {
        let mut record = Vec::with_capacity(21 + bytes.len());
        record.push(kind as u8);
        record.extend_from_slice(&a.to_le_bytes());
        record.extend_from_slice(&b.to_le_bytes());
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(bytes);
        if !real::write_all(self.journal, &record) {
            // A journal with a gap would report losses that did not happen.
            real::end_this_process();
        }
        self.records += 1;
    }

    fn path(&mut self, kind: Kind, a: u64, b: u64, path: &Path) {
        self.write_down(kind, a, b, path.as_os_str().as_bytes());
    }

    fn paths(&mut self, kind: Kind, one: &Path, other: &Path) {
        let both = [one.as_os_str().as_bytes(), other.as_os_str().as_bytes()].join(&0);
        self.write_down(kind, 0, 0, &both);
    }

    /// Registers a file that was just made under a new number, as inodes are reused.
    fn created(&mut self, fd: c_int, path: &Path) {
        let Some(metadata) = metadata(fd) else { return };
        let number = self.number(&metadata);
        self.path(Kind::Created, number, 0, path);
    }

    fn number(&mut self, metadata: &Metadata) -> u64 {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(identity(metadata), number);
        number
    }

    /// Returns the number and metadata of an open file, or `None` if it is not watched.
    fn file(&mut self, layer: &Layer, fd: c_int) -> Option<(u64, Metadata)> {
        let metadata = metadata(fd).filter(Metadata::is_file)?;
        if let Some(number) = self.files.get(&identity(&metadata)) {
            return Some((*number, metadata));
        }
        let path = layer.place_of(fd)?;
        let number = self.number(&metadata);
        self.path(Kind::Known, number, 0, &path);
        Some((number, metadata))
    }
}

/// Handles a sync: writes before its start are durable when it returns.
#[expect(clippy::disallowed_methods, reason = "a program under test has a disk that takes its time")]
fn sync(fd: c_int, pass_on: impl FnOnce() -> c_int) -> c_int {
    let Some(layer) = layer() else { return pass_on() };
    let mut state = layer.state();
    let folder = metadata(fd).filter(Metadata::is_dir).and_then(|_| layer.place_of(fd));
    let file = if folder.is_none() { state.file(layer, fd) } else { None };
    if folder.is_none() && file.is_none() {
        drop(state);
        return pass_on();
    }
    state.spend();
    let before = state.records;
    drop(state);
    std::thread::sleep(layer.sync);
    let mut state = layer.state();
    state.spend();
    match (folder, file) {
        (Some(folder), _) => state.path(Kind::FolderSynced, 0, before, &folder),
        (None, Some((number, _))) => state.write_down(Kind::Synced, number, before, &[]),
        (None, None) => {}
    }
    0
}

/// Handles a write to an open file; `at` is `None` for the current position.
fn write(fd: c_int, at: Option<u64>, pieces: &[&[u8]], pass_on: impl FnOnce() -> isize) -> isize {
    let Some(layer) = layer() else { return pass_on() };
    // Sockets and pipes, the majority, need no lock.
    if !metadata(fd).is_some_and(|metadata| metadata.is_file()) {
        return pass_on();
    }
    let mut state = layer.state();
    let Some((number, metadata)) = state.file(layer, fd) else {
        drop(state);
        return pass_on();
    };
    state.spend();
    let at = at.unwrap_or_else(|| if real::appends(fd) { metadata.len() } else { real::position(fd) });
    let written = pass_on();
    if let Ok(count @ 1..) = usize::try_from(written) {
        let mut bytes = pieces.concat();
        bytes.truncate(count);
        state.write_down(Kind::Written, number, at, &bytes);
    }
    written
}

/// Handles a change of a file's length. `length` computes the new one from the old; `None` keeps it.
fn cut(fd: c_int, length: impl FnOnce(u64) -> Option<u64>, pass_on: impl FnOnce() -> c_int) -> c_int {
    let Some(layer) = layer() else { return pass_on() };
    let mut state = layer.state();
    let Some((number, metadata)) = state.file(layer, fd) else {
        drop(state);
        return pass_on();
    };
    state.spend();
    let outcome = pass_on();
    if outcome == 0
        && let Some(length) = length(metadata.len())
    {
        state.write_down(Kind::Cut, number, length, &[]);
    }
    outcome
}

/// Handles an open that may create or truncate a file.
fn open(folder: c_int, path: *const c_char, empties: bool, pass_on: impl FnOnce() -> c_int) -> c_int {
    let Some((layer, place)) = layer().and_then(|layer| Some((layer, layer.named(folder, path)?))) else {
        return pass_on();
    };
    let mut state = layer.state();
    let was_there = std::fs::symlink_metadata(layer.root.join(&place)).is_ok();
    if !was_there || empties {
        state.spend();
    }
    let fd = pass_on();
    if fd >= 0 && !was_there {
        state.created(fd, &place);
    } else if fd >= 0
        && empties
        && let Some((number, _)) = state.file(layer, fd)
    {
        state.write_down(Kind::Cut, number, 0, &[]);
    }
    fd
}

/// A path, and the open folder that it is relative to.
type Name = (c_int, *const c_char);

/// Handles a rename or a hard link.
fn two_names(kind: Kind, from: Name, to: Name, pass_on: impl FnOnce() -> c_int) -> c_int {
    let Some(layer) = layer() else { return pass_on() };
    let (from, to) = (layer.named(from.0, from.1), layer.named(to.0, to.1));
    // A link to a path outside, as backups make them, changes nothing here.
    let is_copy = matches!(kind, Kind::Linked) && to.is_none();
    if is_copy || (from.is_none() && to.is_none()) {
        return pass_on();
    }
    let mut state = layer.state();
    state.spend();
    let outcome = pass_on();
    if outcome == 0 {
        match (from, to) {
            (Some(from), Some(to)) => state.paths(kind, &from, &to),
            _ => state.write_down(Kind::Strange, 0, 0, b"a name crosses the root"),
        }
    }
    outcome
}

/// Handles the creation or removal of a name.
fn one_name(kind: Kind, folder: c_int, path: *const c_char, pass_on: impl FnOnce() -> c_int) -> c_int {
    let Some((layer, place)) = layer().and_then(|layer| Some((layer, layer.named(folder, path)?))) else {
        return pass_on();
    };
    let mut state = layer.state();
    state.spend();
    let outcome = pass_on();
    if outcome == 0 {
        state.path(kind, 0, 0, &place);
    }
    outcome
}
