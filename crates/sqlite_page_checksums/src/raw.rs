//! A connection through SQLite's C interface, to create files with room for checksums.

#![allow(
    unsafe_code,
    reason = "SQLite has a C interface, and the driver gives no access to this part of it before it writes"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{null, null_mut};

use libsqlite3_sys as ffi;

use crate::checksum::RESERVED_BYTES;

/// An open database, which is closed on drop.
pub(crate) struct Raw(*mut ffi::sqlite3);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: it was opened, or at least made, and is closed once; no statement is left of it.
        unsafe { ffi::sqlite3_close(self.0) };
    }
}

impl Raw {
    /// Opens a file with SQLite's own VFS, without checksums; it may be created.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::open_through(path, None)
    }

    /// Opens a file with the VFS of this name.
    pub(crate) fn open_through(path: &Path, layer: Option<&CStr>) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
        let mut handle = null_mut();
        // SAFETY: both pointers are to what lives longer than the call.
        let outcome =
            unsafe { ffi::sqlite3_open_v2(name.as_ptr(), &raw mut handle, flags, layer.map_or(null(), CStr::as_ptr)) };
        let raw = Self(handle);
        raw.checked(outcome).map(|()| raw)
    }

    /// Reserves room for checksums in what is written from now on: into an empty file, or from this database into
    /// another.
    pub(crate) fn reserve(&self) -> Result<(), String> {
        let mut bytes = c_int::from(RESERVED_BYTES);
        // SAFETY: SQLite reads and writes one number at the pointer.
        let outcome = unsafe {
            ffi::sqlite3_file_control(
                self.0,
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_RESERVE_BYTES,
                (&raw mut bytes).cast::<c_void>(),
            )
        };
        self.checked(outcome)
    }

    /// Runs statements and returns the first column of their rows.
    pub(crate) fn run(&self, statements: &str) -> Result<Vec<String>, String> {
        let statements = CString::new(statements).map_err(|error| error.to_string())?;
        let mut rows: Vec<String> = Vec::new();
        // SAFETY: the text and the list outlive the call, and no other code uses them meanwhile.
        let outcome = unsafe {
            let to = (&raw mut rows).cast::<c_void>();
            ffi::sqlite3_exec(self.0, statements.as_ptr(), Some(take_row), to, null_mut())
        };
        self.checked(outcome).map(|()| rows)
    }

    fn checked(&self, outcome: c_int) -> Result<(), String> {
        if outcome == ffi::SQLITE_OK {
            return Ok(());
        }
        // SAFETY: the message is a text that ends with a zero and lasts until the next call; a copy is made of it.
        let message = unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(self.0)) };
        // SAFETY: the connection is open, or the failed opening of one.
        let outcome = unsafe { ffi::sqlite3_extended_errcode(self.0) };
        Err(format!("{} ({outcome})", message.to_string_lossy()))
    }
}

/// Takes a row from SQLite.
unsafe extern "C" fn take_row(
    rows: *mut c_void,
    columns: c_int,
    values: *mut *mut c_char,
    _: *mut *mut c_char,
) -> c_int {
    if columns > 0 {
        // SAFETY: the list is the one that `run` has given; there are as many values as columns; a value is NULL or a
        // text that ends with a zero.
        unsafe {
            let value = *values;
            let text =
                if value.is_null() { String::new() } else { CStr::from_ptr(value).to_string_lossy().into_owned() };
            (*rows.cast::<Vec<String>>()).push(text);
        }
    }
    ffi::SQLITE_OK
}
