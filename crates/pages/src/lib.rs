//! What SQLite's file format lacks: checksums of pages, and a note of how far its write-ahead log was durable.
//!
//! A database of SQLite has no checksums of its pages: a flipped bit on the disk becomes a wrong value, and nothing reports it.
//! This crate puts a layer between SQLite and the file system (a shim over its own VFS). It writes a checksum into the
//! last eight bytes of every page, which SQLite leaves free, and holds every page against it that is read; the form is
//! that of SQLite's own `cksumvfs`. A page that is read from the write-ahead log is held against the sums that the log
//! has anyway, and that SQLite looks at only when it opens one; so no damage goes from the log into the file and gets a
//! checksum that fits. What does not fit is an error (`SQLITE_IOERR_DATA`) and named in the log.
//!
//! A damaged byte in the log is to SQLite as the torn end of one: it forgets all that stood behind it. So whenever the
//! log was synced at the end of a transaction, how far it reaches is written into a note beside it, and a database whose
//! log reaches less far is not opened.
//!
//! While a database is open, damage in its log that the next start would stumble over ends all writing: what came behind
//! it would be acknowledged and then lost. The same does a sync of the database that fails.

mod accept;
mod checksum;
mod file;
mod keeper;
mod log;
mod loss;
mod note;
mod paths;
mod prepare;
mod raw;
mod vfs;
mod watch;

#[cfg(test)]
mod tests;

pub use accept::accept_loss;
pub use loss::Loss;
pub use prepare::{Open, PagesError, companions, loss, page_fits, prepare};
pub use vfs::VFS;
pub use watch::{damage_of, last_damage};

/// What SQLite answers where a page does not fit to its checksum: `SQLITE_IOERR_DATA`.
pub const DAMAGED_CODE: i32 = libsqlite3_sys::SQLITE_IOERR_DATA;
