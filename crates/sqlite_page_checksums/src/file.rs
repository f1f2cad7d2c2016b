//! An open file between SQLite and the file system: a database or a write-ahead log.

#![allow(unsafe_code, reason = "SQLite calls through tables of C functions")]

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

use libsqlite3_sys as ffi;

use crate::checksum::{PAGE_BYTES, Page, RESERVED_BYTES, fits, seal};
use crate::keeper::{Keeper, keeper};
use crate::log::{
    FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES, Salts, eight, frame_at, frame_offset, number,
};
use crate::watch::damaged;

/// Bytes that SQLite reads of a database before it knows the page size; it trusts only what it reads again as a page.
const PEEK_BYTES: usize = 100;
/// Offset in page 1 of the number of bytes reserved at the end of each page.
pub(crate) const RESERVED_AT: usize = 20;

/// The head of the memory that SQLite allocates for a file; the file of the system's VFS follows it.
#[repr(C)]
pub(crate) struct Shim {
    base: ffi::sqlite3_file,
    seen: *mut OpenFile,
}

/// The layer's state of an open file, by kind.
pub(crate) enum OpenFile {
    /// A database; in WAL mode, only checkpoints write to it.
    Database {
        path: PathBuf,
        keeper: Option<Arc<Keeper>>,
    },
    Log(LogWriter),
}

impl OpenFile {
    pub(crate) fn database(path: PathBuf) -> Self {
        Self::Database { keeper: keeper(&path), path }
    }

    /// Returns true if the file may still be written.
    fn may_be_written(&self) -> bool {
        let (Self::Database { keeper, .. } | Self::Log(LogWriter { keeper, .. })) = self;
        keeper.as_ref().is_none_or(|keeper| !keeper.has_failed())
    }
}

/// Writes of one connection to the write-ahead log.
pub(crate) struct LogWriter {
    pub(crate) path: PathBuf,
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// The frame whose header was written last; its page follows.
    headed: Option<u32>,
    /// The first frame of those that were overwritten within their transaction; their sums are wrong until its end.
    unsettled: Option<u32>,
    /// The last frame of a transaction, which is claimed as soon as it is durable.
    pending: Option<(Salts, u32)>,
}

impl LogWriter {
    pub(crate) fn new(path: PathBuf, keeper: Option<Arc<Keeper>>) -> Self {
        Self { path, keeper, headed: None, unsettled: None, pending: None }
    }

    /// Tracks a write that is about to happen. Returns false if it must not happen.
    fn before_write(&mut self, bytes: &[u8], at: u64) -> bool {
        let headed = self.headed.take();
        match (frame_at(at), bytes.len()) {
            (None, HEADER_BYTES) => {
                (self.unsettled, self.pending) = (None, None);
                return self.keeper.as_ref().is_none_or(|keeper| keeper.begin_anew(eight(bytes, 16)));
            }
            (Some((frame, 0)), FRAME_HEADER_BYTES) => self.header(bytes, frame),
            (Some((frame, FRAME_HEADER_BYTES)), PAGE_BYTES) if headed == Some(frame) => {
                // The frame is new: those behind it no longer belong to the log.
                if self.unsettled.is_some_and(|first| first >= frame) {
                    self.unsettled = None;
                }
            }
            (Some((frame, _)), _) => self.unsettled = Some(self.unsettled.map_or(frame, |first| first.min(frame))),
            (None, _) => {}
        }
        true
    }

    fn header(&mut self, bytes: &[u8], frame: u32) {
        self.headed = Some(frame);
        let Some(header) = bytes.first_chunk().map(FrameHeader::read) else { return };
        if header.commits {
            self.pending = Some((header.salts, frame));
        } else if self.pending.is_some_and(|(_, end)| end >= frame) {
            // That transaction has failed; another one takes its place.
            self.pending = None;
        }
    }

