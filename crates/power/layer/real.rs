//! The original functions of the C library, looked up behind the layer's replacements.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `AT_FDCWD`.
pub const WORKING_FOLDER: c_int = -100;
/// Flags of Linux, the same on all supported processors.
pub const CREATES: c_int = 0o100;
pub const EMPTIES: c_int = 0o1000;
const APPENDS: c_int = 0o2000;
const CLOSES_ON_EXEC: c_int = 0o2_000_000;
const WRITES: c_int = 1;
const GET_FLAGS: c_int = 3;
const FROM_HERE: c_int = 1;
const KILL: c_int = 9;
/// `PR_GET_NAME`, and the bytes that a thread's name takes with the zero at its end.
const GET_NAME: c_int = 16;
const NAME_BYTES: usize = 16;
/// `RTLD_NEXT`: the symbol's definition behind this library.
const NEXT: *mut c_void = -1_isize as *mut c_void;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn lseek(fd: c_int, offset: c_long, from: c_int) -> c_long;
    fn pread(fd: c_int, bytes: *mut c_void, count: usize, at: c_long) -> isize;
    fn getpid() -> c_int;
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
}

/// A symbol of the C library, looked up once.
pub struct Symbol(AtomicPtr<c_void>);

impl Symbol {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the address of the symbol; aborts if there is none.
    pub fn find(&self, name: &CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { dlsym(NEXT, name.as_ptr()) };
        if found.is_null() {
            std::process::abort();
        }
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// Looks up a function of the C library with its type.
macro_rules! real {
    ($name:ident($($type:ty),*) -> $out:ty) => {{
        static SYMBOL: $crate::real::Symbol = $crate::real::Symbol::new();
        let name = const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        };
        // SAFETY: it is the function of that name, whose type the C library fixes.
        unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> $out>(SYMBOL.find(name))
        }
    }};
}
pub(crate) use real;

/// Opens a file of the layer itself, for appending or for reading.
pub fn open_own(path: &Path, write: bool) -> Option<c_int> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let flags = CLOSES_ON_EXEC | CREATES | if write { WRITES | APPENDS } else { 0 };
    let open = real!(open(*const c_char, c_int, c_int) -> c_int);
    // SAFETY: the path ends with a zero.
    let fd = unsafe { open(path.as_ptr(), flags, 0o600) };
    (fd >= 0).then_some(fd)
}

/// Writes all bytes; returns false on failure.
pub fn write_all(fd: c_int, mut bytes: &[u8]) -> bool {
    let write = real!(write(c_int, *const c_void, usize) -> isize);
    while !bytes.is_empty() {
        // SAFETY: the bytes are there.
        let written = unsafe { write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(count @ 1..) => bytes = &bytes[count..],
            _ => return false,
        }
    }
    true
}

/// Reads the number in the first eight bytes of a file.
pub fn number(fd: c_int) -> Option<u64> {
    let mut bytes = [0; 8];
    // SAFETY: there is room for so many bytes.
    let count = unsafe { pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (count == 8).then(|| u64::from_le_bytes(bytes))
}

/// Returns true if a file is open for appending.
pub fn appends(fd: c_int) -> bool {
    // SAFETY: the call takes numbers and gives one.
    unsafe { fcntl(fd, GET_FLAGS) & APPENDS != 0 }
}

/// Returns the current offset of an open file.
pub fn position(fd: c_int) -> u64 {
    // SAFETY: the call takes numbers and gives one.
    u64::try_from(unsafe { lseek(fd, 0, FROM_HERE) }).unwrap_or_default()
}

/// Returns true if the calling thread has this name.
pub fn is_this_thread(name: &[u8]) -> bool {
    let mut own = [0_u8; NAME_BYTES];
    // SAFETY: there is room for the longest name and its zero.
    let outcome = unsafe { prctl(GET_NAME, own.as_mut_ptr()) };
    outcome == 0 && own.split(|byte| *byte == 0).next() == Some(name)
}

/// Returns true if the file exists.
pub fn is_there(path: &CStr) -> bool {
    // SAFETY: the path ends with a zero.
    unsafe { access(path.as_ptr(), 0) == 0 }
}

/// Kills this process.
pub fn end_this_process() -> ! {
    loop {
        // SAFETY: the calls take numbers and give them.
        unsafe { kill(getpid(), KILL) };
        std::thread::park();
    }
}
