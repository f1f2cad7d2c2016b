//! A layer between a program and its files, loaded into it with `LD_PRELOAD`. Everything goes through to the file system;
//! what changes files beneath one folder is written down in a journal on the way, in the order in which it happened, and
//! so is every sync. When it is told to, the layer ends the process just before it would change something more: the power
//! fails. From the journal, a disk can be made up that has not got all of it (`disk.rs` of the crate).
//!
//! Apart from that, the clock that durations are measured by can stop for one thread.
//!
//! A sync is not passed on, but takes the time that it is told to take: what survives is decided by the journal alone.

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

/// The folder whose files are watched.
const ROOT: &str = "POWER_ROOT";
/// The file that the journal is written to.
const JOURNAL: &str = "POWER_JOURNAL";
/// The file that says after how many more changes the power fails: a number as eight bytes, little-endian; 0 or nothing: not yet.
const FUSE: &str = "POWER_FUSE";
/// Microseconds that a sync takes.
const SYNC: &str = "POWER_SYNC_MICROS";

/// The thread for which the clock stops, by its name, and the file that is there from then on.
const CLOCK_THREAD: &str = "POWER_CLOCK_THREAD";
const CLOCK_STOPPED: &str = "POWER_CLOCK_STOPPED";

struct Layer {
    root: PathBuf,
    sync: Duration,
    state: Mutex<State>,
}

struct State {
    journal: c_int,
    fuse: c_int,
    /// Changes until the power fails.
    left: Option<u64>,
    /// Records written so far.
    records: u64,
    /// The journal's numbers of files, by device and inode.
    files: HashMap<(u64, u64), u64>,
    next_file: u64,
}

/// The layer of this process; none: it was not asked for.
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

    /// The path beneath the root, without the root; none if it lies elsewhere.
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

    /// The same for a path as the C library is given it: from the working folder, or from an open one.
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

    /// Where an open file or folder is found beneath the root.
    fn place_of(&self, fd: c_int) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let bytes = path.into_os_string().into_vec();
        let plain = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes);
        self.beneath(Path::new(OsStr::from_bytes(plain)))
    }
}

/// Whether there is a clock that measures durations no more, for the thread that asks it.
fn clock_has_stopped() -> bool {
    static STOPS: OnceLock<Option<(Vec<u8>, CString)>> = OnceLock::new();
    let stops = STOPS.get_or_init(|| {
        let text = |name: &str| std::env::var_os(name).map(OsString::into_vec);
        Some((text(CLOCK_THREAD)?, CString::new(text(CLOCK_STOPPED)?).ok()?))
    });
    stops.as_ref().is_some_and(|(thread, file)| real::is_this_thread(thread) && real::is_there(file))
}

/// What an open file is.
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
    /// Before anything changes, and after a sync: the power may fail here.
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
            // A journal with a hole would tell of losses that there are not.
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

    /// A file that was just made: a number of its own, whoever had its inode before.
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

    /// The number of an open file, and what it is; none: it is none of ours.
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

/// A sync: what was written before it began is on the disk when it ends.
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

/// Something was written to an open file; `at` none: where the file stands.
fn write(fd: c_int, at: Option<u64>, pieces: &[&[u8]], pass_on: impl FnOnce() -> isize) -> isize {
    let Some(layer) = layer() else { return pass_on() };
    // Sockets and pipes, which are most of it, wait for nobody.
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

/// A file gets a length. `length` says which, by the one that it has; none: it keeps it.
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

/// A file is opened in a way that may make or empty it.
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

/// A path, and the open folder that it begins in.
type Name = (c_int, *const c_char);

/// A name changes, or a file gets another one.
fn two_names(kind: Kind, from: Name, to: Name, pass_on: impl FnOnce() -> c_int) -> c_int {
    let Some(layer) = layer() else { return pass_on() };
    let (from, to) = (layer.named(from.0, from.1), layer.named(to.0, to.1));
    // What is linked from elsewhere changes nothing here: a backup is made so.
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

/// A name comes or goes.
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