    /// Records that everything written so far is durable.
    fn synced(&mut self) {
        self.unsettled = None;
        if let (Some((salts, frame)), Some(keeper)) = (self.pending.take(), &self.keeper) {
            keeper.claim(salts, frame);
        }
    }
}

/// Bytes of the head; the memory after it is as well aligned as SQLite's own.
pub(crate) const SHIM_BYTES: usize = size_of::<Shim>();

/// Returns the system's file behind one of ours.
///
/// # Safety
/// The file is one that [`open`] was called for.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite has made room for both, because the VFS states this size.
    unsafe { file.byte_add(SHIM_BYTES) }
}

/// Returns the layer's state of a file.
///
/// # Safety
/// The same as for [`inner`]; SQLite calls no two methods of one file at a time.
unsafe fn seen<'a>(file: *mut ffi::sqlite3_file) -> &'a mut OpenFile {
    // SAFETY: `open` has put it there, and `close` alone takes it away.
    unsafe { &mut *(*file.cast::<Shim>()).seen }
}

/// Calls a method of the system's file. SQLite's own VFS has all of them; a missing one is an error.
macro_rules! forward {
    ($method:ident($file:expr $(, $argument:expr)*) else $none:expr) => {{
        // SAFETY: the file is ours and open, so the system's file behind it is open too, and its table is SQLite's own.
        unsafe {
            let inner = inner($file);
            match (*(*inner).pMethods).$method {
                Some(method) => method(inner $(, $argument)*),
                None => $none,
            }
        }
    }};
}

/// Turns an open file of the system into one of ours. SQLite ends it with [`close`].
///
/// # Safety
/// The memory at `file` is as long as the VFS has said, and the system's file at its end is open.
pub(crate) unsafe fn wrap(file: *mut ffi::sqlite3_file, seen: OpenFile) {
    // SAFETY: see above; the memory need not have been anything before.
    unsafe {
        let shim =
            Shim { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, seen: Box::into_raw(Box::new(seen)) };
        file.cast::<Shim>().write(shim);
    }
}

/// Returns the memory of the system's file within that of a file of ours, which is yet to be opened.
///
/// # Safety
/// The memory at `file` is as long as the VFS has said.
pub(crate) unsafe fn room_for_inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: see above.
    unsafe { inner(file) }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: what `wrap` has put there is taken away once: SQLite closes a file once.
    drop(unsafe { Box::from_raw((*file.cast::<Shim>()).seen) });
    forward!(xClose(file) else ffi::SQLITE_OK)
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, length: c_int, at: i64) -> c_int {
    let (Ok(length), Ok(at)) = (usize::try_from(length), u64::try_from(at)) else { return ffi::SQLITE_IOERR_READ };
    // SAFETY: SQLite gives room for as many bytes as it asks for; whatever is there is filled before it is looked at.
    let to = unsafe {
        to.write_bytes(0, length);
        from_raw_parts_mut(to.cast::<u8>(), length)
    };
    let from = |to: &mut [u8], at: u64| read_inner(file, to, at);
    // SAFETY: the file is ours.
    match unsafe { seen(file) } {
        OpenFile::Database { path, .. } => read_database(path, to, at, &from),
        OpenFile::Log(writing) => read_log(writing, to, at, &from),
    }
}

/// Reads from the system's file.
fn read_inner(file: *mut ffi::sqlite3_file, to: &mut [u8], at: u64) -> c_int {
    let (Ok(length), Ok(at)) = (c_int::try_from(to.len()), i64::try_from(at)) else { return ffi::SQLITE_IOERR_READ };
    forward!(xRead(file, to.as_mut_ptr().cast(), length, at) else ffi::SQLITE_IOERR_READ)
}

