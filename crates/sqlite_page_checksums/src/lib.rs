//! Page checksums for SQLite, and detection of lost transactions in its write-ahead log.
//!
//! SQLite's file format has no checksums of pages: a flipped bit on the disk becomes a wrong value, and nothing reports
//! it. In WAL mode it is worse: SQLite ends recovery at the first damaged frame of the write-ahead log, as if a crash had
//! torn it there, and so silently drops every transaction behind it, even if it was acknowledged long ago.
//!
//! This crate is a VFS, a layer between SQLite and the file system, over the one that SQLite has for the system.
//!
//! - It writes a checksum into the last eight bytes of every database page, which SQLite reserves for that, and verifies
//!   every page that is read. The form is that of SQLite's own extension `cksumvfs`, so each can read the other's files,
//!   and so can any SQLite without either.
//! - A page that is read from the write-ahead log, by a reader or a checkpoint, is verified against the sums of the log's
//!   frames, which SQLite itself checks only at recovery. So damage in the log never gets into the database with a valid
//!   checksum.
//! - A page that does not agree with its checksum is the error [`DAMAGED_CODE`] (`SQLITE_IOERR_DATA`), and is logged with
//!   file and page.
//! - After each sync that ends a transaction, it records how far the log is durable in a note beside the database
//!   (`<database>-note`, 32 bytes). [`prepare`] refuses a database whose log ends before that. [`loss`] describes what is
//!   missing, and [`accept_loss`] makes the database usable without it, after it has copied the files.
//! - While a database is open, damage in the log that the next start would stumble over ends all writing, because what
//!   came behind it would be acknowledged and then lost. So does a sync of the database that fails.
//!
//! # Use
//!
//! Prepare a database before you open it, and open it with the VFS, through any driver that uses the same SQLite:
//!
//! ```no_run
//! # fn main() -> Result<(), sqlite_page_checksums::PagesError> {
//! use std::path::Path;
//! use sqlite_page_checksums::{Open, VFS, prepare};
//!
//! let vfs = prepare(Path::new("app.db"), Open::ToUse)?;
//! assert_eq!(vfs, Some(VFS));
//! // Now open `file:app.db?vfs=sqlite_page_checksums`, in WAL mode and with `PRAGMA synchronous = FULL`.
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - Unix, WAL mode, pages of 4 KiB. A database that exists already is converted by [`prepare`], into a new file that
//!   replaces it by a rename.
//! - All programs that write to the database must use this VFS; others must only read it.
//! - With `synchronous = FULL`, a transaction is durable when its commit returns, and the note covers it. A power cut may
//!   leave an older note, which claims less.

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

/// SQLite's error code for a page that does not agree with its checksum: `SQLITE_IOERR_DATA`.
pub const DAMAGED_CODE: i32 = libsqlite3_sys::SQLITE_IOERR_DATA;
