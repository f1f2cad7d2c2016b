//! Replacements of functions of the C library, under their names.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::real::{CREATES, EMPTIES, WORKING_FOLDER, real};
use crate::{Kind, cut, one_name, two_names};

/// `FALLOC_FL_KEEP_SIZE`: space is reserved beyond the end, and the length stays.
const KEEPS_LENGTH: c_int = 1;
/// `AT_REMOVEDIR`.
const IS_FOLDER: c_int = 0x200;

/// `CLOCK_MONOTONIC`, `CLOCK_REALTIME`, and the coarse form of that.
const MONOTONIC: c_int = 1;
const OF_DAY: c_int = 0;
const OF_DAY_COARSE: c_int = 5;
const REFUSED: c_int = -1;

/// One buffer of a vectored write: `struct iovec`.
#[repr(C)]
pub struct Piece {
    bytes: *const c_void,
    count: usize,
}

/// Defines a function that replaces one of the C library; `$real` calls the original.
macro_rules! instead {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty { |$real:ident| $instead:expr })*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $out {
            let there_was = real!($name($($type),*) -> $out);
            // SAFETY: it gets what its caller gave.
            let $real = || unsafe { there_was($($arg),*) };
            $instead
        }
    )*};
}

/// Adds milliseconds to a time of the C library: `struct timespec`, seconds and nanoseconds.
fn shift(time: *mut c_void, millis: i64) {
    if millis == 0 || time.is_null() {
        return;
    }
    // SAFETY: the C library has just written the time there.
    let [seconds, nanos] = unsafe { &mut *time.cast::<[c_long; 2]>() };
    let sum = *nanos + millis.rem_euclid(1_000) * 1_000_000;
    *seconds += millis.div_euclid(1_000) + sum / 1_000_000_000;
    *nanos = sum % 1_000_000_000;
}

/// Returns the caller's buffer as a slice.
fn shown<'a>(bytes: *const c_void, count: usize) -> &'a [u8] {
    if bytes.is_null() {
        return &[];
    }
    // SAFETY: the caller says that so many bytes are there, and they are looked at before it gets its answer.
    unsafe { std::slice::from_raw_parts(bytes.cast(), count) }
}

fn all<'a>(pieces: *const Piece, count: c_int) -> Vec<&'a [u8]> {
    if pieces.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller says that so many pieces are there.
    let pieces = unsafe { std::slice::from_raw_parts(pieces, usize::try_from(count).unwrap_or_default()) };
    pieces.iter().map(|piece| shown(piece.bytes, piece.count)).collect()
}

fn opened(folder: c_int, path: *const c_char, flags: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if flags & (CREATES | EMPTIES) == 0 { real() } else { crate::open(folder, path, flags & EMPTIES != 0, real) }
}

/// Records that a file is at least as long as the allocation afterwards, unless it keeps its length.
fn allocated(fd: c_int, mode: c_int, at: c_long, count: c_long, real: impl FnOnce() -> c_int) -> c_int {
    let end = u64::try_from(at.saturating_add(count)).unwrap_or_default();
    cut(fd, |length| (mode & KEEPS_LENGTH == 0 && end > length).then_some(end), real)
}

fn length(given: c_long) -> Option<u64> {
    u64::try_from(given).ok()
}

fn offset(given: c_long) -> Option<u64> {
    Some(u64::try_from(given).unwrap_or_default())
}

instead! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        |real| opened(WORKING_FOLDER, path, flags, real)
    }
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        |real| opened(WORKING_FOLDER, path, flags, real)
    }
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        |real| opened(folder, path, flags, real)
    }
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        |real| opened(folder, path, flags, real)
    }
    fn creat(path: *const c_char, mode: c_uint) -> c_int {
        |real| opened(WORKING_FOLDER, path, CREATES | EMPTIES, real)
    }
    fn creat64(path: *const c_char, mode: c_uint) -> c_int {
        |real| opened(WORKING_FOLDER, path, CREATES | EMPTIES, real)
    }

    fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
        |real| crate::write(fd, None, &[shown(bytes, count)], real)
    }
    fn pwrite(fd: c_int, bytes: *const c_void, count: usize, at: c_long) -> isize {
        |real| crate::write(fd, offset(at), &[shown(bytes, count)], real)
    }
    fn pwrite64(fd: c_int, bytes: *const c_void, count: usize, at: c_long) -> isize {
        |real| crate::write(fd, offset(at), &[shown(bytes, count)], real)
    }
    fn writev(fd: c_int, pieces: *const Piece, count: c_int) -> isize {
        |real| crate::write(fd, None, &all(pieces, count), real)
    }
    fn pwritev(fd: c_int, pieces: *const Piece, count: c_int, at: c_long) -> isize {
        |real| crate::write(fd, offset(at), &all(pieces, count), real)
    }
    fn pwritev64(fd: c_int, pieces: *const Piece, count: c_int, at: c_long) -> isize {
        |real| crate::write(fd, offset(at), &all(pieces, count), real)
    }

    fn ftruncate(fd: c_int, to: c_long) -> c_int { |real| cut(fd, |_| length(to), real) }
    fn ftruncate64(fd: c_int, to: c_long) -> c_int { |real| cut(fd, |_| length(to), real) }
    fn fallocate(fd: c_int, mode: c_int, at: c_long, count: c_long) -> c_int {
        |real| allocated(fd, mode, at, count, real)
    }
    fn fallocate64(fd: c_int, mode: c_int, at: c_long, count: c_long) -> c_int {
        |real| allocated(fd, mode, at, count, real)
    }
    fn posix_fallocate(fd: c_int, at: c_long, count: c_long) -> c_int { |real| allocated(fd, 0, at, count, real) }
    fn posix_fallocate64(fd: c_int, at: c_long, count: c_long) -> c_int { |real| allocated(fd, 0, at, count, real) }

    fn fsync(fd: c_int) -> c_int { |real| crate::sync(fd, real) }
    fn fdatasync(fd: c_int) -> c_int { |real| crate::sync(fd, real) }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        |real| two_names(Kind::Renamed, (WORKING_FOLDER, from), (WORKING_FOLDER, to), real)
    }
    fn link(from: *const c_char, to: *const c_char) -> c_int {
        |real| two_names(Kind::Linked, (WORKING_FOLDER, from), (WORKING_FOLDER, to), real)
    }
    fn linkat(a: c_int, from: *const c_char, b: c_int, to: *const c_char, flags: c_int) -> c_int {
        |real| two_names(Kind::Linked, (a, from), (b, to), real)
    }
    fn unlink(path: *const c_char) -> c_int { |real| one_name(Kind::Unlinked, WORKING_FOLDER, path, real) }
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        |real| {
            let kind = if flags & IS_FOLDER == 0 { Kind::Unlinked } else { Kind::FolderRemoved };
            one_name(kind, folder, path, real)
        }
    }
    fn mkdir(path: *const c_char, mode: c_uint) -> c_int { |real| one_name(Kind::FolderMade, WORKING_FOLDER, path, real) }
    fn rmdir(path: *const c_char) -> c_int { |real| one_name(Kind::FolderRemoved, WORKING_FOLDER, path, real) }

    fn clock_gettime(clock: c_int, time: *mut c_void) -> c_int {
        |real| match clock {
            MONOTONIC if crate::clock_has_stopped() => REFUSED,
            OF_DAY | OF_DAY_COARSE => {
                let outcome = real();
                if outcome == 0 {
                    shift(time, crate::clock_shift());
                }
                outcome
            }
            _ => real(),
        }
    }
}