/// Reads a range of a database from pages that agree with their checksums.
fn read_database(path: &Path, to: &mut [u8], at: u64, from: &dyn Fn(&mut [u8], u64) -> c_int) -> c_int {
    if at == 0 && to.len() <= PEEK_BYTES {
        return from(to, at);
    }
    let (mut done, mut outcome) = (0, ffi::SQLITE_OK);
    while done < to.len() {
        let here = at + done as u64;
        let (number, skip) = (here / PAGE_BYTES as u64, (here % PAGE_BYTES as u64) as usize);
        let mut page: Page = [0; PAGE_BYTES];
        match from(&mut page, number * PAGE_BYTES as u64) {
            ffi::SQLITE_OK => {}
            // The file ends here; what was not read is zeros.
            ffi::SQLITE_IOERR_SHORT_READ => outcome = ffi::SQLITE_IOERR_SHORT_READ,
            failed => return failed,
        }
        if !fits(&page) {
            damaged(format!("page {} of {} does not fit to its checksum", number + 1, path.display()));
            return ffi::SQLITE_IOERR_DATA;
        }
        let piece = page.get(skip..).unwrap_or_default();
        let rest = to.get_mut(done..).unwrap_or_default();
        let length = piece.len().min(rest.len());
        rest.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
        done += length;
    }
    outcome
}

/// Reads a range of a write-ahead log. Verifies a page against the sums before it; SQLite itself verifies what it reads
/// together with headers.
fn read_log(writing: &LogWriter, to: &mut [u8], at: u64, from: &dyn Fn(&mut [u8], u64) -> c_int) -> c_int {
    let (frame, skip) = match frame_at(at) {
        Some((frame, within)) if within >= FRAME_HEADER_BYTES && within + to.len() <= FRAME_BYTES => {
            (frame, within - FRAME_HEADER_BYTES)
        }
        _ => return from(to, at),
    };
    if writing.unsettled.is_some_and(|first| frame >= first) {
        return from(to, at);
    }
    let mut page: Page = [0; PAGE_BYTES];
    let (mut head, mut before) = ([0; FRAME_HEADER_BYTES], [0; 8]);
    // The header of the log ends with its sums, as that of a frame does.
    let before_at =
        if frame == 1 { HEADER_BYTES as u64 - 8 } else { frame_offset(frame - 1) + FRAME_HEADER_BYTES as u64 - 8 };
    let begin = frame_offset(frame);
    for (to, at) in
        [(&mut page[..], begin + FRAME_HEADER_BYTES as u64), (&mut head[..], begin), (&mut before[..], before_at)]
    {
        match from(to, at) {
            ffi::SQLITE_OK => {}
            failed => return failed,
        }
    }
    if !FrameHeader::read(&head).follows((number(&before, 0), number(&before, 4)), &head, &page) {
        damaged(format!("frame {frame} of {} does not fit to its checksum", writing.path.display()));
        if let Some(keeper) = &writing.keeper {
            keeper.met_damage(frame);
        }
        return ffi::SQLITE_IOERR_DATA;
    }
    to.iter_mut().zip(page.iter().skip(skip)).for_each(|(to, from)| *to = *from);
    ffi::SQLITE_OK
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, length: c_int, at: i64) -> c_int {
    // The layer may have to pause here: a large transaction, like a checkpoint, writes page after page.
    let (Ok(size), Ok(offset)) = (usize::try_from(length), u64::try_from(at)) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: SQLite has as many bytes there as it says.
    let bytes = unsafe { from_raw_parts(from.cast::<u8>(), size) };
    // SAFETY: the file is ours.
    let seen = unsafe { seen(file) };
    if !seen.may_be_written() {
        return ffi::SQLITE_IOERR_WRITE;
    }
    match seen {
        OpenFile::Database { path, keeper } => {
            let Some(page) = sealed(bytes, offset) else {
                tracing::error!("a write of {size} bytes at {offset} to {} that is no page", path.display());
                return ffi::SQLITE_IOERR_WRITE;
            };
            if keeper.as_ref().is_some_and(|keeper| !keeper.may_carry()) {
                return ffi::SQLITE_IOERR_WRITE;
            }
            let outcome = forward!(xWrite(file, page.as_ptr().cast(), length, at) else ffi::SQLITE_IOERR_WRITE);
            if let (Some(keeper), false) = (keeper, outcome == ffi::SQLITE_OK) {
                keeper.checkpoint_failed(&format!("SQLite's error {outcome}"));
            }
            outcome
        }
        OpenFile::Log(writing) => {
            if writing.before_write(bytes, offset) {
                forward!(xWrite(file, from, length, at) else ffi::SQLITE_IOERR_WRITE)
            } else {
                ffi::SQLITE_IOERR_WRITE
            }
        }
    }
}

