//! The VFS of the layer. It passes on all calls that are of no interest to it to the system's VFS.

#![allow(unsafe_code, reason = "SQLite knows its layers as tables of C functions")]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libsqlite3_sys as ffi;

use crate::file::{LogWriter, OpenFile, SHIM_BYTES, room_for_inner, wrap};
use crate::keeper::keeper;
use crate::log::Salts;
use crate::paths::LOG_END;

/// Name of the VFS. Open a database that [`prepare`](crate::prepare) has prepared with it, for example as
/// `file:name?vfs=sqlite_page_checksums`.
pub const VFS: &str = "sqlite_page_checksums";
pub(crate) const C_NAME: &CStr = c"sqlite_page_checksums";

/// Registers the VFS with SQLite, once. Returns false if SQLite has no VFS of its own to build on.
pub(crate) fn register() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        // SAFETY: SQLite's own layer is found by no name and lives as long as the process; a copy of its table, which
        // keeps all its functions but two, is given to SQLite for good.
        unsafe {
            let system = ffi::sqlite3_vfs_find(std::ptr::null());
            let Some(table) = system.as_ref() else { return false };
            let Some(size) = c_int::try_from(SHIM_BYTES).ok().and_then(|own| own.checked_add(table.szOsFile)) else {
                return false;
            };
            let ours = ffi::sqlite3_vfs {
                szOsFile: size,
                pNext: std::ptr::null_mut(),
                zName: C_NAME.as_ptr(),
                xOpen: Some(open),
                xDelete: Some(delete),
                ..*table
            };
            ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 0) == ffi::SQLITE_OK
        }
    })
}

/// Returns the system's VFS.
fn system() -> *mut ffi::sqlite3_vfs {
    // SAFETY: no name asks for the default, which ours never is.
    unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) }
}

/// Converts a path of SQLite.
///
/// # Safety
/// The name ends with a zero, or is none.
unsafe fn path(name: *const c_char) -> Option<PathBuf> {
    // SAFETY: see above.
    (!name.is_null()).then(|| PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
}

/// Returns the database of a write-ahead log.
fn database_of(log: &Path) -> Option<&Path> {
    log.as_os_str().as_bytes().strip_suffix(LOG_END.as_bytes()).map(|name| Path::new(OsStr::from_bytes(name)))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    opened: *mut c_int,
) -> c_int {
    // SAFETY: SQLite names its files so.
    let named = unsafe { path(name) };
    let seen = match named {
        Some(path) if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 => Some(OpenFile::database(path)),
        Some(path) if flags & ffi::SQLITE_OPEN_WAL != 0 => {
            let keeper = database_of(&path).and_then(keeper);
            Some(OpenFile::Log(LogWriter::new(path, keeper)))
        }
        // Journals and temporary files hold nothing that must last.
        _ => None,
    };
    // SAFETY: SQLite's own layer opens its file in memory that is as long as it needs; ours asked for more.
    unsafe {
        let system = system();
        let Some(open) = system.as_ref().and_then(|system| system.xOpen) else { return ffi::SQLITE_CANTOPEN };
        let Some(seen) = seen else { return open(system, name, file, flags, opened) };
        (*file).pMethods = std::ptr::null();
        let outcome = open(system, name, room_for_inner(file), flags, opened);
        if outcome == ffi::SQLITE_OK {
            wrap(file, seen);
        }
        outcome
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite names its files so.
    let named = unsafe { path(name) };
    if let Some(keeper) = named.as_deref().and_then(database_of).and_then(keeper)
        && !keeper.begin_anew(Salts::default())
    {
        return ffi::SQLITE_IOERR_DELETE;
    }
    let system = system();
    // SAFETY: the layer is SQLite's own.
    match unsafe { system.as_ref() }.and_then(|system| system.xDelete) {
        // SAFETY: as above, and the name is SQLite's.
        Some(delete) => unsafe { delete(system, name, sync) },
        None => ffi::SQLITE_IOERR_DELETE,
    }
}
