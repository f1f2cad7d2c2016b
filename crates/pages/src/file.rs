//! An open file of SQLite, seen from between SQLite and the file system: a database or a write-ahead log.

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

/// SQLite looks at as much of a database before it knows how large pages are, and believes only the page itself.
const PEEK_BYTES: usize = 100;
/// Where page 1 says how many bytes at each page's end are reserved.
pub(crate) const RESERVED_AT: usize = 20;

/// What SQLite holds: memory that it has made itself, as large as this and the system's own file, which lies behind.
#[repr(C)]
pub(crate) struct Shim {
    base: ffi::sqlite3_file,
    seen: *mut Seen,
}

/// Of what kind the file is, and what is known of it.
pub(crate) enum Seen {
    /// In a write-ahead log's time it is written by checkpoints alone.
    Database {
        path: PathBuf,
        keeper: Option<Arc<Keeper>>,
    },
    Log(Writing),
}

impl Seen {
    pub(crate) fn database(path: PathBuf) -> Self {
        Self::Database { keeper: keeper(&path), path }
    }

    /// Whether anything may still be written.
    fn may_be_written(&self) -> bool {
        let (Self::Database { keeper, .. } | Self::Log(Writing { keeper, .. })) = self;
        keeper.as_ref().is_none_or(|keeper| !keeper.has_failed())
    }
}

/// What one connection does to the write-ahead log.
pub(crate) struct Writing {
    pub(crate) path: PathBuf,
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// The frame whose header was written last: its page follows.
    headed: Option<u32>,
    /// From this frame on, pages were written over others of the same transaction: the sums are set right at its end.
    unsettled: Option<u32>,
    /// The end of a transaction, which may be claimed as soon as it is durable.
    pending: Option<(Salts, u32)>,
}

impl Writing {
    pub(crate) fn new(path: PathBuf, keeper: Option<Arc<Keeper>>) -> Self {
        Self { path, keeper, headed: None, unsettled: None, pending: None }
    }

    /// Looks at what is about to be written. False: it must not be.
    fn before_write(&mut self, bytes: &[u8], at: u64) -> bool {
        let headed = self.headed.take();
        match (frame_at(at), bytes.len()) {
            (None, HEADER_BYTES) => {
                (self.unsettled, self.pending) = (None, None);
                return self.keeper.as_ref().is_none_or(|keeper| keeper.begin_anew(eight(bytes, 16)));
            }
            (Some((frame, 0)), FRAME_HEADER_BYTES) => self.header(bytes, frame),
            (Some((frame, FRAME_HEADER_BYTES)), PAGE_BYTES) if headed == Some(frame) => {
                // A new frame. What lay behind it is no longer part of the log.
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

    /// All that was written is durable.
    fn synced(&mut self) {
        self.unsettled = None;
        if let (Some((salts, frame)), Some(keeper)) = (self.pending.take(), &self.keeper) {
            keeper.claim(salts, frame);
        }
    }
}

/// How long what is put before the system's own file is; it is as well aligned as memory from SQLite.
pub(crate) const SHIM_BYTES: usize = size_of::<Shim>();

/// The system's file behind one of ours.
///
/// # Safety
/// The file is one that [`open`] was called for.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite has made room for both, as the VFS has told it.
    unsafe { file.byte_add(SHIM_BYTES) }
}

/// What is known of a file.
///
/// # Safety
/// As for [`inner`]; SQLite calls no two methods of one file at a time.
unsafe fn seen<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Seen {
    // SAFETY: `open` has put it there, and `close` alone takes it away.
    unsafe { &mut *(*file.cast::<Shim>()).seen }
}

/// Calls a method of the system's file. All that SQLite's own VFS has are there; one that is not is an error.
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

/// Makes an open file of the system's one of ours. SQLite ends it with [`close`].
///
/// # Safety
/// The memory at `file` is as long as the VFS has said, and the system's file at its end is open.
pub(crate) unsafe fn wrap(file: *mut ffi::sqlite3_file, seen: Seen) {
    // SAFETY: see above; the memory need not have been anything before.
    unsafe {
        let shim =
            Shim { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, seen: Box::into_raw(Box::new(seen)) };
        file.cast::<Shim>().write(shim);
    }
}

/// Where the system's file lies that belongs to a file of ours which is yet to be opened.
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
        Seen::Database { path, .. } => read_database(path, to, at, &from),
        Seen::Log(writing) => read_log(writing, to, at, &from),
    }
}

/// Reads from the system's file.
fn read_inner(file: *mut ffi::sqlite3_file, to: &mut [u8], at: u64) -> c_int {
    let (Ok(length), Ok(at)) = (c_int::try_from(to.len()), i64::try_from(at)) else { return ffi::SQLITE_IOERR_READ };
    forward!(xRead(file, to.as_mut_ptr().cast(), length, at) else ffi::SQLITE_IOERR_READ)
}

/// Reads a piece of a database out of pages that fit to their checksums.
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

/// Reads a piece of a write-ahead log. A page is held against the sums before it; who reads headers holds them himself.
fn read_log(writing: &Writing, to: &mut [u8], at: u64, from: &dyn Fn(&mut [u8], u64) -> c_int) -> c_int {
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
    // A large change is written page by page, and so is what is carried into the file.
    isobar_threads::rest_at_times();
    let (Ok(size), Ok(offset)) = (usize::try_from(length), u64::try_from(at)) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: SQLite has as many bytes there as it says.
    let bytes = unsafe { from_raw_parts(from.cast::<u8>(), size) };
    // SAFETY: the file is ours.
    let seen = unsafe { seen(file) };
    if !seen.may_be_written() {
        return ffi::SQLITE_IOERR_WRITE;
    }
    match seen {
        Seen::Database { path, keeper } => {
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
        Seen::Log(writing) => {
            if writing.before_write(bytes, offset) {
                forward!(xWrite(file, from, length, at) else ffi::SQLITE_IOERR_WRITE)
            } else {
                ffi::SQLITE_IOERR_WRITE
            }
        }
    }
}

/// A page with its checksum. None: these bytes are no page, or one that has no room for it.
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
        Seen::Log(Writing { keeper: Some(keeper), .. }) if size == 0 => keeper.begin_anew(Salts::default()),
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
    if let (Seen::Database { .. }, false) = (&seen, seen.may_be_written()) {
        // Once it has failed, a sync that succeeds says nothing.
        return ffi::SQLITE_IOERR_FSYNC;
    }
    let outcome = forward!(xSync(file, flags) else ffi::SQLITE_IOERR_FSYNC);
    match seen {
        Seen::Log(writing) if outcome == ffi::SQLITE_OK => writing.synced(),
        Seen::Log(_) | Seen::Database { keeper: None, .. } => {}
        Seen::Database { keeper: Some(keeper), .. } if outcome == ffi::SQLITE_OK => keeper.has_carried(),
        Seen::Database { keeper: Some(keeper), path } => {
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

/// Nothing is mapped: it would be read past the checksums.
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