/// Returns the page with its checksum. `None` if the bytes are no page, or a page without room for a checksum.
fn sealed(bytes: &[u8], at: u64) -> Option<Page> {
    let mut page: Page = bytes.try_into().ok()?;
    let has_room = at != 0 || page.get(RESERVED_AT) == Some(&RESERVED_BYTES);
    if !at.is_multiple_of(PAGE_BYTES as u64) || !has_room {
        return None;
    }
    seal(&mut page);
    Some(page)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: the file is ours.
    let seen = unsafe { seen(file) };
    let may_be = match seen {
        OpenFile::Log(LogWriter { keeper: Some(keeper), .. }) if size == 0 => keeper.begin_anew(Salts::default()),
        seen => seen.may_be_written(),
    };
    if !may_be {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    forward!(xTruncate(file, size) else ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the file is ours.
    let seen = unsafe { seen(file) };
    if let (OpenFile::Database { .. }, false) = (&seen, seen.may_be_written()) {
        // Once it has failed, a sync that succeeds says nothing.
        return ffi::SQLITE_IOERR_FSYNC;
    }
    let outcome = forward!(xSync(file, flags) else ffi::SQLITE_IOERR_FSYNC);
    match seen {
        OpenFile::Log(writing) if outcome == ffi::SQLITE_OK => writing.synced(),
        OpenFile::Log(_) | OpenFile::Database { keeper: None, .. } => {}
        OpenFile::Database { keeper: Some(keeper), .. } if outcome == ffi::SQLITE_OK => keeper.has_carried(),
        OpenFile::Database { keeper: Some(keeper), path } => {
            keeper.fail(&format!("{} could not be synced (SQLite's error {outcome})", path.display()));
        }
    }
    outcome
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    forward!(xFileSize(file, size) else ffi::SQLITE_IOERR_FSTAT)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    forward!(xLock(file, level) else ffi::SQLITE_IOERR_LOCK)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    forward!(xUnlock(file, level) else ffi::SQLITE_IOERR_UNLOCK)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, is: *mut c_int) -> c_int {
    forward!(xCheckReservedLock(file, is) else ffi::SQLITE_IOERR_CHECKRESERVEDLOCK)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    forward!(xFileControl(file, what, argument) else ffi::SQLITE_NOTFOUND)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    forward!(xSectorSize(file) else PAGE_BYTES as c_int)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // Pages are read whole: a part of one would have to be read whole for its checksum anyway.
    forward!(xDeviceCharacteristics(file) else 0) & !ffi::SQLITE_IOCAP_SUBPAGE_READ
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    forward!(xShmMap(file, region, size, extend, to) else ffi::SQLITE_IOERR_SHMMAP)
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    forward!(xShmLock(file, first, count, flags) else ffi::SQLITE_IOERR_SHMLOCK)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    forward!(xShmBarrier(file) else ());
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    forward!(xShmUnmap(file, delete) else ffi::SQLITE_OK)
}

/// Refuses to map pages into memory, because they would be read without a check of their checksums.
unsafe extern "C" fn fetch(_: *mut ffi::sqlite3_file, _: i64, _: c_int, to: *mut *mut c_void) -> c_int {
    // SAFETY: SQLite asks where to find the page, and takes nowhere for an answer.
    unsafe { to.write(null_mut()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn unfetch(_: *mut ffi::sqlite3_file, _: i64, _: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};
